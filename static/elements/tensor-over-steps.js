/** <tensor-over-steps>: the selected tensor at every step, on every rank, or in every precision: histograms on one axis
 * of values, and a table of figures, or of errors. A click shows that step.
 * Call `show(steps, labels, index, pinned, hue, unit)`; set `axis`. Events, bubbling: `dump-step` {index},
 * `layers-options-change` {axis}. */

import { oncePerFrame } from "../core/activity.js";
import { buttonOf, emit, headings, html, write, writeText } from "../core/dom.js";
import { count, relativeError, significant } from "../core/format.js";
import { drawTensorSteps, planTensorSteps } from "../core/lab/tensor-steps.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { surface } from "../core/surface.js";

/** @typedef {{steps: TensorSteps, labels: readonly string[], index: number, pinned: number, hue: "forward" |
 * "backward" | "parameter" | "neutral", unit: "step" | "rank" | "precision"}} Shown */
/** @typedef {NonNullable<TensorSteps["rows"][number]>} Figures */

/** Where a tensor is. */
const WHERE = { step: "at", rank: "on", precision: "in" };

/** The columns of the table. @type {Record<string, (row: Figures) => string>} */
const FIGURES = { mean: ({ mean }) => significant(mean), std: ({ std }) => significant(std),
  min: ({ min }) => significant(min), max: ({ max }) => significant(max), "NaN, Inf": (row) => badIn(row) || "0" };
/** @type {Record<string, (row: Figures) => string>} */
const ERRORS = { error: ({ error }) => relativeError(error), predicted: ({ expected }) => relativeError(expected),
  "NaN, Inf": FIGURES["NaN, Inf"] };

/** @param {Figures | null} row @returns {string} "" where all values are finite */
function badIn(row) {
  const { nan = 0, inf = 0 } = row ?? {};
  return [nan > 0 ? `${count(nan)} NaN` : "", inf > 0 ? `${count(inf)} Inf` : ""].filter(Boolean).join(", ");
}

class TensorOverSteps extends HTMLElement {
  #shown = /** @type {Shown | null} */ (null);
  #plan = /** @type {StepsPlan | null} */ (null);
  #palette = readPalette();
  #drawSoon = oncePerFrame(() => this.#draw());
  #width = 0;
  #told = "";

