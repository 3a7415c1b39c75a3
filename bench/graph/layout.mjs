/**
 * How long a layout takes: `node bench/graph/layout.mjs DIRECTORY` with graph dumps in it; prints JSON.
 *
 * `warm` is the median of layouts from nothing, `again` that of layouts with what was laid out before, one group toggled:
 * CPU milliseconds of the main thread, which neighbours on the machine do not spoil. `build` and `first` are what the
 * clock said of the first time, with cold code. The peer gets the same boxes and lines, without the frames around them.
 */

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

import dagre from "@dagrejs/dagre";

import { buildGraph, openGroups } from "../../static/core/graph/graph.js";
import { LayoutCache, layoutGraph } from "../../static/core/layout/layout.js";
import { synthetic } from "./synthetic.mjs";

const OPTIONS = /** @type {const} */ ({ orientation: "horizontal", length: 1400, breadth: 560 });
const FRAME = 3;
const LEAST_SAMPLE_MS = 60;

const cpu = () => {
  const { user, system } = (process.threadCpuUsage ?? process.cpuUsage).call(process);
  return (user + system) / 1000;
};

/** @param {() => unknown} run @param {number} samples @returns {number} median CPU ms of one run */
function median(run, samples) {
  const times = [];
  for (let sample = 0; sample < samples; sample += 1) {
    const began = cpu();
    let runs = 0;
    do {
      run();
      runs += 1;
    } while (cpu() - began < LEAST_SAMPLE_MS);
    times.push((cpu() - began) / runs);
  }
  return times.sort((a, b) => a - b)[times.length >> 1] ?? 0;
}

const round = (/** @type {number} */ ms) => Number(ms.toPrecision(3));

/** @param {string} name @param {Topology} topology @param {string} level @param {"on" | "off" | "auto"} fold */
function measure(name, topology, level, fold) {
  const began = performance.now();
  const graph = buildGraph(topology);
  const build = performance.now() - began;
  const opened = openGroups(graph, { level, toggled: [], fold });
  const started = performance.now();
  const drawing = layoutGraph(graph.arrays, opened, OPTIONS);
  const first = performance.now() - started;
  const isLarge = drawing.boxes > 5000;
  const warm = median(() => layoutGraph(graph.arrays, opened, OPTIONS), isLarge ? 7 : 15);

  const cache = new LayoutCache();
  layoutGraph(graph.arrays, opened, OPTIONS, cache);
  const group = middleGroup(graph.arrays, opened);
  let isFlipped = false;
  const again = median(() => {
    const open = opened.open.slice();
    isFlipped = !isFlipped;
    if (isFlipped) open[group] = 1 - (open[group] ?? 0);
    layoutGraph(graph.arrays, { ...opened, open }, OPTIONS, cache);
  }, isLarge ? 7 : 15);
  const figures = { boxes: drawing.boxes, routes: drawing.routes, build: round(build), first: round(first), warm: round(warm), again: round(again) };
  return { name: `${name}, ${level}${opened.foldOn ? ", folded" : ""}`, drawing, figures };
}

/** @param {GraphArrays} arrays @param {{open: Uint8Array, foldOn: boolean}} opened @returns {number} a group that is seen, in the middle of the model */
function middleGroup({ groups, groupParent, groupKind }, { open, foldOn }) {
  const seen = [];
  for (let group = 1; group < groups; group += 1) {
    if (groupKind[group] !== 0 && !foldOn) continue;
    let around = groupParent[group] ?? 0;
    while (around > 0 && (open[around] === 1 || (!foldOn && groupKind[around] !== 0))) around = groupParent[around] ?? 0;
    if (around === 0) seen.push(group);
  }
  return seen[seen.length >> 1] ?? 0;
}

/** @param {Drawing} drawing */
function peer({ boxes, kind, rect, routes, source, target, routeKind }) {
  const graph = new dagre.graphlib.Graph({ multigraph: true }).setGraph({ rankdir: "LR" }).setDefaultEdgeLabel(() => ({}));
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] !== FRAME) graph.setNode(String(box), { width: rect[4 * box + 2], height: rect[4 * box + 3] });
  }
  // Lines across the axis would force the halves apart; a layout of both at once is what a peer without mirroring does.
  for (let route = 0; route < routes; route += 1) {
    if ((routeKind[route] ?? 0) <= 1) graph.setEdge(String(source[route]), String(target[route]), {}, String(route));
  }
  dagre.layout(graph);
}

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new TypeError("usage: node layout.mjs DIRECTORY with graph dumps in it");
/** @type {Record<string, Topology>} */
const dumps = Object.fromEntries(readdirSync(directory).sort().map((file) => [file.replace(".json", ""), JSON.parse(readFileSync(join(directory, file), "utf8"))]));

const rows = [];
/** @type {Record<string, number>} */
const summary = {};
/** Fully open; of those the ones asked about by their number of boxes. @type {ReturnType<typeof measure>[]} */
const open = [];
for (const [name, topology] of Object.entries(dumps)) {
  if (!name.startsWith("gpt")) rows.push(measure(name, topology, "layer", "auto"));
  open.push(measure(name, topology, "all", "off"));
}
rows.push(...open);
const small = open.filter(({ drawing }) => drawing.boxes <= 200).sort((a, b) => b.drawing.boxes - a.drawing.boxes)[0];
const medium = open.sort((a, b) => Math.abs(a.drawing.boxes - 959) - Math.abs(b.drawing.boxes - 959))[0];
if (small !== undefined) summary["layout_ms_200"] = small.figures.warm;
if (medium !== undefined) {
  const dagreMs = median(() => peer(medium.drawing), 5);
  Object.assign(summary, {
    layout_boxes_959: medium.drawing.boxes,
    layout_ms_959: medium.figures.warm,
    dagre_ms_959: round(dagreMs),
    dagre_ratio_959: round(dagreMs / medium.figures.warm),
  });
}
for (const [name, blocks] of /** @type {const} */ ([["15k", 78], ["75k", 388]])) {
  const topology = synthetic(blocks);
  const whole = measure(`synthetic ${name}`, topology, "all", "off");
  const folded = measure(`synthetic ${name}`, topology, "layer", "auto");
  rows.push(whole, folded);
  summary[`layout_ms_${name}`] = whole.figures.warm;
  summary[`relayout_ms_${name}_open`] = whole.figures.again;
  summary[`relayout_ms_${name}`] = folded.figures.again;
}
console.log(JSON.stringify({ rows: rows.map(({ name, figures }) => ({ name, ...figures })), summary }));
