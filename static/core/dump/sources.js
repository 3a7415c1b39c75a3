/** The dumps that are open together: each is read when it is asked for, and the last few are kept as they were read. */

import { getText } from "../api.js";
import { checkSize, readDump, structureOf, topologyKey } from "./dump.js";
import { pictureOfDump } from "../picture.js";

// A dump's text comes from an address of the server, from a file, or is given.

/** How a dump begins that we wrote. One that somebody has written anew may have its keys in another order. */
const BEGINS = /^\ufeff?\s*\{\s*"schema"\s*:\s*"chainrule\.trace\/1"\s*,/;
/** Bytes read to see how a file begins. */
const GLANCE = 256;

/** @param {DumpSource} source @returns {Promise<string>} @throws {ApiError} the server does not hand it out
 * @throws {DumpProblem} the file is too large @throws {DOMException} the file cannot be read */
export async function textOf({ url, file, text }) {
  if (text !== undefined) return text;
  if (file === undefined) return getText(url ?? "");
  checkSize(file.size);
  return file.text();
}

/** @param {File} file @returns {Promise<boolean>} whether it begins as our dumps do; of another that says nothing
 * yet */
export async function beginsLikeDump(file) {
  return BEGINS.test(await file.slice(0, GLANCE).text());
}

/** Files in the order of the numbers in their names, where they differ in nothing else: step 900 before step 1000.
 * Others stay as they are. @template {{name: string}} T @param {readonly T[]} sources */
export function inOrder(sources) {
  if (!differInNumbers(sources)) return [...sources];
  return [...sources].sort((a, b) => {
    const [ours, theirs] = [numbersIn(a.name), numbersIn(b.name)];
    const at = ours.findIndex((number, place) => number !== theirs[place]);
    return at < 0 ? 0 : (ours[at] ?? 0) - (theirs[at] ?? 0);
  });
}

/** The end of the name of one model in several precisions. */
const PRECISION = / in ([\w -]+)$/;

/** Labels of steps: the precision or the number in which their names differ, else their position from 1.
 * @param {readonly {name: string}[]} sources */
export function stepLabels(sources) {
  if (unitOf(sources) === "precision") return sources.map(({ name }) => PRECISION.exec(name)?.[1] ?? name);
  const numbers = sources.map(({ name }) => numbersIn(name));
  const first = numbers[0] ?? [];
  const apart = differInNumbers(sources)
    ? first.findIndex((number, place) => numbers.some((other) => other[place] !== number)) : -1;
  return sources.map((_, order) => String(apart < 0 ? order + 1 : (numbers[order]?.[apart] ?? order + 1)));
}

/** @param {readonly {name: string}[]} sources @returns {"precision" | "rank" | "step"} what the dumps are of */
export function unitOf(sources) {
  const models = new Set(sources.map(({ name }) => PRECISION.test(name) ? name.replace(PRECISION, "") : null));
  if (models.size === 1 && !models.has(null)) return "precision";
  return sources.every(({ name }) => /\.rank\d+\./.test(name)) && differInNumbers(sources) ? "rank" : "step";
}

/** @param {readonly {name: string}[]} sources @returns {boolean} */
function differInNumbers(sources) {
  return new Set(sources.map(({ name }) => name.replace(/\d+/g, "#"))).size === 1;
}

/** @param {string} name @returns {number[]} */
function numbersIn(name) {
  return (name.match(/\d+/g) ?? []).map(Number);
}

const MAX_KEPT = 16;

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

  /** @param {number} index @returns {Promise<OpenedDump>} pictures of one topology share it @throws {DumpProblem} it is
   * no dump @throws {ApiError} the server does not hand it out */
  get(index) {
    const taken = this.#kept.get(index) ?? this.#take(index);
    this.#kept.delete(index);
    this.#kept.set(index, taken);
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break;
      this.#kept.delete(oldest);
      this.#read.delete(oldest);
    }
    return taken;
  }

  /** @param {number} index @returns {Promise<OpenedDump>} */
  async #take(index) {
    const source = this.sources[index];
    if (source === undefined) throw new RangeError(`unknown dump ${index}`);
    try {
      const dump = readDump(await textOf(source));
      const own = pictureOfDump(dump, 0, "");
      const key = topologyKey(own.topology);
      // Pictures of one graph share the topology, and so everything cached for it.
      const twin = [...this.#read.values()].find(({ picture }) => picture.key === key)?.picture;
      const picture = twin === undefined ? { ...own, key } : { ...own, key, topology: twin.topology, rows: twin.rows };
      const taken = { index, name: source.name, dump, picture, structure: structureOf(dump) };
      if (this.#kept.has(index)) this.#read.set(index, taken);
      return taken;
    } catch (problem) {
      // The next request tries again.
      this.#kept.delete(index);
      throw problem;
    }
  }
}
