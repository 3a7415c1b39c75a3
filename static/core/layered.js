/**
 * A layered layout of one scene: which column each box stands in, in what order, and how high. No DOM; iterative.
 *
 *   columns: longest path from what comes in · a chain of dummies where a value passes by, one for all its readers ·
 *   order within a column: barycentre sweeps · heights: see straight.js
 */

import { byKey } from "./buckets.js";
import { TENSOR, widened } from "./layout-sizes.js";
import { climbOf } from "./compaction.js";
import { assignHeights } from "./straight.js";

const SWEEPS = 8;
/** So many dummies at the most; values that pass by longer than that are drawn straight across. */
const MOST_DUMMIES = 200_000;
const TO_SORT_BY_HAND = 24;

/**
 * @typedef {object} Shape a scene, as far as its layout depends on it
 * @property {number} nodes
 * @property {number} portsIn
 * @property {number} portsOut
 * @property {boolean} isOpen whether it stands for itself, and not in a frame: then no column is kept for ports
 * @property {number} axis node that stands on the axis, -1 for none
 * @property {Float32Array} depth of nodes
 * @property {[Float32Array, Float32Array]} inner in either half, reach toward the axis
 * @property {[Float32Array, Float32Array]} outer
 * @property {Uint8Array} kind of nodes, as in scenes
 * @property {number} edges sorted by origin
 * @property {Int32Array} source
 * @property {Int32Array} target
 * @property {Int32Array} origin equal numbers for edges of one value from one source
 * @property {[Float32Array, Float32Array]} sourceOffset in either half, height at which an edge leaves, from that of its source
 * @property {[Float32Array, Float32Array]} targetOffset
 */

/** @typedef {{gap: number, rowGap: number, fold: number, reach: number, start: number, end: number}} Spacing fold: from the axis to the nearest box; reach: of what stands on the axis; start, end: from a frame to what it holds */

/**
 * @typedef {object} LocalLayout
 * @property {number} columns
 * @property {Int32Array} column of nodes, then of dummies
 * @property {[Float32Array, Float32Array]} height in either half, of nodes, then of dummies
 * @property {Float32Array} columnStart
 * @property {Float32Array} columnDepth
 * @property {Int32Array} via edge → the dummy it runs along first, the others following; -1 for none
 * @property {number} width along the depth
 * @property {[number, number]} top how far either half reaches from the axis, or from a frame's edge
 */

/**
 * @typedef {object} Columns where nodes and dummies stand
 * @property {Int32Array} start column → its first place, one entry more than there are columns
 * @property {Int32Array} node place → node or dummy
 * @property {Int32Array} place node or dummy → place
 */

/**
 * @typedef {object} Links lines from column to column
 * @property {Int32Array} from node or dummy
 * @property {Int32Array} to one in the next column
 * @property {Int32Array} edge whose offset counts at `from`, -1 where there is none
 * @property {Int32Array} edgeTo at `to`
 * @property {Int32Array} rightStart
 * @property {Int32Array} right node → its links to the next column
 * @property {Int32Array} leftStart
 * @property {Int32Array} left node → its links from the column before
 */

/**
 * @param {Shape} shape
 * @param {Spacing} spacing
 * @returns {LocalLayout}
 */
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
    const at = column[node] ?? 0;
    columnDepth[at] = Math.max(columnDepth[at] ?? 0, shape.depth[node] ?? 0);
  }
  const rise = new Float32Array(count);
  for (let link = 0; link < links.from.length; link += 1) {
    const [from, to] = [links.from[link] ?? 0, links.to[link] ?? 0];
    if (to === shape.axis) continue;
    const at = column[from] ?? 0;
    const climb = (forward.height[from] ?? 0) - (forward.height[to] ?? 0) + climbOf(shape, links, link, 0);
    const mirrored = (backward.height[from] ?? 0) - (backward.height[to] ?? 0) + climbOf(shape, links, link, 1);
    rise[at] = Math.max(rise[at] ?? 0, Math.abs(climb), Math.abs(mirrored));
  }
  const columnStart = new Float32Array(count);
  let start = 0;
  for (let at = 0; at < count; at += 1) {
    columnStart[at] = start;
    const isFirst = !shape.isOpen && at === 0;
    const isLast = !shape.isOpen && at === count - 2;
    const gap = isFirst ? spacing.start : isLast ? spacing.end : spacing.gap;
    start += (columnDepth[at] ?? 0) + (at < count - 1 ? widened(gap, rise[at] ?? 0) : 0);
  }
  /** @type {[Float32Array, Float32Array]} */
  const height = [forward.height, backward.height];
  return { columns: count, column, height, columnStart, columnDepth, via, width: start, top: [forward.top, backward.top] };
}

