/** Reading a graph dump that a user opens. The page checks what it needs to draw any dump: the schema's name, the kinds
 * of the fields that it reads, ids, and the lengths of columns. `chainrule open` checks a dump in full, and names
 * places. */

import { idIndex } from "../ids.js";

const SCHEMA = "chainrule.trace/1";
export const MAX_BYTES = 2 ** 30;

const BINS = 64;
/** Numbers that JSON cannot hold. @type {readonly unknown[]} */
const WORDS = ["NaN", "Infinity", "-Infinity"];
const COLUMNS = ["n", "mean", "std", "min", "max", "norm", "zero_fraction", "nan", "posinf", "neginf"];

/** Fields that hold an id, per list: the list that the id names; `*` marks a list of ids. */
const REFERENCES = {
  modules: { parent: "modules" },
  ops: { module: "modules", inputs: "*tensors", outputs: "*tensors", twin: "ops" },
  tensors: { module: "modules", producer: "ops", consumers: "*ops", gradient_of: "tensors" },
  saved: { tensor: "tensors", op: "ops" },
  layers: { preactivation: "tensors", activation: "tensors", gradient: "tensors", weight: "tensors",
    weight_gradient: "tensors", bias: "tensors", bias_gradient: "tensors" },
  faults: { op: "ops", tensor: "tensors" },
};

/** Fields of text that the page reads, per list. */
const TEXTS = { modules: ["id", "path", "type"], ops: ["id", "name", "phase"], tensors: ["id", "name", "role", "dtype"],
  layers: ["name"], faults: ["kind", "message"] };

/** A problem in a dump. `where` is a path such as `ops[12].inputs[0]`, empty for the whole. */
export class DumpProblem extends Error {
  /** @param {string} says @param {string} [where] */
  constructor(says, where = "") {
    super(where === "" ? says : `${where}: ${says}`);
    this.name = "DumpProblem";
    this.where = where;
  }
}

/** Checks the size of a dump. @param {number} bytes @throws {DumpProblem} it is too large */
export function checkSize(bytes) {
  if (bytes > MAX_BYTES)
    throw new DumpProblem(`the dump has more than ${MAX_BYTES / 2 ** 20} MiB; larger dumps cannot be opened`);
}

/** Reads a graph dump of schema `chainrule.trace/1`. @param {string} text @returns {Dump} see `checkedDump`
 * @throws {DumpProblem} it is not JSON, or no dump */
