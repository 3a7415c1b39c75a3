/** The chain rule along one way from a tensor to the loss: a factor for every named tensor on it, what the factor does
 * to the gradient, and how large the gradient is before and after. No DOM, no recursion. */

import { valueAt } from "../format.js";
import { ruleTerm } from "../rules/formula.js";
import { shortName, termOf } from "../rules/terms.js";
import { idsOf } from "./reach.js";
import { entriesOf, gradientsOf, inputsOf, outputsOf, readersOf, wiringOf } from "./wiring.js";

/** @typedef {NonNullable<ReturnType<typeof chainPath>>} ChainPath */

/** The shortest way from a forward tensor to the loss. @param {Graph} graph @param {number} from tensor
 * @returns null where there is no way, or the tensor is the loss; isOneOfMany: the gradient is the sum over several
 * ways */
export function chainPath(graph, from) {
  const { arrays, topology } = graph;
  const loss = topology.tensors.findIndex(({ role }, tensor) => role === "loss" && arrays.tensorHalf[tensor] === 0);
  if (loss === -1 || from === loss || arrays.tensorHalf[from] !== 0) return null;
  const forwardReaders = (/** @type {number} */ tensor) =>
    readersOf(arrays, tensor).filter((op) => arrays.opHalf[op] === 0);

  // Breadth first, back from the loss: how far every tensor is from it.
  const distance = new Int32Array(arrays.tensors).fill(-1);
  distance[loss] = 0;
  let front = [loss];
  while (front.length > 0) {
    const next = [];
    for (const tensor of front) {
      const maker = arrays.producer[tensor];
      if (maker < 0 || arrays.opHalf[maker] !== 0) continue;
      for (const input of inputsOf(arrays, maker)) {
        if (distance[input] !== -1 || arrays.tensorHalf[input] !== 0) continue;
        distance[input] = distance[tensor] + 1;
        next.push(input);
      }
    }
    front = next;
  }
  if (distance[from] === -1) return null;

  const tensors = [from];
  const ops = [];
  let isOneOfMany = false;
  for (let tensor = from; tensor !== loss;) {
    const left = distance[tensor] - 1;
    let best = null;
    let ways = 0;
    for (const op of forwardReaders(tensor)) {
      const leading = outputsOf(arrays, op).filter((output) => distance[output] !== -1);
      ways += Math.min(1, leading.length);
      const output = leading.find((each) => distance[each] === left);
      if (best === null && output !== undefined) best = { op, output };
    }
    if (best === null) return null;
    isOneOfMany ||= ways > 1;
    ops.push(best.op);
    tensors.push(tensor = best.output);
  }

  const gradients = gradientsOf(graph);
  const { backward } = wiringOf(graph);
  /** The loss's first, as the chain rule is written. @type {ChainFactor[]} */
  const factors = [];
  for (let at = 0, begin = 0; at < ops.length; at += 1) {
    if (at + 1 < ops.length && !isStation(graph, tensors[at + 1], ops[at], ops[at + 1])) continue;
    const run = ops.slice(begin, at + 1);
    const [start, end] = [tensors[begin], tensors[at + 1]];
    factors.unshift({
      from: start,
      to: end,
      ops: run,
      backward: leadingTo(graph, new Set(run.flatMap((op) => [...entriesOf(backward, op)])), gradients[start]),
      gradient: gradients[start],
      gradientBefore: gradients[end],
      rule: localRule(graph, tensors.slice(begin, at + 2), run),
    });
    begin = at + 1;
  }

  const marks = { ops: new Uint8Array(arrays.ops), tensors: new Uint8Array(arrays.tensors) };
  for (const tensor of tensors) {
    marks.tensors[tensor] = 1;
    const gradient = gradients[tensor];
    if (gradient >= 0) marks.tensors[gradient] = 1;
  }
  for (const { ops: run, backward: back } of factors) for (const op of [...run, ...back]) marks.ops[op] = 1;
  return { from, loss, factors, isOneOfMany, ids: idsOf(graph, marks.ops, marks.tensors) };
}

/** Keeps the backward ops that lead to the factor's gradient: a layer's weight gradient does not lead to its input's.
 * @param {Graph} graph @param {ReadonlySet<number>} ops @param {number} gradient tensor, -1 for one that was not
 * recorded @returns {number[]} in order of execution */
function leadingTo({ arrays }, ops, gradient) {
  if (gradient < 0) return [...ops].sort((a, b) => a - b);
  const found = new Set();
  const waiting = [gradient];
  for (let tensor = waiting.pop(); tensor !== undefined; tensor = waiting.pop()) {
    const maker = arrays.producer[tensor];
    if (found.has(maker) || !ops.has(maker)) continue;
    found.add(maker);
    waiting.push(...inputsOf(arrays, maker));
  }
  return [...found].sort((a, b) => a - b);
}

/** Whether a factor ends at a tensor: it has a name of its own, or leaves a module. @param {Graph} graph
 * @param {number} tensor @param {number} maker @param {number} reader @returns {boolean} */
function isStation({ topology }, tensor, maker, reader) {
  const role = topology.tensors[tensor]?.role;
  return (role !== "intermediate" && role !== "saved") || topology.ops[maker]?.module !== topology.ops[reader]?.module;
}

