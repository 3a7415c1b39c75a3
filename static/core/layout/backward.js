/** Lines of the backward half, and lines across the axis. The line of a gradient mirrors the forward line of its
 * tensor; other lines run straight from box to box, or around the boxes between. */

import { DATA, FOLD, FRAME, REUSE, SATELLITE, SAVED, TENSOR } from "./sizes.js";
import { crossing, direct, folding, reversed, stacked } from "./routes.js";
import { takeOver } from "./moves.js";
import { byKey } from "../graph/wiring.js";
import { Numbers } from "./scene.js";

// Lines that mirror no forward line.

/** Depth of a bin by which boxes are looked up, px. */
const STRETCH = 256;
const ROOM = 9;
/** A line looks for obstacles in at most so many bins. */
const MAX_STRETCHES = 400;
/** Most lines of a drawing that look for obstacles. */
export const MAX_LINES = 4000;

class Detours {
  /** Backward boxes by bin. @type {{starts: Int32Array, boxes: Int32Array} | null} */
  #near = null;

  /** @param {RouteList} list */
  constructor(list) {
    this.list = list;
  }

  /** The caller marks the line as wary. @param {number} from @param {number} to @returns {number[]} */
  around(from, to) {
    const [a, b] = [this.list.place(from), this.list.place(to)];
    const along = b.x + b.w / 2 > a.x + a.w / 2;
    const [left, right] = along ? [a.x + a.w, b.x] : [b.x + b.w, a.x];
    const [y0, y1] = [a.y + a.h / 2, b.y + b.h / 2];
    if (right - left < 2 * ROOM || this.list.wary >= MAX_LINES) return direct(a, b);
    // Obstacles are boxes that the line would touch or nearly touch.
    const inWay = this.#between(left + 1, right - 1, Math.min(y0, y1) - ROOM / 2, Math.max(y0, y1) + ROOM / 2, from,
      to);
    const touched = inWay.filter((place) => isTouched(place, along ? left : right, y0, along ? right : left, y1));
    if (touched.length === 0) return direct(a, b);
    let [begin, end, bottom] = [Infinity, -Infinity, -Infinity];
    for (const { x, y, w, h } of touched) {
      begin = Math.min(begin, x);
      end = Math.max(end, x + w);
      bottom = Math.max(bottom, y + h);
    }
    const low = freeLevel(this.#between(begin, end, -Infinity, Infinity, from, to), bottom);
    const [before, after] = [Math.max(left, begin - ROOM), Math.min(right, end + ROOM)];
    const [near, far] = along ? [before, after] : [after, before];
    const [x0, x1] = along ? [a.x + a.w, b.x] : [a.x, b.x + b.w];
    return [x0, y0, ...curve(x0, y0, near, low), ...curve(near, low, far, low), ...curve(far, low, x1, y1)];
  }

  /** @param {number} left @param {number} right @param {number} top @param {number} bottom @param {number} from
   * @param {number} to @returns {LayoutRectangle[]} */
  #between(left, right, top, bottom, from, to) {
    const near = (this.#near ??= this.#lookUp());
    const met = new Set([from, to]);
    const found = [];
    const end = Math.min(right, left + MAX_STRETCHES * STRETCH);
    const first = Math.max(0, Math.floor(left / STRETCH));
    const last = Math.min(near.starts.length - 2, Math.floor(end / STRETCH));
    for (let stretch = first; stretch <= last; stretch += 1) {
      for (let at = near.starts[stretch]; at < near.starts[stretch + 1]; at += 1) {
        const box = near.boxes[at];
        if (met.has(box)) continue;
        met.add(box);
        const place = this.list.place(box);
        const isThere = place.x < end && place.x + place.w > left && place.y < bottom && place.y + place.h > top;
        if (isThere) found.push(place);
      }
    }
    return found;
  }

  #lookUp() {
    const { count, half, kind, start, depth, length } = this.list.boxes;
    const stretches = Math.floor(length / STRETCH) + 2;
    const [halves, kinds, from, depths] = [half.all, kind.all, start.all, depth.all];
    const of = (/** @type {number} */ at) => Math.max(0, Math.min(stretches - 1, Math.floor(at / STRETCH)));
    const [bins, found] = [new Numbers(Int32Array), new Numbers(Int32Array)];
    for (let box = 0; box < count; box += 1) {
      if (halves[box] === 0 || kinds[box] === FRAME) continue;
      const last = of(from[box] + depths[box]);
      for (let stretch = of(from[box]); stretch <= last; stretch += 1) {
        bins.push(stretch);
        found.push(box);
      }
    }
    const [starts, order] = byKey(bins.all, stretches);
    const boxes = order.map((at) => found.at(at));
    return { starts, boxes };
  }
}

