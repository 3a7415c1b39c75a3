/** The inspector's figures of a tensor: what was measured, and beside it what theory expects. */

import { bandText, expectedText, figuresOf, figureText, isWithin, MEASURES } from "../lab/diagnosis.js";
import { buttonOf, emit, headings, html, unseen, writeText } from "../dom.js";
import { count, figureAt, numerals, percent, relativeError, significant, valueAt } from "../format.js";
import { healthIcon } from "../health.js";
import { isNumbered } from "../lab/profile-series.js";
import { valuesAt } from "../picture.js";

/** @typedef {ReturnType<typeof comparisons>[number]} Comparison a figure beside its expectation, as written */
/** @typedef {{elements: HTMLElement[], fill: (now: Comparison, isPaired: boolean) => void}} ComparisonRow */

/** @typedef {HTMLElement & {show: (picture: Picture, row: number, colour: string, name: string) => void}}
 * HistogramChart */

/** @type {[string, (picture: Picture, row: number) => string | null][]} */
const FIGURES = [
  ["mean", (picture, row) => figureAt(picture, picture.floats.mean, row)],
  ["std", (picture, row) => figureAt(picture, picture.floats.std, row)],
  ["min", (picture, row) => figureAt(picture, picture.floats.min, row)],
  ["max", (picture, row) => figureAt(picture, picture.floats.max, row)],
  ["L2 norm", (picture, row) => figureAt(picture, picture.floats.norm, row)],
  ["zeros", ({ floats }, row) => percent(valueAt(floats.zero_fraction, row))],
  ["NaN", ({ integers }, row) => count(integers.nan[row])],
  ["+Inf", ({ integers }, row) => count(integers.posinf[row])],
  ["−Inf", ({ integers }, row) => count(integers.neginf[row])],
  ["dead units", ({ floats }, row) => optional(valueAt(floats.dead_fraction, row))],
  ["saturated", ({ floats }, row) => optional(valueAt(floats.saturation, row))],
];

/** Significant digits of the values of a small tensor. */
const DIGITS = 6;

/** @type {Record<string, string>} */
const FIGURE_HELP = {
  mean: "over the finite values",
  std: "population std, over the finite values",
  "dead units": "share of units that are at most 0 for every input of the batch",
  saturated: "at the flat ends of the activation function",
};

/** @param {Picture} picture @param {number} row @returns {boolean} whether it is hidden until a guess */
function isHidden(picture, row) {
  return picture.hidden?.row === row;
}

/** @param {number | null} fraction @returns {string | null} null where it does not apply */
function optional(fraction) {
  return fraction === null ? null : percent(fraction);
}

/** Its histogram, or a veil over it while it waits for a guess.
 * @param {Inspection} inspection @param {number} row @param {string} colour @param {string} name @returns {Node[]} */
export function histogram({ updates }, row, colour, name) {
  const chart = /** @type {HistogramChart} */ (document.createElement("histogram-chart"));
  const veil = html("p", { class: "veil" }, html("b", {}, "?"), "You see its statistics after your guess.");
  updates.push((picture) => {
    chart.hidden = isHidden(picture, row);
    veil.hidden = !chart.hidden;
    if (!chart.hidden) chart.show(picture, row, colour, name);
  });
  return [chart, veil];
}

/** The values of a small tensor in its rows and columns; "?" while they wait for a guess.
 * @param {Inspection} inspection @param {number} row @param {readonly number[]} shape @returns {HTMLElement} */
export function valueTable({ updates, picture }, row, shape) {
  const [n, columns] = [picture.integers.n[row], shape.at(-1) ?? 1];
  const cells = Array.from({ length: n }, () => html("td"));
  const lines = Array.from({ length: n / columns },
    (_, line) => html("tr", {}, ...cells.slice(line * columns, (line + 1) * columns)));
  updates.push((now) => {
    const texts = numerals(valuesAt(now, row) ?? [], DIGITS);
    cells.forEach((cell, at) => writeText(cell, texts[at] ?? (now.hidden === null ? "–" : "?")));
  });
  return html("div", { class: "small-values", tabindex: "0" },
    html("table", {}, html("caption", {}, n === 1 ? "value" : "values"), html("tbody", {}, ...lines)));
}

