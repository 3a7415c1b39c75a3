/** Lays out open groups one by one, from the innermost outward. A scene is kept until something opens or closes in its
 * group; a layout serves every scene of the same shape. */

import { lowerBound, NumbersStore, pair, PORT_IN, PORT_OUT, SceneMaker } from "./scene.js";
import { belonging } from "./moves.js";
import { indexGraph } from "./index.js";
import { layered } from "./layered.js";
import { FRAME, SIZES } from "./sizes.js";
import { Slots } from "./slots.js";

/** Most layouts kept by shape. */
const MAX_SHAPES = 20_000;

/** Everything kept of a graph for one folding and orientation. */
export class FrameStore {
  /** @type {(LayoutFrame | undefined)[]} by group */
  #frames = [];
  /** The open groups of the present frames. @type {Uint8Array} */
  #open;
  /** @type {Map<number, {key: Float32Array, layout: LocalLayout}[]>} */
  #shapes = new Map();
  #shapeCount = 0;
  /** The last drawing, from which the next takes lines and boxes. @type {KeptLayout | null} */
  made = null;
  /** Arrays of the last drawing and of the one in progress. @type {[NumbersStore, NumbersStore]} */
  #numbers = [new NumbersStore(), new NumbersStore()];

  /** @param {GraphIndex} index @param {LayoutOptions["orientation"]} orientation */
  constructor(index, orientation) {
    this.index = index;
    this.sizes = SIZES[orientation];
    this.slots = new Slots(index, this.sizes);
    this.maker = new SceneMaker(index);
    this.#open = new Uint8Array(index.arrays.groups);
    this.belonging = belonging(index);
  }

  /** @returns {NumbersStore} the one that the last drawing does not use */
  spare() {
    const [one, other] = this.#numbers;
    return this.made?.boxes.numbers === one ? other : one;
  }

  /** Drops the last drawing, but keeps the scenes. */
  forget() {
    this.made = null;
    this.#numbers = [new NumbersStore(), new NumbersStore()];
  }

  /** @param {number} group @returns {LayoutFrame} */
  frame(group) {
    const frame = this.#frames[group];
    if (frame === undefined) throw new RangeError(`group ${group} is not laid out`);
    return frame;
  }

