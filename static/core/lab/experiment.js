/** The figures of a chapter's experiment: measured, printed, expected, and the band over seeds. No DOM. */

import { isHidden, percent, significant, valueAt } from "../format.js";
import { firstInf, firstNaN } from "./verdict.js";

/** Figures of the whole pass, not of a tensor. @type {Record<string, (picture: Picture) => number | null>} */
const OF_THE_PASS = { first_inf_layer: firstInf, first_nan_layer: firstNaN };

/** @type {Record<string, string>} */
const NAMES = { first_inf_layer: "first Inf at layer", first_nan_layer: "first NaN at", zero_fraction: "zeros",
  nan: "NaN" };

/** While a figure waits for its guess, only other measured figures show: the rest would reveal it.
 * @param {Picture} picture @param {Preset} preset */
export function experiment(picture, preset) {
  const focus = picture.topology.tensors.find(({ name }) => name === preset.focus);
  const row = picture.rows.get(focus?.id ?? "");
  const told = picture.hidden === null;
  const theory = theoryOf(told ? preset.theory : "");
  const names = [
    ...new Set([...theoryOf(preset.theory).keys(), ...Object.keys(preset.band),
      ...(preset.statistic === "nan" ? ["nan"] : [])]),
  ];
  const printed = printedOf(preset, names);
  const figures = names.map((name) => {
    const value = read(picture, row, name);
    const band = told ? (preset.band[name] ?? null) : null;
    const write = name === "zero_fraction" || name === "nan" ? percent : name in OF_THE_PASS ? String : significant;
    const isSecret = isHidden(picture, row) && !(name in OF_THE_PASS);
    return {
      name: NAMES[name] ?? name,
      isOfThePass: name in OF_THE_PASS,
      measured: isSecret ? "?" : value === null ? "–" : write(value),
      printed: told ? (printed.get(name) ?? null) : null, // in the chapter
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
