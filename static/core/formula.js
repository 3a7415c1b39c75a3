/**
 * Ops as mathematics: l1 = x @ w1 + b1, l1.g = (l1 > 0) · l2.g. The ops of one box are written as one expression per
 * tensor that leaves it; what stays inside is substituted. No DOM.
 */

import { operandsOf, ruleOf, writtenOut } from "./gradient-rules.js";

/** @typedef {import("./types.js").Op} Op */
/** @typedef {import("./types.js").Tensor} Tensor */

/** @typedef {{text: string, binds: number}} Term binds: how tightly, so that brackets stand only where needed */

const COMPARISON = 1;
const SUM = 2;
const PRODUCT = 3;
const SIGN = 4;
const POWER = 5;
const ATOM = 6;

/** Longer expressions are cut into several: the intermediate keeps its name. */
const LONGEST = 90;

/** @type {Record<string, [string, number]>} */
const BINARY = {
  matmul: ["@", PRODUCT],
  mm: ["@", PRODUCT],
  bmm: ["@", PRODUCT],
  add: ["+", SUM],
  add_: ["+", SUM],
  sub: ["−", SUM],
  rsub: ["−", SUM],
  mul: ["·", PRODUCT],
  mul_: ["·", PRODUCT],
  div: ["/", PRODUCT],
  rdiv: ["/", PRODUCT],
  gt: [">", COMPARISON],
  ge: ["≥", COMPARISON],
  lt: ["<", COMPARISON],
  le: ["≤", COMPARISON],
  eq: ["=", COMPARISON],
};

/** Ops that change how elements lie or are kept, not what they are. */
const SILENT = new Set(["to", "float", "type", "type_as", "contiguous", "view_as", "detach", "clone", "double", "half"]);

/** @type {Record<string, string>} */
const SUPERSCRIPT = { 2: "²", 3: "³", "-1": "⁻¹" };

/** @param {Term} term @param {number} level @returns {string} in brackets where it binds less tightly than `level` */
function bracketed(term, level) {
  return term.binds < level ? `(${term.text})` : term.text;
}

/** @param {unknown} value @returns {Term} constants to four digits */
function literal(value) {
  const text = typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);
  return { text: text.replace("-", "−"), binds: typeof value === "number" && value < 0 ? SIGN : ATOM };
}

/**
 * @param {Op} op
 * @param {readonly Term[]} inputs
 * @returns {Term}
 */
export function termOf(op, inputs) {
  const { name, attributes } = op;
  const [first] = inputs;
  if (first === undefined) return { text: `${name}()`, binds: ATOM };

  const binary = BINARY[name];
  const other = inputs[1] ?? ("other" in attributes ? literal(attributes["other"]) : undefined);
  if (binary !== undefined && other !== undefined) {
    const [symbol, level] = binary;
    // A factor stands in front: 2 · (a − b).
    const isSwapped = name.startsWith("r") || (symbol === "·" && inputs.length === 1);
    const [left, right] = isSwapped ? [other, first] : [first, other];
    // a − (b + c), a / (b · c), a @ (b @ c): the right side of these keeps its brackets.
    const strict = symbol === "+" || symbol === "·" ? level : level + 1;
    return { text: `${bracketed(left, level)} ${symbol} ${bracketed(right, strict)}`, binds: level };
  }
  if (name === "accumulate") {
    return { text: inputs.map((input) => bracketed(input, SUM)).join(" + "), binds: inputs.length > 1 ? SUM : first.binds };
  }
  if (name === "pow") {
    const exponent = inputs[1] ?? literal(attributes["exponent"] ?? "k");
    const raised = SUPERSCRIPT[exponent.text.replace("−", "-").replace(/\.0$/, "")];
    return { text: bracketed(first, ATOM) + (raised ?? `^${bracketed(exponent, ATOM)}`), binds: POWER };
  }
  if (name === "neg") return { text: `−${bracketed(first, SIGN)}`, binds: SIGN };
  if (name === "t" || name === "T" || name === "mT" || (name === "transpose" && inputs.length === 1)) {
    const isTwice = first.binds === ATOM && first.text.endsWith("ᵀ");
    return { text: isTwice ? first.text.slice(0, -1) : `${bracketed(first, ATOM)}ᵀ`, binds: ATOM };
  }
  if (name === "linear" && other !== undefined) {
    const bias = inputs[2];
    const product = `${bracketed(first, PRODUCT)} @ ${bracketed(other, ATOM)}ᵀ`;
    return bias === undefined ? { text: product, binds: PRODUCT } : { text: `${product} + ${bracketed(bias, SUM)}`, binds: SUM };
  }
  if (name === "clamp_min") return { text: `max(${first.text}, ${inputs[1]?.text ?? literal(attributes["min"] ?? 0).text})`, binds: ATOM };
  if (SILENT.has(name)) return first;
  const settings = Object.entries(attributes).filter(([, value]) => value !== null && value !== false && value !== "none");
  const written = settings.map(([key, value]) => (/^\d+$/.test(key) ? literal(value).text : `${key}=${literal(value).text}`));
  return { text: `${name}(${[...inputs.map(({ text }) => text), ...written].join(", ")})`, binds: ATOM };
}

