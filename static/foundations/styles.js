/** Five styles: their code side by side, how far their numbers are apart, and what goes wrong in two of them. */

import { startPage } from "../core/chapter/page.js";
import { shapeText } from "../core/chapter/tensor-table.js";
import { html } from "../core/dom.js";
import { count } from "../core/format.js";
import { figure } from "./tensor-histogram.js";

/** @typedef {import("./tensor-histogram.js").Figure} Figure */
/** @typedef {{number: number, parts: [string, string][]}} Line */
/** @typedef {{code: Line[], file: string | null, instead: string | null}} Cell */
/** @typedef {{name: string, title: string, removes: string | null, lines: number, per_layer: number, once: number, per_model: number, backward: number, names: number}} Style */
/** @typedef {{styles: Style[], rows: {part: string, role: string, cells: Cell[]}[]}} Code */
/** @typedef {{difference: Figure, relative: Figure, nan: number, inf: number}} Agreement */
/** @typedef {{style: string, loss: Figure, gradients: Record<string, Agreement>}} Run */
/** @typedef {{leaves: string[], shapes: Record<string, number[]>, reference_loss: Figure, runs: Run[], apart: Figure[][], identical: boolean[][]}} Runs */
/** @typedef {{type: string, message: string} | null} Raised */
/** @typedef {{error: Raised, gradients: string[], attributes: string[]}} Ran */
/** @typedef {{linear_layer: number[][], forgotten: Raised, models: {name: string, loss: Figure, parameters: {name: string, shape: number[]}[]}[]}} Modules */

const COUNTS = /** @type {const} */ ([
  ["lines", "all lines"],
  ["per_layer", "lin, relu, mse"],
  ["once", "once for all layers"],
  ["per_model", "the model"],
  ["backward", "about gradients only"],
  ["names", "different names"],
]);

startPage({
  show(answer, values) {
    showCode(answer.code, values["compare"] ?? "");
    showRuns(answer, answer.code.styles);
    showMisprint(answer.misprint);
    showModules(answer.modules);
    const spec = { widths: `${values["n_in"]},${values["hidden"]},${values["n_out"]}`, batch: values["batch"] ?? "", seed: values["seed"] ?? "", dtype: values["dtype"] ?? "" };
    byId("explorer").replaceChildren(
      "This model in the explorer, at scale 1: ",
      ...answer.code.styles.flatMap((/** @type {Style} */ { name, title }, /** @type {number} */ at) => [at > 0 ? " · " : "", html("a", { href: `/?${new URLSearchParams({ ...spec, style: name })}` }, title)]),
    );
  },
});

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {string} text @param {boolean} [isNumber] */
function head(text, isNumber = true) {
  return html("th", { scope: "col", class: isNumber ? "number" : false }, text);
}

/** @param {string} text @param {string} [classes] */
function number(text, classes = "") {
  return html("td", { class: `number ${classes}`.trim() }, text);
}

// --- side by side

/** @param {Code} code @param {string} compare */
function showCode({ styles, rows }, compare) {
  const [one, other] = compare.split(" to ");
  const shown = styles.map((style, at) => ({ ...style, at })).filter(({ name }) => other === undefined || name === one || name === other);
  const titles = shown.map(({ title }) => html("th", { scope: "col" }, title));
  const body = rows.map(({ part, role, cells }, at) => {
    const isFirst = rows[at - 1]?.part !== part;
    const label = html("th", { scope: "rowgroup", colspan: String(shown.length), class: isFirst ? "part first" : "part" }, html("span", { class: "what" }, isFirst ? part : ""), html("span", { class: "role" }, role));
    return [html("tr", { class: "label" }, label), html("tr", {}, ...shown.map((style) => codeCell(cells[style.at])))];
  });
  const table = html("table", { class: "styles", "data-columns": String(shown.length) }, html("thead", {}, html("tr", {}, ...titles)), html("tbody", {}, ...body.flat()));
  byId("code").replaceChildren(table);
  byId("steps").replaceChildren(...shown.flatMap(({ title, removes, at }) => (removes === null || !shown.some((style) => style.at === at - 1) ? [] : [html("li", {}, html("strong", {}, `${styles[at - 1]?.title} → ${title}`), ` ${removes}`)])));
  const countRows = shown.map((style) => html("tr", { "data-style": style.name }, html("th", { scope: "row" }, style.title), ...COUNTS.map(([key]) => number(String(style[key]), key))));
  byId("counts").replaceChildren(html("table", { class: "facts" }, html("thead", {}, html("tr", {}, head("", false), ...COUNTS.map(([, title]) => head(title)))), html("tbody", {}, ...countRows)));
}

/** @param {Cell | undefined} cell @returns {HTMLElement} */
function codeCell(cell) {
  if (cell === undefined || cell.code.length === 0) return html("td", { class: "nothing" }, cell?.instead ?? "nothing");
  const lines = cell.code.map(({ number: at, parts }) => {
    const text = parts.map(([part]) => part).join("");
    const indent = text.length - text.trimStart().length;
    // A long line is wrapped, and goes on under its own beginning.
    const line = html("span", { class: "line", title: `${cell.file}:${at}`, style: `--indent: ${indent + 2}ch` });
    line.append(...parts.map(([part, kind]) => (kind === "" ? part : html("span", { class: kind }, part))));
    return line;
  });
  return html("td", {}, html("code", { class: "code" }, ...lines));
}

// --- agreement

