/** Places the boxes: one pass through the open groups from the outside inward for the forward half, then one for its
 * mirror image, the backward half. Coordinates are depth, and height above the axis. */

import { FRAME, GROUP, HAIRLINE_BELOW, MARGIN, MAX_ELASTIC, OP, spread, TENSOR } from "./sizes.js";
import { Moves } from "./moves.js";
import { STRIDE } from "./slots.js";
import { pair, PORT_IN, PORT_OUT } from "./scene.js";

/** @typedef {{start: Float32Array | Float64Array, depth: Float32Array | Float64Array}} Columns */

/** Kind of a group of ops that only rearrange elements. */
const PLUMBING = 3;
/** Beside a name, px. */
const NAME_ROOM = 8;
/** Room for more boxes than the last drawing had. */
const SPARE = 256;

export class Boxes {
  /** Columns of the whole model. @type {Columns} */
  columns = { start: new Float64Array(0), depth: new Float64Array(0) };
  isElastic = false;
  /** Factor on heights. */
  factor = 1;
  length = 0;
  natural = 0;
  top = 0;
  bottom = 0;
  #stretch = 1;
  /** Whether columns leave room for the names of ops and groups. */
  #isNamed = true;

  /** @param {FrameStore} store @param {Int32Array} open groups, parents before children @param {LayoutOptions} options
   * @param {NumbersStore} numbers for columns @param {KeptLayout | null} last drawing */
  constructor(store, open, options, numbers, last) {
    const { ops, tensors, groups } = store.index.arrays;
    this.store = store;
    this.open = open;
    this.options = options;
    this.numbers = numbers;
    const column = (/** @type {string} */ name, /** @type {ValuesType} */ type) => {
      const taken = numbers.take(name, type);
      if (last !== null) taken.reserve(last.boxes.count + SPARE);
      return taken;
    };
    this.kind = column("box kind", Uint8Array);
    this.half = column("box half", Uint8Array);
    this.ref = column("box ref", Int32Array);
    this.frame = column("box frame", Int32Array);
    this.isSatellite = column("box is satellite", Uint8Array);
    /** Backward box → the forward box above it, or -1. */
    this.site = column("box site", Int32Array);
    this.start = column("box start", Float64Array);
    this.depth = column("box depth", Float64Array);
    /** The box's middle above the axis, negative below. */
    this.height = column("box height", Float64Array);
    this.thickness = column("box thickness", Float64Array);
    this.opBox = new Int32Array(ops).fill(-1);
    this.tensorBox = new Int32Array(tensors).fill(-1);
    /** @type {[Int32Array, Int32Array]} */
    this.groupBox = [new Int32Array(groups).fill(-1), new Int32Array(groups).fill(-1)];
    /** Group → origin of its scene, and its node in the scene around it. */
    this.originDepth = new Float64Array(groups);
    this.originHeight = pair(Float64Array, groups);
    this.nodeAround = new Int32Array(groups);
    /** Group → in either half its first box after its frame, and one past its last. */
    this.first = pair(Int32Array, groups);
    this.last = pair(Int32Array, groups);
    /** The open groups' frames. @type {(LayoutFrame | undefined)[]} */
    this.frames = new Array(groups).fill(undefined);
    for (const group of open) this.frames[group] = store.frame(group);
    this.moves = new Moves(this, last === null || last.boxes.isElastic ? null : last);
  }

  get count() {
    return this.kind.length;
  }

  /** @param {boolean} mayStretch whether columns may shrink to fit */
  place(mayStretch) {
    this.#spread(mayStretch);
    // In an elastic drawing no group moves as a whole.
    if (this.isElastic) this.moves = new Moves(this, null);
    this.#walk(0);
    this.#walk(1);
    this.moves.takeOrigins(this);
    this.#measure();
    this.moves.settle(this);
  }

