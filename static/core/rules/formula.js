/**
 * Ops as mathematics: l1 = x @ w1 + b1, l1.g = (l1 > 0) · l2.g. The ops of one box are written as one expression per
 * tensor that leaves it; what stays inside is substituted. No DOM.
 */

import { gradientText, operandsOf, ruleOf, writtenOut } from "./gradient-rules.js";
import { alphaOf } from "./settings.js";
import { ATOM, bracketed, COMPARISON, literal, POWER, PRODUCT, productOf, scalarTerm, termOf } from "./terms.js";

/** Longer expressions are split: an intermediate keeps its name. */
const LONGEST = 90;

/** @param {FormulaTerm} term in the shape of an output @param {readonly number[]} shape of an operand that was
 * stretched to it @param {readonly number[]} output @returns {FormulaTerm} summed over the axes along which the operand
 * was repeated, as torch writes it */
function summedTo(term, shape, output) {
  const front = output.length - shape.length;
  const dropped = output.slice(0, Math.max(0, front)).map((_, axis) => axis);
  const kept = shape.flatMap((size, axis) => size === 1 && output[axis + front] !== 1 ? [axis] : []);
  const over = (/** @type {readonly number[]} */ axes) => `dim=${axes.length === 1 ? axes[0] : `(${axes.join(", ")})`}`;
  let { text, binds } = term;
  if (dropped.length > 0)
    [text, binds] = [shape.length === 0 ? `sum(${text})` : `sum(${text}, ${over(dropped)})`, ATOM];
  if (kept.length > 0) [text, binds] = [`sum(${text}, ${over(kept)}, keepdim=True)`, ATOM];
  return { text, binds };
}

/** The gradient of a factor of a matrix product. Vectors are rows or columns as it needs them, and a matrix that was
 * used for a whole batch gets the sum over it. @param {readonly [FormulaTerm, FormulaTerm]} factors
 * @param {number} position @param {FormulaTerm} gradient @param {{operand: readonly number[], output: readonly number[]}} shapes @returns {FormulaTerm | null} null
 * where no short expression has the right shape */
function productGradient([x, w], position, gradient, { operand, output }) {
  const matmul = (/** @type {FormulaTerm} */ left, /** @type {FormulaTerm} */ right) => ({
    text: `${bracketed(left, PRODUCT)} @ ${bracketed(right, PRODUCT + 1)}`,
    binds: PRODUCT,
  });
  const outer = (/** @type {FormulaTerm} */ left, /** @type {FormulaTerm} */ right) => ({
    text: `${bracketed(left, PRODUCT + 1)} ⊗ ${bracketed(right, PRODUCT + 1)}`,
    binds: PRODUCT,
  });
  const turned = (/** @type {FormulaTerm} */ term) => termOf({ ...NOTHING, name: "t" }, [term]);
  const other = position === 0 ? w : x;
  if (operand.length === 1) {
    if (output.length === 0) return productOf(gradient, other);
    if (output.length > 1) return null;
    return position === 0 ? matmul(gradient, turned(w)) : matmul(turned(x), gradient);
  }
  if (output.length < operand.length) {
    if (position === 0) return outer(gradient, w);
    return operand.length === 2 ? outer(x, gradient) : null;
  }
  const term = position === 0 ? matmul(gradient, turned(w)) : matmul(turned(x), gradient);
  return summedTo(term, operand, [...output.slice(0, -2), ...operand.slice(-2)]);
}

/** A blank op for building terms. @type {Op} */
const NOTHING = { id: "", name: "", inputs: [], outputs: [], phase: "forward", module: "", twin: null, source: null,
  flops: 0, bytes: 0, attributes: {} };

/** The gradient rule of a forward op, for the operand at `position`: what autograd's node for it computes. Null where
 * the table has no rule. @param {Op} forward @param {readonly FormulaTerm[]} operands of the forward op
 * @param {number} position @param {FormulaTerm} gradient of its output
 * @param {{operand: readonly number[], output: readonly number[]}} shapes of the operand and of the output */
