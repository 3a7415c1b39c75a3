/** Prediction mode: a figure is hidden until a person has said what it will be. No DOM. */

import { valueAt } from "../format.js";
import { FLOAT_COLUMNS } from "../picture.js";
import { figuresOf, MEASURES } from "./diagnosis.js";

/** @type {Record<FloatColumn, string>} */
export const STATISTIC_NAMES = {
  mean: "mean",
  std: "std",
  min: "minimum",
  max: "maximum",
  norm: "L2 norm",
  zero_fraction: "share of zeros",
  dead_fraction: "share of dead units",
  saturation: "share of saturated values",
};

/** How near two figures are that are the same number, once added up in float32. */
const SAME = 1e-6;

/** @param {string} figure such as l2.std or w1.g.norm @param {string} guess "" for none yet
 * @returns {Prediction | null} null where nothing is to be guessed */
export function parsePrediction(figure, guess) {
  if (figure === "") return null;
  const dot = figure.lastIndexOf(".");
  const statistic = FLOAT_COLUMNS.find((name) => dot > 0 && name === figure.slice(dot + 1)) ?? null;
  return { figure, tensor: statistic === null ? figure : figure.slice(0, dot), statistic, guess: readGuess(guess) };
}

/** @param {string} text 0.8, 1e-3, −2 or 50 % @returns {number | null} null if it is not a finite number */
export function readGuess(text) {
  const [, digits = "", isPercentage] = /^\s*(.*?)\s*(%?)\s*$/.exec(text.replace("−", "-")) ?? [];
  const number = digits === "" ? NaN : Number(digits) / (isPercentage === "%" ? 100 : 1);
  return Number.isFinite(number) ? number : null;
}

/** @param {Picture} picture @param {Prediction} prediction
 * @returns {string | null} why this graph has no such statistic; null if it has */
export function problemOf(picture, prediction) {
  const { figure, tensor, statistic } = prediction;
  const statistics = `Statistics: ${FLOAT_COLUMNS.join(", ")}.`;
  if (statistic === null)
    return `${figure}: expected a tensor and a statistic, such as l2.std. ${statistics}`;
  const row = rowOf(picture, tensor);
  if (row === undefined)
    return `Unknown tensor: ${tensor}. Tensors: ${tensorNames(picture).join(", ")}; append .g for their gradients.`;
  const isOptional = statistic === "dead_fraction" || statistic === "saturation";
  if (isOptional && valueAt(picture.floats[statistic], row) === null) {
    return `${tensor} has no ${statistic}, which exists only for ${
      statistic === "saturation" ? "bounded activations" : "rectifiers"
    }.`;
  }
  return null;
}

/** The picture without the numbers that reveal the answer: the tensor's whole row, because a norm or a histogram says
 * as much as a standard deviation, and every other row with the same number. @param {Picture} picture
 * @param {Prediction | null} prediction @returns {Picture} the same picture if there is nothing to hide */
export function hide(picture, prediction) {
  const secret = secretOf(picture, prediction);
  if (secret === null) return picture;
  const { row, statistic, value } = secret;
  const rows = new Set([row]);
  const columns = [...FLOAT_COLUMNS.map((name) => picture.floats[name]), ...picture.values];
  for (let other = 0; other < picture.topology.statistics.tensor.length; other += 1) {
    if (columns.some((column) => tells(column[other], value))) rows.add(other);
  }
  const floats = { ...picture.floats };
  for (const name of FLOAT_COLUMNS) floats[name] = picture.floats[name].slice();
  const { n, ...others } = picture.integers;
  const integers = { n, nan: others.nan.slice(), posinf: others.posinf.slice(), neginf: others.neginf.slice() };
  const counts = picture.counts.slice();
  for (const hidden of rows) {
    for (const name of FLOAT_COLUMNS) floats[name][hidden] = NaN;
    for (const column of [integers.nan, integers.posinf, integers.neginf]) column[hidden] = 0;
    counts.fill(0, hidden * picture.bins, (hidden + 1) * picture.bins);
  }
  const lossRow = picture.rows.get(picture.topology.tensors.find(({ role }) => role === "loss")?.id ?? "");
  const loss = lossRow !== undefined && rows.has(lossRow);
  const tensor = prediction?.tensor ?? "";
  return { ...picture, floats, integers, counts, loss: loss ? null : picture.loss,
    hidden: { row, rows, loss, tensor, statistic } };
}

