/**
 * The two passes as a sequence of steps: one op each, in the order in which they ran. Each step has the tensors that it
 * reads, writes and saves, and the saved tensors in memory. No DOM.
 *
 * Tensors that share memory count once, such as a tensor and its transpose. Parameters and buffers need memory without
 * a backward pass too: they are the base line.
 */

import { idsOf } from "./reach.js";
import { memo } from "../memo.js";
import { entriesOf, inputsOf, outputsOf, readersOf, wiringOf } from "./wiring.js";

// The bytes kept for the backward pass, step by step, as a curve.

/** A step is as wide as its share; where there are more steps than pixels the most of each pixel is drawn.
 * @param {ExecutionSteps} steps @param {number} width px @param {number} height px @returns area and base: data of SVG
 * paths, what is kept and the parameters beneath; top: bytes at the upper edge */
export function memoryCurve(steps, width, height) {
  const top = Math.max(1, steps.base + steps.alive[steps.peak]);
  const x = (/** @type {number} */ step) => steps.count === 0 ? 0 : (step / steps.count) * width;
  const y = (/** @type {number} */ bytes) => height - (bytes / top) * height;
  const bars = Math.max(1, Math.min(steps.count, Math.floor(width)));
  const points = [`M0 ${tenth(y(steps.base))}`];
  for (let bar = 0; bar < bars; bar += 1) {
    const [from, to] = [Math.floor((bar / bars) * steps.count),
      Math.max(Math.floor((bar / bars) * steps.count) + 1, Math.floor(((bar + 1) / bars) * steps.count))];
    let most = 0;
    for (let step = from; step < to; step += 1) most = Math.max(most, steps.alive[step]);
    const level = tenth(y(steps.base + most));
    points.push(`L${tenth((bar / bars) * width)} ${level}L${tenth(((bar + 1) / bars) * width)} ${level}`);
  }
  points.push(`L${width} ${tenth(y(steps.base))}z`);
  return { area: points.join(""),
    base: `M0 ${height}L0 ${tenth(y(steps.base))}L${width} ${tenth(y(steps.base))}L${width} ${height}z`, top, x, y };
}

/** @param {number} length */
function tenth(length) {
  return Math.round(length * 10) / 10;
}

const ITEM_SIZE =
  /** @type {Record<string, number>} */ ({ bool: 1, uint8: 1, int8: 1, int16: 2, float16: 2, bfloat16: 2, int64: 8,
    float64: 8, complex64: 8, complex128: 16 });

/** @param {string} dtype @returns {number} bytes per element */
export function itemSize(dtype) {
  return ITEM_SIZE[dtype] ?? (dtype.startsWith("float8") ? 1 : 4);
}

export const stepsOf = memo(build);

/** Step k is the k-th op, from 0. @param {Graph} graph */
function build(graph) {
  const { arrays, topology } = graph;
  const { needed } = wiringOf(graph);
  const count = arrays.ops;
  const storage = storageOf(graph);
  const bytes = (/** @type {number} */ tensor) => arrays.elements[tensor] * itemSize(topology.tensors[tensor].dtype);
  const isResident = (/** @type {number} */ tensor) => ["parameter", "buffer"].includes(topology.tensors[tensor].role);

  const first = new Int32Array(arrays.tensors).fill(-1);
  const last = new Int32Array(arrays.tensors).fill(-1);
  const keep = (/** @type {number} */ tensor, /** @type {number} */ saver, /** @type {number} */ end) => {
    const root = storage[tensor];
    if (isResident(root)) return;
    if (first[root] === -1 || saver < first[root]) first[root] = saver;
    last[root] = Math.max(last[root], end);
  };
  for (let edge = 0; edge < arrays.savedOp.length; edge += 1) {
    const [op, tensor] = [arrays.savedOp[edge], arrays.savedTensor[edge]];
    const readers = entriesOf(needed, tensor);
    // A tensor without a reader stays until the end.
    const hasReader = readers.length > 0 || readersInBackward(arrays, tensor).length > 0;
    keep(tensor, op, hasReader ? op : count - 1);
    for (const reader of readers) keep(tensor, op, reader);
  }
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    if (arrays.tensorHalf[tensor] !== 0) continue;
    const readers = readersInBackward(arrays, tensor);
    if (readers.length === 0) continue;
    // The op that saves it was not recorded: take its producer, else its first reader.
    const made = arrays.producer[tensor];
    const saver = first[storage[tensor]] !== -1 ? first[storage[tensor]]
      : made >= 0 ? made : arrays.consumers[arrays.consumerStart[tensor]];
    for (const reader of readers) keep(tensor, saver, reader);
  }

  const kept = [];
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1)
    if (last[tensor] !== -1 && bytes(tensor) > 0) kept.push(tensor);
  kept.sort((a, b) => bytes(b) - bytes(a) || a - b);
  const size = Float64Array.from(kept, bytes);

  const alive = new Float64Array(count);
  kept.forEach((tensor, order) => {
    const [from, until] = [first[tensor], last[tensor]];
    alive[from] = alive[from] + size[order];
    if (until + 1 < count) alive[until + 1] = alive[until + 1] - size[order];
  });
  let peak = 0;
  for (let step = 1; step < count; step += 1) {
    alive[step] = alive[step] + alive[step - 1];
    if (alive[step] > alive[peak]) peak = step;
  }
  let base = 0;
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1)
    if (storage[tensor] === tensor && isResident(tensor)) base += bytes(tensor);
  const firstBackward = arrays.opHalf.indexOf(1);
  return {
    count,
    forward: firstBackward === -1 ? count : firstBackward, // how many steps are forward ops
    storage, // tensor → the tensor in whose memory it lies
    kept: Int32Array.from(kept), // storages kept for the backward pass, largest first
    from: Int32Array.from(kept, (tensor) => first[tensor]), // step at which each is saved
    until: Int32Array.from(kept, (tensor) => last[tensor]), // the last step that needs it
    size, // of each, bytes
    alive, // bytes kept for the backward pass while a step runs
    base, // bytes of parameters and buffers
    peak, // the first step at which the most is kept
  };
}

