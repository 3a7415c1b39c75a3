/** The profile of the layers in figures: its points, and what a picture, theory and another run say of each. No DOM. */

import { decadeRange } from "../scales.js";

/** How each statistic is shown. axis linear: a share, 0 to 1; hasGradients: the gradients' stands beneath. */
export const FORMS = {
  std: { title: "Std per layer", button: "σ std", term: "std", symbol: "σ", axis: "log", hasGradients: true,
    label: "activations" },
  mean: { title: "Mean per layer", button: "μ mean", term: "mean", symbol: "μ", axis: "log", hasGradients: true,
    label: "activations" },
  dead_fraction: { title: "Dead units", button: "dead", term: "dead-fraction", symbol: "dead", axis: "linear",
    hasGradients: false, label: "dead units" },
  saturation: { title: "Saturation", button: "saturated", term: "saturation", symbol: "saturated", axis: "linear",
    hasGradients: false, label: "saturated" },
  ratio: { title: "Gradient : weight", button: "∇:W", term: "gradient-to-weight", symbol: "∇:W", axis: "log",
    hasGradients: false, label: "σ(∇) / σ(W)" },
};

/** Above it, an update of SGD at learning rate 1 changes the weights by more than a thousandth. */
export const USUAL_RATIO = 1e-3;

/** @param {Topology} topology @param {ProfileStatistic} statistic
 * @returns {ProfilePoint[]} in order of depth; none where there are no layers */
export function pointsOf({ tensors, layers, modules }, statistic) {
  if (layers.length === 0) return [];
  const gradientOf = new Map(tensors.flatMap(({ id, gradient_of }) => gradient_of === null ? [] : [[gradient_of, id]]));
  const byId = new Map(tensors.map((tensor) => [tensor.id, tensor]));
  const types = new Map((modules ?? []).map(({ id, type }) => [id, type]));
  /** @type {ProfilePoint[]} */
  const points = [];
  let [layer, title, path] = [0, "input", ""];
  /** @param {ProfileSeries} series @param {string | null} tensor @param {string | null} gradient
   * @param {string | null} [at] */
  const add = (series, tensor, gradient, at) => {
    if (tensor === null) return;
    const name = byId.get(tensor)?.name ?? tensor;
    points.push({ layer, title, series, at: at ?? tensor, name, label: labelOf(name, path), tensor,
      gradient: gradient ?? gradientOf.get(tensor) ?? null });
  };
  if (FORMS[statistic].hasGradients) add("activation", inputOf(tensors)?.id ?? null, null);
  for (const { index, name, preactivation, activation, gradient, weight, weight_gradient } of layers) {
    layer = index;
    [title, path] = [titleOf(index, name, types.get(byId.get(preactivation ?? "")?.module ?? "")),
      isNumbered(index, name) ? "" : pathOf(name)];
    if (statistic === "ratio") {
      add("activation", weight, weight_gradient, preactivation ?? activation);
      continue;
    }
    if (FORMS[statistic].hasGradients && preactivation !== activation) add("preactivation", preactivation, null);
    add("activation", activation, gradient);
  }
  return points;
}

/** @param {readonly Tensor[]} tensors
 * @returns {Tensor | undefined} what the signal starts from: the first input of floats, not token ids */
export function inputOf(tensors) {
  return tensors.find(({ role, dtype }) => role === "input" && !/^(u?int|bool)/.test(dtype ?? ""));
}

/** @param {number} index @param {string} name @returns {boolean} whether a layer is called by its number alone */
export function isNumbered(index, name) {
  return name === `layer ${index}`;
}

/** @param {string} name of a layer @returns {string} its module's path, whichever call it is of */
export function pathOf(name) {
  return name.replace(/ \(\d+\)$/, "");
}

/** @param {string} name of a tensor @param {string} path of its layer, "" for none
 * @returns {string} the name as it reads beside the path: less that, or less what the two stand in */
export function labelOf(name, path) {
  const around = path.slice(0, Math.max(0, path.lastIndexOf(".")));
  const known = [path, around].find((each) => each !== "" && name.startsWith(`${each}.`));
  return known === undefined ? name : name.slice(known.length + 1);
}

/** @param {number} index @param {string} name @param {string} [type] of its module @returns {string} */
export function titleOf(index, name, type = "") {
  return isNumbered(index, name) || type === "" || type === pathOf(name) ? name : `${name} (${type})`;
}

/** The measured figure of a point. @param {Picture} picture @param {ProfileStatistic} statistic
 * @param {Pick<ProfilePoint, "tensor" | "gradient">} point @param {ProfileSide} side
 * @returns {ProfileReading | null} null where there is nothing to read */
export function measured(picture, statistic, { tensor, gradient }, side) {
  const { rows, floats } = picture;
  if (statistic === "ratio") {
    const [above, below] = [rows.get(gradient ?? ""), rows.get(tensor)];
    if (above === undefined || below === undefined) return null;
    const [top, bottom] = [flags(picture, above), flags(picture, below)];
    const [hasInf, hasNan] = [top.hasInf || bottom.hasInf, top.hasNan || bottom.hasNan];
    const value = hasInf || hasNan || !floats.std[below] ? NaN : floats.std[above] / floats.std[below];
    return { value: Number.isFinite(value) ? value : null, hasInf, hasNan, isHidden: top.isHidden || bottom.isHidden };
  }
  const row = rows.get((side === "forward" ? tensor : gradient) ?? "");
  if (row === undefined) return null;
  const value = floats[statistic][row] ?? NaN;
  return { value: Number.isNaN(value) ? null : value, ...flags(picture, row) };
}

