/** Blocks of nodes in straight lines, pushed toward the axis and moved to where their other lines want them. No
 * recursion. */

import { byKey } from "./buckets.js";

const ROUNDS = 2;
/** How much a line between two boxes counts against one that only passes by. */
const BETWEEN_BOXES = 4;

/** @param {SceneShape} shape @param {LayoutLinks} links @param {number} link @param {number} half @returns {number} how
 * much higher a link leaves its first node than it enters its second, beside their own heights */
export function climbOf({ sourceOffset, targetOffset }, { edge, edgeTo }, link, half) {
  const [from, to] = [edge[link] ?? -1, edgeTo[link] ?? -1];
  return (from < 0 ? 0 : (sourceOffset[half]?.[from] ?? 0)) - (to < 0 ? 0 : (targetOffset[half]?.[to] ?? 0));
}

/**
 * How far apart blocks stand at the least: block b at least `distance` above the block inside it.
 *
 * @typedef {object} Limits
 * @property {Int32Array} below
 * @property {Int32Array} above
 * @property {Float32Array} distance
 * @property {Int32Array} aboveStart
 * @property {Int32Array} aboveList block → limits to blocks above it
 * @property {Int32Array} belowStart
 * @property {Int32Array} belowList
 * @property {Int32Array} order of blocks, from the axis outward
 */

/**
 * @param {LayoutColumns} columns
 * @param {StraightBlocks} blocks
 * @param {number} axis
 * @param {(a: number, b: number) => number} apart
 * @returns {Limits}
 */
export function limitsOf({ start, node }, { count, of, offset }, axis, apart) {
  const most = node.length;
  const [below, above, distance] = [new Int32Array(most), new Int32Array(most), new Float32Array(most)];
  let made = 0;
  for (let at = 0; at + 1 < start.length; at += 1) {
    let inner = -1;
    for (let position = start[at] ?? 0; position < (start[at + 1] ?? 0); position += 1) {
      const here = node[position] ?? 0;
      if (here === axis) continue;
      if (inner >= 0) {
        below[made] = of[inner] ?? 0;
        above[made] = of[here] ?? 0;
        distance[made] = apart(inner, here) + (offset[inner] ?? 0) - (offset[here] ?? 0);
        made += 1;
      }
      inner = here;
    }
  }
  const [aboveStart, aboveList] = byKey(below, count, made);
  const [belowStart, belowList] = byKey(above, count, made);
  const waiting = new Int32Array(count);
  for (let limit = 0; limit < made; limit += 1) waiting[above[limit] ?? 0] = (waiting[above[limit] ?? 0] ?? 0) + 1;
  const order = new Int32Array(count);
  let filled = 0;
  for (let block = 0; block < count; block += 1) if (waiting[block] === 0) order[filled++] = block;
  // Straight lines do not cross, so which is above which never goes round; should it all the same, some come last.
  for (let at = 0; at < filled; at += 1) {
    const block = order[at] ?? 0;
    for (let index = aboveStart[block] ?? 0; index < (aboveStart[block + 1] ?? 0); index += 1) {
      const next = above[aboveList[index] ?? 0] ?? 0;
      waiting[next] = (waiting[next] ?? 0) - 1;
      if (waiting[next] === 0) order[filled++] = next;
    }
  }
  for (let block = 0; block < count && filled < count; block += 1)
    if ((waiting[block] ?? 0) > 0) order[filled++] = block;
  return { below, above, distance, aboveStart, aboveList, belowStart, belowList, order };
}

/**
 * Every block as near to the axis as it can be.
 *
 * @param {Limits} limits
 * @param {StraightBlocks} blocks
 * @param {number} all
 * @param {(node: number) => number} innerOf
 * @returns {Float32Array} block → height
 */
