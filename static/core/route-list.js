/** The routes of a drawing while it is made, and the boxes that they join. */

/** @typedef {import("./layout-boxes.js").Boxes} Boxes */
/** @typedef {import("./routes.js").Place} Place */

export class RouteList {
  /** Group → the closed group that hides it, or -1. */
  #closed;
  /** Box → number of the last round in which it was met. */
  #stamp;
  #stamps = 0;

  /** @param {Boxes} boxes */
  constructor(boxes) {
    this.boxes = boxes;
    const column = (/** @type {string} */ name) => boxes.store.numbers.take(name, Int32Array);
    this.source = column("route source");
    this.target = column("route target");
    this.tensor = column("route tensor");
    this.kind = column("route kind");
    this.half = column("route half");
    /** Route → its first point. */
    this.start = column("route start");
    /** Depth and px across of a start and then of triples of Bézier points, route after route. */
    this.points = boxes.store.numbers.take("points", Float32Array);
    this.#stamp = new Int32Array(boxes.count);
    const { arrays, parent } = boxes.store.index;
    const isOpen = new Uint8Array(arrays.groups);
    for (const group of boxes.open) isOpen[group] = 1;
    this.#closed = new Int32Array(arrays.groups).fill(-1);
    for (let group = 1; group < arrays.groups; group += 1) {
      const above = this.#closed[parent[group] ?? 0] ?? -1;
      this.#closed[group] = above >= 0 ? above : isOpen[group] === 1 ? -1 : group;
    }
  }

  get count() {
    return this.source.length;
  }

  /** A route whose points are still to be added. @param {number} source @param {number} target @param {number} kind @param {number} half @param {number} tensor */
  begin(source, target, kind, half, tensor) {
    this.source.push(source);
    this.target.push(target);
    this.kind.push(kind);
    this.half.push(half);
    this.tensor.push(tensor);
    this.start.push(this.points.length / 2);
  }

  /** @param {number} source @param {number} target @param {number} kind @param {number} half @param {number} tensor @param {readonly number[]} curve */
  add(source, target, kind, half, tensor, curve) {
    this.begin(source, target, kind, half, tensor);
    for (const value of curve) this.points.push(value);
  }

  /** @param {number} op @param {number} half @returns {number} the box that it is, or that hides it; -1 for none */
  boxOfOp(op, half) {
    const own = this.boxes.opBox[op] ?? -1;
    if (own >= 0) return own;
    const group = this.boxes.store.index.opGroup[op] ?? -1;
    const hidden = group < 0 ? -1 : (this.#closed[group] ?? -1);
    return hidden < 0 ? -1 : (this.boxes.groupBox[half]?.[hidden] ?? -1);
  }

  /** @param {number} box @returns {Place} in depth and px across */
  place(box) {
    const { boxes } = this;
    const h = boxes.thickness.at(box) * boxes.factor;
    return { x: boxes.start.at(box), y: boxes.across(boxes.height.at(box)) - h / 2, w: boxes.depth.at(box), h };
  }

  /** From here on every box is met for the first time again. */
  startRound() {
    this.#stamps += 1;
  }

  /** @param {number} box @returns {boolean} whether it is met for the first time in this round */
  meet(box) {
    if (this.#stamp[box] === this.#stamps) return false;
    this.#stamp[box] = this.#stamps;
    return true;
  }
}
