/** A graph's edges as arrays of numbers, the forward op of every backward op, the results that are always drawn, and
 * the links between the two passes. No DOM. */

import { linksOf } from "../ids.js";
import { memo } from "../memo.js";

/** @typedef {ReturnType<typeof wiring>} Edges @typedef {import("../ids.js").Links} Links */

/** Up to this length, a search through a list is faster than a set. */
const FEW = 8;

/** Who makes and reads what, by number; ids that nothing has are left out. A list per item is two arrays: item i's
 * entries are `entries[start[i]]` up to `entries[start[i + 1] - 1]`. @param {Topology} topology */
export function wiring({ ops, tensors, saved }) {
  const [inputStart, inputs] = known(linksOf(ops, "inputs", tensors));
  const made = linksOf(ops, "outputs", tensors);
  const [outputStart, outputs] = known(made);
  const [consumerStart, consumers] = known(linksOf(tensors, "consumers", ops));
  for (let tensor = 0; tensor < tensors.length; tensor += 1) {
    const [start, end] = [consumerStart[tensor], consumerStart[tensor + 1]];
    if (end - start > 1) consumers.subarray(start, end).sort();
  }
  const producer = linksOf(tensors, "producer", ops).places.map((op) => Math.max(op, -1));
  const gradientOf = linksOf(tensors, "gradient_of", tensors).places.map((tensor) => Math.max(tensor, -1));
  // The parts of a gradient belong to the same tensor as their sum.
  ops.forEach(({ name, phase }, op) => {
    if (name !== "accumulate" || phase !== "backward" || made.start[op] === made.start[op + 1]) return;
    const whole = gradientOf[made.places[made.start[op]]] ?? -1;
    if (whole < 0) return;
    for (const part of inputs.subarray(inputStart[op], inputStart[op + 1]))
      if (gradientOf[part] === -1) gradientOf[part] = whole;
  });
  const tensorHalf = Uint8Array.from(tensors, ({ role }, tensor) => {
    if (role === "gradient" || gradientOf[tensor] >= 0) return 1;
    const maker = producer[tensor];
    const op = maker >= 0 ? maker : consumers[consumerStart[tensor]];
    return (consumerStart[tensor + 1] > consumerStart[tensor] || maker >= 0) && ops[op].phase === "backward" ? 1 : 0;
  });
  const [keptTensors, keepingOps] = [linksOf(saved, "tensor", tensors).places, linksOf(saved, "op", ops).places];
  const savedTensor = keptTensors.filter((tensor, at) => tensor >= 0 && keepingOps[at] >= 0);
  const savedOp = keepingOps.filter((op, at) => op >= 0 && keptTensors[at] >= 0);
  return { inputStart, inputs, outputStart, outputs, consumerStart, consumers, producer, gradientOf, tensorHalf,
    savedTensor, savedOp };
}

/** @param {Links} links @returns {[Int32Array, Int32Array]} where each part starts, and the places of all: each once in a
 * part, unknown ids left out */
function known({ start, places }) {
  const starts = new Int32Array(start.length);
  const all = new Int32Array(places.length);
  let used = 0;
  for (let part = 0; part + 1 < start.length; part += 1) {
    const named = places.subarray(start[part], start[part + 1]);
    const isLong = named.length > FEW;
    for (const place of isLong ? new Set(named) : named)
      if (place >= 0 && (isLong || !all.subarray(starts[part], used).includes(place))) all[used++] = place;
    starts[part + 1] = used;
  }
  return [starts, all.slice(0, used)];
}

/** Backward op → the forward op that it stands beneath. @param {Topology} topology
 * @param {ReadonlyMap<string, number>} opIndex @param {Edges} wired @returns {Int32Array} */
export function anchors({ ops }, opIndex, { outputStart, outputs, gradientOf, producer, consumerStart, consumers }) {
  return Int32Array.from(ops, (op, index) => {
    if (op.phase === "forward") return -1;
    const twin = op.twin === null ? -1 : (opIndex.get(op.twin) ?? -1);
    if (twin >= 0 && ops[twin]?.phase === "forward") return twin;
    for (let at = outputStart[index]; at < outputStart[index + 1]; at += 1) {
      const original = gradientOf[outputs[at]];
      if (original < 0 || producer[original] >= 0) continue;
      for (let reader = consumerStart[original]; reader < consumerStart[original + 1]; reader += 1) {
        const consumer = consumers[reader];
        if (ops[consumer].phase === "forward") return consumer;
      }
    }
    return -1;
  });
}

