/** Settings that gradient rules read from a call. */

export const CHAPTER = "Howard and Gugger 2020, Deep Learning for Coders, ch. 17";

/** The number that stands where a binary op could have a tensor. In-place ops are recorded with its position instead of
 * its name. @param {OpAttributes} attributes */
export function scalarOf(attributes) {
  const value = attributes["other"] ?? attributes["1"];
  return typeof value === "number" ? value : null;
}

/** @param {unknown} value @returns {boolean} whether a setting is not given, or switches nothing on */
export function isOff(value) {
  return value === undefined || value === null || value === false || value === "none" || value === 0;
}

/** @param {number} value @returns {string} to four digits, with a minus of its own */
export function numberText(value) {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** @param {OpAttributes} attributes @returns {number} what an addition multiplies its second operand with */
export function alphaOf({ alpha }) {
  return typeof alpha === "number" ? alpha : 1;
}

/** @param {OpAttributes} attributes of a transposition @returns {[number | null, number | null]} null where it names
 * none */
export function swappedAxes(attributes) {
  const [first, second] = [attributes["dim0"] ?? attributes["axis0"] ?? attributes["1"],
    attributes["dim1"] ?? attributes["axis1"] ?? attributes["2"]];
  return [typeof first === "number" ? first : null, typeof second === "number" ? second : null];
}
