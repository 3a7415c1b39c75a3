/**
 * The butterfly: lays out a graph at one state of expansion. No DOM; iterative.
 *
 *        x ─ [Lin] ─ l1 ─ [Relu] ─ l2 ─┐        forward, left to right, parameters outside their op
 *   ─────────────────────────────────  loss     the axis
 *      x.g ─ [Lin] ─ l1.g ─ [Relu] ─ l2.g ┘     backward, the mirror image: each gradient under its tensor
 *
 * Each open group is laid out on its own, from the innermost outward (frames.js), then all boxes and lines are
 * placed in one pass (boxes.js, forward.js, backward.js). Everything is computed in two
 * coordinates: depth (along the columns) and height above the axis. A vertical layout is the same one transposed. With
 * no group open within the model, boxes shrink or grow along the depth with the space there is, and heights follow the
 * breadth.
 */

import { memo } from "../memo.js";
import { layered } from "./layered.js";
import { labelled, MARGIN, named, OP, TENSOR } from "./sizes.js";
import { backwardLines, crossingLines, MAX_LINES } from "./backward.js";
import { Boxes } from "./boxes.js";
import { ForwardLines } from "./forward.js";
import { LayoutCache } from "./frames.js";
import { RouteList } from "./routes.js";

// Backward ops without a forward counterpart, such as those of a second derivative, and their results: laid out
// beneath the backward half, in its direction.

/** Gap beneath the backward half, px. */
const APART = 28;

const unpairedIn = memo(placeUnpaired);

/** @param {FrameStore} store @returns {Unpaired | null} null: every backward op has a counterpart */
function placeUnpaired(store) {
  const { arrays, sumOf } = store.index;
  const items = [];
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] === 0 || arrays.opAnchor[op] >= 0 || sumOf[op] >= 0) continue;
    items.push({ kind: OP, ref: op });
    for (let at = arrays.outputStart[op]; at < arrays.outputStart[op + 1]; at += 1) {
      const tensor = arrays.outputs[at];
      if (store.slots.isPassedOn(tensor)) items.push({ kind: TENSOR, ref: tensor });
    }
  }
  return items.length === 0 ? null : new Unpaired(store, items);
}

class Unpaired {
  /** @param {FrameStore} store @param {readonly {kind: number, ref: number}[]} items in order of execution */
  constructor(store, items) {
    this.items = items;
    const { arrays } = store.index;
    const { sizes } = store;
    this.size = items.map(({ kind, ref }) =>
      kind === OP ? labelled(sizes, sizes.op, arrays.opLabelLetters[ref])
        : named(sizes, sizes.satellite, arrays.tensorLabelLetters[ref])
    );
    const node = new Map(items.map(({ kind, ref }, at) => [`${kind} ${ref}`, at]));
    /** @type {[number, number][]} */
    const ends = [];
    items.forEach(({ kind, ref }, at) => {
      if (kind !== OP) return;
      for (let out = arrays.outputStart[ref]; out < arrays.outputStart[ref + 1]; out += 1) {
        const tensor = arrays.outputs[out];
        const stands = node.get(`${TENSOR} ${tensor}`);
        if (stands !== undefined) ends.push([at, stands]);
        for (let reader = arrays.consumerStart[tensor]; reader < arrays.consumerStart[tensor + 1]; reader += 1) {
          const reads = node.get(`${OP} ${arrays.consumers[reader]}`);
          if (reads !== undefined) ends.push([stands ?? at, reads]);
        }
      }
    });
    ends.sort(([a], [b]) => a - b);
    const half = Float32Array.from(this.size, ([, height]) => height / 2);
    const none = new Float32Array(ends.length);
    this.layout = layered({
      nodes: items.length,
      portsIn: 0,
      portsOut: 0,
      isOpen: true,
      axis: -1,
      depth: Float32Array.from(this.size, ([depth]) => depth),
      inner: [half, half],
      outer: [half, half],
      kind: Uint8Array.from(items, ({ kind }) => kind),
      edges: ends.length,
      source: Int32Array.from(ends, ([from]) => from),
      target: Int32Array.from(ends, ([, to]) => to),
      origin: Int32Array.from(ends, ([from]) => from),
      sourceOffset: [none, none],
      targetOffset: [none, none],
    }, { gap: sizes.gap, rowGap: sizes.rowGap, fold: 0, reach: 0, start: 0, end: 0 });
  }