/** @param {Topology} topology @param {Edges} wired @param {ReadonlyMap<string, number>} tensorIndex
 * @returns {Uint8Array} what layers put out, and what the model does: drawn even where nothing reads it */
export function results({ ops, tensors, layers }, { producer, consumerStart }, tensorIndex) {
  const isResult = new Uint8Array(tensors.length);
  for (const { preactivation, activation } of layers) {
    for (const id of [preactivation, activation]) {
      const tensor = tensorIndex.get(id ?? "");
      if (tensor !== undefined) isResult[tensor] = 1;
    }
  }
  tensors.forEach(({ role }, tensor) => {
    const isUnread = consumerStart[tensor] === consumerStart[tensor + 1];
    const isMade = ops[producer[tensor]]?.phase === "forward";
    if (role === "loss" || (isUnread && isMade && role !== "saved" && role !== "buffer")) isResult[tensor] = 1;
  });
  return isResult;
}

// Links between the passes, computed once per graph.

/** @typedef {{start: Int32Array, entries: Int32Array}} Lists item i's entries are entries[start[i]] up to
 * entries[start[i + 1] - 1] */

/** Backward ops that need nothing besides the gradients they are given: they add, hand on, reshape or cut them. */
const PASSING = new Set([
  "accumulate sum_to_size to tensor_hook AccumulateGrad Add Sub Rsub Neg Sum Mean Expand Repeat Clone Copy ToCopy Copies",
  "View UnsafeView ReshapeAlias Reshape Alias AsStrided T Transpose Permute Squeeze Unsqueeze Select Slice Narrow Diagonal",
  "Split SplitWithSizes UnsafeSplit UnsafeSplitWithSizes Unbind Stack Cat Flip Roll Unfold ConstantPadNd",
].join(" ").split(" "));

/** @param {string} name of a backward op, such as ViewBackward0 @returns {boolean} */
const passes = (name) => PASSING.has(name.replace(/Backward\w*$/, ""));

export const wiringOf = memo(build);

/** Positions in lists, by the key at each position; a negative key is left out. @param {ArrayLike<number>} keys
 * @param {number} count of different keys @param {number} [used] length of the part that counts
 * @returns {[Int32Array, Int32Array]} key → start of its list, with one entry more, and all lists one after the other */
export function byKey(keys, count, used = keys.length) {
  const starts = new Int32Array(count + 1);
  for (let at = 0; at < used; at += 1) if (keys[at] >= 0) starts[keys[at] + 1] += 1;
  for (let key = 0; key < count; key += 1) starts[key + 1] += starts[key];
  const next = starts.slice();
  const all = new Int32Array(starts[count]);
  for (let at = 0; at < used; at += 1) if (keys[at] >= 0) all[next[keys[at]]++] = at;
  return [starts, all];
}

/** Sorts pairs into lists by their first half; within a list they keep their order. @param {number} count of lists
 * @param {ArrayLike<number>} keys @param {ArrayLike<number>} values @returns {Lists} */
function listsOf(count, keys, values) {
  const [start, order] = byKey(keys, count);
  return { start, entries: order.map((at) => values[at]) };
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

/** @param {Graph} graph @returns {Int32Array} tensor → its gradient, the whole one where shares were added up; -1 for
 * none */
export function gradientsOf({ arrays }) {
  const gradients = new Int32Array(arrays.tensors).fill(-1);
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    const original = arrays.gradientOf[tensor];
    if (original >= 0) gradients[original] = tensor;
  }
  return gradients;
}

/** twin: backward op → forward op, or -1; backward: forward op → its backward ops; keeps: forward op → tensors kept for
 * the backward pass; needed: tensor → backward ops that read the kept tensor, besides its recorded readers; needs: the
 * inverse. @param {Graph} graph */
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
