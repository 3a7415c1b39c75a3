/** Where ±Inf and NaN begin, and the arithmetic that made them, in words: the first tensor of a pass that holds one is
 * followed back to the op that wrote it, and the figures of that op's operands say what happened. No DOM. */

import { count, significant, valueAt } from "../format.js";
import { memo } from "../memo.js";
import { rowIndex } from "../picture.js";
import { gradientTerm } from "../rules/formula.js";
import { termOf } from "../rules/terms.js";

/** @typedef {{label: string, n: number, largest: number | null, low: number, high: number, inf: number, posinf: number,
 * neginf: number, nan: number, zeros: number}} Operand */

/** Largest finite number of each dtype. @type {Record<string, number>} */
const LARGEST = { float16: 65504, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38,
  float64: Number.MAX_VALUE };

/** Ops that keep the values of their input. */
const SAME_VALUES = new Set(
  ("squeeze unsqueeze view view_as reshape flatten contiguous detach clone to "
    + "SqueezeBackward0 SqueezeBackward1 SqueezeBackward2 UnsqueezeBackward0 ViewBackward0 AddBackward0 AccumulateGrad")
    .split(" "),
);
const TRANSPOSES = new Set(["t", "T", "mT", "TBackward0"]);
const PRODUCTS = new Set(["matmul", "mm", "bmm", "linear", "addmm"]);
/** Autograd's node for an addition sums the gradient of what was broadcast. */
const SUMS = new Set(["sum", "mean", "AddBackward0"]);
const SLOPES = /^(Relu|LeakyRelu|Tanh|Sigmoid|Gelu|Silu|Elu|Selu)Backward0$/;
/** x times something that is 0 at −∞. */
const GATES = new Set(["gelu", "silu", "mish"]);
const LONGEST_LABEL = 40;

/** The first ±Inf and the first NaN of a pass: in the order of execution, so that a gradient is named only where the
 * forward pass is finite. @param {Picture} picture
 * @returns {{inf: NonFiniteCause | null, nan: NonFiniteCause | null}} both null while a figure is hidden */
export function firstNonFinite(picture) {
  const { topology, integers } = picture;
  if (picture.hidden !== null) return { inf: null, nan: null };
  const plan = planOf(topology);
  const { posinf, neginf, nan } = integers;
  const inf = plan.named.find(({ row }) => posinf[row] + neginf[row] > 0);
  const notNumber = plan.named.find(({ row }) => nan[row] > 0);
  return { inf: inf === undefined ? null : explain(picture, plan, "Inf", inf),
    nan: notNumber === undefined ? null : explain(picture, plan, "NaN", notNumber) };
}

/** @typedef {ReturnType<typeof build>} Plan */
const planOf = memo(build);

/** The part that depends on the topology alone; named: tensors with a name of their own, in order of execution.
 * @param {Topology} topology */
function build(topology) {
  const { ops, tensors: all, layers } = topology;
  const rows = rowIndex(topology);
  const tensors = new Map(all.map((tensor) => [tensor.id, tensor]));
  const order = new Map(ops.flatMap(({ outputs }, place) => outputs.map((id) => [id, place])));
  const owner = new Map(layers.flatMap(({ index, weight, bias }) => [weight, bias].map((id) => [id ?? "", index])));
  const ends = layers.map(({ index, activation }) => ({ index, end: order.get(activation ?? "") ?? -1 }));

  /** @param {Tensor} tensor @returns {number | null} */
  const layerOf = ({ id, role, gradient_of }) => {
    const forward = gradient_of === null ? undefined : tensors.get(gradient_of);
    if (forward !== undefined) return layerOf(forward);
    const place = order.get(id);
    if (place === undefined) return role === "input" ? 0 : (owner.get(id) ?? null);
    return ends.find(({ end }) => end >= place)?.index ?? null;
  };

  /** @type {Map<string, {tensor: Tensor, row: number, isBackward: boolean}>} */
  const named = new Map();
  for (const { phase, inputs, outputs } of ops) {
    for (const id of [...inputs.filter((input) => !order.has(input)), ...outputs]) {
      const tensor = tensors.get(id);
      const row = rows.get(id);
      if (tensor === undefined || row === undefined || !isNamed(tensor, tensors)) continue;
      if (!named.has(id))
        named.set(id, { tensor, row, isBackward: phase === "backward" && tensor.gradient_of !== null });
    }
  }
  return { named: [...named.values()], ops: new Map(ops.map((op) => [op.id, op])), tensors, layerOf };
}

