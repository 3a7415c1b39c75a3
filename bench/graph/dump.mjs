/**
 * A synthetic topology as a graph dump, with statistics of every tensor: `node bench/graph/dump.mjs BLOCKS FILE`.
 * The figures mean nothing; there are as many of them as in a real dump.
 */

import { writeFileSync } from "node:fs";

import { synthetic } from "./synthetic.mjs";

const BINS = 64;
const [blocks = "1", file = ""] = process.argv.slice(2);
const { op_us: _, ...topology } = synthetic(Number(blocks));
const rows = topology.tensors.length;
/** @param {(row: number) => number} figure */
const column = (figure) => Array.from({ length: rows }, (_, row) => figure(row));
const spread = (/** @type {number} */ row) => 1 + ((row * 7919) % 1000) / 1000;
const statistics = {
  tensor: topology.tensors.map(({ id }) => id),
  n: column(() => 131072),
  mean: column(() => 0),
  std: column(spread),
  min: column((row) => -3 * spread(row)),
  max: column((row) => 3 * spread(row)),
  norm: column((row) => 362 * spread(row)),
  zero_fraction: column(() => 0),
  nan: column(() => 0),
  posinf: column(() => 0),
  neginf: column(() => 0),
  dead_fraction: Array(rows).fill(null),
  saturation: Array(rows).fill(null),
  histogram: {
    bins: BINS,
    low: column((row) => -3 * spread(row)),
    high: column((row) => 3 * spread(row)),
    counts: Array.from({ length: rows }, (_, row) => Array.from({ length: BINS }, (_, bin) => 2048 + ((row * 31 + bin * 17) % 97))),
  },
};
const dump = { ...topology, spec: null, environment: { synthetic: true }, loss: 1, statistics, error: null, timing: {} };
writeFileSync(file, JSON.stringify(dump));
