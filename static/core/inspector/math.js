/** The mathematics of a selection: what its ops compute, with names and with sizes, and how the gradient goes back. */

import { buttonOf, html, writeText } from "../dom.js";
import { figureAt, isHidden, significant } from "../format.js";
import { memo } from "../memo.js";
import { definitions, ruleTerm } from "../rules/formula.js";
import { shortName } from "../rules/terms.js";
import { checkRule, gradientText, operandsOf, writtenOut } from "../rules/gradient-rules.js";
import { numberText, scalarOf } from "../rules/settings.js";
import { compositeRule, ruleOfCall, sizeText } from "./op-facts.js";
import { entriesOf, wiringOf } from "../graph/wiring.js";

/** A box with more ops shows no formulas. */
const MAX_OPS = 24;
const MAX_RULES = 6;

/** @typedef {{tensors: Map<string, Tensor>, ops: Map<string, Op>}} ById */

const byId = memo((/** @type {Graph} */ { topology: { tensors, ops } }) => ({
  tensors: new Map(tensors.map((tensor) => [tensor.id, tensor])),
  ops: new Map(ops.map((op) => [op.id, op])),
}));

/** The formulas of some ops, once with the tensors' names, once with their sizes; scalars show their value.
 * @param {Inspection} inspection @param {readonly Op[]} ops in order of execution @returns {Node[]} */
export function formulas(inspection, ops) {
  if (ops.length > MAX_OPS) return [];
  const { tensors, ops: allOps } = byId(inspection.graph);
  const isKept = ops.length === 1 ? () => true : keptBy(ops, tensors, allOps);
  const byName = definitions(ops, allOps, tensors, (id) => shortName(tensors.get(id)?.name ?? id), isKept);
  // Further outputs that a kernel saves for its backward pass have no formula.
  const lines = byName.filter(({ tensor }) => tensors.get(tensor)?.role !== "saved");
  const rows = lines.map(({ tensor, text }) => {
    const sizes = html("code", { class: "shapes" });
    const name = tensors.get(tensor)?.name ?? tensor;
    const named = [tensor, ...ops.flatMap(({ inputs }) => inputs)].map((id) => tensors.get(id)?.name ?? id);
    return { tensor, sizes,
      element: html("div", { class: "formula" }, html("code", titleOf(named), `${shortName(name)} = ${text}`), sizes) };
  });
  const fill = (/** @type {Picture} */ picture) => {
    const label = (/** @type {string} */ id) => numberOf(picture, tensors.get(id));
    const inSizes = new Map(definitions(ops, allOps, tensors, label, isKept).map(({ tensor, text }) => [tensor, text]));
    for (const { tensor, sizes } of rows) writeText(sizes, `${label(tensor)} = ${inSizes.get(tensor) ?? ""}`);
  };
  fill(inspection.picture);
  // Sizes stay what they are; single numbers follow every picture.
  const hasNumbers = ops.some(({ inputs, outputs }) =>
    [...inputs, ...outputs].some((id) => tensors.get(id)?.shape.length === 0)
  );
  if (hasNumbers) inspection.updates.push(fill);
  return rows.map(({ element }) => element);
}

/** @param {readonly string[]} names @returns {{title?: string}} those that formulas shorten, in full */
function titleOf(names) {
  const long = [...new Set(names)].filter((name) => shortName(name) !== name);
  return long.length === 0 ? {} : { title: long.join("\n") };
}

/** @param {Picture} picture @param {Tensor | undefined} tensor @returns {string} its size, or the number that it is */
function numberOf(picture, tensor) {
  if (tensor === undefined) return "";
  const row = picture.rows.get(tensor.id);
  if (tensor.shape.length > 0 || row === undefined) return sizeText(tensor.shape);
  if (isHidden(picture, row)) return "?";
  const bad = picture.integers.nan[row] > 0 ? "NaN"
    : picture.integers.posinf[row] > 0 ? "Inf" : picture.integers.neginf[row] > 0 ? "−Inf" : null;
  return bad ?? figureAt(picture, picture.floats.mean, row);
}

/** Which tensors of some ops have a line of their own: those that leave them, and those with a role. @param {readonly
 * Op[]} ops @param {ById["tensors"]} tensors @param {ById["ops"]} allOps @returns {(id: string) => boolean} */
function keptBy(ops, tensors, allOps) {
  // Intermediates of their forward ops have no line either.
  const inside = new Set(ops.flatMap(({ id, twin }) => [id, twin]));
  const isPlain = (/** @type {string | undefined} */ role) => role === "intermediate" || role === "saved";
  return (id) => {
    const tensor = tensors.get(id);
    if (tensor === undefined) return true;
    const phase = allOps.get(tensor.producer ?? "")?.phase ?? ops[0]?.phase;
    const readers = tensor.consumers.filter((op) => allOps.get(op)?.phase === phase);
    if (readers.length === 0 || readers.some((op) => !inside.has(op))) return true;
    if (tensor.role !== "gradient") return !isPlain(tensor.role);
    return tensor.gradient_of !== null && !isPlain(tensors.get(tensor.gradient_of)?.role);
  };
}

