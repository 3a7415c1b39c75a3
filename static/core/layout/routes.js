/**
 * The lines between boxes, as cubic Bézier curves in depth and px across. No DOM.
 *
 * A curve is its start and then triples of points, x (depth) and y (across) of each.
 */

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
