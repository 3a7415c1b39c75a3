/** What of a drawing is on the screen, and in how much detail. No DOM. */

import { FRAME, GROUP, REUSE, SAVED } from "../layout/layout-sizes.js";

/** Drawings with no more boxes than this are elements altogether, seen or not. */
const WHOLE = 400;
/** The same of drawings that shrink to fit. */
const WHOLE_ELASTIC = 1000;
/** px of the screen per px of the drawing, from which on boxes can be read. */
const READABLE = 0.4;
/** And from which on their words can. */
export const LEGIBLE = 0.5;
/** Least size on the screen of what is an element all the same, px: a closed group; width and height of a frame. */
const READABLE_GROUP = 26;
const READABLE_FRAME = [56, 6];
/** Of a few boxes the histograms can be made out, on however small a scale down to this. */
const LEAST = 0.15;
const FEW_BOXES = 400;
/** Many more and turning the page takes too long. */
const MOST_BOXES = 1200;
const MOST_ROUTES = 2500;

/**
 * Which boxes and routes are worth an element each.
 *
 * @param {Drawing} drawing
 * @param {Region} region in px of the drawing
 * @param {number} scale px of the screen per px of the drawing
 * @param {readonly number[]} boxes that have to be
 * @param {readonly number[]} routes that have to be
 * @returns {ViewDetail}
 */
export function detailOf(drawing, region, scale, boxes, routes) {
  if (drawing.boxes <= (drawing.isElastic ? WHOLE_ELASTIC : WHOLE)) {
    return { boxes: countTo(drawing.boxes), routes: [...ordinary(drawing), ...routes], isElement: null,
      routesAreElements: true, isAll: true };
  }
  const right = region.x + region.width;
  const bottom = region.y + region.height;
  const { rect, kind, bounds, routeKind } = drawing;
  /** 1: in the region, 2: and large enough to be an element on any scale. */
  const isElement = new Uint8Array(drawing.boxes);
  const [leastWidth, leastHeight] = READABLE_FRAME;
  let [all, large] = [0, 0];
  for (let box = 0; box < drawing.boxes; box += 1) {
    const [x, y, w, h] = [rect[4 * box], rect[4 * box + 1], rect[4 * box + 2], rect[4 * box + 3]];
    if (x > right || y > bottom || x + w < region.x || y + h < region.y) continue;
    const isLarge = kind[box] === FRAME ? w * scale >= leastWidth && h * scale >= leastHeight
      : kind[box] === GROUP && Math.min(w, h) * scale >= READABLE_GROUP;
    isElement[box] = isLarge ? 2 : 1;
    all += 1;
    if (isLarge) large += 1;
  }
  const isReadable = all <= (scale >= READABLE ? MOST_BOXES : scale >= LEAST ? FEW_BOXES : 0);
  const least = isReadable ? 1 : large <= MOST_BOXES ? 2 : 3;
  for (const box of boxes) if (box >= 0) isElement[box] = 3;
  const chosen = [];
  for (let box = 0; box < drawing.boxes; box += 1) {
    if (isElement[box] >= least) chosen.push(box);
    isElement[box] = isElement[box] >= least ? 1 : 0;
  }

  const lines = new Set(routes);
  let routesAreElements = isReadable;
  if (isReadable) {
    for (let route = 0; route < drawing.routes; route += 1) {
      const [x, y, w, h] = [bounds[4 * route], bounds[4 * route + 1], bounds[4 * route + 2], bounds[4 * route + 3]];
      if (routeKind[route] === REUSE || x > right || y > bottom || x + w < region.x || y + h < region.y) continue;
      if (lines.size >= MOST_ROUTES) {
        routesAreElements = false;
        break;
      }
      lines.add(route);
    }
    // Those that did not make it are plain lines, and then all are: half of each would look like a difference.
    if (!routesAreElements) return { boxes: chosen, routes: [...routes], isElement, routesAreElements, isAll: false };
  }
  return { boxes: chosen, routes: [...lines], isElement, routesAreElements, isAll: isReadable };
}

/** @param {Drawing} drawing @returns {number} how many lines there are of what is saved */
export function countSaved({ routeKind }) {
  let found = 0;
  for (const kind of routeKind) if (kind === SAVED) found += 1;
  return found;
}

/** @param {Drawing} drawing @returns {number[]} the routes that are drawn without being asked for */
function ordinary({ routes, routeKind }) {
  return countTo(routes).filter((route) => routeKind[route] !== REUSE);
}

/** @param {number} length @returns {number[]} 0, 1, 2 … */
function countTo(length) {
  return Array.from({ length }, (_, index) => index);
}
