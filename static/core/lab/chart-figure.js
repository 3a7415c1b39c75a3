/** A chart in its figure. */

import { html } from "../dom.js";

/** @param {string} title @returns {HTMLCanvasElement} */
export function chartOf(title) {
  return html("canvas", { role: "img", "aria-label": title });
}

/** @param {Node | string} title @param {HTMLCanvasElement} canvas @param {Node[]} more @returns {HTMLElement} */
export function figure(title, canvas, ...more) {
  return html("figure", {}, html("figcaption", {}, title, ...more), canvas);
}
