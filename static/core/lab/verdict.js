/** A picture's verdict in one line: where numbers end, or how the gradient fares on its way back. No DOM. */

import { nonFinite } from "../picture.js";
import { significant, valueAt } from "../format.js";

/** @param {Picture} picture @param {(row: number) => boolean} holds
 * @returns {number | null} the first layer with a forward tensor for which it holds */
function firstLayer({ topology, rows }, holds) {
  for (const { index, preactivation, activation } of topology.layers) {
    for (const tensor of [preactivation, activation]) {
      const row = rows.get(tensor ?? "");
      if (row !== undefined && holds(row)) return index;
    }
  }
  return null;
}

/** @param {Picture} picture @returns {number | null} the first layer with an infinite preactivation or activation */
export function firstInf(picture) {
  const { posinf, neginf } = picture.integers;
  return firstLayer(picture, (row) => posinf[row] + neginf[row] > 0);
}

/** @param {Picture} picture @returns {number | null} likewise for NaN */
export function firstNaN(picture) {
  return firstLayer(picture, (row) => picture.integers.nan[row] > 0);
}

/** @param {Picture} picture @returns {{text: string, isWarning: boolean}} */
export function verdict(picture) {
  const { layers } = picture.topology;
  // In a chain a lost signal stays lost; other nets may bypass a layer.
  const isChain = picture.spec !== null && "program" in picture.spec;
  const where = (/** @type {number} */ layer) => isChain ? `from layer ${layer} on` : `first in layer ${layer}`;
  if (picture.failed) return { text: "The recording broke off: what there is of it is shown.", isWarning: true };
  // The first non-finite layer may be what is to be guessed.
  if (layers.length === 0 || picture.hidden !== null) return { text: "", isWarning: false };

  const [inf, notNumber] = [firstInf(picture), firstNaN(picture)];
  const found = [];
  if (inf !== null) found.push(`Inf ${where(inf)}`);
  if (notNumber !== null) found.push(`NaN ${where(notNumber)}`);
  if (found.length > 0) return { text: `${found.join(", ")}.`, isWarning: true };

  const zero = firstLayer(picture, (row) => picture.floats.min[row] === 0 && picture.floats.max[row] === 0);
  if (zero !== null) return { text: `All zero ${where(zero)}.`, isWarning: true };

  for (const { gradient, index } of layers) {
    const row = picture.rows.get(gradient ?? "");
    if (row !== undefined && nonFinite(picture, row) !== null)
      return { text: `Non-finite gradient in layer ${index}.`, isWarning: true };
  }
  const [first, last] = [layers[0], layers.at(-1)];
  const from = valueAt(picture.floats.std, picture.rows.get(last?.gradient ?? ""));
  const to = valueAt(picture.floats.std, picture.rows.get(first?.gradient ?? ""));
  if (layers.length < 2 || from === null || to === null || from === 0) return { text: "", isWarning: false };
  return { text: `Gradient std, layer 1 over ${layers.length}: ×${significant(to / from)}`, isWarning: false };
}