/** @param {Runs} runs @param {Style[]} styles */
function showRuns({ leaves, shapes, reference_loss: referenceLoss, runs, apart, identical }, styles) {
  const titles = leaves.map((leaf) => html("th", { scope: "col", class: "number" }, html("code", {}, leaf), ` ${shapeText(shapes[leaf] ?? [])}`));
  const rows = runs.map(({ style, loss, gradients }, at) => html("tr", { "data-style": style }, html("th", { scope: "row" }, styles[at]?.title ?? style), number(figure(loss)), ...leaves.map((leaf) => agreementCell(leaf, gradients[leaf]))));
  const reference = html("tr", { class: "soft" }, html("th", { scope: "row" }, "autograd in float64"), number(figure(referenceLoss)), ...leaves.map(() => number("0")));
  byId("agreement").replaceChildren(html("table", { class: "facts" }, html("thead", {}, html("tr", {}, head("style", false), head("loss"), ...titles)), html("tbody", {}, ...rows, reference)));
  const pairRows = apart.map((row, at) => html("tr", {}, html("th", { scope: "row" }, styles[at]?.title ?? ""), ...row.map((each, other) => pairCell(each, identical[at]?.[other] === true, at === other))));
  byId("apart").replaceChildren(html("table", { class: "facts" }, html("thead", {}, html("tr", {}, head("", false), ...styles.map(({ title }) => head(title)))), html("tbody", {}, ...pairRows)));
  byId("agreement-says").textContent = agreementSays(runs, identical);
}

/** @param {string} leaf @param {Agreement | undefined} agreement @returns {HTMLElement} */
function agreementCell(leaf, agreement) {
  if (agreement === undefined) return number("–");
  const { difference, relative, nan, inf } = agreement;
  const odd = [nan > 0 ? `${count(nan)} NaN` : "", inf > 0 ? `${count(inf)} Inf` : ""].filter((part) => part !== "").join(", ");
  const cell = number(odd === "" ? figure(difference) : odd, odd === "" ? "" : "odd");
  cell.dataset["leaf"] = leaf;
  if (relative !== null && odd === "") cell.title = `${figure(relative)} of the largest element`;
  return cell;
}

/** @param {Figure} difference @param {boolean} isIdentical @param {boolean} isSame @returns {HTMLElement} */
function pairCell(difference, isIdentical, isSame) {
  if (isSame) return number("");
  const cell = number(isIdentical ? "identical" : difference === "NaN" ? "NaN in one of them" : figure(difference), isIdentical ? "soft" : "");
  return cell;
}

/** @param {Run[]} runs @param {boolean[][]} identical @returns {string} */
function agreementSays(runs, identical) {
  const nan = (/** @type {Run | undefined} */ run) => Object.values(run?.gradients ?? {}).reduce((sum, each) => sum + each.nan, 0);
  const [byHand, torchs] = [nan(runs[0]), nan(runs[runs.length - 1])];
  if (byHand !== torchs) return `By hand ${count(byHand)} gradients are NaN, under nn.Module ${count(torchs)}: where a unit is shut, (inp > 0) · out.g is 0 · Inf = NaN, and torch's own relu puts 0 there.`;
  if (byHand > 0) return `${count(byHand)} gradients are NaN in every style.`;
  const all = identical.every((row) => row.every(Boolean));
  return all ? "All five give the same numbers, bit by bit." : "The same numbers but for rounding: the order of the additions differs.";
}

// --- what goes wrong

/** @param {{as_printed: Ran, mended: Ran}} misprint */
function showMisprint({ as_printed: printed, mended }) {
  byId("misprint").replaceChildren(raised("backward() of the layer as printed", printed.error), html("p", {}, "A layer on LayerFunction has ", ...names(printed.attributes), `, no inp. When the error comes, ${printed.gradients.join(", ") || "nothing"} has been found. As it is meant, with the arguments of bwd: ${mended.gradients.join(", ")}.`));
}

/** @param {Modules} modules */
function showModules({ linear_layer: shapes, forgotten, models }) {
  byId("linear-layer").replaceChildren(html("code", {}, "lin = LinearLayer(10, 2); p1, p2 = lin.parameters()"), ` gives ${shapes.map((shape) => shapeText(shape)).join(" and ")}: both were found by being attributes.`);
  byId("forgotten").replaceChildren(raised("ForgetfulLayer(10, 2)", forgotten));
  const rows = models.map(({ name, loss, parameters }) => html("tr", {}, html("th", { scope: "row" }, html("code", {}, name)), number(figure(loss)), html("td", {}, parameters.map((each) => `${each.name} ${shapeText(each.shape)}`).join(", "))));
  byId("models").replaceChildren(html("table", { class: "facts" }, html("thead", {}, html("tr", {}, head("", false), head("loss"), head("parameters", false))), html("tbody", {}, ...rows)));
}

/** @param {string} what @param {Raised} error @returns {HTMLElement} */
function raised(what, error) {
  return html("p", { class: `remark ${error === null ? "" : "warning"}` }, html("code", {}, what), error === null ? " ends without an error." : " raises ", ...(error === null ? [] : [html("code", { class: "raised" }, `${error.type}: ${error.message}`)]));
}

/** @param {string[]} attributes @returns {(Node | string)[]} */
function names(attributes) {
  return attributes.flatMap((name, at) => [at === 0 ? "" : at === attributes.length - 1 ? " and " : ", ", html("code", {}, name)]);
}
