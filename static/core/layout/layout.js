/**
 * The butterfly: where everything of a graph stands that is to be seen at one state of expansion. No DOM; iterative.
 *
 *        x ─ [Lin] ─ l1 ─ [Relu] ─ l2 ─┐        forward, left to right, parameters outside their op
 *   ─────────────────────────────────  loss     the axis
 *      x.g ─ [Lin] ─ l1.g ─ [Relu] ─ l2.g ┘     backward, the mirror image: each gradient under its tensor
 *
 * Each open group is laid out on its own, from the innermost outward (layout-frames.js), then all boxes and lines are
 * placed in one pass (layout-boxes.js, layout-forward.js, layout-backward.js). Everything is computed in two
 * coordinates: depth (along the columns) and height above the axis. A vertical layout is the same one transposed. With
 * no group open within the model, boxes shrink or grow along the depth with the space there is, and heights follow the
 * breadth.
 */

import { MOST_LINES } from "./detours.js";
import { backwardLines, crossingLines } from "./layout-backward.js";
import { Boxes } from "./layout-boxes.js";
import { ForwardLines } from "./layout-forward.js";
import { LayoutCache } from "./layout-frames.js";
import { BOX_KINDS, MARGIN, ROUTE_KINDS, TENSOR } from "./layout-sizes.js";
import { placeUnpaired } from "./layout-unpaired.js";
import { RouteList } from "./route-list.js";

/** @typedef {{open: Uint8Array, foldOn: boolean}} Opened as openGroups of graph.js says it */

export { BOX_KINDS, LayoutCache, ROUTE_KINDS };

/**
 * @param {GraphArrays} arrays
 * @param {Opened} opened
 * @param {LayoutOptions} options
 * @param {LayoutCache} [cache] of earlier layouts of the same arrays
 * @returns {Drawing}
 */