/** @param {Tensor} tensor @param {ReadonlyMap<string, Tensor>} tensors @returns {boolean} */
function isNamed({ role, gradient_of }, tensors) {
  return role !== "intermediate" && (gradient_of === null || tensors.get(gradient_of)?.role !== "intermediate");
}

/** layer: 0 for the input, null outside of all, as the loss is; tensor: id of the first that holds it
 * @param {Picture} picture @param {Plan} plan @param {NonFiniteKind} kind
 * @param {{tensor: Tensor, isBackward: boolean}} first */
export function explain(picture, plan, kind, { tensor, isBackward }) {
  const writer = new Account(picture, plan);
  const layer = plan.layerOf(tensor);
  const isLoss = layer === null && tensor.producer !== null && picture.topology.layers.length > 0;
  const place = isLoss ? "loss"
    : layer === null ? tensor.name : `${layer === 0 ? "input" : `layer ${layer}`}, ${tensor.name}`;
  return { kind, layer, tensor: tensor.id, isBackward, text: `${place}: ${writer.of(tensor, kind)}` };
}

class Account {
  /** @param {Picture} picture @param {Plan} plan */
  constructor(picture, plan) {
    this.picture = picture;
    this.plan = plan;
  }

  /** @param {Tensor} tensor @param {NonFiniteKind} kind @returns {string} */
  of(tensor, kind) {
    const { op, output } = this.#origin(tensor, kind);
    if (op === null)
      return `${output.name} had these values before the pass; its numbers do not fit ${output.dtype}: ${
        this.#share(output, kind)
      }.`;
    return this.#sentence(op, output, kind);
  }

