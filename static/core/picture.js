/** From the server's bytes to a Picture: the binary live frame, and the JSON dump. Both give the same columns. */

import { isHidden } from "./format.js";

const MAGIC = 0x31465243; // "CRF1", little endian
const HEADER_BYTES = 48;

/** @type {readonly FloatColumn[]} */
export const FLOAT_COLUMNS = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"];
/** @type {readonly CountColumn[]} */
const COUNT_COLUMNS = ["n", "nan", "posinf", "neginf"];

const LOSS_IS_NULL = 1;
const HAS_ERROR = 2;

/** Reads who a frame answers and which topology it belongs to.
 * @param {ArrayBuffer} buffer @throws {RangeError} when the bytes are not a frame */
export function frameHeader(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER_BYTES || view.getUint32(0, true) !== MAGIC) throw new RangeError("not a live frame");
  return { seq: view.getUint32(4, true), topology: view.getUint32(8, true) };
}

/** Decodes a live frame: a 48-byte header, then float64 columns (statistics, then values of small tensors), uint32
 * columns and histogram counts, little endian.
 * @param {ArrayBuffer} buffer
 * @param {{key: string, topology: Topology, rows: ReadonlyMap<string, number>}} shape of the topology it belongs to
 * @param {Spec} spec @returns {Picture}
 * @throws {RangeError} when the length is not what the header says, or the rows are not the topology's */
export function decodeFrame(buffer, shape, spec) {
  const { seq } = frameHeader(buffer);
  const view = new DataView(buffer);
  const rows = view.getUint32(12, true);
  const bins = view.getUint32(16, true);
  const floatColumns = view.getUint32(20, true);
  const loss = view.getFloat64(24, true);
  const flags = view.getUint32(40, true);
  const countColumns = view.getUint32(44, true);
  const expected = HEADER_BYTES + rows * (8 * floatColumns + 4 * countColumns + 4 * bins);
  if (buffer.byteLength !== expected)
    throw new RangeError(`live frame of ${buffer.byteLength} bytes, its header says ${expected}`);
  if (floatColumns < FLOAT_COLUMNS.length || countColumns < COUNT_COLUMNS.length)
    throw new RangeError(`live frame with ${floatColumns} + ${countColumns} columns`);
  if (rows !== shape.topology.statistics.tensor.length)
    throw new RangeError(`live frame with ${rows} rows, its topology has ${shape.topology.statistics.tensor.length}`);
  // Unknown further columns of counts are skipped: an older page reads a newer server's frames.
  const floatAt = (/** @type {number} */ column) => new Float64Array(buffer, HEADER_BYTES + 8 * rows * column, rows);
  const afterFloats = HEADER_BYTES + 8 * rows * floatColumns;
  const countAt = (/** @type {number} */ column) => new Uint32Array(buffer, afterFloats + 4 * rows * column, rows);
  return {
    ...shape,
    seq,
    floats: columnsOf(FLOAT_COLUMNS, (_, column) => floatAt(column)),
    values: Array.from({ length: floatColumns - FLOAT_COLUMNS.length }, (_, at) => floatAt(FLOAT_COLUMNS.length + at)),
    integers: columnsOf(COUNT_COLUMNS, (_, column) => countAt(column)),
    bins,
    counts: new Uint32Array(buffer, afterFloats + 4 * rows * countColumns, rows * bins),
    loss: flags & LOSS_IS_NULL ? null : loss,
    computeMs: view.getFloat64(32, true),
    failed: (flags & HAS_ERROR) !== 0,
    faults: null,
    precision: null,
    spec,
    hidden: null,
    axes: null,
    before: null,
  };
}

/** @param {Topology} topology @returns {Map<string, number>} tensor id → row of the statistics */
export function rowIndex(topology) {
  /** @type {Map<string, number>} */
  const rows = new Map();
  topology.statistics.tensor.forEach((id, row) => rows.set(id, row));
  return rows;
}