/** @param {LayoutRectangle} place @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1
 * @returns {boolean} whether an S-curve between the points comes near the box */
function isTouched(place, x0, y0, x1, y1) {
  for (let step = 1; step < 24; step += 1) {
    const t = step / 24;
    const x = x0 + (x1 - x0) * t * (1.5 * (1 - t) + t * t);
    const y = y0 + (y1 - y0) * (3 - 2 * t) * t * t;
    if (x > place.x - 2 && x < place.x + place.w + 2 && y > place.y - 3 && y < place.y + place.h + 3) return true;
  }
  return false;
}

/** @param {readonly LayoutRectangle[]} places @param {number} start @returns {number} the first free level beneath the
 * start */
function freeLevel(places, start) {
  let level = start + ROOM;
  for (const { y, h } of [...places].sort((a, b) => a.y - b.y || b.h - a.h)) {
    if (y < level + ROOM / 2 && y + h > level - ROOM / 2) level = y + h + ROOM;
  }
  return level;
}

/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function curve(x0, y0, x1, y1) {
  const bend = (x0 + x1) / 2;
  return [bend, y0, bend, y1, x1, y1];
}

/** Backward tensors between pauses. */
const AT_ONCE = 2048;

/** Adds the backward lines to the list of the forward lines; yields now and then. @param {ForwardLines} forward */
export function* backwardLines(forward) {
  const { list, boxes, store, backLines } = forward;
  const { back, backGroup } = store.belonging;
  const detours = new Detours(list);
  const stacks = stackBorders(forward);
  const before = boxes.moves.last?.lines.backLines ?? null;
  const draw = (/** @type {number} */ at) => addTensor(forward, detours, stacks, back[at]);
  for (let at = 0; at < back.length; at += AT_ONCE) {
    yield;
    takeOver(list, boxes.moves, backGroup, backLines, before, draw, at, Math.min(back.length, at + AT_ONCE));
  }
}

/** @param {ForwardLines} forward @param {Detours} detours @param {Stacks} stacks @param {number} tensor */
function addTensor(forward, detours, stacks, tensor) {
  const { list } = forward;
  const { arrays } = forward.index;
  const own = list.boxes.tensorBox[tensor];
  const maker = arrays.producer[tensor];
  const from = maker < 0 ? -1 : list.boxOfOp(maker, arrays.opHalf[maker]);
  if (own >= 0 && from >= 0) addBackward(forward, detours, stacks, from, own, tensor);
  list.startRound();
  for (let at = arrays.consumerStart[tensor]; at < arrays.consumerStart[tensor + 1]; at += 1) {
    const op = arrays.consumers[at];
    const to = list.boxOfOp(op, arrays.opHalf[op]);
    if (to < 0 || !list.meet(to)) continue;
    if (own >= 0) addBackward(forward, detours, stacks, own, to, tensor);
    else if (from >= 0 && from !== to) addBackward(forward, detours, stacks, from, to, tensor);
  }
}

/** Forward box → start and end, along the depth, of the stack of backward boxes beneath it.
 * @typedef {{start: Float64Array, end: Float64Array}} Stacks */

/** @param {ForwardLines} forward @returns {Stacks} */
function stackBorders({ boxes }) {
  const start = new Float64Array(boxes.count).fill(Infinity);
  const end = new Float64Array(boxes.count).fill(-Infinity);
  const [sites, halves, starts, depths] = [boxes.site.all, boxes.half.all, boxes.start.all, boxes.depth.all];
  for (let box = 0; box < sites.length; box += 1) {
    const site = sites[box];
    if (site < 0 || halves[box] === 0) continue;
    const from = starts[box];
    const to = from + depths[box];
    if (from < start[site]) start[site] = from;
    if (to > end[site]) end[site] = to;
  }
  return { start, end };
}

/** @param {ForwardLines} forward @param {Detours} detours @param {Stacks} stacks @param {number} from box
 * @param {number} to box @param {number} tensor */
