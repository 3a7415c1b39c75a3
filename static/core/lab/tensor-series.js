/** One tensor at every step: its histograms on one axis, its figures in rows. No DOM. */

import { valueAt } from "../format.js";
import { adaptiveRange, layerHistograms } from "./layer-histograms.js";
import { matchGraphs } from "./match.js";
import { ValueAxis } from "./value-axis.js";

/**
 * @param {readonly (StepFigures | null)[]} steps
 * @param {ReadonlyMap<string, GraphStructure>} graphs by structure
 * @param {MatchableThings} shown the graph that the tensor is of
 * @param {string} structure of that graph
 * @param {number} tensor its place there
 * @param {"linear" | "log"} kind of the axis
 * @returns {TensorSteps} of steps with another graph, the tensor's partner there
 */
export function tensorSteps(steps, graphs, shown, structure, tensor, kind) {
  const name = shown.tensors[tensor]?.name ?? "";
  const rowOf = rowFinder(graphs, shown, structure, tensor);
  const found = steps.map((step) => step === null ? -2 : rowOf(step.structure));
  const picture = pictureOfSteps(steps, found);
  /** @type {LayerColumn[]} */
  const columns = steps.map((_, order) => ({ index: order, name, tensor: null, row: found[order] < 0 ? -1 : order }));
  const range = adaptiveRange(picture, columns.filter(({ row }) => row >= 0));
  const histograms = range === null ? null
    : layerHistograms(picture, columns, new ValueAxis(kind, range.low, range.high, range.threshold));
  const rows = found.map((row, order) => {
    if (row < 0) return null;
    const { floats, integers } = picture;
    const of = (/** @type {"mean" | "std" | "min" | "max"} */ column) => valueAt(floats[column], order);
    const inf = integers.posinf[order] + integers.neginf[order];
    return { mean: of("mean"), std: of("std"), min: of("min"), max: of("max"), n: integers.n[order],
      nan: integers.nan[order], inf };
  });
  return { name, rows, missing: found.filter((row) => row === -1).length,
    waiting: found.filter((row) => row === -2).length, histograms };
}

/**
 * @param {ReadonlyMap<string, GraphStructure>} graphs
 * @param {MatchableThings} shown
 * @param {string} structure
 * @param {number} tensor
 * @returns {(of: string) => number} from a structure to the row of the tensor's statistics there, -1 for none
 */
function rowFinder(graphs, shown, structure, tensor) {
  /** @type {Map<string, number>} */
  const known = new Map();
  return (of) => {
    let row = known.get(of);
    if (row === undefined) {
      const graph = graphs.get(of);
      const place = graph === undefined ? -1 : of === structure ? tensor : matchGraphs(graph, shown).tensors[tensor];
      const id = graph?.tensors[place]?.id;
      row = id === undefined ? -1 : (graph?.statistics.tensor.indexOf(id) ?? -1);
      known.set(of, row);
    }
    return row;
  };
}

/**
 * A picture of that tensor alone, with a row per step.
 *
 * @param {readonly (StepFigures | null)[]} steps
 * @param {readonly number[]} found row in each step, below 0 for none
 * @returns {Picture}
 */
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
    zero_fraction: float("zero_fraction") };
  const integers = { n: integer("n"), nan: integer("nan"), posinf: integer("posinf"), neginf: integer("neginf") };
  return /** @type {Picture} */ (/** @type {unknown} */ ({ floats, integers, bins, counts, hidden: null }));
}
