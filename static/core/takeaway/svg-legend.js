/** The legend of a drawing's colours as SVG: a bar with its ends, patches with their words, or both. No DOM. */

import { significant } from "../format.js";
import { escaped, tag } from "./svg-text.js";
import { textWidth } from "../view/text-fit.js";

const HEIGHT = 28;
const BAR = { width: 120, height: 10 };
const GAP = 8;

/**
 * @param {Legend | null} legend
 * @returns {number} px
 */
export function legendHeight(legend) {
  return legend === null ? 0 : HEIGHT;
}

/**
 * @param {Legend} legend
 * @param {ColourScheme} colours
 * @param {{x: number, y: number}} at its upper left corner
 * @returns {string}
 */
export function legendSvg({ title, unit, low, high, isLog, stops, words }, colours, at) {
  let x = at.x;
  const base = at.y + HEIGHT / 2 + 4;
  let inside = "";
  /** @param {string} text @param {boolean} [isTitle] */
  const write = (text, isTitle = false) => {
    inside += tag("text", { x, y: base, "font-weight": isTitle ? 600 : null }, escaped(text));
    x += textWidth(text, isTitle ? "600 11px" : "11px") + GAP;
  };
  write(unit === "" ? title : `${title}, ${unit}`, true);
  if (stops.length > 0) {
    const offsets = stops.map((colour, stop) =>
      tag("stop", { offset: stops.length < 2 ? 0 : stop / (stops.length - 1), "stop-color": colour })
    );
    inside += tag("linearGradient", { id: "scale" }, offsets.join(""));
    write(significant(low));
    inside += tag("rect", { x, y: base - 9, width: BAR.width, height: BAR.height, rx: 2, fill: "url(#scale)" });
    x += BAR.width + GAP;
    write(significant(high));
    write(isLog ? "log" : "linear");
  }
  for (const [colour, word] of words) {
    inside += tag("rect", { x, y: base - 9, width: 10, height: 10, rx: 2, fill: colour });
    x += 10 + GAP / 2;
    write(word);
  }
  return tag("g", { id: "legend", fill: colours["ink-soft"] }, inside);
}
