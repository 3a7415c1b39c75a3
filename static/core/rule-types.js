/** The shape of a gradient rule. Types only, and the one helper that all rules are made with. */

/** @typedef {import("./ndarray.js").NDArray} NDArray */

/** @typedef {Record<string, unknown>} Attributes of an op */

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
 * @property {readonly string[]} [optional] operands that an op may be called without, all of them or none
 * @property {string} forward what y is
 * @property {readonly (string | null)[]} gradients of each operand; null: it has none
 * @property {readonly string[]} derivation
 * @property {string} source
 * @property {boolean} [isElementwise] operands are broadcast to the shape of y, and gradients summed back to theirs
 * @property {(attributes: Attributes) => Record<string, string>} [symbols] what an op's attributes make of the texts
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

export {};
