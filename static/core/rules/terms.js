/** One op as a term of a formula: x @ w, with brackets only where needed. No DOM. */

import { alphaOf, scalarOf, swappedAxes } from "./settings.js";

export const COMPARISON = 1;
const SUM = 2;
export const PRODUCT = 3;
const SIGN = 4;
export const POWER = 5;
export const ATOM = 6;

/** @type {Record<string, [string, number]>} */
const BINARY = {
  matmul: ["@", PRODUCT],
  mm: ["@", PRODUCT],
  bmm: ["@", PRODUCT],
  add: ["+", SUM],
  add_: ["+", SUM],
  sub: ["−", SUM],
  sub_: ["−", SUM],
  rsub: ["−", SUM],
  mul: ["·", PRODUCT],
  mul_: ["·", PRODUCT],
  div: ["/", PRODUCT],
  div_: ["/", PRODUCT],
  rdiv: ["/", PRODUCT],
  gt: [">", COMPARISON],
  ge: ["≥", COMPARISON],
  lt: ["<", COMPARISON],
  le: ["≤", COMPARISON],
  eq: ["=", COMPARISON],
};

/** Ops that change how elements lie or are kept, not what they are. */
const SILENT = new Set(["to", "float", "type", "type_as", "contiguous", "view_as", "detach", "clone", "double",
  "half"]);

/** Torch's defaults, which formulas omit. @type {Record<string, readonly unknown[]>} */
const DEFAULTS = {
  alpha: [1],
  beta: [1],
  ceil_mode: [false],
  correction: [1],
  dilation: [1],
  dropout_p: [0],
  groups: [1],
  ignore_index: [-100],
  label_smoothing: [0],
  negative_slope: [0.01],
  norm_type: [2],
  output_padding: [0],
  p: ["fro"],
  reduction: ["mean"],
};

/** The same, of ops of which a name contains the word. @type {readonly [string, string, unknown][]} */
const DEFAULTS_OF = [
  ["_norm", "eps", 1e-5],
  ["_norm", "momentum", 0.1],
  ["conv", "stride", 1],
  ["conv", "padding", 0],
  ["pool", "padding", 0],
];

/** @param {string} op @param {string} key @param {unknown} value @returns {boolean} whether a setting is to be
 * written */
function isTold(op, key, value) {
  if (key.startsWith("_") || value === null || value === false || value === "none") return false;
  const usual = [...(DEFAULTS[key] ?? []),
    ...DEFAULTS_OF.flatMap(([word, setting, otherwise]) => setting === key && op.includes(word) ? [otherwise] : [])];
  const values = Array.isArray(value) ? value : [value];
  return values.length === 0 || !values.every((each) => usual.includes(each));
}

/** A name longer than this is shortened in formulas. */
const LONGEST_NAME = 36;

/** @param {string} name of a tensor @returns {string} where it is long, its beginning and its end: what tells the parts
 * of a path apart stands at the end */
export function shortName(name) {
  return name.length <= LONGEST_NAME ? name : `${name.slice(0, 12)}…${name.slice(-20)}`;
}

/** @type {Record<string, string>} */
const SUPERSCRIPT = { 2: "²", 3: "³", "-1": "⁻¹" };

/** @param {FormulaTerm} term @param {number} level @returns {string} in brackets where it binds less tightly than
 * `level` */
export function bracketed(term, level) {
  return term.binds < level ? `(${term.text})` : term.text;
}

/** @param {unknown} value @returns {FormulaTerm} constants to four digits */
export function literal(value) {
  if (Array.isArray(value))
    return { text: `(${value.map((each) => literal(each).text).join(", ")}${value.length === 1 ? "," : ""})`,
      binds: ATOM };
  const text = typeof value === "number" ? String(Number(value.toPrecision(4)))
    : value === null ? "None" : String(value);
  return { text: text.replace("-", "−"), binds: typeof value === "number" && value < 0 ? SIGN : ATOM };
}

/** @param {FormulaTerm} left @param {FormulaTerm} right @returns {FormulaTerm} of numbers and arrays, element by
 * element */
export function productOf(left, right) {
  return { text: `${bracketed(left, PRODUCT)} · ${bracketed(right, PRODUCT)}`, binds: PRODUCT };
}

/** @param {Op} op @returns {FormulaTerm | undefined} the number that stands where a tensor could */
export function scalarTerm({ attributes }) {
  const scalar = scalarOf(attributes);
  return scalar !== null ? literal(scalar) : "other" in attributes ? literal(attributes["other"]) : undefined;
}

/** Whether a transposition swaps the last two axes. Without a number of axes those of a matrix are meant.
 * @param {Op} op @param {number | undefined} axes */
