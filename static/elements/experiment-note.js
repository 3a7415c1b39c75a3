/**
 * <experiment-note>: when the spec is one of the chapter's experiments, its figure: measured, expected, printed.
 *
 * Set `preset` (null: none) and `picture`.
 */

import { html } from "../core/dom.js";
import { percent, significant, valueAt } from "../core/format.js";

/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").Preset} Preset */
/** @typedef {import("../core/types.js").FloatColumn} FloatColumn */

class ExperimentNote extends HTMLElement {
  /** @type {Preset | null} */
  #preset = null;
  /** @type {Picture | null} */
  #picture = null;

  connectedCallback() {
    this.#draw();
  }

  /** @param {Preset | null} preset */
  set preset(preset) {
    if (preset === this.#preset) return;
    this.#preset = preset;
    this.#draw();
  }

  /** @param {Picture} picture */
  set picture(picture) {
    this.#picture = picture;
    this.#draw();
  }

  #draw() {
    const preset = this.#preset;
    if (preset === null) {
      this.replaceChildren(html("span", { class: "hint" }, "Drag the init scale: the same draw is rescaled, so that whatever moves is its doing."));
      return;
    }
    const title = html("strong", { title: preset.note }, preset.title);
    const focus = this.#picture?.topology.tensors.find(({ name }) => name === preset.focus);
    const row = focus === undefined ? undefined : this.#picture?.rows.get(focus.id);
    const figures = html("span", { class: "figures" });
    if (this.#picture !== null && row !== undefined) {
      figures.append(html("span", {}, `${preset.focus} measured `, html("b", {}, measured(this.#picture, preset, row))));
    }
    if (preset.theory) figures.append(html("span", {}, `theory ${preset.theory}`));
    if (preset.printed && preset.printed !== "–") figures.append(html("span", {}, `printed ${preset.printed}`));
    this.replaceChildren(title, figures);
    this.title = preset.note;
  }
}

/**
 * @param {Picture} picture
 * @param {Preset} preset
 * @param {number} row
 * @returns {string} the figures that the experiment is about
 */
function measured(picture, preset, row) {
  const n = picture.integers.n[row] ?? 0;
  if (preset.statistic === "nan") return `${percent((picture.integers.nan[row] ?? 0) / n)} NaN`;
  if (preset.statistic === "zero_fraction") return `${percent(valueAt(picture.floats.zero_fraction, row))} zeros`;
  const statistics = "mean" in preset.band ? ["mean", "std"] : [preset.statistic];
  return statistics
    .map((name) => `${name} ${significant(valueAt(picture.floats[/** @type {FloatColumn} */ (name)], row))}`)
    .join(", ");
}

customElements.define("experiment-note", ExperimentNote);
