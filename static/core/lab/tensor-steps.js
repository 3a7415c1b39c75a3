/** One tensor's histograms at all steps on a canvas, the first at the top: ridges, or shades where they are many. */

import { valueAt } from "../format.js";
import { adaptiveRange, layerHistograms } from "./layer-histograms.js";
import { matchGraphs } from "./match.js";
import { BINS, ValueAxis } from "../value-axis.js";
import { laneOpacity, NEEDLE, needleFill, needleOf, peakShare, ridgeFill, ridgeOf } from "./layers-plan.js";

/** @param {readonly (StepFigures | null)[]} steps @param {ReadonlyMap<string, GraphStructure>} graphs by structure
 * @param {MatchableThings} shown the graph that the tensor is of @param {string} structure of that graph
 * @param {number} tensor its place there @param {"linear" | "log"} kind of the axis */
export function tensorSteps(steps, graphs, shown, structure, tensor, kind) {
  const name = shown.tensors[tensor]?.name ?? "";
  const rows = new Map([...graphs].map(([of, graph]) => {
    const place = of === structure ? tensor : matchGraphs(graph, shown).tensors[tensor];
    return [of, graph.statistics.tensor.indexOf(graph.tensors[place]?.id ?? "")];
  }));
  /** Row of the tensor's statistics in each step; -1: it has none, -2: the step is not read yet. */
  const found = steps.map((step) => step === null ? -2 : (rows.get(step.structure) ?? -1));
  const picture = pictureOfSteps(steps, found);
  /** @type {LayerColumn[]} */
  const columns = steps.map((_, order) => ({ index: order, name, tensor: null, row: found[order] < 0 ? -1 : order }));
  const range = adaptiveRange(picture, columns.filter(({ row }) => row >= 0));
  const histograms = range === null ? null
    : layerHistograms(picture, columns, new ValueAxis(kind, range.low, range.high, range.threshold));
  const figures = found.map((row, order) => {
    if (row < 0) return null;
    const { floats, integers } = picture;
    const of = (/** @type {keyof typeof floats} */ column) => valueAt(floats[column], order);
    const inf = integers.posinf[order] + integers.neginf[order];
    return { mean: of("mean"), std: of("std"), min: of("min"), max: of("max"), error: of("error"),
      expected: of("expected"), errorOf: steps[order]?.of ?? null, n: integers.n[order], nan: integers.nan[order],
      inf };
  });
  return { name, rows: figures, missing: found.filter((row) => row === -1).length,
    waiting: found.filter((row) => row === -2).length, histograms };
}

/** A picture of that tensor alone, with a row per step.
 * @param {readonly (StepFigures | null)[]} steps @param {readonly number[]} found row in each step, below 0 for none */
function pictureOfSteps(steps, found) {
  const bins = steps.find((step) => step !== null)?.bins ?? 1;
  const counts = new Uint32Array(steps.length * bins);
  const float = (/** @type {keyof StepFigures["floats"]} */ name) =>
    Float64Array.from(steps, (step, order) => step?.floats[name][found[order]] ?? NaN);
  const integer = (/** @type {keyof StepFigures["integers"]} */ name) =>
    Uint32Array.from(steps, (step, order) => step?.integers[name][found[order]] ?? 0);
  steps.forEach((step, order) => {
    const row = found[order];
    if (step === null || row < 0) return;
    const unit = step.units[row];
    for (let bin = 0; bin < bins; bin += 1)
      counts[order * bins + bin] = Math.round(step.counts[row * bins + bin] * unit);
  });
  const floats = { mean: float("mean"), std: float("std"), min: float("min"), max: float("max"),
    zero_fraction: float("zero_fraction"), error: float("error"), expected: float("expected") };
  const integers = { n: integer("n"), nan: integer("nan"), posinf: integer("posinf"), neginf: integer("neginf") };
  const picture = { floats, integers, bins, counts, hidden: null };
  return /** @type {Picture & {floats: typeof floats}} */ (/** @type {unknown} */ (picture));
}

const TOP = 14;
const AXIS = 18;
const [MIN_HEIGHT, MAX_HEIGHT] = [96, 300];
const PITCH = 20;
const LANE = 12;
const RIGHT = 4;
const LETTER = 6;
/** Least distance of two labels of steps, of two of values. */
const [STEP_SPACING, VALUE_SPACING] = [14, 48];
/** Closer ridges would show only their outlines. */
const MIN_RIDGE_PITCH = 6;
/** Ridges overlap where there are many: what they lose in distance they keep in height. */
const [MIN_REACH, OVERLAP] = [16, 1.5];

/** @param {TensorSteps} steps @param {readonly string[]} labels @param {number} width */
export function planTensorSteps({ rows }, labels, width) {
  const count = Math.max(1, rows.length);
  const inner = Math.min(MAX_HEIGHT, Math.max(MIN_HEIGHT, count * PITCH));
  const pitch = inner / count;
  const hasLane = rows.some((row) => row !== null && row.nan + row.inf > 0);
  const left = 10 + LETTER * labels.reduce((most, label) => Math.max(most, label.length), 1);
  return { height: TOP + inner + AXIS, left, top: TOP, pitch, hasLane, reach: Math.max(MIN_REACH, pitch * OVERLAP),
    width: Math.max(20, width - left - RIGHT - (hasLane ? LANE + 4 : 0)),
    /** The step at a height, -1 for none. @param {number} y */
    stepAt(y) {
      const step = Math.floor((y - TOP) / pitch);
      return step >= 0 && step < rows.length ? step : -1;
    } };
}