/** Characters; a longer rule is not written. */
const LONGEST = 160;

/** The rules of some ops, one after the other, as one expression. @param {Graph} graph
 * @param {readonly number[]} tensors along the way, one more than there are ops @param {readonly number[]} ops */
function localRule(graph, tensors, ops) {
  const { topology, arrays, tensorIndex } = graph;
  // A quotient, ∂L/∂x, binds less tightly than what is raised or transposed.
  const [ATOM, QUOTIENT] = [6, 5];
  const nameOf = (/** @type {number} */ tensor) => shortName(topology.tensors[tensor].name);
  const shapeOf = (/** @type {string} */ id) => topology.tensors[tensorIndex.get(id) ?? -1]?.shape ?? [];
  /** An intermediate of the same module is written as its expression. @param {string} id @param {string} module */
  const labelOf = (id, module) => {
    const tensor = tensorIndex.get(id) ?? -1;
    const op = topology.ops[arrays.producer[tensor]];
    const plain = { text: shortName(topology.tensors[tensor]?.name ?? id), binds: ATOM };
    if (op === undefined || op.module !== module || op.outputs.length !== 1
      || topology.tensors[tensor]?.role !== "intermediate") return plain;
    const term = termOf(op, op.inputs.map((input) => ({ text: nameOf(tensorIndex.get(input) ?? -1), binds: ATOM })),
      shapeOf(op.inputs[0] ?? "").length);
    return term.text.length > 40 ? plain : term;
  };
  /** @type {FormulaTerm} */
  let term = topology.tensors[tensors.at(-1) ?? 0]?.role === "loss" ? { text: "1", binds: ATOM }
    : { text: `∂L/∂${nameOf(tensors.at(-1) ?? 0)}`, binds: QUOTIENT };
  for (let at = ops.length - 1; at >= 0; at -= 1) {
    const op = topology.ops[ops[at]];
    const [input, output] = [topology.tensors[tensors[at]], topology.tensors[tensors[at + 1]]];
    if (op === undefined || input === undefined || output === undefined) return null;
    const operands = op.inputs.map((id) => labelOf(id, op.module));
    const isByHand = [...entriesOf(wiringOf(graph).backward, ops[at])].some((back) =>
      !topology.ops[back].name.includes("Backward")
    );
    const next = ruleTerm(asWritten(op, isByHand), operands, op.inputs.indexOf(input.id), term, {
      operands: op.inputs.map(shapeOf),
      output: output.shape,
    }, shortName(output.name));
    if (next === null) return null;
    term = next;
  }
  return term.text.length > LONGEST ? null : `∂L/∂${nameOf(tensors[0] ?? 0)} = ${term.text}`;
}

/** Written by hand, as in the chapter, a relu has slope 0 at 0; autograd's clamp_min has 1. @param {Op} op
 * @param {boolean} isByHand @returns {Op} */
function asWritten(op, isByHand) {
  return isByHand && op.name === "clamp_min" && op.attributes["min"] === 0 ? { ...op, name: "relu" } : op;
}

/** The chain rule along a way: ∂loss/∂w1 = ∂loss/∂out · ∂out/∂l2 · ∂l2/∂l1 · ∂l1/∂w1. @param {Graph} graph
 * @param {ChainPath} path */
export function chainText({ topology }, { from, loss, factors }) {
  const name = (/** @type {number} */ tensor) => shortName(topology.tensors[tensor].name);
  return { left: `∂${name(loss)}/∂${name(from)}`,
    factors: factors.map((factor) => `∂${name(factor.to)}/∂${name(factor.from)}`) };
}

/** @param {Graph} graph @param {Picture} picture @param {ChainPath} path @returns the gradient behind each
 * factor; ratio: its root mean square over the one before; isHidden: it waits for a guess */
export function measured(graph, picture, { factors, loss }) {
  const { topology } = graph;
  const isKept = (/** @type {number} */ tensor) => {
    const row = picture.rows.get(topology.tensors[tensor]?.id ?? "");
    return row !== undefined && picture.hidden !== null && picture.hidden.rows.has(row);
  };
  const rms = (/** @type {number} */ tensor, /** @type {number} */ of) => {
    // The loss's own gradient is 1, recorded or not.
    if (tensor < 0) return of === loss ? 1 : null;
    const row = picture.rows.get(topology.tensors[tensor]?.id ?? "");
    const norm = valueAt(picture.floats.norm, row);
    return norm === null || row === undefined ? null : norm / Math.sqrt(picture.integers.n[row]);
  };
  return factors.map(({ gradient, gradientBefore, from, to }) => {
    const row = picture.rows.get(topology.tensors[gradient]?.id ?? "");
    const [before, after] = [rms(gradientBefore, to), rms(gradient, from)];
    const isHidden = isKept(gradient) || isKept(gradientBefore);
    return {
      norm: isHidden ? null : valueAt(picture.floats.norm, row),
      rms: isHidden ? null : after,
      ratio: isHidden || before === null || after === null || before === 0 ? null : after / before,
      isHidden,
    };
  });
}
