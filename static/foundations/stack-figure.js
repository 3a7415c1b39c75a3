/** The spread of every layer of a stack on a log axis: measured, expected, and the range over further draws. */

import { figure } from "../core/chapter/parts.js";
import { html, svg } from "../core/dom.js";
import { nonFinite } from "./tensor-histogram.js";

const WIDEST = 820;
const NARROWEST = 280;
const HEIGHT = 280;
const AREA = { left: 52, right: 12, top: 40, bottom: 44 };
/** minimum px between two layer numbers */
const ROOM_OF_A_NUMBER = 26;
/** The range of float32: the figure stops there. */
const LOWEST = 1e-46;
const HIGHEST = 1e39;
const LANES = /** @type {const} */ ([["NaN", "nan", 10], ["Inf", "inf", 24]]);

/** @param {LayerStack} stack @param {number} room px available @returns {HTMLElement} */
export function stackFigure({ layers, further_draws: draws }, room) {
  const width = Math.min(WIDEST, Math.max(NARROWEST, room));
  const x = (/** @type {number} */ index) =>
    AREA.left + ((index - 0.5) / layers.length) * (width - AREA.left - AREA.right);
  const [low, high] = decades(layers);
  const y = (/** @type {number} */ value) =>
    AREA.top + ((high - Math.log10(value)) / (high - low)) * (HEIGHT - AREA.top - AREA.bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
    class: "stack-figure" });
  picture.setAttribute("aria-label",
    "Standard deviation of every layer, on a log axis; the table below holds the same figures");
  drawAxes(picture, width, layers.length, low, high, x, y);

  const inBand = layers.flatMap(({ index, range }) =>
    range !== null && range[0] > 0 ? [{ index, low: range[0], high: range[1] }] : []
  );
  if (inBand.length > 1) {
    const edge = [...inBand.map((each) => `${x(each.index)},${y(each.high)}`), ...inBand.reverse().map((each) =>
      `${x(each.index)},${y(each.low)}`
    )];
    picture.append(svg("polygon", { class: "band", points: edge.join(" ") }));
  }
  const line = layers.flatMap(({ index, expected }) =>
    isShown(expected.std) ? [`${x(index)},${y(Number(expected.std))}`] : []
  );
  picture.append(svg("polyline", { class: "theory", points: line.join(" ") }));
  for (const layer of layers) {
    const said = `layer ${layer.index}: std ${figure(layer.std)}, theory ${figure(layer.expected.std)}${
      nonFinite(layer) === "" ? "" : `, ${nonFinite(layer)}`
    }`;
    if (isShown(layer.std)) mark(picture, "measured", x(layer.index), y(Number(layer.std)), said);
    if (layer.nan > 0) mark(picture, "lane", x(layer.index), 10, said);
    if (layer.posinf + layer.neginf > 0) mark(picture, "lane", x(layer.index), 24, said);
    if (layer.zeros === layer.n) mark(picture, "lane", x(layer.index), HEIGHT - AREA.bottom + 10, said);
  }
  const legend = html("p", { class: "legend" }, html("span", { class: "measured" }, "measured"),
    html("span", { class: "theory" }, "theory"));
  if (draws > 0)
    legend.append(html("span", { class: "band" }, `range of ${draws} further seed${draws === 1 ? "" : "s"}`));
  return html("div", {}, picture, legend);
}

/** @param {FigureValue} value @returns {boolean} */
function isShown(value) {
  return typeof value === "number" && value > LOWEST && value < HIGHEST;
}

/** @param {StackLayer[]} layers @returns {[number, number]} of the axis, at least two */
function decades(layers) {
  const values = layers.flatMap(({ std, expected, range }) => [std, expected.std, ...(range ?? [])]).filter(isShown)
    .map((value) => Math.log10(Number(value)));
  if (values.length === 0) return [-1, 1];
  const low = Math.floor(Math.min(...values) - 0.1);
  const high = Math.ceil(Math.max(...values) + 0.1);
  return high - low < 2 ? [low - 1, high + 1] : [low, high];
}

/** @param {SVGElement} picture @param {number} width @param {number} depth @param {number} low @param {number} high
 * @param {(index: number) => number} x @param {(value: number) => number} y */
function drawAxes(picture, width, depth, low, high, x, y) {
  const step = Math.max(1, Math.ceil((high - low) / 8));
  for (let decade = Math.ceil(low / step) * step; decade <= high; decade += step) {
    const at = y(10 ** decade);
    picture.append(svg("line", { class: "grid", x1: AREA.left, x2: width - AREA.right, y1: at, y2: at }));
    picture.append(
      svg("text", { class: "tick", x: AREA.left - 6, y: at + 4, "text-anchor": "end" },
        decade === 0 ? "1" : `1e${decade}`.replace("-", "−")),
    );
  }
  for (const [name, , at] of LANES)
    picture.append(svg("text", { class: "tick", x: AREA.left - 6, y: at + 4, "text-anchor": "end" }, name));
  picture.append(
    svg("text", { class: "tick", x: AREA.left - 6, y: HEIGHT - AREA.bottom + 14, "text-anchor": "end" }, "all 0"),
  );
  const every = [1, 5, 10, 20].find((step) => (depth / step) * ROOM_OF_A_NUMBER <= width - AREA.left) ?? 20;
  for (let index = 1; index <= depth; index += 1) {
    if (index !== 1 && index % every !== 0) continue;
    picture.append(
      svg("text", { class: "tick", x: x(index), y: HEIGHT - AREA.bottom + 28, "text-anchor": "middle" }, String(index)),
    );
  }
  picture.append(svg("text", { class: "tick", x: width - AREA.right, y: HEIGHT - 2, "text-anchor": "end" }, "layer"));
  picture.append(svg("text", { class: "tick", x: 4, y: HEIGHT - 2 }, "std of its output, log scale"));
}

/** @param {SVGElement} picture @param {string} kind @param {number} x @param {number} y @param {string} said */
function mark(picture, kind, x, y, said) {
  picture.append(svg("circle", { class: kind, cx: x, cy: y, r: 3.5 }, svg("title", {}, said)));
}
