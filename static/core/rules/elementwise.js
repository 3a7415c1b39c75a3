/** Gradient rules of ops that work element by element, in words and in numbers. No DOM. */

import { mapped, summedTo, zipped } from "./ndarray.js";
import { alphaOf, CHAPTER, isOff, numberText, scalarOf } from "./settings.js";

/** One input, one output, element by element. @type {string} */
const ALONE = "{y}ᵢ depends only on {x}ᵢ, so ∂{y}ⱼ/∂{x}ᵢ = 0 for j ≠ i";

/** A function of one number, applied to every element; slope: f′, so that ∂L/∂x = f′ · ∂L/∂y; steps: derivation of f′.
 * @typedef {Pick<RuleEntry, "names" | "title" | "forward" | "source" | "symbols" | "covers"> & {slope: string, steps:
 * readonly string[], f: (x: number) => number, df: (x: number, y: number) => number, isPositive?: boolean}} Slope */

/** @param {Slope} slope @returns {RuleEntry} */
function elementwise({ slope, steps, f, df, isPositive = false, ...rule }) {
  return {
    ...rule,
    operands: ["x"],
    gradients: [slope === "1" ? "{dy}" : `${slope} · {dy}`],
    derivation: [ALONE, ...steps, `{dx}ᵢ = Σⱼ {dy}ⱼ · ∂{y}ⱼ/∂{x}ᵢ = {dy}ᵢ · ∂{y}ᵢ/∂{x}ᵢ: one factor per element`],
    isElementwise: true,
    kernel: {
      value: ([x]) => mapped(x, f),
      vjp: ([x], dy, y) => [mapped(x, (value, at) => df(value, y.values[at]) * dy.values[at])],
      shapes: [[3, 4]],
      isPositive,
    },
  };
}

/** @param {number} x @returns {number} */
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** @param {number} x @returns {number} the normal density */
const density = (x) => Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);

/** The normal distribution function, by its power series around 0: Φ(x) = ½ + φ(x) Σ xⁿ/(1·3·5·…·n). @param {number} x
 * between −6 and 6 */
function distribution(x) {
  let [term, total] = [x, x];
  for (let n = 3; n < 200; n += 2) {
    term *= (x * x) / n;
    total += term;
  }
  return 0.5 + density(x) * total;
}

/** @param {number} x @returns {number} the tanh by which the gelu is approximated */
const bent = (x) => Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3));

const SELU_ALPHA = 1.6732632423543772;
const SELU_SCALE = 1.0507009873554805;

/** @param {unknown} value @param {string} otherwise @returns {string} */
const written = (value, otherwise) => typeof value === "number" ? String(value).replace("-", "−") : otherwise;

/** @param {unknown} exponent @param {string} otherwise @returns {string} behind what is raised */
const power = (exponent, otherwise) =>
  typeof exponent !== "number" ? otherwise
    : exponent === 1 ? "" : exponent === 2 ? "²" : exponent === 3 ? "³" : `^(${written(exponent, "")})`;

