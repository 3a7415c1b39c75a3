/** An op's cost and gradient rule, written with its own sizes. No DOM. */

import { count } from "../format.js";
import { ruleOf } from "../rules/gradient-rules.js";

/** @param {readonly number[]} sizes @returns {string} (200×50); () for a single number */
export function sizeText(sizes) {
  return `(${sizes.join("×")})`;
}

const ELEMENTWISE_COST =
  /** @type {Record<string, number>} */ ({ mse_loss: 3, cross_entropy: 4, batch_norm: 5, layer_norm: 5, softmax: 3 });
const REDUCTIONS = new Set(["sum", "mean", "norm", ...Object.keys(ELEMENTWISE_COST)]);

/** The FLOPs of an op as a product of its sizes: 2·200·100·50 = 2,000,000; only the number if no such product gives
 * it. @param {Op} op @param {(id: string) => Tensor | undefined} tensor @param {Op | null} twin of a backward op */
export function flopsText(op, tensor, twin = null) {
  const total = count(op.flops);
  if (op.flops === 0) return "0: this op computes nothing";
  if (twin !== null && op.name.includes("Backward")) {
    const times = op.flops / twin.flops;
    if (times === 1) return `${total}, as many as the forward op`;
    if (Number.isInteger(times))
      return `${times} · ${count(twin.flops)} = ${total}: one product of the forward op's size for each operand`;
    return total;
  }
  const inputs = op.inputs.map((id) => tensor(id)?.shape ?? []);
  const outputs = op.outputs.map((id) => tensor(id)?.shape ?? []);
  const [first = [], second = []] = inputs;
  const [out = []] = outputs;
  /** @type {readonly (readonly number[])[]} products that are added up */
  let terms;
  if (["matmul", "mm", "bmm", "linear"].includes(op.name)) {
    const product = [2, ...out.slice(0, -1), first.at(-1) ?? 1, ...out.slice(-1)];
    terms = op.name === "linear" && inputs.length > 2 ? [product, out] : [product];
  } else if (op.name === "addmm") terms = [[2, ...out.slice(0, -1), second.at(-1) ?? 1, ...out.slice(-1)], out];
  else if (op.name.startsWith("conv")) terms = [[2, ...out, ...second.slice(1)]];
  else if (op.name === "scaled_dot_product_attention") terms = [[4, ...first, second.at(-2) ?? 1]];
  else if (REDUCTIONS.has(op.name))
    terms = [[ELEMENTWISE_COST[op.name] ?? [], first].flat(2)];
  else terms = outputs;
  const sum = terms.reduce((result, factors) => result + factors.reduce((product, factor) => product * factor, 1), 0);
  const text = terms.map((factors) => factors.length === 0 ? "1" : factors.join("·")).join(" + ");
  return sum !== op.flops || /^\d+$/.test(text) ? total : `${text} = ${total}`;
}

/** Ops that only prepare an operand and do not change the rule. */
const PREPARING = new Set(["t", "T", "mT", "transpose", "squeeze", "unsqueeze", "view", "reshape", "flatten", "view_as",
  "contiguous", "to"]);

/** Sequences of ops that are one function with one rule: that rule's name. @type {Record<string, string>} */
const COMPOSITES = { "sub pow mean": "mse_loss", "log_softmax gather mean neg": "cross_entropy",
  "neg log_softmax gather mean": "cross_entropy" };

/** @typedef {(id: string) => readonly number[]} ShapeOf of a tensor */
/** @typedef {{rule: GradientRule, op: Op, operands: (string | undefined)[], output: string | undefined}} AppliedRule
 * op: the one whose attributes count; operands: tensor ids, as far as they are known */

/** @param {Op} op forward @param {ShapeOf} shapeOf @returns {AppliedRule | null} */
export function ruleOfCall(op, shapeOf) {
  const { name, attributes, inputs, outputs: [output] } = op;
  const rule = ruleOf(name, { attributes, operands: inputs.map(shapeOf), output: shapeOf(output ?? "") });
  return rule && { rule, op, operands: inputs, output };
}

/** The rule that a few forward ops follow together, if they are one function: matmul and add are a linear layer.
 * @param {readonly Op[]} ops forward, in order of execution
 * @param {boolean} isByHand whether their backward pass is written by hand @param {ShapeOf} shapeOf
 * @returns {AppliedRule | null} */
export function compositeRule(ops, isByHand, shapeOf) {
  const working = ops.filter(({ name }) => !PREPARING.has(name));
  const sequence = working.map(({ name }) => name).join(" ");
  const [head] = working;
  const last = working.at(-1);
  if (head === undefined || last === undefined) return null;
  const [first, second = ""] = head.inputs;
  const output = last.outputs[0] ?? "";
  const before = (/** @type {string | undefined} */ id) => beforePreparation(id, ops);
  /** @param {string} name of the rule @param {(string | undefined)[]} operands @returns {AppliedRule | null} */
  const applied = (name, operands) => {
    const rule = ruleOf(name);
    return rule && { rule, op: head, operands, output };
  };
  if (sequence === "matmul add") {
    const isTransposed = ops.some(({ name, outputs }) =>
      ["t", "T", "mT", "transpose"].includes(name) && outputs.includes(second)
    );
    const bias = last.inputs.find((id) => id !== head.outputs[0]);
    // A product of batches, or one to which another matrix is added, is no linear layer.
    const isLayer = bias !== undefined && shapeOf(bias).length === 1 && shapeOf(second).length === 2
      && shapeOf(output).length > 1 && (last.attributes["alpha"] ?? 1) === 1;
    return isLayer ? applied(isTransposed ? "linear" : "lin", [before(first), before(second), bias]) : null;
  }
  // Written by hand, the chapter's relu has slope 0 at 0, where autograd's clamp_min has 1.
  if (sequence === "clamp_min" && isByHand && head.attributes["min"] === 0) return applied("relu", [first]);
  const name = COMPOSITES[sequence];
  const hasOwnSettings = working.some((op) =>
    (op.name === "pow" && op.attributes["exponent"] !== 2)
    || (op.name === "mean" && shapeOf(op.outputs[0] ?? "").length > 0) || (op.attributes["alpha"] ?? 1) !== 1
  );
  if (name === "mse_loss" && !hasOwnSettings) {
    const sizes = [before(first), first, second, before(second)].map((id) => shapeOf(id ?? "").join());
    const [size, used, target, given] = sizes;
    // Broadcast, or given in another shape than by a squeeze: the ops have a rule each.
    const isOne = used === target && target === given && (size === used || size === `${used},1`);
    return isOne ? applied(size === used ? name : "mse_of_column", [before(first), before(second)]) : null;
  }
  if (name !== undefined && !hasOwnSettings) {
    const target = working.find((op) => op.name === "gather")?.inputs[1];
    return applied(name, [before(first), before(target)]);
  }
  return working.length !== 1 || ops.length === working.length ? null : ruleOfCall(head, shapeOf);
}

/** @param {string | undefined} id of a tensor @param {readonly Op[]} ops
 * @returns {string | undefined} the tensor that those of the ops which only prepare an operand made it of */
function beforePreparation(id, ops) {
  const maker = ops.find(({ outputs, name }) => id !== undefined && outputs.includes(id) && PREPARING.has(name));
  return maker === undefined ? id : beforePreparation(maker.inputs[0], ops);
}
