/** The figures of a chapter's experiment: measured, printed, expected, and the band over seeds. No DOM. */

import { isHidden, percent, significant, valueAt } from "../format.js";
import { bandText, expectedText, figuresOf, isWithin, MEASURES } from "./diagnosis.js";

/** Figures of the whole pass, not of a tensor. @type {Record<string, (picture: Picture) => number | null>} */
const OF_THE_PASS = {
  first_inf_layer: (picture) => firstLayer(picture, ({ posinf, neginf }, row) => posinf[row] + neginf[row] > 0),
  first_nan_layer: (picture) => firstLayer(picture, ({ nan }, row) => nan[row] > 0),
};

/** @type {Record<string, string>} */
const NAMES = { first_inf_layer: "first Inf at layer", first_nan_layer: "first NaN at", zero_fraction: "zeros",
  nan: "NaN" };

/** While a figure waits for its guess, only other measured figures show: the rest would reveal it.
 * @param {Picture} picture @param {Preset} preset @param {Theory | null} theory of the same spec, but for its seed; its
 * bands are the inspector's, and the preset has one where theory has none */
export function experiment(picture, preset, theory) {
  const focus = picture.topology.tensors.find(({ name }) => name === preset.focus);
  const row = picture.rows.get(focus?.id ?? "");
  const told = picture.hidden === null;
  const phrases = namesIn(preset.theory);
  const names = [...new Set([...phrases, ...Object.keys(preset.band), preset.statistic])];
  const expectations = !told || theory === null || focus === undefined ? [] : figuresOf(picture, theory, focus.id);
  const printed = printedOf(preset, names);
  const figures = names.map((name) => {
    const value = read(picture, row, name);
    const figure = expectations.find(({ quantity }) => MEASURES[quantity].label === name);
    const { quantity, expected = null } = figure ?? {};
    const band = told ? (preset.band[name] ?? null) : null;
    const write = name === "zero_fraction" || name === "nan" ? percent : name in OF_THE_PASS ? String : significant;
    const isSecret = isHidden(picture, row) && !(name in OF_THE_PASS);
    return {
      name: NAMES[name] ?? name,
      isOfThePass: name in OF_THE_PASS,
      measured: isSecret ? "?" : value === null ? "–" : write(value),
      printed: told ? (printed.get(name) ?? null) : null, // in the chapter
      theory: quantity === undefined || expected === null ? null : expectedText(quantity, expected),
      band: quantity !== undefined && expected !== null ? bandText(quantity, expected.band)
        : band === null ? null : [...new Set(band)].map(write).join("–"),
      isIn: isWithin({ measured: value, expected: expected ?? (band === null ? null : { band }) }),
    };
  });
  return {
    figures,
    printed: told && printed.size === 0 && preset.printed !== "–" ? preset.printed : null,
    theory: told && phrases.length === 0 && preset.theory !== "" ? preset.theory : null,
  };
}

/** @param {Picture} picture @param {(integers: Picture["integers"], row: number) => boolean} holds
 * @returns {number | null} the first layer with a forward tensor for which it holds */
function firstLayer({ topology, rows, integers }, holds) {
  const isIt = (/** @type {string | null} */ tensor) => {
    const row = rows.get(tensor ?? "");
    return row !== undefined && holds(integers, row);
  };
  const found = topology.layers.find(({ preactivation, activation }) => isIt(preactivation) || isIt(activation));
  return found?.index ?? null;
}

/** @param {string} phrase such as "mean 0.5642, std 0.8256" @returns {string[]} mean, std; none of another form */
function namesIn(phrase) {
  const found = phrase.split(", ").map((part) => /^(mean|std) .+$/.exec(part)?.[1] ?? "");
  return found.includes("") ? [] : found;
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
