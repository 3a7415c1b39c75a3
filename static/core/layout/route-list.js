/** The routes of a drawing in progress. */

import { SAVED } from "./sizes.js";

/** Room for more routes than the last drawing had. */
const SPARE = 256;
/** Numbers per line across the axis. */
const CROSSING = 8;
const UNMOVED = /** @type {const} */ (["kind", "half", "tensor", "isWary"]);
/** Numbers per route, about. */
const POINTS = 16;

export class RouteList {
  /** Group → the closed group that hides it, or -1. */
  #closed;
  /** Box → the last round in which it was met. */
  #stamp;
  #stamps = 0;

  /** @param {LayoutBoxes} boxes */
  constructor(boxes) {
    this.boxes = boxes;
    const last = boxes.moves.last?.list;
    const column = (/** @type {string} */ name, /** @type {ValuesType} */ type) => {
      const taken = boxes.numbers.take(name, type);
      if (last !== undefined) taken.reserve(last.count + SPARE);
      return taken;
    };
    this.source = column("route source", Int32Array);
    this.target = column("route target", Int32Array);
    this.tensor = column("route tensor", Int32Array);
    this.kind = column("route kind", Uint8Array);
    this.half = column("route half", Uint8Array);
    /** Whether a route looked for obstacles. */
    this.isWary = column("route is wary", Uint8Array);
    this.wary = 0;
    /** Route → its first point. */
    this.start = column("route start", Int32Array);
    /** Depth and px across of each start and of triples of Bézier points, route after route. */
    this.points = boxes.numbers.take("points", Float64Array);
    if (last !== undefined) this.points.reserve(last.points.length + POINTS * SPARE);
    this.#stamp = new Int32Array(boxes.count);
    const { arrays, parent } = boxes.store.index;
    const isOpen = new Uint8Array(arrays.groups);
    for (const group of boxes.open) isOpen[group] = 1;
    this.#closed = new Int32Array(arrays.groups).fill(-1);
    for (let group = 1; group < arrays.groups; group += 1) {
      const above = this.#closed[parent[group]];
      this.#closed[group] = above >= 0 ? above : isOpen[group] === 1 ? -1 : group;
    }
  }

  get count() {
    return this.source.length;
  }

  /** Begins a route; its points follow. @param {number} source @param {number} target @param {number} kind
   * @param {number} half @param {number} tensor */
  begin(source, target, kind, half, tensor) {
    this.source.push(source);
    this.target.push(target);
    this.kind.push(kind);
    this.half.push(half);
    this.tensor.push(tensor);
    this.isWary.push(0);
    this.start.push(this.points.length / 2);
  }

  /** @param {number} source @param {number} target @param {number} kind @param {number} half @param {number} tensor
   * @param {readonly number[]} curve */
  add(source, target, kind, half, tensor, curve) {
    this.begin(source, target, kind, half, tensor);
    for (const value of curve) this.points.push(value);
  }

  /** Marks the last route as one that looked for obstacles. */
  markWary() {
    this.isWary.set(this.count - 1, 1);
    this.wary += 1;
  }

  /** Takes over routes of the last drawing, all within a group that only moved. @param {RouteList} before
   * @param {number} from @param {number} to one past the last @param {number} group @param {LayoutMoves} moves */
  take(before, from, to, group, moves) {
    if (from >= to) return;
    const half = before.half.at(from);
    const isAcross = before.kind.at(from) === SAVED;
    const [pointsFrom, pointsTo] = [2 * before.start.at(from),
      to < before.count ? 2 * before.start.at(to) : before.points.length];
    const shift = this.points.length / 2 - pointsFrom / 2;
    const [sources, targets] = [half === 0 ? moves.box[0] : moves.box[1],
      half === 0 && !isAcross ? moves.box[0] : moves.box[1]];
    this.source.append(before.source, from, to, sources[group]);
    this.target.append(before.target, from, to, targets[group]);
    for (const name of UNMOVED) this[name].append(before[name], from, to);
    this.start.append(before.start, from, to, shift);
    if (half === 1) { for (let route = from; route < to; route += 1) this.wary += before.isWary.at(route); }

    const begin = this.points.extend(pointsTo - pointsFrom);
    const points = this.points.room;
    const old = before.points.room;
    const deeper = moves.depth[group];
    const [above, beneath] = [moves.across[0][group], moves.across[1][group]];
    const across = half === 0 ? above : beneath;
    for (let at = 0; at < pointsTo - pointsFrom; at += 2) {
      // Across the axis: a start, two bends half-way, and an end in the other half.
      const point = isAcross ? at % CROSSING : -1;
      const shifted = point < 0 ? across
        : point === 0 ? above : point === CROSSING - 2 ? beneath : (above + beneath) / 2;
      points[begin + at] = old[pointsFrom + at] + deeper;
      points[begin + at + 1] = old[pointsFrom + at + 1] + shifted;
    }
  }

  /** Drops all routes after the first `count`. @param {number} count */
  cut(count) {
    if (count >= this.count) return;
    this.points.length = 2 * this.start.at(count);
    for (const column of [this.source, this.target, this.tensor, this.kind, this.half, this.isWary, this.start])
      column.length = count;
  }

  /** @param {number} op @param {number} half @returns {number} its box, or the closed group's box that hides it; -1 for
   * none */
  boxOfOp(op, half) {
    const own = this.boxes.opBox[op];
    if (own >= 0) return own;
    const group = this.boxes.store.index.opGroup[op];
    const hidden = group < 0 ? -1 : this.#closed[group];
    return hidden < 0 ? -1 : this.boxes.groupBox[half][hidden];
  }

  /** @param {number} box @returns {LayoutRectangle} in depth and px across */
  place(box) {
    const { boxes } = this;
    const h = boxes.thickness.at(box) * boxes.factor;
    return { x: boxes.start.at(box), y: boxes.across(boxes.height.at(box)) - h / 2, w: boxes.depth.at(box), h };
  }

  /** Starts a round in which no box was met yet. */
  startRound() {
    this.#stamps += 1;
  }

  /** @param {number} box @returns {boolean} whether this is the first time in this round */
  meet(box) {
    if (this.#stamp[box] === this.#stamps) return false;
    this.#stamp[box] = this.#stamps;
    return true;
  }
}
