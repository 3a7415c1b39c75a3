/** The page of broadcasting: the rules step by step, and the ways to give a vector a second dimension. */

import { byId, code, div, factsTable, p, row, span, strong, td } from "../core/chapter/parts.js";
import { ChapterPage, loadSections } from "../core/chapter/page.js";
import { shapeText, tensorTable } from "../core/chapter/tensor-table.js";
import { html } from "../core/dom.js";
import { count, significant } from "../core/format.js";
import { ghost, operands, showCopies, showStorage, written } from "./broadcasting-copies.js";
import { wireTrap } from "./broadcasting-trap.js";

/** @typedef {object} Way @property {string} code @property {number[]} shape @property {number[]} stride
 * @property {TensorValues | null} expanded @property {number[] | null} expanded_stride
 * @property {number} stored_numel @property {boolean} shares_memory @property {string | null} expand_error
 * @property {TensorValues | null} sum @property {string | null} sum_error */
/** @typedef {{dimension: number, from_end: number, a: number | null, b: number | null, size: number | null, rule:
 * string, explanation: string}} Step */

/** Text for each rule. @type {Record<string, string>} */
const RULES = { equal: "equal", stretch_a: "a stretched", stretch_b: "b stretched", pad_a: "a missing → 1",
  pad_b: "b missing → 1", fault: "does not fit" };

const USED = { "two-shapes": ["a", "b", "operator"], "added-dimensions": ["c", "m"], scalars: ["m", "mean", "std"],
  "the-trap": ["n", "noise", "seed"] };

const showTrap = wireTrap();

new ChapterPage({
  load: loadSections(USED, ["a", "b"]),
  show(/** @type {SectionsAnswer} */ { answer, errors, stale }, values) {
    for (const error of errors) showFault(error);
    if (!stale.has("two-shapes")) {
      showSteps(answer);
      showStorage(answer);
      showCopies(answer);
    }
    if (!stale.has("added-dimensions")) showWays(answer.added_dimensions);
    if (!stale.has("scalars")) showNormalized(answer.normalized, answer.added_dimensions.m);
    if (!stale.has("the-trap")) showTrap(answer.trap, values);
  },
});

// The rules, step by step

/** @param {{shape: number[], steps: Step[], numel: number, is_addressable: boolean, a: {shape: number[]}, b: {shape:
 * number[]}}} answer */
function showSteps({ shape, steps, numel, is_addressable, a, b }) {
  const total = p("outcome", "The result is ", strong("", shapeText(shape)),
    `, ${written(numel)} ${numel === 1 ? "element" : "elements"}.`);
  if (!is_addressable)
    total.append(" The shapes fit, but PyTorch cannot store the result: it has more than 2⁶³ − 1 bytes.");
  steps.length === 0 ? place(total, noSteps()) : place(aligned(steps, a.shape, b.shape), list(steps), total);
}

/** @param {ErrorBody} error of shapes that do not fit; other errors show beside their control */
function showFault(error) {
  const limit =
    /** @type {{steps?: Step[], a: number[], b: number[], dimension: number, from_end: number} | undefined} */ (error
      .limit);
  if (limit?.steps === undefined) return;
  const { steps, a, b, dimension, from_end } = limit;
  const left = dimension === 0 ? "" : " The dimensions before it are not compared.";
  place(aligned(steps, a, b), list(steps),
    div("remark fault",
      p("",
        `Dimension ${dimension} (${
          signed(from_end)
        } from the end) does not fit: the sizes differ, and only size 1 can be stretched.${left}`),
      p("", code(`RuntimeError: ${error.message}`))));
}

/** @param {...Element} children */
function place(...children) {
  byId("steps").replaceChildren(...children);
}

function noSteps() {
  return p("", "Both operands are scalars, so there is no dimension to compare.");
}

/** @param {readonly Step[]} steps last dimension first, up to the one at fault @param {readonly number[]} a
 * @param {readonly number[]} b @returns {HTMLElement} */
