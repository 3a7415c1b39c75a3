/** Gradient rules, one table for all: for an op its rule, written with the names or the shapes of that very op, with
 * the derivation and the source. A kernel computes each rule in numbers, which `checkRule` compares with finite
 * differences. No DOM. */

import { filled, mapped, sum, zipped } from "./ndarray.js";
import { BINARY_RULES, UNARY_RULES } from "./elementwise.js";
import { PRODUCT_RULES } from "./products.js";
import { REDUCTION_RULES } from "./reductions.js";
import { SHAPE_RULES } from "./shapes.js";

/** @type {readonly GradientRule[]} */
export const RULES = [...UNARY_RULES, ...BINARY_RULES, ...PRODUCT_RULES, ...SHAPE_RULES, ...REDUCTION_RULES].map(
  (rule) => ({ source: "calculus", ...rule })
);

/** @type {Map<string, GradientRule[]>} */
const byName = new Map();
for (const rule of RULES) for (const name of rule.names) byName.set(name, [...(byName.get(name) ?? []), rule]);

/** @param {string} name of a forward op @param {OpCall} [call] that the rule has to be true of; without one, the name's
 * first rule @returns {GradientRule | null} null where the table has none: no rule is better than a wrong one */
export function ruleOf(name, call) {
  const rules = byName.get(name) ?? [];
  return (call === undefined ? rules[0] : rules.find((rule) => covers(rule, call))) ?? null;
}

/** @param {GradientRule} rule @param {OpCall} call @returns {boolean} */
function covers(rule, call) {
  return rule.covers?.(call) ?? call.operands.length === rule.operands.length;
}

/** The operands of a rule in the order in which a call has its tensors: one without what is optional has fewer.
 * @param {GradientRule} rule @param {number} count of tensors that the op was called with */
export function operandsOf({ operands, optional, isVariadic = false }, count) {
  if (isVariadic) return Array.from({ length: count }, (_, order) => operands[order] ?? `operand${order + 1}`);
  return optional === undefined || count >= operands.length ? operands
    : operands.filter((name) => !optional.includes(name));
}

/** @param {GradientRule} rule @param {string} operand @returns {string | null} the text of its gradient; null: it has
 * none */
export function gradientText({ operands, gradients, isVariadic = false }, operand) {
  const at = operands.indexOf(operand);
  if (at >= 0) return gradients[at] ?? null;
  return isVariadic ? (gradients[0] ?? "").replaceAll(`{${operands[0] ?? ""}}`, `{${operand}}`) : null;
}

/** A text of a rule with its placeholders written out. Names that are not given keep their letter: x, w, y, ∂L/∂x.
 * @param {GradientRule} rule @param {string} text @param {Record<string, string>} labels of operands and of y
 * @param {OpAttributes} [attributes] of the op @param {(name: string) => string} [gradient] how the gradient of
 * something is written @param {OpCall} [call] */
export function writtenOut(rule, text, labels, attributes = {}, gradient = (name) => `∂L/∂${name}`, call = undefined) {
  const symbols = rule.symbols?.(attributes, call) ?? {};
  return text.replace(/\{([\p{L}\p{N}]+)\}/gu, (_, /** @type {string} */ key) => {
    if (key in symbols) return symbols[key] ?? key;
    const of = key.slice(1);
    if (key.startsWith("d") && (of === "y" || rule.operands.includes(of))) return gradient(labels[of] ?? of);
    return labels[key] ?? key;
  });
}

/** A repeatable draw: the same numbers for the same seed. @param {number} seed @returns {() => number} of a normal
 * distribution, none nearer to 0 than a tenth: kinks lie there */
function normal(seed) {
  let state = seed;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return () => {
    for (;;) {
      const drawn = Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
      if (Math.abs(drawn) > 0.1) return drawn;
    }
  };
}

const STEP = 1e-5;

/** Compares a rule with finite differences on a small example in float64: L = Σ dy · y, every element of every operand
 * moved up and down a little. @param {GradientRule} rule @param {number} [seed]
 * @returns {{error: number, elements: number}} error: the largest difference, as a share of the largest gradient or of
 * 1 */
export function checkRule({ kernel }, seed = 1) {
  const draw = normal(seed);
  const inputs = kernel.shapes.map((shape, operand) => {
    const fixed = kernel.fixed?.[operand];
    return filled(shape, (at) => fixed?.[at] ?? (kernel.isPositive ? Math.abs(draw()) + 0.2 : draw()));
  });
  const y = kernel.value(inputs);
  const dy = mapped(y, draw);
  const gradients = kernel.vjp(inputs, dy, y);
  const loss = (/** @type {NDArray[]} */ moved) => sum(zipped(kernel.value(moved), dy, (a, b) => a * b).values);
  let [worst, largest, elements] = [0, 1, 0];
  gradients.forEach((gradient, operand) => {
    const input = inputs[operand];
    if (gradient === null || input === undefined) return;
    gradient.values.forEach((claimed, at) => {
      const [up, down] = [STEP, -STEP].map((by) =>
        loss(
          inputs.map((each, other) =>
            other === operand ? mapped(each, (value, place) => value + (place === at ? by : 0)) : each
          ),
        )
      );
      worst = Math.max(worst, Math.abs(claimed - (up - down) / (2 * STEP)));
      largest = Math.max(largest, Math.abs(claimed));
      elements += 1;
    });
  });
  return { error: worst / largest, elements };
}