  /** @param {boolean} mayStretch */
  #spread(mayStretch) {
    const { sizes } = this.store;
    const root = this.store.frame(0);
    const { layout, scene } = root;
    this.isElastic = mayStretch && this.open.length === 1 && this.#countBoxes(root) <= MAX_ELASTIC;
    const [before, after] = sizes.ends;
    if (!this.isElastic) {
      this.columns = { start: layout.columnStart.map((start) => start + before), depth: layout.columnDepth };
      this.length = this.natural = layout.width + before + after;
      return;
    }
    const fitted = () => {
      const least = new Float64Array(layout.columns);
      for (let node = 0; node < scene.nodes; node += 1) {
        const column = layout.column[node];
        const { entries, start, end } = this.#entriesOf(scene.kind[node], scene.ref[node]);
        for (let at = start; at < end; at += STRIDE) {
          const share = entries.at(at + 8) - entries.at(at + 7);
          least[column] = Math.max(least[column], this.#leastOf(entries.at(at), entries.at(at + 2)) / share);
        }
      }
      const columns = Array.from(layout.columnDepth,
        (natural, column) => ({ natural, least: Math.min(least[column], natural) }));
      return { columns, spaced: spread(columns, sizes, this.options.length) };
    };
    let { columns, spaced } = fitted();
    // Names come before the numbers of tensors, but not before their histograms; in an outline, before those too.
    const isFold = (/** @type {number} */ ref, /** @type {number} */ node) =>
      scene.kind[node] === GROUP && this.store.index.arrays.groupRepeats[ref] > 0;
    if (spaced.stretch * sizes.tensor[0] < (scene.ref.some(isFold) ? sizes.leastShades : sizes.leastPlot)) {
      this.#isNamed = false;
      ({ columns, spaced } = fitted());
    }
    this.columns = { start: spaced.starts, depth: spaced.sizes };
    this.#stretch = spaced.stretch;
    this.length = spaced.length;
    this.natural = columns.reduce((sum, { natural }) => sum + natural + sizes.gap, -sizes.gap) + before + after;
  }

  /** @param {number} kind of the box @param {number} ref @returns {number} least depth in an elastic drawing */
  #leastOf(kind, ref) {
    const { sizes, index: { arrays, loss } } = this.store;
    if (kind === TENSOR) return [ref, arrays.gradientOf[ref]].includes(loss) ? sizes.leastLoss : sizes.least;
    // Plumbing does not say what the model is.
    if (kind === OP || arrays.groupKind[ref] === PLUMBING) return sizes.leastOp;
    const isFold = arrays.groupRepeats[ref] > 0;
    if (!isFold && !this.#isNamed) return sizes.leastOp;
    const letters = Math.min(arrays.groupLabelLetters[ref],
      sizes.leastLetters[isFold || arrays.groupIsLeaf[ref] === 1 ? 1 : 0]);
    return Math.max(sizes.leastOp, sizes.letter * letters + NAME_ROOM);
  }

