/** What of a label fits into a box, measured in the page's own font; estimated where there is no page. */

import { estimatedWidth } from "../takeaway/letter-widths.js";

/** Room between a box's frame and its text, px. */
export const INSET = 6;
/** A box narrower than this is a strip of shades, without text. */
export const STRIP_WIDTH = 16;

/** Room for any figure beside a name. */
const WIDEST_FIGURE = "0.00000";

/**
 * How much a box can say: name and figure side by side, the same in smaller type, one above the other, or nothing.
 *
 * @param {string} label
 * @param {number} width
 * @returns {"wide" | "small" | "narrow" | "strip"}
 */
export function levelOf(label, width) {
  if (width < STRIP_WIDTH) return "strip";
  for (const [level, size] of /** @type {const} */ ([["wide", 11], ["small", 10]])) {
    if (textWidth(label, `600 ${size}px`) + textWidth(WIDEST_FIGURE, `${size}px`) + 2 * INSET + 2 <= width)
      return level;
  }
  return "narrow";
}

const measuring = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
/** @type {Map<string, number>} */
const widths = new Map();

/** @param {string} text @param {string} font weight and size; the family is the page's @returns {number} px */
export function textWidth(text, font) {
  const key = `${font} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (measuring === null)
      return estimatedWidth(text, Number.parseFloat(/[\d.]+(?=px)/.exec(font)?.[0] ?? "11"), font.startsWith("6"));
    measuring.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
    width = measuring.measureText(text).width;
    if (widths.size > 5000) widths.clear();
    widths.set(key, width);
  }
  return width;
}