/** @param {Shape} shape @returns {boolean} whether both halves are alike, so that one is the exact mirror image of the other */
function isSymmetric({ axis, inner, outer, sourceOffset, targetOffset }) {
  for (const [forward, backward] of [inner, outer]) {
    for (let node = 0; node < forward.length; node += 1) if (node !== axis && forward[node] !== backward[node]) return false;
  }
  for (const [forward, backward] of [sourceOffset, targetOffset]) {
    for (let edge = 0; edge < forward.length; edge += 1) if (forward[edge] !== backward[edge]) return false;
  }
  return true;
}

/**
 * Longest path from what comes in. What nothing leads to, and what is made of values that others read as well, stands
 * just before what reads it: those values' lines pass by in any case.
 *
 * @param {Shape} shape
 * @returns {{column: Int32Array, count: number}}
 */
function assignColumns({ nodes, portsIn, portsOut, isOpen, edges, source, target, kind }) {
  const column = new Int32Array(nodes);
  const [incoming, outgoing] = [new Int32Array(nodes), new Int32Array(nodes)];
  const inside = nodes - portsOut;
  for (let node = portsIn; node < inside; node += 1) column[node] = isOpen && kind[node] === TENSOR ? 0 : 1;
  // Nodes come in order of execution, which is a topological order; an edge back, of a bad dump, is passed over.
  const [starts, ends] = [new Int32Array(nodes + 1), new Int32Array(edges)];
  for (let edge = 0; edge < edges; edge += 1) {
    const [from, to] = [source[edge] ?? 0, target[edge] ?? 0];
    if (from >= to) continue;
    starts[from + 1] = (starts[from + 1] ?? 0) + 1;
    incoming[to] = (incoming[to] ?? 0) + 1;
    outgoing[from] = (outgoing[from] ?? 0) + 1;
  }
  for (let node = 0; node < nodes; node += 1) starts[node + 1] = (starts[node + 1] ?? 0) + (starts[node] ?? 0);
  const next = starts.slice(0, nodes);
  for (let edge = 0; edge < edges; edge += 1) {
    const [from, to] = [source[edge] ?? 0, target[edge] ?? 0];
    if (from >= to) continue;
    ends[next[from] ?? 0] = to;
    next[from] = (next[from] ?? 0) + 1;
  }
  const isFast = new Uint8Array(nodes);
  for (let node = 0; node < inside; node += 1) {
    const after = (column[node] ?? 0) + 1;
    const isValue = kind[node] === TENSOR || node < portsIn;
    const holds = (outgoing[node] ?? 0) > 1 ? !isValue : node < portsIn || isFast[node] === 1;
    for (let at = starts[node] ?? 0; at < (starts[node + 1] ?? 0); at += 1) {
      const to = ends[at] ?? 0;
      if (holds) isFast[to] = 1;
      if ((column[to] ?? 0) < after) column[to] = after;
    }
  }
  let last = 0;
  for (let node = 0; node < inside; node += 1) last = Math.max(last, column[node] ?? 0);
  for (let node = inside; node < nodes; node += 1) column[node] = last + 1;
  for (let node = inside - 1; node >= portsIn; node -= 1) {
    if (isFast[node] === 1 || (incoming[node] ?? 0) > (outgoing[node] ?? 0) || outgoing[node] === 0) continue;
    let soonest = last + 1;
    for (let at = starts[node] ?? 0; at < (starts[node + 1] ?? 0); at += 1) soonest = Math.min(soonest, column[ends[at] ?? 0] ?? 0);
    column[node] = Math.max(column[node] ?? 0, soonest - 1);
  }
  return { column, count: isOpen ? last + 1 : last + 2 };
}

