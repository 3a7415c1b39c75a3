/** Layers and initialization: one layer's histograms, fifty layers' spread, and the chapter's experiments again. */

import { byId, code, decadeText, div, factsTable, figure, head, label, number, p, row, span,
  td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { tensorTable } from "../core/chapter/tensor-table.js";
import { html, svg } from "../core/dom.js";
import { count, significant } from "../core/format.js";
import { nonFinite, tensorHistogram } from "./tensor-histogram.js";

/** @typedef {{mean: FigureValue, std: FigureValue}} Expected */
/** @typedef {[number, number] | null} Range */
/** @typedef {TensorSummary & {expected: Expected, range: {mean: Range, std: Range}}} Layer */
/** @typedef {{preset: string, code: string, depth: number, printed: {mean?: number, std?: number}, printed_window:
 * FigureValue[][] | null, signs: boolean, measured: TensorMoments, expected: Expected, range: {mean: Range, std:
 * Range}, further_draws: number, window: TensorValues, set: string}} Experiment */

const KINDS = /** @type {const} */ (["mean", "std"]);

new ResizeObserver(drawStack).observe(byId("stack-figure"));

new ChapterPage({
  show(answer, values) {
    showLayer(answer);
    showStack(answer.stack, values);
    showExperiments(answer.experiments, values["seed"] ?? "");
    showLinks(values);
  },
});

/** @param {Range} range @returns {string} */
function rangeText(range) {
  return range === null ? "–" : `${significant(range[0])} … ${significant(range[1])}`;
}

/** @param {number} draws @returns {string} */
function drawsTitle(draws) {
  return draws === 0 ? "no other seeds" : `lowest … highest of ${draws} other seed${draws === 1 ? "" : "s"}`;
}

/** @param {{weight_std: number, layer: {l1: Layer, l2: Layer, further_draws: number}}} answer */
function showLayer({ weight_std: weightStd, layer }) {
  const { l1, l2, further_draws: draws } = layer;
  byId("weight-std").textContent = `The standard deviation of the weights is ${significant(weightStd)}.`;
  byId("histograms").replaceChildren(tensorHistogram("l1 = lin(x, w1, b1)", l1, "forward"),
    tensorHistogram("l2 = relu(l1)", l2, "forward"));
  const rows = /** @type {[string, Layer][]} */ ([["l1", l1], ["l2", l2]]).flatMap(([name, each]) =>
    KINDS.map((kind) =>
      row(`${name}.${kind}()`, number(figure(each[kind]), "measured strong"), number(figure(each.expected[kind])),
        number(rangeText(each.range[kind]), "range"))
    )
  );
  byId("sample-std").textContent = sampleStd(l1);
  const titles = [head("statistic"), head("measured", true), head("theory", true), head(drawsTitle(draws), true)];
  byId("layer").replaceChildren(factsTable(titles, rows));
}

/** @param {Layer} l1 @returns {string} compares `.std()` with the number shown */
function sampleStd({ n, std }) {
  if (n < 2) return "For one element this is NaN.";
  if (typeof std !== "number") return "";
  const factor = Math.sqrt(n / (n - 1));
  const [shown, given] = [significant(std), significant(std * factor)];
  return shown === given ? `For the ${count(n)} elements of l1 this changes none of the digits shown.`
    : `For the ${count(n)} elements of l1 this gives ${given} instead of ${shown}.`;
}

/** Redrawn at another width. @type {LayerStack | null} */
let drawn = null;

function drawStack() {
  if (drawn !== null) byId("stack-figure").replaceChildren(stackFigure(drawn, byId("stack-figure").clientWidth));
}

/** @param {LayerStack} stack @param {Record<string, string>} values */
function showStack(stack, values) {
  drawn = stack;
  drawStack();
  byId("stack-says").textContent = verdict(stack);
  const ends = `x[0:5, 0:5] after ${stack.layers.length} ${stack.layers.length === 1 ? "layer" : "layers"}${
    values["relu"] === "true" ? " with relu" : ""
  }`;
  byId("window").replaceChildren(tensorTable(stack.window, { label: ends }));
  const titles = [head("layer"), head("mean", true), head("std", true), head("std in theory", true),
    head(drawsTitle(stack.further_draws), true), head("not finite", true), head("zeros", true)];
  const rows = stack.layers.map((layer) =>
    row(String(layer.index), number(figure(layer.mean)), number(figure(layer.std)), number(figure(layer.expected.std)),
      number(rangeText(layer.range)), number(nonFinite(layer) || "–"),
      number(layer.zeros === 0 ? "–" : layer.zeros === layer.n ? "all" : String(layer.zeros)))
  );
  byId("stack-table").replaceChildren(factsTable(titles, rows));
}

/** @param {LayerStack} stack @returns {string} */
function verdict({ layers, first_inf: inf, first_nan: nan, first_all_zero: zero }) {
  const last = layers[layers.length - 1];
  const found = [
    inf === null ? ""
      : `The first Inf appears in layer ${inf}${nan === null ? "" : `, the first NaN in layer ${nan}`}.`,
    inf === null && nan !== null ? `The first NaN appears in layer ${nan}.` : "",
    zero === null ? "" : `From layer ${zero} on every value is exactly 0.`,
  ].filter((part) => part !== "");
  if (found.length > 0 || last === undefined) return found.join(" ");
  return `After ${layers.length} layers the standard deviation is ${figure(last.std)}; theory expects ${
    figure(last.expected.std)
  }.`;
}

/** @param {Experiment[]} experiments @param {string} seed */
function showExperiments(experiments, seed) {
  const titles = [head("experiment"), head("statistic"), head("the chapter", true), head("measured", true),
    head("theory", true), head(drawsTitle(experiments[0]?.further_draws ?? 0), true)];
  const rows = experiments.flatMap((each) => experimentRows(each, seed));
  byId("experiments").replaceChildren(factsTable(titles, rows, "facts experiments"));
}

/** @param {string} label title of the column, for narrow screens @param {HTMLElement} cell */
function labelled(label, cell) {
  cell.dataset["label"] = label;
  return cell;
}

/** @param {Experiment} experiment @param {string} seed @returns {HTMLElement[]} */
function experimentRows(experiment, seed) {
  const { measured } = experiment;
  const run = html("button", { type: "button", class: "button", "data-set": `${experiment.set}&seed=${seed}` },
    "run it above");
  const open = html("a", { href: `/?preset=${experiment.preset}&seed=${seed}` }, "explorer");
  const what = html("th", { scope: "row", rowspan: "2" }, code(experiment.code), div("ways", run, open));
  if (experiment.printed_window !== null) what.append(windows(experiment));
  const odd = nonFinite(measured);
  return KINDS.map((kind, at) => {
    const printed = experiment.printed[kind];
    const text = measured[kind] === null ? odd : figure(measured[kind]);
    return html("tr", { "data-experiment": experiment.preset, "data-figure": kind }, ...(at === 0 ? [what] : []),
      td("kind", kind),
      labelled("the chapter",
        number(printed === undefined ? (measured[kind] === null ? "nan" : "–") : printed.toFixed(4))),
      labelled("measured", number(text, "measured strong")),
      labelled("theory", number(figure(experiment.expected[kind]))),
      labelled(drawsTitle(experiment.further_draws), number(rangeText(experiment.range[kind]), "range")));
  });
}

/** @param {Experiment} experiment @returns {HTMLElement} */
function windows({ printed_window: printed, window, signs }) {
  const details = html("details", {}, html("summary", {}, "x[0:5, 0:5]"));
  const tables = div("figures", tensorTable({ shape: [5, 5], values: printed }, {
    label: signs ? "the chapter printed" : "the chapter printed (this copy of the text has lost the signs)",
  }), tensorTable(window, { label: "measured" }));
  details.append(tables);
  return details;
}

/** @param {Record<string, string>} values */
function showLinks({ n_in: nIn, hidden, depth, batch, init, scale, seed, relu }) {
  const common = { init: init ?? "", scale: scale ?? "", batch: batch ?? "", seed: seed ?? "" };
  const one = new URLSearchParams({ widths: `${nIn},${hidden},1`, ...common });
  const layers = Number(depth) + 1;
  /** @type {Record<string, string>} */
  const last = relu === "true" ? { last_activation: "true" } : { activation: "linear" };
  const many = new URLSearchParams({ widths: `${nIn}x${layers}`, ...last, bias: "false", ...common });
  byId("layer-link").setAttribute("href", `/?${one}`);
  byId("stack-link").setAttribute("href", `/?${many}`);
}

// The figure of the stack: the spread of every layer on a log axis, measured, expected, and over further draws

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
function stackFigure({ layers, further_draws: draws }, room) {
  const width = Math.min(WIDEST, Math.max(NARROWEST, room));
  const x = (/** @type {number} */ index) =>
    AREA.left + ((index - 0.5) / layers.length) * (width - AREA.left - AREA.right);
  const [low, high] = decades(layers);
  const y = (/** @type {number} */ value) =>
    AREA.top + ((high - Math.log10(value)) / (high - low)) * (HEIGHT - AREA.top - AREA.bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
    class: "stack-figure" });
  picture.setAttribute("aria-label",
    "Standard deviation of every layer, on a log axis; the table below has the same values");
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
  const legend = p("legend", span("measured", "measured"), span("theory", "theory"));
  if (draws > 0)
    legend.append(span("band", `range of ${draws} other seed${draws === 1 ? "" : "s"}`));
  return div("", picture, legend);
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
    picture.append(label(AREA.left - 6, at + 4, decadeText(decade)));
  }
  for (const [name, , at] of LANES)
    picture.append(label(AREA.left - 6, at + 4, name));
  picture.append(label(AREA.left - 6, HEIGHT - AREA.bottom + 14, "all 0"));
  const every = [1, 5, 10, 20].find((step) => (depth / step) * ROOM_OF_A_NUMBER <= width - AREA.left) ?? 20;
  for (let index = 1; index <= depth; index += 1) {
    if (index !== 1 && index % every !== 0) continue;
    picture.append(label(x(index), HEIGHT - AREA.bottom + 28, String(index), "middle"));
  }
  picture.append(label(width - AREA.right, HEIGHT - 2, "layer"),
    label(4, HEIGHT - 2, "std of the output, log scale", "start"));
}

/** @param {SVGElement} picture @param {string} kind @param {number} x @param {number} y @param {string} said */
function mark(picture, kind, x, y, said) {
  picture.append(svg("circle", { class: kind, cx: x, cy: y, r: 3.5 }, svg("title", {}, said)));
}
