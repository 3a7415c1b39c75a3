/**
 * Heights of the nodes of ordered columns, so that lines run straight. Lines that can be straight together form blocks:
 * first passing lines, then lines between boxes, those in the middle before others. Blocks move toward the axis, then
 * to the mean of their other lines. No recursion.
 *
 * After Brandes and Köpf 2001, "Fast and simple horizontal coordinate assignment", with one alignment instead of four.
 */

import { climbOf, compact, limitsOf, relax } from "./compaction.js";
import { FRAME, LINE_ROOM } from "./sizes.js";

/** Classes of links; the first should be straight most. */
const CLASSES = 5;
const FEWER = 2;
/** Straight lines may make a scene this many times as high as its tallest column, plus FREE_ROOM px. */
const MAX_ROOM = 1.5;
const FREE_ROOM = 200;
/** Most difference in height of the frames of a block, and of its boxes; else they would climb like stairs. */
const MAX_DRIFT = 24;

/** @param {SceneShape} shape @param {LayoutColumns} columns @param {Int32Array} column @param {LayoutLinks} links
 * @param {LayoutSpacing} spacing @param {0 | 1} half @returns {{height: Float32Array, top: number}} */
export function assignHeights(shape, columns, column, links, { rowGap, fold, reach }, half) {
  const { nodes, axis } = shape;
  const [inner, outer] = [shape.inner[half], shape.outer[half]];
  const all = column.length;
  const innerOf = (/** @type {number} */ node) => node < nodes ? inner[node] : LINE_ROOM;
  const outerOf = (/** @type {number} */ node) => node < nodes ? outer[node] : LINE_ROOM;
  const gap = (/** @type {number} */ a, /** @type {number} */ b) =>
    a < nodes && b < nodes ? rowGap : a < nodes || b < nodes ? rowGap / 2 : 0;
  /** Least distance of neighbours in a column. */
  const apart = (/** @type {number} */ a, /** @type {number} */ b) => outerOf(a) + gap(a, b) + innerOf(b);
  const most = MAX_ROOM * tallest(columns, apart) + FREE_ROOM;
  /** @param {number} classes of links that may be straight */
  const stand = (classes) => {
    const blocks = align(shape, columns, links, all, half, classes);
    const limits = limitsOf(columns, blocks, axis, apart);
    const base = compact(limits, blocks, all, innerOf);
    let top = 0;
    for (let node = 0; node < all; node += 1)
      top = Math.max(top, base[blocks.of[node]] + blocks.offset[node]);
    return { blocks, limits, base, top };
  };
  let standing = stand(CLASSES);
  // With many crossings straight lines would push each other far out.
  for (let classes = FEWER; standing.top > most && classes >= 0; classes -= 1) standing = stand(classes);
  const { blocks, base } = standing;
  if (blocks.count > 1) relax(standing.limits, blocks, links, shape, half, base);

  const height = new Float32Array(all);
  let lowest = Infinity;
  for (let node = 0; node < all; node += 1) {
    height[node] = base[blocks.of[node]] + blocks.offset[node];
    if (node !== axis) lowest = Math.min(lowest, height[node] - innerOf(node));
  }
  const isShared = axis >= 0 && columns.start[column[axis] + 1] - columns.start[column[axis]] > 1;
  const shift = (isShared ? Math.max(fold, reach + rowGap) : fold) - (lowest === Infinity ? 0 : lowest);
  let top = 0;
  for (let node = 0; node < all; node += 1) {
    height[node] = node === axis ? 0 : height[node] + shift;
    top = Math.max(top, height[node] + outerOf(node));
  }
  return { height, top };
}

/** @param {LayoutColumns} columns @param {(a: number, b: number) => number} apart @returns {number} least height of the
 * tallest column */
function tallest({ start, node }, apart) {
  let most = 0;
  for (let at = 0; at + 1 < start.length; at += 1) {
    let height = 0;
    for (let position = start[at] + 1; position < start[at + 1]; position += 1) {
      height += apart(node[position - 1], node[position]);
    }
    most = Math.max(most, height);
  }
  return most;
}

/** Node → block, its offset in it; link → whether it is straight. @param {SceneShape} shape
 * @param {LayoutColumns} columns @param {LayoutLinks} links @param {number} all nodes and dummies @param {0 | 1} half
 * @param {number} classes of links that may be straight */