  /** Lays out every visible open group; yields between groups. @param {Uint8Array} open
   * @returns {Generator<undefined, Int32Array>} those groups, parents before children */
  *layOut(open) {
    const { arrays, parent, childStart } = this.index;
    const seen = new Uint8Array(arrays.groups);
    const groups = [];
    for (let group = 0; group < arrays.groups; group += 1) {
      if (open[group] !== this.#open[group]) {
        // Groups around it are laid out again, up to the first that never was.
        let above = parent[group];
        for (; above >= 0 && this.#frames[above] !== undefined; above = parent[above])
          this.#frames[above] = undefined;
      }
      const around = parent[group];
      const isThere = group === 0 || childStart[group + 1] > childStart[group];
      if (group === 0 || (isThere && open[group] === 1 && seen[around] === 1)) {
        seen[group] = 1;
        groups.push(group);
      }
    }
    this.#open.set(open);
    for (let at = groups.length - 1; at >= 0; at -= 1) {
      const group = groups[at];
      if (this.#frames[group] !== undefined) continue;
      const scene = this.maker.make(group, open);
      const shape = this.shapeOf(scene);
      this.#frames[group] = { scene, shape, layout: this.#layoutOf(shape) };
      yield;
    }
    return Int32Array.from(groups);
  }

  /** @param {SceneShape} shape @returns {LocalLayout} */
  #layoutOf(shape) {
    const key = keyOf(shape);
    let hash = 17;
    for (const number of key) hash = (Math.imul(hash, 31) + number) | 0;
    const known = this.#shapes.get(hash)?.find((candidate) => isEqual(candidate.key, key));
    if (known !== undefined) return known.layout;
    const { gap, rowGap, fold, frame } = this.sizes;
    // Reach of the loss and its gradient from the axis.
    const reach = shape.axis < 0 ? 0 : Math.max(shape.inner[0][shape.axis], shape.outer[1][shape.axis]);
    const layout = layered(shape, { gap, rowGap, fold: shape.isOpen ? fold : frame.inner, reach, start: frame.start,
      end: frame.end });
    if (this.#shapeCount > MAX_SHAPES) {
      this.#shapes.clear();
      this.#shapeCount = 0;
    }
    this.#shapes.set(hash, [...(this.#shapes.get(hash) ?? []), { key, layout }]);
    this.#shapeCount += 1;
    return layout;
  }

  /** A scene, as far as its layout depends on it. By half: inner and outer, a node's reach toward the axis and away from
   * it; the offsets, height of an edge's end above its node. By edge: origin, equal for edges of one value from one
   * source. isOpen: no column is kept for ports; axis: node on the axis, or -1. @param {LocalScene} scene */
  shapeOf(scene) {
    const { nodes, kind, ref, edges, source, target, tensor } = scene;
    const depth = new Float32Array(nodes);
    const [inner, outer] = [pair(Float32Array, nodes), pair(Float32Array, nodes)];
    for (const half of HALVES) {
      for (let node = 0; node < nodes; node += 1) {
        const nodeKind = kind[node];
        const shows = ref[node];
        if (nodeKind === PORT_IN || nodeKind === PORT_OUT) {
          inner[half][node] = PORT_REACH;
          outer[half][node] = PORT_REACH;
        } else if (nodeKind === FRAME) {
          const { layout } = this.frame(shows);
          depth[node] = layout.width;
          outer[half][node] = layout.top[half] + this.sizes.frame.outer;
        } else {
          const slot = this.slots.slotOf(nodeKind, shows);
          depth[node] = this.slots.depth[slot];
          inner[half][node] = this.slots.inner[half][slot];
          outer[half][node] = this.slots.outer[half][slot];
        }
      }
    }
    const origin = new Int32Array(edges);
    const [sourceOffset, targetOffset] = [pair(Float32Array, edges), pair(Float32Array, edges)];
    for (let edge = 0; edge < edges; edge += 1) {
      const isSame = edge > 0 && source[edge] === source[edge - 1] && tensor[edge] === tensor[edge - 1];
      origin[edge] = edge === 0 ? 0 : origin[edge - 1] + (isSame ? 0 : 1);
      const [from, to, passing] = [source[edge], target[edge], tensor[edge]];
      if (kind[from] === FRAME) {
        const port = this.portOut(ref[from], passing);
        for (const half of HALVES) sourceOffset[half][edge] = this.frame(ref[from]).layout.height[half][port];
      }
      if (kind[to] === FRAME) {
        const port = this.portIn(ref[to], passing);
        for (const half of HALVES) targetOffset[half][edge] = this.frame(ref[to]).layout.height[half][port];
      }
    }
    const { portsIn, portsOut, axis, group } = scene;
    const ends = { edges, source, target, origin, sourceOffset, targetOffset };
    return { nodes, portsIn, portsOut, isOpen: group <= 0, axis, depth, inner, outer, kind, ...ends };
  }

  /** @param {number} group @param {number} tensor @returns {number} node by which the tensor enters an open group */
  portIn(group, tensor) {
    const { scene } = this.frame(group);
    return lowerBound(scene.ref, 0, scene.portsIn, tensor);
  }

  /** @param {number} group @param {number} tensor @returns {number} node by which the tensor leaves an open group */
  portOut(group, tensor) {
    const { scene } = this.frame(group);
    return lowerBound(scene.ref, scene.nodes - scene.portsOut, scene.nodes, tensor);
  }
}

const PORT_REACH = 4;
const HALVES = /** @type {const} */ ([0, 1]);

/** @param {SceneShape} shape @returns {Float32Array} equal for scenes of equal layout */
function keyOf({ nodes, portsIn, portsOut, isOpen, axis, depth, inner, outer, kind, edges, source, target, origin,
  sourceOffset, targetOffset })
{
  const key = new Float32Array(6 + 6 * nodes + 7 * edges);
  key.set([nodes, edges, portsIn, portsOut, isOpen ? 1 : 0, axis]);
  let end = 6;
  for (const values of [depth, ...inner, ...outer, kind, source, target, origin, ...sourceOffset, ...targetOffset]) {
    key.set(values, end);
    end += values.length;
  }
  return key;
}

/** @param {Float32Array} a @param {Float32Array} b @returns {boolean} */
function isEqual(a, b) {
  if (a.length !== b.length) return false;
  for (let at = 0; at < a.length; at += 1) if (a[at] !== b[at]) return false;
  return true;
}

/** Pass the same cache again, and only groups that changed are laid out. */
export class LayoutCache {
  /** @type {GraphArrays | null} */
  #arrays = null;
  /** @type {Map<string, FrameStore>} */
  #stores = new Map();

  /** @param {GraphArrays} arrays @param {number} kinds @param {LayoutOptions["orientation"]} orientation */
  store(arrays, kinds, orientation) {
    if (this.#arrays !== arrays) this.#stores.clear();
    this.#arrays = arrays;
    const key = `${kinds} ${orientation}`;
    for (const [other, store] of this.#stores) if (other !== key) store.forget();
    const other = this.#stores.get(`${kinds} ${orientation === "horizontal" ? "vertical" : "horizontal"}`);
    const store = this.#stores.get(key) ?? new FrameStore(other?.index ?? indexGraph(arrays, kinds), orientation);
    this.#stores.set(key, store);
    return store;
  }
}
