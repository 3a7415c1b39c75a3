/** SVG as text: numbers, attributes and words, safe whatever the words are. No DOM. */

import { textWidth } from "../view/text-fit.js";

/**
 * @param {number} value
 * @returns {string} with two decimals at most, the same on every machine
 */
export function num(value) {
  return String(Math.round(value * 100) / 100);
}

/** What XML cannot hold, however it is written: control letters, halves of pairs, and two that are no letters. */
const IMPOSSIBLE =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
/** @type {Record<string, string>} */
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/**
 * @param {string} text
 * @returns {string} for the inside of an element or of an attribute in double quotes
 */
export function escaped(text) {
  return text.replace(IMPOSSIBLE, "\ufffd").replace(/[&<>"]/g, (letter) => ENTITIES[letter] ?? letter);
}

/**
 * @param {string} name
 * @param {Record<string, string | number | null>} attributes null: left out
 * @param {string} [inside] markup
 * @returns {string}
 */
export function tag(name, attributes, inside) {
  let text = `<${name}`;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null) text += ` ${key}="${typeof value === "number" ? num(value) : escaped(value)}"`;
  }
  return inside === undefined ? `${text}/>` : `${text}>${inside}</${name}>`;
}

/**
 * As much of a text as fits, with … where some is missing.
 *
 * @param {string} text
 * @param {string} font weight and size
 * @param {number} room px
 * @returns {string} empty where not even two letters fit
 */
export function shortened(text, font, room) {
  if (textWidth(text, font) <= room) return text;
  const letters = [...text];
  let [low, high] = [0, letters.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (textWidth(`${letters.slice(0, middle).join("")}…`, font) <= room) low = middle;
    else high = middle - 1;
  }
  return low < 2 ? "" : `${letters.slice(0, low).join("")}…`;
}
