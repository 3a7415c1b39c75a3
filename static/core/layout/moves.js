/** Open groups that only moved since the last drawing, because nothing opened or closed in them. The boxes and lines of
 * each outermost one are taken over in bulk, shifted. */

import { Numbers, pair } from "./scene.js";
import { OP, TENSOR } from "./sizes.js";

// For the lines of each tensor or saved value: the smallest group with all boxes that these lines need. While nothing
// opens or closes in that group, the lines only move with it. Computed once per graph and folding.

/** Groups, -1 for none: of a tensor's forward lines and its gradients' lines; of each leaf that is a satellite, of each
 * backward tensor, in order, and of each value kept for a backward op. @param {GraphIndex} index */
export function belonging(index) {
  const { arrays, readerStart, reader, gradientStart, gradient, owner, home } = index;
  const around = new Around(index);
  const back = new Numbers(Int32Array);
  const backGroup = new Numbers(Int32Array);
  const leaf = new Numbers(Int32Array);
  const leafGroup = new Numbers(Int32Array);
  const backwardOf = new Int32Array(arrays.tensors).fill(-1);
  const forward = new Int32Array(arrays.tensors).fill(-1);
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    if (arrays.tensorHalf[tensor] === 0) continue;
    backwardOf[tensor] = around.gradient(tensor);
    back.push(tensor);
    backGroup.push(backwardOf[tensor]);
  }
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    if (arrays.tensorHalf[tensor] === 1) continue;
    const isLeaf = owner[tensor] >= 0;
    if (!isLeaf && home[tensor] < 0) continue;
    let group = around.tensor(tensor);
    for (let at = readerStart[tensor]; at < readerStart[tensor + 1]; at += 1) {
      group = around.both(group, index.opGroup[reader[at]]);
    }
    if (isLeaf) {
      leaf.push(tensor);
      leafGroup.push(group);
      continue;
    }
    // A gradient's line may mirror the tensor's line, so both are drawn again together.
    for (let at = gradientStart[tensor]; at < gradientStart[tensor + 1]; at += 1) {
      group = around.both(group, backwardOf[gradient[at]]);
    }
    forward[tensor] = group;
  }
  const kept = keptValues(index);
  return {
    forward,
    leaf: new Int32Array(leaf.all),
    leafGroup: new Int32Array(leafGroup.all),
    back: new Int32Array(back.all),
    backGroup: new Int32Array(backGroup.all),
    ...kept,
    keptGroup: kept.keptTensor.map((tensor, at) =>
      around.both(around.tensor(tensor), around.backward(kept.keptFor[at]))
    ),
  };
}

class Around {
  /** @param {GraphIndex} index */
  constructor(index) {
    this.index = index;
  }

  /** @param {number} a group or -1 @param {number} b @returns {number} the smallest group that holds both, or -1 */
  both(a, b) {
    const { parent } = this.index;
    if (a < 0 || b < 0) return -1;
    // Outer groups have lower numbers.
    while (a !== b) {
      if (a > b) a = parent[a];
      else b = parent[b];
    }
    return a;
  }

  /** @param {number} tensor of the forward half @returns {number} its group when all groups are open */
  tensor(tensor) {
    const { arrays, home, owner, opGroup } = this.index;
    const maker = arrays.producer[tensor];
    const reads = owner[tensor];
    const own = home[tensor];
    if (reads >= 0) return opGroup[reads];
    if (maker < 0) return own;
    return own < 0 ? opGroup[maker] : this.both(own, opGroup[maker]);
  }

  /** @param {number} op @returns {number} the group that holds its place and its hiding place; -1 for a forward op */
  backward(op) {
    const { arrays, opGroup, sumOf, home, owner } = this.index;
    if (arrays.opHalf[op] === 0) return -1;
    const hidden = opGroup[op];
    const summed = sumOf[op];
    if (summed >= 0 && (home[summed] >= 0 || owner[summed] >= 0))
      return this.both(hidden, this.tensor(summed));
    const anchor = arrays.opAnchor[op];
    return anchor < 0 ? -1 : this.both(hidden, opGroup[anchor]);
  }

