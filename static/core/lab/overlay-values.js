/** The value behind an overlay for every op, tensor and group. NaN: no value; Infinity: the tensor is not finite. */

import { CAUSES_FIRST } from "./diagnosis.js";
import { differences } from "./dump-run.js";
import { isNonFinite } from "./faults.js";
import { itemSize } from "../graph/steps.js";
import { gradientsOf, outputsOf } from "../graph/wiring.js";
import { memo } from "../memo.js";

/** @typedef {{of: (kind: Item["kind"], index: number, half: Phase) => number, range: () => [number, number],
 * hasInfinite: boolean}} OverlayValues of: for health a place in CAUSES_FIRST; range: of positive ones over decades */

/** @typedef {ReturnType<typeof build>} Plan */
const planOf = memo(build);

/** Index arrays of a graph, the same for every picture: rows of tensors in the statistics, -1 for none; their gradients,
 * a gradient's being itself; the output that an op's std is of; groups, innermost first; and their results.
 * @param {Graph} graph */
function build(graph) {
  const { arrays, topology, tensorIndex } = graph;
  const rows = new Int32Array(arrays.tensors).fill(-1);
  topology.statistics.tensor.forEach((id, row) => (rows[tensorIndex.get(id) ?? -1] = row));
  // Code written by hand makes other things on the way back too: masks, transposed weights.
  const isGradient = (/** @type {number} */ tensor) =>
    arrays.gradientOf[tensor] >= 0 || topology.tensors[tensor].role === "gradient";
  const gradients = gradientsOf(graph).map((gradient, tensor) =>
    arrays.tensorHalf[tensor] === 0 ? gradient : isGradient(tensor) ? tensor : -1
  );
  const results = Int32Array.from({ length: arrays.ops },
    (_, op) => outputsOf(arrays, op).find((output) => rows[output] >= 0) ?? -1);
  const groups = Int32Array.from({ length: arrays.groups }, (_, group) => group).sort((a, b) =>
    arrays.groupDepth[b] - arrays.groupDepth[a] || b - a
  );
  /** Overlays that pictures do not change. @type {Map<OverlayKind, OverlayValues>} */
  const constant = new Map();
  return { rows, gradients, results, groups, groupResults: resultsOfGroups(graph, results), constant };
}

/** The tensor that leaves each group: forward the output of its last op, backward the gradient of its input.
 * @param {Graph} graph @param {Int32Array} results @returns {[Int32Array, Int32Array]} */
function resultsOfGroups({ arrays, topology }, results) {
  const forward = new Int32Array(arrays.groups).fill(-1);
  const backward = new Int32Array(arrays.groups).fill(-1);
  for (let group = 0; group < arrays.groups; group += 1) {
    for (let op = arrays.groupLast[group] - 1; op >= arrays.groupFirst[group] && forward[group] === -1; op -= 1) {
      if (arrays.opHalf[op] === 0) forward[group] = results[op];
    }
  }
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] !== 1) continue;
    for (const output of outputsOf(arrays, op)) {
      const original = arrays.gradientOf[output];
      if (original < 0 || topology.tensors[original]?.role === "parameter") continue;
      const maker = arrays.producer[original];
      let group = arrays.opGroup[op];
      // It leaves every group that does not hold the producer of its original.
      while (group >= 0 && !(maker >= arrays.groupFirst[group] && maker < arrays.groupLast[group])) {
        backward[group] = output;
        group = arrays.groupParent[group];
      }
    }
  }
  return [forward, backward];
}

/** @param {OverlayKind} kind @param {Graph} graph @param {Picture} picture @param {Theory | null} theory
 * @param {ComparisonReference | null} [reference] a dump that it is compared to */
export function overlayValues(kind, graph, picture, theory, reference = null) {
  const plan = planOf(graph);
  const known = plan.constant.get(kind);
  if (known !== undefined) return known;
  const { arrays, topology } = graph;
  const tensors = new Float64Array(arrays.tensors).fill(NaN);
  const ops = new Float64Array(arrays.ops).fill(NaN);

  if (kind === "time" || kind === "memory" || kind === "flops") {
    const cost = topology.ops.map(({ flops, bytes }, op) =>
      kind === "flops" ? flops : kind === "memory" ? bytes : (topology.op_us?.[op] ?? NaN)
    );
    ops.set(cost);
    if (kind === "memory")
      topology.tensors.forEach(({ dtype }, tensor) => (tensors[tensor] = arrays.elements[tensor] * itemSize(dtype)));
    const values = assembled(graph, plan, tensors, ops, (sum, value) => sum + value);
    plan.constant.set(kind, values);
    return values;
  }

  const joined = (/** @type {(a: number, b: number) => number} */ join) => {
    spread(graph, tensors, ops, join);
    return assembled(graph, plan, tensors, ops, join);
  };
  if (kind === "difference") {
    if (reference !== null) tensors.set(differences(picture, reference));
    return joined(Math.max);
  }
  if (kind === "precision") {
    const { tensor = [], error = [], expected = [] } = picture.precision ?? {};
    tensor.forEach((id, at) => {
      const index = graph.tensorIndex.get(id);
      if (index !== undefined && expected[at] > 0) tensors[index] = error[at] / expected[at];
    });
    return joined(Math.max);
  }
  if (kind === "health") {
    healthOf(graph, plan, picture, theory, tensors);
    return joined(Math.min);
  }

  const { nan, posinf, neginf } = picture.integers;
  const column = kind === "dead_fraction" ? picture.floats.dead_fraction
    : kind === "std" ? picture.floats.std : picture.floats.norm;
  const hidden = picture.hidden?.rows;
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    const source = kind === "gradient_norm" ? plan.gradients[tensor] : tensor;
    const row = source < 0 ? -1 : plan.rows[source];
    // A colour would give a hidden figure away.
    if (row < 0 || hidden?.has(row)) continue;
    const isBad = nan[row] + posinf[row] + neginf[row] > 0;
    tensors[tensor] = isBad && kind !== "dead_fraction" ? Infinity : column[row];
  }
  if (kind !== "std") return joined(Math.max);
  plan.results.forEach((result, op) => (ops[op] = tensors[result] ?? NaN));
  return assembled(graph, plan, tensors, ops, null);
}

