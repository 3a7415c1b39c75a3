/** Two runs beside each other: A, which is pinned, and B, the picture on the screen. Figures and words; no DOM. */

import { isHidden, percent, setting, significant, valueAt } from "../format.js";
import { nonFinite } from "../picture.js";
import { parseWidths, widthsText } from "./widths.js";

/** @type {ComparedFigure} */
const BLANK = { value: null, text: "", isWarning: false };
/** @type {ComparedFigure} */
const NONE = { value: null, text: "–", isWarning: false };
/** @type {ComparedFigure} */
const SECRET = { value: null, text: "?", isWarning: false };

// The least differences that count: a ratio, in decades, and a share of the units.
const DOUBLING = Math.log10(2);
const TENTH = 0.1;

/**
 * @param {ProfileStatistic} statistic
 * @returns {boolean} whether B ÷ A is what tells two of its figures apart; else it is B − A
 */
export function isRatio(statistic) {
  return statistic === "std" || statistic === "ratio";
}

/** The keys in which two specs differ. @param {Spec} a @param {Spec} b */
export function differences(a, b) {
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return keys.flatMap((key) => {
    const [one, other] = [settingText(key, a[key]), settingText(key, b[key])];
    return one === other ? [] : [{ key, a: one, b: other }];
  });
}

/** @param {string} key @param {Spec[string] | undefined} value @returns {string} one value, one text */
function settingText(key, value) {
  if (value === undefined) return "";
  const widths = key === "widths" ? parseWidths(String(value)) : null;
  if (widths !== null) return widthsText(widths);
  return typeof value === "number" ? setting(value) : String(value);
}

/**
 * A statistic layer by layer, matched by index: a layer that one run lacks has blank figures there.
 * @param {Picture} picture B
 * @param {ProfileDump} profile A
 * @param {ProfileStatistic} statistic
 */
export function compareLayers(picture, profile, statistic) {
  const { layers } = picture.topology;
  const names = new Map(picture.topology.tensors.map(({ id, name }) => [id, name]));
  const hasBackward = statistic === "std" || statistic === "mean";
  /** @param {string | null | undefined} tensor @param {ComparedFigure} a @param {ComparedFigure} b */
  const pair = (tensor, a, b) => {
    const isSecret = picture.hidden !== null && b === SECRET;
    const figures = isSecret ? { a: a === BLANK ? BLANK : SECRET, b } : { a, b };
    const contrast = isSecret ? { text: "?", size: null } : contrastOf(a, b, statistic);
    return { tensor: tensor ?? null, name: names.get(tensor ?? "") ?? "", ...figures, contrast };
  };
  return Array.from({ length: Math.max(layers.length, profile.layers.length) }, (_, order) => {
    const [here, there] = [layers[order], profile.layers[order]];
    const forward = statistic === "ratio" ? here?.weight_gradient : here?.activation;
    return {
      index: order + 1,
      forward: pair(forward, figureOfRun(there, "activation", statistic),
        figureOfPicture(picture, here, "activation", statistic)),
      backward: hasBackward
        ? pair(here?.gradient, figureOfRun(there, "gradient", statistic),
          figureOfPicture(picture, here, "gradient", statistic)) : null,
    };
  });
}

/**
 * The losses of both.
 * @param {Picture} picture @param {ProfileDump} profile
 */
export function compareLoss(picture, profile) {
  if (picture.hidden?.loss === true) return { a: SECRET, b: SECRET, contrast: { text: "?", size: null } };
  const [a, b] = [numberFigure(profile.loss === null ? null : Number(profile.loss)), numberFigure(picture.loss)];
  return { a, b, contrast: contrastOf(a, b, "std") };
}

/**
 * The size that a whole bar stands for: the greatest of all, but not less than what counts as a difference.
 * @param {readonly ComparedPair[]} pairs of one kind
 * @param {ProfileStatistic} statistic
 * @returns {number} above 0
 */
