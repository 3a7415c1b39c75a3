/** The dumps that are open together: each is read when it is asked for, and the last few are kept as they were read. */

import { readDump } from "./dump.js";
import { textOf } from "./source.js";
import { structureOf, topologyKey } from "./structure.js";
import { pictureOfDump } from "../picture.js";

/** So many are kept. */
export const MOST_KEPT = 16;

export class DumpShelf {
  /** By index, the one asked for last at the end. @type {Map<number, Promise<OpenedDump>>} */
  #kept = new Map();
  /** Those that have been read. @type {Map<number, OpenedDump>} */
  #read = new Map();

  /** @param {readonly DumpSource[]} sources */
  constructor(sources) {
    this.sources = sources;
  }

  /** @returns {number} how many are in memory */
  get kept() {
    return this.#kept.size;
  }

  /**
   * @param {number} index
   * @returns {Promise<OpenedDump>} pictures of one topology share it
   * @throws {DumpProblem} it is no dump
   * @throws {ApiError} the server does not hand it out
   */
  get(index) {
    const taken = this.#kept.get(index) ?? this.#take(index);
    this.#kept.delete(index);
    this.#kept.set(index, taken);
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MOST_KEPT) break;
      this.#kept.delete(oldest);
      this.#read.delete(oldest);
    }
    return taken;
  }

  /** @param {number} index @returns {Promise<OpenedDump>} */
  async #take(index) {
    const source = this.sources[index];
    if (source === undefined) throw new RangeError(`there is no dump ${index}`);
    try {
      const dump = readDump(await textOf(source));
      const own = pictureOfDump(dump, 0, "");
      const key = topologyKey(own.topology);
      // One object for one graph: what hangs on it is not worked out anew at every step.
      const twin = [...this.#read.values()].find(({ picture }) => picture.key === key)?.picture;
      const picture = twin === undefined ? { ...own, key } : { ...own, key, topology: twin.topology, rows: twin.rows };
      const taken = { index, name: source.name, dump, picture, structure: structureOf(dump) };
      if (this.#kept.has(index)) this.#read.set(index, taken);
      return taken;
    } catch (problem) {
      // Asked for again it may be there.
      this.#kept.delete(index);
      throw problem;
    }
  }
}
