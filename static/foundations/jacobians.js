/** The Jacobians of a gradient check as heatmaps: for every output and input the gradients of backward, the finite
 * differences of forward, and the error relative to the tolerance. The cell under the pointer or the arrow keys shows
 * its values. */

import { div, p, span, strong } from "../core/chapter/parts.js";
import { html } from "../core/dom.js";
import { count, significant } from "../core/format.js";
import { aroundZero, hex, isDarkScheme, oklch, onSchemeChange, readPalette } from "../core/colours.js";

/** @typedef {"analytic" | "numeric" | "difference"} Kind */

const TITLES = { analytic: "analytic: backward", numeric: "numeric: finite differences of forward",
  difference: "|analytic − numeric|" };
/** px */
const [WIDEST, TALLEST, LARGEST, LEAST] = [264, 288, 22, 4];
/** Share of the tolerance that counts as no difference. */
const NOTHING = 1e-8;

/** @param {CellValue} value @returns {string} */
export function figure(value) {
  return typeof value === "number" ? significant(value) : String(value).replace("Infinity", "∞");
}

/** @param {GradientCheck} check @returns {HTMLElement} */
export function jacobians(check) {
  return div("jacobians", ...check.comparisons.map(block));
}

/** @param {JacobianComparison} comparison @returns {HTMLElement} */
function block(comparison) {
  const { output, input, size, window: part, passed, outside, max_difference: largest } = comparison;
  const verdict = passed ? span("verdict good", "agree everywhere")
    : span("verdict bad", `${count(outside)} of ${count(size[0] * size[1])} elements differ`);
  const heading = html("h3", {}, `∂${output}/∂${input} `,
    span("soft", `${size[0]} × ${size[1]}, largest difference ${figure(largest)}`), " ", verdict);
  const readout = html("output", { class: "readout" });
  /** @param {number | null} row @param {number} column */
  const point = (row, column) => {
    readout.textContent = row === null ? worstText(comparison) : cellText(comparison, row, column);
    for (const map of maps) map.point(row, column);
  };
  const maps = /** @type {const} */ (["analytic", "numeric", "difference"]).map((kind) =>
    heatmap(kind, comparison, point)
  );
  point(null, 0);
  const cut = part.rows[1] - part.rows[0] < size[0] || part.columns[1] - part.columns[0] < size[1];
  const note = cut
    ? p("soft",
      `Rows ${part.rows[0]} to ${part.rows[1] - 1} and columns ${part.columns[0]} to ${
        part.columns[1] - 1
      } are shown, around the worst element.`) : "";
  const { kink, worst } = comparison;
  const explained = kink === null || worst === null ? ""
    : p("bad", `${place(comparison, worst.row, worst.column)}: ${kink}`);
  return html("section", { class: "jacobian", "data-passed": String(passed) }, heading,
    div("maps", ...maps.map((map) => map.element)), readout, explained, note);
}

/** @param {JacobianComparison} comparison @returns {string} */
function worstText(comparison) {
  const { worst } = comparison;
  if (worst === null) return "The Jacobian has no elements.";
  return `Largest error relative to its tolerance: ${place(comparison, worst.row, worst.column)}: ${
    sentence(worst.analytic, worst.numeric, worst.difference, worst.tolerance)
  }`;
}

/** @param {JacobianComparison} comparison @param {number} row @param {number} column @returns {string} */
function cellText(comparison, row, column) {
  const { window: part } = comparison;
  const at = /** @param {JacobianMatrix} matrix */ (matrix) => matrix.values[row]?.[column] ?? null;
  const [a, n, d, t] = [at(comparison.analytic), at(comparison.numeric), at(comparison.difference),
    at(comparison.tolerance)];
  return `${place(comparison, part.rows[0] + row, part.columns[0] + column)}: ${sentence(a, n, d, t)}`;
}

/** @param {CellValue} a @param {CellValue} n @param {CellValue} d @param {CellValue} t @returns {string} */
function sentence(a, n, d, t) {
  return `analytic ${figure(a)}, numeric ${figure(n)}, difference ${figure(d)}, tolerance ${figure(t)}`;
}

/** @param {JacobianComparison} comparison @param {number} row @param {number} column
 * @returns {string} ∂out[0, 1] / ∂inp[2, 0] */
function place({ output, input, output_shape: from, input_shape: to }, row, column) {
  return `∂${output}${indexText(row, from)} / ∂${input}${indexText(column, to)}`;
}

/** @param {number} flat @param {readonly number[]} shape @returns {string} */
function indexText(flat, shape) {
  if (shape.length === 0) return "";
  const index = [];
  for (const size of [...shape].reverse()) {
    index.unshift(flat % size);
    flat = Math.floor(flat / size);
  }
  return `[${index.join(", ")}]`;
}

/** @param {Kind} kind @param {JacobianComparison} comparison
 * @param {(row: number | null, column: number) => void} onpoint the element to read out, null for none */