/**
 * The gradient rule of a forward op, for the operand at `position`: what autograd's node for it computes. Null where the
 * table has no rule.
 *
 * @param {Op} forward
 * @param {readonly Term[]} operands of the forward op
 * @param {number} position
 * @param {Term} gradient of its output
 * @param {{operand: readonly number[], output: readonly number[]}} shapes of the operand and of the output
 * @returns {Term | null}
 */
export function gradientTerm(forward, operands, position, gradient, { operand: shape, output }) {
  const [first, second] = operands;
  const other = operands[1 - position] ?? ("other" in forward.attributes ? literal(forward.attributes["other"]) : undefined);
  /** @param {string} name @param {readonly Term[]} inputs @param {Record<string, unknown>} [attributes] */
  const apply = (name, inputs, attributes = {}) => termOf({ ...forward, name, attributes }, inputs);
  // A broadcast operand's gradient is summed over what it was broadcast along.
  const summed = (/** @type {Term} */ term) => (shape.length < output.length ? apply("sum", [term], { dim: 0 }) : term);
  switch (forward.name) {
    case "add":
      return summed(gradient);
    case "sub":
      return summed(position === 0 ? gradient : apply("neg", [gradient]));
    case "mul":
      return other === undefined ? null : summed(apply("mul", [gradient, other]));
    case "matmul":
    case "mm":
      if (first === undefined || second === undefined) return null;
      return position === 0 ? apply("matmul", [gradient, apply("t", [second])]) : apply("matmul", [apply("t", [first]), gradient]);
    case "linear":
      if (first === undefined || second === undefined) return null;
      if (position === 0) return apply("matmul", [gradient, second]);
      return position === 1 ? apply("matmul", [apply("t", [gradient]), first]) : apply("sum", [gradient], { dim: 0 });
    case "t":
      return apply("t", [gradient]);
    case "squeeze":
    case "unsqueeze":
    case "view":
    case "reshape":
      return gradient;
    case "relu":
      return first === undefined ? null : apply("mul", [apply("gt", [first], { other: 0 }), gradient]);
    case "tanh":
      return first === undefined ? null : { text: `(1 − tanh(${first.text})²) · ${bracketed(gradient, PRODUCT)}`, binds: PRODUCT };
    case "sigmoid":
      return first === undefined ? null : { text: `σ(${first.text}) · (1 − σ(${first.text})) · ${bracketed(gradient, PRODUCT)}`, binds: PRODUCT };
    case "pow": {
      const exponent = forward.attributes["exponent"];
      if (typeof exponent !== "number" || first === undefined) return null;
      const power = exponent === 2 ? first : apply("pow", [first], { exponent: exponent - 1 });
      return apply("mul", [gradient, apply("mul", [power], { other: exponent })]);
    }
    case "mean": {
      const n = shape.reduce((product, size) => product * size, 1) / output.reduce((product, size) => product * size, 1);
      return apply("div", [gradient], { other: n });
    }
    default:
      return null;
  }
}

/**
 * The same by the table of gradient rules where there is no shorter way to write it: what the gradient of the operand
 * at `position` is, the placeholders of the rule written out.
 *
 * @param {Op} forward
 * @param {readonly Term[]} operands
 * @param {number} position
 * @param {Term} gradient of its output
 * @param {{operand: readonly number[], output: readonly number[]}} shapes
 * @param {string} output what the output is called
 * @returns {Term | null} null where the table has no rule either
 */
export function ruleTerm(forward, operands, position, gradient, shapes, output) {
  const short = gradientTerm(forward, operands, position, gradient, shapes);
  if (short !== null) return short;
  const rule = ruleOf(forward.name);
  if (rule === null) return null;
  const names = operandsOf(rule, operands.length);
  const text = rule.gradients[rule.operands.indexOf(names[position] ?? "")];
  if (text == null) return null;
  /** @type {Record<string, string>} */
  const labels = { y: output };
  names.forEach((name, order) => {
    const operand = operands[order];
    if (operand !== undefined) labels[name] = bracketed(operand, ATOM);
  });
  const bracketedGradient = bracketed(gradient, /\{dy\}[^ ]/.test(text) ? ATOM : PRODUCT);
  const written = writtenOut(rule, text, labels, forward.attributes, () => bracketedGradient);
  // Rules in words bind as loosely as can be.
  return { text: written, binds: text === "{dy}" ? gradient.binds : / [+−] |[a-z]{3}/.test(text.replace(/\{\w+\}/g, "")) ? COMPARISON : PRODUCT };
}

