/** Checks that no form of a dump can state: ids exist, ops and tensors agree, nothing depends on itself, columns have one
 * length. The page refuses the dumps that `chainrule.load` refuses; the tests compare the two verdicts. */

import { idIndex, linksOf, UNKNOWN } from "../ids.js";
import { DUMP, isRecord, isText, misfitOf, shown } from "./form.js";

const BINS = 64;
const COLUMNS = ["n", "mean", "std", "min", "max", "norm", "zero_fraction", "nan", "posinf", "neginf", "dead_fraction",
  "saturation"];
const HISTOGRAM = ["low", "high", "counts"];

/** Values of larger tensors are not in a dump. */
const SMALL = 16;

/** The maximum depth of free-form values. */
const MAX_DEPTH = 100;

/** A message names at most this many members of a cycle. */
const MAX_NAMED = 8;

/** Fields that hold an id or a list of ids, per list: the list that has the id. */
const REFERENCES = {
  modules: { parent: "modules" },
  ops: { module: "modules", inputs: "tensors", outputs: "tensors", twin: "ops" },
  tensors: { module: "modules", producer: "ops", consumers: "ops", gradient_of: "tensors" },
  saved: { tensor: "tensors", op: "ops" },
  layers: { preactivation: "tensors", activation: "tensors", gradient: "tensors", weight: "tensors",
    weight_gradient: "tensors", bias: "tensors", bias_gradient: "tensors" },
  faults: { op: "ops", tensor: "tensors" },
};

const misfitOfDump = misfitOf(DUMP);

/** A problem in a dump. `where` is a path such as `ops[12].inputs[0]`, empty for the whole. */
export class DumpProblem extends Error {
  /** @param {string} says @param {string} [where] */
  constructor(says, where = "") {
    super(where === "" ? says : `${where}: ${says}`);
    this.name = "DumpProblem";
    this.where = where;
  }
}

/** @param {Record<string, unknown>} value @returns {Dump} the same, with `faults`, `sources` and `values` in any case
 * @throws {DumpProblem} its parts have another form, or do not fit together */
export function checked(value) {
  const found = misfitOfDump(value);
  if (found !== null) throw new DumpProblem(found.says, found.path.slice(1));
  const dump = /** @type {Dump} */ (/** @type {unknown} */ ({ faults: [], sources: {}, values: {}, ...value }));
  checkFreeForms(dump);
  checkIds("modules", dump.modules);
  checkIds("ops", dump.ops);
  checkIds("tensors", dump.tensors);
  checkReferences(dump);
  const tensors = idIndex(dump.tensors);
  checkStatistics(dump, tensors);
  checkValues(dump, tensors);
  checkPrecision(dump, tensors);
  checkCycles(dump);
  checkAgreement(dump);
  return dump;
}

/** @typedef {import("../ids.js").Links} Links @typedef {ReadonlyMap<string, number>} Rows by id */

/** @param {Dump} dump @throws {DumpProblem} a free-form value is nested too deeply, or has what JSON in Python cannot */
function checkFreeForms(dump) {
  const { spec, environment, timing, ops } = /** @type {any} */ (dump);
  for (const [where, value] of Object.entries({ spec, environment, timing })) checkFreeForm(value, where);
  for (let row = 0; row < ops.length; row += 1) checkFreeForm(ops[row].attributes, `ops[${row}].attributes`);
}

/** @param {unknown} value @param {string} where */
function checkFreeForm(value, where, levels = MAX_DEPTH) {
  if (typeof value === "object" && value !== null) {
    if (levels < 0) throw new DumpProblem(`nested more than ${MAX_DEPTH} levels deep`, where);
    if (isRecord(value) && !Object.keys(value).every(isText)) throw new DumpProblem("a name is not text", where);
    for (const part of Object.values(value)) checkFreeForm(part, where, levels - 1);
  } else if (typeof value === "string" ? !isText(value) : typeof value === "number" && !Number.isFinite(value)) {
    throw new DumpProblem(`${shown(value)} is not a value of JSON`, where);
  }
}

/** @param {string} list @param {readonly {id: string}[]} parts @throws {DumpProblem} an id stands twice */
function checkIds(list, parts) {
  if (idIndex(parts).size === parts.length) return;
  const firsts = new Map();
  const again = parts.findIndex(({ id }, row) => firsts.has(id) || !firsts.set(id, row));
  const { id } = parts[again];
  throw new DumpProblem(`the id ${shown(id)} already belongs to ${list}[${firsts.get(id)}]`, `${list}[${again}].id`);
}