export function gradientTerm(forward, operands, position, gradient, { operand: shape, output }) {
  const [first, second] = operands;
  const { attributes: settings } = forward;
  // A number in front makes a second operand of the first tensor, and what is rounded has no slope.
  if ("input" in settings || settings["rounding_mode"] != null) return null;
  const other = operands[1 - position] ?? scalarTerm(forward);
  const alpha = alphaOf(settings);
  /** @param {string} name @param {readonly FormulaTerm[]} inputs @param {Record<string, unknown>} [attributes] */
  const apply = (name, inputs, attributes = {}) => termOf({ ...forward, name, attributes }, inputs);
  // A broadcast operand's gradient is summed over what it was broadcast along.
  const summed = (/** @type {FormulaTerm} */ term) => summedTo(term, shape, output);
  const scaled = (/** @type {FormulaTerm} */ term) =>
    position === 0 || alpha === 1 ? term : productOf(literal(alpha), term);
  switch (forward.name) {
    case "add":
    case "add_":
      return summed(scaled(gradient));
    case "sub":
    case "sub_":
      return summed(
        position === 0 ? gradient : alpha === 1 ? apply("neg", [gradient]) : productOf(literal(-alpha), gradient),
      );
    case "mul":
    case "mul_":
      if (other === undefined) return null;
      return operands.length === 1 ? productOf(other, gradient) : summed(apply("mul", [gradient, other]));
    case "matmul":
    case "mm":
    case "bmm":
      if (second === undefined) return null;
      return productGradient([first, second], position, gradient, { operand: shape, output });
    case "lin":
      if (second === undefined) return null;
      return position < 2 ? productGradient([first, second], position, gradient, { operand: shape, output })
        : summed(gradient);
    case "linear":
      if (second === undefined) return null;
      if (position === 0) return apply("matmul", [gradient, second]);
      if (position === 2) return summed(gradient);
      if (output.length < 2)
        return { text: `${bracketed(gradient, POWER)} ⊗ ${bracketed(first, POWER)}`, binds: PRODUCT };
      return summedTo(apply("matmul", [apply("t", [gradient]), first]), shape, [...output.slice(0, -2), ...shape]);
    case "t":
      return apply("t", [gradient]);
    case "squeeze":
    case "unsqueeze":
    case "view":
    case "reshape":
    case "flatten":
    case "clone":
    case "contiguous":
      return gradient;
    case "relu":
      return apply("mul", [apply("gt", [first], { other: 0 }), gradient]);
    case "tanh":
      return { text: `(1 − tanh(${first.text})²) · ${bracketed(gradient, PRODUCT)}`, binds: PRODUCT };
    case "sigmoid":
      return { text: `σ(${first.text}) · (1 − σ(${first.text})) · ${bracketed(gradient, PRODUCT)}`, binds: PRODUCT };
    case "pow": {
      const exponent = forward.attributes["exponent"];
      if (typeof exponent !== "number") return null;
      const power = exponent === 2 ? first : apply("pow", [first], { exponent: exponent - 1 });
      return apply("mul", [gradient, apply("mul", [power], { other: exponent })]);
    }
    case "mean": {
      // An average over an axis that is gone cannot be divided and repeated in one.
      if (output.length > 0 && output.length < shape.length) return null;
      const n = shape.reduce((product, size) => product * size, 1)
        / output.reduce((product, size) => product * size, 1);
      return apply("div", [gradient], { other: n });
    }
    default:
      return null;
  }
}

/** The same by the table of gradient rules where there is no shorter way to write it: what the gradient of the operand
 * at `position` is, the placeholders of the rule written out. @param {Op} forward
 * @param {readonly FormulaTerm[]} operands @param {number} position @param {FormulaTerm} gradient of its output
 * @param {{operands: readonly (readonly number[])[], output: readonly number[]}} shapes @param {string} output what the
 * output is called @param {GradientRule | null} [rule] where it is known already: a few ops together follow one of
 * another name @returns {FormulaTerm | null} null where the table has no rule either */
