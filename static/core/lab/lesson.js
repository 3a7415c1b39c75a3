/** A step of a lesson: where it stands in the address, and the condition that ends it. No DOM. */

import { parseView } from "../url-state.js";

/** @param {readonly Lesson[]} lessons @param {string} text of the address, such as signal.2
 * @returns {{lesson: Lesson, step: LessonStep, at: number} | null} at: from 0; null where there is no such step */
export function stepOf(lessons, text) {
  const [, name, number] = /^([a-z0-9-]+)\.([1-9]\d?)$/.exec(text) ?? [];
  const lesson = lessons.find((each) => each.name === name);
  const at = Number(number) - 1;
  const step = lesson?.steps[at];
  return lesson === undefined || step === undefined ? null : { lesson, step, at };
}

const FIGURE = /^(\w+) of (\S+(?: \d+)?) (?:([<>]) (\S+)|between (\S+) and (\S+))$/;
const CHOICE = /^(spec|view) (\w+) is (\S+)$/;
const SHARES = { nan: ["nan"], inf: ["posinf", "neginf"] };

/** Whether a step's condition holds. Its forms are those of `lessons/read.py`.
 * @param {string} condition @param {Picture} picture @param {View} view */
export function holds(condition, picture, view) {
  const [, of, key, wanted] = CHOICE.exec(condition) ?? [];
  if (key !== undefined) {
    const value = of === "spec" ? picture.spec?.[key] : view[/** @type {keyof View} */ (key)];
    return String(value) === wanted;
  }
  const [, statistic = "", tensor = "", sign, limit, low, high] = FIGURE.exec(condition) ?? [];
  const row = picture.rows.get(tensorId(picture.topology, tensor) ?? "");
  if (row === undefined) return false;
  const value = figureOf(picture, statistic, row);
  if (sign === undefined) return value >= Number(low) && value <= Number(high);
  return sign === "<" ? value < Number(limit) : value > Number(limit);
}

/** A name in a step that the page does not know; the server checks the rest of a lesson. @param {LessonStep} step
 * @param {Picture} picture @returns {string} "" for nothing */
export function unknownName({ view, until }, { topology }) {
  const [, of, key = "", value = ""] = CHOICE.exec(until) ?? [];
  const parts = [...new URLSearchParams(view.split("#")[1] ?? ""), ...(of === "view" ? [[key, value]] : [])];
  const unknown = parts.find(([name = "", text = ""]) =>
    String(parseView(new URLSearchParams([[name, text]]).toString())[/** @type {keyof View} */ (name)]) !== text
  );
  if (unknown !== undefined) return `The lesson names an unknown part of the view: ${unknown.join("=")}`;
  // A layer, as in activation 50, may come with another depth.
  const tensor = /^\w+ of (\S+) [<>b]/.exec(until)?.[1];
  return tensor === undefined || tensorId(topology, tensor) !== undefined ? "" : `This net has no tensor ${tensor}.`;
}

/** @param {Picture} picture @param {string} statistic @param {number} row */
function figureOf({ floats, integers }, statistic, row) {
  if (statistic !== "nan" && statistic !== "inf") return floats[/** @type {FloatColumn} */ (statistic)]?.[row] ?? NaN;
  return SHARES[statistic].reduce((sum, kind) => sum + integers[/** @type {CountColumn} */ (kind)][row], 0);
}

/** @param {Topology} topology @param {string} name of a tensor, or of a layer's: activation 50
 * @returns {string | null | undefined} */
function tensorId({ tensors, layers }, name) {
  const [kind, index] = name.split(" ");
  if (index === undefined) return tensors.find((tensor) => tensor.name === name)?.id;
  return layers[Number(index) - 1]?.[/** @type {LayerTensor} */ (kind)];
}
