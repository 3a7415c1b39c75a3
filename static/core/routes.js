/** The lines between boxes, as cubic Bézier curves. No DOM. */

/** @typedef {import("./types.js").SceneEdge} SceneEdge */
/** @typedef {import("./types.js").Box} Box */
/** @typedef {import("./types.js").Route} Route */

/**
 * A curve from box to box. Along the depth it leaves and arrives at the sides; a satellite's at the faces that look at
 * each other; saved tensors' lines cross the axis straight.
 *
 * @param {SceneEdge} edge
 * @param {Box} source
 * @param {Box} target
 * @param {readonly number[][]} through
 * @param {boolean} isVertical
 * @returns {Route}
 */
export function route(edge, source, target, through, isVertical) {
  const flip = (/** @type {Box} */ box) => (isVertical ? { x: box.y, y: box.x, w: box.h, h: box.w } : box);
  const [a, b] = [flip(source), flip(target)];
  const middle = (/** @type {{x: number, w: number}} */ box) => box.x + box.w / 2;
  const level = (/** @type {{y: number, h: number}} */ box) => box.y + box.h / 2;
  /** @type {number[]} */
  let points;
  if (edge.kind === "satellite") {
    const down = level(a) < level(b);
    const x = Math.max(Math.max(a.x, b.x), Math.min(middle(a.w < b.w ? a : b), Math.min(a.x + a.w, b.x + b.w)));
    points = line(x, down ? a.y + a.h : a.y, x, down ? b.y : b.y + b.h);
  } else if (edge.kind === "saved") {
    // From beside: into the near shoulder of the op. From straight above: behind whatever stands between.
    const ahead = middle(b) - middle(a);
    const shift = Math.abs(ahead) < 1 ? 0 : -Math.sign(ahead) * b.w * 0.28;
    points = steep(middle(a) + Math.sign(ahead) * a.w * 0.28, a.y + a.h, middle(b) + shift, b.y);
  } else if (edge.kind === "fold") {
    const straight = Math.abs(middle(a) - middle(b)) < 1;
    points = straight ? line(middle(a), a.y + a.h, middle(b), b.y) : corner(middle(a), a.y + a.h, b.x + b.w, level(b));
  } else if (edge.half === "forward" && edge.target === target.id && middle(b) > middle(a) && level(b) > level(a) + a.h && through.length === 0) {
    // Down to the loss on the axis.
    points = drop(a.x + a.w, level(a), middle(b), b.y);
  } else {
    const along = middle(b) >= middle(a);
    const stops = [
      [along ? a.x + a.w : a.x, level(a)],
      ...through.map(([x = 0, y = 0]) => (isVertical ? [y, x] : [x, y])),
      [along ? b.x : b.x + b.w, level(b)],
    ];
    points = [...(stops[0] ?? [])];
    for (let index = 1; index < stops.length; index += 1) {
      const [x0 = 0, y0 = 0] = stops[index - 1] ?? [];
      const [x1 = 0, y1 = 0] = stops[index] ?? [];
      const bend = (x0 + x1) / 2;
      points.push(bend, y0, bend, y1, x1, y1);
    }
  }
  if (isVertical) {
    for (let index = 0; index < points.length; index += 2) {
      [points[index], points[index + 1]] = [points[index + 1] ?? 0, points[index] ?? 0];
    }
  }
  return { edge, points };
}

/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function line(x0, y0, x1, y1) {
  return [x0, y0, x0, y0, x1, y1, x1, y1];
}

/** Leaves and arrives across the depth. @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function steep(x0, y0, x1, y1) {
  const bend = (y0 + y1) / 2;
  return [x0, y0, x0, bend, x1, bend, x1, y1];
}

/** Leaves across the depth, arrives along it. @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function corner(x0, y0, x1, y1) {
  return [x0, y0, x0, (y0 + 2 * y1) / 3, (2 * x0 + x1) / 3, y1, x1, y1];
}

/** Leaves along the depth, arrives across it. @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function drop(x0, y0, x1, y1) {
  return [x0, y0, (x0 + 2 * x1) / 3, y0, x1, (2 * y0 + y1) / 3, x1, y1];
}