/**
 * Dummies where values pass by a column, and the links between neighbouring columns.
 *
 * @param {Shape} shape
 * @param {{column: Int32Array, count: number}} assigned
 */
function passBy({ nodes, edges, source, target, origin }, { column, count }) {
  /** How far the line of an origin goes by. */
  const farthest = new Int32Array(edges);
  const first = new Int32Array(edges).fill(-1);
  let origins = 0;
  for (let edge = 0; edge < edges; edge += 1) {
    const own = origin[edge] ?? 0;
    origins = Math.max(origins, own + 1);
    if (first[own] === -1) first[own] = edge;
    farthest[own] = Math.max(farthest[own] ?? 0, (column[target[edge] ?? 0] ?? 0) - (column[source[edge] ?? 0] ?? 0) - 1);
  }
  // Short ones first: long lines run outside them.
  const byLength = Array.from({ length: origins }, (_, own) => own).sort((a, b) => (farthest[a] ?? 0) - (farthest[b] ?? 0) || b - a);
  const base = new Int32Array(origins).fill(-1);
  let dummies = 0;
  for (const own of byLength) {
    const length = farthest[own] ?? 0;
    if (length <= 0 || dummies + length > MOST_DUMMIES) continue;
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
    const start = base[own] ?? -1;
    if (start < 0) continue;
    const leaving = first[own] ?? 0;
    const begin = source[leaving] ?? 0;
    for (let step = 0; step < (farthest[own] ?? 0); step += 1) {
      all[start + step] = (column[begin] ?? 0) + 1 + step;
      if (step === 0) link(begin, start, leaving, -1);
      else link(start + step - 1, start + step, -1, -1);
    }
  }
  for (let own = 0; own < edges; own += 1) {
    const [a, b] = [source[own] ?? 0, target[own] ?? 0];
    const span = (column[b] ?? 0) - (column[a] ?? 0);
    if (span === 1) link(a, b, own, own);
    const start = base[origin[own] ?? 0] ?? -1;
    if (span <= 1 || start < 0) continue;
    via[own] = start;
    link(start + span - 2, b, -1, own);
  }
  const ends = { from: from.subarray(0, made), to: to.subarray(0, made), edge: edge.subarray(0, made), edgeTo: edgeTo.subarray(0, made) };
  const [rightStart, right] = byKey(ends.from, nodes + dummies);
  const [leftStart, left] = byKey(ends.to, nodes + dummies);
  return { column: all, count, via, links: { ...ends, rightStart, right, leftStart, left } };
}

/** @param {Int32Array} column @param {number} count @returns {Columns} */
function fillColumns(column, count) {
  const [start, node] = byKey(column, count);
  const place = new Int32Array(column.length);
  for (let at = 0; at < node.length; at += 1) place[node[at] ?? 0] = at;
  return { start, node, place };
}

/**
 * Barycentre sweeps, alternately with the depth and against it; the order with fewest crossings stays.
 *
 * @param {Columns} columns
 * @param {Links} links
 * @param {Shape} shape
 */
