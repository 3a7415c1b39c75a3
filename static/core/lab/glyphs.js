/** Marks of a chart as the data of an SVG path, around a point. No DOM. */

/** To a tenth of a pixel; `toFixed` takes several times as long, a thousand times a frame. @param {number} length px */
export function tenth(length) {
  return Math.round(length * 10) / 10;
}

/** @param {number} x @param {number} y @param {number} r @returns {string} */
export function disc(x, y, r) {
  return `M${tenth(x - r)} ${tenth(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
}

/** @param {number} x @param {number} y @param {number} r @returns {string} pointing down: a negative value */
export function triangle(x, y, r) {
  return `M${tenth(x - r)} ${tenth(y - r * 0.8)}h${2 * r}l${-r} ${r * 1.8}z`;
}

/** @param {number} x @param {number} y @param {number} r @returns {string} */
export function cross(x, y, r) {
  return `M${tenth(x - r)} ${tenth(y - r)}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
}

/** @param {number} x @param {number} y @param {number} r @returns {string} */
export function square(x, y, r) {
  return `M${tenth(x - r)} ${tenth(y - r)}h${2 * r}v${2 * r}h${-2 * r}z`;
}