/** @param {Picture} picture @param {number} row */
function flags({ integers, hidden }, row) {
  const isHidden = hidden?.row === row;
  const infinite = integers.posinf[row] + integers.neginf[row];
  return { hasInf: !isHidden && infinite > 0, hasNan: !isHidden && integers.nan[row] > 0, isHidden };
}

/** The figure of a point in another run's profile; layers match by number.
 * @param {ProfileDump} profile @param {ProfileStatistic} statistic @param {Pick<ProfilePoint, "layer" | "series">} point
 * @param {ProfileSide} side @returns {ProfileReading | null} */
export function ofRun({ input, layers }, statistic, { layer, series }, side) {
  const there = layers[layer - 1];
  if (statistic === "ratio") {
    if (there === undefined) return null;
    const [gradient, weight] = [there.weight_gradient, there.weight];
    const has = (/** @type {(summary: SummaryDump) => number} */ of) =>
      (gradient !== null && of(gradient) > 0) || (weight !== null && of(weight) > 0);
    return { value: there.gradient_to_weight_ratio, hasInf: has(({ posinf, neginf }) => posinf + neginf),
      hasNan: has(({ nan }) => nan), isHidden: false };
  }
  // A profile holds gradients of activations only.
  const backward = series === "activation" ? (there?.gradient ?? null) : null;
  const summary = side === "backward" ? backward : layer === 0 ? input : (there?.[series] ?? null);
  if (summary === null) return null;
  return { value: summary[statistic], hasInf: summary.posinf + summary.neginf > 0, hasNan: summary.nan > 0,
    isHidden: false };
}

/** @param {LayerTheory | undefined} layer @param {ProfileStatistic} statistic @param {ProfilePoint} point
 * @param {ProfileSide} side */
export function expectedOf(layer, statistic, { series }, side) {
  const quantity = quantityOf(statistic, series, side);
  const expected = quantity === null ? undefined : layer?.expected[quantity];
  if (expected === undefined) return null;
  const { value, band } = expected;
  // An integral that is zero by symmetry is zero but for its last digits.
  const isZero = band[0] <= 0 && band[1] >= 0 && Math.abs(value) < 1e-9 * (band[1] - band[0]);
  return isZero ? { value: 0, band } : expected;
}

/** @param {ProfileStatistic} statistic @param {ProfileSeries} series @param {ProfileSide} side
 * @returns {Quantity | null} */
function quantityOf(statistic, series, side) {
  if (statistic === "ratio") return null;
  if (side === "backward") return statistic === "std" && series === "activation" ? "gradient_std" : null;
  if (statistic === "std") return `${series}_std`;
  if (series === "preactivation") return null;
  return statistic === "mean" ? "activation_mean" : statistic;
}

/** A band as an axis of magnitudes shows it. @param {Expected} expected @returns {[number, number]} */
export function magnitudes({ band: [low, high] }) {
  const [a, b] = [Math.abs(low), Math.abs(high)];
  return low <= 0 && high >= 0 ? [0, Math.max(a, b)] : [Math.min(a, b), Math.max(a, b)];
}

/** Whether it lies outside the band.
 * @param {Expected | null} expected @param {ProfileReading | null | undefined} reading */
export function isOutside(expected, reading) {
  if (expected === null || reading?.value == null) return false;
  return reading.value < expected.band[0] || reading.value > expected.band[1];
}

/** @param {readonly ProfilePoint[]} points @param {ProfileStatistic} statistic @param {ProfileSide} side
 * @param {{picture: Picture, theory: Theory | null, pinned: PinnedRun | null}} sources */
export function figuresOf(points, statistic, side, { picture, theory, pinned }) {
  const layers = theory?.layers;
  const expected = layers === undefined ? []
    : points.map((point) => expectedOf(layers[point.layer - 1], statistic, point, side));
  // Gradients, and figures that no theory exists for, get no reason.
  const reason = expected.map((figure, order) => {
    const { layer, series } = points[order];
    const isSilent = figure === null && side === "forward" && quantityOf(statistic, series, side) !== null;
    return isSilent ? (layers?.[layer - 1]?.reason ?? null) : null;
  });
  return {
    measured: points.map((point) => measured(picture, statistic, point, side)),
    expected,
    run: pinned === null ? [] : points.map((point) => ofRun(pinned.profile, statistic, point, side)),
    reason,
  };
}

/** Decades that hold all of it. @param {ProfileFigures} figures @param {ProfileStatistic} statistic
 * @param {[number, number] | null} [kept] decades that it holds at least @returns {[number, number]} exponents */
export function decadesOf({ measured: own, expected, run }, statistic, kept = null) {
  const values = statistic === "ratio" ? [USUAL_RATIO] : [];
  for (const reading of [...own, ...run]) values.push(Math.abs(reading?.value ?? 0));
  for (const theory of expected) if (theory !== null) values.push(Math.abs(theory.value), ...magnitudes(theory));
  return decadeRange(values, kept);
}