export function readDump(text) {
  let value;
  try {
    // Editors put a byte order mark in front.
    value = JSON.parse(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
  } catch (error) {
    throw new DumpProblem(`this is not JSON: ${error instanceof Error ? error.message : ""}`);
  }
  return checkedDump(value);
}

/** @param {unknown} value of JSON @returns {Dump} with `sources` and `faults` in any case @throws {DumpProblem} it is of
 * another schema, or its parts do not fit together */
export function checkedDump(value) {
  if (!isRecord(value)) throw new DumpProblem(`this is not a graph dump: ${shown(value)} instead of an object`);
  if (value["schema"] !== SCHEMA) {
    const found = value["schema"] === undefined ? "none" : shown(value["schema"]);
    throw new DumpProblem(`this page reads graph dumps of schema "${SCHEMA}", but this file has ${found}`, "schema");
  }
  const dump = /** @type {Dump} */ (/** @type {unknown} */ ({ faults: [], ...value }));
  checkParts(/** @type {Record<string, unknown>} */ (/** @type {unknown} */ (dump)));
  checkStatistics(dump);
  checkValues(dump);
  checkPrecision(dump);
  // Added since the first dumps were written.
  const faults = dump.faults.map((fault) => ({ ...{ level: "fault", layers: [], rule: null }, ...fault }));
  // A file may be called like a method of objects, such as toString.
  return { ...dump, faults, sources: Object.assign(Object.create(null), dump.sources ?? {}) };
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {unknown} value @returns {string} the value in at most 60 characters */
function shown(value) {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return `a list of ${value.length}`;
  const text = isRecord(value) ? "an object" : JSON.stringify(value);
  return text.length <= 60 ? text : `${text.slice(0, 57)}…`;
}

/** @param {unknown} value @param {string} where @returns {unknown[]} @throws {DumpProblem} it is not a list */
function listAt(value, where) {
  if (Array.isArray(value)) return value;
  throw noList(value, where);
}

/** @param {unknown} value @param {string} where @returns {DumpProblem} */
function noList(value, where) {
  return new DumpProblem(`${shown(value)} is not a list`, where);
}

/** @param {unknown} id @param {string} list that it should be in @param {string} where @returns {DumpProblem} */
function unknownId(id, list, where) {
  return new DumpProblem(`${shown(id)} is not an id of the ${list}`, where);
}

/** @param {Record<string, unknown>} dump @throws {DumpProblem} a part has another kind than the schema says, or an id
 * stands twice or names nothing */
function checkParts(dump) {
  /** @type {Record<string, ReadonlyMap<unknown, number>>} */
  const ids = {};
  for (const [list, texts] of Object.entries(TEXTS)) {
    const parts = listAt(dump[list], list);
    parts.forEach((part, place) => {
      if (!isRecord(part)) throw new DumpProblem(`${shown(part)} is not an object`, `${list}[${place}]`);
      for (const name of texts) {
        if (typeof part[name] !== "string")
          throw new DumpProblem(`${shown(part[name])} is not text`, `${list}[${place}].${name}`);
      }
      if (list === "ops" && part["phase"] !== "forward" && part["phase"] !== "backward")
        throw new DumpProblem(`${shown(part["phase"])} is neither forward nor backward`, `ops[${place}].phase`);
    });
    if (!texts.includes("id")) continue;
    const named = /** @type {{id: string}[]} */ (parts);
    const index = ids[list] = idIndex(named);
    const hidden = index.size === named.length ? -1 : named.findIndex(({ id }, place) => index.get(id) !== place);
    if (hidden < 0) continue;
    const { id } = named[hidden];
    const again = named.findIndex((part, place) => place > hidden && part.id === id);
    throw new DumpProblem(`the id ${shown(id)} already belongs to ${list}[${hidden}]`, `${list}[${again}].id`);
  }
  for (const [list, fields] of Object.entries(REFERENCES)) {
    const parts = listAt(dump[list], list);
    const odd = parts.findIndex((part) => !isRecord(part));
    if (odd >= 0) throw new DumpProblem(`${shown(parts[odd])} is not an object`, `${list}[${odd}]`);
    for (const [field, reference] of Object.entries(fields)) {
      const isList = reference.startsWith("*");
      const known = isList ? reference.slice(1) : reference;
      for (let place = 0; place < parts.length; place += 1) {
        const value = /** @type {any} */ (parts[place])[field] ?? null;
        if (!isList && value !== null && !ids[known].has(value))
          throw unknownId(value, known, `${list}[${place}].${field}`);
        if (!isList) continue;
        if (!Array.isArray(value)) throw noList(value, `${list}[${place}].${field}`);
        for (let at = 0; at < value.length; at += 1)
          if (!ids[known].has(value[at])) throw unknownId(value[at], known, `${list}[${place}].${field}[${at}]`);
      }
    }
  }
  /** @type {any[]} */ (dump["tensors"]).forEach(({ shape }, place) => {
    if (!Array.isArray(shape)) throw noList(shape, `tensors[${place}].shape`);
  });
  const failure = dump["error"] ?? null;
  const failed = isRecord(failure) ? (failure["op"] ?? null) : null;
  if (failed !== null && !ids["ops"].has(failed)) throw unknownId(failed, "ops", "error.op");
  if (!isRecord(dump["statistics"]) || !isRecord(dump["statistics"]["histogram"]))
    throw new DumpProblem("the statistics or their histograms are missing", "statistics");
  listAt(dump["statistics"]["tensor"], "statistics.tensor").forEach((id, row) => {
    if (!ids["tensors"].has(id)) throw unknownId(id, "tensors", `statistics.tensor[${row}]`);
  });
}

/** @param {Dump} dump @throws {DumpProblem} a column is missing or not as long as there are tensors, or a histogram has
 * not 64 bins */
function checkStatistics({ statistics }) {
  const { tensor, histogram, ...columns } = statistics;
  const { low, high, counts } = histogram;
  const lists = { ...columns, "histogram.low": low, "histogram.high": high, "histogram.counts": counts };
  for (const name of [...COLUMNS, ...Object.keys(lists)]) {
    const column = listAt(/** @type {Record<string, unknown>} */ (lists)[name], `statistics.${name}`);
    if (column.length !== tensor.length) {
      throw new DumpProblem(`${column.length} entries; expected one for each of the ${tensor.length} tensors`,
        `statistics.${name}`);
    }
  }
  if (histogram.bins !== BINS)
    throw new DumpProblem(`${histogram.bins} bins; expected ${BINS}`, "statistics.histogram.bins");
  counts.forEach((bins, row) => {
    if (bins?.length !== BINS) throw new DumpProblem(`expected ${BINS} bins`, `statistics.histogram.counts[${row}]`);
  });
}

/** @param {Dump} dump @throws {DumpProblem} values of no tensor, not one for each of its elements, or no numbers */
function checkValues({ tensors, values = {} }) {
  const sizes = new Map(tensors.map(({ id, shape }) => [id, shape.reduce((product, size) => product * size, 1)]));
  for (const [id, list] of Object.entries(values)) {
    const where = `values.${id}`;
    const size = sizes.get(id);
    if (size === undefined) throw new DumpProblem(`${shown(id)} is not an id of the tensors`, where);
    if (listAt(list, where).length !== size)
      throw new DumpProblem(`${list.length} values; expected ${size}, one per element`, where);
    list.forEach((value, at) => {
      if (typeof value !== "number" && !WORDS.includes(value))
        throw new DumpProblem(`${shown(value)} is not a number`, `${where}[${at}]`);
    });
  }
}

/** @param {Dump} dump @throws {DumpProblem} an error of no tensor, not one per tensor, or no number */
function checkPrecision({ tensors, precision }) {
  if (precision === undefined || precision === null) return;
  const ids = new Set(tensors.map(({ id }) => id));
  const known = (/** @type {string} */ id, /** @type {string} */ where) => {
    if (!ids.has(id)) throw new DumpProblem(`${shown(id)} is not an id of the tensors`, where);
  };
  const named = listAt(precision.tensor, "precision.tensor");
  precision.tensor.forEach((id, at) => known(id, `precision.tensor[${at}]`));
  for (const name of /** @type {const} */ (["error", "expected"])) {
    const where = `precision.${name}`;
    if (listAt(precision[name], where).length !== named.length) {
      throw new DumpProblem(`${precision[name].length} entries; expected one for each of the ${named.length} tensors`,
        where);
    }
    const bad = precision[name].findIndex((value) => !(typeof value === "number" && value >= 0));
    if (bad >= 0)
      throw new DumpProblem(`${shown(precision[name][bad])} is not a number of at least 0`, `${where}[${bad}]`);
  }
  for (const name of /** @type {const} */ (["name", "of", "against"])) {
    if (typeof precision[name] !== "string")
      throw new DumpProblem(`${shown(precision[name])} is not text`, `precision.${name}`);
  }
  for (const [id, counts] of Object.entries(precision.differing ?? {})) {
    known(id, `precision.differing.${id}`);
    if (listAt(counts, `precision.differing.${id}`).length !== 2)
      throw new DumpProblem(`${counts.length} numbers; expected 2`, `precision.differing.${id}`);
  }
}

// Which graph a dump is of, in a few letters: dumps of one model at several steps have the same.

/** Names modules, ops, tensors and how they hang together. Types of numbers are no part of it: a model in float32 has
 * the structure that it has in bfloat16. @param {Pick<Topology, "modules" | "ops" | "tensors">} topology
 * @returns {string} the same for the same structure */
export function structureOf({ modules, ops, tensors }) {
  return fingerprint(JSON.stringify([
    modules.map(({ id, path, type, parent }) => [id, path, type, parent]),
    ops.map(({ id, name, phase, module, inputs, outputs, twin }) => [id, name, phase, module, inputs, outputs, twin]),
    tensors.map(
      ({ id, name, role, shape, module, producer, gradient_of }) => [id, name, role, shape, module, producer,
        gradient_of]
    ),
  ]));
}

/** Names everything that a picture is not asked for but its topology; how long ops took is different every time.
 * @param {Topology} topology */
export function topologyKey(topology) {
  return fingerprint(JSON.stringify({ ...topology, op_us: null }));
}

/** 53 bits of a text, mixed as by MurmurHash's last steps: two halves of 32 bits that each letter multiplies.
 * @param {string} text */
function fingerprint(text) {
  let [high, low] = [0xdeadbeef, 0x41c6ce57];
  for (let at = 0; at < text.length; at += 1) {
    const letter = text.charCodeAt(at);
    high = Math.imul(high ^ letter, 2654435761);
    low = Math.imul(low ^ letter, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36);
}