function orderColumns({ start, node, place }, links, { inner, outer, nodes, sourceOffset, targetOffset }) {
  const count = start.length - 1;
  let fewest = crossings(start, node, place, links);
  if (fewest === 0) return;
  const best = node.slice();
  const weight = new Float64Array(node.length);
  /** Where at its box a line ends, as a share of a place. @param {number} end @param {number} offset */
  const within = (end, offset) => (end >= nodes || offset === 0 ? 0 : (0.98 * offset) / ((inner[0][end] ?? 0) + (outer[0][end] ?? 0) + 1));
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep += 1) {
    const along = sweep % 2 === 0;
    const starts = along ? links.leftStart : links.rightStart;
    const list = along ? links.left : links.right;
    const ends = along ? links.from : links.to;
    const edges = along ? links.edge : links.edgeTo;
    const offsets = along ? sourceOffset[0] : targetOffset[0];
    for (let step = 1; step < count; step += 1) {
      const at = along ? step : count - 1 - step;
      const [first, last] = [start[at] ?? 0, start[at + 1] ?? 0];
      if (last - first < 2) continue;
      const other = start[along ? at - 1 : at + 1] ?? 0;
      for (let position = first; position < last; position += 1) {
        const here = node[position] ?? 0;
        let sum = 0;
        const [from, to] = [starts[here] ?? 0, starts[here + 1] ?? 0];
        for (let index = from; index < to; index += 1) {
          const link = list[index] ?? 0;
          const end = ends[link] ?? 0;
          sum += (place[end] ?? 0) - other + within(end, offsets[edges[link] ?? -1] ?? 0);
        }
        weight[here] = to > from ? sum / (to - from) : position - first;
      }
      sortPlaces(node, weight, first, last);
      for (let position = first; position < last; position += 1) place[node[position] ?? 0] = position;
    }
    const now = crossings(start, node, place, links);
    if (now < fewest) {
      fewest = now;
      best.set(node);
    }
  }
  node.set(best);
  for (let position = 0; position < node.length; position += 1) place[node[position] ?? 0] = position;
}

/** Sorts the nodes at some places by weight; equal ones stay in order. @param {Int32Array} node @param {Float64Array} weight @param {number} first @param {number} last */
function sortPlaces(node, weight, first, last) {
  if (last - first > TO_SORT_BY_HAND) {
    const ordered = Array.from(node.subarray(first, last)).sort((a, b) => (weight[a] ?? 0) - (weight[b] ?? 0));
    node.set(ordered, first);
    return;
  }
  for (let position = first + 1; position < last; position += 1) {
    const moved = node[position] ?? 0;
    let to = position;
    for (; to > first && (weight[node[to - 1] ?? 0] ?? 0) > (weight[moved] ?? 0); to -= 1) node[to] = node[to - 1] ?? 0;
    node[to] = moved;
  }
}

/**
 * Crossings between neighbouring columns, counted with a Fenwick tree.
 *
 * @param {Int32Array} start
 * @param {Int32Array} node
 * @param {Int32Array} place
 * @param {Links} links
 * @returns {number}
 */
function crossings(start, node, place, { from, leftStart, left }) {
  let total = 0;
  const tree = new Int32Array(node.length + 2);
  /** @type {number[]} */
  const ends = [];
  for (let at = 1; at < start.length - 1; at += 1) {
    const before = start[at - 1] ?? 0;
    const width = (start[at] ?? 0) - before;
    if (width < 2 || (start[at + 1] ?? 0) - (start[at] ?? 0) < 2) continue;
    tree.fill(0, 0, width + 2);
    let seen = 0;
    for (let position = start[at] ?? 0; position < (start[at + 1] ?? 0); position += 1) {
      const here = node[position] ?? 0;
      ends.length = 0;
      for (let index = leftStart[here] ?? 0; index < (leftStart[here + 1] ?? 0); index += 1) {
        ends.push((place[from[left[index] ?? 0] ?? 0] ?? 0) - before);
      }
      for (const end of ends) {
        let below = 0;
        for (let slot = end + 1; slot > 0; slot -= slot & -slot) below += tree[slot] ?? 0;
        total += seen - below;
      }
      for (const end of ends) for (let slot = end + 1; slot <= width; slot += slot & -slot) tree[slot] = (tree[slot] ?? 0) + 1;
      seen += ends.length;
    }
  }
  return total;
}