/** Nodes of autograd that hand their gradient on as it is, in another shape. */
const RESHAPES = /^(UnsafeView|View|ReshapeAlias|Squeeze|Unsqueeze|Alias)Backward\d$/;
/** Those that get the gradients of all parts of a tensor. */
const PARTS = /^(Split|SplitWithSizes|Chunk|Unbind)Backward\d$/;
/** Those that are the matrix product inside of a linear layer. */
const PRODUCTS = /^(Addmm|Mm)Backward\d$/;

/**
 * What autograd's node writes to one of its outputs. Nodes read gradients alone; what else their rule needs stands with
 * the forward op.
 *
 * @param {Op} op
 * @param {string} output
 * @param {Op} forward
 * @param {{tensors: ReadonlyMap<string, Tensor>, ops: ReadonlyMap<string, Op>}} all
 * @param {(tensor: string) => Term} termFor
 * @returns {Term | null} null where no rule is known
 */
function nodeTerm(op, output, forward, { tensors, ops }, termFor) {
  const [gradient] = op.inputs;
  if (gradient === undefined) return null;
  if (PARTS.test(op.name)) return termOf({ ...op, name: "cat", attributes: { dim: forward.attributes["dim"] ?? 0 } }, op.inputs.map(termFor));
  if (op.inputs.length !== 1) return null;
  const made = forward.outputs[0] ?? "";
  const from = termFor(gradient);
  // A linear layer's gradient is several nodes: each is written as what it does itself.
  if (forward.name === "linear") {
    if (RESHAPES.test(op.name)) return from;
    if (op.name === "TBackward0") return termOf({ ...op, name: "t", attributes: {} }, [from]);
    const [x, w] = forward.inputs.map(termFor);
    if (!PRODUCTS.test(op.name) || x === undefined || w === undefined) return null;
    const apply = (/** @type {string} */ name, /** @type {Term[]} */ inputs, attributes = {}) => termOf({ ...op, name, attributes }, inputs);
    const [shape, weight] = [tensors.get(output)?.shape ?? [], tensors.get(forward.inputs[1] ?? "")?.shape ?? []];
    if (shape.length < 2) return apply("sum", [from], { dim: 0 });
    const matrices = op.outputs.filter((id) => (tensors.get(id)?.shape.length ?? 0) > 1);
    const isOfInput = matrices.length > 1 ? matrices[0] === output : shape[0] !== weight[1] || shape[1] !== weight[0];
    return isOfInput ? apply("matmul", [from, w]) : apply("matmul", [apply("t", [x]), from]);
  }
  // One of several shares of a gradient is called after what they are added up to.
  const whole = ops.get(tensors.get(output)?.consumers[0] ?? "");
  const of = tensors.get(output)?.gradient_of ?? (whole?.name === "accumulate" ? tensors.get(whole.outputs[0] ?? "")?.gradient_of : null);
  const position = of == null ? -1 : forward.inputs.indexOf(of);
  if (position < 0) return null;
  const shapes = { operand: tensors.get(of ?? "")?.shape ?? [], output: tensors.get(made)?.shape ?? [] };
  return ruleTerm(forward, forward.inputs.map(termFor), position, from, shapes, termFor(made).text);
}

/**
 * @param {readonly Op[]} ops in order of execution
 * @param {ReadonlyMap<string, Op>} allOps for the forward ops that autograd's nodes are the backward of
 * @param {ReadonlyMap<string, Tensor>} tensors
 * @param {(tensor: string) => string} label what a tensor is called: its name, or its shape
 * @param {(tensor: string) => boolean} isKept whether a tensor is named rather than substituted
 * @returns {{tensor: string, text: string}[]} one definition per kept output
 */
export function definitions(ops, allOps, tensors, label, isKept) {
  /** @type {Map<string, Term>} */
  const terms = new Map();
  /** @param {string} id @returns {Term} */
  const termFor = (id) => terms.get(id) ?? { text: label(id), binds: ATOM };

  /** @param {Op} op @param {string} output @returns {Term | null} */
  const ruleFor = (op, output) => {
    const forward = op.name.includes("Backward") && op.twin !== null ? allOps.get(op.twin) : undefined;
    return forward === undefined ? null : nodeTerm(op, output, forward, { tensors, ops: allOps }, termFor);
  };

  // What the forward ops of these keep to themselves is substituted as well.
  const twins = new Set(ops.map(({ twin }) => twin));
  for (const op of allOps.values()) {
    const [output] = op.outputs;
    if (!twins.has(op.id) || op.outputs.length !== 1 || output === undefined || isKept(output)) continue;
    const term = termOf(op, op.inputs.map(termFor));
    if (term.text.length <= LONGEST) terms.set(output, term);
  }

  const defined = [];
  for (const op of ops) {
    for (const output of op.outputs) {
      const rule = ruleFor(op, output);
      const term = rule ?? termOf(op, op.inputs.map(termFor));
      const isOneOfSeveral = rule === null && op.outputs.length > 1;
      if (isKept(output) || term.text.length > LONGEST || isOneOfSeveral) defined.push({ tensor: output, text: term.text });
      else terms.set(output, term);
    }
  }
  return defined;
}
