/**
 * The butterfly: where every box of a scene stands. No DOM; iterative throughout.
 *
 *        x ─ [Lin] ─ l1 ─ [Relu] ─ l2 ─┐        forward, left to right, parameters outside their op
 *   ─────────────────────────────────  loss     the axis
 *      x.g ─ [Lin] ─ l1.g ─ [Relu] ─ l2.g ┘     backward, the mirror image: each gradient under its tensor
 *
 * Everything is computed in two coordinates: depth (along the columns) and height above the axis. A vertical layout is
 * the same one transposed. Along the depth, boxes shrink or grow with the space there is, so that the whole graph fits
 * wherever columns of a few pixels are enough; heights follow the breadth.
 */

import { assignColumns, assignHeights, fillColumns, orderColumns } from "./layered.js";
import { labelLines } from "./labels.js";
import { route } from "./routes.js";

/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").SceneEdge} SceneEdge */
/** @typedef {import("./layered.js").Node} Node */
/** @typedef {import("./types.js").Topology} Topology */
/** @typedef {import("./types.js").Layout} Layout */
/** @typedef {import("./types.js").LayoutOptions} LayoutOptions */
/** @typedef {import("./types.js").Box} Box */

/**
 * Natural sizes in px. depth: along the columns, height: away from the axis.
 *
 * @typedef {object} Sizes
 * @property {[number, number]} tensor depth, height
 * @property {[number, number]} op
 * @property {[number, number]} satellite
 * @property {[number, number]} scalar
 * @property {number} gap between columns
 * @property {number} rowGap between boxes of one column
 * @property {number} fold from the axis to the nearest box
 * @property {boolean} stackOutward satellites stand one beyond the other; else side by side along the depth
 * @property {number} least of a tensor's depth
 * @property {number} leastOp of an op's
 * @property {number} leastGap between columns
 * @property {[number, number]} heights least and greatest factor on heights
 * @property {[number, number]} ends room before the first and after the last column
 */

/** @type {Record<"horizontal" | "vertical", Sizes>} */
const SIZES = {
  horizontal: {
    tensor: [104, 76],
    op: [72, 34],
    satellite: [88, 50],
    scalar: [84, 44],
    gap: 22,
    rowGap: 12,
    fold: 40,
    stackOutward: true,
    least: 2.5,
    leastOp: 1.5,
    leastGap: 0.5,
    heights: [0.62, 1.5],
    ends: [44, 16],
  },
  vertical: {
    tensor: [58, 92],
    op: [34, 54],
    satellite: [40, 74],
    scalar: [44, 80],
    gap: 18,
    rowGap: 10,
    fold: 16,
    stackOutward: false,
    least: 38,
    leastOp: 26,
    leastGap: 10,
    heights: [0.8, 1.5],
    ends: [12, 12],
  },
};

/** An op this narrow is drawn as a line: the room is the tensors'. */
const HAIRLINE_BELOW = 6;
/** Width of a letter of an op's label, and the room around it, px. */
const LETTER = 7;
const LABEL_MARGIN = 14;
const MOST_STRETCH = 1.25;
const MOST_GAP = 56;
const MARGIN = 16;

/**
 * @param {Topology} topology
 * @param {Scene} scene
 * @param {LayoutOptions} options
 * @returns {Layout}
 */
export function layoutScene(topology, scene, options) {
  const sizes = SIZES[options.orientation];
  const shapes = new Map(topology.tensors.map((tensor) => [tensor.id, tensor]));
  const boxSize = sizeLookup(scene, shapes, sizes);
  const satellites = satellitesOf(scene);
  const nodes = forwardNodes(scene, boxSize, satellites, sizes);
  const forwardEdges = scene.edges.filter(({ source, target, kind }) => kind === "data" && nodes.has(source) && nodes.has(target));
  assignColumns(nodes, forwardEdges, scene);
  const { columns, chains } = fillColumns(nodes, forwardEdges);
  orderColumns(columns);
  const onAxis = lossIds(scene, shapes);
  assignHeights(columns, sizes, onAxis, axisReach(scene, onAxis, boxSize, sizes));
  const placed = mirror(scene, nodes, satellites, boxSize, sizes);
  return measure(scene, placed, chains, columns.length, boxSize, sizes, options);
}

