/**
 * Reading a graph dump that somebody brings along: a file may hold anything. Whatever is wrong with it is said with its
 * place; what is accepted is a graph that the page can draw, whatever its names are.
 */

import { findCircle } from "./cycle.js";
import { checkForm, isRecord, LAYER_TENSORS, shown } from "./dump-form.js";
import { jsonProblem } from "./json-problem.js";

/** The schema that is read here. */
export const SCHEMA = "chainrule.trace/1";
/** A file larger than this is not opened. */
export const MAX_BYTES = 128 * 2 ** 20;

const BINS = 64;
/** So many members of a circle are named. */
const MAX_NAMED = 8;

/** What is wrong with a dump, and where: `where` is a path such as `ops[12].inputs[0]`, empty for the whole. */
export class DumpProblem extends Error {
  /**
   * @param {string} says
   * @param {string} [where]
   */
  constructor(says, where = "") {
    super(where === "" ? says : `${where}: ${says}`);
    this.name = "DumpProblem";
    this.where = where;
  }
}

/**
 * To be asked before a file is read.
 *
 * @param {number} bytes
 * @throws {DumpProblem} it is too large
 */
export function checkSize(bytes) {
  if (bytes <= MAX_BYTES) return;
  const size = (/** @type {number} */ value) => `${(value / 2 ** 20).toFixed(value >= 10 * 2 ** 20 ? 0 : 1)} MiB`;
  throw new DumpProblem(`the file has ${size(bytes)}; at most ${size(MAX_BYTES)} are opened`);
}

/**
 * Reads a graph dump of schema `chainrule.trace/1`.
 *
 * @param {string} text
 * @returns {Dump}
 * @throws {DumpProblem} it is not JSON, of another schema, not of its form, or its ids do not fit together
 */