export function ruleTerm(
  forward,
  operands,
  position,
  gradient,
  shapes,
  output,
  rule = ruleOf(forward.name, { ...shapes, attributes: forward.attributes }),
) {
  const shape = shapes.operands[position] ?? [];
  const short = gradientTerm(forward, operands, position, gradient, { operand: shape, output: shapes.output });
  // A gradient that only changes its shape is described by the table's rule, if there is one.
  if (short !== null && (rule === null || short.text !== gradient.text || shape.join() === shapes.output.join()))
    return short;
  if (rule === null) return null;
  const names = operandsOf(rule, operands.length);
  const text = gradientText(rule, names[position] ?? "");
  if (text === null) return null;
  /** @type {Record<string, string>} */
  const labels = { y: output };
  names.forEach((name, order) => {
    const operand = operands[order];
    if (operand !== undefined) labels[name] = bracketed(operand, ATOM);
  });
  const scalar = rule.operands[1] === "b" && operands.length === 1 ? scalarTerm(forward) : undefined;
  if (scalar !== undefined) labels["b"] = bracketed(scalar, ATOM);
  const pattern = text.replaceAll("({dy})", "{dy}");
  const bracketedGradient = bracketed(gradient, /\{dy\}ᵀ/.test(pattern) ? ATOM : PRODUCT);
  const written = writtenOut(rule, pattern, labels, forward.attributes, () => bracketedGradient, { ...shapes,
    attributes: forward.attributes });
  // Rules in words get brackets everywhere.
  const binds = text === "{dy}" ? gradient.binds
    : / [+−] |[a-z]{3}/.test(text.replace(/\{[^}]+\}/g, "")) ? COMPARISON : PRODUCT;
  return rule.isElementwise === true ? summedTo({ text: written, binds }, shape, shapes.output)
    : { text: written, binds };
}

/** Nodes of autograd that hand their gradient on as it is, in another shape. */
const RESHAPES = /^(UnsafeView|View|ReshapeAlias|Squeeze|Unsqueeze|Alias)Backward\d$/;
/** Those that get the gradients of all parts of a tensor. */
const PARTS = /^(Split|SplitWithSizes|Chunk|Unbind)Backward\d$/;
/** Those that may hand it on in the same shape as well. */
const SAME = /^(Clone|Expand|Add)Backward\d$/;
/** Those that are the matrix product inside of a linear layer. */
const PRODUCTS = /^(Addmm|Mm)Backward\d$/;

/** The term that a node of autograd writes to one output. Nodes record only gradients: the other operands come from the
 * forward op. @param {Op} op @param {string} output @param {Op} forward
 * @param {{tensors: ReadonlyMap<string, Tensor>, ops: ReadonlyMap<string, Op>}} all
 * @param {(tensor: string) => FormulaTerm} termFor @returns {FormulaTerm | null} null where no rule is known */
