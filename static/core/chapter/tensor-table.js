/** A tensor as a table: a number for a scalar, a row for a vector, rows and columns for a matrix, and matrices side
 * by side for more dimensions. Large tensors are cut. The arrow keys move between cells. */

import { html } from "../dom.js";
import { significant } from "../format.js";

/** @typedef {object} Options @property {string} [label] above the table, with the shape
 * @property {(value: CellValue) => string} [format]
 * @property {(index: TensorIndex) => string} [mark] classes of a cell
 * @property {(index: TensorIndex | null) => void} [onhover] the cell under the pointer or with the focus, null for
 * none @property {number} [most] rows and columns shown, 12 by default */

const MOST = 12;
const MAX_SLICES = 6;

/** Integers in full, other numbers with three digits, NaN and infinities by name. @param {CellValue} value */
export function cellText(value) {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value === null) return "None";
  if (value === "Infinity") return "inf";
  if (value === "-Infinity") return "−inf";
  if (typeof value === "string") return value === "NaN" ? "nan" : value;
  return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value).replace("-", "−") : significant(value);
}

/** @param {readonly number[]} shape @returns {string} as torch writes it: (200, 1), (3,), () */
export function shapeText(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

/** @param {TensorValues} tensor @param {Options} [options] @returns {HTMLElement} */
export function tensorTable({ shape, values }, options = {}) {
  const { label = "", onhover } = options;
  const slices = slicesOf(shape, values);
  const shown = slices.slice(0, MAX_SLICES);
  const tables = shown.map(({ index, rows }) => matrix(index, rows, shape, options));
  const body = html("div", { class: "slices" }, ...tables);
  if (slices.length > shown.length)
    body.append(html("p", { class: "cut" }, `and ${slices.length - shown.length} more`));
  const caption = html("figcaption", {}, html("span", {}, label), html("span", { class: "soft" }, shapeText(shape)));
  const figure = html("figure", { class: "tensor" }, caption, body);
  if (onhover !== undefined) wireHover(figure, onhover);
  return figure;
}

/** @param {Element} table made by tensorTable @param {(index: TensorIndex) => string} classes */
export function markCells(table, classes) {
  for (const cell of table.querySelectorAll("td[data-index]")) cell.className = classes(indexOf(cell));
}

/** @param {readonly number[]} shape @param {any} values
 * @returns {{index: number[], rows: CellValue[][]}[]} the matrices of a tensor, in the order of their leading
 * indices */
function slicesOf(shape, values) {
  if (shape.length === 0) return [{ index: [], rows: [[values]] }];
  if (shape.length === 1) return [{ index: [], rows: [values] }];
  /** @type {{index: number[], rows: any}[]} */
  let slices = [{ index: [], rows: values }];
  for (let dim = 0; dim < shape.length - 2; dim++) {
    slices = slices.flatMap(({ index, rows }) =>
      rows.map((/** @type {any} */ each, /** @type {number} */ at) => ({ index: [...index, at], rows: each }))
    );
  }
  return slices;
}

/** @param {readonly number[]} leading index of the slice @param {readonly CellValue[][]} rows
 * @param {readonly number[]} shape of the tensor @param {Options} options @returns {HTMLElement} */
function matrix(leading, rows, shape, { format = cellText, mark, onhover, most = MOST }) {
  const table = html("table", { class: "values" });
  if (leading.length > 0) table.append(html("caption", {}, `[${leading.join(", ")}]`));
  const body = html("tbody");
  for (const [row, cells] of rows.slice(0, most).entries()) {
    const line = html("tr");
    for (const [column, value] of cells.slice(0, most).entries()) {
      const index = shape.length === 0 ? [] : shape.length === 1 ? [column] : [...leading, row, column];
      const cell = html("td", { "data-index": index.join(","), class: mark?.(index) ?? "" }, format(value));
      if (onhover !== undefined) cell.tabIndex = row === 0 && column === 0 && leading.every((at) => at === 0) ? 0 : -1;
      line.append(cell);
    }
    if (cells.length > most) line.append(html("td", { class: "cut" }, `… ${cells.length}`));
    body.append(line);
  }
  if (rows.length > most)
    body.append(html("tr", {}, html("td", { class: "cut", colspan: String(most) }, `… ${rows.length} rows`)));
  if (rows.length === 0 || rows[0]?.length === 0)
    body.append(html("tr", {}, html("td", { class: "cut" }, "no elements")));
  table.append(body);
  return table;
}

/** @param {HTMLElement} figure @param {(index: TensorIndex | null) => void} onhover */
function wireHover(figure, onhover) {
  /** @param {Event} event @returns {HTMLElement | null} */
  const cellOf = (event) => event.target instanceof Element ? event.target.closest("td[data-index]") : null;
  for (const type of ["pointerover", "focusin"]) {
    figure.addEventListener(type, (event) => {
      const cell = cellOf(event);
      if (cell !== null) onhover(indexOf(cell));
    });
  }
  figure.addEventListener("pointerleave", () => onhover(null));
  figure.addEventListener("focusout", (event) => {
    if (!(event.relatedTarget instanceof Node && figure.contains(event.relatedTarget))) onhover(null);
  });
  figure.addEventListener("keydown", (event) => {
    const cell = cellOf(event);
    const next = cell === null ? null : neighbour(cell, event.key);
    if (cell === null || next === null) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

/** @param {HTMLElement} cell @param {string} key @returns {HTMLElement | null} */
function neighbour(cell, key) {
  const row = cell.parentElement;
  const column = row === null ? -1 : [...row.children].indexOf(cell);
  const found = {
    ArrowRight: cell.nextElementSibling,
    ArrowLeft: cell.previousElementSibling,
    ArrowDown: row?.nextElementSibling?.children[column],
    ArrowUp: row?.previousElementSibling?.children[column],
  }[key];
  return found instanceof HTMLElement && found.dataset["index"] !== undefined ? found : null;
}

/** @param {Element} cell @returns {number[]} */
function indexOf(cell) {
  const text = cell.getAttribute("data-index") ?? "";
  return text === "" ? [] : text.split(",").map(Number);
}