  /** Follow the inputs with such values back, to the op without such an input. @param {Tensor} tensor
   * @param {NonFiniteKind} kind */
  #origin(tensor, kind) {
    let output = tensor;
    for (;;) {
      const op = this.plan.ops.get(output.producer ?? "") ?? null;
      const from = op === null ? undefined : this.#operandsOf(op, output).find((id) =>
        (this.#operand(id)?.[kind === "Inf" ? "inf" : "nan"] ?? 0) > 0
      );
      const input = this.plan.tensors.get(from ?? "");
      if (input === undefined || input === output) return { op, output };
      output = input;
    }
  }

  /** The ids of an op's operands. An autograd node records only its gradient; the forward op has the other operands.
   * @param {Op} op @param {Tensor} output */
  #operandsOf(op, output) {
    const forward = this.#forwardOf(op);
    if (forward === null) return op.inputs;
    const others = PRODUCTS.has(forward.name) ? forward.inputs.slice(0, 2).filter((id) => id !== output.gradient_of)
      : forward.inputs;
    const isReader = PRODUCTS.has(forward.name) || forward.name === "mul" || forward.name === "pow"
      || SLOPES.test(op.name);
    return isReader ? [...op.inputs, ...others] : op.inputs;
  }

  /** @param {Op} op @returns {Op | null} the forward op of an autograd node */
  #forwardOf({ name, twin }) {
    return name.includes("Backward") && twin !== null ? (this.plan.ops.get(twin) ?? null) : null;
  }

  /** @param {Op} op @param {Tensor} output @param {NonFiniteKind} kind @returns {string} */
  #sentence(op, output, kind) {
    const forward = this.#forwardOf(op);
    const name = forward?.name ?? op.name;
    const isProduct = PRODUCTS.has(name) && output.shape.length > 1;
    const isSum = !isProduct && (PRODUCTS.has(name) || SUMS.has(op.name));
    const operands = this.#operandsOf(op, output).flatMap((id) => this.#operand(id) ?? []);
    const terms = isProduct ? this.#termsOf(op, output, forward) : (operands[0]?.n ?? 0) / nOf(output.shape);
    const largest = LARGEST[output.dtype] ?? Infinity;
    /** @type {Step} */
    const step = {
      name,
      expression: this.#expression(op, output, forward),
      operands,
      sum: isProduct || isSum
        ? `${count(terms)} ${isProduct ? "products" : "values"}${name === "mean" ? " before it divides" : ""}` : "",
      slope: forward !== null && SLOPES.test(op.name) ? this.#label(op.inputs[0] ?? "").text : "",
      exponent: op.attributes["exponent"],
      largest,
      limit: `${output.dtype}'s largest number, ${largest < 1e5 ? count(largest) : significant(largest)}`,
      nan: this.#operand(output.id)?.nan ?? 0,
      share: this.#share(output, kind),
    };
    return kind === "Inf" ? overflow(step) : notANumber(step);
  }

  /** The number of products in one element. @param {Op} op @param {Tensor} output @param {Op | null} forward */
  #termsOf(op, output, forward) {
    const [first] = op.inputs;
    const shape = this.plan.tensors.get(first ?? "")?.shape ?? [];
    if (forward === null || forward.inputs.indexOf(output.gradient_of ?? "") === 0) return shape.at(-1) ?? 1;
    return nOf(shape) / (shape.at(-1) ?? 1);
  }

  /** @param {Op} op @param {Tensor} output @param {Op | null} forward @returns {string} */
  #expression(op, output, forward) {
    const [gradient] = op.inputs;
    if (forward !== null && gradient !== undefined) {
      const position = forward.inputs.indexOf(output.gradient_of ?? "");
      const [operand, result] = [forward.inputs[position], forward.outputs[0]].map((id) =>
        this.plan.tensors.get(id ?? "")?.shape ?? []
      );
      const terms = forward.inputs.map((id) => this.#label(id));
      const rule = position < 0 || operand === undefined || result === undefined ? null
        : gradientTerm(forward, terms, position, this.#label(gradient), { operand, output: result });
      if (rule !== null) return rule.text;
    }
    return termOf(op, op.inputs.map((id) => this.#label(id))).text;
  }

  /** A tensor's name, or the expression of an unnamed tensor. @param {string} id @param {number} [depth]
   * @returns {FormulaTerm} */
  #label(id, depth = 0) {
    const tensor = this.plan.tensors.get(id);
    const op = this.plan.ops.get(tensor?.producer ?? "");
    if (tensor === undefined || op === undefined || isNamed(tensor, this.plan.tensors))
      return { text: tensor?.name ?? id, binds: Infinity };
    const unwritten = { text: "(…)", binds: Infinity };
    if (depth > 4) return unwritten;
    const inputs = op.inputs.map((input) => this.#label(input, depth + 1));
    const [first] = inputs;
    if (first !== undefined && SAME_VALUES.has(op.name)) return first;
    if (op.name.includes("Backward")) return TRANSPOSES.has(op.name) ? termOf({ ...op, name: "t" }, inputs) : unwritten;
    const term = termOf(op, inputs);
    return term.text.length > LONGEST_LABEL ? unwritten : term;
  }

  /** @param {string} id @returns {Operand | null} null without statistics */
  #operand(id) {
    const { rows, floats, integers } = this.picture;
    const row = rows.get(id);
    if (row === undefined) return null;
    const [low, high] = [valueAt(floats.min, row), valueAt(floats.max, row)];
    const [posinf, neginf] = [integers.posinf[row], integers.neginf[row]];
    return {
      // A transposed matrix is as large as the matrix.
      label: this.#label(id).text.replace(/ᵀ$/, ""),
      n: integers.n[row],
      largest: low === null || high === null ? null : Math.max(Math.abs(low), Math.abs(high)),
      low: neginf > 0 ? -Infinity : (low ?? 0),
      high: posinf > 0 ? Infinity : (high ?? 0),
      inf: posinf + neginf,
      posinf,
      neginf,
      nan: integers.nan[row],
      zeros: valueAt(floats.zero_fraction, row) ?? 0,
    };
  }

  /** @param {Tensor} tensor @param {NonFiniteKind} kind @returns {string} */
  #share(tensor, kind) {
    const operand = this.#operand(tensor.id);
    const [bad, n] = [(kind === "NaN" ? operand?.nan : operand?.inf) ?? 0, operand?.n ?? 0];
    const values = n === 1 ? "its one value"
      : bad === n ? `all ${count(n)} values` : `${count(bad)} of ${count(n)} values`;
    return kind === "NaN" || operand === null ? values
      : `${values} ${bad === 1 || n === 1 ? "is" : "are"} ${infWord(operand)}`;
  }
}

/** Facts about the op that wrote the first ±Inf or NaN. name: of the forward op; sum: the number of values or products
 * that each element sums; slope: the factor of the slope of an activation; both "" for none; largest: the largest number
 * of the dtype; limit: the same in words; nan: the count in the output; share: the affected values, in words
 * @typedef {{name: string, expression: string, operands: readonly Operand[], sum: string, slope: string,
 * exponent: unknown, largest: number, limit: string, nan: number, share: string}} Step */