export function layoutGraph(arrays, opened, options, cache = new LayoutCache()) {
  const steps = layoutSteps(arrays, opened, options, cache);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/**
 * The same, pausing after each group, so that who asked may do other things in between, or give up. Of one cache, no
 * two layouts may be under way at once.
 *
 * @param {GraphArrays} arrays
 * @param {Opened} opened
 * @param {LayoutOptions} options
 * @param {LayoutCache} cache
 * @returns {Generator<undefined, Drawing, void>}
 */
export function* layoutSteps(arrays, { open, foldOn }, options, cache) {
  const store = cache.store(arrays, foldOn, options.orientation);
  const groups = yield* store.layOut(open);
  const last = store.made !== null && store.made.list.wary < MOST_LINES ? store.made : null;
  let made = yield* make(store, groups, options, last);
  // Which lines look for what is in their way depends on all that come before, unless they are few enough.
  if (last !== null && made.list.wary >= MOST_LINES) made = yield* make(store, groups, options, null);
  made.boxes.moves.last = null;
  store.made = made;
  return drawing(made.boxes, made.list, options);
}

/**
 * @param {FrameStore} store
 * @param {Int32Array} groups that are open, laid out
 * @param {LayoutOptions} options
 * @param {KeptLayout | null} last drawing, of which is taken over what only moved
 * @returns {Generator<undefined, KeptLayout, void>}
 */
function* make(store, groups, options, last) {
  const boxes = new Boxes(store, groups, options, store.spare(), last);
  const unpaired = placeUnpaired(store);
  boxes.place(unpaired === null);
  yield;
  unpaired?.put(boxes);
  const list = new RouteList(boxes);
  const lines = new ForwardLines(list);
  yield* lines.run();
  yield* backwardLines(lines);
  crossingLines(lines);
  return { boxes, list, lines };
}

/**
 * @param {Boxes} boxes
 * @param {RouteList} routes
 * @param {LayoutOptions} options
 * @returns {Drawing}
 */
function drawing(boxes, routes, { orientation }) {
  const isVertical = orientation === "vertical";
  const { count, factor } = boxes;
  const rect = new Float32Array(4 * count);
  const [along, aside] = isVertical ? [1, 0] : [0, 1];
  const [starts, depths, heights, thicknesses] = [boxes.start.all, boxes.depth.all, boxes.height.all,
    boxes.thickness.all];
  for (let box = 0; box < count; box += 1) {
    const thickness = thicknesses[box] * factor;
    rect[4 * box + along] = starts[box];
    rect[4 * box + aside] = boxes.across(heights[box]) - thickness / 2;
    rect[4 * box + 2 + along] = depths[box];
    rect[4 * box + 2 + aside] = thickness;
  }
  const points = new Float32Array(routes.points.all);
  for (let at = 0; at < points.length && isVertical; at += 2) {
    const depth = points[at];
    points[at] = points[at + 1];
    points[at + 1] = depth;
  }
  const pointStart = new Int32Array(routes.count + 1);
  pointStart.set(routes.start.all);
  pointStart[routes.count] = points.length / 2;
  const breadth = (boxes.top - boxes.bottom) * boxes.factor + 2 * MARGIN;
  return {
    boxes: count,
    kind: new Uint8Array(boxes.kind.all),
    half: new Uint8Array(boxes.half.all),
    ref: new Int32Array(boxes.ref.all),
    rect,
    frame: new Int32Array(boxes.frame.all),
    twin: twins(boxes),
    isSatellite: new Uint8Array(boxes.isSatellite.all),
    routes: routes.count,
    source: new Int32Array(routes.source.all),
    target: new Int32Array(routes.target.all),
    routeKind: new Uint8Array(routes.kind.all),
    routeHalf: new Uint8Array(routes.half.all),
    routeTensor: new Int32Array(routes.tensor.all),
    pointStart,
    points,
    bounds: bounds(points, pointStart),
    width: isVertical ? breadth : boxes.length,
    height: isVertical ? boxes.length : breadth,
    axis: boxes.across(0),
    natural: boxes.natural,
    isElastic: boxes.isElastic,
  };
}

/** @param {Boxes} boxes @returns {Int32Array} */
function twins(boxes) {
  const { count, tensorBox } = boxes;
  const { gradientStart, gradient, arrays } = boxes.store.index;
  const [kind, ref, half, site] = [boxes.kind.all, boxes.ref.all, boxes.half.all, boxes.site.all];
  const twin = new Int32Array(count).fill(-1);
  for (let box = 0; box < count; box += 1) {
    const here = site[box];
    if (half[box] === 0 || here < 0 || kind[here] !== kind[box]) continue;
    const shown = ref[box];
    if (kind[box] === TENSOR) {
      const of = arrays.gradientOf[shown];
      if (of < 0 || tensorBox[of] !== here) continue;
      twin[box] = here;
      if (gradient[gradientStart[of + 1] - 1] === shown) twin[here] = box;
    } else {
      twin[box] = here;
      if (twin[here] === -1) twin[here] = box;
    }
  }
  return twin;
}

/** @param {Float32Array} points @param {Int32Array} start @returns {Float32Array} x, y, width, height of every route: a
 * curve lies among its points */
function bounds(points, start) {
  const routes = start.length - 1;
  const all = new Float32Array(4 * routes);
  for (let route = 0; route < routes; route += 1) {
    let left = Infinity;
    let top = Infinity;
    let right = -Infinity;
    let bottom = -Infinity;
    const end = 2 * start[route + 1];
    for (let at = 2 * start[route]; at < end; at += 2) {
      const x = points[at];
      const y = points[at + 1];
      if (x < left) left = x;
      if (x > right) right = x;
      if (y < top) top = y;
      if (y > bottom) bottom = y;
    }
    all[4 * route] = left;
    all[4 * route + 1] = top;
    all[4 * route + 2] = right - left;
    all[4 * route + 3] = bottom - top;
  }
  return all;
}
