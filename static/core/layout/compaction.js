/** Moves blocks of straight lines toward the axis, then to the mean of their bent lines. No recursion. */

import { byKey } from "../graph/wiring.js";

const ROUNDS = 2;
/** Weight of a line between two boxes; a line that passes a column counts 1. */
const BETWEEN_BOXES = 4;

/** @param {SceneShape} shape @param {LayoutLinks} links @param {number} link @param {number} half @returns {number}
 * offset at its start less offset at its end */
export function climbOf({ sourceOffset, targetOffset }, { edge, edgeTo }, link, half) {
  const [from, to] = [edge[link], edgeTo[link]];
  return (from < 0 ? 0 : sourceOffset[half][from]) - (to < 0 ? 0 : targetOffset[half][to]);
}

/** @typedef {ReturnType<typeof limitsOf>} Limits */

/** Least distances of blocks: `above` stands at least `distance` above `below`; a block's limits, in lists; `order`, from
 * the axis outward. @param {LayoutColumns} columns @param {StraightBlocks} blocks @param {number} axis
 * @param {(a: number, b: number) => number} apart */
export function limitsOf({ start, node }, { count, of, offset }, axis, apart) {
  const most = node.length;
  const [below, above, distance] = [new Int32Array(most), new Int32Array(most), new Float32Array(most)];
  let made = 0;
  for (let at = 0; at + 1 < start.length; at += 1) {
    let inner = -1;
    for (let position = start[at]; position < start[at + 1]; position += 1) {
      const here = node[position];
      if (here === axis) continue;
      if (inner >= 0) {
        below[made] = of[inner];
        above[made] = of[here];
        distance[made] = apart(inner, here) + offset[inner] - offset[here];
        made += 1;
      }
      inner = here;
    }
  }
  const [aboveStart, aboveList] = byKey(below, count, made);
  const [belowStart, belowList] = byKey(above, count, made);
  const waiting = new Int32Array(count);
  for (let limit = 0; limit < made; limit += 1) waiting[above[limit]] = waiting[above[limit]] + 1;
  const order = new Int32Array(count);
  let filled = 0;
  for (let block = 0; block < count; block += 1) if (waiting[block] === 0) order[filled++] = block;
  // Straight lines do not cross, so there is no cycle; if one occurs, its blocks come last.
  for (let at = 0; at < filled; at += 1) {
    const block = order[at];
    for (let index = aboveStart[block]; index < aboveStart[block + 1]; index += 1) {
      const next = above[aboveList[index]];
      waiting[next] = waiting[next] - 1;
      if (waiting[next] === 0) order[filled++] = next;
    }
  }
  for (let block = 0; block < count && filled < count; block += 1)
    if (waiting[block] > 0) order[filled++] = block;
  return { below, above, distance, aboveStart, aboveList, belowStart, belowList, order };
}

/** Puts each block as near to the axis as possible. @param {Limits} limits @param {StraightBlocks} blocks
 * @param {number} all @param {(node: number) => number} innerOf @returns {Float32Array} block → height */
export function compact({ above, distance, aboveStart, aboveList, order }, { count, of, offset }, all, innerOf) {
  const height = new Float32Array(count);
  for (let node = 0; node < all; node += 1) {
    const block = of[node];
    height[block] = Math.max(height[block], innerOf(node) - offset[node]);
  }
  for (const block of order) {
    for (let index = aboveStart[block]; index < aboveStart[block + 1]; index += 1) {
      const limit = aboveList[index];
      const next = above[limit];
      height[next] = Math.max(height[next], height[block] + distance[limit]);
    }
  }
  return height;
}

/** Moves blocks to the mean of their bent lines as far as neighbours allow, from the outside inward and back.
 * @param {Limits} limits @param {StraightBlocks} blocks @param {LayoutLinks} links @param {SceneShape} shape
 * @param {0 | 1} half @param {Float32Array} height of blocks, is changed */
export function relax(limits, { count, of, offset, isStraight, hasFrame }, links, shape, half, height) {
  const { from, to } = links;
  const { nodes, axis } = shape;
  /** Ends of bent links: the block, the other end's block, how much higher the block wants to be, and how much it
   * counts. */
  const bent = [];
  for (let link = 0; link < from.length; link += 1) {
    const [a, b] = [from[link], to[link]];
    if (isStraight[link] === 1 || b === axis || a === axis || of[a] === of[b]) continue;
    bent.push(link);
  }
  if (bent.length === 0) return;
  const ends = new Int32Array(2 * bent.length);
  bent.forEach((link, at) => {
    ends[2 * at] = of[from[link]];
    ends[2 * at + 1] = of[to[link]];
  });
  const [starts, list] = byKey(ends, count);
  const floor = height.slice();
  for (let round = 0; round < 2 * ROUNDS; round += 1) {
    const isInward = round % 2 === 0;
    for (let at = 0; at < count; at += 1) {
      const block = limits.order[isInward ? count - 1 - at : at];
      const [begin, end] = [starts[block], starts[block + 1]];
      // Frames stay near the axis, in line with each other.
      if (begin === end || hasFrame[block] === 1) continue;
      let [sum, weights] = [0, 0];
      for (let index = begin; index < end; index += 1) {
        const side = list[index];
        const link = bent[side >> 1];
        const [a, b] = [from[link], to[link]];
        const rise = offset[a] - offset[b] + climbOf(shape, links, link, half);
        const weight = a < nodes && b < nodes ? BETWEEN_BOXES : 1;
        sum += weight * ((side & 1) === 0 ? height[of[b]] - rise : height[of[a]] + rise);
        weights += weight;
      }
      height[block] = within(limits, block, sum / weights, height, floor[block]);
    }
  }
}

/** @param {Limits} limits @param {number} block @param {number} wanted @param {Float32Array} height
 * @param {number} least @returns {number} the nearest height that its neighbours allow */
function within(
  { below, above, distance, aboveStart, aboveList, belowStart, belowList },
  block,
  wanted,
  height,
  least,
) {
  let high = Infinity;
  for (let index = aboveStart[block]; index < aboveStart[block + 1]; index += 1) {
    const limit = aboveList[index];
    high = Math.min(high, height[above[limit]] - distance[limit]);
  }
  let low = least;
  for (let index = belowStart[block]; index < belowStart[block + 1]; index += 1) {
    const limit = belowList[index];
    low = Math.max(low, height[below[limit]] + distance[limit]);
  }
  return Math.max(low, Math.min(high, wanted));
}
