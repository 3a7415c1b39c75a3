/** Looks up boxes of a drawing: by item, by point, by the group that hides it. No DOM. */

import { OP, TENSOR } from "../layout/sizes.js";

/** @type {readonly Item["kind"][]} by kind of box */
const ITEM_KINDS = ["op", "tensor", "group", "group"];

export class DrawingIndex {
  /** @type {Int32Array} */
  #ops;
  /** @type {Int32Array} */
  #tensors;
  /** @type {Int32Array} forward halves, then backward halves */
  #groups;

  /** @param {GraphArrays} arrays @param {Drawing} drawing */
  constructor(arrays, drawing) {
    this.arrays = arrays;
    this.drawing = drawing;
    this.#ops = new Int32Array(arrays.ops).fill(-1);
    this.#tensors = new Int32Array(arrays.tensors).fill(-1);
    this.#groups = new Int32Array(2 * arrays.groups).fill(-1);
    const { kind, ref, half, boxes } = drawing;
    for (let box = 0; box < boxes; box += 1) {
      const index = ref[box];
      if (kind[box] === OP) this.#ops[index] = box;
      else if (kind[box] === TENSOR) this.#tensors[index] = box;
      else this.#groups[index + half[box] * arrays.groups] = box;
    }
  }

  /** @param {Item} item @returns {number} its box; -1 for none */
  boxOf(item) {
    if (item.kind === "op") return this.#ops[item.index];
    if (item.kind === "tensor") return this.#tensors[item.index];
    return this.#groups[item.index + (item.half === "backward" ? this.arrays.groups : 0)];
  }

  /** @param {Item} item @returns {number} its box, or the box of the innermost group around it; -1 for none */
  holderOf(item) {
    const own = this.boxOf(item);
    if (own >= 0) return own;
    if (item.kind === "group")
      return this.#around(this.arrays.groupParent[item.index], item.half === "backward" ? 1 : 0);
    if (item.kind === "op") return this.#aroundOp(item.index);
    const { producer, consumerStart, consumers, gradientOf, tensorHalf } = this.arrays;
    const made = producer[item.index];
    const first = consumerStart[item.index];
    const beside = made >= 0 ? made : first < consumerStart[item.index + 1] ? consumers[first] : -1;
    if (beside >= 0) return this.#ops[beside] >= 0 ? this.#ops[beside] : this.#aroundOp(beside);
    // A gradient without a producer stands beside its tensor, in the other half.
    const original = gradientOf[item.index];
    if (original < 0) return -1;
    const holder = this.holderOf({ kind: "tensor", index: original, half: "forward" });
    const mirrored = holder < 0 ? -1 : this.drawing.twin[holder];
    return mirrored >= 0 && tensorHalf[item.index] === 1 ? mirrored : holder;
  }

  /** @param {number} op @returns {number} */
  #aroundOp(op) {
    const { opGroup, opHalf } = this.arrays;
    return this.#around(opGroup[op], opHalf[op]);
  }

  /** @param {number} group @param {number} half @returns {number} */
  #around(group, half) {
    const { groupParent, groups } = this.arrays;
    for (let around = group; around >= 0; around = groupParent[around]) {
      const box = this.#groups[around + half * groups];
      if (box >= 0) return box;
    }
    return -1;
  }

  /** @param {number} box @returns {Item} */
  itemOf(box) {
    const { kind, ref, half } = this.drawing;
    return { kind: ITEM_KINDS[kind[box]], index: ref[box], half: half[box] === 1 ? "backward" : "forward" };
  }

  /** @param {number} box @returns {Region} */
  rectOf(box) {
    const { rect } = this.drawing;
    return { x: rect[4 * box], y: rect[4 * box + 1], width: rect[4 * box + 2], height: rect[4 * box + 3] };
  }

  /** The innermost box at a point, or -1. @param {number} x px of the drawing @param {number} y */
  boxAt(x, y) {
    const { rect, boxes } = this.drawing;
    // Children come after their frames.
    for (let box = boxes - 1; box >= 0; box -= 1) {
      const left = rect[4 * box];
      const top = rect[4 * box + 1];
      if (x >= left && y >= top && x <= left + rect[4 * box + 2] && y <= top + rect[4 * box + 3]) return box;
    }
    return -1;
  }

  /** The box whose centre is nearest to a point, or -1. @param {number} x px of the drawing @param {number} y
   * @param {(box: number) => boolean} counts */
  nearest(x, y, counts) {
    const { rect, boxes } = this.drawing;
    let best = -1;
    let least = Infinity;
    for (let box = 0; box < boxes; box += 1) {
      const dx = rect[4 * box] + rect[4 * box + 2] / 2 - x;
      const dy = rect[4 * box + 1] + rect[4 * box + 3] / 2 - y;
      const away = dx * dx + dy * dy;
      if (away < least && counts(box)) [best, least] = [box, away];
    }
    return best;
  }

  /** @param {number} box @param {number} most @returns {number[]} the routes that begin or end there */
  routesAt(box, most) {
    const { source, target, routes } = this.drawing;
    /** @type {number[]} */
    const found = [];
    if (box < 0) return found;
    for (let route = 0; route < routes && found.length < most; route += 1) {
      if (source[route] === box || target[route] === box) found.push(route);
    }
    return found;
  }

  /** @param {number} box @returns {number[]} the frames around a box, outermost first */
  framesAround(box) {
    const { frame } = this.drawing;
    const frames = [];
    for (let around = frame[box]; around >= 0; around = frame[around]) frames.push(around);
    return frames.reverse();
  }
}
