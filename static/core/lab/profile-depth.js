/** The depth axis of the profile: where its points stand, and which stretch of it is a layer's. No DOM. */

import { layerTicks } from "../scales.js";

/** A letter of a layer's label, px. */
const LETTER = 6.5;
const SHORTEST = 4;

/** Left of it stands the value axis. */
export const LEFT = 46;

/**
 * @param {readonly ProfilePoint[]} points
 * @param {DepthAxis} axis where the graph has their tensors
 * @param {number} width
 * @returns {number[]} x of every point; evenly spread where the graph has none
 */
export function places(points, { positions }, width) {
  const step = (width - LEFT - 24) / Math.max(1, points.length - 1);
  return points.map(({ at }, order) => positions.get(at) ?? LEFT + 8 + order * step);
}

/**
 * @param {readonly ProfilePoint[]} points
 * @param {readonly number[]} xs
 * @param {number} width
 * @returns {LayerSpan[]} one per layer, meeting half-way
 */
export function spansOf(points, xs, width) {
  /** @type {{layer: number, title: string, first: number, last: number}[]} */
  const ends = [];
  points.forEach(({ layer, title }, order) => {
    const x = xs[order];
    const end = ends.at(-1);
    if (end?.layer === layer) [end.first, end.last] = [Math.min(end.first, x), Math.max(end.last, x)];
    else ends.push({ layer, title, first: x, last: x });
  });
  return ends.map(({ layer, title, first, last }, order) => {
    const before = ends[order - 1]?.last ?? 2 * first - (ends[order + 1]?.first ?? width);
    const after = ends[order + 1]?.first ?? 2 * last - before;
    return { layer, title, from: Math.max(0, (before + first) / 2), to: Math.min(width, (last + after) / 2),
      middle: (first + last) / 2 };
  });
}

/**
 * @param {readonly LayerSpan[]} spans
 * @param {number} width
 * @returns {{x: number, text: string}[]} the labels there is room for
 */
export function layerLabels(spans, width) {
  const layers = spans.filter(({ layer }) => layer > 0);
  const [first, last] = [layers[0], layers.at(-1)];
  if (first === undefined || last === undefined) return [];
  const ticks = new Set(layerTicks(last.layer, Math.max(Math.abs(last.middle - first.middle), 1), 26));
  const isRoomy = last.layer <= 8;
  return spans.flatMap(({ layer, title, from, to, middle: x }) => {
    if (x < -20 || x > width + 20 || (layer === 0 ? !isRoomy : !ticks.has(layer))) return [];
    return [{ x,
      text: layer === 0 ? "input" : isRoomy ? shortened(title, 2 * Math.min(x - from, to - x)) : String(layer) }];
  });
}

/**
 * A title as far as there is room for it: what tells paths apart is at their ends, types come after them.
 *
 * @param {string} title "layer 3" or "block.mlp.0 (Linear)"
 * @param {number} room px
 * @returns {string}
 */
function shortened(title, room) {
  if (/^layer \d+$/.test(title)) return title;
  const path = title.replace(/ \([^()]*\)$/, "");
  const letters = Math.max(SHORTEST, Math.floor(room / LETTER));
  return path.length <= letters ? path : `…${path.slice(1 - letters)}`;
}
