/** Overlays colour the boxes of a graph by one number, with a legend. No DOM. */

import { CAUSES_FIRST } from "./diagnosis.js";
import { overlayValues } from "./overlay-values.js";
import { hex, oklch } from "../colours.js";

/** says: the meaning of a box's colour; scale auto: logarithmic over more than a decade, share: 0 to 1
 * @type {readonly {name: OverlayKind, title: string, unit: string, scale: "auto" | "share" | "words", says: string}[]} */
export const OVERLAYS = [
  { name: "std", title: "Activation std", unit: "", scale: "auto",
    says: "std of a tensor; for an op or a closed box, of its output" },
  { name: "gradient_norm", title: "Gradient norm", unit: "", scale: "auto",
    says: "L2 norm of the gradient; for a closed box, the largest inside" },
  { name: "dead_fraction", title: "Dead units", unit: "", scale: "share",
    says: "share of units that are at most 0 for every input; for a closed box, the largest inside" },
  { name: "time", title: "Time", unit: "µs", scale: "auto",
    says: "time of an op during the recording; for a closed box, the sum" },
  { name: "memory", title: "Memory", unit: "B", scale: "auto",
    says: "bytes of a tensor; for an op, the bytes that it reads and writes; for a closed box, the sum" },
  { name: "flops", title: "FLOPs", unit: "FLOP", scale: "auto",
    says: "floating-point operations of an op; for a closed box, the sum" },
  { name: "difference", title: "Difference from A", unit: "", scale: "auto",
    says:
      "difference of a tensor from the same tensor in A: the largest relative difference of std, minimum and maximum; for an op or a closed box, the largest inside" },
  { name: "precision", title: "Error ÷ rounding", unit: "", scale: "auto",
    says:
      "error of a tensor ÷ the error that rounding predicts; more than 1: larger than predicted; for an op or a closed box, the largest inside" },
  { name: "health", title: "Health", unit: "", scale: "words",
    says: "the fault; for a closed box, the first cause inside" },
];

/** Why a graph cannot have an overlay. @param {OverlayKind} kind @param {Graph} graph
 * @param {ComparisonReference | null} [reference] a dump to compare with
 * @returns {string | null} null if it can */
export function whyNot(kind, { topology }, reference = null) {
  if (kind === "difference" && reference === null) return "Pin a dump to compare with it.";
  if (kind === "time" && topology.op_us == null) return "This recording has no times of its ops.";
  if (kind === "dead_fraction" && !topology.ops.some(({ name }) => RECTIFIERS.has(name)))
    return "No op of this graph can have dead units.";
  return null;
}

const RECTIFIERS = new Set(
  "relu relu_ relu6 clamp_min leaky_relu leaky_relu_ gelu silu elu elu_ selu selu_ celu mish prelu threshold".split(
    " ",
  ),
);

/** Colours of a ramp: too many for the eye to see steps. */
const SHADES = 64;

/** From next to the paper to as deep as the ink on it stays legible. Lightness runs one way and evenly, so the order
 * shows to eyes that tell no hues apart; the hues, yellow over green to blue, are none of a phase's borders.
 * @type {Record<"light" | "dark", {lightness: [number, number], chroma: [number, number], hue: [number, number]}>} */
const RAMPS = {
  light: { lightness: [0.97, 0.66], chroma: [0.05, 0.11], hue: [105, 240] },
  dark: { lightness: [0.27, 0.51], chroma: [0.05, 0.09], hue: [285, 150] },
};

/** @param {[number, number]} ends @param {number} share @returns {number} */
const between = ([from, to], share) => from + (to - from) * share;

/** @param {"light" | "dark"} scheme @returns {string[]} colours from low to high */
export function shadesOf(scheme) {
  const { lightness, chroma, hue } = RAMPS[scheme];
  return Array.from({ length: SHADES }, (_, step) => {
    const share = step / (SHADES - 1);
    return hex(oklch(between(lightness, share), between(chroma, share), between(hue, share)));
  });
}

const SHADES_OF = { light: shadesOf("light"), dark: shadesOf("dark") };

/** The colour of tensors with NaN or Inf, which have no place on the ramp. */
export const NON_FINITE = { light: hex(oklch(0.83, 0.1, 320)), dark: hex(oklch(0.44, 0.13, 320)) };

/** Hue and chroma. @type {Record<Health, [number, number]>} */
const HEALTH = { "non-finite": [320, 0.1], exploding: [55, 0.12], dead: [0, 0], saturated: [105, 0.12],
  vanishing: [235, 0.09] };

