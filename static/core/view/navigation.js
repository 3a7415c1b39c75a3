/** Finds boxes of a drawing: by item, by point, for the selection, and with the arrow keys. No DOM. */

import { DATA, FOLD, FRAME, GROUP, OP, TENSOR } from "../layout/sizes.js";
import { find } from "../graph/graph.js";

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

// The selection, and walking with the arrow keys.

/** @param {Sight} sight @param {string} id @returns {number} its box, or the box of the closed group that holds it; -1
 * for none */
export function boxShowing({ graph, index }, id) {
  const item = id === "" ? null : find(graph, id);
  return item === null ? -1 : index.holderOf(item);
}

/** @param {Sight} sight @param {string} selected id, "" for none @param {Item | null} focused */
export function locate(sight, selected, focused) {
  const { index, graph, drawing } = sight;
  const item = selected === "" ? null : find(graph, selected);
  const own = item === null ? -1 : index.boxOf(item);
  const around = item === null || own >= 0 ? -1 : index.holderOf(item);
  const at = focused === null ? -1 : index.holderOf(focused);
  return {
    selected: own,
    twin: own < 0 ? -1 : drawing.twin[own],
    holder: around >= 0 && drawing.kind[around] === GROUP ? around : -1,
    focused: at >= 0 ? at : firstInput(sight),
  };
}

/** @param {Sight} sight @param {ReadonlySet<string> | null} ids @returns {Uint8Array | null} box → whether it shows or
 * holds one of them; null: no ids */
export function litBoxes(sight, ids) {
  if (ids === null) return null;
  const lit = new Uint8Array(sight.drawing.boxes);
  for (const id of ids) {
    const box = boxShowing(sight, id);
    if (box >= 0) lit[box] = 1;
  }
  return lit;
}

/** @param {Sight} sight @returns {number} the box that shows or holds the op that raised; -1 for none */
export function failedBox(sight) {
  return boxShowing(sight, sight.graph.topology.error?.op ?? "");
}

/** @param {Sight} sight @returns {number} the first input, where walking begins */
export function firstInput({ drawing, graph }) {
  const { boxes, kind, half, ref, isSatellite } = drawing;
  const found = kind.findIndex((each, box) =>
    each === TENSOR && isSatellite[box] === 0 && half[box] === 0 && graph.topology.tensors[ref[box]].role === "input"
  );
  return found < 0 && boxes > 0 ? 0 : found;
}

/** @param {Sight} sight @returns {number} -1 without a loss */
export function lossBox({ drawing: { kind, ref }, graph }) {
  return kind.findIndex((each, box) => each === TENSOR && graph.topology.tensors[ref[box]].role === "loss");
}

/** Cost of a px aside, compared with a px ahead. */
const ASIDE = 2.5;

/** The next box. Along the depth: the end of the line that bends least, or the nearest box in that direction; in the
 * direction of the values a frame leads to the first box in it, and that box leads back. Across the depth: the nearest
 * box, such as a satellite, a backward op, or the twin beyond the axis; outward from the last box in a frame to the
 * frame, and inward back to its first box. @param {Drawing} drawing @param {number} box @param {ArrowKey} arrow
 * @param {"horizontal" | "vertical"} [orientation] vertical: depth runs downward @returns {number} -1 for none */
export function walk(drawing, box, arrow, orientation = "horizontal") {
  const { kind, half, frame } = drawing;
  const sign = arrow === "ArrowRight" || arrow === "ArrowDown" ? 1 : -1;
  if ((arrow === "ArrowLeft" || arrow === "ArrowRight") === (orientation === "horizontal")) {
    const isOnward = sign === (half[box] === 0 ? 1 : -1);
    const around = frame[box];
    const first = isOnward ? (kind[box] === FRAME ? firstIn(drawing, box) : -1)
      : around >= 0 && firstIn(drawing, around) === box ? around : -1;
    if (first >= 0) return first;
    const along = alongLine(drawing, box, sign, orientation);
    return along >= 0 ? along : nearest(drawing, box, arrow);
  }
  const isOutward = sign === (half[box] === 0 ? -1 : 1);
  if (kind[box] === FRAME && !isOutward) return firstIn(drawing, box);
  const next = nearest(drawing, box, arrow);
  const around = frame[box];
  return isOutward && around >= 0 && (next < 0 || !isIn(drawing, next, around)) ? around : next;
}

