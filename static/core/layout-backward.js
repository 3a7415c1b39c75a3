/**
 * The backward half's lines, and those across the axis. Where a gradient goes back the way its tensor came, its line is
 * the forward one's mirror image; others go straight from box to box, around what stands between.
 */

import { Detours } from "./detours.js";
import { DATA, FOLD, REUSE, SATELLITE, SAVED, TENSOR } from "./layout-sizes.js";
import { crossing, direct, folding, reversed, stacked } from "./routes.js";

/** @typedef {import("./layout-forward.js").ForwardLines} ForwardLines */

/** So many tensors' lines are added between pauses. */
const AT_ONCE = 2048;

/**
 * Adds all of them to the list that the forward lines are in, pausing now and then.
 *
 * @param {ForwardLines} forward
 * @returns {Generator<undefined, void, void>}
 */
export function* backwardLines(forward) {
  const { list } = forward;
  const { arrays } = forward.index;
  const detours = new Detours(list);
  const stacks = stackBorders(forward);
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    if (tensor % AT_ONCE === 0) yield;
    if (arrays.tensorHalf[tensor] === 0) continue;
    const own = list.boxes.tensorBox[tensor] ?? -1;
    const maker = arrays.producer[tensor] ?? -1;
    const from = maker < 0 ? -1 : list.boxOfOp(maker, arrays.opHalf[maker] ?? 1);
    if (own >= 0 && from >= 0) addBackward(forward, detours, stacks, from, own, tensor);
    list.startRound();
    for (let at = arrays.consumerStart[tensor] ?? 0; at < (arrays.consumerStart[tensor + 1] ?? 0); at += 1) {
      const op = arrays.consumers[at] ?? 0;
      const to = list.boxOfOp(op, arrays.opHalf[op] ?? 1);
      if (to < 0 || !list.meet(to)) continue;
      if (own >= 0) addBackward(forward, detours, stacks, own, to, tensor);
      else if (from >= 0 && from !== to) addBackward(forward, detours, stacks, from, to, tensor);
    }
  }
}

/** Forward box → where the stack of backward boxes beneath it starts along the depth, and where it ends. @typedef {{start: Float64Array, end: Float64Array}} Stacks */

/** @param {ForwardLines} forward @returns {Stacks} */
function stackBorders({ boxes }) {
  const start = new Float64Array(boxes.count).fill(Infinity);
  const end = new Float64Array(boxes.count).fill(-Infinity);
  for (let box = 0; box < boxes.count; box += 1) {
    const site = boxes.site.at(box);
    if (site < 0 || boxes.half.at(box) === 0) continue;
    const from = boxes.start.at(box);
    start[site] = Math.min(start[site] ?? from, from);
    end[site] = Math.max(end[site] ?? from, from + boxes.depth.at(box));
  }
  return { start, end };
}

/**
 * @param {ForwardLines} forward
 * @param {Detours} detours
 * @param {Stacks} stacks
 * @param {number} from box
 * @param {number} to box
 * @param {number} tensor
 */
function addBackward({ list, boxes, index, store, first, last, mirror, mirrorStart }, detours, stacks, from, to, tensor) {
  const original = index.arrays.gradientOf[tensor] ?? -1;
  const [siteFrom, siteTo] = [boxes.site.at(from), boxes.site.at(to)];
  const [a, b] = [list.place(from), list.place(to)];
  const isBeside = boxes.isSatellite.at(from) + boxes.isSatellite.at(to) > 0;
  const half = boxes.half.at(to);
  if (half === 1 && siteFrom >= 0 && siteFrom === siteTo) {
    // Parts of a gradient come from deeper, what backward ops pass on goes there: the other side is free.
    const side = boxes.kind.at(siteFrom) === TENSOR ? -1 : 1;
    const border = side === 1 ? stacks.end[siteFrom] : stacks.start[siteFrom];
    const curve = stacked(a, b, isBeside ? 0 : store.sizes.stackGap * boxes.factor, side, border);
    list.add(from, to, isBeside ? SATELLITE : DATA, 1, tensor, curve);
    return;
  }
  if (original >= 0 && (index.owner[original] ?? -1) >= 0) {
    // Parts of a parameter's gradient come from wherever it is read again.
    const isOwn = isBeside && (siteFrom === list.boxOfOp(index.owner[original] ?? 0, 0));
    if (isOwn) list.add(from, to, SATELLITE, 1, tensor, stacked(a, b, 0));
    else list.add(from, to, REUSE, 1, tensor, direct(a, b));
    return;
  }
  const site = original < 0 || original === index.loss ? -1 : (boxes.tensorBox[original] ?? -1);
  if (half === 1 && site >= 0) {
    for (let route = first[original] ?? 0; route < (last[original] ?? 0); route += 1) {
      const [source, target] = [list.source.at(route), list.target.at(route)];
      const isBack = siteTo === site ? source === site && target === siteFrom : siteFrom === site && target === site && source === siteTo;
      if (!isBack) continue;
      const end = route + 1 < mirrorStart.length ? mirrorStart.at(route + 1) : mirror.length;
      list.begin(from, to, DATA, 1, tensor);
      reversed(list.points, mirror, mirrorStart.at(route), end, a, b, stacks.start[siteFrom] ?? a.x, stacks.end[siteTo] ?? b.x + b.w);
      return;
    }
  }
  list.add(from, to, DATA, half, tensor, half === 1 ? detours.around(from, to) : direct(a, b));
}

