/**
 * A slot is one place of the layout in both halves, so that mirrored boxes never overlap. It holds either a forward op with its leaves, and mirrored its backward ops with their results and the leaves' gradients; or a tensor, and mirrored its gradient with the parts of the sum.
 */

import { Numbers } from "./scene.js";
import { blockSize, GROUP, labelled, named, OP, TENSOR } from "./sizes.js";

/** Numbers per entry: box kind, half, ref, whether it is a satellite, height of its middle, its height, its depth, its
 * start and its end as shares of the slot. */
export const STRIDE = 9;

export class Slots {
  /** @param {GraphIndex} index @param {LayoutSizes} sizes */
  constructor(index, sizes) {
    this.index = index;
    this.sizes = sizes;
    const { ops, tensors, groups } = index.arrays;
    const slots = ops + tensors + groups;
    /** Slot → its first entry, and the entry after its last; -1 before the first request. */
    this.start = new Int32Array(slots).fill(-1);
    this.end = new Int32Array(slots);
    /** Slot → depth, and in either half how far it reaches toward the axis, and away from it. */
    this.depth = new Float32Array(slots);
    this.inner = [new Float32Array(slots), new Float32Array(slots)];
    this.outer = [new Float32Array(slots), new Float32Array(slots)];
    this.entries = new Numbers();
  }

  /** @param {number} kind OP, TENSOR or GROUP @param {number} ref @returns {number} */
  slotOf(kind, ref) {
    const { ops, tensors } = this.index.arrays;
    const slot = kind === OP ? ref : kind === TENSOR ? ops + ref : ops + tensors + ref;
    if (this.start[slot] < 0) this.#build(slot, kind, ref);
    return slot;
  }

