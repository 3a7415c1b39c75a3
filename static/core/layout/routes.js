/** The routes of a drawing in progress: lines between boxes as cubic Bézier curves, in depth and px across. A curve is its
 * start and then triples of points, x (depth) and y (across) of each. No DOM. */

import { SAVED } from "./sizes.js";

/** How far a line bows out around boxes. */
const BOW = 11;
/** Distance from a box's middle at which lines from the side enter or leave, as a share of its depth. */
const SHOULDER = 0.28;
/** A smaller difference in height counts as straight. */
const LEVEL = 0.05;
/** Distance from a corner of a line to a neighbour. */
const CORNER = 4;
/** Least room for an S-curve. */
const NEAR = 4;
/** Numbers per Bézier curve of a line. */
const CURVE = 6;

/** @param {LayoutRectangle} box @returns {number} */
const middle = ({ x, w }) => x + w / 2;
/** @param {LayoutRectangle} box @returns {number} */
const level = ({ y, h }) => y + h / 2;

/** Numbers per stop: x, and y in the forward and in the backward half. */
export const STOP = 3;

/** Straight lines and S-curves through stops; at each stop the line runs along the depth. @param {Numbers} points is
 * extended @param {Numbers} stops at least one @param {0 | 1} half */
export function throughStops(points, stops, half) {
  const begin = points.length;
  let x = stops.at(0);
  let y = stops.at(1 + half);
  let ahead = x;
  points.push(x);
  points.push(y);
  for (let at = STOP; at < stops.length; at += STOP) {
    const toX = stops.at(at);
    const toY = stops.at(at + 1 + half);
    if (toY - y < LEVEL && y - toY < LEVEL) {
      ahead = toX;
      continue;
    }
    if (ahead !== x) pushCurve(points, x, y, ahead, y);
    pushCurve(points, ahead, y, toX, toY);
    x = ahead = toX;
    y = toY;
  }
  if (ahead !== x || points.length - begin === 2) pushCurve(points, x, y, ahead, y);
}

/** @param {Numbers} points @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 */
function pushCurve(points, x0, y0, x1, y1) {
  const bend = (x0 + x1) / 2;
  points.push(bend);
  points.push(y0);
  points.push(bend);
  points.push(y1);
  points.push(x1);
  points.push(y1);
}

/** A line from box to box, with the depth or against it. @param {LayoutRectangle} a @param {LayoutRectangle} b */
export function direct(a, b) {
  // Between boxes above one another there is no room for an S-curve.
  if (Math.abs(middle(a) - middle(b)) < Math.min(a.w, b.w) / 2) return stacked(a, b, 0);
  const along = middle(b) > middle(a);
  const [x0, y0, x1, y1] = [along ? a.x + a.w : a.x, level(a), along ? b.x : b.x + b.w, level(b)];
  const bend = (x0 + x1) / 2;
  return [x0, y0, bend, y0, bend, y1, x1, y1];
}

/** A line between stacked boxes: straight between neighbours, else around the boxes between. @param {LayoutRectangle} a
 * @param {LayoutRectangle} b @param {number} nearest gap between neighbours; 0: always straight @param {1 | -1} [side]
 * 1: around the side that is deeper @param {number} [border] of all that stands there, on that side */
export function stacked(a, b, nearest, side = 1, border = a.x) {
  const down = level(a) < level(b);
  const apart = down ? b.y - a.y - a.h : a.y - b.y - b.h;
  if (nearest > 0 && apart > nearest + 1) {
    const [x0, x1] = side === 1 ? [a.x + a.w, b.x + b.w] : [a.x, b.x];
    const out = side === 1 ? Math.max(x0, x1, border) + BOW : Math.min(x0, x1, border) - BOW;
    const half = (level(a) + level(b)) / 2;
    return [x0, level(a), out, level(a), out, level(a), out, half, out, level(b), out, level(b), x1, level(b)];
  }
  const [y0, y1] = [down ? a.y + a.h : a.y, down ? b.y : b.y + b.h];
  const [left, right] = [Math.max(a.x, b.x), Math.min(a.x + a.w, b.x + b.w)];
  if (left <= right) {
    const x = Math.max(left, Math.min(middle(a.w < b.w ? a : b), right));
    return line(x, y0, x, y1);
  }
  // Between the nearest corners of boxes that do not overlap.
  const [x0, x1] = middle(a) < middle(b) ? [a.x + a.w - CORNER, b.x + CORNER] : [a.x + CORNER, b.x + b.w - CORNER];
  return [x0, y0, x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1];
}