function aligned(steps, a, b) {
  const ndim = Math.max(a.length, b.length);
  const columns = Array.from({ length: ndim },
    (_, dimension) => steps.find((step) => step.dimension === dimension) ?? null);
  /** @param {string} name @param {(step: Step | null, dimension: number) => HTMLElement} cell */
  const line = (name, cell) => row(name, ...columns.map(cell));
  /** @param {"a" | "b"} side @param {readonly number[]} sizes */
  const sizesOf = (side, sizes) =>
    line(side, (step, dimension) => {
      const size = sizes[dimension - (ndim - sizes.length)];
      if (size === undefined)
        return html("td", { class: "size missing", title: `${side} does not have this dimension` },
          step === null ? "" : "1");
      const isStretched = step !== null && step.rule === `stretch_${side}`;
      const isAtFault = step?.rule === "fault";
      return td(`size${isStretched ? " stretched" : ""}${isAtFault ? " at-fault" : ""}`, count(size));
    });
  return div("scroll",
    html("table", { class: "aligned" },
      html("caption", { class: "visually-hidden" }, "Both shapes, aligned at their last dimension"),
      html("thead", {},
        html("tr", {}, html("th", { scope: "col" }, "dimension"),
          ...columns.map((_, dimension) => html("th", { scope: "col" }, `${signed(dimension - ndim)}`)))),
      html("tbody", {}, sizesOf("a", a), sizesOf("b", b),
        line("rule",
          (step) =>
            td(`rule ${step?.rule ?? "not-compared"}`,
              step === null ? "not compared" : (RULES[step.rule] ?? step.rule))),
        line("result",
          (step) =>
            td(`size result${step?.rule === "fault" ? " at-fault" : ""}`,
              step === null ? "" : step.size === null ? "✕" : count(step.size))))));
}

/** @param {readonly Step[]} steps @returns {HTMLElement} */
function list(steps) {
  const items = steps.map((step) =>
    html("li", { class: step.rule === "fault" ? "bad" : "" }, span("soft", `dimension ${signed(step.from_end)}: `),
      step.explanation)
  );
  return html("ol", { class: "steps" }, ...items);
}

/** @param {number} value @returns {string} */
function signed(value) {
  return String(value).replace("-", "−");
}

// A vector beside a matrix

/** @param {{c: TensorValues, m: TensorValues, ways: Way[]}} answer */
function showWays({ m, ways }) {
  const rows = ways.map((way) =>
    row(code(way.code), td("mono", shapeText(way.shape)), td("mono", shapeText(way.stride)),
      ...(way.expanded === null || way.expanded_stride === null
        ? [html("td", { class: "bad", colspan: "3" }, "does not fit")] : [
          td("mono", shapeText(way.expanded.shape)),
          td("mono", shapeText(way.expanded_stride)),
          td("", `${way.stored_numel} numbers${way.shares_memory ? ", shared with c" : ""}`),
        ]))
  );
  const titles = ["", "shape", "stride", "expand_as(m): shape", "stride", "stored"];
  byId("ways").replaceChildren(factsTable(titles, rows));
  byId("ways-copies").replaceChildren(...groups(ways).map((group) => groupFigure(group, m)));
}

/** @param {readonly Way[]} ways @returns {Way[][]} grouped by shape; a vector counts as a row */
function groups(ways) {
  const found = /** @type {Map<string, Way[]>} */ (new Map());
  for (const way of ways) {
    const key = String(way.shape.length === 1 ? [1, ...way.shape] : way.shape);
    found.set(key, [...(found.get(key) ?? []), way]);
  }
  return [...found.values()];
}

/** @param {readonly Way[]} group @param {TensorValues} m @returns {HTMLElement} */
function groupFigure(group, m) {
  const codes = group.flatMap((way, at) => [at === 0 ? "" : ", ", code(way.code)]);
  const [first] = group;
  const title = p("group-title", ...codes);
  if (first === undefined) return title;
  const { expanded, expanded_stride, sum } = first;
  if (expanded === null || expanded_stride === null || sum === null) {
    // The other ways fail with the same messages.
    const messages = [first.sum_error, first.expand_error].filter((each) => each !== null);
    return div("way", title, div("remark fault", ...messages.map((each) => p("", code(`RuntimeError: ${each}`)))));
  }
  return div("way", title,
    operands(tensorTable(expanded, { label: "expand_as(m)", mark: ghost({ expanded_stride }) }), "+",
      tensorTable(m, { label: "m" }), "=", tensorTable(sum, { label: "sum" })));
}

/** @param {{values: TensorValues, mean_of_m: number, std_of_m: number}} normalized @param {TensorValues} m */
function showNormalized({ values, mean_of_m, std_of_m }, m) {
  byId("normalized").replaceChildren(
    operands(tensorTable(m, { label: "m" }), "→", tensorTable(values, { label: "(m − mean) / std", format: (value) =>
      typeof value === "number" ? significant(value) : String(value) })),
    p("soft",
      `The mean of m is ${significant(Number(mean_of_m))}, and its population standard deviation is ${
        significant(Number(std_of_m))
      }.`),
  );
}
