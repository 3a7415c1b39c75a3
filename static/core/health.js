/**
 * Health as an icon, and where it is lost first. Shapes of icons differ, so that nothing hangs on colour; the word always
 * stands beside it.
 */

import { diagnose, layersText } from "./lab/diagnosis.js";
import { svg } from "./dom.js";
import { percent } from "./format.js";
import { nonFinite } from "./picture.js";

/** @typedef {import("./types.js").Graph} Graph */
/** @typedef {import("./types.js").Health} Health */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").Theory} Theory */

/** What a histogram or a signal looks like when that is wrong with it, in a square of 16. @type {Record<Health | "healthy", string>} */
const SHAPES = {
  healthy: "M2.5 8.5l3.5 3.5 7.5-8",
  // A number line with a hole in it.
  "non-finite": "M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 1 0 0-12.4M3.6 12.4l8.8-8.8",
  dead: "M1.5 13.5h13M5 4l6 6M11 4l-6 6",
  // All of it at both ends.
  saturated: "M2.5 13.5v-11M6.2 13.5v-2.2M9.8 13.5v-2.2M13.5 13.5v-11",
  vanishing: "M2.5 13.5v-11M6.2 13.5v-6.5M9.8 13.5v-3.5M13.5 13.5v-1.2",
  exploding: "M2.5 13.5v-1.2M6.2 13.5v-3.5M9.8 13.5v-6.5M13.5 13.5v-11",
};

/**
 * @param {Health | "healthy"} health
 * @returns {SVGSVGElement}
 */
export function healthIcon(health) {
  return svg("svg", { class: `health-icon ${health}`, viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, svg("path", { d: SHAPES[health] }));
}

/**
 * Where things go wrong first: the first tensor in order of execution that is not finite, else that of the worst layer.
 *
 * @param {Graph} graph
 * @param {Picture} picture
 * @param {Theory | null} theory of that picture, or of one shortly before
 * @returns {{tensor: number, why: string} | null} null where all is well, or a figure waits for a guess
 */
export function firstBad(graph, picture, theory) {
  if (picture.hidden !== null) return null;
  const { arrays, topology } = graph;
  /** @param {number} tensor @returns {{tensor: number, why: string} | null} */
  const look = (tensor) => {
    const row = picture.rows.get(topology.tensors[tensor]?.id ?? "");
    const bad = row === undefined ? null : nonFinite(picture, row);
    return bad === null ? null : { tensor, why: bad.share === 1 ? `all ${bad.word}` : `${percent(bad.share)} ${bad.word}` };
  };
  if (picture.integers.nan.some((n) => n > 0) || picture.integers.posinf.some((n) => n > 0) || picture.integers.neginf.some((n) => n > 0)) {
    for (let op = 0; op < arrays.ops; op += 1) {
      for (const [start, entries] of /** @type {const} */ ([[arrays.inputStart, arrays.inputs], [arrays.outputStart, arrays.outputs]])) {
        for (let at = start[op] ?? 0; at < (start[op + 1] ?? 0); at += 1) {
          const found = look(entries[at] ?? -1);
          if (found !== null) return found;
        }
      }
    }
  }
  if (theory === null) return null;
  const [worst] = diagnose(picture, theory).troubles.filter(({ health }) => health !== "non-finite");
  const tensor = graph.tensorIndex.get(worst?.tensor ?? "");
  return worst === undefined || tensor === undefined ? null : { tensor, why: `${worst.health} in ${layersText(worst.layers)}` };
}
