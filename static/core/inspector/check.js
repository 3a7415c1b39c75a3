/** The inspector's gradient check of a custom Function, at the arguments of the call that made this op. It runs on
 * demand, because it takes two runs of the Function per element of the arguments. */

import { buttonOf, headings, html, writeText } from "../dom.js";
import { count, significant } from "../format.js";

/** @typedef {GradientCheck & {analytic?: {agrees: boolean, max_difference: CellValue, holds: boolean}}} Check analytic:
 * whether backward agrees with float64; absent in float64 itself */
/** @typedef {{columns: [number, number], rows: [number, number]}} Sampled how many were checked, of how many */
/** @typedef {{name: string, passed: boolean, checks: Record<string, Check | {error: string}>, sampled: Sampled | null}}
 * Report checks: by dtype */
/** @typedef {(op: string) => Promise<Report>} Checker */

/** Further properties of a backward, and the message where one fails.
 * @type {readonly ["zero_for_zero" | "takes_undefined" | "forward_repeatable" | "backward_repeatable", string][]} */
const ELSE = [
  ["zero_for_zero", "A grad_output of 0 gives gradients that are not 0: backward does not multiply by grad_output."],
  ["takes_undefined", "Backward does not treat a grad_output of None as 0; it is None for an output that is not used."],
  ["forward_repeatable", "Two runs of forward on the same values give different results."],
  ["backward_repeatable", "Two runs of backward on the same values give different results."],
];

/** @param {Graph} graph @param {number} op @returns {boolean} whether it is an op of a custom Function, by the name or
 * the line of its backward op */
export function isOfFunction({ topology }, op) {
  const { module: id, source } = topology.ops[op] ?? {};
  const module = topology.modules.find((each) => each.id === id);
  if (module === undefined) return false;
  const { type, path } = module;
  let hasBackward = false;
  for (const each of topology.ops) {
    if (each.module !== id || each.phase !== "backward") continue;
    hasBackward = true;
    if (each.name === `${type}Backward` || each.source?.function.endsWith(`${type}.backward`)) return true;
  }
  // Without a backward pass, only the module's path, which ends in the Function's name, shows it.
  const last = path.slice(path.lastIndexOf(".") + 1).replace(/_\d+$/, "");
  return !hasBackward && last === type && source?.function.endsWith(`${type}.forward`) === true;
}

/** @param {Inspection} inspection @param {number} op @param {Checker} ask @returns {HTMLElement} */
export function gradientCheck({ graph }, op, ask) {
  const id = graph.topology.ops[op]?.id ?? "";
  const answer = html("div", { class: "check-answer", role: "status" });
  const check = async () => {
    button.disabled = true;
    writeText(button, "Checking …");
    try {
      answer.replaceChildren(...told(await ask(id)));
    } catch (error) {
      answer.replaceChildren(html("p", { class: "bad" }, error instanceof Error ? error.message : String(error)));
    } finally {
      button.disabled = false;
      writeText(button, "Check again");
    }
  };
  const button = buttonOf({ class: "toggle" }, () => void check(), "Check gradients");
  const hint = html("p", { class: "hint" },
    "Compares this Function's backward with finite differences of its forward, at the inputs of this call, in float64.");
  return html("section", { class: "gradcheck" }, html("h3", {}, "Gradient check ", button), hint, answer);
}

/** @param {Report} report @returns {Node[]} */
function told({ name, passed, checks, sampled }) {
  const verdict = html("p", { class: passed ? "verdict good" : "verdict bad" },
    html("b", {}, passed ? "✓ correct" : "✗ not correct"),
    ` The backward of ${name} ${passed ? "matches" : "does not match"} its forward.`);
  const part = sampled === null ? [] : [
    html("p", { class: "hint" },
      `A sample is checked: ${count(sampled.columns[0])} of ${count(sampled.columns[1])} elements of the inputs and ${
        count(sampled.rows[0])
      } of ${count(sampled.rows[1])} elements of the outputs.`),
  ];
  return [verdict, ...part, ...Object.entries(checks).flatMap(([dtype, check]) => ofDtype(dtype, check))];
}

/** @param {string} dtype @param {Check | {error: string}} check @returns {Node[]} */
function ofDtype(dtype, check) {
  if ("error" in check) return [html("p", {}, `${dtype}: ${check.error}`)];
  const { analytic } = check;
  if (analytic !== undefined) {
    // Finite differences are too coarse in a narrow dtype: there backward is compared with float64.
    const text = analytic.agrees && analytic.holds ? "backward agrees with backward in float64"
      : `backward differs from backward in float64 by up to ${figure(analytic.max_difference)}`;
    return [html("p", { class: analytic.agrees && analytic.holds ? "" : "bad" }, `${dtype}: ${text}.`)];
  }
  const rows = check.comparisons.map((comparison) => {
    const { output, input, passed, size, max_difference: largest } = comparison;
    return html("tr", { class: passed ? "" : "bad" }, html("th", { scope: "row" }, `∂${output}/∂${input}`),
      html("td", {}, `${size[0]} × ${size[1]}`), html("td", {}, figure(largest)),
      html("td", {}, passed ? "✓" : `✗ ${count(comparison.outside)}`));
  });
  const head = headings(["Jacobian", "size", "max |a−n|", "differ"]);
  const table = html("table", {}, html("caption", {}, dtype), html("thead", {}, head), html("tbody", {}, ...rows));
  const worst = check.comparisons.flatMap((comparison) =>
    comparison.passed || comparison.worst === null ? []
      : [[worstText(comparison, comparison.worst), comparison.kink].filter(Boolean).join(" ")]
  );
  const others = ELSE.flatMap(([property, text]) => check[property] ? [] : [text]);
  const torch = check.torch.finds_fault && check.comparisons.every(({ passed }) => passed) ? [check.torch.message] : [];
  return [table, ...[...worst, ...others, ...torch].map((text) => html("p", { class: "bad" }, text))];
}

/** @param {JacobianComparison} comparison @param {JacobianWorst} worst @returns {string} */
function worstText({ output, input }, { output_index: row, input_index: column, analytic, numeric }) {
  const at = (/** @type {string} */ name, /** @type {number[]} */ index) =>
    index.length === 0 ? name : `${name}[${index.join(", ")}]`;
  return `Worst: ∂${at(output, row)}/∂${at(input, column)} is ${figure(analytic)} in backward, but ${
    figure(numeric)
  } by finite differences.`;
}

/** @param {CellValue} value @returns {string} */
function figure(value) {
  return typeof value === "number" ? significant(value) : String(value ?? "–").replace("Infinity", "∞");
}
