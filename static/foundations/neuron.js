/** A neuron, term by term; relu; and a layer with the terms of each element. */

import { byId, counted, div, factor, factsTable, figure, head, lightLines, number, p, row,
  td } from "../core/chapter/parts.js";
import { ChapterPage, loadSections } from "../core/chapter/page.js";
import { cellText, markCells, tensorTable } from "../core/chapter/tensor-table.js";
import { html, svg } from "../core/dom.js";

/** @typedef {{input: CellValue, weight: CellValue, product: CellValue, running_sum: CellValue}} Term */
/** @typedef {{terms: Term[], bias: CellValue, output: CellValue, relu: CellValue, relu_as_printed: CellValue}}
 * Neuron */
/** @typedef {{x: TensorValues, w: TensorValues, b: TensorValues, y: TensorValues, y_matmul: TensorValues, products:
 * TensorValues, max_difference: CellValue, rounding: CellValue, equal: boolean}} Layer */

const NEURON_INPUTS = ["inputs", "weights", "bias"];
const LAYER_INPUTS = ["x", "w", "b"];
const zipTrap = byId("zip-trap");
const BAR = { width: 200, height: 20 };
const PLOT = { width: 360, height: 180, margin: 28 };

/** The chosen element of y; kept when the numbers change. @type {number[]} */
let looked = [0, 0];

new ChapterPage({
  load: loadSections({ neuron: NEURON_INPUTS, relu: NEURON_INPUTS, layer: LAYER_INPUTS }, NEURON_INPUTS, LAYER_INPUTS),
  show(/** @type {SectionsAnswer} */ { answer: { neuron, layer }, stale }) {
    if (!stale.has("neuron")) {
      zipTrap.hidden = true;
      byId("neuron").replaceChildren(termsTable(neuron));
      byId("relu").replaceChildren(reluPlot(neuron), ...nanRemark(neuron));
    }
    if (!stale.has("layer")) showLayer(layer);
  },
  failed(error) {
    const limit = /** @type {any} */ (error.limit);
    zipTrap.hidden = error.field !== "weights" || limit?.terms === undefined;
    if (!zipTrap.hidden) zipTrap.replaceChildren(...truncated(limit));
  },
});

// --- the neuron

/** @param {Neuron} neuron @returns {HTMLElement} */
function termsTable({ terms, bias, output }) {
  const sums = [0, ...terms.map((term) => term.running_sum), output].map(finite);
  const x = barScale(sums);
  const rows = terms.map((term, i) =>
    row(String(i), ...[term.input, term.weight, term.product, term.running_sum].map(cell), bar(x, sums[i], sums[i + 1]))
  );
  const last = terms.length;
  rows.push(row("+ bias", td(""), td(""), cell(bias), cell(output), bar(x, sums[last], sums[last + 1])));
  rows.push(
    html("tr", { class: "total" }, html("th", { scope: "row" }, "output"), td(""), td(""), td(""), cell(output),
      bar(x, 0, sums[last + 1])),
  );
  const titles = ["i", "input", "weight", "product", "sum so far"].map((title, at) => head(title, at > 0));
  return div("scroll", factsTable([...titles, html("th")], rows, "facts terms"));
}

/** @param {CellValue} value @returns {HTMLElement} */
function cell(value) {
  return number(cellText(value));
}

/** @param {CellValue | undefined} value @returns {number | null} */
function finite(value) {
  return typeof value === "number" ? value : null;
}

/** @param {readonly (number | null)[]} values @returns {(value: number) => number} */
function barScale(values) {
  const shown = values.filter((value) => value !== null);
  const low = Math.min(0, ...shown);
  const span = Math.max(0, ...shown) - low || 1;
  return (value) => 4 + ((value - low) / span) * (BAR.width - 8);
}

/** From the sum before a term to the sum after it. @param {(value: number) => number} x
 * @param {number | null | undefined} from @param {number | null | undefined} to @returns {HTMLElement} */
function bar(x, from, to) {
  const { width, height } = BAR;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none",
    "aria-hidden": "true" });
  picture.append(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: height }));
  if (typeof from === "number" && typeof to === "number") {
    const left = Math.min(x(from), x(to));
    picture.append(
      svg("rect", { class: to < from ? "down" : "up", x: left, y: 5, width: Math.max(1, Math.abs(x(to) - x(from))),
        height: height - 10 }),
      svg("line", { class: "step", x1: x(to), x2: x(to), y1: 5, y2: height }),
    );
  }
  return td("bar", picture);
}

/** Shows the effect of the chapter's zip on lists of different lengths.
 * @param {{inputs: number, weights: number, pairs: number, longer: "inputs" | "weights", dropped: CellValue[],
 * terms: Term[], bias: CellValue, output_without_the_dropped: CellValue}} limit @returns {HTMLElement[]} */
function truncated({ inputs, weights, pairs, longer, dropped, terms, bias, output_without_the_dropped: output }) {
  const paired = terms.map((term, i) => row(String(i), ...[term.input, term.weight, term.product].map(cell)));
  const left = dropped.map((value, i) => {
    const cells = longer === "inputs" ? [cell(value), td("")] : [td(""), cell(value)];
    return html("tr", { class: "dropped" }, html("th", { scope: "row" }, String(pairs + i)), ...cells,
      td("number", "dropped"));
  });
  const total = html("tr", { class: "total" }, html("th", { scope: "row" }, "output"), td(""), td(""), cell(output));
  const biasRow = row("+ bias", td(""), td(""), cell(bias));
  const titles = ["i", "input", "weight", "product"].map((title, at) => head(title, at > 0));
  return [
    p("",
      `${counted(inputs, "input")} and ${counted(weights, "weight")}: zip stops after ${
        counted(pairs, "pair")
      } and silently drops the rest of the ${longer}. The chapter's line would return ${
        cellText(output)
      }; this page raises an error.`),
    factsTable(titles, [...paired, ...left, biasRow, total], "facts terms"),
  ];
}

