/** Faults of a pass in words and as icons, and their places in the graph. */

import { HEALTH_SHAPES, iconOf } from "../health.js";
import { nonFinite } from "../picture.js";
import { diagnose, layersText } from "./diagnosis.js";
import { whyNoLayers } from "./profile-text.js";

/** Word and icon (in a square of 16) of each kind. @type {Record<FaultKind, {word: string, shape: string}>} */
const KINDS = {
  failed: { word: "failed",
    shape: "M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 1 0 0-12.4M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8" },
  // A pen that overwrites.
  in_place: { word: "in place", shape: "M2.5 13.5h11M4 10.5l6.5-6.5 2 2-6.5 6.5H4z" },
  first_nonfinite: { word: "not finite", shape: HEALTH_SHAPES["non-finite"] },
  // ∂ crossed out.
  wrong_backward: { word: "wrong gradient",
    shape: "M5 3.5c3-2 6 0 6 4.5s-1.5 6-3.5 6-3-1.5-3-3.2 1.5-3 3.2-3S11 9 11 9M2 14L14 2" },
  // A box that is not closed.
  unregistered: { word: "not registered", shape: "M6 2.5H2.5V6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10M8 6v4" },
  detach: { word: "cut", shape: "M1.5 8h4M10.5 8h4M7 3.5l-1 9M10 3.5l-1 9" },
  no_gradient: { word: "no gradient", shape: "M14 8H3.5M7 4.5L3.5 8 7 11.5M5 14l6-12" },
  no_optimizer: { word: "not optimized", shape: "M8 2.5v6M5 6l3 3 3-3M2.5 12.5h2.5M6.8 12.5h2.4M11 12.5h2.5" },
  leftover_gradient: { word: "old gradient", shape: "M3 13.5h10M3 9.5h10M8 7V2M5.5 4.5L8 2l2.5 2.5" },
  eval_mode: { word: "eval mode", shape: "M3 3.5h10v9H3zM6 6.5v3M10 6.5v3" },
  untied: { word: "not tied", shape: "M6.5 5H5a3 3 0 0 0 0 6h1.5M9.5 5H11a3 3 0 0 1 0 6H9.5" },
  broadcast: { word: "broadcast", shape: "M2.5 2.5h4v4h-4zM9.5 2.5h4v4h-4zM2.5 9.5h4v4h-4zM9.5 9.5h4v4h-4z" },
  softmax: { word: "softmax", shape: "M2 13c4 0 4-10 6-10s2 10 6 10M2 8h12" },
  exploding: { word: "exploding", shape: HEALTH_SHAPES.exploding },
  vanishing: { word: "vanishing", shape: HEALTH_SHAPES.vanishing },
  gradient_drop: { word: "gradient falls", shape: HEALTH_SHAPES.vanishing },
  dead: { word: "dead", shape: HEALTH_SHAPES.dead },
  saturated: { word: "saturated", shape: HEALTH_SHAPES.saturated },
  // A curve and the steps that it is rounded to.
  precision: { word: "precision", shape: "M2 13.5h3v-4h3v-3h3v-4h3M2 11L13 1.5" },
  starts_at_zero: { word: "starts at zero", shape: "M8 3a3 5 0 1 0 0 10a3 5 0 1 0 0-10" },
  // Two boxes, ≠.
  replicas: { word: "replicas differ", shape: "M2 5h4v6H2zM10 5h4v6h-4zM7 13l2-10" },
  // An arrow in a circle.
  recompilation: { word: "recompilation", shape: "M13 8a5 5 0 1 1-2-4M11 1v3.2H8" },
  // A box that is torn.
  graph_break: { word: "graph break", shape: "M7 3H2.5v10H6M9 3h4.5v10H10M8.5 2l-2 4 3 4-2 4" },
};

/** Faults whose place is the tensor; the others' is the op. @type {ReadonlySet<FaultKind>} */
const OF_TENSORS = new Set(
  /** @type {FaultKind[]} */ (["first_nonfinite", "exploding", "vanishing", "gradient_drop", "dead", "saturated",
    "starts_at_zero", "replicas"]),
);

/** @param {FaultKind} kind @returns {string} */
export function faultWord(kind) {
  return KINDS[kind].word;
}