  /** @param {number} tensor of the backward half @returns {number} */
  gradient(tensor) {
    const { arrays } = this.index;
    const maker = arrays.producer[tensor];
    const of = arrays.gradientOf[tensor];
    if (of >= 0 && arrays.tensorHalf[of] === 1) return -1;
    if (of < 0 && maker < 0) return -1;
    let group = of >= 0 ? this.tensor(of) : this.backward(maker);
    if (maker >= 0) group = this.both(group, this.backward(maker));
    for (let at = arrays.consumerStart[tensor]; at < arrays.consumerStart[tensor + 1]; at += 1) {
      group = this.both(group, this.backward(arrays.consumers[at]));
    }
    return group;
  }
}

/** @param {GraphIndex} index */
function keptValues({ arrays, backStart, back, loss }) {
  const tensors = new Numbers(Int32Array);
  const needs = new Numbers(Int32Array);
  /** @param {number} tensor @param {number} backward */
  const keep = (tensor, backward) => {
    if (tensor === loss || backward < 0) return;
    tensors.push(tensor);
    needs.push(backward);
  };
  /** Pairs of forward op and tensor for which the reading backward op is known. @type {Set<number>} */
  const known = new Set();
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] === 0) continue;
    for (let at = arrays.inputStart[op]; at < arrays.inputStart[op + 1]; at += 1) {
      const tensor = arrays.inputs[at];
      if (arrays.tensorHalf[tensor] === 1) continue;
      known.add(arrays.opAnchor[op] * arrays.tensors + tensor);
      keep(tensor, op);
    }
  }
  for (let at = 0; at < arrays.savedTensor.length; at += 1) {
    const [tensor, op] = [arrays.savedTensor[at], arrays.savedOp[at]];
    if (arrays.tensorHalf[tensor] === 1 || backStart[op] === backStart[op + 1]
      || known.has(op * arrays.tensors + tensor)) continue;
    keep(tensor, back[backStart[op]]);
  }
  return { keptTensor: new Int32Array(tensors.all), keptFor: new Int32Array(needs.all) };
}

// Moving.

const HALVES = /** @type {const} */ ([0, 1]);
const UNMOVED = /** @type {const} */ (["kind", "half", "ref", "isSatellite", "depth", "thickness", "frame", "site"]);

export class Moves {
  /** @param {LayoutBoxes} boxes to be placed @param {KeptLayout | null} last */
  constructor(boxes, last) {
    const { parent, arrays } = boxes.store.index;
    const { groups } = arrays;
    this.last = last;
    /** Group, open or closed → the outermost group around it, or itself, that only moves; else -1. */
    this.root = new Int32Array(groups).fill(-1);
    /** How far it moves: along the depth, in either half away from the axis, and across on the drawing. */
    this.depth = new Float64Array(groups);
    this.height = pair(Float64Array, groups);
    this.across = pair(Float64Array, groups);
    /** By how much the numbers of its boxes differ. */
    this.box = pair(Int32Array, groups);
    if (last === null) return;
    for (let group = 0; group < groups; group += 1) {
      const outer = group === 0 ? -1 : this.root[parent[group]];
      const frame = boxes.frames[group];
      this.root[group] = outer < 0 && frame !== undefined && frame === last.boxes.frames[group] ? group : outer;
    }
  }

  /** @param {number} group or -1 @returns {number} */
  rootOf(group) {
    return this.root[group] ?? -1;
  }

  /** All boxes of a group that only moved, and of those within. @param {LayoutBoxes} boxes @param {number} group whose
   * own place is known @param {0 | 1} half */
  takeBoxes(boxes, group, half) {
    if (this.last === null) return;
    const before = this.last.boxes;
    const [from, to] = [before.first[half][group], before.last[half][group]];
    const begin = boxes.count;
    const rise = boxes.originHeight[half][group] - before.originHeight[half][group];
    const deeper = boxes.originDepth[group] - before.originDepth[group];
    this.depth[group] = deeper;
    this.height[half][group] = rise;
    this.box[half][group] = begin - from;
    for (const name of UNMOVED) boxes[name].append(before[name], from, to);
    boxes.start.append(before.start, from, to, deeper);
    boxes.height.append(before.height, from, to, half === 0 ? rise : -rise);
    boxes.first[half][group] = begin;
    boxes.last[half][group] = begin + to - from;
    this.#renumber(boxes, begin, group, half);
  }