  /** @param {LayoutBoxes} boxes of both halves */
  put(boxes) {
    const { layout } = this;
    const floor = boxes.bottom - APART;
    boxes.length = boxes.natural = Math.max(boxes.length, layout.width + 2 * MARGIN);
    const end = boxes.length - MARGIN;
    this.items.forEach(({ kind, ref }, at) => {
      const [depth, thickness] = this.size[at] ?? [0, 0];
      const column = layout.column[at];
      const middle = end - layout.columnStart[column] - layout.columnDepth[column] / 2;
      boxes.put(kind, 1, ref, -1, false, middle - depth / 2, depth, floor - layout.height[0][at], thickness);
    });
    boxes.bottom = Math.min(boxes.bottom, floor - layout.top[0]);
  }
}

/** @typedef {{open: Uint8Array, kinds: number}} Opened as openGroups of graph.js says it */

export { LayoutCache };

/** @param {GraphArrays} arrays @param {Opened} opened @param {LayoutOptions} options @param {LayoutCache} [cache] from
 * earlier layouts of the same arrays @returns {Drawing} */
export function layoutGraph(arrays, opened, options, cache = new LayoutCache()) {
  const steps = layoutSteps(arrays, opened, options, cache);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** The same in steps, one per group, so that the caller may pause or give up. A cache serves one layout at a time.
 * @param {GraphArrays} arrays @param {Opened} opened @param {LayoutOptions} options @param {LayoutCache} cache */
export function* layoutSteps(arrays, { open, kinds }, options, cache) {
  const store = cache.store(arrays, kinds, options.orientation);
  const groups = yield* store.layOut(open);
  const last = store.made !== null && store.made.list.wary < MAX_LINES ? store.made : null;
  let made = yield* make(store, groups, options, last);
  // With too many lines, which of them look for obstacles depends on all lines before.
  if (last !== null && made.list.wary >= MAX_LINES) made = yield* make(store, groups, options, null);
  made.boxes.moves.last = null;
  store.made = made;
  return drawing(made.boxes, made.list, options);
}

/** @param {FrameStore} store @param {Int32Array} groups open groups @param {LayoutOptions} options
 * @param {KeptLayout | null} last drawing, whose unchanged groups are taken over */
function* make(store, groups, options, last) {
  const boxes = new Boxes(store, groups, options, store.spare(), last);
  const unpaired = unpairedIn(store);
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

/** @param {Boxes} boxes @param {RouteList} routes @param {LayoutOptions} options */
export function drawing(boxes, routes, { orientation }) {
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
    kind: new Uint8Array(boxes.kind.all), // position in BOX_KINDS
    half: new Uint8Array(boxes.half.all), // 0 forward, 1 backward
    ref: new Int32Array(boxes.ref.all), // the op, tensor or group that a box shows
    rect, // x, y, width, height of every box
    frame: new Int32Array(boxes.frame.all), // box → the open group's box that it stands in, or -1
    twin: twins(boxes), // box → the box of its gradient, or of its counterpart in the forward half, or -1
    isSatellite: new Uint8Array(boxes.isSatellite.all), // whether it stands beside its op
    routes: routes.count,
    source: new Int32Array(routes.source.all), // box; where the line crosses borders of groups, its first box
    target: new Int32Array(routes.target.all),
    routeKind: new Uint8Array(routes.kind.all), // position in ROUTE_KINDS
    routeHalf: new Uint8Array(routes.half.all),
    routeTensor: new Int32Array(routes.tensor.all), // the tensor that passes along
    pointStart, // route → its first point in `points`, one entry more than there are routes
    points, // x, y of a start and then of triples of cubic Bézier points, route after route
    bounds: bounds(points, pointStart),
    width: isVertical ? breadth : boxes.length,
    height: isVertical ? boxes.length : breadth,
    axis: boxes.across(0), // where the halves meet, across the depth
    natural: boxes.natural, // length along the depth at which every box has its natural size
    isElastic: boxes.isElastic, // whether columns shrink to fit a length
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

/** @param {Float32Array} points @param {Int32Array} start @returns {Float32Array} x, y, width, height of each route: a
 * curve stays within its points */
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