/** @type {readonly RuleEntry[]} */
export const UNARY_RULES = [
  elementwise({ names: ["neg"], title: "Negation", forward: "−{x}", slope: "−1", steps: ["(−x)′ = −1"], f: (x) => -x,
    df: () => -1 }),
  elementwise({ names: ["exp"], title: "Exponential", forward: "exp({x})", slope: "{y}",
    steps: ["(eˣ)′ = eˣ, which is the output itself, so autograd saves only the output"], f: Math.exp,
    df: (_, y) => y }),
  elementwise({ names: ["log"], title: "Natural logarithm", forward: "log({x})", slope: "(1/{x})",
    steps: ["from e^(log x) = x by the chain rule: x · (log x)′ = 1"], f: Math.log, df: (x) => 1 / x,
    isPositive: true }),
  elementwise({ names: ["sqrt"], title: "Square root", forward: "√{x}", slope: "(1/(2 · {y}))",
    steps: ["from y² = x: 2 y · y′ = 1"], f: Math.sqrt, df: (_, y) => 0.5 / y, isPositive: true }),
  elementwise({ names: ["rsqrt"], title: "Reciprocal square root", forward: "1/√{x}", slope: "−½ · {y}³",
    steps: ["(x^(−½))′ = −½ · x^(−3/2) = −½ · y³"], f: (x) => 1 / Math.sqrt(x), df: (_, y) => -0.5 * y ** 3,
    isPositive: true }),
  elementwise({ names: ["square"], title: "Square", forward: "{x}²", slope: "2 · {x}", steps: ["(x²)′ = 2x"],
    f: (x) => x * x, df: (x) => 2 * x }),
  elementwise({ names: ["abs"], title: "Absolute value", forward: "|{x}|", slope: "sign({x})",
    steps: ["|x| is x if x > 0 and −x if x < 0; at the kink autograd uses 0"], f: Math.abs, df: Math.sign }),
  elementwise({
    names: ["pow"],
    title: "Power",
    forward: "{x}{k}",
    slope: "{c} · {x}{l}",
    steps: ["(xᵏ)′ = k · xᵏ⁻¹, here k = {c}"],
    covers: ({ attributes, operands }) => operands.length === 1 && typeof attributes["exponent"] === "number",
    symbols: ({ exponent }) => ({ c: written(exponent, "k"), k: power(exponent, "^k"),
      l: typeof exponent === "number" ? power(exponent - 1, "") : "^(k − 1)" }),
    f: (x) => x ** 3,
    df: (x) => 3 * x ** 2,
  }),
  elementwise({ names: ["relu", "relu_"], title: "Rectified linear unit", forward: "max({x}, 0)", slope: "1[{x} > 0]",
    steps: ["max(x, 0) is x if x > 0, with slope 1, and otherwise 0, with slope 0",
      "at 0 autograd uses the slope on the left, 0"], source: CHAPTER, f: (x) => Math.max(x, 0),
    df: (x) => Number(x > 0) }),
  elementwise({
    names: ["clamp_min", "clamp_min_"],
    title: "Lower bound",
    forward: "max({x}, {m})",
    slope: "1[{x} ≥ {m}]",
    steps: ["max(x, m) is x above m, with slope 1, and the constant m below, with slope 0",
      "at m itself autograd uses slope 1; the chapter's own relu uses 0"],
    source: CHAPTER,
    symbols: ({ min }) => ({ m: written(min, "m") }),
    f: (x) => Math.max(x, 0),
    df: (x) => Number(x >= 0),
  }),
  elementwise({
    names: ["leaky_relu", "leaky_relu_"],
    title: "Leaky rectified linear unit",
    forward: "{x} where {x} > 0, else {a} · {x}",
    slope: "(1 where {x} > 0, else {a})",
    steps: ["two straight lines that meet at 0: slope 1 on the right, a on the left"],
    source: "Maas et al. 2013, Rectifier Nonlinearities Improve Neural Network Acoustic Models",
    symbols: ({ negative_slope }) => ({ a: written(negative_slope, "0.01") }),
    f: (x) => x > 0 ? x : 0.01 * x,
    df: (x) => x > 0 ? 1 : 0.01,
  }),
  elementwise({ names: ["tanh", "tanh_"], title: "Hyperbolic tangent", forward: "tanh({x})", slope: "(1 − {y}²)",
    steps: ["tanh x = (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ); by the quotient rule tanh′ x = 1 − tanh² x",
      "in terms of the output: 1 − y², so autograd saves y"], f: Math.tanh, df: (_, y) => 1 - y * y }),
  elementwise({ names: ["sigmoid", "sigmoid_"], title: "Logistic sigmoid", forward: "σ({x})", slope: "{y} · (1 − {y})",
    steps: ["σ(x) = 1/(1 + e⁻ˣ); σ′(x) = e⁻ˣ/(1 + e⁻ˣ)² = σ(x) · (1 − σ(x))",
      "in terms of the output: y · (1 − y), at most ¼"], f: sigmoid, df: (_, y) => y * (1 - y) }),
  elementwise({
    names: ["elu", "elu_"],
    title: "Exponential linear unit",
    forward: "{x} where {x} > 0, else {α}(exp({x}) − 1)",
    slope: "(1 where {x} > 0, else {α}exp({x}))",
    steps: ["above 0 the function is the identity, with slope 1; below 0 ({α}(eˣ − 1))′ = {α}eˣ"],
    symbols: ({ alpha }) => ({ α: typeof alpha !== "number" || alpha === 1 ? "" : `${numberText(alpha)} · ` }),
    source: "Clevert et al. 2015, Fast and Accurate Deep Network Learning by Exponential Linear Units",
    f: (x) => x > 0 ? x : Math.expm1(x),
    df: (x) => x > 0 ? 1 : Math.exp(x),
  }),
  elementwise({
    names: ["selu", "selu_"],
    title: "Scaled exponential linear unit",
    forward: "λ · ({x} where {x} > 0, else α · (exp({x}) − 1))",
    slope: "λ · (1 where {x} > 0, else α · exp({x}))",
    steps: ["selu is elu with α = 1.673, times λ = 1.051; a constant factor also multiplies the derivative"],
    source: "Klambauer et al. 2017, Self-Normalizing Neural Networks",
    f: (x) => SELU_SCALE * (x > 0 ? x : SELU_ALPHA * Math.expm1(x)),
    df: (x) => SELU_SCALE * (x > 0 ? 1 : SELU_ALPHA * Math.exp(x)),
  }),
  elementwise({
    names: ["gelu"],
    title: "Gaussian error linear unit",
    forward: "{x} · Φ({x})",
    slope: "(Φ({x}) + {x} · φ({x}))",
    steps: ["Φ is the normal distribution function, Φ′ = φ its density",
      "by the product rule (x · Φ(x))′ = Φ(x) + x · φ(x)"],
    source: "Hendrycks and Gimpel 2016, Gaussian Error Linear Units",
    covers: ({ attributes, operands }) => operands.length === 1 && isOff(attributes["approximate"]),
    f: (x) => x * distribution(x),
    df: (x) => distribution(x) + x * density(x),
  }),
  elementwise({
    names: ["gelu"],
    title: "Gaussian error linear unit, by tanh",
    forward: "½ · {x} · (1 + T), T = tanh(√(2/π) · ({x} + 0.044715 · {x}³))",
    slope: "(½ · (1 + T) + ½ · {x} · (1 − T²) · √(2/π) · (1 + 0.134145 · {x}²))",
    steps: ["T approximates 2 · Φ(x) − 1 without an integral",
      "by the product rule (½ · x · (1 + T))′ = ½ · (1 + T) + ½ · x · T′",
      "T′ = (1 − T²) · √(2/π) · (1 + 3 · 0.044715 · x²)"],
    source: "Hendrycks and Gimpel 2016, Gaussian Error Linear Units",
    covers: ({ attributes, operands }) => operands.length === 1 && attributes["approximate"] === "tanh",
    f: (x) => 0.5 * x * (1 + bent(x)),
    df: (x) => 0.5 * (1 + bent(x)) + 0.5 * x * (1 - bent(x) ** 2) * Math.sqrt(2 / Math.PI) * (1 + 3 * 0.044715 * x * x),
  }),
  elementwise({
    names: ["silu", "silu_"],
    title: "Sigmoid linear unit",
    forward: "{x} · σ({x})",
    slope: "σ({x}) · (1 + {x} · (1 − σ({x})))",
    steps: ["by the product rule (x · σ(x))′ = σ(x) + x · σ′(x)", "σ′ = σ · (1 − σ); then factor out σ(x)"],
    source: "Elfwing et al. 2017, Sigmoid-Weighted Linear Units",
    f: (x) => x * sigmoid(x),
    df: (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  }),
];

/** @param {readonly string[]} names @param {string} title @param {string} forward @param {[string, string]} gradients
 * @param {readonly string[]} steps @param {(a: number, b: number) => number} f
 * @param {(a: number, b: number) => number} da @param {(a: number, b: number) => number} db
 * @param {{covers?: (call: OpCall) => boolean, isPositive?: boolean}} [more] @returns {RuleEntry} */
function binary(names, title, forward, gradients, steps, f, da, db, { covers = isWhole, isPositive = false } = {}) {
  return {
    names,
    title,
    operands: ["a", "b"],
    forward,
    gradients,
    derivation: ["{y}ᵢ depends only on {a}ᵢ and {b}ᵢ: one factor per element", ...steps,
      "an element of a broadcast operand enters several outputs, so its gradient is the sum over the broadcast axes"],
    isElementwise: true,
    covers,
    symbols: scaled,
    kernel: {
      value: ([a, b]) => zipped(a, b, f),
      vjp: ([a, b], dy) =>
        [da, db].map((slope, order) =>
          summedTo(zipped(zipped(a, b, slope), dy, (x, y) => x * y), (order === 0 ? a : b).shape)
        ),
      shapes: [[3, 4], [4]],
      isPositive,
    },
  };
}

/** Two tensors, or one and a number behind it, of which nothing is rounded. @param {OpCall} call @returns {boolean} */
function isWhole({ attributes, operands }) {
  if ("input" in attributes || !isOff(attributes["rounding_mode"])) return false;
  return operands.length === 2 || (operands.length === 1 && scalarOf(attributes) !== null);
}

/** @param {OpCall} call @returns {boolean} */
const areTwo = ({ operands }) => operands.length === 2;

/** The factor of an addition's second operand: as a factor, and as the slope that it is.
 * @param {OpAttributes} attributes @returns {Record<string, string>} */
function scaled(attributes) {
  const alpha = alphaOf(attributes);
  const text = numberText(alpha);
  return { α: alpha === 1 ? "" : alpha < 0 ? `(${text}) · ` : `${text} · `, slope: alpha < 0 ? `(${text})` : text };
}

/** @param {OpCall} call @returns {boolean} the difference turned round has its factor at the first operand */
const isPlain = (call) => isWhole(call) && alphaOf(call.attributes) === 1;

/** @type {readonly RuleEntry[]} */
export const BINARY_RULES = [
  binary(["add", "add_"], "Sum", "{a} + {α}{b}", ["{dy}", "{α}{dy}"], [
    "∂y/∂a = 1, ∂y/∂b = {slope}: both operands get the gradient",
  ], (a, b) => a + b, () => 1, () => 1),
  binary(["sub", "sub_"], "Difference", "{a} − {α}{b}", ["{dy}", "−{α}{dy}"], ["∂y/∂a = 1, ∂y/∂b = −{slope}"],
    (a, b) => a - b, () => 1, () => -1),
  binary(["rsub"], "Difference", "{b} − {a}", ["−{dy}", "{dy}"], ["∂y/∂a = −1, ∂y/∂b = 1"], (a, b) => b - a, () => -1,
    () => 1, { covers: isPlain }),
  binary(["mul", "mul_"], "Product, element by element", "{a} · {b}", ["{b} · {dy}", "{a} · {dy}"], [
    "∂y/∂a = b, ∂y/∂b = a: the slope for each operand is the other operand",
  ], (a, b) => a * b, (_, b) => b, (a) => a),
  binary(["div", "div_"], "Quotient", "{a} / {b}", ["{dy} / {b}", "−{a} · {dy} / {b}²"], [
    "∂y/∂a = 1/b; by the quotient rule ∂y/∂b = −a/b²",
  ], (a, b) => a / b, (_, b) => 1 / b, (a, b) => -a / (b * b), { isPositive: true }),
  binary(["rdiv"], "Quotient", "{b} / {a}", ["−{b} · {dy} / {a}²", "{dy} / {a}"], [
    "by the quotient rule ∂y/∂a = −b/a²; ∂y/∂b = 1/a",
  ], (a, b) => b / a, (a, b) => -b / (a * a), (a) => 1 / a, { isPositive: true }),
  binary(["pow"], "Power with a tensor as exponent", "{a}^{b}", ["{b} · {a}^({b} − 1) · {dy}", "{y} · log({a}) · {dy}"],
    ["by the power rule: ∂y/∂a = b · aᵇ⁻¹", "from aᵇ = e^(b · log a): ∂y/∂b = aᵇ · log a"], (a, b) => a ** b,
    (a, b) => b * a ** (b - 1), (a, b) => a ** b * Math.log(a), { covers: areTwo, isPositive: true }),
  binary(["maximum", "max"], "The larger of two", "max({a}, {b})", ["{dy} where {a} > {b}, else 0",
    "{dy} where {b} > {a}, else 0"], [
    "y is a copy of the larger operand, with slope 1, and does not depend on the other, with slope 0",
    "if both are equal, each gets half of the gradient",
  ], Math.max, (a, b) => Number(a > b), (a, b) => Number(b > a), { covers: areTwo }),
  binary(["minimum", "min"], "The smaller of two", "min({a}, {b})", ["{dy} where {a} < {b}, else 0",
    "{dy} where {b} < {a}, else 0"], [
    "y is a copy of the smaller operand, with slope 1, and does not depend on the other, with slope 0",
    "if both are equal, each gets half of the gradient",
  ], Math.min, (a, b) => Number(a < b), (a, b) => Number(b < a), { covers: areTwo }),
  {
    names: ["where"],
    title: "Choice, element by element",
    operands: ["c", "a", "b"],
    forward: "{a} where {c}, else {b}",
    gradients: [null, "{dy} where {c}, else 0", "0 where {c}, else {dy}"],
    derivation: ["{y}ᵢ is either {a}ᵢ or {b}ᵢ: slope 1 for this operand, 0 for the other",
      "the condition has no gradient: y does not change when c changes a little"],
    isElementwise: true,
    kernel: {
      value: ([c, a, b]) => mapped(a, (value, at) => c.values[at] === 1 ? value : b.values[at]),
      vjp: (
        [c],
        dy,
      ) => [null, zipped(c, dy, (chosen, g) => chosen * g), zipped(c, dy, (chosen, g) => (1 - chosen) * g)],
      shapes: [[2, 3], [2, 3], [2, 3]],
      fixed: { 0: [1, 0, 0, 1, 1, 0] },
    },
  },
  {
    names: ["dropout", "dropout_"],
    title: "Dropout",
    operands: ["x"],
    forward: "mask · {x} / (1 − p)",
    gradients: ["mask · {dy} / (1 − p)"],
    derivation: [
      "every pass draws a new mask, which is 0 with probability p; in the backward pass the mask is a constant",
      "so y is x times a constant, and the gradient is multiplied by the same constant",
      "in evaluation mode y = x, and the gradient passes unchanged",
    ],
    source: "Srivastava et al. 2014, Dropout",
    isElementwise: true,
    covers: ({ attributes, operands }) => operands.length === 1 && attributes["training"] !== false,
    kernel: {
      value: ([x]) => mapped(x, (value, at) => at % 3 === 0 ? 0 : value / 0.6),
      vjp: (_, dy) => [mapped(dy, (value, at) => at % 3 === 0 ? 0 : value / 0.6)],
      shapes: [[3, 4]],
    },
  },
  {
    names: ["dropout", "dropout_"],
    title: "Dropout, in evaluation",
    operands: ["x"],
    forward: "{x}",
    gradients: ["{dy}"],
    derivation: ["nothing is dropped and nothing is scaled: y = x", "slope 1: the gradient passes unchanged"],
    source: "Srivastava et al. 2014, Dropout",
    isElementwise: true,
    covers: ({ attributes, operands }) => operands.length === 1 && attributes["training"] === false,
    kernel: { value: ([x]) => mapped(x, (value) => value), vjp: (_, dy) => [mapped(dy, (value) => value)],
      shapes: [[3, 4]] },
  },
];
