/**
 * <layer-table>: the profile in figures, one row per preactivation and activation.
 *
 * Set `picture`. Event, bubbling: `tensor-select` {tensor}.
 */

import { emit, html, writeText } from "../core/dom.js";
import { figureAt, percent } from "../core/format.js";
import { nonFinite } from "../core/picture.js";

/** @typedef {import("../core/types.js").Picture} Picture */

/** @typedef {{tensor: string, gradient: string | null, cells: HTMLTableCellElement[]}} Row */
/** @typedef {{body: HTMLTableSectionElement, rows: Row[], isInSight: boolean}} Run */

const RUN_ROWS = 10;
const REST_MS = 250;

class LayerTable extends HTMLElement {
  #key = "";
  /** Runs of rows, of which only those in sight follow every picture. @type {Run[]} */
  #runs = [];
  /** @type {Picture | null} */
  #picture = null;
  #rest = 0;
  #sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const run = this.#runs.find(({ body }) => body === target);
      if (run === undefined) continue;
      run.isInSight = isIntersecting;
      if (isIntersecting) this.#update(run);
    }
  });

  disconnectedCallback() {
    clearTimeout(this.#rest);
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    if (picture === null) return;
    const isNew = picture.key !== this.#key;
    this.#picture = picture;
    if (isNew) this.#build(picture);
    for (const run of this.#runs) if (isNew || run.isInSight) this.#update(run);
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.#runs.forEach((run) => this.#update(run)), REST_MS);
  }

  /** @param {Picture} picture */
  #build({ key, topology }) {
    this.#key = key;
    this.#runs = [];
    this.#sight.disconnect();
    const names = new Map(topology.tensors.map(({ id, name }) => [id, name]));
    const gradientOf = new Map(topology.tensors.flatMap(({ id, gradient_of }) => (gradient_of === null ? [] : [[gradient_of, id]])));
    /** @param {string} layer @param {string | null} tensor @param {string | null} [gradient] */
    const add = (layer, tensor, gradient) => {
      if (tensor === null) return;
      let run = this.#runs.at(-1);
      if (run === undefined || run.rows.length === RUN_ROWS) {
        run = { body: html("tbody"), rows: [], isInSight: false };
        this.#runs.push(run);
      }
      const line = run.body.insertRow();
      line.append(html("th", { scope: "row" }, layer));
      const name = names.get(tensor) ?? tensor;
      const link = html("button", { type: "button", class: "link", title: name }, name);
      link.addEventListener("click", () => emit(this, "tensor-select", { tensor }));
      line.insertCell().append(link);
      const cells = [line.insertCell(), line.insertCell(), line.insertCell()];
      line.dataset["tensor"] = names.get(tensor) ?? tensor;
      run.rows.push({ tensor, gradient: gradient ?? gradientOf.get(tensor) ?? null, cells });
    };
    add("", topology.tensors.find(({ role }) => role === "input")?.id ?? null);
    for (const { index, preactivation, activation, gradient } of topology.layers) {
      if (preactivation !== activation) add(String(index), preactivation);
      add(preactivation === activation || preactivation === null ? String(index) : "", activation, gradient);
    }
    const titles = ["", "tensor", "mean", "std", "std of gradient"].map((title) => html("th", { scope: "col" }, title));
    const caption = html("caption", {}, "Per layer, over all elements of the batch");
    const bodies = this.#runs.map(({ body }) => body);
    this.replaceChildren(html("table", {}, caption, html("thead", {}, html("tr", {}, ...titles)), ...bodies));
    for (const body of bodies) this.#sight.observe(body);
  }

  /** @param {Run} run */
  #update(run) {
    const picture = this.#picture;
    if (picture === null) return;
    const { mean, std } = picture.floats;
    for (const { tensor, gradient, cells } of run.rows) {
      const row = picture.rows.get(tensor);
      const gradientRow = gradient === null ? undefined : picture.rows.get(gradient);
      const texts = [written(picture, row, mean), written(picture, row, std), written(picture, gradientRow, std)];
      texts.forEach(({ text, isWarning }, order) => {
        const cell = cells[order];
        if (cell === undefined) return;
        writeText(cell, text);
        cell.classList.toggle("warning", isWarning);
      });
    }
  }
}

/**
 * @param {Picture} picture
 * @param {number | undefined} row
 * @param {Float64Array} column
 * @returns {{text: string, isWarning: boolean}}
 */
function written(picture, row, column) {
  if (row === undefined) return { text: "–", isWarning: false };
  const bad = nonFinite(picture, row);
  if (bad !== null) return { text: bad.share === 1 ? bad.word : `${bad.word} ${percent(bad.share)}`, isWarning: true };
  return { text: figureAt(picture, column, row), isWarning: false };
}

customElements.define("layer-table", LayerTable);