/** Ops whose output is a part of their input's memory, though they say that they move bytes. */
const PARTS = new Set(["split", "chunk", "unbind", "narrow", "select", "expand", "expand_as", "detach", "unfold"]);

/** Tensor → the tensor that owns its memory. Known by the op: one that moves no bytes, works in place or hands out
 * parts. @param {Graph} graph @returns {Int32Array} */
function storageOf({ arrays, topology }) {
  const storage = Int32Array.from({ length: arrays.tensors }, (_, tensor) => tensor);
  // In order of execution: an input's memory is known before an output's.
  topology.ops.forEach((op, index) => {
    const isView = (op.bytes === 0 && op.inputs.length > 0) || PARTS.has(op.name) || /[^_]_$/.test(op.name);
    const [source] = inputsOf(arrays, index);
    if (!isView || source === undefined) return;
    // A tensor changed in place may be one tensor before and after.
    for (const output of outputsOf(arrays, index)) if (output !== source) storage[output] = storage[source];
  });
  return storage;
}

/** @param {GraphArrays} arrays @param {number} tensor @returns {number[]} backward ops that are recorded as reading it,
 * if it is a forward tensor */
function readersInBackward(arrays, tensor) {
  if (arrays.tensorHalf[tensor] !== 0) return [];
  return [...readersOf(arrays, tensor)].filter((op) => arrays.opHalf[op] === 1);
}

/** @param {Graph} graph @param {number} step @returns tensors: `saves` are kept from here on, `fetches` are read and were
 * kept since the forward pass; null beyond the last */
export function stepAt(graph, step) {
  const { arrays, topology } = graph;
  const op = topology.ops[step];
  if (op === undefined) return null;
  const { keeps, needs } = wiringOf(graph);
  const inputs = [...inputsOf(arrays, step)];
  const recorded = arrays.opHalf[step] === 1 ? inputs.filter((tensor) => arrays.tensorHalf[tensor] === 0) : [];
  const fetches = [...new Set([...recorded, ...entriesOf(needs, step)])];
  return {
    op,
    reads: [...new Set([...inputs, ...fetches])],
    writes: [...outputsOf(arrays, step)],
    saves: [...new Set(entriesOf(keeps, step))],
    fetches,
  };
}

/** @param {Graph} graph @param {number} tensor @param {number | null} step null: after the last
 * @returns {boolean} whether the tensor has its value when the step has run */
export function isComputed({ arrays }, tensor, step) {
  if (step === null) return true;
  const made = arrays.producer[tensor];
  // The gradient of the loss is there when the backward pass begins.
  return made >= 0 ? made <= step : arrays.tensorHalf[tensor] === 0 || arrays.opHalf[step] === 1;
}

/** The saved tensors in memory while a step runs, largest first. @param {ExecutionSteps} steps @param {number} step
 * @param {number} most @returns {{shown: {tensor: number, bytes: number, until: number}[], more: number}} tensor: the
 * one that owns the memory; more: how many are not shown */
export function aliveAt(steps, step, most) {
  const shown = [];
  let more = 0;
  for (let order = 0; order < steps.kept.length; order += 1) {
    if (step < steps.from[order] || step > steps.until[order]) continue;
    if (shown.length < most)
      shown.push({ tensor: steps.kept[order], bytes: steps.size[order], until: steps.until[order] });
    else more += 1;
  }
  return { shown, more };
}

/** The ids that a step highlights: its op, the op's tensors and the groups around it. @param {Graph} graph
 * @param {number} step @returns {Set<string>} ids as in addresses; empty beyond the last step */
export function litOf(graph, step) {
  const now = stepAt(graph, step);
  if (now === null) return new Set();
  const ops = new Uint8Array(graph.arrays.ops);
  const tensors = new Uint8Array(graph.arrays.tensors);
  ops[step] = 1;
  for (const tensor of [...now.reads, ...now.writes]) tensors[tensor] = 1;
  return idsOf(graph, ops, tensors);
}