/** @param {Step} step @returns {string} why finite numbers became ±Inf */
function overflow({ name, expression, operands, sum, exponent, largest, limit, share }) {
  const sizes = sizesOf(operands);
  const size = sizes === "" ? "" : ` (${sizes})`;
  if (sum !== "") return `${expression} sums ${sum}${size} and exceeds ${limit}: ${share}.`;
  const [operand] = operands;
  if (operand !== undefined && ((name === "pow" && exponent === 2) || name === "exp")) {
    const from = name === "exp" ? Math.log(largest) : Math.sqrt(largest);
    return `${expression} exceeds ${limit}, if |${operand.label}| > ${significant(from)}; here it reaches ${
      significant(operand.largest)
    }: ${share}.`;
  }
  if (GATES.has(name)) return `a number inside ${expression}${size} exceeds ${limit}: ${share}.`;
  return `${expression}${size} exceeds ${limit}: ${share}.`;
}

/** @param {Step} step @returns {string} why numbers, finite or not, became NaN */
function notANumber({ name, expression, operands, sum, slope, largest, nan, share }) {
  const infinite = operands.filter(({ inf }) => inf > 0);
  const held = infinite.map((operand) => `${operand.label}'s ${count(operand.inf)} ${infWord(operand)}`).join(" and ");
  if (sum !== "" && infinite.length === 0) {
    return `${expression} sums ${sum} (${sizesOf(operands)}); partial sums exceed ±${
      significant(largest)
    }, and Inf − Inf is NaN: ${share}.`;
  }
  if (sum !== "") {
    const others = (/** @type {Operand} */ one) => operands.filter((other) => other !== one);
    const isMixed = infinite.some((one) => one.posinf > 0 && one.neginf > 0);
    const isSigned = infinite.some((one) => others(one).some(({ low, high }) => low < 0 && high > 0));
    const hasZeros = infinite.some((one) => others(one).some(({ zeros }) => zeros > 0));
    const factor = operands.length < 2 ? ""
      : isSigned ? " times numbers of both signs" : hasZeros ? " times numbers, some of them 0" : "";
    const reasons = [...(isMixed || isSigned || !hasZeros ? ["Inf − Inf"] : []), ...(hasZeros ? ["0 · Inf"] : [])];
    return `${expression} sums ${held}${factor}; ${reasons.join(" and ")} ${
      reasons.length > 1 ? "are" : "is"
    } NaN: ${share}.`;
  }
  if (slope !== "") {
    return infinite.some(({ label }) => label === slope)
      ? `${held} times the slope of ${name}, which is 0 for some values; 0 · Inf is NaN: ${share}.`
      : `the slope of ${name} is NaN at ${held}: ${share}.`;
  }
  if (GATES.has(name)) {
    // A kernel that computes its two halves separately turns +Inf into NaN as well.
    const isBothWays = nan > infinite.reduce((sum, { neginf }) => sum + neginf, 0);
    return `${held}: ${name} of −Inf is −Inf · 0, which is NaN${
      isBothWays ? ", and this device also turns +Inf into NaN" : ""
    }: ${share}.`;
  }
  if (name.endsWith("softmax"))
    return `${expression} subtracts the largest value of a row from ${held}; Inf − Inf is NaN: ${share}.`;
  if (name === "mul") {
    const zero = operands.find(({ inf, zeros }) => inf === 0 && zeros > 0);
    return `${expression} multiplies ${held} by ${
      zero === undefined ? "0" : `the zeros of ${/^[^(]* /.test(zero.label) ? `(${zero.label})` : zero.label}`
    }; 0 · Inf is NaN: ${share}.`;
  }
  if (name === "add" || name === "sub") return `${expression} combines ${held}; Inf − Inf is NaN: ${share}.`;
  return `${expression} has no value${held === "" ? "" : ` at ${held}`}: NaN in ${share}.`;
}

/** @param {readonly Operand[]} operands @returns {string} their largest values, without operands that are all 0 */
function sizesOf(operands) {
  return operands.flatMap(({ label, largest }) =>
    largest === null || largest === 0 ? [] : [`|${label}| ≤ ${significant(largest)}`]
  ).join(", ");
}

/** @param {Operand} operand @returns {string} */
function infWord({ posinf, neginf }) {
  return neginf === 0 ? "+Inf" : posinf === 0 ? "−Inf" : "±Inf";
}

/** @param {readonly number[]} shape @returns {number} */
function nOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}
