/** Texts of boxes and of screen readers for the numbers of a picture. No DOM. */

import { nonFinite, valuesAt } from "./picture.js";
import { isHidden, numerals, percent, shape, significant, valueAt } from "./format.js";

/** The figure shown in a tensor's box. @param {Picture} picture @param {Tensor} tensor @param {Statistic} statistic
 * @returns {{text: string, short: string, isWarning: boolean}} short: for a narrow box */
export function figure(picture, tensor, statistic) {
  const row = picture.rows.get(tensor.id);
  const plain = (/** @type {string} */ short, text = short, isWarning = false) => ({ text, short, isWarning });
  if (row === undefined) return plain("–");
  if (isHidden(picture, row)) return plain("?");
  if (tensor.role === "loss" && picture.loss !== null) {
    const text = significant(picture.loss);
    return plain(text, text, !Number.isFinite(picture.loss));
  }
  const bad = nonFinite(picture, row);
  if (bad !== null)
    return plain(bad.word, bad.share === 1 ? `all ${bad.word}` : `${bad.word} ${percent(bad.share)}`, true);
  const low = valueAt(picture.floats.min, row);
  if (low !== null && low === picture.floats.max[row]) {
    const text = significant(low);
    return plain(text, picture.integers.n[row] === 1 ? text : `all ${text}`);
  }
  return plain(significant(valueAt(picture.floats[statistic], row)));
}

/** A type's name in one line, or in two where it is long: CrossEntropy, Linear·Function; broken at " · ", or at spaces
 * if any. @param {string} label */
export function labelLines(label) {
  const parts = label.split(" · ");
  if (label.length > 10 && parts.length === 2) return parts;
  if (label.length > 10 && label.includes(" ")) return spacedLines(label);
  const words = label.match(/[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+/g) ?? [label];
  if (label.length <= 10 || words.length < 2) return [label];
  const half = Math.ceil(words.length / 2);
  return [words.slice(0, half).join(""), words.slice(half).join("")];
}

/** @param {string} label @returns {string[]} broken before "× 50", or at the space that leaves the shorter lines */
function spacedLines(label) {
  const times = label.lastIndexOf(" × ");
  let best = times;
  let least = Infinity;
  for (let at = label.indexOf(" "); times < 0 && at >= 0; at = label.indexOf(" ", at + 1)) {
    const longest = Math.max(at, label.length - at - 1);
    if (longest < least) [best, least] = [at, longest];
  }
  return [label.slice(0, best), label.slice(best + 1)];
}

/** A tensor in a sentence, for a screen reader. @param {Picture} picture @param {Tensor} tensor @returns {string} */
export function describeTensor(picture, tensor) {
  const parts = [`${tensor.name}, ${tensor.role}, ${shape(tensor.shape)}`];
  const row = picture.rows.get(tensor.id);
  if (row === undefined) return `${parts.join()}, no statistics`;
  if (isHidden(picture, row)) return `${parts.join()}, hidden until you guess`;
  const { mean, std } = picture.floats;
  const bad = nonFinite(picture, row);
  if (bad !== null) parts.push(`${percent(bad.share)} ${bad.word}`);
  const values = valuesAt(picture, row);
  if (values !== null) parts.push(`${values.length === 1 ? "value" : "values"} ${numerals(values, 3).join(", ")}`);
  parts.push(`mean ${significant(valueAt(mean, row))}`, `std ${significant(valueAt(std, row))}`);
  return parts.join(", ");
}