function heatmap(kind, comparison, onpoint) {
  const { window: part } = comparison;
  const [rows, columns] = [part.rows[1] - part.rows[0], part.columns[1] - part.columns[0]];
  const cell = Math.max(LEAST,
    Math.min(LARGEST, Math.floor(WIDEST / Math.max(1, columns)), Math.floor(TALLEST / Math.max(1, rows))));
  const most = largestOf(comparison);
  const canvas = html("canvas", { tabindex: "0", role: "img",
    "aria-label": `${TITLES[kind]}, ${rows} rows by ${columns} columns: arrow keys read out an element` });
  let at = /** @type {[number, number] | null} */ (null);

  /** @param {number} row @param {number} column */
  const go = (row, column) => {
    if (rows * columns > 0)
      onpoint(Math.min(rows - 1, Math.max(0, row)), Math.min(columns - 1, Math.max(0, column)));
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    go(Math.floor(((event.clientY - box.top) / box.height) * rows),
      Math.floor(((event.clientX - box.left) / box.width) * columns));
  });
  for (const type of ["pointerleave", "blur"]) canvas.addEventListener(type, () => onpoint(null, 0));
  canvas.addEventListener("focus", () => go(at?.[0] ?? 0, at?.[1] ?? 0));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    go((at?.[0] ?? 0) + (step[0] ?? 0), (at?.[1] ?? 0) + (step[1] ?? 0));
  });

  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, columns * cell * ratio);
    canvas.height = Math.max(1, rows * cell * ratio);
    canvas.style.width = `${columns * cell}px`;
    const context = canvas.getContext("2d");
    if (context === null) return;
    context.scale(ratio, ratio);
    const palette = readPalette();
    const isDark = isDarkScheme();
    const gap = cell > 8 ? 1 : 0;
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        context.fillStyle = colourOf(kind, comparison, row, column, most, palette, isDark);
        context.fillRect(column * cell, row * cell, cell - gap, cell - gap);
      }
    }
    if (at === null) return;
    context.strokeStyle = palette.ink;
    context.lineWidth = 2;
    context.strokeRect(at[1] * cell + 0.5, at[0] * cell + 0.5, cell - 1 - gap, cell - 1 - gap);
  };
  onSchemeChange(draw);
  draw();
  const swatch = (/** @type {string} */ name) => html("i", { class: `swatch ${name}` });
  const legend = kind === "difference" ? ["0 ", swatch("tolerance"), " tolerance ", swatch("outside"), " outside"]
    : [`−${figure(most)} `, swatch("around"), ` ${figure(most)}`];
  return {
    element: html("figure", { "data-kind": kind }, html("figcaption", {}, TITLES[kind]), canvas,
      p("scale soft", ...legend)),
    /** @param {number | null} row @param {number} column */
    point(row, column) {
      at = row === null ? null : [row, column];
      draw();
    },
  };
}

/** @param {Kind} kind @param {JacobianComparison} comparison @param {number} row @param {number} column
 * @param {number} most @param {Palette} palette @param {boolean} isDark */
function colourOf(kind, { [kind]: matrix, within, tolerance }, row, column, most, palette, isDark) {
  const value = matrix.values[row]?.[column];
  if (kind !== "difference") return typeof value === "number" ? aroundZero(value / most, isDark) : palette.warning;
  if (!within.values[row]?.[column]) return palette.backward;
  const tolerated = tolerance.values[row]?.[column];
  if (typeof value !== "number" || typeof tolerated !== "number" || value === 0) return grey(0, isDark);
  return grey(1 - Math.log10(Math.max(NOTHING, Math.min(1, value / tolerated))) / Math.log10(NOTHING), isDark);
}

/** @param {JacobianComparison} comparison @returns {number} the largest finite size in both Jacobians */
function largestOf({ analytic, numeric }) {
  let most = 0;
  for (const row of [...analytic.values, ...numeric.values])
    for (const value of row) if (typeof value === "number") most = Math.max(most, Math.abs(value));
  return most || 1;
}

/** @param {number} share 0 to 1 @param {boolean} isDark @returns {string} */
function grey(share, isDark) {
  return hex(isDark ? oklch(0.25 + 0.35 * share, 0, 0) : oklch(0.97 - 0.4 * share, 0, 0));
}

/** @param {string} dtype @param {GradientCheck} check @returns {HTMLElement} */
export function verdictCard(dtype, check) {
  const { passed, torch } = check;
  /** @type {HTMLElement[]} */
  const rows = [
    p("head", strong("", dtype), " ", span(passed ? "verdict good" : "verdict bad", passed ? "passes" : "fails")),
    p("", `largest difference ${figure(check.max_difference)}`),
  ];
  if (!check.zero_for_zero)
    rows.push(p("", "A grad_output of 0 gives gradients that are not 0: backward does not multiply by grad_output."));
  if (!check.takes_undefined && check.zero_for_zero)
    rows.push(
      p("",
        "Backward does not treat a grad_output of None as 0. After ctx.set_materialize_grads(False), grad_output is None for an unused output."),
    );
  if (!check.forward_repeatable) rows.push(p("", "Two runs of forward on the same values give different results."));
  else if (!check.backward_repeatable)
    rows.push(p("", "Two runs of backward on the same values give different results."));
  rows.push(
    p("soft",
      torch.passed === passed ? "torch.autograd.gradcheck agrees."
        : `torch.autograd.gradcheck ${
          torch.passed ? "passes it" : torch.finds_fault ? "fails it" : "cannot check it"
        }.`),
  );
  if (torch.message !== "")
    rows.push(
      html("details", {}, html("summary", { class: "soft" }, "torch's message"),
        html("pre", { tabindex: "0" }, torch.message)),
    );
  return html("div", { class: "check-card", "data-dtype": dtype, "data-passed": String(passed) }, ...rows);
}
