/** The order of nodes in their columns, from the axis outward. No recursion. */

import { OP } from "./sizes.js";

const SWEEPS = 8;
const TO_SORT_BY_HAND = 24;

/** Barycentre sweeps, alternately with the depth and against it, keep the order with fewest crossings; then sinks move
 * outward. @param {LayoutColumns} columns @param {LayoutLinks} links @param {SceneShape} shape */
export function orderColumns(columns, links, shape) {
  sweep(columns, links, shape);
  sinksOutward(columns, shape);
}

/** @param {LayoutColumns} columns @param {LayoutLinks} links @param {SceneShape} shape */
function sweep({ start, node, place }, links, { inner, outer, nodes, sourceOffset, targetOffset }) {
  const count = start.length - 1;
  let fewest = crossings(start, node, place, links);
  if (fewest === 0) return;
  const best = node.slice();
  const weight = new Float64Array(node.length);
  /** Offset of a line's end at its box, as a share of a place. @param {number} end @param {number} offset */
  const within = (end, offset) =>
    end >= nodes || offset === 0 ? 0 : (0.98 * offset) / (inner[0][end] + outer[0][end] + 1);
  for (let round = 0; round < SWEEPS && fewest > 0; round += 1) {
    const along = round % 2 === 0;
    const starts = along ? links.leftStart : links.rightStart;
    const list = along ? links.left : links.right;
    const ends = along ? links.from : links.to;
    const edges = along ? links.edge : links.edgeTo;
    const offsets = along ? sourceOffset[0] : targetOffset[0];
    for (let step = 1; step < count; step += 1) {
      const at = along ? step : count - 1 - step;
      const [first, last] = [start[at], start[at + 1]];
      if (last - first < 2) continue;
      const other = start[along ? at - 1 : at + 1];
      for (let position = first; position < last; position += 1) {
        const here = node[position];
        let sum = 0;
        const [from, to] = [starts[here], starts[here + 1]];
        for (let index = from; index < to; index += 1) {
          const link = list[index];
          const end = ends[link];
          sum += place[end] - other + within(end, offsets[edges[link]] ?? 0);
        }
        weight[here] = to > from ? sum / (to - from) : position - first;
      }
      sortPlaces(node, weight, first, last);
      for (let position = first; position < last; position += 1) place[node[position]] = position;
    }
    const now = crossings(start, node, place, links);
    if (now < fewest) {
      fewest = now;
      best.set(node);
    }
  }
  node.set(best);
  for (let position = 0; position < node.length; position += 1) place[node[position]] = position;
}

/** Moves ops without readers outward in their columns, out of the way of lines. @param {LayoutColumns} columns
 * @param {SceneShape} shape */
function sinksOutward({ start, node, place }, { nodes, kind, edges, source }) {
  const isSink = new Uint8Array(nodes);
  let sinks = 0;
  for (let at = 0; at < nodes; at += 1) if (kind[at] === OP) isSink[at] = 1;
  for (let edge = 0; edge < edges; edge += 1) isSink[source[edge]] = 0;
  for (let at = 0; at < nodes; at += 1) sinks += isSink[at];
  if (sinks === 0) return;
  for (let column = 0; column < start.length - 1; column += 1) {
    const here = node.slice(start[column], start[column + 1]);
    let at = start[column];
    for (const wanted of [0, 1]) {
      for (const each of here) {
        if (isSink[each] !== wanted) continue;
        node[at] = each;
        place[each] = at;
        at += 1;
      }
    }
  }
}

/** Sorts the nodes at some places by weight, stably. @param {Int32Array} node @param {Float64Array} weight
 * @param {number} first @param {number} last */
function sortPlaces(node, weight, first, last) {
  if (last - first > TO_SORT_BY_HAND) {
    const ordered = Array.from(node.subarray(first, last)).sort((a, b) => weight[a] - weight[b]);
    node.set(ordered, first);
    return;
  }
  for (let position = first + 1; position < last; position += 1) {
    const moved = node[position];
    let to = position;
    for (; to > first && weight[node[to - 1]] > weight[moved]; to -= 1) node[to] = node[to - 1];
    node[to] = moved;
  }
}

/** Crossings between neighbouring columns, counted with a Fenwick tree. @param {Int32Array} start
 * @param {Int32Array} node @param {Int32Array} place @param {LayoutLinks} links @returns {number} */
function crossings(start, node, place, { from, leftStart, left }) {
  let total = 0;
  const tree = new Int32Array(node.length + 2);
  /** @type {number[]} */
  const ends = [];
  for (let at = 1; at < start.length - 1; at += 1) {
    const before = start[at - 1];
    const width = start[at] - before;
    if (width < 2 || start[at + 1] - start[at] < 2) continue;
    tree.fill(0, 0, width + 2);
    let seen = 0;
    for (let position = start[at]; position < start[at + 1]; position += 1) {
      const here = node[position];
      ends.length = 0;
      for (let index = leftStart[here]; index < leftStart[here + 1]; index += 1) {
        ends.push(place[from[left[index]]] - before);
      }
      for (const end of ends) {
        let below = 0;
        for (let slot = end + 1; slot > 0; slot -= slot & -slot) below += tree[slot];
        total += seen - below;
      }
      for (const end of ends)
        for (let slot = end + 1; slot <= width; slot += slot & -slot) tree[slot] = tree[slot] + 1;
      seen += ends.length;
    }
  }
  return total;
}
