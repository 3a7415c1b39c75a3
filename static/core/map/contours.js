/** Lines of equal value by marching squares. No DOM. */

/** The sides that each segment joins (0 below, 1 right, 2 above, 3 left). The index is the sum of the corners at the
 * level or above: 1 left below, 2 right below, 4 right above, 8 left above. A saddle is cut apart. */
const SEGMENTS = [[], [3, 0], [0, 1], [3, 1], [1, 2], [3, 0, 1, 2], [0, 2], [3, 2], [2, 3], [2, 0], [0, 1, 2, 3], [2,
  1], [1, 3], [1, 0], [0, 3], []];

/** @param {Float64Array} field by cell, nx × ny; none runs through cells that are not finite @param {number} nx
 * @param {number} ny @param {readonly number[]} levels @param {boolean} isLog
 * @returns {[number, number][][]} segments in places: the middle of the first cell is 0.5, 0.5 */
export function contours(field, nx, ny, levels, isLog) {
  const values = isLog ? field.map((value) => value > 0 ? Math.log(value) : NaN) : field;
  /** @type {[number, number][][]} */
  const found = [];
  for (const each of levels) {
    const level = isLog ? Math.log(each) : each;
    for (let y = 0; y + 1 < ny; y += 1) {
      for (let x = 0; x + 1 < nx; x += 1) {
        const at = y * nx + x;
        const [a, b, c, d] = [values[at], values[at + 1], values[at + nx + 1], values[at + nx]];
        const corners = Number(a >= level) + 2 * Number(b >= level) + 4 * Number(c >= level) + 8 * Number(d >= level);
        if (corners === 0 || corners === 15 || !Number.isFinite(a + b + c + d)) continue;
        const between = (/** @type {number} */ from, /** @type {number} */ to) => (level - from) / (to - from);
        const point = (/** @type {number} */ side) => /** @type {[number, number]} */ ([
          x + 0.5 + [between(a, b), 1, between(d, c), 0][side],
          y + 0.5 + [0, between(b, c), 1, between(a, d)][side],
        ]);
        const sides = SEGMENTS[corners];
        for (let side = 0; side < sides.length; side += 2) found.push([point(sides[side]), point(sides[side + 1])]);
      }
    }
  }
  return found;
}
