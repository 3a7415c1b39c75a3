/** The virtual copy: what is stored of each operand, what the operation reads, and what comes of it. */

import { cellText, markCells, shapeText, tensorTable } from "../../core/chapter/tensor-table.js";
import { html } from "../../core/dom.js";
import { quantity } from "../../core/format.js";
import { written } from "./steps.js";

/** @typedef {object} Operand @property {"shape" | "values"} given @property {number[]} shape
 * @property {number[]} stride @property {number} stored_numel @property {number} stored_bytes
 * @property {number[]} expanded_shape @property {number[]} expanded_stride @property {number} expanded_numel
 * @property {number} copied_bytes @property {TensorValues | null} tensor @property {TensorValues | null} expanded */

/** @typedef {{operator: string, shape: number[], numel: number, bytes: number, a: Operand, b: Operand, result:
 * TensorValues | null}} Answer */

const SIGNS = /** @type {Record<string, string>} */ ({ "-": "−", "*": "×", "/": "÷" });

/** @param {Answer} answer */
export function showStorage({ a, b }) {
  const head = ["", "read as", "shape", "stride", "stored", "expanded to", "stride", "a copy would take"];
  const rows = Object.entries({ a, b }).map(([name, operand]) =>
    html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, operand.given === "shape" ? "a shape" : "values"),
      html("td", { class: "mono" }, shapeText(operand.shape)), html("td", { class: "mono" }, shapeText(operand.stride)),
      html("td", { class: "number" }, stored(operand.stored_numel, operand.stored_bytes)),
      html("td", { class: "mono" }, shapeText(operand.expanded_shape)),
      html("td", { class: "mono", "data-expanded-stride": name }, ...strides(operand)),
      html("td", { class: "number" }, stored(operand.expanded_numel, operand.copied_bytes)))
  );
  const table = html("table", { class: "facts" },
    html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, ...rows));
  document.querySelector("#storage")?.replaceChildren(table);
}

/** @param {Operand} operand
 * @returns {(Node | string)[]} its expanded strides, the zeros of stretched dimensions set apart */
function strides({ expanded_stride, expanded_shape }) {
  const parts = expanded_stride.flatMap((stride, dimension) => {
    const isStretched = stride === 0 && (expanded_shape[dimension] ?? 1) !== 1;
    return [dimension === 0 ? "" : ", ", isStretched ? html("strong", { class: "zero" }, "0") : String(stride)];
  });
  return ["(", ...parts, expanded_stride.length === 1 ? ",)" : ")"];
}

/** @param {number} numel @param {number} bytes @returns {string} */
function stored(numel, bytes) {
  return `${written(numel)} ${numel === 1 ? "number" : "numbers"}, ${quantity(bytes, "B")}`;
}

/** @param {Answer} answer */
export function showCopies(answer) {
  const { a, b, result, operator } = answer;
  const place = document.querySelector("#copies");
  const line = document.querySelector("#element");
  line?.replaceChildren();
  if (a.expanded === null || b.expanded === null || result === null || a.tensor === null || b.tensor === null) {
    place?.replaceChildren(
      html("p", { class: "soft" },
        "Too large for a picture: it is drawn where both operands have at most 64 elements and the result at most 256."),
    );
    return;
  }
  const sign = SIGNS[operator] ?? operator;
  const tables = {
    a: tensorTable(a.tensor, { label: "a, stored" }),
    b: tensorTable(b.tensor, { label: "b, stored" }),
    wideA: tensorTable(a.expanded, { label: "a, as it is read", mark: ghost(a), onhover: (index) => light(index) }),
    wideB: tensorTable(b.expanded, { label: "b, as it is read", mark: ghost(b), onhover: (index) => light(index) }),
    result: tensorTable(result, { label: `a ${sign} b`, onhover: (index) => light(index) }),
  };
  /** @param {TensorIndex | null} index of the result */
  function light(index) {
    const isAt = (/** @type {TensorIndex} */ at) => index !== null && String(at) === String(index);
    markCells(tables.wideA, (at) => `${ghost(a)(at)}${isAt(at) ? " lit" : ""}`);
    markCells(tables.wideB, (at) => `${ghost(b)(at)}${isAt(at) ? " lit-2" : ""}`);
    markCells(tables.result, (at) => isAt(at) ? "lit-backward" : "");
    const [fromA, fromB] = [index === null ? null : source(a, index), index === null ? null : source(b, index)];
    markCells(tables.a, (at) => fromA !== null && String(at) === String(fromA) ? "lit" : "");
    markCells(tables.b, (at) => fromB !== null && String(at) === String(fromB) ? "lit-2" : "");
    line?.replaceChildren(
      index === null || fromA === null || fromB === null ? "" : sentence(answer, index, fromA, fromB),
    );
  }
  place?.replaceChildren(
    html("div", { class: "operand-pair" }, tables.a, html("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      tables.wideA),
    html("div", { class: "operand-pair" }, tables.b, html("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      tables.wideB),
    html("div", { class: "operand-pair" }, tables.result),
  );
}

/** @param {{expanded_stride: readonly number[]}} operand
 * @returns {(index: TensorIndex) => string} the class of a cell: a cell further along a stride of 0 is the first
 * one, seen again */
export function ghost({ expanded_stride }) {
  return (index) => index.some((at, dimension) => at > 0 && expanded_stride[dimension] === 0) ? "ghost" : "";
}

/** @param {Operand} operand @param {TensorIndex} index of the result @returns {number[]} where it is stored */
function source({ shape }, index) {
  return shape.map((size, dimension) => size === 1 ? 0 : (index[dimension + index.length - shape.length] ?? 0));
}

/** @param {Answer} answer @param {TensorIndex} index @param {TensorIndex} fromA @param {TensorIndex} fromB
 * @returns {string} */
function sentence({ a, b, result, operator }, index, fromA, fromB) {
  const sign = SIGNS[operator] ?? operator;
  const place = (/** @type {TensorIndex} */ at) => at.length === 0 ? "" : `[${at.join(", ")}]`;
  const values = [valueAt(a.tensor, fromA), valueAt(b.tensor, fromB), valueAt(result, index)].map(cellText);
  return `result${place(index)} = a${place(fromA)} ${sign} b${place(fromB)} = ${values[0]} ${sign} ${values[1]} = ${
    values[2]
  }`;
}

/** @param {TensorValues | null} tensor @param {TensorIndex} index @returns {any} */
function valueAt(tensor, index) {
  return index.reduce((values, at) => values?.[at], tensor?.values);
}
