/** The bytes kept for the backward pass, step by step, as a curve. No DOM. */

/**
 * @typedef {object} Curve
 * @property {string} area data of an SVG path: what is kept, on top of the base line
 * @property {string} base data of the path of what parameters take
 * @property {number} top bytes at the upper edge
 * @property {(step: number) => number} x
 * @property {(bytes: number) => number} y
 */

/**
 * A step is as wide as its share; where there are more steps than pixels the most of each pixel is drawn.
 *
 * @param {ExecutionSteps} steps
 * @param {number} width px
 * @param {number} height px
 * @returns {Curve}
 */
export function memoryCurve(steps, width, height) {
  const top = Math.max(1, steps.base + steps.alive[steps.peak]);
  const x = (/** @type {number} */ step) => steps.count === 0 ? 0 : (step / steps.count) * width;
  const y = (/** @type {number} */ bytes) => height - (bytes / top) * height;
  const bars = Math.max(1, Math.min(steps.count, Math.floor(width)));
  const points = [`M0 ${tenth(y(steps.base))}`];
  for (let bar = 0; bar < bars; bar += 1) {
    const [from, to] = [Math.floor((bar / bars) * steps.count),
      Math.max(Math.floor((bar / bars) * steps.count) + 1, Math.floor(((bar + 1) / bars) * steps.count))];
    let most = 0;
    for (let step = from; step < to; step += 1) most = Math.max(most, steps.alive[step]);
    const level = tenth(y(steps.base + most));
    points.push(`L${tenth((bar / bars) * width)} ${level}L${tenth(((bar + 1) / bars) * width)} ${level}`);
  }
  points.push(`L${width} ${tenth(y(steps.base))}z`);
  return { area: points.join(""),
    base: `M0 ${height}L0 ${tenth(y(steps.base))}L${width} ${tenth(y(steps.base))}L${width} ${height}z`, top, x, y };
}

/** @param {number} length @returns {number} */
function tenth(length) {
  return Math.round(length * 10) / 10;
}