/**
 * @param {Scene} scene
 * @param {ReadonlyMap<string, import("./types.js").Tensor>} shapes
 * @param {Sizes} sizes
 * @returns {Map<string, [number, number]>}
 */
function sizeLookup(scene, shapes, sizes) {
  /** @type {Map<string, [number, number]>} */
  const lookup = new Map(
    scene.groups.map(({ id, label }) => {
      const width = LETTER * Math.max(...labelLines(label).map((line) => line.length)) + LABEL_MARGIN;
      const [depth, height] = sizes.op;
      return [id, sizes.stackOutward ? [Math.max(depth, width), height] : [depth, Math.max(height, width)]];
    }),
  );
  for (const { id, tensor, satellite } of scene.tensors) {
    const elements = (shapes.get(tensor)?.shape ?? []).reduce((product, size) => product * size, 1);
    lookup.set(id, satellite !== null ? sizes.satellite : elements === 1 ? sizes.scalar : sizes.tensor);
  }
  return lookup;
}

/**
 * @param {Scene} scene
 * @returns {Map<string, string[]>} group id → tensors drawn beside it, nearest first
 */
function satellitesOf(scene) {
  /** @type {Map<string, string[]>} */
  const satellites = new Map();
  /** @type {Map<string, string>} */
  const twins = new Map();
  for (const { id, satellite, twin } of scene.tensors) {
    if (satellite === null) continue;
    satellites.set(satellite, [...(satellites.get(satellite) ?? []), id]);
    if (twin !== null) twins.set(id, twin);
  }
  // Gradients stand in the order of what they are gradients of.
  const rank = new Map(scene.tensors.map(({ id }, index) => [id, index]));
  for (const beside of satellites.values()) {
    beside.sort((a, b) => (rank.get(twins.get(a) ?? a) ?? 0) - (rank.get(twins.get(b) ?? b) ?? 0));
  }
  return satellites;
}

/**
 * @param {Scene} scene
 * @param {ReadonlyMap<string, import("./types.js").Tensor>} shapes
 * @returns {Set<string>}
 */
function lossIds(scene, shapes) {
  return new Set(scene.tensors.filter(({ tensor }) => shapes.get(tensor)?.role === "loss").map(({ id }) => id));
}

/**
 * @param {Scene} scene
 * @param {ReadonlySet<string>} onAxis
 * @param {ReadonlyMap<string, [number, number]>} boxSize
 * @param {Sizes} sizes
 * @returns {number} how far from the axis the loss goes, with its gradient beneath it where that is recorded
 */
function axisReach(scene, onAxis, boxSize, sizes) {
  const reaches = [...onAxis].map((id) => {
    const height = (boxSize.get(id) ?? sizes.scalar)[1];
    return scene.tensors.some(({ twin }) => twin === id) ? height * 1.5 + sizes.rowGap : height / 2;
  });
  return Math.max(0, ...reaches);
}

/**
 * @param {Scene} scene
 * @param {ReadonlyMap<string, [number, number]>} boxSize
 * @param {ReadonlyMap<string, string[]>} satellites
 * @param {Sizes} sizes
 * @returns {Map<string, Node>}
 */
function forwardNodes(scene, boxSize, satellites, sizes) {
  /** @type {Map<string, Node>} */
  const nodes = new Map();
  /** @param {string} id @param {"op" | "tensor"} kind */
  const add = (id, kind) => {
    const size = boxSize.get(id) ?? sizes.op;
    const beside = satellites.get(id) ?? [];
    nodes.set(id, {
      id,
      kind,
      size: [Math.max(size[0], sideBySide(beside, boxSize, sizes)), size[1]],
      satellites: beside,
      column: 0,
      height: 0,
      inner: size[1] / 2,
      outer: size[1] / 2 + outwardReach(beside, boxSize, sizes),
      position: 0,
      before: [],
      after: [],
    });
  };
  for (const { id, half } of scene.groups) if (half === "forward") add(id, "op");
  for (const { id, half, satellite } of scene.tensors) if (half === "forward" && satellite === null) add(id, "tensor");
  return nodes;
}