  /** @param {LayoutFrame} root @returns {number} */
  #countBoxes({ scene }) {
    let count = 0;
    for (let node = 0; node < scene.nodes; node += 1) {
      const { start, end } = this.#entriesOf(scene.kind[node], scene.ref[node]);
      count += (end - start) / STRIDE;
    }
    return count;
  }

  /** @param {number} kind @param {number} ref */
  #entriesOf(kind, ref) {
    const { slots } = this.store;
    const slot = slots.slotOf(kind, ref);
    return { slot, entries: slots.entries, start: slots.start[slot], end: slots.end[slot] };
  }

  /** @param {0 | 1} half */
  #walk(half) {
    const { backsBefore, arrays } = this.store.index;
    const { frame: room } = this.store.sizes;
    if (this.moves.root[0] === 0) {
      this.moves.takeBoxes(this, 0, half);
      return;
    }
    /** Unfinished scenes: the group, and how many of its nodes are done. @type {number[]} */
    const stack = [0, 0];
    while (stack.length > 0) {
      const done = stack.pop() ?? 0;
      const group = stack.pop() ?? 0;
      const { scene, shape, layout } = this.store.frame(group);
      if (done === 0) this.first[half][group] = this.count;
      if (done === scene.nodes) this.last[half][group] = this.count;
      if (done === scene.nodes) continue;
      stack.push(group, done + 1);
      const node = half === 0 ? done : scene.nodes - 1 - done;
      const kind = scene.kind[node];
      if (kind === PORT_IN || kind === PORT_OUT) continue;
      const ref = scene.ref[node];
      const column = layout.column[node];
      const columns = this.columnsOf(group);
      const height = this.heightOf(group, node, half);
      const depth = shape.depth[node];
      const middle = this.originDepth[group] + columns.start[column] + columns.depth[column] / 2;
      if (kind !== FRAME) {
        const slotDepth = this.isElastic ? columns.depth[column] : depth;
        this.#putSlot(kind, ref, half, group, middle - slotDepth / 2, slotDepth, height);
        continue;
      }
      this.originDepth[ref] = middle - depth / 2;
      this.originHeight[half][ref] = height;
      this.nodeAround[ref] = node;
      const hasBackward = backsBefore[arrays.groupLast[ref]] > backsBefore[arrays.groupFirst[ref]];
      if (half === 0 || hasBackward) {
        const thickness = this.store.frame(ref).layout.top[half] + room.outer;
        const up = height + thickness / 2;
        this.put(FRAME, half, ref, group, false, middle - depth / 2, depth, half === 0 ? up : -up, thickness);
      }
      if (this.moves.root[ref] === ref) this.moves.takeBoxes(this, ref, half);
      else stack.push(ref, 0);
    }
  }

  /** @param {number} group that is open @param {number} node or dummy @param {0 | 1} half @returns {number} distance
   * from the axis */
  heightOf(group, node, half) {
    return this.originHeight[half][group] + this.store.frame(group).layout.height[half][node];
  }

  /** @param {number} group that is open @returns {Columns} relative to the origin of its scene */
  columnsOf(group) {
    if (group === 0) return this.columns;
    const { layout } = this.store.frame(group);
    return { start: layout.columnStart, depth: layout.columnDepth };
  }

  /** One half of a slot. @param {number} kind @param {number} ref @param {number} half @param {number} group
   * @param {number} start @param {number} room along the depth @param {number} height */
  #putSlot(kind, ref, half, group, start, room, height) {
    const { sizes } = this.store;
    const { entries, start: first, end } = this.#entriesOf(kind, ref);
    for (let at = first; at < end; at += STRIDE) {
      if (entries.at(at + 1) !== half) continue;
      const boxKind = entries.at(at);
      const [natural, from, to] = [entries.at(at + 6), entries.at(at + 7), entries.at(at + 8)];
      const share = to - from;
      // A box alone in its slot keeps its size and is centred; boxes side by side share the room.
      const isOp = boxKind !== TENSOR;
      const shown = entries.at(at + 2);
      const least = this.#leastOf(boxKind, shown);
      const isHairline = this.isElastic && isOp && Math.max(least, natural * this.#stretch) < HAIRLINE_BELOW;
      const wanted = isHairline ? sizes.leastOp : Math.max(natural * this.#stretch, least);
      const depth = share === 1 ? Math.min(room, wanted) : share * room - sizes.rowGap / 4;
      const middle = start + ((from + to) / 2) * room;
      const up = height + entries.at(at + 4);
      const isSatellite = entries.at(at + 3) === 1;
      const signed = half === 0 ? up : -up;
      const box = this.put(boxKind, half, shown, group, isSatellite, middle - depth / 2, depth, signed,
        entries.at(at + 5));
      if (half === 1) this.site.set(box, this.#siteOf(boxKind, shown, kind, ref, isSatellite));
    }
  }

  /** @param {number} boxKind @param {number} shown @param {number} slotKind @param {number} ref
   * @param {boolean} isSatellite @returns {number} */
  #siteOf(boxKind, shown, slotKind, ref, isSatellite) {
    const { arrays, sumOf } = this.store.index;
    // A gradient, its parts and the op that adds them stand beneath the tensor.
    const of = boxKind === TENSOR ? arrays.gradientOf[shown] : boxKind === OP ? sumOf[shown] : -1;
    if (of >= 0 && (isSatellite || slotKind === TENSOR)) return this.tensorBox[of];
    return (slotKind === OP ? this.opBox[ref] : slotKind === TENSOR ? this.tensorBox[ref] : this.groupBox[0][ref]);
  }

  /** @param {number} kind @param {number} half @param {number} ref @param {number} group the open group around it, -1
   * for none @param {boolean} isSatellite @param {number} start @param {number} depth @param {number} height
   * @param {number} thickness @returns {number} the box */
  put(kind, half, ref, group, isSatellite, start, depth, height, thickness) {
    const box = this.count;
    const groups = this.groupBox[half];
    this.kind.push(kind);
    this.half.push(half);
    this.ref.push(ref);
    this.frame.push(group <= 0 ? -1 : groups[group]);
    this.isSatellite.push(isSatellite ? 1 : 0);
    this.site.push(-1);
    this.start.push(start);
    this.depth.push(depth);
    this.height.push(height);
    this.thickness.push(thickness);
    if (kind === OP) this.opBox[ref] = box;
    else if (kind === TENSOR) this.tensorBox[ref] = box;
    else if (groups !== undefined) groups[ref] = box;
    if (half === 1 && (kind === GROUP || kind === FRAME)) this.site.set(box, this.groupBox[0][ref]);
    return box;
  }

  #measure() {
    const [heights, thickness] = [this.height.all, this.thickness.all];
    let [top, bottom] = [0, 0];
    for (let box = 0; box < heights.length; box += 1) {
      const height = heights[box];
      const reach = thickness[box] / 2;
      if (height + reach > top) top = height + reach;
      if (height - reach < bottom) bottom = height - reach;
    }
    this.top = top;
    this.bottom = bottom;
    const [fewest, most] = this.store.sizes.heights;
    const wanted = (this.options.breadth - 2 * MARGIN) / Math.max(1, this.top - this.bottom);
    if (this.isElastic) this.factor = Math.min(most, Math.max(fewest, wanted));
  }

  /** @param {number} height above the axis @returns {number} px across the depth */
  across(height) {
    return MARGIN + (this.top - height) * this.factor;
  }
}