export function align(shape, { start, node, place }, links, all, half, classes) {
  const { nodes, axis } = shape;
  const { from, to, rightStart, right, leftStart, left } = links;
  const isDummy = (/** @type {number} */ end) => end >= nodes;
  /** The middle one of a node's links to other boxes, at either end. */
  const [middleRight, middleLeft] = [new Int32Array(all).fill(-1), new Int32Array(all).fill(-1)];
  /** @type {number[]} */
  const found = [];
  /** @param {number} here @param {Int32Array} starts @param {Int32Array} list @param {Int32Array} ends */
  const middle = (here, starts, list, ends) => {
    found.length = 0;
    for (let index = starts[here]; index < starts[here + 1]; index += 1) {
      const link = list[index];
      if (!isDummy(ends[link])) found.push(link);
    }
    if (found.length > 1) found.sort((a, b) => place[ends[a]] - place[ends[b]]);
    return found[(found.length - 1) >> 1] ?? -1;
  };
  for (let here = 0; here < nodes; here += 1) middleLeft[here] = middle(here, leftStart, left, from);
  const goesOn = (/** @type {number} */ link) => {
    const next = to[link];
    for (let index = rightStart[next]; index < rightStart[next + 1]; index += 1) {
      const after = right[index];
      if (middleLeft[to[after]] === after) return true;
    }
    return false;
  };
  for (let here = 0; here < nodes; here += 1) {
    const link = middle(here, rightStart, right, to);
    // Prefers the one of two middle links that continues straight; else repeated parts would climb like stairs.
    const other = found.length > 0 && found.length % 2 === 0 ? (found[found.length / 2] ?? link) : link;
    middleRight[here] = other !== link && !goesOn(link) && goesOn(other) ? other : link;
  }
  const classOf = (/** @type {number} */ link) => {
    const [a, b] = [from[link], to[link]];
    if (isDummy(a) && isDummy(b)) return 0;
    if (isDummy(a) || isDummy(b)) return 4;
    return 3 - (middleRight[a] === link ? 1 : 0) - (middleLeft[b] === link ? 1 : 0);
  };

  const isStraight = new Uint8Array(from.length);
  const [next, previous] = [new Int32Array(all).fill(-1), new Int32Array(all).fill(-1)];
  /** The link by which a node is in its block. */
  const into = new Int32Array(all);
  /** Height of a node above the node before it in its block. */
  const shift = new Float32Array(all);
  const highest = new Int32Array(all + 1);
  const lowest = new Int32Array(all + 1);
  /** @type {number[]} */
  const candidates = [];
  for (let at = 0; at + 2 < start.length; at += 1) {
    candidates.length = 0;
    const [first, last] = [start[at], start[at + 1]];
    for (let position = first; position < last; position += 1) {
      const here = node[position];
      const begin = candidates.length;
      for (let index = rightStart[here]; index < rightStart[here + 1]; index += 1) {
        const link = right[index];
        if (to[link] !== axis) candidates.push(link);
      }
      if (candidates.length - begin > 1) {
        const own = candidates.splice(begin).sort((a, b) => place[to[a]] - place[to[b]]);
        for (const link of own) candidates.push(link);
      }
    }
    if (candidates.length === 1 && classes === CLASSES) {
      choose(candidates[0] ?? 0);
      continue;
    }
    for (let rank = 0; rank < classes; rank += 1) {
      if (!candidates.some((link) => classOf(link) === rank)) continue;
      // Bounds by links chosen already: the highest target from below each place, the lowest from above.
      let run = -1;
      for (let position = first; position < last; position += 1) {
        highest[position] = run;
        const partner = next[node[position]];
        if (partner >= 0) run = Math.max(run, place[partner]);
      }
      run = all;
      for (let position = last - 1; position >= first; position -= 1) {
        lowest[position] = run;
        const partner = next[node[position]];
        if (partner >= 0) run = Math.min(run, place[partner]);
      }
      let own = -1;
      for (const link of candidates) {
        const [a, b] = [from[link], to[link]];
        if (classOf(link) !== rank || next[a] >= 0 || previous[b] >= 0) continue;
        const position = place[a];
        const target = place[b];
        if (target <= highest[position] || target >= lowest[position] || target <= own) continue;
        choose(link);
        own = target;
      }
    }
  }

  const of = new Int32Array(all).fill(-1);
  const offset = new Float32Array(all);
  /** Block → height of its first frame, and of its first box. */
  const [firstFrame, firstBox] = [new Float32Array(all).fill(NaN), new Float32Array(all).fill(NaN)];
  let count = 0;
  for (const here of node) {
    const before = previous[here];
    const first = shape.kind[here] === FRAME ? firstFrame : firstBox;
    let block = before < 0 ? -1 : of[before];
    const at = before < 0 ? 0 : offset[before] + shift[here];
    if (block >= 0 && Math.abs(at - first[block]) > MAX_DRIFT) {
      block = -1;
      isStraight[into[here]] = 0;
    }
    if (block < 0) block = count++;
    else offset[here] = at;
    of[here] = block;
    if (Number.isNaN(first[block])) first[block] = offset[here];
  }
  return { count, of, offset, isStraight,
    hasFrame: Uint8Array.from(firstFrame.subarray(0, count), (at) => Number.isNaN(at) ? 0 : 1) };

  /** @param {number} link */
  function choose(link) {
    const [a, b] = [from[link], to[link]];
    next[a] = b;
    previous[b] = a;
    isStraight[link] = 1;
    into[b] = link;
    shift[b] = climbOf(shape, links, link, half);
  }
}