function nodeTerm(op, output, forward, { tensors, ops }, termFor) {
  const [gradient] = op.inputs;
  if (gradient === undefined) return null;
  if (PARTS.test(op.name))
    return termOf({ ...op, name: "cat", attributes: { dim: forward.attributes["dim"] ?? 0 } }, op.inputs.map(termFor));
  if (op.inputs.length !== 1) return null;
  const made = forward.outputs[0] ?? "";
  const from = termFor(gradient);
  // A linear layer's gradient takes several nodes, each written as its own operation.
  if (forward.name === "linear") {
    const isSame = (tensors.get(gradient)?.shape ?? []).join() === (tensors.get(output)?.shape ?? []).join();
    if (RESHAPES.test(op.name) || (isSame && SAME.test(op.name))) return from;
    if (op.name === "TBackward0") return termOf({ ...op, name: "t", attributes: {} }, [from]);
    if (op.name === "AddBackward0")
      return summedTo(from, tensors.get(output)?.shape ?? [], tensors.get(gradient)?.shape ?? []);
    const [x, w] = forward.inputs.map(termFor);
    if (!PRODUCTS.test(op.name) || x === undefined || w === undefined) return null;
    const apply = (/** @type {string} */ name, /** @type {FormulaTerm[]} */ inputs, attributes = {}) =>
      termOf({ ...op, name, attributes }, inputs);
    const [shape, weight] = [tensors.get(output)?.shape ?? [], tensors.get(forward.inputs[1] ?? "")?.shape ?? []];
    if (shape.length < 2) return summedTo(from, shape, tensors.get(gradient)?.shape ?? []);
    const matrices = op.outputs.filter((id) => (tensors.get(id)?.shape.length ?? 0) > 1);
    const isOfInput = matrices.length > 1 ? matrices[0] === output : shape[0] !== weight[1] || shape[1] !== weight[0];
    // The node multiplies matrices: inputs with more axes were flattened to rows.
    const axes = tensors.get(forward.inputs[0] ?? "")?.shape.length ?? 2;
    const rows = axes > 2 ? { text: `flatten(${x.text}, 0, ${axes - 2})`, binds: ATOM } : x;
    return isOfInput ? apply("matmul", [from, w]) : apply("matmul", [apply("t", [rows]), from]);
  }
  // One of several shares of a gradient is called after what they are added up to.
  const whole = ops.get(tensors.get(output)?.consumers[0] ?? "");
  const of = tensors.get(output)?.gradient_of
    ?? (whole?.name === "accumulate" ? tensors.get(whole.outputs[0] ?? "")?.gradient_of : null);
  // The gradient of another root than the loss is of no tensor: it is of the only input of its shape.
  const shape = String(tensors.get(output)?.shape);
  const alike = forward.inputs.filter((id) => String(tensors.get(id)?.shape) === shape);
  const position = of == null && alike.length !== 1 ? -1 : forward.inputs.indexOf(of ?? alike[0] ?? "");
  if (position < 0) return null;
  const shapes = { operands: forward.inputs.map((id) => tensors.get(id)?.shape ?? []),
    output: tensors.get(made)?.shape ?? [] };
  // If one op has several nodes, the rule starts at the input of the first.
  let start = gradient;
  for (;;) {
    const maker = ops.get(tensors.get(start)?.producer ?? "");
    if (maker === undefined || maker.twin !== op.twin || !maker.name.includes("Backward")) break;
    const [read] = maker.inputs;
    if (read === undefined || maker.inputs.length > 1) return null;
    start = read;
  }
  return ruleTerm(forward, forward.inputs.map(termFor), position, termFor(start), shapes, termFor(made).text);
}

/** @param {readonly Op[]} ops in order of execution @param {ReadonlyMap<string, Op>} allOps for the forward ops that
 * autograd's nodes are the backward of @param {ReadonlyMap<string, Tensor>} tensors
 * @param {(tensor: string) => string} label what a tensor is called: its name, or its shape
 * @param {(tensor: string) => boolean} isKept whether a tensor is named rather than substituted
 * @returns {{tensor: string, text: string}[]} one definition per kept output */
export function definitions(ops, allOps, tensors, label, isKept) {
  /** @type {Map<string, FormulaTerm>} */
  const terms = new Map();
  /** @param {string} id @returns {FormulaTerm} */
  const termFor = (id) => terms.get(id) ?? { text: label(id), binds: ATOM };

  /** @param {Op} op @returns {number | undefined} */
  const axesOf = (op) => tensors.get(op.inputs[0] ?? "")?.shape.length;

  /** @param {Op} op @param {string} output @returns {FormulaTerm | null} */
  const ruleFor = (op, output) => {
    const forward = op.name.includes("Backward") && op.twin !== null ? allOps.get(op.twin) : undefined;
    return forward === undefined ? null : nodeTerm(op, output, forward, { tensors, ops: allOps }, termFor);
  };

  // Intermediates of their forward ops are substituted too.
  const twins = new Set(ops.map(({ twin }) => twin));
  for (const op of allOps.values()) {
    const [output] = op.outputs;
    if (!twins.has(op.id) || op.outputs.length !== 1 || output === undefined || isKept(output)) continue;
    const term = termOf(op, op.inputs.map(termFor), axesOf(op));
    if (term.text.length <= LONGEST) terms.set(output, term);
  }

  const defined = [];
  for (const op of ops) {
    for (const output of op.outputs) {
      const rule = ruleFor(op, output);
      const term = rule ?? termOf(op, op.inputs.map(termFor), axesOf(op));
      const isOneOfSeveral = rule === null && op.outputs.length > 1;
      if (isKept(output) || term.text.length > LONGEST || isOneOfSeveral)
        defined.push({ tensor: output, text: term.text });
      else terms.set(output, term);
    }
  }
  return defined;
}