/** A line across the axis: into the near shoulder of the box, or straight down behind the boxes between.
 * @param {LayoutRectangle} a @param {LayoutRectangle} b @returns {number[]} */
export function crossing(a, b) {
  const ahead = middle(b) - middle(a);
  const side = Math.abs(ahead) < 1 ? 0 : Math.sign(ahead);
  const bend = (a.y + a.h + b.y) / 2;
  const [x0, x1] = [middle(a) + side * a.w * SHOULDER, middle(b) - side * b.w * SHOULDER];
  return [x0, a.y + a.h, x0, bend, x1, bend, x1, b.y];
}

/** The line from the loss to the start of the backward pass. @param {LayoutRectangle} a @param {LayoutRectangle} b */
export function folding(a, b) {
  if (Math.abs(middle(a) - middle(b)) < 1) return line(middle(a), a.y + a.h, middle(b), b.y);
  // Leaves across the depth, arrives along it.
  const [x0, y0, x1, y1] = [middle(a), a.y + a.h, b.x + b.w, level(b)];
  return [x0, y0, x0, (y0 + 2 * y1) / 3, (2 * x0 + x1) / 3, y1, x1, y1];
}

/** The end of the line down to the loss: starts along the depth, arrives across it. @param {number} x0
 * @param {number} y0 @param {LayoutRectangle} loss @returns {number[]} without the start */
export function dropping(x0, y0, loss) {
  const [x1, y1] = [middle(loss), loss.y];
  return [(x0 + 2 * x1) / 3, y0, x1, (2 * y0 + y1) / 3, x1, y1];
}

/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function line(x0, y0, x1, y1) {
  return [x0, y0, x0, y0, x1, y1, x1, y1];
}

/** A line reversed, with its ends moved to the boxes it joins. It runs straight to the border of their stack before it
 * bends. @param {Numbers} points @param {Numbers} line made by throughStops @param {number} first position of the
 * line's first point @param {number} last one past its last @param {LayoutRectangle} from @param {LayoutRectangle} to
 * @param {number} leave border of the first box's stack @param {number} enter border of the second box's stack */
export function reversed(points, line, first, last, from, to, leave, enter) {
  const [y0, y1] = [level(from), level(to)];
  const [start, end] = [from.x, to.x + to.w];
  let [at, until] = [last - 2 - CURVE, first + CURVE];
  let [x, y] = [start, y0];
  points.push(x);
  points.push(y);
  const goTo = (/** @type {number} */ toX, /** @type {number} */ toY) => {
    if (Math.abs(toX - x) < LEVEL && Math.abs(toY - y) < LEVEL) return;
    pushCurve(points, x, y, toX, toY);
    [x, y] = [toX, toY];
  };
  if (Math.abs(y0 - line.at(last - 1)) > 1) {
    if (leave < start - 1) goTo(leave, y0);
    while (at >= until && line.at(at) > x - NEAR) at -= CURVE;
  }
  const moved = y1 - line.at(first + 1);
  const isMoved = Math.abs(moved) > 1;
  const border = isMoved ? Math.max(end, enter) : end;
  if (isMoved) {
    // A line that comes nearer to its new end than to its old one turns there at once.
    let turn = until;
    while (turn <= at && (y1 - line.at(turn + 1)) / moved > 0.5) turn += CURVE;
    if (turn <= at) until = turn;
    while (until <= at && line.at(until) < border + NEAR) until += CURVE;
  }
  for (; at >= until; at -= CURVE) goTo(line.at(at), line.at(at + 1));
  if (border > end + 1) goTo(border, y1);
  pushCurve(points, x, y, end, y1);
}

// The list of all routes.

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
