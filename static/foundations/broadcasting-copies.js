/** The virtual copy: the stored operands, the operands as they are read, and the result. */

import { byId, div, elementAt, factsTable, isSame, p, row, sourceOf, strong, td } from "../core/chapter/parts.js";
import { cellText, markCells, shapeText, tensorTable } from "../core/chapter/tensor-table.js";
import { html } from "../core/dom.js";
import { count, quantity, significant } from "../core/format.js";

/** @typedef {object} Operand @property {"shape" | "values"} given @property {number[]} shape
 * @property {number[]} stride @property {number} stored_numel @property {number} stored_bytes
 * @property {number[]} expanded_shape @property {number[]} expanded_stride @property {number} expanded_numel
 * @property {number} copied_bytes @property {TensorValues | null} tensor @property {TensorValues | null} expanded */

/** @typedef {{operator: string, shape: number[], numel: number, bytes: number, a: Operand, b: Operand, result:
 * TensorValues | null}} Answer */

const SIGNS = /** @type {Record<string, string>} */ ({ "-": "−", "*": "×", "/": "÷" });

/** @param {Answer} answer */
export function showStorage({ a, b }) {
  const titles = ["", "read as", "shape", "stride", "stored", "expanded to", "stride", "size of a copy"];
  const rows = Object.entries({ a, b }).map(([name, operand]) =>
    row(name, td("", operand.given === "shape" ? "a shape" : "values"), td("mono", shapeText(operand.shape)),
      td("mono", shapeText(operand.stride)), td("number", stored(operand.stored_numel, operand.stored_bytes)),
      td("mono", shapeText(operand.expanded_shape)),
      html("td", { class: "mono", "data-expanded-stride": name }, ...strides(operand)),
      td("number", stored(operand.expanded_numel, operand.copied_bytes)))
  );
  byId("storage").replaceChildren(factsTable(titles, rows));
}

/** @param {Operand} operand
 * @returns {(Node | string)[]} the expanded strides, with the zeros of stretched dimensions marked */
function strides({ expanded_stride, expanded_shape }) {
  const parts = expanded_stride.flatMap((stride, dimension) => {
    const isStretched = stride === 0 && (expanded_shape[dimension] ?? 1) !== 1;
    return [dimension === 0 ? "" : ", ", isStretched ? strong("zero good", "0") : String(stride)];
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
  const place = byId("copies");
  const line = byId("element");
  line.replaceChildren();
  if (a.expanded === null || b.expanded === null || result === null || a.tensor === null || b.tensor === null) {
    place.replaceChildren(
      p("soft",
        "Too large for a picture: the page draws it if both operands have at most 64 elements and the result at most 256."),
    );
    return;
  }
  const sign = SIGNS[operator] ?? operator;
  const tables = {
    a: tensorTable(a.tensor, { label: "a, stored" }),
    b: tensorTable(b.tensor, { label: "b, stored" }),
    wideA: tensorTable(a.expanded, { label: "a, expanded", mark: ghost(a), onhover: (index) => light(index) }),
    wideB: tensorTable(b.expanded, { label: "b, expanded", mark: ghost(b), onhover: (index) => light(index) }),
    result: tensorTable(result, { label: `a ${sign} b`, onhover: (index) => light(index) }),
  };
  /** @param {TensorIndex | null} index */
  function light(index) {
    markCells(tables.wideA, (at) => `${ghost(a)(at)}${isSame(at, index) ? " lit" : ""}`);
    markCells(tables.wideB, (at) => `${ghost(b)(at)}${isSame(at, index) ? " lit-2" : ""}`);
    markCells(tables.result, (at) => isSame(at, index) ? "lit-backward" : "");
    const [fromA, fromB] = index === null ? [null, null] : [sourceOf(a.shape, index), sourceOf(b.shape, index)];
    markCells(tables.a, (at) => isSame(at, fromA) ? "lit" : "");
    markCells(tables.b, (at) => isSame(at, fromB) ? "lit-2" : "");
    line.replaceChildren(
      index === null || fromA === null || fromB === null ? "" : sentence(answer, index, fromA, fromB),
    );
  }
  place.replaceChildren(operands(tables.a, "→", tables.wideA), operands(tables.b, "→", tables.wideB),
    operands(tables.result));
}

/** @param {...(HTMLElement | string)} parts tensors with signs between them */
export function operands(...parts) {
  return div("operand-pair",
    ...parts.map((part) =>
      typeof part === "string" ? html("span", { class: "arrow", "aria-hidden": "true" }, part) : part
    ));
}

/** @param {{expanded_stride: readonly number[]}} operand
 * @returns {(index: TensorIndex) => string} classes of a cell: along a stride of 0 all cells but the first are
 * ghosts */
export function ghost({ expanded_stride }) {
  return (index) => index.some((at, dimension) => at > 0 && expanded_stride[dimension] === 0) ? "ghost" : "";
}

/** @param {Answer} answer @param {TensorIndex} index @param {TensorIndex} fromA @param {TensorIndex} fromB */
function sentence({ a, b, result, operator }, index, fromA, fromB) {
  const sign = SIGNS[operator] ?? operator;
  const place = (/** @type {TensorIndex} */ at) => at.length === 0 ? "" : `[${at.join(", ")}]`;
  const values = [elementAt(a.tensor, fromA), elementAt(b.tensor, fromB), elementAt(result, index)].map(cellText);
  return `result${place(index)} = a${place(fromA)} ${sign} b${place(fromB)} = ${values[0]} ${sign} ${values[1]} = ${
    values[2]
  }`;
}

/** @param {number} value @returns {string} exact, or three digits if a number cannot represent it exactly */
export function written(value) {
  return Number.isSafeInteger(value) ? count(value) : significant(value);
}