/** Colours differ in lightness too, not in hue alone.
 * @param {"light" | "dark"} scheme @returns {string[]} by position in CAUSES_FIRST */
function healthColours(scheme) {
  return CAUSES_FIRST.map((health, order) =>
    hex(oklch(scheme === "light" ? 0.76 + 0.045 * order : 0.5 - 0.05 * order, HEALTH[health][1], HEALTH[health][0]))
  );
}

const HEALTH_COLOURS = { light: healthColours("light"), dark: healthColours("dark") };

const [THINNEST, THICKEST, PLAIN] = [0.75, 7, 1.25];

/** @param {object} options @param {OverlayKind | ""} options.kind "": boxes keep the colours of their phases
 * @param {"" | "size" | "gradient"} options.edges what the width of an edge says @param {Graph} options.graph
 * @param {Picture} options.picture of that graph @param {Theory | null} options.theory
 * @param {ComparisonReference | null} [options.reference] a dump that it is compared to @param {readonly [number,
 * number] | null} options.range of the figure, to be the same in all runs; null: that of this one
 * @param {"light" | "dark"} options.scheme @returns {Paintwork} */
export function paintwork({ kind, edges, graph, picture, theory, reference = null, range, scheme }) {
  const width = edgeWidth(edges, graph, picture);
  const overlay = OVERLAYS.find(({ name }) => name === kind);
  if (kind === "" || overlay === undefined || whyNot(kind, graph, reference) !== null)
    return { fill: () => null, width, legend: null };
  const { title, unit, scale } = overlay;
  const values = overlayValues(kind, graph, picture, theory, reference);
  if (scale === "words") {
    const colours = HEALTH_COLOURS[scheme];
    /** @type {Legend} */
    const legend = { title, unit, low: 0, high: 0, isLog: false, stops: [],
      words: CAUSES_FIRST.map((word, order) => [colours[order] ?? "", word]) };
    return { fill: (what, index, half) => colours[values.of(what, index, half)] ?? null, width, legend };
  }

  const [low, high] = range ?? (scale === "share" ? [0, 1] : values.range());
  const isLog = scale === "auto" && low > 0 && high > 10 * low;
  const shades = SHADES_OF[scheme];
  const [from, to] = isLog ? [Math.log(low), Math.log(high)] : [low, high];
  const step = to > from ? (SHADES - 1) / (to - from) : 0;
  const shade = (/** @type {number} */ value) => {
    if (Number.isNaN(value)) return null;
    if (value === Infinity) return NON_FINITE[scheme];
    const at = step === 0 ? SHADES / 2 : ((isLog ? Math.log(Math.max(value, low)) : value) - from) * step;
    return shades[Math.max(0, Math.min(SHADES - 1, Math.round(at)))] ?? null;
  };
  /** @type {Legend} */
  const legend = { title, unit, low, high, isLog, stops: shades.filter((_, order) => order % 9 === 0),
    words: values.hasInfinite ? [[NON_FINITE[scheme], "NaN or Inf"]] : [] };
  return { fill: (what, index, half) => shade(values.of(what, index, half)), width,
    legend: Number.isFinite(low) ? legend : null };
}

/** The range of a paintwork's figure, for the address: with it, other runs are coloured on the same scale.
 * @param {Paintwork} paint @returns {[number, number] | null} null where the overlay has no numbers */
export function rangeOf({ legend }) {
  return legend === null || legend.stops.length === 0 ? null : [legend.low, legend.high];
}

/** @param {"" | "size" | "gradient"} edges @param {Graph} graph @param {Picture} picture */
function edgeWidth(edges, graph, picture) {
  if (edges === "") return () => PLAIN;
  const { elements } = graph.arrays;
  const norms = edges === "gradient" ? overlayValues("gradient_norm", graph, picture, null) : null;
  const valueOf = (/** @type {number} */ tensor) =>
    norms === null ? elements[tensor] : norms.of("tensor", tensor, "forward");
  let [low, high] = [Infinity, 0];
  for (let tensor = 0; tensor < elements.length; tensor += 1) {
    const value = valueOf(tensor);
    if (!(value > 0) || value === Infinity) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const span = Math.log(high / low);
  return (/** @type {number} */ tensor) => {
    const value = valueOf(tensor);
    if (value === Infinity) return THICKEST;
    if (!(value > 0)) return THINNEST;
    return span > 0 ? THINNEST + (THICKEST - THINNEST) * Math.min(1, Math.max(0, Math.log(value / low) / span)) : PLAIN;
  };
}