export function readDump(text) {
  let value;
  try {
    // A byte order mark is what editors leave in front.
    value = JSON.parse(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
  } catch (error) {
    const problem = jsonProblem(text);
    if (problem === null) throw new DumpProblem(`this is not JSON: ${error instanceof Error ? error.message : ""}`);
    const { line, column, expected, found } = problem;
    throw new DumpProblem(
      `this is not JSON: line ${line}, column ${column}: ${expected} should stand there, but ${found}`,
    );
  }
  return checkDump(value);
}

/**
 * Checks what a text of JSON held.
 *
 * @param {unknown} value
 * @returns {Dump} the same, with `sources` and `faults` in any case
 * @throws {DumpProblem}
 */
export function checkDump(value) {
  if (!isRecord(value)) throw new DumpProblem(`this is not a graph dump: ${shown(value)} instead of an object`);
  const schema = value["schema"];
  if (schema !== SCHEMA) {
    const found = schema === undefined ? "there is none" : `it is ${shown(schema)}`;
    throw new DumpProblem(`this page reads graph dumps of schema "${SCHEMA}", but ${found}`, "schema");
  }
  const fault = checkForm(value);
  if (fault !== null) throw new DumpProblem(fault.says, fault.at.replace(/^\./, ""));
  const dump = /** @type {Dump} */ (/** @type {unknown} */ (value));
  checkIds(dump);
  checkStatistics(dump.statistics);
  // Files may have any name, those of the methods of objects included.
  return { ...dump, faults: dump.faults ?? [], sources: Object.assign(Object.create(null), dump.sources ?? {}) };
}

/**
 * @param {Dump} dump
 * @throws {DumpProblem} an id stands twice or leads nowhere, or something depends on itself
 */
function checkIds(dump) {
  const modules = idIndex("modules", dump.modules);
  const ops = idIndex("ops", dump.ops);
  const tensors = idIndex("tensors", dump.tensors);
  /**
   * @param {string} noun
   * @param {ReadonlyMap<string, number>} known
   * @param {string | null} id
   * @param {string} list
   * @param {number} index
   * @param {string} field
   * @param {number} [place] within the field, which is a list
   */
  const check = (noun, known, id, list, index, field, place) => {
    if (id === null || known.has(id)) return;
    const where = `${list}[${index}].${field}${place === undefined ? "" : `[${place}]`}`;
    throw new DumpProblem(`the ${noun} ${shown(id)} does not exist`, where);
  };
  /** @type {(known: ReadonlyMap<string, number>, noun: string, ids: readonly string[], list: string, index: number,
   * field: string) => void} */
  const checkAll = (known, noun, ids, list, index, field) => {
    for (let place = 0; place < ids.length; place += 1) check(noun, known, ids[place], list, index, field, place);
  };
  dump.modules.forEach((module, index) => check("module", modules, module.parent, "modules", index, "parent"));
  dump.ops.forEach((op, index) => {
    check("module", modules, op.module, "ops", index, "module");
    checkAll(tensors, "tensor", op.inputs, "ops", index, "inputs");
    checkAll(tensors, "tensor", op.outputs, "ops", index, "outputs");
    check("op", ops, op.twin, "ops", index, "twin");
  });
  dump.tensors.forEach((tensor, index) => {
    check("module", modules, tensor.module, "tensors", index, "module");
    check("op", ops, tensor.producer, "tensors", index, "producer");
    checkAll(ops, "op", tensor.consumers, "tensors", index, "consumers");
    check("tensor", tensors, tensor.gradient_of, "tensors", index, "gradient_of");
  });
  dump.saved.forEach(({ tensor, op }, index) => {
    check("tensor", tensors, tensor, "saved", index, "tensor");
    check("op", ops, op, "saved", index, "op");
  });
  dump.layers.forEach((layer, index) => {
    const ids = /** @type {Record<string, string | null>} */ (/** @type {unknown} */ (layer));
    for (const field of LAYER_TENSORS) check("tensor", tensors, ids[field] ?? null, "layers", index, field);
  });
  dump.faults?.forEach((fault, index) => {
    check("op", ops, fault.op, "faults", index, "op");
    check("tensor", tensors, fault.tensor, "faults", index, "tensor");
  });
  const failed = dump.error?.op ?? null;
  if (failed !== null && !ops.has(failed)) throw new DumpProblem(`the op ${shown(failed)} does not exist`, "error.op");
  const rows = new Set();
  dump.statistics.tensor.forEach((id, row) => {
    if (!tensors.has(id)) throw new DumpProblem(`the tensor ${shown(id)} does not exist`, `statistics.tensor[${row}]`);
    if (rows.has(id)) throw new DumpProblem(`the tensor ${shown(id)} has two rows`, `statistics.tensor[${row}]`);
    rows.add(id);
  });

  const producers = dump.tensors.map(({ producer }) => producer === null ? -1 : (ops.get(producer) ?? -1));
  const made = dump.ops.map(({ inputs }) => inputs.map((id) => producers[tensors.get(id) ?? -1] ?? -1));
  checkCircles("ops", dump.ops, (op) => made[op] ?? [], "needs what it makes itself");
  checkCircles("modules", dump.modules, (module) => at(modules, dump.modules[module]?.parent), "stands inside itself");
  checkCircles("ops", dump.ops, (op) => at(ops, dump.ops[op]?.twin), "is its own twin");
  checkCircles("tensors", dump.tensors, (tensor) => at(tensors, dump.tensors[tensor]?.gradient_of),
    "is its own gradient");
  checkAgreement(dump, ops, tensors);
}

/**
 * @param {Dump} dump
 * @param {ReadonlyMap<string, number>} ops
 * @param {ReadonlyMap<string, number>} tensors
 * @throws {DumpProblem} ops and tensors contradict one another, or a forward op is the backward of something
 */
function checkAgreement(dump, ops, tensors) {
  /** @type {Map<string, number>} */
  const maker = new Map();
  const readers = dump.tensors.map(({ consumers }) => new Set(consumers));
  const reads = dump.ops.map(({ inputs }) => new Set(inputs));
  dump.ops.forEach((op, row) => {
    op.outputs.forEach((id, place) => {
      const where = `ops[${row}].outputs[${place}]`;
      const earlier = maker.get(id);
      if (earlier !== undefined)
        throw new DumpProblem(`the tensor ${shown(id)} is an output of ops[${earlier}] already`, where);
      maker.set(id, row);
      const producer = dump.tensors[tensors.get(id) ?? -1]?.producer ?? null;
      if (producer === op.id) return;
      throw new DumpProblem(
        `the tensor ${shown(id)} names ${producer === null ? "no producer" : `${shown(producer)} as its producer`}`,
        where,
      );
    });
    op.inputs.forEach((id, place) => {
      if (readers[tensors.get(id) ?? -1]?.has(op.id)) return;
      throw new DumpProblem(`the tensor ${shown(id)} does not name this op as one that reads it`,
        `ops[${row}].inputs[${place}]`);
    });
    // That of a backward op may be one too: of code that was differentiated itself.
    if (op.twin !== null && op.phase === "forward")
      throw new DumpProblem("only a backward op has a twin", `ops[${row}].twin`);
  });
  dump.tensors.forEach(({ id, producer, consumers }, row) => {
    if (producer !== null && !maker.has(id)) {
      throw new DumpProblem(`the op ${shown(producer)} does not have it among its outputs`, `tensors[${row}].producer`);
    }
    consumers.forEach((reader, place) => {
      if (reads[ops.get(reader) ?? -1]?.has(id)) return;
      throw new DumpProblem(`the op ${shown(reader)} does not have it among its inputs`,
        `tensors[${row}].consumers[${place}]`);
    });
  });
}

/** @param {ReadonlyMap<string, number>} index @param {string | null | undefined} id @returns {number[]} */
function at(index, id) {
  return id == null ? [] : [index.get(id) ?? -1];
}

/**
 * @param {string} list
 * @param {readonly {id: string}[]} parts
 * @returns {Map<string, number>} id → place in the list
 * @throws {DumpProblem} an id stands twice
 */
function idIndex(list, parts) {
  /** @type {Map<string, number>} */
  const index = new Map();
  parts.forEach(({ id }, place) => {
    const earlier = index.get(id);
    if (earlier !== undefined)
      throw new DumpProblem(`the id ${shown(id)} is that of ${list}[${earlier}] already`, `${list}[${place}].id`);
    index.set(id, place);
  });
  return index;
}

/**
 * @param {string} list
 * @param {readonly {id: string}[]} parts
 * @param {(part: number) => Iterable<number>} before
 * @param {string} says of one that is a circle by itself
 * @throws {DumpProblem} there is a circle
 */
function checkCircles(list, parts, before, says) {
  const circle = findCircle(parts.length, before);
  if (circle.length === 0) return;
  const names = circle.slice(0, MAX_NAMED).map((part) => shown(parts[part]?.id));
  const more = circle.length > MAX_NAMED ? ` → … (${circle.length} in all)` : "";
  const path = `${names.join(" → ")}${more} → ${names[0]}`;
  const where = `${list}[${circle[0]}]`;
  throw new DumpProblem(circle.length === 1 ? `${names[0]} ${says}` : `a cycle: ${path}`, where);
}

/**
 * @param {StatisticsColumns} statistics
 * @throws {DumpProblem} a column is not as long as there are tensors, or a histogram has not 64 bins
 */
function checkStatistics(statistics) {
  const { tensor, histogram, ...columns } = statistics;
  const rows = tensor.length;
  /** @type {[string, readonly unknown[]][]} */
  const lists = [
    ...Object.entries(columns),
    ["histogram.low", histogram.low],
    ["histogram.high", histogram.high],
    ["histogram.counts", histogram.counts],
  ];
  for (const [name, column] of lists) {
    if (column.length === rows) continue;
    throw new DumpProblem(`${column.length} entries, not one for each of the ${rows} tensors`, `statistics.${name}`);
  }
  if (histogram.bins !== BINS)
    throw new DumpProblem(`${histogram.bins} bins, not ${BINS}`, "statistics.histogram.bins");
  histogram.counts.forEach((counts, row) => {
    if (counts.length === BINS) return;
    throw new DumpProblem(`${counts.length} bins, not ${BINS}`, `statistics.histogram.counts[${row}]`);
  });
}