/**
 * Lines across the axis: what is kept for the backward pass, from the tensor, or from the box that hides it, to the op
 * that needs it; and from the loss to where the backward pass begins.
 *
 * @param {ForwardLines} forward
 */
export function crossingLines({ list, boxes, index }) {
  const { arrays, backStart, back, loss } = index;
  /** @type {Set<number>} */
  const drawn = new Set();
  /** @param {number} tensor @param {number} backward */
  const keep = (tensor, backward) => {
    const maker = arrays.producer[tensor] ?? -1;
    const shown = boxes.tensorBox[tensor] ?? -1;
    const from = shown >= 0 ? shown : maker < 0 ? -1 : list.boxOfOp(maker, 0);
    const to = list.boxOfOp(backward, 1);
    if (tensor === loss || from < 0 || to < 0 || drawn.has(from * boxes.count + to)) return;
    drawn.add(from * boxes.count + to);
    list.add(from, to, SAVED, 0, tensor, crossing(list.place(from), list.place(to)));
  };
  /** Forward ops with tensors of which the backward op is known that reads them. @type {Set<number>} */
  const known = new Set();
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] === 0) continue;
    for (let at = arrays.inputStart[op] ?? 0; at < (arrays.inputStart[op + 1] ?? 0); at += 1) {
      const tensor = arrays.inputs[at] ?? 0;
      if (arrays.tensorHalf[tensor] === 1) continue;
      known.add((arrays.opAnchor[op] ?? -1) * arrays.tensors + tensor);
      keep(tensor, op);
    }
  }
  for (let at = 0; at < arrays.savedTensor.length; at += 1) {
    const [tensor, op] = [arrays.savedTensor[at] ?? 0, arrays.savedOp[at] ?? 0];
    if (arrays.tensorHalf[tensor] === 1 || backStart[op] === backStart[op + 1] || known.has(op * arrays.tensors + tensor)) continue;
    keep(tensor, back[backStart[op] ?? 0] ?? -1);
  }
  addFold({ list, boxes, index });
}

/** The backward pass starts where the forward pass ended: at the loss. @param {Pick<ForwardLines, "list" | "boxes" | "index">} forward */
function addFold({ list, boxes, index }) {
  const { arrays, loss, gradientStart, gradient, backStart, back } = index;
  const from = loss < 0 ? -1 : (boxes.tensorBox[loss] ?? -1);
  if (from < 0) return;
  const seed = gradientStart[loss] === gradientStart[loss + 1] ? -1 : (gradient[(gradientStart[loss + 1] ?? 0) - 1] ?? -1);
  const maker = arrays.producer[loss] ?? -1;
  const own = maker < 0 || backStart[maker] === backStart[maker + 1] ? -1 : (back[backStart[maker] ?? 0] ?? -1);
  const begins = own >= 0 ? own : arrays.opHalf.indexOf(1);
  const to = seed >= 0 ? (boxes.tensorBox[seed] ?? -1) : begins < 0 ? -1 : list.boxOfOp(begins, 1);
  if (to >= 0) list.add(from, to, FOLD, 1, loss, folding(list.place(from), list.place(to)));
}
