/** The shape of a gradient rule, and what rules ask about the call that they are to be applied to. */

/** @typedef {import("./ndarray.js").NDArray} NDArray */

/** @typedef {Record<string, unknown>} Attributes of an op */

/**
 * @typedef {object} Call of an op
 * @property {Attributes} attributes
 * @property {readonly (readonly number[])[]} operands the shapes of the tensors it was called with
 * @property {readonly number[]} output
 */

/**
 * A rule: how the gradient of an op's output becomes that of its operands.
 *
 * Texts hold placeholders: {x} is the operand called x, {y} the output, {dx} and {dy} the loss's gradient for them, and
 * what `symbols` names beside.
 *
 * @typedef {object} GradientRule
 * @property {readonly string[]} names of ops, as recorded
 * @property {string} title
 * @property {readonly string[]} operands tensors, in the order in which the op takes them
 * @property {boolean} [isVariadic] the op takes any number of tensors, and the first one's gradient is written as all are
 * @property {readonly string[]} [optional] operands that an op may be called without, all of them or none
 * @property {string} forward what y is
 * @property {readonly (string | null)[]} gradients of each operand; null: it has none
 * @property {readonly string[]} derivation
 * @property {string} source
 * @property {boolean} [isElementwise] operands are broadcast to the shape of y, and gradients summed back to theirs
 * @property {(call: Call) => boolean} [covers] whether the rule is true of a call; without it, of every call with as
 *   many tensors as the rule has operands
 * @property {(attributes: Attributes, call?: Call) => Record<string, string>} [symbols] what an op's attributes make of the texts
 * @property {Kernel} kernel
 */

/**
 * @typedef {object} Kernel the rule in numbers, on an example
 * @property {(inputs: NDArray[]) => NDArray} value
 * @property {(inputs: NDArray[], dy: NDArray, y: NDArray) => (NDArray | null)[]} vjp
 * @property {readonly (readonly number[])[]} shapes of the example's operands
 * @property {Record<number, readonly number[]>} [fixed] operands that are no variables: indices, masks
 * @property {boolean} [isPositive] the operands have to be
 */

export const CALCULUS = "calculus";
export const CHAPTER = "Howard and Gugger 2020, Deep Learning for Coders, ch. 17";

/**
 * The number that stands where a binary op could have a tensor. In-place ops are recorded with its position instead of
 * its name.
 *
 * @param {Attributes} attributes
 * @returns {number | null}
 */
export function scalarOf(attributes) {
  const value = attributes["other"] ?? attributes["1"];
  return typeof value === "number" ? value : null;
}

/** @param {unknown} value @returns {boolean} whether a setting is not given, or switches nothing on */
export function isOff(value) {
  return value === undefined || value === null || value === false || value === "none" || value === 0;
}

/** @param {number} value @returns {string} to four digits, with a minus of its own */
export function numberText(value) {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** @param {Attributes} attributes @returns {number} what an addition multiplies its second operand with */
export function alphaOf({ alpha }) {
  return typeof alpha === "number" ? alpha : 1;
}

/** @param {Attributes} attributes of a transposition @returns {[number | null, number | null]} null where it names none */
export function swappedAxes(attributes) {
  const [first, second] = [attributes["dim0"] ?? attributes["axis0"] ?? attributes["1"],
    attributes["dim1"] ?? attributes["axis1"] ?? attributes["2"]];
  return [typeof first === "number" ? first : null, typeof second === "number" ? second : null];
}
