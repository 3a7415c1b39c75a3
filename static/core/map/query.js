/** From a map to queries, a command line and a table. No DOM. */

import { significant } from "../format.js";
import { parseWidths, widthsText } from "../lab/widths.js";
import { ascending, KNOWN } from "./grid.js";
import { tickText } from "./ticks.js";

/** Characters that a query may hold as they are. */
const READABLE = /%(2C|2F|3A|3D|40)/g;

/** @param {string} text @returns {string} */
function encode(text) {
  return encodeURIComponent(text).replace(READABLE, (escaped) => decodeURIComponent(escaped));
}

/** @param {Iterable<[string, string]>} pairs @returns {string} */
function queryOf(pairs) {
  return [...pairs].map(([key, value]) => `${encode(key)}=${encode(value)}`).join("&");
}

/** The widths of a net with another number of layers and another hidden width.
 * @param {string} text of the base net's widths @param {number | null} depth layers @param {number | null} width
 * @returns {string} the same where it has no such net */
export function widthsAt(text, depth, width) {
  const widths = parseWidths(text);
  if (widths === null) return text;
  const [first = 1, last = 1] = [widths[0], widths.at(-1)];
  const hidden = widths.slice(1, -1);
  if (depth === null) return widthsText([first, ...hidden.map((own) => width ?? own), last]);
  return widthsText([first, ...Array.from({ length: Math.max(0, depth - 1) }, () => width ?? hidden[0] ?? first),
    last]);
}

/** The query of one net: the base's, with the keys of the axes and the seed in place.
 * @param {string} base query of the base spec @param {string} widths of the base spec
 * @param {readonly [string, string | number][]} keys of the axes, with their values @param {number} seed
 * @returns {string} */
export function cellQuery(base, widths, keys, seed) {
  const pairs = new Map(new URLSearchParams(base));
  const numbers = new Map(keys.map(([key, value]) => [key, Number(value)]));
  for (const [key, value] of keys) if (key !== "depth" && key !== "width") pairs.set(key, String(value));
  if (numbers.has("depth") || numbers.has("width"))
    pairs.set("widths", widthsAt(widths, numbers.get("depth") ?? null, numbers.get("width") ?? null));
  return queryOf(
    [...pairs, ["seed", String(seed)]].filter(([key], at, all) => key !== "seed" || at === all.length - 1).map(
      ([key = "", value = ""]) => [key, value]
    ),
  );
}

/** Measures whose value is itself a value of the spec: the step that it names, or the learning rate. */
const FOUND =
  /** @type {Record<string, string>} */ ({ first_nonfinite: "step", steps_to_loss: "step", largest_lr: "lr" });

/** @param {string} measure @param {number} value @returns {[string, number][]} the key that the value stands for */
export function foundKey(measure, value) {
  const key = FOUND[measure.split(":")[0] ?? ""];
  return key !== undefined && Number.isFinite(value) ? [[key, value]] : [];
}

/** The query of the page. @param {MapForm} form @returns {string} */
export function mapQuery({ spec, x, y, seeds, measure }) {
  const pairs = [["x", x], ...(y === "" ? [] : [["y", y]]), ["seeds", String(seeds)], ["measure", measure]];
  return [spec, queryOf(pairs.map(([key = "", value = ""]) => [key, value]))].filter((part) => part !== "").join("&");
}

/** @param {string} query of the page @param {MapForm} otherwise where it says nothing @returns {MapForm} */
export function formOf(query, otherwise) {
  const pairs = new Map(new URLSearchParams(query));
  const { x, y, seeds, measure } = Object.fromEntries(pairs);
  for (const key of ["x", "y", "seeds", "measure"]) pairs.delete(key);
  return { spec: queryOf(pairs), x: x ?? otherwise.x, y: y ?? (x === undefined ? otherwise.y : ""),
    seeds: Number(seeds ?? otherwise.seeds), measure: measure ?? otherwise.measure };
}

/** @param {SweepMeasure} measure @returns {string} with its argument */
export function titleOf({ name, title }) {
  const argument = name.split(":")[1] ?? "";
  return title + (argument && `, ${/^\d+$/.test(argument) ? "layer " : ""}${argument}`);
}

/** @param {MapForm} form @returns {string} the same map on the command line */
export function commandOf({ spec, x, y, seeds, measure }) {
  const quoted = (/** @type {string} */ text) =>
    /^[\w.,:=/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  const over = [x, y].filter((axis) => axis !== "").map((axis) => ` --over ${quoted(axis)}`).join("");
  return `chainrule sweep '${spec.replaceAll("'", "%27")}'${over} --seeds ${seeds} --measure ${
    quoted(measure)
  } -o map.csv`;
}

/** @param {SweepPlan} plan @param {import("./grid.js").MapGrid} grid
 * @returns {(string | number)[][]} a line per known net, below the names of the columns */
export function tableOf({ axes, seeds, measure }, grid) {
  const lines = /** @type {(string | number)[][]} */ ([[...axes.map(({ key }) => key), "seed", measure.name]]);
  for (let net = 0; net < grid.values.length; net += 1) {
    if (grid.netStates[net] !== KNOWN) continue;
    const cell = Math.floor(net / grid.seeds);
    lines.push([...placeOf(axes, cell, grid.nx).map(([, value]) => value), seeds[net % grid.seeds] ?? "",
      grid.values[net] ?? NaN]);
  }
  return lines;
}

/** @param {readonly SweepAxis[]} axes @param {number} cell @param {number} nx cells in a row
 * @returns {[string, string | number][]} the keys of the axes, with their values there */
export function placeOf(axes, cell, nx) {
  return axes.map(({ key, values }, axis) => [key, values[axis === 0 ? cell % nx : Math.floor(cell / nx)] ?? ""]);
}

/** @param {readonly [string, string | number][]} place @returns {string} scale 0.896151, depth 3 */
export function placeText(place) {
  return place.map(([key, value]) =>
    `${key} ${typeof value === "number" ? tickText(Number(value.toPrecision(6))) : value}`
  ).join(", ");
}

/** @param {SweepPlan} plan @param {import("./grid.js").MapGrid} grid @param {number} cell @returns {string} */
export function cellText({ axes, seeds }, grid, cell) {
  const place = placeText(placeOf(axes, cell, grid.nx));
  const values = grid.valuesOf(cell);
  const known = values.filter((value) => typeof value === "number").sort(ascending);
  if (known.length === 0) {
    const reason = grid.reasons.get(cell * grid.seeds);
    return `${place}: ${values.includes(null) ? `not computed${reason ? `, ${reason}` : ""}` : "not known yet"}`;
  }
  const median = significant(grid.median[cell]);
  if (grid.seeds === 1) return `${place}: ${median}`;
  const words = values.map((value, at) =>
    `${seeds[at]}: ${value === undefined ? "…" : value === null ? "failed" : significant(value)}`
  );
  return `${place}: median ${median}, from ${significant(known[0])} to ${significant(known.at(-1))}; seed ${
    words.join(", ")
  }`;
}