/**
 * @param {readonly string[]} beside
 * @param {ReadonlyMap<string, [number, number]>} boxSize
 * @param {Sizes} sizes
 * @returns {number} the depth that satellites need
 */
function sideBySide(beside, boxSize, sizes) {
  const depths = beside.map((id) => (boxSize.get(id) ?? sizes.satellite)[0]);
  if (depths.length === 0) return 0;
  if (sizes.stackOutward) return Math.max(...depths);
  return depths.reduce((sum, depth) => sum + depth + sizes.rowGap / 2, -sizes.rowGap / 2);
}

/**
 * @param {readonly string[]} beside
 * @param {ReadonlyMap<string, [number, number]>} boxSize
 * @param {Sizes} sizes
 * @returns {number} how far satellites reach beyond their op
 */
function outwardReach(beside, boxSize, sizes) {
  const heights = beside.map((id) => (boxSize.get(id) ?? sizes.satellite)[1] + sizes.rowGap);
  if (heights.length === 0) return 0;
  return sizes.stackOutward ? heights.reduce((sum, height) => sum + height, 0) : Math.max(...heights);
}

/**
 * @typedef {object} Placed a box with its column, signed height above the axis, and its slot along the column's depth
 * @property {string} id
 * @property {"op" | "tensor"} kind
 * @property {import("./types.js").Phase} half
 * @property {number} column
 * @property {number} height
 * @property {[number, number]} slot from and to, as shares of the column's depth; satellites side by side divide it
 */

/**
 * Both halves: the forward one as it is, the backward one as its mirror image. What mirrors nothing goes to the free
 * space beneath, a column before what it comes from.
 *
 * @param {Scene} scene
 * @param {ReadonlyMap<string, Node>} nodes
 * @param {ReadonlyMap<string, string[]>} satellites
 * @param {ReadonlyMap<string, [number, number]>} boxSize
 * @param {Sizes} sizes
 * @returns {Map<string, Placed>}
 */
