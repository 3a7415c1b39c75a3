/** Tables, formulas, lit lines of sources and short texts that the chapter's pages share. */

import { html, svg } from "../dom.js";
import { significant } from "../format.js";
import { cellText } from "./tensor-table.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {CellValue | undefined} value @returns {string} three significant digits, "nan" or "inf", "–" for null */
export function figure(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? significant(value) : cellText(value);
}

/** @param {CellValue} value @returns {string} in parentheses if negative, as a factor of a product */
export function factor(value) {
  return typeof value === "number" && value < 0 ? `(${cellText(value)})` : cellText(value);
}

/** @param {number} number @param {string} noun @returns {string} 1 pair, 2 pairs */
export function counted(number, noun) {
  return `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;
}

/** @template {keyof HTMLElementTagNameMap} K @param {K} tag */
function maker(tag) {
  /** @param {string} classes @param {(Node | string)[]} children */
  return (classes, ...children) =>
    // The keyboard can reach and scroll it.
    html(tag, { class: classes || false, tabindex: classes === "scroll" ? "0" : false }, ...children);
}

export const div = maker("div");
export const p = maker("p");
export const span = maker("span");
export const strong = maker("strong");
export const td = maker("td");

/** @param {(Node | string)[]} children */
export function code(...children) {
  return html("code", {}, ...children);
}

/** @param {readonly (string | HTMLElement)[]} titles of the columns @param {readonly HTMLElement[]} rows
 * @param {string} [classes] @returns {HTMLElement} */
export function factsTable(titles, rows, classes = "facts") {
  const heads = titles.map((title) => typeof title === "string" ? head(title) : title).map((each) =>
    // A heading without words heads nothing.
    each.textContent === "" ? html("td", { class: each.className }) : each
  );
  const above = heads.length === 0 ? [] : [html("thead", {}, html("tr", {}, ...heads))];
  return html("table", { class: classes }, ...above, html("tbody", {}, ...rows));
}

/** @param {string} text @param {boolean} [isNumber] @returns {HTMLElement} the head of a column */
export function head(text, isNumber = false) {
  return html("th", { scope: "col", class: isNumber ? "number" : false }, text);
}

/** @param {Node | string} name @param {...HTMLElement} cells @returns {HTMLTableRowElement} */
export function row(name, ...cells) {
  return html("tr", {}, html("th", { scope: "row" }, name), ...cells);
}

/** @param {string} text @param {string} [classes] @returns {HTMLElement} */
export function number(text, classes = "") {
  return html("td", { class: `number ${classes}`.trim() }, text);
}

/** @param {TensorValues | null} tensor @param {TensorIndex} index @returns {any} */
export function elementAt(tensor, index) {
  return index.reduce((values, at) => values?.[at], tensor?.values);
}

/** @param {readonly number[]} shape of an operand @param {TensorIndex} index of the result of broadcasting
 * @returns {number[]} where the operand holds the element that is read there */
export function sourceOf(shape, index) {
  return shape.map((size, dimension) => size === 1 ? 0 : (index[index.length - shape.length + dimension] ?? 0));
}

/** @param {TensorIndex} index @param {TensorIndex | null} other @returns {boolean} */
export function isSame(index, other) {
  return other !== null && String(index) === String(other);
}

/** @param {number} x @param {number} y @param {string} text @param {"start" | "middle" | "end"} [anchor]
 * @param {string} [classes] */
export function label(x, y, text, anchor = "end", classes = "tick") {
  return svg("text", { class: classes, x, y, "text-anchor": anchor }, text);
}

/** @param {number} exponent @returns {string} 1, 1e−3 */
export function decadeText(exponent) {
  return exponent === 0 ? "1" : `1e${exponent}`.replace("-", "−");
}

/** Lights the given lines of a listing and no others. @param {string} name of the listing
 * @param {(text: string, number: number) => boolean} isLit by its text and its number in the file */
export function lightLines(name, isLit) {
  for (const line of document.querySelectorAll(`#listing-${CSS.escape(name)} .line`)) {
    const code = line.querySelector(".code")?.textContent ?? "";
    const isOld = line.classList.contains("old");
    line.classList.toggle("lit", !isOld && isLit(code, Number(line.getAttribute("data-line"))));
  }
}

/** @param {string} mathml a math element or its content @param {"block" | "inline"} [display] @returns {Element}
 * @throws {Error} not well-formed */
export function mathElement(mathml, display = "inline") {
  const inner = mathml.trim().startsWith("<math") ? mathml : `<math xmlns="${MATHML}">${mathml}</math>`;
  // A separate parser runs no scripts: the text never becomes markup of the page.
  const parsed = new DOMParser().parseFromString(inner.replace("<math>", `<math xmlns="${MATHML}">`),
    "application/xml");
  if (parsed.querySelector("parsererror") !== null) throw new Error("the formula is not well-formed");
  const element = document.importNode(parsed.documentElement, true);
  element.setAttribute("display", display);
  return element;
}