  /** Renumbers the references of boxes taken over, and the references to them. @param {LayoutBoxes} boxes
   * @param {number} begin @param {number} group @param {0 | 1} half */
  #renumber(boxes, begin, group, half) {
    const [kind, ref, frame, site] = [boxes.kind.room, boxes.ref.room, boxes.frame.room, boxes.site.room];
    const { opBox, tensorBox } = boxes;
    const groupBox = boxes.groupBox[half];
    const [shift, siteShift] = [this.box[half][group], this.box[0][group]];
    for (let box = begin; box < boxes.count; box += 1) {
      const around = frame[box];
      if (around >= 0) frame[box] = around + shift;
      const above = site[box];
      if (above >= 0) site[box] = above + siteShift;
      const shown = ref[box];
      if (kind[box] === OP) opBox[shown] = box;
      else if (kind[box] === TENSOR) tensorBox[shown] = box;
      else groupBox[shown] = box;
    }
  }

  /** Origins of the groups within groups that only moved. @param {LayoutBoxes} boxes of both halves */
  takeOrigins(boxes) {
    if (this.last === null) return;
    const before = this.last.boxes;
    for (const group of boxes.open) {
      const outer = this.rootOf(group);
      if (outer < 0 || outer === group) continue;
      boxes.originDepth[group] = before.originDepth[group] + this.depth[outer];
      boxes.nodeAround[group] = before.nodeAround[group];
      for (const half of HALVES) {
        const shift = this.box[half][outer];
        boxes.originHeight[half][group] = before.originHeight[half][group] + this.height[half][outer];
        boxes.first[half][group] = before.first[half][group] + shift;
        boxes.last[half][group] = before.last[half][group] + shift;
      }
    }
  }

  /** Shifts of lines across the depth. @param {LayoutBoxes} boxes after measuring */
  settle(boxes) {
    if (this.last === null) return;
    const lifted = boxes.top - this.last.boxes.top;
    for (const group of boxes.open) {
      if (this.root[group] !== group) continue;
      this.across[0][group] = lifted - this.height[0][group];
      this.across[1][group] = lifted + this.height[1][group];
    }
  }

  /** @param {LayoutBoxes} boxes @param {number} a box @param {number} b box @returns {boolean} whether one group that
   * only moved holds both */
  isWithin(boxes, a, b) {
    const root = this.#rootOfBox(boxes, a);
    return root >= 0 && root === this.#rootOfBox(boxes, b);
  }

  /** @param {LayoutBoxes} boxes @param {number} box @returns {number} */
  #rootOfBox(boxes, box) {
    const frame = boxes.frame.at(box);
    return this.rootOf(frame < 0 ? 0 : boxes.ref.at(frame));
  }
}

/** Adds the lines of a sequence of items. Copies the last drawing's lines if the item's group only moved, else draws them.
 * @param {RouteList} list @param {Moves} moves @param {Int32Array} groups item → its group, or -1
 * @param {Int32Array} first item → its first line, with one entry more; is filled @param {Int32Array | null} before the
 * same of the last drawing @param {(item: number) => void} draw @param {number} [from] @param {number} [to] items */
export function takeOver(list, moves, groups, first, before, draw, from = 0, to = groups.length) {
  const { last } = moves;
  for (let item = from; item < to;) {
    const root = moves.rootOf(groups[item]);
    if (root < 0 || last === null || before === null) {
      first[item] = list.count;
      draw(item);
      item += 1;
      continue;
    }
    const start = item;
    while (item < to && moves.rootOf(groups[item]) === root) item += 1;
    const begin = before[start];
    const shift = list.count - begin;
    for (let at = start; at < item; at += 1) first[at] = before[at] + shift;
    list.take(last.list, begin, before[item], root, moves);
  }
  first[to] = list.count;
}