function mirror(scene, nodes, satellites, boxSize, sizes) {
  /** @type {Map<string, Placed>} */
  const placed = new Map();
  /** Lowest height taken in each column of the backward half. @type {Map<number, number>} */
  const floors = new Map();
  const reach = (/** @type {string} */ id) => (boxSize.get(id) ?? sizes.op)[1] / 2;

  /** @param {Placed} box */
  const put = (box) => {
    placed.set(box.id, box);
    if (box.half === "backward") floors.set(box.column, Math.min(floors.get(box.column) ?? 0, box.height - reach(box.id)));
  };
  /** @param {Placed} op */
  const putSatellites = (op) => {
    const beside = satellites.get(op.id) ?? [];
    const away = op.half === "forward" ? 1 : -1;
    let height = op.height + away * reach(op.id);
    beside.forEach((id, position) => {
      if (sizes.stackOutward || position === 0) height += away * (sizes.rowGap + reach(id));
      /** @type {[number, number]} */
      const slot = sizes.stackOutward ? [0, 1] : [position / beside.length, (position + 1) / beside.length];
      put({ id, kind: "tensor", half: op.half, column: op.column, height, slot });
      if (sizes.stackOutward) height += away * reach(id);
    });
  };

  for (const node of nodes.values()) {
    const kind = node.kind === "op" ? "op" : "tensor";
    put({ id: node.id, kind, half: "forward", column: node.column, height: node.height, slot: [0, 1] });
  }
  for (const node of nodes.values()) {
    const op = placed.get(node.id);
    if (op !== undefined) putSatellites(op);
  }

  /** @type {Set<string>} */
  const taken = new Set();
  /** @param {string} id @param {"op" | "tensor"} kind @param {string | null} twin @returns {boolean} */
  const reflect = (id, kind, twin) => {
    const original = twin === null || taken.has(twin) ? undefined : placed.get(twin);
    if (original === undefined || twin === null) return false;
    taken.add(twin);
    // A gradient of the loss itself stands beneath the loss, which is on the axis.
    const height = original.height === 0 ? -(reach(twin) + sizes.rowGap + reach(id)) : -original.height;
    put({ ...original, id, kind, half: "backward", height });
    return true;
  };
  const unpaired = [];
  for (const { id, half, twin } of scene.groups) {
    if (half === "backward" && !reflect(id, "op", twin)) unpaired.push(id);
  }
  // The last gradient of a tensor is the whole one; parts that were added up to it stand beneath.
  for (const { id, half, satellite, twin } of [...scene.tensors].reverse()) {
    if (half === "backward" && satellite === null && !reflect(id, "tensor", twin)) unpaired.push(id);
  }
  for (const { id, half } of scene.groups) {
    const op = placed.get(id);
    if (half === "backward" && op !== undefined) putSatellites(op);
  }

  const groups = new Set(scene.groups.map(({ id }) => id));
  for (const id of unpaired.reverse()) {
    const before = scene.edges.flatMap((edge) => (edge.target === id && edge.kind === "data" ? (placed.get(edge.source) ?? []) : []));
    const after = scene.edges.flatMap((edge) => (edge.source === id && edge.kind === "data" ? (placed.get(edge.target) ?? []) : []));
    const column =
      before.length > 0 ? Math.min(...before.map((box) => box.column)) - 1 : Math.max(-1, ...after.map((box) => box.column)) + 1;
    const kind = groups.has(id) ? "op" : "tensor";
    const at = Math.max(0, column);
    const height = (floors.get(at) ?? -sizes.fold) - sizes.rowGap - reach(id);
    /** @type {Placed} */
    const box = { id, kind, half: "backward", column: at, height, slot: [0, 1] };
    put(box);
    putSatellites(box);
  }
  return placed;
}

/**
 * From columns and heights to pixels.
 *
 * @param {Scene} scene
 * @param {ReadonlyMap<string, Placed>} placed
 * @param {ReadonlyMap<SceneEdge, Node[]>} chains
 * @param {number} columnCount
 * @param {ReadonlyMap<string, [number, number]>} boxSize
 * @param {Sizes} sizes
 * @param {LayoutOptions} options
 * @returns {Layout}
 */
