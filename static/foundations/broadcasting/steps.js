/** The rules, step by step: both shapes aligned at their last dimension, and what happens in each. */

import { html } from "../../core/dom.js";
import { shapeText } from "../../core/chapter/tensor-table.js";
import { count, significant } from "../../core/format.js";

/** @typedef {{dimension: number, from_end: number, a: number | null, b: number | null, size: number | null, rule:
 * string, explanation: string}} Step */

/** What is written above a column, by its rule. @type {Record<string, string>} */
const RULES = {
  equal: "equal",
  stretch_a: "a stretched",
  stretch_b: "b stretched",
  pad_a: "a missing → 1",
  pad_b: "b missing → 1",
  fault: "at fault",
};

/** @param {{shape: number[], steps: Step[], numel: number, is_addressable: boolean, a: {shape: number[]}, b: {shape:
 * number[]}}} answer */
export function showSteps({ shape, steps, numel, is_addressable, a, b }) {
  const total = html("p", { class: "outcome" }, "The result is ", html("strong", {}, shapeText(shape)),
    `, ${written(numel)} ${numel === 1 ? "element" : "elements"}.`);
  if (!is_addressable)
    total.append(" PyTorch would agree to the shape, but cannot hold the result: it has more than 2⁶³ − 1 bytes.");
  steps.length === 0 ? place(total, noSteps()) : place(aligned(steps, a.shape, b.shape), list(steps), total);
}

/** @param {ErrorBody} error of shapes that do not fit; anything else stands beside its control alone */
export function showFault(error) {
  const limit =
    /** @type {{steps?: Step[], a: number[], b: number[], dimension: number, from_end: number} | undefined} */ (error
      .limit);
  if (limit?.steps === undefined) return;
  const { steps, a, b, dimension, from_end } = limit;
  const left = dimension === 0 ? "" : " What stands in front of it is not compared any more.";
  place(aligned(steps, a, b), list(steps),
    html("div", { class: "remark fault" },
      html("p", {},
        `Dimension ${dimension} (${
          signed(from_end)
        } from the end) is at fault: the sizes differ, and only a 1 can be stretched.${left}`),
      html("p", {}, html("code", {}, `RuntimeError: ${error.message}`))));
}

/** @param {...Element} children */
function place(...children) {
  document.querySelector("#steps")?.replaceChildren(...children);
}

function noSteps() {
  return html("p", {}, "Two scalars: there is no dimension to compare.");
}

/** @param {readonly Step[]} steps last dimension first; not all where one is at fault @param {readonly number[]} a
 * @param {readonly number[]} b @returns {HTMLElement} */
function aligned(steps, a, b) {
  const ndim = Math.max(a.length, b.length);
  const columns = Array.from({ length: ndim },
    (_, dimension) => steps.find((step) => step.dimension === dimension) ?? null);
  /** @param {string} name @param {(step: Step | null, dimension: number) => HTMLElement} cell */
  const row = (name, cell) => html("tr", {}, html("th", { scope: "row" }, name), ...columns.map(cell));
  /** @param {"a" | "b"} side @param {readonly number[]} sizes */
  const sizesOf = (side, sizes) =>
    row(side, (step, dimension) => {
      const size = sizes[dimension - (ndim - sizes.length)];
      if (size === undefined) return html("td", { class: "size missing", title: `${side} has no such dimension` },
          step === null ? "" : "1");
      const isStretched = step !== null && step.rule === `stretch_${side}`;
      const isAtFault = step?.rule === "fault";
      return html("td", { class: `size${isStretched ? " stretched" : ""}${isAtFault ? " at-fault" : ""}` },
        count(size));
    });
  return html("div", { class: "scroll" },
    html("table", { class: "aligned" },
      html("caption", { class: "visually-hidden" }, "Both shapes, aligned at their last dimension"),
      html("thead", {},
        html("tr", {}, html("th", { scope: "col" }, "dimension"),
          ...columns.map((_, dimension) => html("th", { scope: "col" }, `${signed(dimension - ndim)}`)))),
      html("tbody", {}, sizesOf("a", a), sizesOf("b", b),
        row("rule",
          (step) =>
            html("td", { class: `rule ${step?.rule ?? "not-compared"}` },
              step === null ? "not compared" : (RULES[step.rule] ?? step.rule))),
        row("result",
          (step) =>
            html("td", { class: `size result${step?.rule === "fault" ? " at-fault" : ""}` },
              step === null ? "" : step.size === null ? "✕" : count(step.size))))));
}

/** @param {readonly Step[]} steps @returns {HTMLElement} */
function list(steps) {
  const items = steps.map((step) =>
    html("li", { class: step.rule === "fault" ? "fault" : "" },
      html("span", { class: "soft" }, `dimension ${signed(step.from_end)}: `), step.explanation)
  );
  return html("ol", { class: "steps" }, ...items);
}

/** @param {number} value @returns {string} with a minus that is as wide as a digit */
function signed(value) {
  return String(value).replace("-", "−");
}

/** @param {number} value
 * @returns {string} exactly, or with three digits where it is beyond what a number holds exactly */
export function written(value) {
  return Number.isSafeInteger(value) ? count(value) : significant(value);
}
