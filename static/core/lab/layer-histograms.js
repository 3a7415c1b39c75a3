/** The histograms of all layers on one axis. A tensor's 64 bins cover its own [min, max]; here its counts are spread
 * over the common bins that they overlap, as if every bin were filled evenly. No DOM. */

import { valueAt } from "../format.js";
import { inputOf } from "./profile-series.js";
import { binEdge, BINS, spread, ValueAxis } from "../value-axis.js";

/** Fixed ranges end at this many standard deviations. */
const REACH = 4;
/** Decades below a fixed range's unit; smaller values lie at zero on a logarithmic axis. */
const FIXED_DECADES = 3;

/** One column per layer, and the input (or its gradient) before them where it is one of these tensors.
 * @param {Picture} picture @param {LayerTensor} of
 * @returns {LayerColumn[]} empty where the graph is no chain of layers, or none of them has such a tensor */
export function layerColumns({ topology, rows }, of) {
  const names = new Map(topology.tensors.map(({ id, name }) => [id, name]));
  /** @param {number} index 0: the input @param {string | null} tensor */
  const column = (index, tensor) => ({ index, name: names.get(tensor ?? "") ?? "", tensor,
    row: rows.get(tensor ?? "") ?? -1 });
  const columns = topology.layers.map((layer) => column(layer.index, layer[of]));
  if (columns.every(({ tensor }) => tensor === null)) return [];
  const input = inputOf(topology.tensors)?.id;
  const first = of === "activation" ? input
    : of === "gradient" ? topology.tensors.find(({ gradient_of }) => gradient_of === input)?.id : undefined;
  return first === undefined || input === undefined ? columns : [column(0, first), ...columns];
}

/** The range of all finite values. @param {Picture} picture @param {readonly LayerColumn[]} columns
 * @returns {ValueRange | null} null where no value is finite */
export function adaptiveRange({ floats }, columns) {
  let [low, high, least] = [Infinity, -Infinity, Infinity];
  for (const { row } of columns) {
    const [min, max, std] = [valueAt(floats.min, row), valueAt(floats.max, row), valueAt(floats.std, row)];
    if (min !== null) low = Math.min(low, min);
    if (max !== null) high = Math.max(high, max);
    if (std !== null && std > 0) least = Math.min(least, std);
  }
  if (low > high) return null;
  if (low === high) {
    const margin = Math.abs(low) / 2 || 1;
    [low, high] = [low - margin, high + margin];
  }
  if (least === Infinity) least = Math.max(-low, high);
  return { low, high, threshold: 10 ** Math.floor(Math.log10(least)) };
}

/** A range that says what is healthy, not what there is: four standard deviations to both sides, of 1 for activations,
 * of Kaiming's draw (He 2015) for weights, of the gradient that the loss hands to the last layer for gradients.
 * @param {Picture} picture @param {readonly LayerColumn[]} columns @param {LayerTensor} of
 * @returns {ValueRange & {rule: string} | null} null where the last layer's gradient has no std to go by */
export function fixedRange({ topology, floats }, columns, of) {
  let unit = 1;
  let rule = "4 × a std of 1";
  if (of === "weight") {
    const inputs = fewestInputs(topology);
    unit = Math.sqrt(2 / inputs);
    rule = `4 × √(2/${inputs}), Kaiming’s std`;
  } else if (of === "gradient" || of === "weight_gradient") {
    unit = valueAt(floats.std, columns.at(-1)?.row) ?? 0;
    rule = "4 × the last layer’s std";
    if (!(unit > 0)) return null;
  }
  return { low: -REACH * unit, high: REACH * unit, threshold: 10 ** Math.floor(Math.log10(unit) - FIXED_DECADES),
    rule };
}

/** @param {Topology} topology @returns {number} the least fan_in of a layer: its weights are the largest */
function fewestInputs({ tensors, layers }) {
  const widths = new Map(tensors.map(({ id, shape }) => [id, shape.at(-1) ?? 1]));
  const inputs = [inputOf(tensors)?.id, ...layers.slice(0, -1).map(({ activation }) => activation)];
  const known = inputs.flatMap((tensor) => widths.get(tensor ?? "") ?? []);
  return known.length === 0 ? 1 : Math.min(...known);
}

/** All layers' counts in the bins of one axis: per column, counts, below, above and the non-finite sum up to its size.
 * @param {Picture} picture @param {readonly LayerColumn[]} columns @param {ValueAxis} axis */
export function layerHistograms(picture, columns, axis) {
  const numbers = () => new Float64Array(columns.length);
  const result = {
    columns,
    axis,
    counts: new Float64Array(columns.length * BINS), // fractions where a bin was divided
    below: numbers(),
    above: numbers(),
    nan: numbers(),
    posinf: numbers(),
    neginf: numbers(),
    sizes: numbers(),
    spikes: numbers(), // how many values are exactly the same, of those in counts
    spikeBins: numbers(), // where they lie; −1 off the axis
    // The column that waits for a guess.
    hidden: picture.hidden === null ? -1 : columns.findIndex(({ row }) => row === picture.hidden?.row),
  };
  const { floats, integers, bins } = picture;
  columns.forEach(({ row }, order) => {
    if (row < 0) return;
    result.sizes[order] = integers.n[row];
    if (order === result.hidden) return;
    for (const kind of /** @type {const} */ (["nan", "posinf", "neginf"]))
      result[kind][order] = integers[kind][row] ?? 0;
    const [low, high] = [valueAt(floats.min, row), valueAt(floats.max, row)];
    if (low === null || high === null) return;
    const zeros = Math.round(floats.zero_fraction[row] * integers.n[row]);
    const source = picture.counts.subarray(row * bins, (row + 1) * bins);
    const into = result.counts.subarray(order * BINS, (order + 1) * BINS);
    const { below, above, spike, spikeBin } = spread(source, low, high, zeros, axis, into);
    result.below[order] = below;
    result.above[order] = above;
    result.spikes[order] = spikeBin >= 0 && spikeBin < BINS ? spike : 0;
    result.spikeBins[order] = spikeBin;
  });
  return result;
}

/** The histograms as they were taken, in rows for a table: 64 bins each over the tensor's own [min, max], one where all
 * values are equal, and one row each for NaN, Infinity and −Infinity where there are such. @param {Picture} picture
 * @param {readonly LayerColumn[]} columns @returns {(string | number)[][]} the first holds the titles */
export function histogramRows(picture, columns) {
  /** @type {(string | number)[][]} */
  const table = [["layer", "name", "bin_low", "bin_high", "count"]];
  const { floats, integers, bins } = picture;
  for (const { index, name, row } of columns) {
    if (row < 0 || row === picture.hidden?.row) continue;
    const [low, high] = [valueAt(floats.min, row), valueAt(floats.max, row)];
    if (low !== null && high !== null) {
      const used = low === high ? 1 : bins;
      for (let bin = 0; bin < used; bin += 1) {
        const ends = [binEdge(low, high, bin / used), binEdge(low, high, (bin + 1) / used)];
        table.push([index, name, ...ends, picture.counts[row * bins + bin]]);
      }
    }
    /** @type {[number, "nan" | "posinf" | "neginf"][]} */
    const lanes = [[NaN, "nan"], [Infinity, "posinf"], [-Infinity, "neginf"]];
    for (const [value, kind] of lanes) {
      const count = integers[kind][row] ?? 0;
      if (count > 0) table.push([index, name, value, value, count]);
    }
  }
  return table;
}
