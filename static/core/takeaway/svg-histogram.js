/** Histograms as SVG paths: bars like those of histogram.js, shades where a box is too narrow for bars. No DOM. */

import { isHidden } from "../format.js";
import { num, tag } from "./svg-text.js";

const LEAST_BAR = 2;
/** Shades of a strip, and the bins that each of them adds up. */
const SHADES = 16;

/**
 * @param {Picture} picture
 * @param {number} row
 * @param {number} parts that the bins are added up to
 * @returns {{sums: Float64Array, most: number}}
 */
function folded({ counts, bins }, row, parts) {
  const sums = new Float64Array(parts);
  let most = 0;
  for (let bin = 0; bin < bins; bin += 1) {
    const part = Math.floor((bin * parts) / bins);
    sums[part] = sums[part] + counts[row * bins + bin];
  }
  for (const sum of sums) most = Math.max(most, sum);
  return { sums, most };
}

/**
 * Bars over [min, max] of a tensor, their heights with the square root of the counts, before a line at zero.
 *
 * @param {Picture} picture
 * @param {number} row
 * @param {Rectangle} at
 * @param {HistogramPaint} paint
 * @returns {string}
 */
export function barsSvg(picture, row, { x, y, w, h }, paint) {
  if (isHidden(picture, row))
    return tag("rect", { x, y, width: w, height: h, fill: paint.muted, "fill-opacity": 0.12 });
  const parts = Math.min(picture.bins, 2 ** Math.max(2, Math.floor(Math.log2(Math.max(1, w / LEAST_BAR)))));
  const { sums, most } = folded(picture, row, parts);
  if (most === 0) return tag("rect", { x, y, width: w, height: h, fill: "url(#hatch)" });
  const [low, high] = [picture.floats.min[row], picture.floats.max[row]];
  if (low === high) return tag("rect", { x: x + w / 2 - 1.5, y, width: 3, height: h, fill: paint.ink });
  let path = `M${num(x)} ${num(y + h)}`;
  sums.forEach((sum, bar) => {
    path += `V${num(y + h - Math.sqrt(sum / most) * h)}H${num(x + ((bar + 1) * w) / parts)}`;
  });
  const bars = tag("path", { d: `${path}V${num(y + h)}z`, fill: paint.ink });
  if (low >= 0 || high <= 0) return bars;
  return tag("rect", { x: x + (-low / (high - low)) * w - 0.5, y, width: 1, height: h, fill: paint.muted,
    "fill-opacity": 0.5 }) + bars;
}

/**
 * Shades from the least value at the bottom to the greatest at the top.
 *
 * @param {Picture} picture
 * @param {number} row
 * @param {Rectangle} at
 * @param {HistogramPaint} paint
 * @returns {string}
 */
export function stripSvg(picture, row, { x, y, w, h }, paint) {
  if (isHidden(picture, row))
    return tag("rect", { x, y, width: w, height: h, fill: paint.muted, "fill-opacity": 0.12 });
  const { sums, most } = folded(picture, row, SHADES);
  if (most === 0) return tag("rect", { x, y, width: w, height: h, fill: "url(#hatch)" });
  const step = h / SHADES;
  let shades = "";
  sums.forEach((sum, shade) => {
    if (sum === 0) return;
    const opacity = Math.log1p(sum) / Math.log1p(most);
    shades += tag("rect", { x, y: y + h - (shade + 1) * step, width: w, height: step, "fill-opacity": opacity });
  });
  return tag("g", { fill: paint.ink }, shades);
}
