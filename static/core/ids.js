/** Finds the parts of a dump by their ids. */

import { memo } from "./memo.js";

/** Id → place in a list of ops, tensors or modules; of an id that stands twice, the last place. */
export const idIndex = memo((/** @type {readonly {id: string}[]} */ parts) => {
  /** @type {Map<string, number>} */
  const index = new Map();
  for (let place = 0; place < parts.length; place += 1) index.set(parts[place].id, place);
  return index;
});

/** The places that a field of each part names: those of part i are `places[start[i]]` up to `places[start[i + 1] - 1]`; −1
 * for null, UNKNOWN for an id that nothing has. @typedef {{start: Int32Array, places: Int32Array}} Links */

export const UNKNOWN = -2;

/** @type {WeakMap<object, Map<string, Links>>} */
const kept = new WeakMap();

/** @template {object} T @param {readonly T[]} parts of a dump @param {keyof T & string} field with an id or a list of ids
 * @param {readonly {id: string}[]} targets the parts that they name; of one list and field always the same
 * @returns {Links} computed once, so neither list may change afterwards */
export function linksOf(parts, field, targets) {
  let fields = kept.get(parts);
  if (fields === undefined) kept.set(parts, fields = new Map());
  let links = fields.get(field);
  if (links === undefined) fields.set(field, links = found(parts, field, idIndex(targets)));
  return links;
}

/** @template {object} T @param {readonly T[]} parts @param {keyof T} field @param {ReadonlyMap<string, number>} index
 * @returns {Links} */
function found(parts, field, index) {
  const start = new Int32Array(parts.length + 1);
  /** @type {number[]} */
  const places = [];
  for (let part = 0; part < parts.length; part += 1) {
    const value = /** @type {any} */ (parts[part][field]);
    if (value instanceof Array) { for (const id of value) places.push(index.get(id) ?? UNKNOWN); }
    else places.push(value == null ? -1 : index.get(value) ?? UNKNOWN);
    start[part + 1] = places.length;
  }
  return { start, places: Int32Array.from(places) };
}