/** @param {Drawing} drawing @param {number} around a frame @returns {number} the first box in it that is no
 * satellite */
function firstIn({ boxes, frame, isSatellite }, around) {
  for (let box = around + 1; box < boxes; box += 1) if (frame[box] === around && isSatellite[box] === 0) return box;
  return -1;
}

/** @param {Drawing} drawing @param {number} box @param {number} around a frame @returns {boolean} */
function isIn({ frame }, box, around) {
  for (let at = frame[box]; at >= 0; at = frame[at]) if (at === around) return true;
  return false;
}

/** @param {Drawing} drawing @param {number} box @param {number} sign 1: deeper
 * @param {"horizontal" | "vertical"} orientation @returns {number} */
function alongLine({ routes, source, target, routeKind, rect, isSatellite }, box, sign, orientation) {
  const at = orientation === "horizontal" ? 0 : 1;
  const middle = (/** @type {number} */ index, /** @type {number} */ axis) =>
    rect[4 * index + axis] + rect[4 * index + axis + 2] / 2;
  let [best, least] = [-1, Infinity];
  for (let route = 0; route < routes; route += 1) {
    const [from, to] = [source[route], target[route]];
    if ((from !== box && to !== box) || (routeKind[route] !== DATA && routeKind[route] !== FOLD)) continue;
    const other = from === box ? to : from;
    const ahead = sign * (middle(other, at) - middle(box, at));
    if (ahead < 1) continue;
    const aside = Math.abs(middle(other, 1 - at) - middle(box, 1 - at));
    const cost = aside + ahead / ASIDE + (isSatellite[other] === 1 ? 1e4 : 0);
    if (cost < least) [best, least] = [other, cost];
  }
  return best;
}

/** The nearest box that lies wholly in that direction, preferably straight ahead. @param {Drawing} drawing
 * @param {number} from @param {ArrowKey} arrow @returns {number} */
function nearest(drawing, from, arrow) {
  const { boxes, rect } = drawing;
  const at = arrow === "ArrowLeft" || arrow === "ArrowRight" ? 0 : 1;
  const sign = arrow === "ArrowRight" || arrow === "ArrowDown" ? 1 : -1;
  /** The position of a border. @param {number} box @param {number} axis @param {number} side negative: left or upper */
  const edge = (box, axis, side) => rect[4 * box + axis] + (side > 0 ? rect[4 * box + axis + 2] : 0);
  const middle = (/** @type {number} */ box, /** @type {number} */ axis) =>
    (edge(box, axis, -1) + edge(box, axis, 1)) / 2;
  let [best, least] = [-1, Infinity];
  for (let box = 0; box < boxes; box += 1) {
    if (box === from || isIn(drawing, from, box) || isIn(drawing, box, from)) continue;
    const ahead = sign * (middle(box, at) - middle(from, at));
    if (ahead < 0.5 || sign * (edge(box, at, -sign) - edge(from, at, sign)) <= -1) continue;
    // A wide frame is straight ahead over its whole width.
    const reach = drawing.kind[box] === FRAME ? (edge(box, 1 - at, 1) - edge(box, 1 - at, -1)) / 2 : 0;
    const aside = Math.max(0, Math.abs(middle(box, 1 - at) - middle(from, 1 - at)) - reach);
    const cost = ahead + ASIDE * aside;
    if (cost < least) [best, least] = [box, cost];
  }
  return best;
}