export function compact({ above, distance, aboveStart, aboveList, order }, { count, of, offset }, all, innerOf) {
  const height = new Float32Array(count);
  for (let node = 0; node < all; node += 1) {
    const block = of[node] ?? 0;
    height[block] = Math.max(height[block] ?? 0, innerOf(node) - (offset[node] ?? 0));
  }
  for (const block of order) {
    for (let index = aboveStart[block] ?? 0; index < (aboveStart[block + 1] ?? 0); index += 1) {
      const limit = aboveList[index] ?? 0;
      const next = above[limit] ?? 0;
      height[next] = Math.max(height[next] ?? 0, (height[block] ?? 0) + (distance[limit] ?? 0));
    }
  }
  return height;
}

/**
 * Moves blocks to the mean of what their bent lines want, as far as there is room: from the outside inward and back.
 *
 * @param {Limits} limits
 * @param {StraightBlocks} blocks
 * @param {LayoutLinks} links
 * @param {SceneShape} shape
 * @param {0 | 1} half
 * @param {Float32Array} height of blocks, is changed
 */
export function relax(limits, { count, of, offset, isStraight, hasFrame }, links, shape, half, height) {
  const { from, to } = links;
  const { nodes, axis } = shape;
  /** Ends of bent links: the block, the other end's block, how much higher the block wants to be, and how much it
   * counts. */
  const bent = [];
  for (let link = 0; link < from.length; link += 1) {
    const [a, b] = [from[link] ?? 0, to[link] ?? 0];
    if (isStraight[link] === 1 || b === axis || a === axis || of[a] === of[b]) continue;
    bent.push(link);
  }
  if (bent.length === 0) return;
  const ends = new Int32Array(2 * bent.length);
  bent.forEach((link, at) => {
    ends[2 * at] = of[from[link] ?? 0] ?? 0;
    ends[2 * at + 1] = of[to[link] ?? 0] ?? 0;
  });
  const [starts, list] = byKey(ends, count);
  const floor = height.slice();
  for (let round = 0; round < 2 * ROUNDS; round += 1) {
    const isInward = round % 2 === 0;
    for (let at = 0; at < count; at += 1) {
      const block = limits.order[isInward ? count - 1 - at : at] ?? 0;
      const [begin, end] = [starts[block] ?? 0, starts[block + 1] ?? 0];
      // Frames stay as near to the axis as they can: in line with each other.
      if (begin === end || hasFrame[block] === 1) continue;
      let [sum, weights] = [0, 0];
      for (let index = begin; index < end; index += 1) {
        const side = list[index] ?? 0;
        const link = bent[side >> 1] ?? 0;
        const [a, b] = [from[link] ?? 0, to[link] ?? 0];
        const rise = (offset[a] ?? 0) - (offset[b] ?? 0) + climbOf(shape, links, link, half);
        const weight = a < nodes && b < nodes ? BETWEEN_BOXES : 1;
        sum += weight * ((side & 1) === 0 ? (height[of[b] ?? 0] ?? 0) - rise : (height[of[a] ?? 0] ?? 0) + rise);
        weights += weight;
      }
      height[block] = within(limits, block, sum / weights, height, floor[block] ?? 0);
    }
  }
}

/**
 * @param {Limits} limits
 * @param {number} block
 * @param {number} wanted
 * @param {Float32Array} height
 * @param {number} least
 * @returns {number} the height nearest to the wanted one that its neighbours leave room for
 */
function within(
  { below, above, distance, aboveStart, aboveList, belowStart, belowList },
  block,
  wanted,
  height,
  least,
) {
  let high = Infinity;
  for (let index = aboveStart[block] ?? 0; index < (aboveStart[block + 1] ?? 0); index += 1) {
    const limit = aboveList[index] ?? 0;
    high = Math.min(high, (height[above[limit] ?? 0] ?? 0) - (distance[limit] ?? 0));
  }
  let low = least;
  for (let index = belowStart[block] ?? 0; index < (belowStart[block + 1] ?? 0); index += 1) {
    const limit = belowList[index] ?? 0;
    low = Math.max(low, (height[below[limit] ?? 0] ?? 0) + (distance[limit] ?? 0));
  }
  return Math.max(low, Math.min(high, wanted));
}
