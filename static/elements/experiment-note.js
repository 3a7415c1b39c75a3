/** <experiment-note>: the figures of the chapter's experiment that the spec describes: measured, printed, expected,
 * and the band over seeds.
 * Call `show(picture, presets)`: those with this spec. Event, bubbling: `prediction-start` {figure}. */

import { isHidden, percent, significant, valueAt } from "../core/format.js";
import { STATISTICS } from "../core/lab/prediction.js";
import { firstInf, firstNaN } from "../core/lab/verdict.js";
import { buttonOf, emit, html } from "../core/dom.js";

/** Figures of the whole pass, not of a tensor. @type {Record<string, (picture: Picture) => number | null>} */
const OF_THE_PASS = { first_inf_layer: firstInf, first_nan_layer: firstNaN };

/** @type {Record<string, string>} */
const NAMES = { first_inf_layer: "first Inf at layer", first_nan_layer: "first NaN at", zero_fraction: "zeros",
  nan: "NaN" };

/** @param {Preset} preset
 * @returns {FloatColumn | null} the statistic to guess; null if the experiment is about no single number */
function guessable(preset) {
  return STATISTICS.find((name) => name === preset.statistic) ?? null;
}

/** While a figure waits for its guess, only other measured figures show: the rest would reveal it.
 * @param {Picture} picture @param {Preset} preset @returns {Experiment} */
export function experiment(picture, preset) {
  const focus = picture.topology.tensors.find(({ name }) => name === preset.focus);
  const row = picture.rows.get(focus?.id ?? "");
  const told = picture.hidden === null;
  const theory = told ? theoryOf(preset.theory) : new Map();
  const names = [
    ...new Set([...theoryOf(preset.theory).keys(), ...Object.keys(preset.band),
      ...(preset.statistic === "nan" ? ["nan"] : [])]),
  ];
  const printed = told ? printedOf(preset, names) : new Map();
  const figures = names.map((name) => {
    const value = read(picture, row, name);
    const band = told ? (preset.band[name] ?? null) : null;
    const write = name === "zero_fraction" || name === "nan" ? percent : name in OF_THE_PASS ? String : significant;
    const isSecret = isHidden(picture, row) && !(name in OF_THE_PASS);
    return {
      name: NAMES[name] ?? name,
      isOfThePass: name in OF_THE_PASS,
      measured: isSecret ? "?" : value === null ? "–" : write(value),
      printed: printed.get(name) ?? null,
      theory: theory.get(name) ?? null,
      band: band === null ? null : [...new Set(band)].map(write).join("–"),
      isInside: band === null || value === null ? null : value >= band[0] && value <= band[1],
    };
  });
  return {
    figures,
    printed: told && printed.size === 0 && preset.printed !== "–" ? preset.printed : null,
    theory: told && theory.size === 0 && preset.theory !== "" ? preset.theory : null,
  };
}

/** @param {string} phrase such as "mean 0.5642, std 0.8256"
 * @returns {Map<string, string>} statistic → figure; empty if the phrase has another form */
function theoryOf(phrase) {
  const found = phrase.split(", ").map((part) => /^(mean|std) (.+)$/.exec(part));
  return new Map(
    found.every((match) => match !== null) ? found.map((match) => [match?.[1] ?? "", match?.[2] ?? ""]) : [],
  );
}

/** @param {Preset} preset @param {readonly string[]} names of its figures
 * @returns {Map<string, string>} figure → printed number; empty if the chapter printed none */
function printedOf({ printed, statistic }, names) {
  const [mean = "", std] = printed.split(" / ");
  if (std !== undefined) return new Map([["mean", mean], ["std", std]]);
  return new Map(/^([\d.]+|nan)$/.test(mean) ? [[names.includes("std") ? "std" : statistic, mean]] : []);
}

/** @param {Picture} picture @param {number | undefined} row of the tensor in focus @param {string} name */
function read(picture, row, name) {
  const ofThePass = OF_THE_PASS[name];
  if (ofThePass !== undefined) return ofThePass(picture);
  if (row === undefined) return null;
  if (name === "nan") return picture.integers.nan[row] / picture.integers.n[row];
  return valueAt(picture.floats[/** @type {FloatColumn} */ (name)], row);
}

const CONSTRUCT =
  "One construct of the chapter by itself: click a box for its formula, its line of code and its values.";
const HINT = "Drag the init scale: the same draw is rescaled, so that whatever moves is its doing.";

class ExperimentNote extends HTMLElement {
  #shown = "";

  connectedCallback() {
    if (this.#shown === "") this.replaceChildren(html("span", { class: "hint" }, HINT));
  }

  /** @param {Picture} picture @param {readonly Preset[]} presets */
  show(picture, presets) {
    const found = presets.map((preset) => experiment(picture, preset));
    const isSecret = picture.hidden !== null;
    const { program = "mlp" } = picture.spec ?? {};
    const shown = JSON.stringify([presets.map(({ name }) => name), found, isSecret, program]);
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
    this.replaceChildren(html("strong", {}, first.title), ...nodes, ...guesses);
  }

  /** @param {Preset} preset @param {string} text @returns {Node[]} */
  #guess(preset, text) {
    const statistic = guessable(preset);
    if (statistic === null) return [];
    const figure = `${preset.focus}.${statistic}`;
    const title = `Hides the figures of ${preset.focus} until you have said what they will be`;
    const button = buttonOf({ class: "link", title }, () => emit(this, "prediction-start", { figure }), text);
    return [button];
  }
}

/** @param {Preset} preset @param {Experiment} found @returns {Node[]} */
function figures({ focus }, { figures: measured, printed, theory }) {
  const nodes = measured.map((figure, order) => {
    const of = order === 0 && !figure.isOfThePass ? `${focus} ` : "";
    const node = html("span", {}, `${of}${figure.name} `, html("b", {}, figure.measured));
    const beside = [
      ...(figure.printed === null ? [] : [`chapter ${figure.printed}`]),
      ...(figure.theory === null ? [] : [`theory ${figure.theory}`]),
      ...(figure.band === null ? []
        : [`band ${figure.band}${figure.isInside === null ? "" : figure.isInside ? " ✓" : " outside"}`]),
    ];
    if (beside.length > 0)
      node.append(html("span", { class: figure.isInside === false ? "outside" : "beside" }, ` (${beside.join(", ")})`));
    return node;
  });
  const prose = [...(printed === null ? [] : [`chapter: ${printed}`]),
    ...(theory === null ? [] : [`theory: ${theory}`])];
  return [...nodes, ...prose.map((text) => html("span", { class: "beside" }, text))];
}

customElements.define("experiment-note", ExperimentNote);
