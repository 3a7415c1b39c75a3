/** A chart in its figure. */

import { isDarkScheme } from "../colours.js";
import { html } from "../dom.js";
import { significant } from "../format.js";

/** @param {string} title @returns {HTMLCanvasElement} */
export function chartOf(title) {
  return html("canvas", { role: "img", "aria-label": title });
}

/** @param {import("./training-charts.js").Shades | null} shades @param {boolean} percent
 * @returns {string} what the colours of a map mean, which go from the paper's to the ink's */
export function shadesText(shades, percent) {
  const [first, last] = isDarkScheme() ? ["dark", "light"] : ["light", "dark"];
  const text = (/** @type {number} */ value) => percent ? `${100 * value} %` : significant(value);
  const { scale = null, hasNonFinite = false } = shades ?? {};
  return [
    ...(scale === null ? [] : [`${text(scale.low)} (${first}) to ${text(scale.high)} (${last})`]),
    ...(hasNonFinite ? ["NaN or Inf (purple)"] : []),
  ].join(", ");
}

/** @param {Node | string} title @param {HTMLCanvasElement} canvas @param {Node[]} more @returns {HTMLElement} */
export function figure(title, canvas, ...more) {
  return html("figure", {}, html("figcaption", {}, title, ...more), canvas);
}
