/** <run-list>: the runs of a folder as a legend: which curves are shown, and how far each run is.
 * Call `show(runs, curve, step)`. Event, bubbling: `run-toggle` {name, isShown}. */

import { emit, html, svg, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";
import { numberOf } from "../core/lab/training-run.js";

/** Seconds without a new step after which a run may have been killed. */
const QUIET = 60;

/** @typedef {{row: HTMLTableRowElement, box: HTMLInputElement, line: SVGElement, about: HTMLElement, state: HTMLElement,
 * step: HTMLElement, value: HTMLElement, of: string}} Row */

class RunList extends HTMLElement {
  /** By name. @type {Map<string, Row>} */
  #rows = new Map();
  #body = html("tbody");
  #step = html("th", { scope: "col", class: "number" }, "step");
  #value = html("th", { scope: "col", class: "number" }, "loss");

  connectedCallback() {
    const head = html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "run"), this.#step, this.#value));
    this.append(html("table", {}, html("caption", { class: "visually-hidden" }, "Runs"), head, this.#body));
  }

  /** @param {readonly ListedRun[]} runs @param {RunCurve} curve @param {number | null} step null: the last one */
  show(runs, curve, step) {
    writeText(this.#step, step === null ? "last step" : "step");
    writeText(this.#value, { loss: "loss", gradient_norm: "gradient norm", lr: "learning rate" }[curve]);
    const names = new Set(runs.map(({ entry }) => entry.name));
    for (const [name, { row }] of this.#rows) {
      if (names.has(name)) continue;
      row.remove();
      this.#rows.delete(name);
    }
    runs.forEach((listed, at) => {
      const { entry, run, isShown, line } = listed;
      const row = this.#rows.get(entry.name) ?? this.#add(entry.name);
      if (this.#body.children[at] !== row.row) this.#body.insertBefore(row.row, this.#body.children[at] ?? null);
      row.box.checked = isShown;
      row.box.disabled = entry.error !== null;
      write(row.line, "stroke", line.colour);
      write(row.line, "stroke-dasharray", line.dash.join(" "));
      this.#describe(row, entry);
      const problem = entry.error ?? (run?.problem || null);
      write(row.row, "class", problem === null ? "" : "broken");
      writeText(row.state, problem ?? stateOf(entry));
      const last = entry.step === null ? null : numberOf(entry.loss);
      const value = step === null && curve === "loss" ? last : run?.valueAt(curve, step ?? run.last) ?? null;
      const at_step = step === null ? entry.step : run === null || run.last < 0 ? null : Math.min(step, run.last);
      writeText(row.step, problem !== null || at_step === null ? "" : String(at_step));
      writeText(row.value, problem !== null ? "" : significant(value));
    });
  }

  /** @param {string} name @returns {Row} */
  #add(name) {
    const box = html("input", { type: "checkbox" });
    box.addEventListener("change", () => emit(this, "run-toggle", { name, isShown: box.checked }));
    const line = svg("line", { x1: 1, y1: 5, x2: 27, y2: 5, "stroke-width": 2.5 });
    const swatch = svg("svg", { class: "swatch", width: 28, height: 10, "aria-hidden": "true" }, line);
    const about = html("small");
    const [state, step, value] = [html("p"), html("td", { class: "number" }), html("td", { class: "number" })];
    const row = html("tr", {},
      html("th", { scope: "row" }, html("label", {}, box, swatch, html("span", {}, name)), state, about), step, value);
    const made = { row, box, line, about, state, step, value, of: "" };
    this.#rows.set(name, made);
    return made;
  }

  /** @param {Row} row @param {RunEntry} entry */
  #describe(row, { spec, model }) {
    const of = `${spec} ${model}`;
    if (of === row.of) return;
    row.of = of;
    row.about.replaceChildren(
      spec === null ? model ?? ""
        : html("a", { href: `/?${spec}#show=training`, title: "Train it in the explorer" },
          decodeURIComponent(spec).replaceAll("&", " ") || "the default spec"),
    );
  }
}

/** @param {RunEntry} entry @returns {string} */
function stateOf({ ended, diverged, loss, written }) {
  const parts = [];
  if (diverged !== null) parts.push(`${loss === "NaN" ? "NaN" : "Inf"} from step ${diverged}`);
  if (ended !== null) parts.push(ended);
  else parts.push(
      Date.now() / 1000 - written < QUIET ? "running"
        : "no end recorded: the process was killed, or this step takes long",
    );
  return parts.join(" · ");
}

customElements.define("run-list", RunList);
