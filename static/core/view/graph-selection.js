/** Which boxes of a drawing show what is selected, focused or pointed out; where walking begins and ends. No DOM. */

import { find } from "../graph/graph.js";
import { GROUP, TENSOR } from "../layout/layout-sizes.js";

/**
 * @param {Sight} sight
 * @param {string} id of a thing
 * @returns {number} its box, or that of what holds it; -1: neither is drawn
 */
export function boxShowing({ graph, index }, id) {
  const item = id === "" ? null : find(graph, id);
  return item === null ? -1 : index.holderOf(item);
}

/**
 * @param {Sight} sight
 * @param {string} selected id of a thing, "" for none
 * @param {Item | null} focused
 * @returns {BoxSelection}
 */
export function locate(sight, selected, focused) {
  const { index, graph, drawing } = sight;
  const item = selected === "" ? null : find(graph, selected);
  const own = item === null ? -1 : index.boxOf(item);
  const around = item === null || own >= 0 ? -1 : index.holderOf(item);
  const at = focused === null ? -1 : index.holderOf(focused);
  return {
    selected: own,
    twin: own < 0 ? -1 : drawing.twin[own],
    holder: around >= 0 && drawing.kind[around] === GROUP ? around : -1,
    focused: at >= 0 ? at : firstInput(sight),
  };
}

/**
 * @param {Sight} sight
 * @param {ReadonlySet<string> | null} ids of what is pointed out
 * @returns {Uint8Array | null} box → whether it shows one of them, or holds it; null: nothing is pointed out
 */
export function litBoxes(sight, ids) {
  if (ids === null) return null;
  const lit = new Uint8Array(sight.drawing.boxes);
  for (const id of ids) {
    const box = boxShowing(sight, id);
    if (box >= 0) lit[box] = 1;
  }
  return lit;
}

/** @param {Sight} sight @returns {number} the box of the op that raised, or of what holds it; -1: none did */
export function failedBox(sight) {
  return boxShowing(sight, sight.graph.topology.error?.op ?? "");
}

/** @param {Sight} sight @returns {number} where walking begins */
export function firstInput({ drawing, graph }) {
  const { boxes, kind, half, ref, isSatellite } = drawing;
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] !== TENSOR || isSatellite[box] === 1 || half[box] === 1) continue;
    if (graph.topology.tensors[ref[box]].role === "input") return box;
  }
  return boxes > 0 ? 0 : -1;
}

/** @param {Sight} sight @returns {number} where the halves meet; -1: there is no loss */
export function lossBox({ drawing, graph }) {
  const { boxes, kind, ref } = drawing;
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] === TENSOR && graph.topology.tensors[ref[box]].role === "loss") return box;
  }
  return -1;
}