/** A pinned run without what would give the figure away. It may well be the run on the screen.
 * @param {PinnedRun} run @param {Picture} picture with nothing hidden @param {Prediction | null} prediction
 * @returns {PinnedRun} the same one where there is nothing to hide */
export function hideInRun(run, picture, prediction) {
  const secret = secretOf(picture, prediction);
  if (secret === null) return run;
  const { id, statistic, value } = secret;
  /** @param {SummaryDump | null} summary @param {string | null | undefined} twin in the picture */
  const kept = (summary, twin) => {
    if (summary === null) return null;
    const isSame = twin === id && summary[statistic] === value;
    return isSame || FLOAT_COLUMNS.some((name) => tells(summary[name] ?? NaN, value)) ? null : summary;
  };
  const layers = run.profile.layers.map((layer, order) => {
    const shown = { ...layer, expected: {} };
    for (const part of /** @type {const} */ (["activation", "preactivation", "gradient", "weight", "weight_gradient"]))
      shown[part] = kept(layer[part], picture.topology.layers[order]?.[part]);
    if (shown.activation === null) shown.dead_fraction = shown.saturation = null;
    if (shown.weight === null || shown.weight_gradient === null) shown.gradient_to_weight_ratio = null;
    return shown;
  });
  const loss = tells(Number(run.profile.loss ?? NaN), value) ? null : run.profile.loss;
  return { ...run, profile: { ...run.profile, loss, layers } };
}

/** @param {Picture} picture with nothing hidden @param {Prediction} prediction
 * @returns {number | null} what was measured; null where there is no finite value */
export function measured(picture, { tensor, statistic }) {
  return statistic === null ? null : valueAt(picture.floats[statistic], rowOf(picture, tensor));
}

/** @param {Picture} picture @param {Theory | null} theory @param {Prediction} prediction
 * @returns {{value: number, band: [number, number] | null} | null} null where theory says nothing of the figure */
export function expected(picture, theory, { tensor, statistic }) {
  const id = idOf(picture, tensor);
  if (theory === null || statistic === null || id === undefined) return null;
  const owner = picture.topology.layers.find(({ weight }) => weight === id);
  const std = theory.layers[(owner?.index ?? 0) - 1]?.weight_std;
  if (std !== undefined) return statistic === "std" ? { value: std, band: null } : null;
  const figures = figuresOf(picture, theory, id);
  return figures.find(({ quantity }) => MEASURES[quantity].column === statistic)?.expected ?? null;
}

/** The figure to hide, if any. @param {Picture} picture @param {Prediction | null} prediction */
function secretOf(picture, prediction) {
  if (prediction === null || prediction.statistic === null || prediction.guess !== null) return null;
  if (problemOf(picture, prediction) !== null) return null;
  const id = idOf(picture, prediction.tensor);
  const row = picture.rows.get(id ?? "");
  if (id === undefined || row === undefined) return null;
  return { id, row, statistic: prediction.statistic, value: picture.floats[prediction.statistic][row] ?? NaN };
}

/** Whether one figure tells another. Shares of nothing and of all tell nothing: any tensor may have them.
 * @param {number | undefined} other @param {number} secret */
function tells(other, secret) {
  if (other === undefined || secret === 0 || secret === 1) return false;
  return Math.abs(other - secret) <= SAME * Math.abs(secret);
}

/** @param {Picture} picture @param {string} tensor @returns {string | undefined} */
function idOf({ topology }, tensor) {
  return topology.tensors.find(({ name }) => name === tensor)?.id;
}

/** @param {Picture} picture @param {string} tensor @returns {number | undefined} */
function rowOf(picture, tensor) {
  return picture.rows.get(idOf(picture, tensor) ?? "");
}

/** The names of tensors, numbered ones as ranges: x, w1–w50, l1–l99, out. @param {Picture} picture */
function tensorNames({ topology, rows }) {
  /** @type {Map<string, {stem: string, numbers: number[]}>} */
  const families = new Map();
  for (const { id, name } of topology.tensors) {
    if (!rows.has(id) || name.includes(".")) continue;
    const [, stem = name, digits = ""] = /^(.*?)(\d*)$/.exec(name) ?? [];
    const family = families.get(stem) ?? { stem, numbers: [] };
    if (digits !== "") family.numbers.push(Number(digits));
    families.set(stem, family);
  }
  return [...families.values()].map(({ stem, numbers }) => {
    const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
    if (numbers.length === 0) return stem;
    return first === last ? `${stem}${first}` : `${stem}${first}–${stem}${last}`;
  });
}
