/** A chart in its figure. */

import { isDarkScheme } from "../colours.js";
import { html } from "../dom.js";

/** @param {string} title @returns {HTMLCanvasElement} */
export function chartOf(title) {
  return html("canvas", { role: "img", "aria-label": title });
}

/** @param {string} low @param {string} high @returns {string} the ends of the scale of a map, whose colours go from the
 * paper's to the ink's */
export function shadesText(low, high) {
  const [first, last] = isDarkScheme() ? ["dark", "light"] : ["light", "dark"];
  return `${low} (${first}) to ${high} (${last})`;
}

/** @param {Node | string} title @param {HTMLCanvasElement} canvas @param {Node[]} more @returns {HTMLElement} */
export function figure(title, canvas, ...more) {
  return html("figure", {}, html("figcaption", {}, title, ...more), canvas);
}
