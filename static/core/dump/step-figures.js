/** The statistics of a dump's tensors in a packed form, which stays when the dump is dropped. No DOM. */

import { structureOf } from "./dump.js";
import { readSource } from "./sources.js";
import { pictureOfDump } from "../picture.js";

const MOST = 65535;

/** Reads dumps one after the other; the graph of each structure goes along with the first that has it. */
export class StepReader {
  /** @type {Set<string>} */
  #known = new Set();

  /** @param {DumpSource} source @throws {Error} it cannot be read, or is no dump */
  async read(source) {
    const dump = await readSource(source);
    const structure = structureOf(dump);
    const isNew = !this.#known.has(structure);
    this.#known.add(structure);
    const { modules, ops, tensors, layers, statistics } = dump;
    const graph = isNew ? { modules, ops, tensors, layers, statistics: { tensor: statistics.tensor } } : null;
    return { structure, graph, ...packed(pictureOfDump(dump, 0, "")) };
  }
}

/** counts: in units, which are 1 where all counts of a row fit in 16 bits. @param {Picture} picture */
export function packed({ floats, integers, bins, counts, loss, precision, rows }) {
  const { mean, std, min, max, zero_fraction } = floats;
  const { n, nan, posinf, neginf } = integers;
  const units = new Float64Array(n.length).fill(1);
  const small = new Uint16Array(counts.length);
  for (let row = 0; row < n.length; row += 1) {
    let most = 0;
    for (let at = row * bins; at < (row + 1) * bins; at += 1) most = Math.max(most, counts[at]);
    const unit = most > MOST ? most / MOST : 1;
    units[row] = unit;
    for (let at = row * bins; at < (row + 1) * bins; at += 1) small[at] = Math.round(counts[at] / unit);
  }
  const [error, expected] = [0, 0].map(() => new Float64Array(precision === null ? 0 : n.length).fill(NaN));
  precision?.tensor.forEach((id, at) => {
    const row = rows.get(id) ?? -1;
    error[row] = precision.error[at];
    expected[row] = precision.expected[at];
  });
  return { loss, of: precision?.of ?? null, floats: { mean, std, min, max, zero_fraction, error, expected },
    integers: { n, nan, posinf, neginf }, bins, counts: small, units };
}

/** @param {StepFigures} figures @returns {ArrayBuffer[]} that need not be copied from one thread to the other */
export function buffersOf({ floats, integers, counts, units }) {
  const columns = [...Object.values(floats), ...Object.values(integers), counts, units];
  return [...new Set(columns.map(({ buffer }) => /** @type {ArrayBuffer} */ (buffer)))];
}