function addBackward(
  { list, boxes, index, store, first, last, mirror, mirrorStart },
  detours,
  stacks,
  from,
  to,
  tensor,
) {
  const original = index.arrays.gradientOf[tensor];
  const [siteFrom, siteTo] = [boxes.site.at(from), boxes.site.at(to)];
  const [a, b] = [list.place(from), list.place(to)];
  const isBeside = boxes.isSatellite.at(from) + boxes.isSatellite.at(to) > 0;
  const half = boxes.half.at(to);
  if (half === 1 && siteFrom >= 0 && siteFrom === siteTo) {
    // Parts of a gradient come from deeper and results of backward ops go there, so the other side is free.
    const side = boxes.kind.at(siteFrom) === TENSOR ? -1 : 1;
    const border = side === 1 ? stacks.end[siteFrom] : stacks.start[siteFrom];
    const curve = stacked(a, b, isBeside ? 0 : store.sizes.stackGap * boxes.factor, side, border);
    list.add(from, to, isBeside ? SATELLITE : DATA, 1, tensor, curve);
    return;
  }
  if (original >= 0 && index.owner[original] >= 0) {
    // Parts of a parameter's gradient come from each op that reads it.
    const isOwn = isBeside && (siteFrom === list.boxOfOp(index.owner[original], 0));
    if (isOwn) list.add(from, to, SATELLITE, 1, tensor, stacked(a, b, 0));
    else list.add(from, to, REUSE, 1, tensor, direct(a, b));
    return;
  }
  const site = original < 0 || original === index.loss ? -1 : boxes.tensorBox[original];
  if (half === 1 && site >= 0) {
    for (let route = first[original]; route < last[original]; route += 1) {
      const [source, target] = [list.source.at(route), list.target.at(route)];
      const isBack = siteTo === site ? source === site && target === siteFrom
        : siteFrom === site && target === site && source === siteTo;
      if (!isBack) continue;
      const end = route + 1 < mirrorStart.length ? mirrorStart.at(route + 1) : mirror.length;
      list.begin(from, to, DATA, 1, tensor);
      reversed(list.points, mirror, mirrorStart.at(route), end, a, b, stacks.start[siteFrom], stacks.end[siteTo]);
      return;
    }
  }
  list.add(from, to, DATA, half, tensor, half === 1 ? detours.around(from, to) : direct(a, b));
  if (half === 1) list.markWary();
}

/** Lines across the axis: from each saved tensor, or the box that hides it, to the backward op that needs it; and from
 * the loss to the start of the backward pass. @param {ForwardLines} forward */
export function crossingLines(forward) {
  const { list, boxes } = forward;
  const before = boxes.moves.last?.lines.keptLines ?? null;
  const start = list.count;
  if (!addKept(forward, before)) {
    list.cut(start);
    addKept(forward, null);
  }
  addFold(forward);
}

/** At most one line between two boxes, even for several values. @param {ForwardLines} forward
 * @param {Int32Array | null} before value → its first line in the last drawing; null: draw all lines again
 * @returns {boolean} false: a new line may repeat one taken over, which only odd graphs do */
function addKept({ list, boxes, index, store, keptLines }, before) {
  const { arrays } = index;
  const { moves } = boxes;
  const { keptTensor, keptFor, keptGroup } = store.belonging;
  let isSure = true;
  /** @type {Set<number>} */
  const drawn = new Set();
  /** @param {number} at */
  const keep = (at) => {
    const tensor = keptTensor[at];
    const maker = arrays.producer[tensor];
    const shown = boxes.tensorBox[tensor];
    const from = shown >= 0 ? shown : maker < 0 ? -1 : list.boxOfOp(maker, 0);
    const to = list.boxOfOp(keptFor[at], 1);
    if (from < 0 || to < 0 || drawn.has(from * boxes.count + to)) return;
    if (before !== null && moves.isWithin(boxes, from, to)) isSure = false;
    drawn.add(from * boxes.count + to);
    list.add(from, to, SAVED, 0, tensor, crossing(list.place(from), list.place(to)));
  };
  takeOver(list, moves, keptGroup, keptLines, before, keep);
  return isSure;
}

/** The line from the loss to the start of the backward pass.
 * @param {Pick<ForwardLines, "list" | "boxes" | "index">} forward */
function addFold({ list, boxes, index }) {
  const { arrays, loss, gradientStart, gradient, backStart, back } = index;
  const from = loss < 0 ? -1 : boxes.tensorBox[loss];
  if (from < 0) return;
  const seed = gradientStart[loss] === gradientStart[loss + 1] ? -1 : (gradient[gradientStart[loss + 1] - 1] ?? -1);
  const maker = arrays.producer[loss];
  const own = maker < 0 || backStart[maker] === backStart[maker + 1] ? -1 : back[backStart[maker]];
  const begins = own >= 0 ? own : arrays.opHalf.indexOf(1);
  const to = seed >= 0 ? boxes.tensorBox[seed] : begins < 0 ? -1 : list.boxOfOp(begins, 1);
  if (to >= 0) list.add(from, to, FOLD, 1, loss, folding(list.place(from), list.place(to)));
}