export function reach(pairs, statistic) {
  let most = isRatio(statistic) ? DOUBLING : statistic === "mean" ? Number.MIN_VALUE : TENTH;
  for (const { a, b, contrast } of pairs) {
    most = Math.max(most, Math.abs(contrast.size ?? 0));
    // Means have no scale but their own.
    if (statistic === "mean") most = Math.max(most, Math.abs(a.value ?? 0), Math.abs(b.value ?? 0));
  }
  return most;
}

/**
 * @param {Picture} picture @param {Layer | undefined} layer @param {"activation" | "gradient"} kind
 * @param {ProfileStatistic} statistic
 * @returns {ComparedFigure}
 */
function figureOfPicture(picture, layer, kind, statistic) {
  if (layer === undefined) return BLANK;
  if (statistic === "ratio") return ratioOfPicture(picture, layer);
  const row = picture.rows.get(layer[kind] ?? "");
  if (row === undefined) return NONE;
  if (isHidden(picture, row)) return SECRET;
  const bad = nonFinite(picture, row);
  if (bad !== null) return { value: null, text: bad.word, isWarning: true };
  return written(valueAt(picture.floats[statistic], row), statistic);
}

/** @param {Picture} picture @param {Layer} layer @returns {ComparedFigure} std of the weight's gradient over that of
 * the weight */
function ratioOfPicture(picture, { weight, weight_gradient }) {
  const rows = [picture.rows.get(weight_gradient ?? ""), picture.rows.get(weight ?? "")];
  if (rows.some((row) => isHidden(picture, row))) return SECRET;
  const [above, below] = rows.map((row) =>
    row === undefined || nonFinite(picture, row) !== null ? null : valueAt(picture.floats.std, row)
  );
  if (above == null || below == null || below === 0) return NONE;
  return written(above / below, "ratio");
}

/**
 * @param {LayerProfile | undefined} layer @param {"activation" | "gradient"} kind @param {ProfileStatistic} statistic
 * @returns {ComparedFigure}
 */
function figureOfRun(layer, kind, statistic) {
  if (layer === undefined) return BLANK;
  if (statistic === "ratio") return written(layer.gradient_to_weight_ratio, statistic);
  const summary = layer[kind];
  if (summary === null) return NONE;
  if (summary.nan > 0) return { value: null, text: "NaN", isWarning: true };
  if (summary.posinf + summary.neginf > 0) return { value: null, text: "Inf", isWarning: true };
  return written(summary[statistic], statistic);
}

/** @param {number | null} value @param {ProfileStatistic} statistic @returns {ComparedFigure} */
function written(value, statistic) {
  const isFraction = statistic === "dead_fraction" || statistic === "saturation";
  return isFraction ? { value, text: percent(value), isWarning: false } : numberFigure(value);
}

/** @param {number | null} value @returns {ComparedFigure} */
function numberFigure(value) {
  if (value === null || Number.isFinite(value)) return { value, text: significant(value), isWarning: false };
  return { value: null, text: Number.isNaN(value) ? "NaN" : significant(value), isWarning: true };
}

/** size: in decades or in units of the figure, above 0 where B is greater.
 * @param {ComparedFigure} a @param {ComparedFigure} b @param {ProfileStatistic} statistic */
function contrastOf(a, b, statistic) {
  if (a === BLANK || b === BLANK) return { text: "", size: null };
  if (a.value === null || b.value === null) return { text: "–", size: null };
  if (isRatio(statistic)) {
    if (!(a.value > 0 && b.value > 0)) return { text: "–", size: null };
    return { text: `×${significant(b.value / a.value)}`, size: Math.log10(b.value) - Math.log10(a.value) };
  }
  const size = b.value - a.value;
  const sign = size > 0 ? "+" : "";
  const text = statistic === "mean" ? significant(size) : `${significant(100 * size)} pp`;
  return { text: size === 0 ? "0" : sign + text, size };
}
