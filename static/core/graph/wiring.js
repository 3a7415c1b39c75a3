/** Links between the two passes of a graph: the forward op of each backward op, and the backward ops that read a saved
 * tensor. Computed once per graph. No DOM. */

import { memo } from "../memo.js";

/** @typedef {{start: Int32Array, entries: Int32Array}} Lists item i's entries are entries[start[i]] up to
 * entries[start[i + 1] - 1] */

/**
 * @typedef {object} Wiring
 * @property {Int32Array} twin backward op → forward op, -1 for none
 * @property {Lists} backward forward op → its backward ops, in order of execution
 * @property {Lists} keeps forward op → tensors that it keeps for the backward pass
 * @property {Lists} needed tensor → backward ops that read what was kept of it, besides those recorded as its readers
 * @property {Lists} needs backward op → tensors; the same, the other way round
 */

/** Backward ops that need nothing besides the gradients they are given: they add, hand on, reshape or cut them. */
const PASSING = new Set([
  "accumulate sum_to_size to tensor_hook AccumulateGrad Add Sub Rsub Neg Sum Mean Expand Repeat Clone Copy ToCopy Copies",
  "View UnsafeView ReshapeAlias Reshape Alias AsStrided T Transpose Permute Squeeze Unsqueeze Select Slice Narrow Diagonal",
  "Split SplitWithSizes UnsafeSplit UnsafeSplitWithSizes Unbind Stack Cat Flip Roll Unfold ConstantPadNd",
].join(" ").split(" "));

/** @param {string} name of a backward op, such as ViewBackward0 @returns {boolean} */
const passes = (name) => PASSING.has(name.replace(/Backward\w*$/, ""));

export const wiringOf = memo(build);

/** Sorts pairs into lists by their first half; within a list they keep their order. @param {number} count how many
 * lists @param {ArrayLike<number>} keys @param {ArrayLike<number>} values @returns {Lists} */
function listsOf(count, keys, values) {
  const start = new Int32Array(count + 1);
  for (let at = 0; at < keys.length; at += 1) start[(keys[at] ?? 0) + 1] = start[(keys[at] ?? 0) + 1] + 1;
  for (let item = 0; item < count; item += 1) start[item + 1] = start[item + 1] + start[item];
  const entries = new Int32Array(keys.length);
  const next = start.slice(0, count);
  for (let at = 0; at < keys.length; at += 1) {
    const key = keys[at] ?? 0;
    entries[next[key]] = values[at] ?? 0;
    next[key] = next[key] + 1;
  }
  return { start, entries };
}

/** @param {Lists} lists @param {number} item @returns {Int32Array} its entries; a view, not to be written to */
export function entriesOf({ start, entries }, item) {
  return entries.subarray(start[item], start[item + 1]);
}

/** @param {GraphArrays} arrays @param {number} op @returns {Int32Array} tensors */
export function inputsOf({ inputStart, inputs }, op) {
  return inputs.subarray(inputStart[op], inputStart[op + 1]);
}

/** @param {GraphArrays} arrays @param {number} op @returns {Int32Array} tensors */
export function outputsOf({ outputStart, outputs }, op) {
  return outputs.subarray(outputStart[op], outputStart[op + 1]);
}

/** @param {GraphArrays} arrays @param {number} tensor @returns {Int32Array} ops */
export function readersOf({ consumerStart, consumers }, tensor) {
  return consumers.subarray(consumerStart[tensor], consumerStart[tensor + 1]);
}

/** @param {Graph} graph @returns {Wiring} */
function build({ topology, arrays, opIndex }) {
  const twin = Int32Array.from(topology.ops,
    (op) => op.phase === "backward" && op.twin !== null ? (opIndex.get(op.twin) ?? -1) : -1);
  /** @type {number[][]} */
  const [owners, backwards] = [[], []];
  twin.forEach((forward, op) => {
    if (forward < 0) return;
    owners.push(forward);
    backwards.push(op);
  });
  const backward = listsOf(arrays.ops, owners, backwards);
  const keeps = listsOf(arrays.ops, arrays.savedOp, arrays.savedTensor);

  /** @type {number[][]} */
  const [tensors, readers] = [[], []];
  for (let edge = 0; edge < arrays.savedOp.length; edge += 1) {
    const [op, tensor] = [arrays.savedOp[edge], arrays.savedTensor[edge]];
    const candidates = [...entriesOf(backward, op)];
    // Code that is itself recorded says which of its ops reads the tensor; autograd's nodes name gradients alone.
    const isRecorded = readersOf(arrays, tensor).some((reader) =>
      arrays.opHalf[reader] === 1 && topology.ops[reader].module === topology.ops[op].module
    );
    if (isRecorded) continue;
    const computing = candidates.filter((candidate) => {
      const { bytes = 0, name = "" } = topology.ops[candidate];
      return bytes > 0 && !passes(name);
    });
    for (const reader of computing.length > 0 ? computing : candidates) {
      tensors.push(tensor);
      readers.push(reader);
    }
  }
  return { twin, backward, keeps, needed: listsOf(arrays.tensors, tensors, readers),
    needs: listsOf(arrays.ops, readers, tensors) };
}