/** @param {FaultKind} kind @returns {SVGSVGElement} */
export function faultIcon(kind) {
  return iconOf(kind, KINDS[kind].shape);
}

/** A picture's faults: a dump has its own, those of a live picture come with its theory.
 * @param {Picture | null} picture @param {Theory | null} theory
 * @returns {readonly Fault[] | null} null: not known yet */
export function faultsOf(picture, theory) {
  // A fault would reveal the number to guess.
  if (picture === null || picture.hidden !== null) return [];
  if (picture.faults !== null) return picture.faults;
  return theory === null || theory.seq !== picture.seq ? null : (theory.faults ?? []);
}

/** Whether non-finite numbers are a fault of the pass; a mask of −Inf is not a fault.
 * @param {Picture} picture @param {Theory | null} theory of that picture, or of one shortly before */
export function isNonFinite(picture, theory) {
  const faults = picture.hidden !== null ? [] : (picture.faults ?? theory?.faults ?? []);
  return faults.some(({ kind }) => kind === "first_nonfinite");
}

/** @param {Fault} fault @param {Topology} topology
 * @returns {string} its place, as in addresses; "" for one that is not in the graph */
export function placeOf({ kind, op, tensor, module }, { modules, ops }) {
  const [first, second] = OF_TENSORS.has(kind) ? [tensor, op] : [op, tensor];
  const id = first ?? second;
  if (id !== null) return id;
  const found = modules.find(({ path }) => path === module);
  if (found === undefined || !ops.some((each) => each.module === found.id)) return "";
  return `${found.path || "model"}/forward`;
}

/** The layers and figures of a picture, or in words why there are none to judge.
 * @param {Picture} picture @param {Theory | null} theory of this picture @returns {Diagnosis | string} */
export function judged(picture, theory) {
  if (picture.hidden !== null) return "The verdict follows after your guess.";
  if (picture.topology.layers.length === 0) return whyNoLayers(picture.spec);
  return theory === null ? "" : diagnose(picture, theory);
}

/** The verdict on a pass in one line. @param {readonly Fault[]} faults @param {Diagnosis | string} found by `judged` */
export function headline(faults, found) {
  const [wrong, notes, unchecked] = ["fault", "note", "unchecked"].map((level) =>
    faults.filter((fault) => fault.level === level).length
  );
  const isHealthy = typeof found !== "string" && wrong + unchecked === 0;
  let figures = found;
  if (typeof figures !== "string") {
    if (wrong > 0)
      figures = figures.unhealthy === 0 ? "" : `${figures.unhealthy} of ${counted(figures.layers, "layer")} unhealthy`;
    else figures = figures.figures === 0 ? "no theory for this pass"
        : `${figures.within} of ${figures.figures} in band`;
  }
  const checks = counted(unchecked, "check", " not made");
  const parts = [counted(wrong, "fault"), ...(wrong > 0 ? [figures, checks] : [checks, figures]),
    counted(notes, "note")];
  return { isHealthy, text: parts.filter((part) => part !== "").join(", ") };
}

/** @param {number} count @param {string} noun @param {string} [after] @returns {string} 2 faults; "" for none */
function counted(count, noun, after = "") {
  return count === 0 ? "" : `${count} ${noun}${count === 1 ? "" : "s"}${after}`;
}

/** The tensor of the first fault that has one. @param {Graph} graph @param {Picture} picture
 * @param {readonly Fault[]} faults of that picture @returns {{tensor: number, why: string} | null} null without such a fault */
export function firstBad({ tensorIndex }, picture, faults) {
  for (const { kind, level, tensor: id, layers } of faults) {
    const tensor = tensorIndex.get(id ?? "");
    if (level !== "fault" || tensor === undefined) continue;
    const bad = kind === "first_nonfinite" ? nonFinite(picture, picture.rows.get(id ?? "") ?? -1) : null;
    // As the message writes it.
    if (bad !== null)
      return { tensor,
        why: bad.share === 1 ? `all ${bad.word}` : `${Number((100 * bad.share).toPrecision(3))} % ${bad.word}` };
    return { tensor, why: `${faultWord(kind)}${layers.length === 0 ? "" : ` in ${layersText(layers)}`}` };
  }
  return null;
}
