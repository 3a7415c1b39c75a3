/** Finds boxes for the selection, and walks a drawing with the arrow keys. No DOM. */

import { find } from "../graph/graph.js";
import { DATA, FOLD, FRAME, GROUP, TENSOR } from "../layout/sizes.js";

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
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] !== TENSOR || isSatellite[box] === 1 || half[box] === 1) continue;
    if (graph.topology.tensors[ref[box]].role === "input") return box;
  }
  return boxes > 0 ? 0 : -1;
}

/** @param {Sight} sight @returns {number} -1 without a loss */
export function lossBox({ drawing, graph }) {
  const { boxes, kind, ref } = drawing;
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] === TENSOR && graph.topology.tensors[ref[box]].role === "loss") return box;
  }
  return -1;
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
