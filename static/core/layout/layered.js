/**
 * A layered layout of one scene: which column each box stands in, in what order, and how high. No DOM; iterative.
 *
 *   columns: longest path from what comes in · a chain of dummies where a value passes by, one for all its readers ·
 *   order within a column: barycentre sweeps · heights: see straight.js
 */

import { climbOf } from "./compaction.js";
import { byKey } from "../graph/wiring.js";
import { OP, TENSOR, widened } from "./sizes.js";
import { assignHeights } from "./straight.js";

/** Most dummies; further lines run straight across the columns. */
const MAX_DUMMIES = 200_000;

/** Columns and heights of nodes, then of dummies; `via` has the first dummy that an edge runs along, -1 for none.
 * @param {SceneShape} shape @param {LayoutSpacing} spacing */
export function layered(shape, spacing) {
  const { nodes } = shape;
  const assigned = assignColumns(shape);
  const { column, via, links } = passBy(shape, assigned);
  const columns = fillColumns(column, assigned.count);
  orderColumns(columns, links, shape);
  const forward = assignHeights(shape, columns, column, links, spacing, 0);
  const backward = isSymmetric(shape) ? forward : assignHeights(shape, columns, column, links, spacing, 1);

  const count = assigned.count;
  const columnDepth = new Float32Array(count);
  for (let node = 0; node < nodes; node += 1) {
    const at = column[node];
    columnDepth[at] = Math.max(columnDepth[at], shape.depth[node]);
  }
  const rise = new Float32Array(count);
  for (let link = 0; link < links.from.length; link += 1) {
    const [from, to] = [links.from[link], links.to[link]];
    if (to === shape.axis) continue;
    const at = column[from];
    const climb = forward.height[from] - forward.height[to] + climbOf(shape, links, link, 0);
    const mirrored = backward.height[from] - backward.height[to] + climbOf(shape, links, link, 1);
    rise[at] = Math.max(rise[at], Math.abs(climb), Math.abs(mirrored));
  }
  const columnStart = new Float32Array(count);
  let start = 0;
  for (let at = 0; at < count; at += 1) {
    columnStart[at] = start;
    const isFirst = !shape.isOpen && at === 0;
    const isLast = !shape.isOpen && at === count - 2;
    const gap = isFirst ? spacing.start : isLast ? spacing.end : spacing.gap;
    start += columnDepth[at] + (at < count - 1 ? widened(gap, rise[at]) : 0);
  }
  /** @type {[Float32Array, Float32Array]} */
  const height = [forward.height, backward.height];
  return { columns: count, column, height, columnStart, columnDepth, via, width: start,
    top: [forward.top, backward.top] };
}

/** @param {SceneShape} shape @returns {boolean} whether the halves are exact mirror images */
function isSymmetric({ axis, inner, outer, sourceOffset, targetOffset }) {
  for (const [forward, backward] of [inner, outer]) {
    for (let node = 0; node < forward.length; node += 1)
      if (node !== axis && forward[node] !== backward[node]) return false;
  }
  for (const [forward, backward] of [sourceOffset, targetOffset]) {
    for (let edge = 0; edge < forward.length; edge += 1) if (forward[edge] !== backward[edge]) return false;
  }
  return true;
}

/** The longest path from the inputs. A node without inputs, or one that reads only values read elsewhere too, stands
 * just before its reader, because the lines of those values pass by anyway. @param {SceneShape} shape */
function assignColumns({ nodes, portsIn, portsOut, isOpen, source, target, kind }) {
  const column = new Int32Array(nodes);
  const [incoming, outgoing] = [new Int32Array(nodes), new Int32Array(nodes)];
  const inside = nodes - portsOut;
  for (let node = portsIn; node < inside; node += 1) column[node] = isOpen && kind[node] === TENSOR ? 0 : 1;
  // Execution order is a topological order; an edge backward, as in a bad dump, is skipped.
  const [starts, leaving] = byKey(source.map((from, edge) => from < target[edge] ? from : -1), nodes);
  const ends = leaving.map((edge) => target[edge]);
  for (const edge of leaving) {
    incoming[target[edge]] += 1;
    outgoing[source[edge]] += 1;
  }
  const isFast = new Uint8Array(nodes);
  for (let node = 0; node < inside; node += 1) {
    const after = column[node] + 1;
    const isValue = kind[node] === TENSOR || node < portsIn;
    const holds = outgoing[node] > 1 ? !isValue : node < portsIn || isFast[node] === 1;
    for (let at = starts[node]; at < starts[node + 1]; at += 1) {
      const to = ends[at];
      if (holds) isFast[to] = 1;
      if (column[to] < after) column[to] = after;
    }
  }
  let last = 0;
  for (let node = 0; node < inside; node += 1) last = Math.max(last, column[node]);
  for (let node = inside; node < nodes; node += 1) column[node] = last + 1;
  for (let node = inside - 1; node >= portsIn; node -= 1) {
    if (isFast[node] === 1 || incoming[node] > outgoing[node] || outgoing[node] === 0) continue;
    let soonest = last + 1;
    for (let at = starts[node]; at < starts[node + 1]; at += 1)
      soonest = Math.min(soonest, column[ends[at]]);
    column[node] = Math.max(column[node], soonest - 1);
  }
  return { column, count: isOpen ? last + 1 : last + 2 };
}