/** @param {Dump} dump @throws {DumpProblem} a field names nothing */
function checkReferences(dump) {
  const lists = /** @type {Record<string, readonly any[]>} */ (/** @type {unknown} */ (dump));
  for (const [list, fields] of Object.entries(REFERENCES)) {
    for (const [field, kind] of Object.entries(fields)) {
      const { start, places } = linksOf(lists[list], field, lists[kind]);
      const unknown = places.indexOf(UNKNOWN);
      if (unknown < 0) continue;
      const row = start.findIndex((first) => first > unknown) - 1;
      const [value, at] = [lists[list][row][field], unknown - start[row]];
      if (Array.isArray(value)) throw unknownId(value[at], kind, `${list}[${row}].${field}[${at}]`);
      throw unknownId(value, kind, `${list}[${row}].${field}`);
    }
  }
  const failed = dump.error?.op ?? null;
  if (failed !== null && !idIndex(dump.ops).has(failed)) throw unknownId(failed, "ops", "error.op");
}

/** @param {string} id @param {string} list that it should be in @param {string} where @returns {DumpProblem} */
function unknownId(id, list, where) {
  return new DumpProblem(`${shown(id)} is not an id of the ${list}`, where);
}

/** @param {Dump} dump @param {Rows} tensors @throws {DumpProblem} a row of no tensor, a tensor with two rows, a column that
 * is not as long as there are rows, or a histogram without 64 bins */
function checkStatistics({ statistics }, tensors) {
  const { tensor, histogram } = statistics;
  const seen = new Uint8Array(tensors.size);
  tensor.forEach((id, row) => {
    const where = `statistics.tensor[${row}]`;
    const place = tensors.get(id);
    if (place === undefined) throw unknownId(id, "tensors", where);
    if (seen[place] === 1) throw new DumpProblem(`the tensor ${shown(id)} has two rows`, where);
    seen[place] = 1;
  });
  for (const name of [...COLUMNS, ...HISTOGRAM]) {
    const column = /** @type {any} */ (name in histogram ? histogram : statistics)[name];
    if (column.length !== tensor.length) {
      throw new DumpProblem(`${column.length} entries; expected one for each of the ${tensor.length} tensors`,
        `statistics.${name in histogram ? "histogram." : ""}${name}`);
    }
  }
  const row = histogram.counts.findIndex((bins) => bins.length !== BINS);
  if (row >= 0) {
    throw new DumpProblem(`${histogram.counts[row].length} bins; expected ${BINS}`,
      `statistics.histogram.counts[${row}]`);
  }
}

/** @param {Dump} dump @param {Rows} tensors @throws {DumpProblem} values of no tensor, of a large tensor, or not one for
 * each of its elements */
function checkValues(dump, tensors) {
  for (const [id, values] of Object.entries(dump.values ?? {})) {
    const row = tensors.get(id);
    if (row === undefined) throw unknownId(id, "tensors", `values.${id}`);
    const { shape } = dump.tensors[row];
    const size = shape.includes(0) ? 0 : shape.reduce((product, each) => product * each, 1);
    if (values.length !== size || size > SMALL) {
      throw new DumpProblem(`${values.length} values; expected one for each of ${size} elements, at most ${SMALL}`,
        `values.${id}`);
    }
  }
}

/** @param {Dump} dump @param {Rows} tensors @throws {DumpProblem} an error of no tensor, or not one for each tensor */
function checkPrecision({ precision }, tensors) {
  if (precision === undefined || precision === null) return;
  const { tensor, differing = {}, ...columns } = precision;
  tensor.forEach((id, at) => {
    if (!tensors.has(id)) throw unknownId(id, "tensors", `precision.tensor[${at}]`);
  });
  for (const name of /** @type {const} */ (["error", "expected"])) {
    const { length } = columns[name];
    if (length !== tensor.length) {
      throw new DumpProblem(`${length} entries; expected one for each of the ${tensor.length} tensors`,
        `precision.${name}`);
    }
  }
  for (const [id, [count, of]] of Object.entries(differing)) {
    if (!tensors.has(id)) throw unknownId(id, "tensors", `precision.differing.${id}`);
    if (count > of) throw new DumpProblem(`${count} of ${of} elements differ`, `precision.differing.${id}`);
  }
}

/** @param {Dump} dump @throws {DumpProblem} a part depends on itself */
function checkCycles({ modules, ops, tensors }) {
  const { start, places } = linksOf(ops, "inputs", tensors);
  const producers = linksOf(tensors, "producer", ops).places;
  checkCycle("ops", ops, { start, places: places.map((tensor) => producers[tensor]) });
  checkCycle("modules", modules, linksOf(modules, "parent", modules));
  checkCycle("ops", ops, linksOf(ops, "twin", ops));
  checkCycle("tensors", tensors, linksOf(tensors, "gradient_of", tensors));
}