  #title = html("h2");
  #log = buttonOf({ class: "toggle small", title: "A logarithmic axis on both sides of zero" },
    () => emit(this, "layers-options-change", { axis: this.#log.ariaPressed === "true" ? "linear" : "log" }), "log");
  #canvas = html("canvas", { role: "img" });
  #note = html("p", { class: "note" });
  #rows = html("tbody");
  #head = html("thead");
  #figures = html("details", { class: "figures" }, html("summary", {}, "Figures"),
    html("table", {}, this.#head, this.#rows));

  connectedCallback() {
    this.append(html("header", {}, this.#title, this.#log), this.#canvas, this.#note, this.#figures);
    this.#canvas.addEventListener("click", ({ offsetY }) => {
      const index = this.#plan === null ? -1 : this.#plan.stepAt(offsetY);
      if (index >= 0) emit(this, "dump-step", { index });
    });
    this.#figures.addEventListener("toggle", () => this.#fill());
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry?.contentRect.width ?? 0);
      if (width === this.#width) return;
      this.#width = width;
      this.#drawSoon();
    }).observe(this);
    onSchemeChange(() => {
      this.#palette = readPalette();
      this.#drawSoon();
    });
  }

  /** @param {"linear" | "log"} axis */
  set axis(axis) {
    write(this.#log, "aria-pressed", String(axis === "log"));
  }

  /** @param {TensorSteps} steps @param {readonly string[]} labels of the steps
   * @param {number} index of the step shown @param {number} pinned -1: none @param {Shown["hue"]} hue
   * @param {Shown["unit"]} unit */
  show(steps, labels, index, pinned, hue, unit) {
    // The errors are what precisions are compared for.
    if (unit !== this.#shown?.unit) this.#figures.open = unit === "precision";
    this.#shown = { steps, labels, index, pinned, hue, unit };
    writeText(this.#title, `${steps.name} ${WHERE[unit]} ${labels.length} ${unit}s`);
    this.#drawSoon();
  }

  #draw() {
    const shown = this.#shown;
    const width = this.#canvas.clientWidth;
    if (shown === null || width === 0) return;
    const { steps, labels, index, pinned, hue } = shown;
    const plan = planTensorSteps(steps, labels, width);
    this.#plan = plan;
    const height = `${plan.height}px`;
    if (this.#canvas.style.height !== height) this.#canvas.style.height = height;
    const context = surface(this.#canvas, width, plan.height);
    if (context === null) return;
    const { ink, muted, line, warning, paper } = this.#palette;
    drawTensorSteps(context, plan, steps, { labels, index, pinned }, { hue: this.#palette[hue], ink, muted, line,
      warning, paper }, getComputedStyle(this).fontFamily);
    this.#say(shown);
    this.#fill();
  }

  /** @param {Shown} shown */
  #say({ steps: { name, rows, missing, waiting, histograms }, labels, unit }) {
    const first = rows.findIndex((row) => row?.std != null);
    const last = rows.findLastIndex((row) => row?.std != null);
    const ends = first < 0 ? "no finite value"
      : `std ${significant(rows[first]?.std)} at ${labels[first]}, ${significant(rows[last]?.std)} at ${labels[last]}`;
    write(this.#canvas, "aria-label",
      `Histograms of ${name} ${WHERE[unit]} ${labels.length} ${unit}s: ${ends}. ` + "The table below has the values.");
    const [low, high] = [finite(rows.map((row) => row?.min)), finite(rows.map((row) => row?.max))];
    const notes = [
      unit === "rank" && low.length > 0
        ? `all ranks: ${significant(Math.min(...low))} to ${significant(Math.max(...high))}` : "",
      ...rows.map((row, at) =>
        row?.error != null && row.errorOf !== labels[at] ? `${labels[at]}: the error of ${row.errorOf} against it` : ""
      ),
      waiting > 0 ? `${count(waiting)} of ${count(labels.length)} ${unit}s are not read yet` : "",
      missing > 0 ? `${count(missing)} ${missing === 1 ? `${unit} has` : `${unit}s have`} no such tensor` : "",
      histograms === null && waiting === 0 ? "no finite value" : "",
    ].filter(Boolean);
    this.#note.hidden = notes.length === 0;
    writeText(this.#note, notes.join(" · "));
  }

  /** Fills the open table; its rows stay while the steps do. */
  #fill() {
    const shown = this.#shown;
    if (shown === null || !this.#figures.open) return;
    const { steps, labels, index, unit } = shown;
    const columns = unit === "precision" ? ERRORS : FIGURES;
    const key = [unit, ...labels].join("\n");
    if (key !== this.#told) {
      this.#told = key;
      this.#head.replaceChildren(headings([unit, ...Object.keys(columns)]));
      this.#rows.replaceChildren(...labels.map((label, index) => {
        const go = buttonOf({ class: "link" }, () => emit(this, "dump-step", { index }), label);
        return html("tr", {}, html("th", { scope: "row" }, go), ...Object.keys(columns).map(() => html("td")));
      }));
    }
    steps.rows.forEach((row, order) => {
      const line = this.#rows.rows[order];
      Object.values(columns).forEach((text, at) => writeText(line.cells[at + 1], row === null ? "–" : text(row)));
      line.classList.toggle("bad", badIn(row) !== "");
      if (order === index) line.setAttribute("aria-current", "step");
      else line.removeAttribute("aria-current");
    });
  }
}

/** @param {readonly (number | null | undefined)[]} values @returns {number[]} */
function finite(values) {
  return values.filter((value) => value != null && Number.isFinite(value)).map(Number);
}

customElements.define("tensor-over-steps", TensorOverSteps);