/** @param {Inspection} inspection @param {number} row @returns {HTMLElement} */
export function figures({ updates }, row) {
  const rows = FIGURES.map(([name, read]) => {
    const value = html("dd");
    const line = html("div", { "data-figure": name, title: FIGURE_HELP[name] ?? "" }, html("dt", {}, name), value);
    updates.push((picture) => {
      const text = read(picture, row);
      const isSecret = isHidden(picture, row);
      line.hidden = text === null;
      writeText(value, isSecret ? "?" : (text ?? ""));
      line.classList.toggle("warning", /NaN|Inf/.test(name) && text !== "0" && !isSecret);
    });
    return line;
  });
  return html("dl", { class: "figures" }, ...rows);
}

/** The error of a tensor in another precision, of pictures that know it.
 * @param {Inspection} inspection @param {string} id @returns {HTMLElement} */
export function roundingError({ updates }, id) {
  const line = html("p", { class: "rounding" });
  updates.push(({ precision }) => {
    const text = precision === null ? "" : roundingText(precision, id);
    line.hidden = text === "";
    writeText(line, text);
  });
  return line;
}

/** @param {PrecisionErrors} precision @param {string} id @returns {string} "" for a tensor that was not compared */
function roundingText({ of, against, tensor, error, expected, differing = {} }, id) {
  const [count, total] = differing[id] ?? [];
  if (count !== undefined) return `${count} of ${total} elements differ between ${of} and ${against}`;
  const at = tensor.indexOf(id);
  return at < 0 ? "" : `error ${relativeError(error[at])}, rounding of ${of} predicts ${relativeError(expected[at])}`;
}

/** @param {Inspection} inspection @param {string} name @param {number} row @returns {HTMLElement} */
export function guessFirst({ host, updates }, name, row) {
  const title = `Hide the statistics of ${name} until you have guessed its std`;
  const button = buttonOf({ class: "guess", title }, () => emit(host, "prediction-start", { figure: `${name}.std` }),
    "Guess first");
  updates.push((picture) => (button.disabled = isHidden(picture, row)));
  return button;
}

/** Measured and expected figures of a tensor, and the health of its layer. Measured figures follow every picture, the
 * others wait for the theory of that picture.
 * @param {Inspection} inspection @param {Layer} layer @param {string} tensor id */
export function comparison({ expectations, rules }, layer, tensor) {
  const health = html("span", { class: "health" });
  const body = html("tbody");
  const band = html("p");
  const fold = html("details", { class: "band-rule" }, html("summary", {}, "About the band"), band);
  const head = headings([unseen("figure"), "measured", "expected"]);
  head.append(html("th", { scope: "col" }, html("span", { class: "visually-hidden" }, "in its band")));
  const none = html("p", { class: "hint" });
  const title = html("h3", {},
    isNumbered(layer.index, layer.name) ? `Layer ${layer.index}` : `Layer ${layer.index}: ${layer.name}`, health);
  const section = html("section", { class: "comparison" }, title, html("table", {}, html("thead", {}, head), body),
    fold, none);
  let built = "none yet";
  let word = "";
  /** @type {ComparisonRow[]} */
  let rows = [];
  expectations.push((picture, theory) => {
    const verdict = theory?.layers[layer.index - 1];
    section.hidden = theory === null || verdict === undefined;
    if (theory === null || verdict === undefined) return;
    const isPaired = theory.seq === picture.seq;
    const condition = verdict.health ?? "healthy";
    if (isPaired && condition !== word) {
      word = condition;
      health.className = `health ${condition}`;
      health.title = verdict.health === null ? "" : ruleText(rules?.health?.[verdict.health]);
      health.replaceChildren(healthIcon(condition), condition);
    }
    const lines = comparisons(picture, theory, layer, tensor, rules);
    const what = lines.map(({ key }) => key).join();
    if (what !== built) {
      built = what;
      rows = lines.map(comparisonRow);
      body.replaceChildren(...rows.flatMap(({ elements }) => elements));
      head.hidden = lines.length === 0;
      none.hidden = lines.length > 0 || tensor === layer.weight;
      none.textContent = silenceText(layer, tensor, verdict.reason);
      fold.hidden = lines.length === 0 || tensor === layer.weight;
      band.textContent = ruleText(rules?.band);
    }
    lines.forEach((line, order) => rows[order]?.fill(line, isPaired));
  });
  return section;
}

