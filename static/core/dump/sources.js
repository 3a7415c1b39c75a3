/** The dumps that are open together: each is read when it is asked for, and the last few are kept as they were read. */

import { getStreamed } from "../api.js";
import { DumpProblem } from "./checks.js";
import { checkedDump, checkSize, readDump, structureOf, topologyKey } from "./dump.js";
import { LineReader, linesOf } from "./lines.js";
import { pictureOfDump } from "../picture.js";

// A dump's text comes from an address of the server, from a file, or is given.

/** How a dump begins that we wrote. One that somebody has written anew may have its keys in another order. */
const BEGINS = /^\ufeff?\s*\{\s*"schema"\s*:\s*"chainrule\.trace\/1"\s*,/;
/** Bytes read to see how a file begins. */
const GLANCE = 256;

/** How a gzip file begins. */
const GZIP = [0x1f, 0x8b];

/** Reads a dump: line by line as Chainrule writes it, or in one piece as another program may have written it.
 * @param {DumpSource} source @param {(bytes: number) => void} [tell] how many bytes have been read
 * @returns {Promise<Dump>} @throws {ApiError} the server does not hand it out @throws {DumpProblem} the file is too large,
 * or no dump @throws {DOMException} the file cannot be read */
export async function readSource(source, tell = () => {}) {
  if (source.text !== undefined) return readDump(source.text);
  const reader = new LineReader();
  try {
    for await (const line of linesOf(piecesOf(source, tell))) reader.read(line);
    return checkedDump(reader.end());
  } catch (problem) {
    // A line may also be too long for a text.
    if (!(problem instanceof SyntaxError) && !(problem instanceof RangeError)) throw problem;
  }
  const pieces = [];
  for await (const piece of piecesOf(source, tell)) pieces.push(piece);
  try {
    return readDump(pieces.join(""));
  } catch (problem) {
    if (!(problem instanceof RangeError)) throw problem;
    throw new DumpProblem(
      "the file is damaged, or another program has written it without line breaks; so it is too large",
    );
  }
}

/** @param {DumpSource} source @returns {Promise<Blob>} its bytes, as they were opened @throws {ApiError} */
export async function bytesOf({ url, file, text }) {
  if (text !== undefined) return new Blob([text]);
  return file ?? (await getStreamed(url ?? "")).blob();
}

/** @param {DumpSource} source @param {(bytes: number) => void} tell @returns {AsyncGenerator<string>} the text in
 * pieces */
async function* piecesOf({ url, file }, tell) {
  const reader = (await streamOf({ url, file })).getReader();
  const decoder = new TextDecoder();
  for (let bytes = 0;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (!(error instanceof TypeError)) throw error;
      throw new DumpProblem(
        file === undefined ? "the dump is damaged, or the connection broke" : "the compressed data are damaged",
      );
    });
    if (done) break;
    bytes += value.length;
    checkSize(bytes);
    tell(bytes);
    yield decoder.decode(value, { stream: true });
  }
  yield decoder.decode();
}

/** @param {{url?: string, file?: File}} source @returns {Promise<ReadableStream<Uint8Array>>} its bytes, decompressed */
async function streamOf({ url, file }) {
  if (file === undefined) {
    const { body, headers } = await getStreamed(url ?? "");
    const stream = body ?? new Blob().stream();
    return headers.get("content-type") === "application/gzip" ? unpacked(stream) : stream;
  }
  checkSize(file.size);
  const begin = new Uint8Array(await file.slice(0, GZIP.length).arrayBuffer());
  return GZIP.every((byte, at) => begin[at] === byte) ? unpacked(file.stream()) : file.stream();
}

/** @param {ReadableStream<Uint8Array>} stream @returns {ReadableStream<Uint8Array>} */
function unpacked(stream) {
  /** @type {ReadableWritablePair<Uint8Array, any>} */
  const decompression = new DecompressionStream("gzip");
  return stream.pipeThrough(decompression);
}

/** @param {File} file @returns {Promise<boolean>} whether it begins as our dumps do; of another that says nothing
 * yet */
export async function beginsLikeDump(file) {
  const reader = (await streamOf({ file })).getReader();
  // Damaged data do not begin like a dump.
  const { value } = await reader.read().catch(() => ({ value: undefined }));
  await reader.cancel().catch(() => {});
  return BEGINS.test(new TextDecoder().decode(value?.subarray(0, GLANCE)));
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

let alone = 0;

export class DumpShelf {
  /** By index, the one asked for last at the end. @type {Map<number, Promise<OpenedDump>>} */
  #kept = new Map();
  /** Those that have been read. @type {Map<number, OpenedDump>} */
  #read = new Map();

  #tell;

  /** @param {readonly DumpSource[]} sources @param {(name: string, bytes: number) => void} [tell] how much of a dump has
   * been read */
  constructor(sources, tell = () => {}) {
    this.sources = sources;
    this.#tell = tell;
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
      const read = await readSource(source, (bytes) => this.#tell(source.name, bytes));
      const own = pictureOfDump(read, 0, "");
      // A graph that is alone needs no name that another one may have.
      const isAlone = this.sources.length === 1;
      const key = isAlone ? `alone ${(alone += 1)}` : topologyKey(own.topology);
      // Pictures of one graph share the topology, and so everything cached for it.
      const twin = [...this.#read.values()].find(({ picture }) => picture.key === key)?.picture;
      const picture = twin === undefined ? { ...own, key } : { ...own, key, topology: twin.topology, rows: twin.rows };
      const { statistics: _, values: __, ...dump } = read;
      const structure = isAlone ? "" : structureOf(dump);
      const taken = { index, name: source.name, source, dump, picture, structure };
      if (this.#kept.has(index)) this.#read.set(index, taken);
      return taken;
    } catch (problem) {
      // The next request tries again.
      this.#kept.delete(index);
      throw problem;
    }
  }
}