// --- relu

/** @param {Neuron} neuron @returns {SVGElement} */
function reluPlot({ output, relu }) {
  const { width, height, margin } = PLOT;
  const reach = typeof output === "number" ? Math.max(1, Math.abs(output) * 1.25) : 1;
  /** @param {number} value */
  const x = (value) => width / 2 + (value / reach) * (width / 2 - margin);
  /** @param {number} value */
  const y = (value) => height - margin - (Math.max(0, value) / reach) * (height - 2 * margin);
  const said = `relu(${cellText(output)}) = ${cellText(relu)}`;
  const plot = svg("svg", { class: "relu-plot", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": said });
  plot.append(
    svg("line", { class: "axis", x1: margin / 2, x2: width - margin / 2, y1: y(0), y2: y(0) }),
    svg("line", { class: "axis", x1: x(0), x2: x(0), y1: margin / 2, y2: height - margin / 2 }),
    svg("path", { class: "curve", d: `M${x(-reach)} ${y(0)}H${x(0)}L${x(reach)} ${y(reach)}` }),
    svg("text", { x: width - margin / 2, y: y(0) + 16, "text-anchor": "end" }, "output"),
    svg("text", { x: x(0) - 6, y: margin / 2 + 8, "text-anchor": "end" }, "relu"),
    svg("text", { class: "said", x: x(0) - 12, y: height / 2, "text-anchor": "end" }, said), // where the curve never goes
  );
  if (typeof output === "number" && typeof relu === "number") {
    plot.append(svg("line", { class: "guide", x1: x(output), x2: x(output), y1: y(0), y2: y(relu) }),
      svg("line", { class: "guide", x1: x(0), x2: x(output), y1: y(relu), y2: y(relu) }),
      svg("circle", { class: "dot", cx: x(output), cy: y(relu), r: 5 }));
  }
  return plot;
}

/** @param {Neuron} neuron @returns {HTMLElement[]} */
function nanRemark({ output, relu_as_printed: printed }) {
  if (output !== "NaN") return [];
  const text = `The chapter's relu, x if x >= 0 else 0, would return ${
    cellText(printed)
  }: no comparison with NaN is true, so the NaN would disappear.`;
  return [p("remark warning", text)];
}

// --- the layer

/** @param {Layer} layer */
function showLayer(layer) {
  const { x, w, b, y, y_matmul: product } = layer;
  const [batchSize = 0, inputs = 0] = x.shape;
  const [neurons = 0] = w.shape;
  looked = [Math.min(looked[0] ?? 0, batchSize - 1), Math.min(looked[1] ?? 0, neurons - 1)];
  const tables = {
    x: tensorTable(x, { label: "x" }),
    w: tensorTable(w, { label: "w" }),
    b: tensorTable(b, { label: "b" }),
    y: tensorTable(y, { label: "y, by sums", onhover: look }),
    product: tensorTable(product, { label: "y = x @ w.t() + b", onhover: look }),
  };

  /** @param {TensorIndex | null} index */
  function look(index) {
    if (index !== null) looked = [...index];
    const [row = 0, neuron = 0] = looked;
    markCells(tables.x, ([i]) => i === row ? "lit" : "");
    markCells(tables.w, ([j]) => j === neuron ? "lit-2" : "");
    markCells(tables.b, ([j]) => j === neuron ? "lit-2" : "");
    for (const table of [tables.y, tables.product])
      markCells(table, ([i, j]) => i === row && j === neuron ? "lit" : "");
    byId("layer-sum").textContent = sumText(layer, row, neuron);
    lightLines("dense", (text) => index !== null && text.includes("zip(x[i, :], w[j, :]"));
  }

  const side = [[tables.x], [tables.w, tables.b], [tables.y, tables.product]].map((group) => div("figures", ...group));
  byId("layer").replaceChildren(
    p("soft",
      `x: ${batchSize} × ${inputs} (batch_size × n_inputs), w: ${neurons} × ${inputs} (n_neurons × n_inputs), b: ${neurons}, y: ${batchSize} × ${neurons}. Point at an element of y.`),
    div("layer-side", ...side),
  );
  look(null);
  byId("layer-agreement").textContent = agreement(layer);
}

/** @param {Layer} layer @param {number} row @param {number} neuron @returns {string} */
function sumText({ x, w, b, y }, row, neuron) {
  const terms = x.values[row].map((/** @type {CellValue} */ value, /** @type {number} */ k) =>
    `${factor(value)}·${factor(w.values[neuron][k])}`
  );
  return `y[${row}, ${neuron}] = ${[...terms, factor(b.values[neuron])].join(" + ")} = ${
    cellText(y.values[row][neuron])
  }`;
}

/** @param {Layer} layer @returns {string} */
function agreement({ max_difference: difference, rounding, equal }) {
  const distance = `Largest difference between the two: ${figure(difference)}`;
  if (difference === 0) return `${distance}: no element differs.`;
  const limit = `rounding of the same sum in two orders explains at most ${figure(rounding)}`;
  return equal ? `${distance}; ${limit}. They are equal, except for rounding.` : `${distance}, but ${limit}.`;
}