/** How the gradient goes back through some ops: of one function the one rule, else those of all in the order in which
 * the backward pass meets them.
 * @param {Inspection} inspection @param {readonly number[]} ops forward or backward @returns {Node[]} */
export function gradientRules(inspection, ops) {
  const { twin, backward } = wiringOf(inspection.graph);
  const { topology, arrays } = inspection.graph;
  const known = new Set(ops.map((op) => arrays.opHalf[op] === 0 ? op : twin[op]));
  const forward = [...known].filter((op) => op >= 0).sort((a, b) => a - b);
  const calls = forward.map((op) => topology.ops[op]);
  const isByHand = forward.some((op) =>
    [...entriesOf(backward, op)].some((back) => !topology.ops[back]?.name.includes("Backward"))
  );
  if (calls.length > MAX_OPS) return [];

  const shapeOf = (/** @type {string} */ id) => byId(inspection.graph).tensors.get(id)?.shape ?? [];
  const whole = compositeRule(calls, isByHand, shapeOf);
  const applied = whole === null ? calls.toReversed().flatMap((op) => ruleOfCall(op, shapeOf) ?? []) : [whole];
  const nodes = applied.slice(0, MAX_RULES).map((each) => ruleSection(inspection, each));
  if (applied.length > MAX_RULES)
    nodes.push(html("p", { class: "hint" }, `and the rules of ${applied.length - MAX_RULES} more ops`));
  return nodes;
}

/** @param {Inspection} inspection @param {AppliedRule} applied @returns {HTMLElement} */
function ruleSection(inspection, { rule, operands, output, op }) {
  const { tensors } = byId(inspection.graph);
  const letters = operandsOf(rule, operands.length);
  const labels = (/** @type {(tensor: Tensor) => string} */ label) => {
    /** @type {Record<string, string>} */
    const all = {};
    [...letters, "y"].forEach((letter, order) => {
      const tensor = tensors.get((order < letters.length ? operands[order] : output) ?? "");
      if (tensor !== undefined) all[letter] = label(tensor);
    });
    return all;
  };
  const names = labels(({ name }) => shortName(name));
  const scalar = rule.operands[1] === "b" && operands.length === 1 ? scalarOf(op.attributes) : null;
  const sizes = labels(({ shape }) => sizeText(shape));
  const shapes = { operands: operands.map((id) => tensors.get(id ?? "")?.shape ?? []),
    output: tensors.get(output ?? "")?.shape ?? [] };
  const call = { ...shapes, attributes: op.attributes };
  // A rule of several ops has the name of the op that they are together.
  const applied = { ...op, name: rule.names.includes(op.name) ? op.name : (rule.names[0] ?? op.name) };
  /** @param {Record<string, string>} labelled @param {number} order @param {(name: string) => string} gradient
   * @param {number} binds */
  const lineOf = (labelled, order, gradient, binds) => {
    const terms = letters.slice(0, operands.length).map((letter) => ({ text: labelled[letter] ?? letter, binds: 6 }));
    return ruleTerm(applied, terms, order, { text: gradient(labelled["y"] ?? "y"), binds }, shapes,
      labelled["y"] ?? "y", rule)?.text ?? null;
  };
  const lines = letters.flatMap((letter, order) => {
    const tensor = tensors.get(operands[order] ?? "");
    if (tensor === undefined || gradientText(rule, letter) === null) return [];
    // A quotient, ∂L/∂x, binds less tightly than what is transposed.
    const [inNames, inSizes] = [lineOf(names, order, (name) => `∂L/∂${name}`, 5),
      lineOf(sizes, order, (size) => size, 6)];
    if (inNames === null || inSizes === null) return [];
    return [
      html("div", { class: "formula" },
        html("code", titleOf([...operands, output].map((id) => tensors.get(id ?? "")?.name ?? "")),
          `∂L/∂${names[letter]} = ${inNames}`), html("code", { class: "shapes" }, `${sizes[letter]} = ${inSizes}`)),
    ];
  });
  const here = [...Object.entries(names), ...(scalar === null ? [] : [["b", numberText(scalar)]])].map(
    ([letter, name]) => `${letter} = ${name}`
  ).join(", ");
  const general = (/** @type {string} */ text) => writtenOut(rule, text, {}, op.attributes, undefined, call);
  const steps = rule.derivation.map((step) => html("li", {}, general(step)));
  const checked = html("output", { class: "checked" });
  const check = buttonOf({ class: "link" }, () => {
    const { error, elements } = checkRule(rule);
    writeText(checked,
      `A small example of the general rule, not with this op's sizes and settings: ${elements} elements moved by ±10⁻⁵. The largest error of the rule is ${
        significant(error)
      } of the largest gradient.`);
  }, "Check the general rule with finite differences");
  return html("section", { class: "gradient-rule" }, html("h3", {}, "Gradient rule", html("small", {}, rule.title)),
    ...lines,
    html("details", {}, html("summary", {}, "Derivation"),
      html("p", { class: "hint" }, `L is the loss; y = ${general(rule.forward)}. Here ${here}.`),
      html("ol", {}, ...steps), html("p", { class: "hint" }, `Source: ${rule.source}.`), html("p", {}, check),
      checked));
}