/** @param {string} list @param {readonly {id: string}[]} parts @param {Links} links the rows that each part depends on */
function checkCycle(list, parts, { start, places }) {
  let isOrdered = true;
  // In the order of execution, nothing depends on what comes later.
  for (let row = 0; row < parts.length; row += 1)
    for (let at = start[row]; at < start[row + 1]; at += 1) isOrdered &&= places[at] < row;
  if (isOrdered) return;
  const needs = parts.map((_, row) => [...places.subarray(start[row], start[row + 1])].filter((each) => each >= 0));
  /** @type {number[][]} */
  const users = parts.map(() => []);
  needs.forEach((before, row) => before.forEach((each) => users[each].push(row)));
  const open = needs.map(({ length }) => length);
  const free = [...open.keys()].filter((row) => open[row] === 0);
  for (let row = free.pop(); row !== undefined; row = free.pop()) {
    for (const user of users[row]) {
      open[user] -= 1;
      if (open[user] === 0) free.push(user);
    }
  }
  let row = open.findIndex((count) => count > 0);
  if (row < 0) return;
  // Each of these depends on another one of them, so this way ends in a cycle.
  const way = [];
  const at = new Map();
  for (; !at.has(row); row = needs[row].find((each) => open[each] > 0) ?? row) at.set(row, way.push(row) - 1);
  const cycle = way.slice(at.get(row)).reverse();
  const first = cycle.indexOf(cycle.reduce((least, each) => Math.min(least, each)));
  const names = [...cycle.slice(first), ...cycle.slice(0, first)].slice(0, MAX_NAMED).map((each) =>
    shown(parts[each].id)
  );
  const more = cycle.length > MAX_NAMED ? ` → … (${cycle.length} in all)` : "";
  throw new DumpProblem(`a cycle: ${names.join(" → ")}${more} → ${names[0]}`, `${list}[${cycle[first]}]`);
}

/** @param {Dump} dump @throws {DumpProblem} an op and a tensor do not name each other, or a forward op has a twin */
function checkAgreement({ ops, tensors }) {
  const [inputs, outputs] = [linksOf(ops, "inputs", tensors), linksOf(ops, "outputs", tensors)];
  const [producers, consumers] = [linksOf(tensors, "producer", ops).places, linksOf(tensors, "consumers", ops)];
  const makers = new Int32Array(tensors.length).fill(-1);
  const isReader = membership(consumers);
  const whereOf = (/** @type {number} */ op, /** @type {number} */ at) =>
    `ops[${op}].outputs[${at - outputs.start[op]}]`;
  for (let op = 0; op < ops.length; op += 1) {
    for (let at = outputs.start[op]; at < outputs.start[op + 1]; at += 1) {
      const tensor = outputs.places[at];
      if (makers[tensor] >= 0) {
        throw new DumpProblem(`the tensor ${shown(tensors[tensor].id)} is already an output of ops[${makers[tensor]}]`,
          whereOf(op, at));
      }
      makers[tensor] = op;
      if (producers[tensor] !== op) {
        const { id, producer: named } = tensors[tensor];
        const names = named === null ? "no producer" : `${shown(named)} as its producer`;
        throw new DumpProblem(`the tensor ${shown(id)} names ${names}`, whereOf(op, at));
      }
    }
    for (let at = inputs.start[op]; at < inputs.start[op + 1]; at += 1) {
      const tensor = inputs.places[at];
      if (isReader(tensor, op)) continue;
      throw new DumpProblem(`the tensor ${shown(tensors[tensor].id)} does not have this op among its consumers`,
        `ops[${op}].inputs[${at - inputs.start[op]}]`);
    }
    if (ops[op].twin !== null && ops[op].phase === "forward")
      throw new DumpProblem("only a backward op has a twin", `ops[${op}].twin`);
  }
  const isRead = membership(inputs);
  for (let tensor = 0; tensor < tensors.length; tensor += 1) {
    if (producers[tensor] >= 0 && makers[tensor] < 0) {
      const { producer: named } = tensors[tensor];
      throw new DumpProblem(`the op ${shown(named)} does not have this tensor among its outputs`,
        `tensors[${tensor}].producer`);
    }
    for (let at = consumers.start[tensor]; at < consumers.start[tensor + 1]; at += 1) {
      const op = consumers.places[at];
      if (isRead(op, tensor)) continue;
      throw new DumpProblem(`the op ${shown(ops[op].id)} does not have this tensor among its inputs`,
        `tensors[${tensor}].consumers[${at - consumers.start[tensor]}]`);
    }
  }
}

/** @param {Links} links @returns {(part: number, row: number) => boolean} whether a part names a row; a short list needs no
 * set */
function membership({ start, places }) {
  /** @type {Map<number, Set<number>>} */
  const sets = new Map();
  return (part, row) => {
    const [from, to] = [start[part], start[part + 1]];
    if (to - from < 16) {
      for (let at = from; at < to; at += 1) if (places[at] === row) return true;
      return false;
    }
    let set = sets.get(part);
    if (set === undefined) sets.set(part, set = new Set(places.subarray(from, to)));
    return set.has(row);
  };
}