/** An op has the worst of what it puts out. @param {Graph} graph @param {Float64Array} tensors
 * @param {Float64Array} ops @param {(a: number, b: number) => number} join */
function spread({ arrays }, tensors, ops, join) {
  for (let op = 0; op < arrays.ops; op += 1) {
    for (let at = arrays.outputStart[op]; at < arrays.outputStart[op + 1]; at += 1) {
      const value = tensors[arrays.outputs[at]];
      if (!Number.isNaN(value)) ops[op] = Number.isNaN(ops[op]) ? value : join(ops[op], value);
    }
  }
}

/** @param {Graph} graph @param {Plan} plan @param {Float64Array} tensors @param {Float64Array} ops @param {((a: number,
 * b: number) => number) | null} join what a group makes of its ops' figures; null: it has that of its result
 * @returns {OverlayValues} */
function assembled({ arrays }, plan, tensors, ops, join) {
  const halves = [new Float64Array(arrays.groups).fill(NaN), new Float64Array(arrays.groups).fill(NaN)];
  if (join === null) {
    plan.groupResults.forEach((outputs, half) =>
      outputs.forEach((output, group) => (halves[half][group] = tensors[output] ?? NaN))
    );
  } else {
    const add = (/** @type {Float64Array} */ into, /** @type {number} */ group, /** @type {number} */ value) => {
      if (group < 0 || Number.isNaN(value)) return;
      into[group] = Number.isNaN(into[group]) ? value : join(into[group], value);
    };
    for (let op = 0; op < arrays.ops; op += 1)
      add(halves[arrays.opHalf[op]], arrays.opGroup[op], ops[op]);
    for (const into of halves)
      for (const group of plan.groups) add(into, arrays.groupParent[group], into[group]);
  }
  const [forward, backward] = halves;
  return {
    of: (kind, index, half) =>
      (kind === "tensor" ? tensors : kind === "op" ? ops : half === "forward" ? forward : backward)[index] ?? NaN,
    range: () => rangeOf([tensors, ops, forward.subarray(1), backward.subarray(1)]),
    hasInfinite: tensors.includes(Infinity) || ops.includes(Infinity),
  };
}

/** @param {readonly Float64Array[]} columns @returns {[number, number]} Infinity, -Infinity where there is no number */
function rangeOf(columns) {
  let [low, high, least] = [Infinity, -Infinity, Infinity];
  for (const values of columns) {
    for (const value of values) {
      if (!(value < Infinity)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
      if (value > 0 && value < least) least = value;
    }
  }
  // A 0 has no place on a logarithmic scale: it gets the colour of the least.
  return low <= 0 && least < Infinity && high > 10 * least ? [least, high] : [low, high];
}

/** The health of each tensor as a position in CAUSES_FIRST: its layer's verdict, or that its own numbers are not finite.
 * @param {Graph} graph @param {Plan} plan @param {Picture} picture @param {Theory | null} theory
 * @param {Float64Array} into NaN: nothing is wrong */
function healthOf({ topology, tensorIndex }, plan, picture, theory, into) {
  if (picture.hidden !== null) return;
  for (const { health, index } of theory?.layers ?? []) {
    const layer = topology.layers[index - 1];
    // Non-finite is what a tensor's own numbers are, not its neighbour's.
    if (health === null || health === "non-finite" || layer === undefined) continue;
    for (const id of [layer.preactivation, layer.activation, layer.gradient]) {
      const tensor = tensorIndex.get(id ?? "");
      if (tensor !== undefined) into[tensor] = CAUSES_FIRST.indexOf(health);
    }
  }
  if (!isNonFinite(picture, theory)) return;
  const { nan, posinf, neginf } = picture.integers;
  plan.rows.forEach((row, tensor) => {
    if (row >= 0 && nan[row] + posinf[row] + neginf[row] > 0) into[tensor] = CAUSES_FIRST.indexOf("non-finite");
  });
}