/** @param {Layer} layer @param {string} tensor @param {string | null} [reason] why theory has no value */
function silenceText(layer, tensor, reason) {
  if (isNumbered(layer.index, layer.name))
    return "Theory has no value for this tensor: its numbers exceed the range of the dtype.";
  if (tensor === layer.gradient)
    return "Theory has no value for this gradient: it comes from several layers, or from a layer that theory does not cover.";
  return `${reason ?? "Theory does not cover this tensor"}.`;
}

/** @param {Picture} picture @param {Theory} theory @param {Layer} layer @param {string} tensor of that layer
 * @param {Rules | null} rules */
function comparisons(picture, theory, layer, tensor, rules) {
  if (tensor === layer.weight) {
    if (theory.layers[layer.index - 1]?.weight_std == null) return [];
    const std = figureAt(picture, picture.floats.std, picture.rows.get(tensor));
    const drawn = significant(theory.layers[layer.index - 1]?.weight_std);
    return [{ key: "weight_std", label: "std", measured: std, expected: drawn, band: "", isIn: null,
      says: "the std of the scheme, times the scale", source: "" }];
  }
  return figuresOf(picture, theory, tensor).map((figure) => {
    const { quantity: name, measured, expected } = figure;
    return {
      key: name,
      label: MEASURES[name].label,
      measured: figureText(name, measured),
      expected: expected === null ? "–" : expectedText(name, expected),
      band: expected === null ? "" : bandText(name, expected.band),
      isIn: isWithin(figure),
      says: shortRuleText(rules?.expected?.[name]),
      source: rules?.expected?.[name]?.source ?? "",
    };
  });
}

/** @param {Comparison} first @returns {ComparisonRow} */
function comparisonRow({ key, label, says, source }) {
  const [measured, expected, mark] = [html("td"), html("td"), html("td", { class: "mark" })];
  const [value, band] = [html("b"), html("small")];
  expected.append(value, band);
  const line = html("tr", { "data-quantity": key }, html("th", { scope: "row" }, label), measured, expected, mark);
  const elements = says === "" ? [line]
    : [line, html("tr", { class: "rule" }, html("td", { colspan: "4", title: source }, says))];
  return {
    elements,
    fill(now, isPaired) {
      writeText(measured, now.measured);
      if (!isPaired) return;
      writeText(value, now.expected);
      writeText(band, now.band);
      writeText(mark, now.isIn === null ? "" : now.isIn ? "✓ in" : "✗ out");
      mark.title = now.isIn === false ? "One in twenty draws lies outside by chance." : "";
      line.classList.toggle("out", now.isIn === false);
    },
  };
}

/** @param {Rule | undefined} rule @returns {string} with author and year, or work, in place of the source */
function shortRuleText(rule) {
  if (rule === undefined) return "";
  const [author] = /^.*?\b\d{4}\b|^[^:;]*/.exec(rule.source) ?? [rule.source];
  return `${rule.rule} (${author}).`;
}

/** @param {Rule | undefined} rule @returns {string} */
function ruleText(rule) {
  return rule === undefined ? "" : `${rule.rule} (${rule.source}).`;
}
