/** The graph's picture without a page, for the JavaScript engine of the server and the command line. */

import { buildGraph, openGroups } from "../graph/graph.js";
import { graphSvg } from "./graph-svg.js";
import { layoutGraph } from "../layout/layout.js";
import { pictureOfDump } from "../picture.js";
import { sharedAxes } from "../shared-axes.js";

/** @typedef {Expansion & {statistic: Statistic | "none", scheme: "light" | "dark", bins:
 * View["bins"]}} Wishes none: only the structure */

/** Size to which elastic drawings fit; others keep their size, px. */
const ROOM = { orientation: /** @type {const} */ ("horizontal"), length: 1600, breadth: 600 };

/** @param {string} text of a valid graph dump @param {Wishes} wishes @returns {string} an SVG document */
export function renderSvg(text, { level, toggled, fold, statistic, scheme, bins }) {
  /** @type {Dump} */
  const dump = JSON.parse(text);
  const plain = pictureOfDump(dump, 0, "");
  const picture = { ...plain, axes: bins === "shared" ? sharedAxes(plain) : null };
  const graph = buildGraph(picture.topology);
  const drawing = layoutGraph(graph.arrays, openGroups(graph, { level, toggled, fold }), ROOM);
  const figures = statistic === "none" ? { picture: null } : { picture, statistic };
  return graphSvg({ graph, drawing, scheme, ...figures });
}

/** @param {string} text of a valid graph dump @param {readonly string[]} toggled @returns {string[]} ids of no group */
export function unknownGroups(text, toggled) {
  const known = new Set(buildGraph(pictureOfDump(JSON.parse(text), 0, "").topology).groupId);
  return toggled.filter((id) => !known.has(id));
}
