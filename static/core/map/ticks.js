/** Round values along a range, for axes, the colour bar and contours. No DOM. */

import { setting } from "../format.js";
import { decadeLabel, decadeTicks } from "../scales.js";

/** @typedef {{value: number, text: string}} Tick */

/** @param {number} value @returns {string} without the digits that a sum of floats adds */
export function tickText(value) {
  return setting(Number(value.toPrecision(10)) + 0).replace(/^-/, "−");
}

/** @param {number} low @param {number} high @param {boolean} isLog @param {number} fits at most so many
 * @returns {Tick[]} ascending */
export function ticks(low, high, isLog, fits) {
  if (!(high > low) || fits < 1) return [{ value: low, text: tickText(low) }];
  if (isLog) {
    const exponents = decadeTicks(Math.log10(low), Math.log10(high), fits, 1);
    const all = manyPerDecade(low, high);
    if (all.length > 1 && all.length <= fits) return all.map((value) => ({ value, text: tickText(value) }));
    if (exponents.length > 0 && high / low > 10)
      return exponents.map((exponent) => ({ value: 10 ** exponent, text: decadeLabel(exponent) }));
  }
  const rough = (high - low) / fits;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((lead) => lead * power >= rough * (1 - 1e-9)) ?? 10) * power;
  const found = [];
  for (let multiple = Math.ceil(low / step - 1e-9); multiple * step <= high + 1e-9 * step; multiple += 1)
    found.push({ value: multiple * step, text: tickText(multiple * step) });
  return found;
}

/** @param {number} low @param {number} high @returns {number[]} 1, 2 and 5 times powers of ten; [] for many decades */
function manyPerDecade(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  if (last - first > 10) return [];
  return Array.from({ length: last - first + 1 }, (_, at) => [1, 2, 5].map((lead) => Number(`${lead}e${first + at}`)))
    .flat().filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
}
