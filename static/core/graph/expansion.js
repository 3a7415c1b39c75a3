/** Which groups are open, as the address has it, and how to change that. No DOM. */

import { openGroups } from "./graph.js";
import { readersOf } from "./wiring.js";

/** @typedef {{level: string, toggled: string, fold: "auto" | "on" | "off"}} ExpansionKeys of the view */

/** @param {ExpansionKeys} view @returns {Expansion} */
export function expansionOf({ level, toggled, fold }) {
  return { level, fold, toggled: toggled === "" ? [] : toggled.split(",").map(unescape) };
}

/** @param {string} text @returns {string} what cannot be unescaped as it stands: no group is called so */
function unescape(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {Iterable<string>} ids @returns {string} for the address; module paths may hold any character */
export function written(ids) {
  return [...ids].map((id) => id.replace(/[%,]/g, encodeURIComponent)).join(",");
}

/** @param {ExpansionKeys} view @param {string} id of a group @returns {string} `toggled`, with that group the other
 * way */
export function toggle(view, id) {
  const ids = new Set(expansionOf(view).toggled);
  if (!ids.delete(id)) ids.add(id);
  return written(ids);
}

/** @param {ExpansionKeys} view @param {Graph} graph @param {Item} item @returns {string} `toggled`, with every group
 * open that the item is in */
export function toggledToShow(view, graph, item) {
  const expansion = expansionOf(view);
  const { arrays, groupId } = graph;
  const { open, kinds } = openGroups(graph, expansion);
  const ids = new Set(expansion.toggled);
  for (let group = homeOf(graph, item); group > 0; group = arrays.groupParent[group]) {
    const isSeeThrough = arrays.groupKind[group] >= kinds;
    const id = groupId[group];
    if (!isSeeThrough && open[group] === 0 && !ids.delete(id)) ids.add(id);
  }
  return written(ids);
}

/** @param {Graph} graph @param {Item} item @returns {number} the innermost group that has to be open for the item to be
 * drawn as itself */
function homeOf({ arrays }, { kind, index }) {
  if (kind === "group") return arrays.groupParent[index];
  if (kind === "op") return Math.max(0, arrays.opGroup[index]);
  const of = arrays.gradientOf[index];
  const tensor = of >= 0 ? of : index;
  const op = arrays.producer[tensor];
  // A leaf stands beside its first reader.
  const at = op >= 0 ? op : arrays.consumers[arrays.consumerStart[tensor]];
  return homeOfTensor(arrays, tensor, Math.max(0, arrays.opGroup[at]));
}

/** @param {GraphArrays} arrays @param {number} tensor @param {number} group of the op that makes it
 * @returns {number} the first group outward in which something else reads it, too: up to there it leaves its makers */
function homeOfTensor(arrays, tensor, group) {
  const { opGroup, opHalf, groupParent, groupFirst, groupLast } = arrays;
  const readers = readersOf(arrays, tensor).filter((op) => opHalf[op] === 0 && opGroup[op] >= 0);
  if (readers.length === 0) return groupParent[group];
  let home = group;
  const holds = (/** @type {number} */ op) => op >= groupFirst[home] && op < groupLast[home];
  while (home > 0 && !readers.some(holds)) home = groupParent[home];
  return home;
}