  /** @param {number} slot @param {number} kind @param {number} ref */
  #build(slot, kind, ref) {
    this.start[slot] = this.entries.length;
    if (kind === OP) this.#op(ref);
    else if (kind === TENSOR) this.#tensor(ref);
    else this.#group(ref);
    this.end[slot] = this.entries.length;
    let depth = 0;
    for (let at = this.start[slot]; at < this.end[slot]; at += STRIDE) {
      const height = this.entries.at(at + 4);
      const reach = this.entries.at(at + 5) / 2;
      const share = this.entries.at(at + 8) - this.entries.at(at + 7);
      const half = this.entries.at(at + 1);
      depth = Math.max(depth, this.entries.at(at + 6) / share + (share < 1 ? this.sizes.rowGap / 2 : 0));
      this.inner[half][slot] = Math.max(this.inner[half][slot], reach - height);
      this.outer[half][slot] = Math.max(this.outer[half][slot], height + reach);
    }
    this.depth[slot] = depth;
  }

  /** @param {number} kind @param {number} half @param {number} ref @param {number} height
   * @param {number[]} size @param {boolean} [isSatellite] @param {number} [from] @param {number} [to] */
  #put(kind, half, ref, height, [depth, thickness], isSatellite = false, from = 0, to = 1) {
    for (const value of [kind, half, ref, isSatellite ? 1 : 0, height, thickness, depth, from, to])
      this.entries.push(value);
  }

  /** @param {number} op */
  #op(op) {
    const { arrays, satelliteStart, satellite } = this.index;
    const size = labelled(this.sizes, this.sizes.op, arrays.opLabelLetters[op]);
    this.#put(OP, 0, op, 0, size);
    const beside = satellite.subarray(satelliteStart[op], satelliteStart[op + 1]);
    const reach = this.#backwardOps(op);
    this.#satellites(beside, size[1] / 2, reach < 0 ? size[1] / 2 : reach, true);
  }

  /** Adds the backward ops beneath a forward op, from the axis outward, each followed by its results.
   * @param {number} op @returns {number} their reach; -1 without any */
  #backwardOps(op) {
    const { sizes } = this;
    const { arrays, backStart, back, sumOf, home, owner } = this.index;
    let reach = -1;
    /** @param {number} kind @param {number} ref @param {number[]} size */
    const stack = (kind, ref, size) => {
      this.#put(kind, 1, ref, reach < 0 ? 0 : reach + sizes.stackGap + size[1] / 2, size);
      reach = reach < 0 ? size[1] / 2 : reach + sizes.stackGap + size[1];
    };
    for (let at = backStart[op]; at < backStart[op + 1]; at += 1) {
      const backward = back[at];
      const summed = sumOf[backward];
      // An op that adds parts stands with the parts, if they are drawn.
      if (summed >= 0 && (home[summed] >= 0 || owner[summed] >= 0)) continue;
      stack(OP, backward, labelled(sizes, sizes.op, arrays.opLabelLetters[backward]));
      for (let out = arrays.outputStart[backward]; out < arrays.outputStart[backward + 1]; out += 1) {
        const tensor = arrays.outputs[out];
        if (this.isPassedOn(tensor))
          stack(TENSOR, tensor, named(sizes, sizes.satellite, arrays.tensorLabelLetters[tensor]));
      }
    }
    return reach;
  }

  /** @param {number} tensor @returns {boolean} whether it is a backward tensor that stands with the op that makes it:
   * the gradient of nothing drawn, and read */
  isPassedOn(tensor) {
    const { arrays, home, owner } = this.index;
    if (arrays.tensorHalf[tensor] === 0 || arrays.consumerStart[tensor] === arrays.consumerStart[tensor + 1])
      return false;
    const of = arrays.gradientOf[tensor];
    return of < 0 || (home[of] < 0 && owner[of] < 0);
  }

  /** @param {number} tensor */
  #tensor(tensor) {
    const { sizes } = this;
    const { gradientStart, gradient, loss } = this.index;
    const [from, to] = [gradientStart[tensor], gradientStart[tensor + 1]];
    const size = this.#sizeOf(tensor, sizes.tensor);
    this.#put(TENSOR, 0, tensor, 0, size);
    if (from === to) return;
    // The gradient of the loss stands beneath the loss, which is on the axis.
    const start = tensor === loss ? size[1] + sizes.rowGap : 0;
    this.#put(TENSOR, 1, gradient[to - 1], start, size);
    this.#parts(tensor, start + size[1] / 2, null, false, 0, 1);
  }

  /** Adds the op that sums the parts of a tensor's gradient, and the parts. @param {number} tensor
   * @param {number} reach of the gradient @param {number[] | null} size of a part; null: its own
   * @param {boolean} isSatellite @param {number} start share of the slot @param {number} end @returns {number} reach */
  #parts(tensor, reach, size, isSatellite, start, end) {
    const { sizes } = this;
    const { arrays, gradientStart, gradient, sumOf } = this.index;
    const [from, to] = [gradientStart[tensor], gradientStart[tensor + 1]];
    const sum = arrays.producer[gradient[to - 1]];
    if (sum >= 0 && sumOf[sum] === tensor) {
      const opSize = labelled(sizes, sizes.op, arrays.opLabelLetters[sum]);
      this.#put(OP, 1, sum, reach + sizes.stackGap + opSize[1] / 2, opSize, isSatellite, start, end);
      reach += sizes.stackGap + opSize[1];
    }
    // The parts that come last come from nearest, and stand nearest.
    for (let at = to - 2; at >= from; at -= 1) {
      const part = size ?? this.#sizeOf(gradient[at], sizes.satellite);
      this.#put(TENSOR, 1, gradient[at], reach + sizes.stackGap + part[1] / 2, part, isSatellite, start, end);
      reach += sizes.stackGap + part[1];
    }
    return reach;
  }

  /** @param {number} tensor @param {number[]} least @returns {number[]} */
  #sizeOf(tensor, least) {
    const { arrays, gradientStart, gradient } = this.index;
    const whole = gradient[gradientStart[tensor + 1] - 1] ?? -1;
    const hasGradient = gradientStart[tensor + 1] > gradientStart[tensor];
    const letters = Math.max(arrays.tensorLabelLetters[tensor], hasGradient ? arrays.tensorLabelLetters[whole] : 0);
    const isScalar = arrays.elements[tensor] === 1 && least === this.sizes.tensor;
    return isScalar ? this.sizes.scalar : named(this.sizes, least, letters);
  }

  /** @param {number} group closed */
  #group(group) {
    const { sizes } = this;
    const { arrays, groupSatelliteStart, groupSatellite, backsBefore } = this.index;
    const isLeaf = arrays.groupIsLeaf[group] === 1 && arrays.groupKind[group] === 0;
    const least = isLeaf ? sizes.op : blockSize(sizes, arrays.groupRepeats[group], arrays.groupDifferences[group]);
    const size = labelled(sizes, least, arrays.groupLabelLetters[group]);
    this.#put(GROUP, 0, group, 0, size);
    const hasBackward = backsBefore[arrays.groupLast[group]] > backsBefore[arrays.groupFirst[group]];
    if (hasBackward) this.#put(GROUP, 1, group, 0, size);
    const beside = groupSatellite.subarray(groupSatelliteStart[group], groupSatelliteStart[group + 1]);
    this.#satellites(beside, size[1] / 2, size[1] / 2, false);
  }

  /** @param {Int32Array} beside @param {number} forward how far what they stand beside reaches @param {number} backward
   * @param {boolean} withParts whether the parts of gradients are drawn */
  #satellites(beside, forward, backward, withParts) {
    const { sizes } = this;
    const { gradientStart, gradient } = this.index;
    let [reach, mirrored] = [forward, backward];
    beside.forEach((tensor, position) => {
      const size = this.#sizeOf(tensor, sizes.satellite);
      const [from, to] = sizes.stackOutward ? [0, 1] : [position / beside.length, (position + 1) / beside.length];
      if (!sizes.stackOutward) [reach, mirrored] = [forward, backward];
      this.#put(TENSOR, 0, tensor, reach + sizes.rowGap + size[1] / 2, size, true, from, to);
      reach += sizes.rowGap + size[1];
      const [first, end] = [gradientStart[tensor], gradientStart[tensor + 1]];
      if (end === first) return;
      const whole = gradient[end - 1];
      this.#put(TENSOR, 1, whole, mirrored + sizes.rowGap + size[1] / 2, size, true, from, to);
      mirrored += sizes.rowGap + size[1];
      if (withParts) mirrored = this.#parts(tensor, mirrored, size, true, from, to);
    });
  }
}
