/** A vector beside a matrix: the ways to give it a second dimension, and what each makes of expand_as and the sum. */

import { shapeText, tensorTable } from "../../core/chapter/tensor-table.js";
import { html } from "../../core/dom.js";
import { significant } from "../../core/format.js";
import { ghost } from "./copies.js";

/** @typedef {object} Way @property {string} code @property {number[]} shape @property {number[]} stride
 * @property {TensorValues | null} expanded @property {number[] | null} expanded_stride
 * @property {number} stored_numel @property {boolean} shares_memory @property {string | null} expand_error
 * @property {TensorValues | null} sum @property {string | null} sum_error */

/** @param {{c: TensorValues, m: TensorValues, ways: Way[]}} answer */
export function showWays({ m, ways }) {
  const head = ["", "shape", "stride", "expand_as(m): shape", "stride", "stored"];
  const rows = ways.map((way) =>
    html("tr", {}, html("th", { scope: "row" }, html("code", {}, way.code)),
      html("td", { class: "mono" }, shapeText(way.shape)), html("td", { class: "mono" }, shapeText(way.stride)),
      ...(way.expanded === null || way.expanded_stride === null
        ? [html("td", { class: "refused", colspan: "3" }, "does not fit")] : [
          html("td", { class: "mono" }, shapeText(way.expanded.shape)),
          html("td", { class: "mono" }, shapeText(way.expanded_stride)),
          html("td", {}, `${way.stored_numel} numbers${way.shares_memory ? ", those of c" : ""}`),
        ]))
  );
  const table = html("table", { class: "facts" },
    html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, ...rows));
  document.querySelector("#ways")?.replaceChildren(table);
  document.querySelector("#ways-copies")?.replaceChildren(...groups(ways).map((group) => groupFigure(group, m)));
}

/** @param {readonly Way[]} ways @returns {Way[][]} those together that lie alike: a vector is a row */
function groups(ways) {
  /** @type {Map<string, Way[]>} */
  const found = new Map();
  for (const way of ways) {
    const key = String(way.shape.length === 1 ? [1, ...way.shape] : way.shape);
    found.set(key, [...(found.get(key) ?? []), way]);
  }
  return [...found.values()];
}

/** @param {readonly Way[]} group @param {TensorValues} m @returns {HTMLElement} */
function groupFigure(group, m) {
  const codes = group.flatMap((way, at) => [at === 0 ? "" : ", ", html("code", {}, way.code)]);
  const [first] = group;
  const title = html("p", { class: "group-title" }, ...codes);
  if (first === undefined) return title;
  const { expanded, expanded_stride, sum } = first;
  if (expanded === null || expanded_stride === null || sum === null) {
    // The others say the same of their own sizes.
    const messages = [first.sum_error, first.expand_error].filter((each) => each !== null);
    return html("div", { class: "way" }, title, html("div", { class: "remark fault" }, ...messages.map((each) =>
      html("p", {}, html("code", {}, `RuntimeError: ${each}`))
    )));
  }
  return html("div", { class: "way" }, title,
    html("div", { class: "operand-pair" },
      tensorTable(expanded, { label: "expand_as(m)", mark: ghost({ expanded_stride }) }),
      html("span", { class: "arrow", "aria-hidden": "true" }, "+"), tensorTable(m, { label: "m" }),
      html("span", { class: "arrow", "aria-hidden": "true" }, "="), tensorTable(sum, { label: "sum" })));
}

/** @param {{values: TensorValues, mean_of_m: number, std_of_m: number}} normalized @param {TensorValues} m */
export function showNormalized({ values, mean_of_m, std_of_m }, m) {
  document.querySelector("#normalized")?.replaceChildren(
    html("div", { class: "operand-pair" }, tensorTable(m, { label: "m" }),
      html("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      tensorTable(values, { label: "(m − mean) / std", format: (value) =>
        typeof value === "number" ? significant(value) : String(value) })),
    html("p", { class: "soft" },
      `The mean of m is ${significant(Number(mean_of_m))}, its standard deviation ${
        significant(Number(std_of_m))
      } (of the population).`),
  );
}
