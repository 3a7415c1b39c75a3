/** Measured figures against theory, layer by layer, and the unhealthy layers. No DOM. */

import { percent, significant, valueAt } from "../format.js";
import { inputOf } from "./profile-series.js";

/**
 * @typedef {object} Measure where a quantity is read
 * @property {"preactivation" | "activation" | "gradient"} part
 * @property {FloatColumn} column
 * @property {string} label
 * @property {boolean} isShare written in percent
 */

/** @type {Record<Quantity, Measure>} */
export const MEASURES = {
  preactivation_std: { part: "preactivation", column: "std", label: "std", isShare: false },
  activation_mean: { part: "activation", column: "mean", label: "mean", isShare: false },
  activation_std: { part: "activation", column: "std", label: "std", isShare: false },
  gradient_std: { part: "gradient", column: "std", label: "std", isShare: false },
  dead_fraction: { part: "activation", column: "dead_fraction", label: "dead units", isShare: true },
  saturation: { part: "activation", column: "saturation", label: "saturated", isShare: true },
};

const QUANTITIES = /** @type {Quantity[]} */ (Object.keys(MEASURES));

/** Worst first: what comes later in a net that overflows is a consequence. @type {readonly Health[]} */
export const WORST_FIRST = ["non-finite", "exploding", "vanishing", "dead", "saturated"];

/**
 * Theory's figures of one tensor; none if no layer owns it.
 * @param {Picture} picture @param {Theory} theory @param {string} tensor
 */
export function figuresOf(picture, theory, tensor) {
  const figures = [];
  const names = new Set();
  for (const layer of picture.topology.layers) {
    // In a last layer without an activation both are one tensor: list each figure once.
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

/**
 * @param {Picture} picture @param {Theory} theory @param {Layer} layer @param {Quantity} quantity
 * @returns null where the layer has no such tensor
 */
function figureOf(picture, theory, layer, quantity) {
  const { part, column } = MEASURES[quantity];
  const tensor = layer[part];
  if (tensor === null) return null;
  const measured = valueAt(picture.floats[column], picture.rows.get(tensor));
  return { layer, quantity, tensor, measured, expected: theory.layers[layer.index - 1]?.expected[quantity] ?? null };
}

/**
 * @param {{measured: number | null, expected: Expected | null}} figure
 * @returns {boolean | null} whether it lies in its band; null where there is nothing to compare
 */
export function isWithin({ measured, expected }) {
  if (measured === null || expected === null) return null;
  const [low, high] = expected.band;
  return low <= measured && measured <= high;
}

/**
 * Kept, since several elements ask for the same picture.
 * @type {{picture: Picture | null, theory: Theory | null, diagnosis: Diagnosis}}
 */
const last = { picture: null, theory: null, diagnosis: { layers: 0, within: 0, figures: 0, troubles: [] } };

/** @param {Picture} picture @param {Theory} theory of this picture @returns {Diagnosis} */
export function diagnose(picture, theory) {
  if (last.picture !== picture || last.theory !== theory)
    Object.assign(last, { picture, theory, diagnosis: diagnosisOf(picture, theory) });
  return last.diagnosis;
}

/** figures: how many have a band; within: how many lie in it; troubles: worst first.
 * @param {Picture} picture @param {Theory} theory */
export function diagnosisOf(picture, theory) {
  const { layers } = picture.topology;
  let [within, figures] = [0, 0];
  for (const layer of layers) {
    for (const quantity of QUANTITIES) {
      const figure = figureOf(picture, theory, layer, quantity);
      const verdict = figure === null ? null : isWithin(figure);
      if (verdict !== null) figures += 1;
      if (verdict === true) within += 1;
    }
  }
  const troubles = WORST_FIRST.flatMap((health) => {
    const affected = layers.filter(({ index }) => theory.layers[index - 1]?.health === health);
    return affected.length === 0 ? [] : [trouble(picture, theory, health, affected)];
  });
  return { layers: layers.length, within, figures, troubles };
}

/** figure: the one that shows it most; ratio: for vanishing and exploding, its RMS over the source's; tensor: of the
 * first layer. @param {Picture} picture @param {Theory} theory @param {Health} health @param {Layer[]} affected */
function trouble(picture, theory, health, affected) {
  const [first] = affected;
  const layers = affected.map(({ index }) => index);
  const whole = { health, layers, figure: null, ratio: null,
    tensor: first?.activation ?? first?.preactivation ?? null };
  if (health === "non-finite") return whole;
  if (health === "dead" || health === "saturated") {
    const quantity = health === "dead" ? "dead_fraction" : "saturation";
    let worst = null;
    for (const layer of affected) {
      const figure = figureOf(picture, theory, layer, quantity);
      if (figure !== null && (worst === null || (figure.measured ?? 0) > (worst.measured ?? 0))) worst = figure;
    }
    return { ...whole, figure: worst };
  }
  // The rules speak of root mean squares: activations against the input's, gradients against the last layer's.
  const source = rms(picture,
    (picture.topology.tensors.find(({ name }) => name === "x") ?? inputOf(picture.topology.tensors))?.id ?? null);
  const end = picture.topology.layers.reduceRight(
    (/** @type {number | null} */ found, { gradient }) => found ?? rms(picture, gradient),
    null,
  );
  const direction = health === "vanishing" ? -1 : 1;
  let worst = null;
  for (const layer of affected) {
    for (const [quantity, reference]
      of /** @type {[Quantity, number | null][]} */ ([["activation_std", source], ["gradient_std", end]]))
    {
      const size = rms(picture, layer[MEASURES[quantity].part]);
      if (size === null || reference === null || reference === 0) continue;
      const ratio = size / reference;
      if (worst === null || direction * ratio > direction * worst.ratio) worst = { layer, quantity, ratio };
    }
  }
  if (worst === null) return whole;
  const figure = figureOf(picture, theory, worst.layer, worst.quantity);
  const tensor = worst.quantity === "gradient_std" ? (first?.gradient ?? whole.tensor) : whole.tensor;
  return { ...whole, figure, ratio: worst.ratio, tensor };
}

/** @param {Picture} picture @param {string | null} tensor @returns {number | null} */
function rms(picture, tensor) {
  const row = tensor === null ? undefined : picture.rows.get(tensor);
  const norm = valueAt(picture.floats.norm, row);
  return norm === null || row === undefined ? null : norm / Math.sqrt(picture.integers.n[row]);
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

/**
 * @param {Quantity} quantity @param {readonly [number, number]} band
 * @returns {string} 0.966–1.03; "exactly" where it has no width
 */
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
