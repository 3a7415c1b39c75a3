/** SVG as text, and the colours of css/tokens.css for it; a test compares the colours. */

import { textWidth } from "../view/box-text.js";
import { MIN_COUNT } from "../colours.js";
import { isHidden, significant, wrapped } from "../format.js";
import { barsOf, END, endOpacity } from "../histogram.js";

/** @param {number} value @returns {string} with at most two decimals */
export function num(value) {
  return String(Math.round(value * 100) / 100);
}

/** Code points that XML excludes: control codes, lone surrogates, U+FFFE and U+FFFF. */
const IMPOSSIBLE =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
/** @type {Record<string, string>} */
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** @param {string} text @returns {string} for an element's text or a double-quoted attribute */
export function escaped(text) {
  return text.replace(IMPOSSIBLE, "\ufffd").replace(/[&<>"]/g, (letter) => ENTITIES[letter] ?? letter);
}

/** @param {string} name @param {Record<string, string | number | null>} attributes null: omitted
 * @param {string} [inside] markup @returns {string} */
export function tag(name, attributes, inside) {
  let text = `<${name}`;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null) text += ` ${key}="${typeof value === "number" ? num(value) : escaped(value)}"`;
  }
  return inside === undefined ? `${text}/>` : `${text}>${inside}</${name}>`;
}

// Histograms: bars as in histogram.js, or shades in narrow boxes.

const MIN_BAR = 2;
/** Most shades of a strip. */
const SHADES = 16;

/** Bars as high as the square root of the counts, and a line at zero. @param {Picture} picture
 * @param {number} row @param {Rectangle} at @param {HistogramPaint} paint @returns {string} */
export function barsSvg(picture, row, { x, y, w, h }, paint) {
  if (isHidden(picture, row))
    return tag("rect", { x, y, width: w, height: h, fill: paint.muted, "fill-opacity": 0.12 });
  const bars = barsOf(picture, row, w / MIN_BAR);
  if (bars === null) return tag("rect", { x, y, width: w, height: h, fill: "url(#hatch)" });
  if (bars.isNeedle) return tag("rect", { x: x + w / 2 - 1.5, y, width: 3, height: h, fill: paint.ink });
  const { sums, tallest, below, above, zero } = bars;
  let path = `M${num(x)} ${num(y + h)}`;
  sums.forEach((sum, bar) => {
    path += `V${num(y + h - Math.sqrt(sum / tallest) * h)}H${num(x + ((bar + 1) * w) / sums.length)}`;
  });
  const line = zero === null ? ""
    : tag("rect", { x: x + zero * w - 0.5, y, width: 1, height: h, fill: paint.muted, "fill-opacity": 0.5 });
  const ends = [[below, x], [above, x + w - END]].map(([values, left]) => {
    const height = Math.max(2, Math.sqrt(values / tallest) * h);
    return values < MIN_COUNT ? ""
      : tag("rect", { x: left, y: y + h - height, width: END, height, fill: paint.warning });
  });
  return line + tag("path", { d: `${path}V${num(y + h)}z`, fill: paint.ink }) + ends.join("");
}

/** Shades from the least value at the bottom to the greatest at the top. @param {Picture} picture @param {number} row
 * @param {Rectangle} at @param {HistogramPaint} paint @returns {string} */
export function stripSvg(picture, row, { x, y, w, h }, paint, isPositive = false) {
  if (isHidden(picture, row))
    return tag("rect", { x, y, width: w, height: h, fill: paint.muted, "fill-opacity": 0.12 });
  const bars = barsOf(picture, row, SHADES, isPositive);
  if (bars === null) return tag("rect", { x, y, width: w, height: h, fill: "url(#hatch)" });
  const { sums, tallest, below, above } = bars;
  const step = h / sums.length;
  let shades = "";
  sums.forEach((sum, shade) => {
    if (sum < MIN_COUNT) return;
    const opacity = Math.log1p(sum) / Math.log1p(tallest);
    shades += tag("rect", { x, y: y + h - (shade + 1) * step, width: w, height: step, "fill-opacity": opacity });
  });
  const end = Math.min(h / 4, END);
  const ends = [[above, y], [below, y + h - end]].map(([values, top]) =>
    values < MIN_COUNT ? ""
      : tag("rect", { x, y: top, width: w, height: end, fill: paint.warning,
        "fill-opacity": endOpacity(values, tallest) })
  );
  return tag("g", { fill: paint.ink }, shades) + ends.join("");
}

// The legend: a scale between two numbers, patches with words, or both.

export const LEGEND_HEIGHT = 28;
const BAR = { width: 120, height: 10 };
const GAP = 8;

/** @param {Legend} legend @param {ColourScheme} colours @param {{x: number, y: number}} at upper left corner */
export function legendSvg({ title, unit, low, high, isLog, stops, words }, colours, at) {
  let x = at.x;
  const base = at.y + LEGEND_HEIGHT / 2 + 4;
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

const LINE_HEIGHT = 16;

/** @param {string} text @param {ColourScheme} colours @param {{x: number, y: number}} at upper left corner
 * @param {number} width @returns {{parts: string[], height: number}} */
export function captionSvg(text, colours, at, width) {
  if (text === "") return { parts: [], height: 0 };
  const lines = wrapped(text, (line) => textWidth(line, "11px") <= width);
  const inside = lines.map((line, order) =>
    tag("tspan", { x: at.x, y: at.y + (order + 1) * LINE_HEIGHT }, escaped(line))
  );
  return { parts: [tag("text", { id: "caption", fill: colours["ink-soft"] }, inside.join(""))],
    height: lines.length * LINE_HEIGHT + GAP };
}

/** [light, dark] @type {Record<keyof ColourScheme, [string, string]>} */
const COLOURS = {
  "paper": ["#ffffff", "#14171a"],
  "raised": ["#ffffff", "#20252a"],
  "ink": ["#1c2126", "#e8eaec"],
  "ink-soft": ["#49515a", "#bcc3ca"],
  "ink-muted": ["#656e78", "#929ba4"],
  "line": ["#e4e4e0", "#2b3137"],
  "forward": ["#1f6fb5", "#62aee8"],
  "forward-soft": ["#eef5fb", "#18242e"],
  "backward": ["#c23b22", "#f07b62"],
  "backward-soft": ["#fcf1ee", "#2b1d1a"],
  "parameter": ["#8a6100", "#dcae3a"],
  "neutral": ["#77808a", "#98a1aa"],
  "warning": ["#8a3ca5", "#cf92e6"],
};

/** @param {0 | 1} column @returns {ColourScheme} */
function schemeOf(column) {
  const colours = Object.entries(COLOURS).map(([name, pair]) => [name, pair[column]]);
  return Object.fromEntries(colours);
}

export const SCHEMES = { light: schemeOf(0), dark: schemeOf(1) };
