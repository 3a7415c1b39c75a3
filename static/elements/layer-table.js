/**
 * <layer-table>: the profile in figures, one row per preactivation and activation.
 *
 * Set `picture`. Event, bubbling: `tensor-select` {tensor}.
 */

import { emit, html } from "../core/dom.js";
import { figureAt, percent } from "../core/format.js";
import { nonFinite } from "../core/picture.js";

/** @typedef {import("../core/types.js").Picture} Picture */

class LayerTable extends HTMLElement {
  #key = "";
  /** @type {{tensor: string, gradient: string | null, cells: HTMLTableCellElement[]}[]} */
  #rows = [];

  /** @param {Picture | null} picture */
  set picture(picture) {
    if (picture === null) return;
    if (picture.key !== this.#key) this.#build(picture);
    this.#update(picture);
  }

  /** @param {Picture} picture */
  #build({ key, topology }) {
    this.#key = key;
    this.#rows = [];
    const names = new Map(topology.tensors.map(({ id, name }) => [id, name]));
    const gradientOf = new Map(topology.tensors.flatMap(({ id, gradient_of }) => (gradient_of === null ? [] : [[gradient_of, id]])));
    const body = html("tbody");
    /** @param {string} layer @param {string | null} tensor @param {string | null} [gradient] */
    const add = (layer, tensor, gradient) => {
      if (tensor === null) return;
      const line = body.insertRow();
      line.append(html("th", { scope: "row" }, layer));
      const link = html("button", { type: "button", class: "link" }, names.get(tensor) ?? tensor);
      link.addEventListener("click", () => emit(this, "tensor-select", { tensor }));
      line.insertCell().append(link);
      const cells = [line.insertCell(), line.insertCell(), line.insertCell()];
      line.dataset["tensor"] = names.get(tensor) ?? tensor;
      this.#rows.push({ tensor, gradient: gradient ?? gradientOf.get(tensor) ?? null, cells });
    };
    add("", topology.tensors.find(({ role }) => role === "input")?.id ?? null);
    for (const { index, preactivation, activation, gradient } of topology.layers) {
      if (preactivation !== activation) add(String(index), preactivation);
      add(preactivation === activation || preactivation === null ? String(index) : "", activation, gradient);
    }
    const titles = ["", "tensor", "mean", "std", "std of gradient"].map((title) => html("th", { scope: "col" }, title));
    const caption = html("caption", {}, "Per layer, over all elements of the batch");
    this.replaceChildren(html("table", {}, caption, html("thead", {}, html("tr", {}, ...titles)), body));
  }

  /** @param {Picture} picture */
  #update(picture) {
    const { mean, std } = picture.floats;
    for (const { tensor, gradient, cells } of this.#rows) {
      const row = picture.rows.get(tensor);
      const gradientRow = gradient === null ? undefined : picture.rows.get(gradient);
      const texts = [written(picture, row, mean), written(picture, row, std), written(picture, gradientRow, std)];
      texts.forEach(({ text, isWarning }, order) => {
        const cell = cells[order];
        if (cell === undefined) return;
        cell.textContent = text;
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