/** @template {string} K @template V @param {readonly K[]} names @param {(name: K, place: number) => V} column
 * @returns {Record<K, V>} */
function columnsOf(names, column) {
  return /** @type {Record<K, V>} */ (Object.fromEntries(names.map((name, place) => [name, column(name, place)])));
}

/** A dump as a Picture: one that was opened, or one fetched where no socket can be had.
 * @param {Dump} dump @param {number} seq @param {string} key @returns {Picture} */
export function pictureOfDump(dump, seq, key) {
  const { statistics } = dump;
  const { bins } = statistics.histogram;
  const rows = statistics.tensor.length;
  /** @param {(number | null)[] | undefined} column */
  const column = (column) => {
    const values = new Float64Array(rows);
    for (let row = 0; row < rows; row += 1) values[row] = column?.[row] ?? NaN;
    return values;
  };
  const counts = new Uint32Array(rows * bins);
  statistics.histogram.counts.forEach((histogram, row) => counts.set(histogram, row * bins));
  const { schema, modules, ops, tensors, saved, layers, sources, timing, error } = dump;
  const durations = timing["op_us"];
  const total = timing["total_ms"] ?? timing["record_ms"];
  /** @type {Topology} */
  const topology = {
    ...{ schema, modules, ops, tensors, saved, layers, sources, error },
    statistics: { tensor: statistics.tensor },
    op_us: Array.isArray(durations) && durations.length === ops.length ? durations : null,
  };
  const index = rowIndex(topology);
  return {
    seq,
    key,
    topology,
    rows: index,
    floats: columnsOf(FLOAT_COLUMNS, (name) => column(statistics[name])),
    values: valueColumns(dump.values ?? {}, index),
    integers: columnsOf(COUNT_COLUMNS, (name) => Uint32Array.from(statistics[name])),
    bins,
    counts,
    loss: dump.loss === null ? null : Number(dump.loss),
    computeMs: typeof total === "number" ? total : NaN,
    failed: dump.error !== null,
    faults: dump.faults ?? [],
    precision: dump.precision ?? null,
    spec: dump.spec,
    hidden: null,
    axes: null,
    before: null,
  };
}

/** @param {Record<string, JsonNumber[]>} values @param {ReadonlyMap<string, number>} rows
 * @returns {Float64Array[]} as in a live frame */
function valueColumns(values, rows) {
  const lists = Object.entries(values);
  const length = lists.reduce((most, [, list]) => Math.max(most, list.length), 0);
  const columns = Array.from({ length }, () => new Float64Array(rows.size).fill(NaN));
  for (const [id, list] of lists) {
    const row = rows.get(id);
    if (row !== undefined) list.forEach((value, at) => (columns[at][row] = Number(value)));
  }
  return columns;
}

/** The values of a small tensor, the last index running fastest. @param {Picture} picture
 * @param {number | undefined} row @returns {number[] | null} null where they are not known, or wait for a guess */
export function valuesAt(picture, row) {
  const { values, integers } = picture;
  const n = row === undefined ? 0 : integers.n[row];
  if (row === undefined || n === 0 || n > values.length || isHidden(picture, row)) return null;
  const found = values.slice(0, n).map((column) => column[row]);
  // A column holds NaN also where there is no value.
  return found.filter(Number.isNaN).length === integers.nan[row] ? found : null;
}

/** The worst kind of non-finite value in a tensor, and its share; null if all are finite.
 * @param {Picture} picture @param {number} row @returns {{word: "NaN" | "Inf", share: number} | null} */
export function nonFinite(picture, row) {
  const n = picture.integers.n[row];
  if (n === 0) return null;
  const nan = picture.integers.nan[row];
  const inf = picture.integers.posinf[row] + picture.integers.neginf[row];
  if (nan > 0) return { word: "NaN", share: nan / n };
  return inf > 0 ? { word: "Inf", share: inf / n } : null;
}
