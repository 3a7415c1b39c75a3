/** Measured figures against theory, layer by layer. No DOM. */

import { percent, significant, valueAt } from "../format.js";
import { nonFinite } from "../picture.js";

/** @typedef {"preactivation" | "activation" | "gradient"} LayerPart */

/** The layer's tensor and the column that hold a quantity; isShare: written in percent
 * @type {Record<Quantity, {part: LayerPart, column: FloatColumn, label: string, isShare: boolean}>} */
export const MEASURES = {
  preactivation_std: { part: "preactivation", column: "std", label: "std", isShare: false },
  activation_mean: { part: "activation", column: "mean", label: "mean", isShare: false },
  activation_std: { part: "activation", column: "std", label: "std", isShare: false },
  gradient_std: { part: "gradient", column: "std", label: "std", isShare: false },
  dead_fraction: { part: "activation", column: "dead_fraction", label: "dead units", isShare: true },
  saturation: { part: "activation", column: "saturation", label: "saturated", isShare: true },
};

const QUANTITIES = /** @type {Quantity[]} */ (Object.keys(MEASURES));

/** In the order in which the server lists their faults: of several words for one box the first counts.
 * @type {readonly Health[]} */
export const CAUSES_FIRST = ["non-finite", "exploding", "dead", "saturated", "vanishing"];

/** Theory's figures of one tensor; none if no layer owns it.
 * @param {Picture} picture @param {Theory} theory @param {string} tensor */
export function figuresOf(picture, theory, tensor) {
  const figures = [];
  const names = new Set();
  for (const layer of picture.topology.layers) {
    // The preactivation of a last layer without an activation is also its activation: list each value once.
    for (const quantity of [...QUANTITIES].reverse()) {
      const { part, label } = MEASURES[quantity];
      if (layer[part] !== tensor || names.has(label)) continue;
      const figure = figureOf(picture, theory, layer, quantity);
      if (figure?.expected == null) continue;
      names.add(label);
      figures.unshift(figure);
    }
  }
  return figures;
}

/** @param {Picture} picture @param {Theory} theory @param {Layer} layer @param {Quantity} quantity
 * @returns {DiagnosedFigure | null} null where the layer has no such tensor */
function figureOf(picture, theory, layer, quantity) {
  const { part, column } = MEASURES[quantity];
  const tensor = layer[part];
  if (tensor === null) return null;
  const measured = valueAt(picture.floats[column], picture.rows.get(tensor));
  return { layer, quantity, tensor, measured, expected: theory.layers[layer.index - 1]?.expected[quantity] ?? null };
}

/** @param {{measured: number | null, expected: Pick<Expected, "band"> | null}} figure
 * @returns {boolean | null} whether it lies in its band; null where there is nothing to compare */
export function isWithin({ measured, expected }) {
  if (measured === null || expected === null) return null;
  const [low, high] = expected.band;
  return low <= measured && measured <= high;
}

/** How many layers are unhealthy, and how many figures lie in their bands, of how many that have one.
 * @param {Picture} picture @param {Theory} theory of this picture */
export function diagnose(picture, theory) {
  const { layers } = picture.topology;
  const unhealthy = theory.layers.filter(({ health }) => health !== null).length;
  const verdicts = layers.flatMap((layer) =>
    QUANTITIES.flatMap((quantity) => {
      const figure = figureOf(picture, theory, layer, quantity);
      return (figure === null ? null : isWithin(figure)) ?? [];
    })
  );
  return { layers: layers.length, unhealthy, figures: verdicts.length, within: verdicts.filter(Boolean).length };
}

/** How the gradient fares on its way back. @param {Picture} picture @returns {string} "" where that is no number */
export function gradientLine(picture) {
  const { layers } = picture.topology;
  const [to, from] = [layers[0], layers.at(-1)].map((layer) => {
    const row = picture.rows.get(layer?.gradient ?? "");
    return row === undefined || nonFinite(picture, row) !== null ? null : valueAt(picture.floats.std, row);
  });
  // A figure may be what is to be guessed.
  if (layers.length < 2 || picture.hidden !== null || to === null || !from) return "";
  return `Gradient std, layer 1 over ${layers.length}: ×${significant(to / from)}`;
}

/** @param {readonly number[]} indices rising @returns {string} layer 3, or layers 2, 5–9 */
export function layersText(indices) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const index of indices) {
    const last = runs.at(-1);
    if (last !== undefined && last[1] === index - 1) last[1] = index;
    else runs.push([index, index]);
  }
  const parts = runs.map(([from, to]) => from === to ? String(from) : `${from}–${to}`);
  const [from, to] = [indices[0], indices.at(-1)];
  if (parts.length > 3) return `${indices.length} layers, ${from} to ${to}`;
  return `${indices.length === 1 ? "layer" : "layers"} ${parts.join(", ")}`;
}

/** Smaller shares are rounding errors of 0, as are values this small relative to their band. */
const NOTHING = 1e-6;

/** @param {Quantity} quantity @param {number | null} value @returns {string} */
export function figureText(quantity, value) {
  if (value === null || !MEASURES[quantity].isShare) return significant(value);
  // A band has room for one rounding beyond 0 and 1.
  const share = Math.min(1, Math.max(0, value));
  return percent(share < NOTHING || share > 1 - NOTHING ? Math.round(share) : share);
}

/** @param {Quantity} quantity @param {Expected} expected @returns {string} */
export function expectedText(quantity, { value, band: [low, high] }) {
  return figureText(quantity, Math.abs(value) < NOTHING * (high - low) ? 0 : value);
}

/** @param {Quantity} quantity @param {readonly [number, number]} band
 * @returns {string} 0.966–1.03; "exactly" where it has no width */
export function bandText(quantity, [low, high]) {
  const [from, to] = [figureText(quantity, low), figureText(quantity, high)];
  if (from === to) return "exactly";
  // A dash before a minus does not read; one sign says percent of both.
  return low < 0 || high < 0 ? `${from} to ${to}`
    : `${MEASURES[quantity].isShare ? from.replace(" %", "") : from}–${to}`;
}

/** How far apart two settings may be and still be the same to three digits. */
const SAME = 5e-4;

/** @param {Spec} spec @param {Spec} change @returns {boolean} whether the spec has all of it already */
export function hasChange(spec, change) {
  return Object.entries(change).every(([name, value]) => {
    const now = spec[name];
    return typeof value === "number" ? Math.abs(Number(now) - value) <= SAME * Math.abs(value) : now === value;
  });
}