function measure(scene, placed, chains, columnCount, boxSize, sizes, options) {
  /** @type {number[]} */
  const natural = [];
  /** @type {number[]} */
  const least = [];
  for (const box of placed.values()) {
    const share = box.slot[1] - box.slot[0];
    const depth = (boxSize.get(box.id) ?? sizes.op)[0] / share + (share < 1 ? sizes.rowGap / 2 : 0);
    natural[box.column] = Math.max(natural[box.column] ?? 0, depth);
    least[box.column] = Math.max(least[box.column] ?? 0, box.kind === "tensor" ? sizes.least / share : sizes.leastOp);
  }
  const columns = Array.from({ length: Math.max(columnCount, natural.length) }, (_, column) => ({
    natural: natural[column] ?? 0,
    least: Math.min(least[column] ?? 0, natural[column] ?? 0),
  }));
  const depths = spread(columns, sizes, options.length);

  let [top, bottom] = [0, 0];
  for (const { id, height } of placed.values()) {
    const half = (boxSize.get(id) ?? sizes.op)[1] / 2;
    top = Math.max(top, height + half);
    bottom = Math.min(bottom, height - half);
  }
  const [fewest, most] = sizes.heights;
  const factor = Math.min(most, Math.max(fewest, (options.breadth - 2 * MARGIN) / Math.max(1, top - bottom)));
  const breadth = (top - bottom) * factor + 2 * MARGIN;
  // Forward is on top, or on the left where depth runs downward.
  const across = (/** @type {number} */ height) => MARGIN + (top - height) * factor;

  const isVertical = options.orientation === "vertical";
  /** @type {Map<string, Box>} */
  const boxes = new Map();
  for (const { id, kind, half, column, height, slot } of placed.values()) {
    const size = boxSize.get(id) ?? sizes.op;
    const room = depths.sizes[column] ?? 0;
    const share = slot[1] - slot[0];
    // Alone in its column a box keeps its own size, centred; side by side they divide the room.
    const isHairline = kind === "op" && size[0] * depths.stretch < HAIRLINE_BELOW;
    const wanted = isHairline ? sizes.leastOp : Math.max(size[0] * depths.stretch, kind === "op" ? sizes.leastOp : sizes.least);
    const depth = share === 1 ? Math.min(room, wanted) : share * room - sizes.rowGap / 4;
    const middleOfSlot = (depths.starts[column] ?? 0) + ((slot[0] + slot[1]) / 2) * room;
    const start = middleOfSlot - depth / 2;
    const thick = size[1] * factor;
    const middle = across(height);
    boxes.set(
      id,
      isVertical
        ? { id, kind, half, x: middle - thick / 2, y: start, w: thick, h: depth }
        : { id, kind, half, x: start, y: middle - thick / 2, w: depth, h: thick },
    );
  }

  const routes = scene.edges.flatMap((edge) => {
    const through = (chains.get(edge) ?? []).slice(1, -1).map((node) => {
      const depth = (depths.starts[node.column] ?? 0) + (depths.sizes[node.column] ?? 0) / 2;
      return isVertical ? [across(node.height), depth] : [depth, across(node.height)];
    });
    const [source, target] = [boxes.get(edge.source), boxes.get(edge.target)];
    return source === undefined || target === undefined ? [] : [route(edge, source, target, through, isVertical)];
  });
  const width = depths.length;
  return {
    boxes: [...boxes.values()],
    routes,
    width: isVertical ? breadth : width,
    height: isVertical ? width : breadth,
    natural: columns.reduce((sum, column) => sum + column.natural + sizes.gap, -sizes.gap) + sizes.ends[0] + sizes.ends[1],
  };
}

/**
 * Column depths and gaps that fill a length: one factor for all, found by bisection, within what stays legible.
 *
 * @param {readonly {natural: number, least: number}[]} columns
 * @param {Sizes} sizes
 * @param {number} length
 * @returns {{starts: number[], sizes: number[], stretch: number, length: number}}
 */
function spread(columns, { gap, ends, leastGap }, length) {
  const gaps = Math.max(0, columns.length - 1);
  const room = length - ends[0] - ends[1];
  /** @param {number} factor */
  const total = (factor) =>
    columns.reduce((sum, column) => sum + Math.max(column.least, column.natural * factor), 0) + gaps * Math.max(leastGap, gap * factor);
  let [low, high] = [0, MOST_STRETCH];
  for (let step = 0; step < 40; step += 1) {
    const middle = (low + high) / 2;
    if (total(middle) > room) high = middle;
    else low = middle;
  }
  const stretch = low;
  const spare = Math.max(0, room - total(stretch));
  const between = Math.max(leastGap, Math.min(gap * stretch + (gaps > 0 ? spare / gaps : 0), Math.max(MOST_GAP, gap * stretch)));
  const sizes = columns.map((column) => Math.max(column.least, column.natural * stretch));
  const used = sizes.reduce((sum, size) => sum + size, 0) + gaps * between;
  let start = ends[0] + Math.max(0, room - used) / 2;
  const starts = sizes.map((size) => {
    const here = start;
    start += size + between;
    return here;
  });
  return { starts, sizes, stretch, length: ends[0] + Math.max(room, used) + ends[1] };
}