/** @param {CanvasRenderingContext2D} context @param {StepsPlan} plan @param {TensorSteps} steps @param {{labels:
 * readonly string[], index: number, pinned: number}} marks index: the step on the screen; pinned: A, or -1
 * @param {LayersPaint} paint @param {string} family of the font */
export function drawTensorSteps(context, plan, { rows, histograms }, { labels, index, pinned }, paint, family) {
  const { left, width, top, pitch, height } = plan;
  const ground = (/** @type {number} */ order) => top + (order + 1) * pitch;
  context.clearRect(0, 0, left + width + LANE + RIGHT + 4, height);
  if (histograms !== null) drawValues(context, plan, histograms.axis, paint, family);
  if (index >= 0 && index < rows.length) {
    context.fillStyle = paint.line;
    context.fillRect(0, ground(index) - pitch, left + width, pitch);
  }

  context.font = `10px ${family}`;
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  const every = Math.max(1, Math.ceil(STEP_SPACING / pitch));
  rows.forEach((_, order) => {
    const isMarked = order === index || order === pinned;
    const isNear = [index, pinned].some((marked) =>
      marked >= 0 && marked !== order && Math.abs(marked - order) * pitch < STEP_SPACING
    );
    if (!isMarked && (order % every !== 0 || isNear)) return;
    context.font = `${isMarked ? "600 " : ""}10px ${family}`;
    context.fillStyle = isMarked ? paint.ink : paint.muted;
    context.fillText(order === pinned ? `A ${labels[order]}` : labels[order], left - 6,
      ground(order) - Math.min(3, pitch / 4));
  });

  if (histograms !== null && pitch < MIN_RIDGE_PITCH) {
    drawShades(context, plan, histograms, paint);
    for (const marked of [index, pinned]) {
      if (marked < 0 || marked >= rows.length) continue;
      context.strokeStyle = paint.ink;
      context.lineWidth = 1;
      context.strokeRect(left - 0.5, Math.round(ground(marked) - pitch) - 0.5, width + 1,
        Math.max(2, Math.round(pitch)) + 1);
    }
  } else if (histograms !== null) {
    const peak = peakShare(histograms);
    context.lineJoin = "round";
    // From the first to the last: the tips of a ridge lie over the foot of the one above it.
    rows.forEach((row, order) => {
      if (row === null) return;
      const base = ground(order);
      context.beginPath();
      for (const { places, heights } of ridgeOf(histograms, order, peak)) {
        context.moveTo(left + (places[0] ?? 0) * width, base);
        for (let point = 1; point < places.length; point += 1)
          context.lineTo(left + places[point] * width, base - heights[point] * plan.reach);
      }
      context.fillStyle = order === index ? paint.hue : ridgeFill(paint);
      context.fill();
      context.strokeStyle = order === pinned ? paint.ink : paint.hue;
      context.lineWidth = 1;
      context.stroke();
      const needle = needleOf(histograms, order);
      if (needle === null) return;
      context.fillStyle = needleFill(paint);
      context.fillRect(Math.round(left + needle.place * width) - NEEDLE / 2,
        base - needle.share * Math.min(pitch, plan.reach), NEEDLE, needle.share * Math.min(pitch, plan.reach));
    });
  }

  if (!plan.hasLane) return;
  context.fillStyle = paint.warning;
  rows.forEach((row, order) => {
    if (row === null || row.nan + row.inf === 0) return;
    context.globalAlpha = laneOpacity((row.nan + row.inf) / (row.n || 1));
    context.fillRect(left + width + 4, ground(order) - pitch, LANE, Math.max(1, pitch - 1));
  });
  context.globalAlpha = 1;
  context.font = `9px ${family}`;
  context.textAlign = "right";
  context.fillText("NaN, Inf", left + width + 4 + LANE, top - 4);
}

/** A row of cells per step, the deeper the more values. @param {CanvasRenderingContext2D} context
 * @param {StepsPlan} plan @param {LayerHistograms} histograms @param {LayersPaint} paint */
function drawShades(context, { left, width, top, pitch }, { columns, counts, sizes }, { hue }) {
  let peak = 0;
  columns.forEach((_, order) => {
    for (let bin = 0; bin < BINS; bin += 1)
      peak = Math.max(peak, counts[order * BINS + bin] / (sizes[order] || Infinity));
  });
  context.fillStyle = hue;
  columns.forEach((_, order) => {
    const [from, to] = [Math.round(top + order * pitch), Math.round(top + (order + 1) * pitch)];
    for (let bin = 0; bin < BINS; bin += 1) {
      const share = counts[order * BINS + bin] / (sizes[order] || Infinity);
      if (share === 0) continue;
      context.globalAlpha = Math.sqrt(share / peak);
      const [start, end] = [Math.round(left + (bin * width) / BINS), Math.round(left + ((bin + 1) * width) / BINS)];
      context.fillRect(start, from, end - start, Math.max(1, to - from));
    }
  });
  context.globalAlpha = 1;
}

/** @param {CanvasRenderingContext2D} context @param {StepsPlan} plan @param {ValueAxis} axis @param {LayersPaint} paint
 * @param {string} family */
function drawValues(context, { left, width, top, height }, axis, paint, family) {
  context.font = `10px ${family}`;
  context.textBaseline = "alphabetic";
  context.fillStyle = paint.muted;
  context.strokeStyle = paint.line;
  context.lineWidth = 1;
  for (const { place, text } of axis.ticks(0, 1, width, VALUE_SPACING)) {
    const x = Math.round(left + place * width) + 0.5;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, height - AXIS + 3);
    context.stroke();
    context.textAlign = place < 0.06 ? "left" : place > 0.94 ? "right" : "center";
    context.fillText(text, x, height - 4);
  }
}
