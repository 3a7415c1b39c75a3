/** Finds the parts of a dump by their ids. */

import { memo } from "./memo.js";

/** Id → place in a list of ops, tensors or modules; of an id that stands twice, the last place. */
export const idIndex = memo((/** @type {readonly {id: string}[]} */ parts) => {
  /** @type {Map<string, number>} */
  const index = new Map();
  for (let place = 0; place < parts.length; place += 1) index.set(parts[place].id, place);
  return index;
});