/** Dummies where values pass a column, and links between neighbouring columns: `from` and `to`, nodes or dummies;
 * `edge` and `edgeTo`, whose offset counts at either end, or -1; `right` and `left`, links of a node.
 * @param {SceneShape} shape @param {{column: Int32Array, count: number}} assigned */
export function passBy({ nodes, edges, source, target, origin }, { column, count }) {
  /** Columns that the line of an origin passes. */
  const origins = origin.reduce((most, own) => Math.max(most, own + 1), 0);
  const farthest = new Int32Array(origins);
  const first = new Int32Array(origins).fill(-1);
  for (let edge = 0; edge < edges; edge += 1) {
    const own = origin[edge];
    if (first[own] === -1) first[own] = edge;
    farthest[own] = Math.max(farthest[own], column[target[edge]] - column[source[edge]] - 1);
  }
  // Short lines first, so that long lines run outside them.
  const byLength = Array.from({ length: origins }, (_, own) => own).sort((a, b) => farthest[a] - farthest[b] || b - a);
  const base = new Int32Array(origins).fill(-1);
  let dummies = 0;
  for (const own of byLength) {
    const length = farthest[own];
    if (length <= 0 || dummies + length > MAX_DUMMIES) continue;
    base[own] = nodes + dummies;
    dummies += length;
  }
  const all = new Int32Array(nodes + dummies);
  all.set(column);
  const most = edges + dummies;
  const [from, to] = [new Int32Array(most), new Int32Array(most)];
  const [edge, edgeTo] = [new Int32Array(most), new Int32Array(most)];
  const via = new Int32Array(edges).fill(-1);
  let made = 0;
  /** @param {number} a @param {number} b @param {number} leaving @param {number} entering */
  const link = (a, b, leaving, entering) => {
    from[made] = a;
    to[made] = b;
    edge[made] = leaving;
    edgeTo[made] = entering;
    made += 1;
  };
  for (const own of byLength) {
    const start = base[own];
    if (start < 0) continue;
    const leaving = first[own];
    const begin = source[leaving];
    for (let step = 0; step < farthest[own]; step += 1) {
      all[start + step] = column[begin] + 1 + step;
      if (step === 0) link(begin, start, leaving, -1);
      else link(start + step - 1, start + step, -1, -1);
    }
  }
  for (let own = 0; own < edges; own += 1) {
    const [a, b] = [source[own], target[own]];
    const span = column[b] - column[a];
    if (span === 1) link(a, b, own, own);
    const start = base[origin[own]];
    if (span <= 1 || start < 0) continue;
    via[own] = start;
    link(start + span - 2, b, -1, own);
  }
  const ends = { from: from.subarray(0, made), to: to.subarray(0, made), edge: edge.subarray(0, made),
    edgeTo: edgeTo.subarray(0, made) };
  const [rightStart, right] = byKey(ends.from, nodes + dummies);
  const [leftStart, left] = byKey(ends.to, nodes + dummies);
  return { column: all, count, via, links: { ...ends, rightStart, right, leftStart, left } };
}

/** Column → its first place, place → node or dummy, node → place. @param {Int32Array} column @param {number} count */
export function fillColumns(column, count) {
  const [start, node] = byKey(column, count);
  const place = new Int32Array(column.length);
  for (let at = 0; at < node.length; at += 1) place[node[at]] = at;
  return { start, node, place };
}

// The order of nodes in their columns, from the axis outward.

const SWEEPS = 8;
const TO_SORT_BY_HAND = 24;

/** Barycentre sweeps, alternately with the depth and against it, keep the order with fewest crossings; then sinks move
 * outward. @param {LayoutColumns} columns @param {LayoutLinks} links @param {SceneShape} shape */
function orderColumns(columns, links, shape) {
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
