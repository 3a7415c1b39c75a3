/** Checks that no form of a dump can state: ids exist, ops and tensors agree, nothing depends on itself, columns have one
 * length. The page refuses the dumps that `chainrule.load` refuses; the tests compare the two verdicts. */

import { idIndex } from "../ids.js";
import { DUMP, isRecord, isText, misfit, shown } from "./form.js";

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
  const found = misfit(value, DUMP);
  if (found !== null) throw new DumpProblem(found.says, found.path.slice(1));
  const dump = /** @type {Dump} */ (/** @type {unknown} */ ({ faults: [], sources: {}, values: {}, ...value }));
  checkFreeForms(dump);
  const rows = { modules: rowsOf("modules", dump.modules), ops: rowsOf("ops", dump.ops),
    tensors: rowsOf("tensors", dump.tensors) };
  checkReferences(dump, rows);
  checkStatistics(dump, rows.tensors);
  checkValues(dump, rows.tensors);
  checkPrecision(dump, rows.tensors);
  checkCycles(dump, rows);
  checkAgreement(dump, rows);
  return dump;
}

/** @typedef {ReadonlyMap<string, number>} Rows by id */

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

/** @param {string} list @param {readonly {id: string}[]} parts @returns {Rows} @throws {DumpProblem} an id stands twice */
function rowsOf(list, parts) {
  const rows = idIndex(parts);
  const hidden = rows.size === parts.length ? -1 : parts.findIndex(({ id }, row) => rows.get(id) !== row);
  if (hidden < 0) return rows;
  const firsts = new Map();
  const again = parts.findIndex(({ id }, row) => firsts.has(id) || !firsts.set(id, row));
  const { id } = parts[again];
  throw new DumpProblem(`the id ${shown(id)} already belongs to ${list}[${firsts.get(id)}]`, `${list}[${again}].id`);
}

/** @param {Dump} dump @param {Record<string, Rows>} rows @throws {DumpProblem} a field names nothing */
function checkReferences(dump, rows) {
  for (const [list, fields] of Object.entries(REFERENCES)) {
    /** @type {any[]} */
    const parts = /** @type {any} */ (dump)[list];
    for (const [field, kind] of Object.entries(fields)) {
      for (let row = 0; row < parts.length; row += 1) {
        const value = parts[row][field];
        if (Array.isArray(value)) {
          for (let at = 0; at < value.length; at += 1)
            if (!rows[kind].has(value[at])) throw unknownId(value[at], kind, `${list}[${row}].${field}[${at}]`);
        } else if (value !== null && !rows[kind].has(value)) {
          throw unknownId(value, kind, `${list}[${row}].${field}`);
        }
      }
    }
  }
  const failed = dump.error?.op ?? null;
  if (failed !== null && !rows["ops"].has(failed)) throw unknownId(failed, "ops", "error.op");
}

/** @param {string} id @param {string} list that it should be in @param {string} where @returns {DumpProblem} */
function unknownId(id, list, where) {
  return new DumpProblem(`${shown(id)} is not an id of the ${list}`, where);
}

/** @param {Dump} dump @param {Rows} tensors @throws {DumpProblem} a row of no tensor, a tensor with two rows, a column that
 * is not as long as there are rows, or a histogram without 64 bins */
function checkStatistics({ statistics }, tensors) {
  const { tensor, histogram } = statistics;
  const seen = new Set();
  tensor.forEach((id, row) => {
    const where = `statistics.tensor[${row}]`;
    if (!tensors.has(id)) throw unknownId(id, "tensors", where);
    if (seen.has(id)) throw new DumpProblem(`the tensor ${shown(id)} has two rows`, where);
    seen.add(id);
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

/** @param {Dump} dump @param {{modules: Rows, ops: Rows, tensors: Rows}} rows @throws {DumpProblem} a part depends on
 * itself */
function checkCycles({ modules, ops, tensors }, rows) {
  const producers = tensors.map(({ producer }) => rowIn(rows.ops, producer));
  checkCycle("ops", ops, ({ inputs }) => inputs.map((id) => producers[rowIn(rows.tensors, id)] ?? -1));
  checkCycle("modules", modules, ({ parent }) => [rowIn(rows.modules, parent)]);
  checkCycle("ops", ops, ({ twin }) => [rowIn(rows.ops, twin)]);
  checkCycle("tensors", tensors, ({ gradient_of }) => [rowIn(rows.tensors, gradient_of)]);
}

/** @param {Rows} rows @param {string | null} id @returns {number} −1 for null */
function rowIn(rows, id) {
  return id === null ? -1 : rows.get(id) ?? -1;
}

/** @template {{id: string}} T @param {string} list @param {readonly T[]} parts
 * @param {(part: T) => number[]} needsOf the rows that a part depends on; negative ones are none */
function checkCycle(list, parts, needsOf) {
  // In the order of execution, nothing depends on what comes later.
  if (parts.every((part, row) => needsOf(part).every((each) => each < row))) return;
  const needs = parts.map((part) => needsOf(part).filter((row) => row >= 0));
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

/** @param {Dump} dump @param {{ops: Rows, tensors: Rows}} rows @throws {DumpProblem} an op and a tensor do not name each
 * other, or a forward op has a twin */
function checkAgreement({ ops, tensors }, rows) {
  /** @type {Map<string, number>} */
  const makers = new Map();
  const readers = tensors.map(({ consumers }) => membership(consumers));
  ops.forEach(({ id, inputs, outputs, phase, twin }, row) => {
    outputs.forEach((name, at) => {
      const where = `ops[${row}].outputs[${at}]`;
      const other = makers.get(name);
      if (other !== undefined)
        throw new DumpProblem(`the tensor ${shown(name)} is already an output of ops[${other}]`, where);
      makers.set(name, row);
      const { producer } = tensors[rowIn(rows.tensors, name)];
      if (producer !== id) {
        const names = producer === null ? "no producer" : `${shown(producer)} as its producer`;
        throw new DumpProblem(`the tensor ${shown(name)} names ${names}`, where);
      }
    });
    inputs.forEach((name, at) => {
      if (readers[rowIn(rows.tensors, name)](id)) return;
      throw new DumpProblem(`the tensor ${shown(name)} does not have this op among its consumers`,
        `ops[${row}].inputs[${at}]`);
    });
    if (twin !== null && phase === "forward")
      throw new DumpProblem("only a backward op has a twin", `ops[${row}].twin`);
  });
  const reads = ops.map(({ inputs }) => membership(inputs));
  tensors.forEach(({ id, producer, consumers }, row) => {
    if (producer !== null && !makers.has(id)) {
      throw new DumpProblem(`the op ${shown(producer)} does not have this tensor among its outputs`,
        `tensors[${row}].producer`);
    }
    consumers.forEach((name, at) => {
      if (reads[rowIn(rows.ops, name)](id)) return;
      throw new DumpProblem(`the op ${shown(name)} does not have this tensor among its inputs`,
        `tensors[${row}].consumers[${at}]`);
    });
  });
}

/** @param {readonly string[]} list @returns {(item: string) => boolean} a short list needs no set */
function membership(list) {
  if (list.length < 16) return (item) => list.includes(item);
  const set = new Set(list);
  return (item) => set.has(item);
}
