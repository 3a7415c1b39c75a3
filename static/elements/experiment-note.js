/** <experiment-note>: the figures of the chapter's experiment that the spec describes: measured, printed, expected,
 * and the band over seeds.
 * Call `show(picture, presets, theory)`: those with this spec; the theory of this picture, or of an earlier one. Event,
 * bubbling: `prediction-start` {figure}. */

import { experiment } from "../core/lab/experiment.js";
import { buttonOf, emit, html } from "../core/dom.js";
import { FLOAT_COLUMNS } from "../core/picture.js";

const CONSTRUCT =
  "This is one construct of the chapter. Click a box to see its formula, its line of code and its values.";
const HINT = "Drag the init scale: the random draw stays the same, so every change comes from the scale.";

class ExperimentNote extends HTMLElement {
  #shown = "";
  /** @type {{names: string, theory: Theory | null}} the presets of a theory: other seeds have the same bands */
  #told = { names: "", theory: null };

  connectedCallback() {
    if (this.#shown === "") this.replaceChildren(html("span", { class: "hint" }, HINT));
  }

  /** @param {Picture} picture @param {readonly Preset[]} presets @param {Theory | null} theory */
  show(picture, presets, theory) {
    const names = presets.map(({ name }) => name).join();
    if (theory?.seq === picture.seq) this.#told = { names, theory };
    const told = this.#told.names === names ? this.#told.theory : null;
    const found = presets.map((preset) => experiment(picture, preset, told));
    const isSecret = picture.hidden !== null;
    const { program = "mlp" } = picture.spec ?? {};
    const shown = JSON.stringify([names, found, isSecret, program]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    // A preset's note names the result.
    this.title = isSecret ? "" : presets.map(({ note }) => note).join(" ");
    const [first] = presets;
    if (first === undefined) {
      this.replaceChildren(html("span", { class: "hint" }, program === "mlp" ? HINT : CONSTRUCT));
      return;
    }
    const nodes = presets.flatMap((preset, order) =>
      figures(preset, found[order] ?? { figures: [], printed: null, theory: null })
    );
    const guesses = isSecret ? []
      : presets.flatMap((preset) =>
        this.#guess(preset, presets.length === 1 ? "Guess first" : `Guess ${preset.focus} first`)
      );
    this.replaceChildren(html("strong", {}, first.title), ...guesses, ...nodes);
  }

  /** @param {Preset} preset @param {string} text @returns {Node[]} */
  #guess(preset, text) {
    // Some experiments are about no single number.
    const statistic = FLOAT_COLUMNS.find((name) => name === preset.statistic);
    if (statistic === undefined) return [];
    const figure = `${preset.focus}.${statistic}`;
    const title = `Hide the numbers of ${preset.focus} until you have guessed one`;
    const button = buttonOf({ class: "link", title }, () => emit(this, "prediction-start", { figure }), text);
    return [button];
  }
}

/** @param {Preset} preset @param {Experiment} found @returns {Node[]} */
function figures({ focus }, { figures: measured, printed, theory }) {
  const nodes = measured.map((figure, order) => {
    const of = order === 0 && !figure.isOfThePass ? `${focus} ` : "";
    const node = html("span", {}, `${of}${figure.name} `, html("b", {}, figure.measured));
    const { isIn } = figure;
    const beside = [figure.printed && `chapter ${figure.printed}`, figure.theory && `theory ${figure.theory}`,
      figure.band && `band ${figure.band}${isIn === null ? "" : isIn ? " ✓\u00a0in" : " ✗\u00a0out"}`].filter(Boolean);
    if (beside.length > 0)
      node.append(html("span", { class: isIn === false ? "outside" : "beside" }, ` (${beside.join(", ")})`));
    return node;
  });
  const prose = [printed && `chapter: ${printed}`, theory && `theory: ${theory}`].flatMap((text) => text || []);
  return [...nodes, ...prose.map((text) => html("span", { class: "beside" }, text))];
}

customElements.define("experiment-note", ExperimentNote);
