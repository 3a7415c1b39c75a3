/** The profile of the layers in words: for the read-out, the key and screen readers. No DOM. */

import { percent, significant } from "../format.js";
import { FORMS } from "./profile-series.js";

/** @type {Record<string, string>} */
const DEATHLESS = {
  linear: "its output equals its input",
  tanh: "its output is 0 only for the input 0",
  sigmoid: "its output is always above 0",
};
/** @type {Record<string, string>} */
const UNBOUNDED = {
  linear: "its output equals its input",
  ...Object.fromEntries(
    ["relu", "leaky_relu", "gelu", "silu", "elu", "selu"].map(
      (name) => [name, "its output is not bounded, and its flat side counts as dead"]
    ),
  ),
};

/** Why there are no layers to show. @param {Spec | null} spec @returns {string} */
export function whyNoLayers(spec) {
  const { program = "mlp" } = spec ?? {};
  // The layers of a user's model, whose spec is a what-if, are its modules with parameters.
  if (spec !== null && !("program" in spec)) return "This pass ran no module with parameters.";
  return program === "mlp" ? "This graph is not a chain of layers." : `The program ${program} has no layers.`;
}

/** Why a statistic has no values; "" if it has some. @param {ProfileStatistic} statistic
 * @param {readonly (ProfileReading | null)[]} readings @param {string} activation its name */
export function whyEmpty(statistic, readings, activation) {
  if (readings.length === 0) return whyNoLayers(null);
  if (readings.some((reading) =>
    reading !== null && (reading.value !== null || reading.hasInf || reading.hasNan || reading.isHidden)
  )) return "";
  if (activation === "" && statistic === "dead_fraction") return "No layer has units that can be dead.";
  if (activation === "" && statistic === "saturation") return "No layer has an activation that can saturate.";
  const noActivation = "No layer has an activation.";
  if (statistic === "dead_fraction")
    return activation in DEATHLESS ? `${activation} has no dead units: ${DEATHLESS[activation]}.` : noActivation;
  if (statistic === "saturation")
    return activation in UNBOUNDED ? `${activation} does not saturate: ${UNBOUNDED[activation]}.` : noActivation;
  return "No layer has this statistic.";
}

/** @param {ProfileStatistic} statistic @param {number} value @returns {string} */
function written(statistic, value) {
  return FORMS[statistic].axis === "linear" ? percent(value) : significant(value);
}

/** @param {ProfileStatistic} statistic @param {ProfileReading | null | undefined} reading @returns {string} */
function figureOf(statistic, reading) {
  if (reading?.isHidden === true) return "?";
  const bad = [...(reading?.hasNan ? ["NaN"] : []), ...(reading?.hasInf ? ["Inf"] : [])].join(" and ");
  if (reading?.value == null) return bad === "" ? "–" : bad;
  return written(statistic, reading.value) + (bad === "" ? "" : ` beside ${bad}`);
}

/** @param {ProfileStatistic} statistic @param {Expected | null | undefined} expected @returns {string} */
function expectedText(statistic, expected) {
  if (expected == null) return "";
  const [low, high] = [written(statistic, expected.band[0]), written(statistic, expected.band[1])];
  return `, expected ${written(statistic, expected.value)} (${low}${low.startsWith("−") ? " to " : "–"}${high})`;
}

/** The values of one point: layer 7: l14 σ 0.810, expected 0.826 (0.400–1.20). @param {ProfileStatistic} statistic
 * @param {ProfilePoint} point @param {number} order of the point @param {Record<ProfileSide, ProfileFigures>} figures
 * @returns {string[]} for the tensor, and for its gradient if it is shown */
export function readout(statistic, point, order, { forward, backward }) {
  const { symbol, hasGradients } = FORMS[statistic];
  const said = (/** @type {ProfileFigures} */ { measured, expected, run }) => {
    const other = run[order] == null ? "" : `, A ${figureOf(statistic, run[order])}`;
    return `${symbol} ${figureOf(statistic, measured[order])}${expectedText(statistic, expected[order])}${other}`;
  };
  const reason = forward.reason[order];
  const tensor = `${point.title}: ${point.label} ${said(forward)}${reason == null ? "" : ` · ${reason}`}`;
  return hasGradients && point.gradient !== null ? [tensor, `gradient ${said(backward)}`] : [tensor];
}

/** @param {PinnedRun | null} pinned @param {number} layers of the run on the screen
 * @returns {string} A, and the number of its layers if that differs */
export function runLabel(pinned, layers) {
  if (pinned?.dump !== undefined) return `A, ${pinned.dump.name}`;
  const theirs = pinned?.profile.layers.length ?? 0;
  if (theirs > layers) return `A, the first ${layers} of ${theirs} layers`;
  return theirs < layers ? `A, ${theirs} layer${theirs === 1 ? "" : "s"}` : "A";
}

/** The chart in a sentence or two. @param {ProfileStatistic} statistic @param {readonly ProfilePoint[]} points
 * @param {ProfileFigures} figures @param {readonly NonFiniteCause[]} causes */
export function summary(statistic, points, figures, causes) {
  const { measured, expected, run } = figures;
  const { title, symbol } = FORMS[statistic];
  const end = points.length - 1;
  const of = (/** @type {number} */ order) => `${points[order].name} ${symbol} ${figureOf(statistic, measured[order])}`;
  const other = run[end] == null ? "" : ` Run A ends at ${figureOf(statistic, run[end])}.`;
  const said = causes.map((cause) => ` ${causeText(cause)}`).join("");
  const { text: silent } = silence(points, figures);
  const unsaid = silent === "" ? "" : ` There is ${silent}.`;
  return `${title}: from ${of(0)} to ${of(end)}${
    expectedText(statistic, expected[end])
  }.${other}${unsaid}${said} Use the arrow keys to move between layers, and Enter to select one.`;
}

/** The number of layers without theory, and the reasons. @param {readonly ProfilePoint[]} points
 * @param {ProfileFigures} figures @returns {{text: string, why: string}} text: "" if theory covers all layers */
export function silence(points, { reason }) {
  const layers = new Set(points.filter(({ layer }) => layer > 0).map(({ layer }) => layer));
  /** @type {Map<string, Set<number>>} */
  const silent = new Map();
  reason.forEach((why, order) => {
    const layer = points[order].layer;
    if (why !== null) silent.set(why, (silent.get(why) ?? new Set()).add(layer));
  });
  const all = new Set([...silent.values()].flatMap((some) => [...some]));
  if (all.size === 0) return { text: "", why: "" };
  const why = [...silent].sort(([, one], [, other]) => other.size - one.size).map(([why, some]) =>
    some.size === 1 ? why : `${why} (${some.size} layers)`
  );
  return { text: `no theory for ${all.size === layers.size ? "these layers" : `${all.size} of ${layers.size} layers`}`,
    why: why.join("\n") };
}

/** @param {NonFiniteCause} cause @returns {string} */
export function causeText({ kind, text }) {
  return `First ${kind} in ${text}`;
}
