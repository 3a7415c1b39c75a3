/** Elementwise arithmetic: every operator on two tensors, its reductions, and shapes that are refused. */

import { byId, div, elementAt, factsTable, isSame, p, row, sourceOf, span, td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { cellText, markCells, shapeText, tensorTable } from "../core/chapter/tensor-table.js";
import { html, svg } from "../core/dom.js";
import { significant } from "../core/format.js";

/** @typedef {{a: number | null, b: number | null, fits: boolean}} Sizes */
/** @typedef {{message: string, dimension: number | null, sizes: Sizes[]}} Mismatch */
/** @typedef {{result: TensorValues | null, error: Mismatch | null}} Outcome */
/** @typedef {{value: CellValue, dtype: string | null, error: string | null}} Reduction */
/** @typedef {Outcome & {name: string, sign: string, reductions: Record<string, Reduction>}} Operator */
/** @typedef {{index: number[], a: CellValue, sign: string, b: CellValue, value: CellValue, why: string}} Special */
/** @typedef {object} Item @property {number} value @property {string} exact @property {string | null} binary
 * @property {CellValue} below the float32 before value @property {CellValue} above the one after it
 * @property {number} count @property {number} sum @property {boolean} sum_is_exact @property {number} float32_sum
 * @property {number} sum_error @property {number} ratio @property {boolean} ratio_is_exact
 * @property {number | null} ratio_digits in binary; null: endless
 * @property {number} rounded the float32 nearest to the ratio @property {boolean} is_tie @property {number} error */

const REDUCTIONS = ["all", "sum", "mean"];
/** Characters of a result in the table of operators. */
const SHORT = 44;

new ChapterPage({
  show(answer) {
    /** @type {Operator[]} */
    const operators = answer.operators;
    const chosen = /** @type {Operator} */ (operators.find(({ name }) => name === answer.chosen));
    byId("element-sum").textContent = "";
    byId("operation").replaceChildren(operation("a", answer.a, chosen.sign, "b", answer.b, chosen));
    byId("elements").replaceChildren(...specials(answer.elements));
    showOperators(operators, chosen);
    showRefusedMean(chosen);
    byId("item").replaceChildren(...itemFigure(answer.item, chosen));
    byId("square").replaceChildren(operation("m", answer.m, "*", "m", answer.m, answer.square));
    byId("product").replaceChildren(operation("m", answer.m, "*", "n", answer.n, answer.product));
  },
});

// --- element by element

/** Two operands, the sign and the result; an element of the result lights its operands. @param {string} leftName
 * @param {TensorValues} left @param {string} sign @param {string} rightName @param {TensorValues} right
 * @param {Outcome} outcome @returns {HTMLElement} */
function operation(leftName, left, sign, rightName, right, { result, error }) {
  const tables = { left: tensorTable(left, { label: leftName }), right: tensorTable(right, { label: rightName }) };
  const operands = [tables.left, span("sign", sign), tables.right];
  if (result === null || error !== null) {
    const refused = div("operation", ...operands, span("refusal bad strong", "is refused"));
    return div("", refused, ...(error === null ? [] : mismatch(leftName, left, rightName, right, error)));
  }
  const isMain = leftName === "a";
  /** @param {TensorIndex | null} index */
  const look = (index) => {
    // Without a pointer the line below describes the first element.
    const at = index ?? (isMain ? result.shape.map(() => 0) : null);
    const [a, b] = at === null ? [null, null] : [sourceOf(left.shape, at), sourceOf(right.shape, at)];
    markCells(tables.left, (index) => isSame(index, a) ? "lit" : "");
    markCells(tables.right, (index) => isSame(index, b) ? "lit-2" : "");
    if (!isMain || at === null || a === null || b === null) return;
    const [first, second, value] = [elementAt(left, a), elementAt(right, b), elementAt(result, at)].map(cellText);
    byId("element-sum").textContent = `a ${sign} b at [${at.join(", ")}]: ${first} ${sign} ${second} = ${value}`;
  };
  const made = tensorTable(result, {
    label: `${leftName} ${sign} ${rightName}`,
    onhover: look,
    mark: (index) => typeof elementAt(result, index) === "string" ? "special odd strong" : "",
  });
  look(null);
  return div("operation", ...operands, span("sign", "="), made);
}

/** @param {Special[]} elements @returns {HTMLElement[]} */
function specials(elements) {
  if (elements.length === 0) return [];
  const rows = elements.slice(0, 8).map(({ index, a, sign, b, value, why }) =>
    row(`[${index.join(", ")}]`, td("number", `${cellText(a)} ${sign} ${cellText(b)} = ${cellText(value)}`),
      td("", why))
  );
  const more = elements.length > 8 ? [p("soft", `and ${elements.length - 8} more elements`)] : [];
  return [factsTable([], rows), ...more];
}

/** @param {string} leftName @param {TensorValues} left @param {string} rightName @param {TensorValues} right
 * @param {Mismatch} error @returns {HTMLElement[]} */
function mismatch(leftName, left, rightName, right, { message, dimension, sizes }) {
  /** @param {"a" | "b"} side @param {string} name @param {TensorValues} tensor */
  const sizesOf = (side, name, tensor) =>
    row(name, ...sizes.map((size) => html("td", { class: size.fits ? false : "misfit" }, String(size[side] ?? "–"))),
      td("soft", shapeText(tensor.shape)));
  const heads = [html("th", {}, "dimension"), ...sizes.map((_, at) => html("th", { class: "number" }, String(at))),
    html("th")];
  const fault = dimension === null ? undefined : sizes[dimension];
  const why = fault === undefined ? ""
    : `In dimension ${dimension} the sizes are ${fault.a} and ${fault.b}: they differ, and neither is 1. PyTorch compares from the last dimension to the first.`;
  return [
    p("message bad", `RuntimeError: ${message}`),
    factsTable(heads, [sizesOf("a", leftName, left), sizesOf("b", rightName, right)], "facts shapes"),
    p("soft", `${why} In the message, “tensor a” is the operand on the left, “tensor b” the one on the right.`),
  ];
}

// --- operators and reductions

/** Redraws the table and keeps the focus on the chosen button. @param {readonly Operator[]} operators
 * @param {Operator} chosen */
function showOperators(operators, chosen) {
  const place = byId("operators");
  const had = place.contains(document.activeElement);
  place.replaceChildren(operatorTable(operators, chosen));
  if (had) /** @type {HTMLElement | null} */ (place.querySelector("[aria-pressed=true]"))?.focus();
}

/** @param {readonly Operator[]} operators @param {Operator} chosen @returns {HTMLElement} */
function operatorTable(operators, chosen) {
  const heads = ["", "result", "dtype", ...REDUCTIONS.map((name) => `.${name}()`)].map((title) =>
    html("th", {}, title)
  );
  const rows = operators.map((operator) => {
    const isChosen = operator === chosen;
    const choose = html("button", { type: "button", class: "button", "data-set": `op=${operator.name}`,
      "aria-pressed": String(isChosen) }, `a ${operator.sign} b`);
    const { result } = operator;
    const cells = result === null ? [html("td", { class: "muted", colspan: "5" }, "refused: the shapes do not match")]
      : [td("value", short(result)), td("soft", result.dtype ?? ""),
        ...REDUCTIONS.map((name) => reduced(operator.reductions[name]))];
    return html("tr", { class: isChosen ? "chosen" : false, "data-operator": operator.name }, td("", choose), ...cells);
  });
  return div("scroll", factsTable(heads, rows, "facts operators"));
}

/** @param {Reduction | undefined} reduction @returns {HTMLElement} */
function reduced(reduction) {
  if (reduction === undefined || reduction.error !== null)
    return html("td", { class: "muted", title: reduction?.error ?? "" }, "refused");
  return td("value", cellText(reduction.value));
}

/** On one line. @param {TensorValues} tensor @returns {string} */
function short({ values }) {
  /** @param {any} value @returns {string} */
  const written = (value) => Array.isArray(value) ? `[${value.map(written).join(", ")}]` : cellText(value);
  const text = written(values);
  return text.length > SHORT ? `${text.slice(0, SHORT - 1)}…` : text;
}

/** @param {Operator} chosen */
function showRefusedMean({ sign, reductions }) {
  const message = reductions["mean"]?.error ?? null;
  const remark = byId("refused-mean");
  remark.hidden = message === null;
  remark.textContent = message === null ? ""
    : `(a ${sign} b).mean() is refused, because its elements are not numbers: “${message}” Use (a ${sign} b).float().mean() for the share of True.`;
}

// --- the number

/** @param {Item | null} item @param {Operator} chosen @returns {Element[]} */
function itemFigure(item, { sign, result }) {
  if (item === null) {
    const why = result === null ? "there is no result"
      : result.dtype === "bool" ? "the mean of a tensor of True and False is refused"
      : "an element of the result, or the sum, is not finite";
    return [p("soft", `There is no finite mean: ${why}.`)];
  }
  const { value, exact, count, error, binary, float32_sum: float32Sum, sum_error: sumError } = item;
  const isExact = error === 0;
  const facts = [
    ["all digits", `${minus(exact)}, exactly`],
    [count === 1 ? "the element" : "the elements",
      count === 1 ? `is ${sumText(item)}` : `have the sum ${sumText(item)}, and there are ${count}`],
    ...(sumError === 0 ? []
      : [["in float32",
        `before the division, the sum is rounded to ${minus(String(float32Sum))}, which is ${
          distanceText(sumError)
        } the exact sum`]]),
    ["the ratio",
      `${ratioText(item)} ${
        isExact ? "in float64, the same number" : `in float64; the float32 is ${distanceText(error)} the true ratio`
      }`],
    ...(binary === null ? [] : [["in binary", `${minus(binary)}${isExact ? "" : `: ${digitsText(item)}`}`]]),
  ];
  const rows = facts.map(([name = "", text = ""]) => row(name, td("message", text)));
  return [
    p("item", span("expression", `(a ${sign} b).mean().item() = `), minus(String(value))),
    ...(isExact ? [] : [neighbours(item)]),
    factsTable([], rows),
  ];
}

/** @param {string} text @returns {string} */
function minus(text) {
  return text.replace("-", "−");
}

/** @param {Item} item @returns {string} */
function sumText({ sum, sum_is_exact: isExact }) {
  return `${isExact ? "" : "about "}${minus(String(sum))}`;
}

/** In float64, with dots if it has more digits. @param {Item} item @returns {string} */
function ratioText({ ratio, ratio_is_exact: isExact }) {
  return `${minus(String(ratio))}${isExact ? "" : " …"}`;
}

/** @param {number} error @returns {string} 3.18e-7 above */
function distanceText(error) {
  return `${significant(Math.abs(error))} ${error > 0 ? "above" : "below"}`;
}

/** Explains the digits of a mean that differs from the ratio. @param {Item} item @returns {string} */
function digitsText({ value, rounded, ratio_digits: digits }) {
  if (value !== rounded) return "24 digits of the rounded sum's ratio, not of the true ratio";
  return digits === null ? "the ratio has infinitely many digits; 24 are kept, and the last one is rounded"
    : `the ratio has ${digits} digits; 24 are kept, and the last one is rounded`;
}

/** The ratio between float32 numbers, with the stored one marked. @param {Item} item @returns {SVGElement} */
function neighbours(item) {
  const { value, ratio, below, above, rounded } = item;
  const isNearest = value === rounded;
  const numbers = isNearest ? [below, value, above].filter((each) => typeof each === "number") : [value, rounded];
  const low = Math.min(...numbers, ratio);
  const span = Math.max(...numbers, ratio) - low || 1;
  const [width, height, margin] = [440, 84, 68];
  /** @param {number} at */
  const x = (at) => margin + ((at - low) / span) * (width - 2 * margin);
  const nearest = item.is_tie ? "the even one of the two nearest numbers" : "the nearest float32";
  const line = svg("svg", { class: "neighbours", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": placeText(item) });
  line.append(svg("line", { class: "axis", x1: margin / 2, x2: width - margin / 2, y1: 42, y2: 42 }));
  for (const number of numbers) {
    const isStored = number === value;
    const role = number === rounded ? nearest : isStored ? "the result of mean()" : "";
    line.append(svg("line", { class: "tick", x1: x(number), x2: x(number), y1: 34, y2: 50 }),
      svg("text", { class: isStored ? "stored" : "", x: x(number), y: 66, "text-anchor": "middle" },
        minus(String(number))),
      svg("text", { class: isStored ? "stored" : "", x: x(number), y: 80, "text-anchor": "middle" }, role));
    if (isStored) line.append(svg("circle", { class: "stored", cx: x(number), cy: 42, r: 5 }));
  }
  line.append(svg("path", { class: "exact", d: `M${x(ratio)} 40l-5 -9h10z` }),
    svg("text", { class: "exact", x: x(ratio), y: 20, "text-anchor": "middle" }, ratioText(item)));
  return line;
}

/** The picture in words. @param {Item} item @returns {string} */
function placeText(item) {
  const [ratio, value, rounded] = [ratioText(item), minus(String(item.value)), minus(String(item.rounded))];
  if (item.value !== item.rounded)
    return `The float32 nearest to the ratio ${ratio} is ${rounded}; mean() gives ${value}, because the sum was rounded before`;
  if (item.is_tie) return `The ratio ${ratio} lies halfway between two float32 numbers; ${value} is the even one`;
  return `The ratio ${ratio} lies between float32 numbers; the nearest is ${value}`;
}