function isMatrixTransposition({ attributes }, axes = 2) {
  const [first, second] = swappedAxes(attributes);
  if (first === null || second === null) return true;
  const swapped = [first, second].map((axis) => axis < 0 ? axis : axis - axes).sort((a, b) => a - b);
  return swapped[0] === -2 && swapped[1] === -1;
}

/** @param {Op} op @param {readonly FormulaTerm[]} inputs @param {number} [axes] of the first input */
export function termOf(op, inputs, axes) {
  const { name, attributes } = op;
  const [first] = inputs;
  if (first === undefined) return { text: `${name}()`, binds: ATOM };

  // A number in front of the tensor: torch.pow(2, x). In-place ops are recorded with a position for a name.
  const isBehind = "input" in attributes && inputs.length === 1;
  const binary = attributes["rounding_mode"] == null ? BINARY[name] : undefined;
  const given = isBehind ? first : (inputs[1] ?? scalarTerm(op));
  if (binary !== undefined && given !== undefined) {
    const [symbol, level] = binary;
    const alpha = symbol === "+" || symbol === "−" ? alphaOf(attributes) : 1;
    const scaled = (/** @type {FormulaTerm} */ term) => alpha === 1 ? term : productOf(literal(alpha), term);
    if (isBehind) {
      const front = literal(attributes["input"]);
      const behind = scaled(given);
      return {
        text: `${bracketed(front, level)} ${symbol} ${
          bracketed(behind, symbol === "+" || symbol === "·" ? level : level + 1)
        }`,
        binds: level,
      };
    }
    const [minuend, other] = name === "rsub" ? [scaled(first), given] : [first, scaled(given)];
    // A factor stands in front: 2 · (a − b).
    const isSwapped = name.startsWith("r") || (symbol === "·" && inputs.length === 1);
    const [left, right] = isSwapped ? [other, minuend] : [minuend, other];
    // a − (b + c), a / (b · c), a @ (b @ c): the right side of these keeps its brackets.
    const strict = symbol === "+" || symbol === "·" ? level : level + 1;
    return { text: `${bracketed(left, level)} ${symbol} ${bracketed(right, strict)}`, binds: level };
  }
  if (name === "accumulate") {
    return { text: inputs.map((input) => bracketed(input, SUM)).join(" + "),
      binds: inputs.length > 1 ? SUM : first.binds };
  }
  if (name === "rpow" || (name === "pow" && isBehind)) {
    const base = literal(attributes[name === "pow" ? "input" : "1"] ?? attributes["other"] ?? "k");
    return { text: `${bracketed(base, ATOM)}^${bracketed(first, ATOM)}`, binds: POWER };
  }
  if (name === "pow") {
    const exponent = inputs[1] ?? literal(attributes["exponent"] ?? "k");
    const raised = SUPERSCRIPT[exponent.text.replace("−", "-").replace(/\.0$/, "")];
    return { text: bracketed(first, ATOM) + (raised ?? `^${bracketed(exponent, ATOM)}`), binds: POWER };
  }
  if (name === "neg") return { text: `−${bracketed(first, SIGN)}`, binds: SIGN };
  if (name === "t" || name === "T" || name === "mT"
    || (name === "transpose" && inputs.length === 1 && isMatrixTransposition(op, axes)))
  {
    const isTwice = first.binds === ATOM && first.text.endsWith("ᵀ");
    return { text: isTwice ? first.text.slice(0, -1) : `${bracketed(first, ATOM)}ᵀ`, binds: ATOM };
  }
  const other = inputs[1];
  if (name === "linear" && other !== undefined) {
    const bias = inputs[2];
    const product = `${bracketed(first, PRODUCT)} @ ${bracketed(other, ATOM)}ᵀ`;
    return bias === undefined ? { text: product, binds: PRODUCT }
      : { text: `${product} + ${bracketed(bias, SUM)}`, binds: SUM };
  }
  if (name === "clamp_min")
    return { text: `max(${first.text}, ${inputs[1]?.text ?? literal(attributes["min"] ?? 0).text})`, binds: ATOM };
  if (SILENT.has(name)) return first;
  if (name === "getitem" && inputs.length === 1 && "index" in attributes) {
    const parts = [attributes["index"]].flat();
    return { text: `${bracketed(first, ATOM)}[${parts.map((part) => literal(part).text).join(", ")}]`, binds: ATOM };
  }
  const settings = Object.entries(attributes).filter(([key, value]) => isTold(name, key, value));
  const written = settings.map(([key, value]) =>
    /^\d+$/.test(key) || name === "transpose" ? literal(value).text : `${key}=${literal(value).text}`
  );
  return { text: `${name}(${[...inputs.map(({ text }) => text), ...written].join(", ")})`, binds: ATOM };
}
