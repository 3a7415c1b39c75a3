/** A dump as run A, what B is compared to: its layers in the places of B's, and its tensors beside B's. No DOM. */

import { significant, valueAt } from "../format.js";
import { FLOAT_COLUMNS, nonFinite } from "../picture.js";
import { matchGraphs } from "./match.js";

// Distances of two pictures, tensor by tensor.

/** @param {Picture} picture B @param {ComparisonReference} reference A
 * @returns {Float64Array} by tensor of B, see `relativeDifference`; NaN where there is no partner, or no statistics */
export function differences(picture, { picture: other, match }) {
  return Float64Array.from(picture.topology.tensors, ({ id }, tensor) => {
    const [row, there] = [picture.rows.get(id),
      other.rows.get(other.topology.tensors[match.tensors[tensor]]?.id ?? "")];
    if (row === undefined || there === undefined || picture.hidden?.rows.has(row) === true) return NaN;
    return relativeDifference(other, there, picture, row);
  });
}

/** The largest of three relative differences: of std as a share of the greater one, of the least and of the greatest
 * value as shares of the greatest magnitude in both. @param {Picture} a @param {number} rowA @param {Picture} b
 * @param {number} rowB @returns {number} 0: alike, up to 2; Infinity where one has more NaN or Inf than the other */
function relativeDifference(a, rowA, b, rowB) {
  if (badShare(a, rowA) !== badShare(b, rowB)) return Infinity;
  const of = (/** @type {"std" | "min" | "max"} */ name) => [a.floats[name][rowA] ?? NaN, b.floats[name][rowB] ?? NaN];
  const [[stdA, stdB], [minA, minB], [maxA, maxB]] = [of("std"), of("min"), of("max")];
  if (Number.isNaN(minA) || Number.isNaN(minB)) return Number.isNaN(minA) && Number.isNaN(minB) ? 0 : Infinity;
  const reach = Math.max(Math.abs(minA), Math.abs(maxA), Math.abs(minB), Math.abs(maxB));
  return Math.max(share(stdA - stdB, Math.max(stdA, stdB)), share(minA - minB, reach), share(maxA - maxB, reach));
}

/** @param {Picture} picture @param {number} row @returns {number} of values that are not finite */
function badShare({ integers }, row) {
  return (integers.nan[row] + integers.posinf[row] + integers.neginf[row]) / (integers.n[row] || 1);
}

/** @param {number} difference @param {number} of @returns {number} */
function share(difference, of) {
  return difference === 0 ? 0 : Math.abs(difference) / of;
}

/** @param {OpenedDump} taken @returns {PinnedRun} not matched with anything yet */
export function runOfDump({ index, name, dump, picture }) {
  const layers = picture.topology.layers.map((layer, order) =>
    profileOf(picture, layer, { index: order + 1, name: layer.name })
  );
  return { query: "", profile: { ...profileHead(picture), layers },
    dump: { index, name, dump, picture, shown: null, match: null } };
}

/** The tensors that tell a layer whose module the other run lacks, the surest first. */
const LAYER_KEYS = /** @type {const} */ (["weight", "activation", "preactivation"]);

/** Puts A's layers into the places of those of B that they are matched with: those of one name, as several layers may
 * share a weight, else those of one tensor. A layer without a partner has no values. @param {PinnedRun} run @param {Pick<OpenedDump, "index" | "name" | "dump">} shown B
 * @param {Picture} picture of B @returns {PinnedRun} the same one where it is no dump */
export function matchedRun(run, shown, picture) {
  if (run.dump === undefined) return run;
  const a = run.dump.picture;
  const match = matchGraphs(a.topology, picture.topology);
  const places = new Map(picture.topology.tensors.map(({ id }, place) => [id, place]));
  const partner = (/** @type {string | null} */ id) =>
    a.topology.tensors[match.tensors[places.get(id ?? "") ?? -1] ?? -1]?.id ?? null;
  const named = new Map(a.topology.layers.map((layer) => [layer.name, layer]));
  const names = new Set(picture.topology.layers.map(({ name }) => name));
  const unnamed = a.topology.layers.filter(({ name }) => !names.has(name));
  const layers = picture.topology.layers.map((layer, order) => {
    const key = LAYER_KEYS.find((each) => partner(layer[each]) !== null);
    const there = named.get(layer.name) ?? (key && unnamed.find((other) => other[key] === partner(layer[key])));
    return profileOf(a, there, { index: order + 1, name: (there ?? layer).name });
  });
  return { ...run, profile: { ...run.profile, layers },
    dump: { ...run.dump, match, shown: { index: shown.index, name: shown.name, dump: shown.dump } } };
}

/** @param {Picture} picture */
function profileHead(picture) {
  const input = picture.topology.tensors.find(({ role }) => role === "input")?.id ?? null;
  const { loss: own } = picture;
  const loss = /** @type {JsonNumber} */ (own === null || Number.isFinite(own) ? own : String(own));
  return { spec: picture.spec ?? {}, loss, first_inf_layer: null, first_nan_layer: null, advice: null,
    input: summaryOf(picture, input) };
}

const PARTS =
  /** @type {const} */ (["preactivation", "activation", "gradient", "weight", "weight_gradient", "bias_gradient"]);

/** @param {Picture} picture @param {Layer | undefined} layer undefined: without figures
 * @param {{index: number, name: string}} place @returns {LayerProfile} */
function profileOf(picture, layer, { index, name }) {
  const summaries = PARTS.map((part) => [part, summaryOf(picture, layer?.[part] ?? null)]);
  const parts = /** @type {Record<typeof PARTS[number], SummaryDump | null>} */ (Object.fromEntries(summaries));
  const { activation, weight, weight_gradient: gradient } = parts;
  const isFinite = [weight, gradient].every((summary) =>
    summary !== null && summary.nan + summary.posinf + summary.neginf === 0
  );
  const ratio = isFinite && weight?.std && gradient?.std != null ? gradient.std / weight.std : null;
  return { index, name, health: null, weight_std: 0, expected: {}, ...parts, gradient_to_weight_ratio: ratio,
    dead_fraction: activation?.dead_fraction ?? null, saturation: activation?.saturation ?? null };
}

/** @param {Picture} picture @param {string | null} tensor @returns {SummaryDump | null} */
function summaryOf(picture, tensor) {
  const row = picture.rows.get(tensor ?? "");
  if (row === undefined) return null;
  const floats = Object.fromEntries(FLOAT_COLUMNS.map((name) => [name, valueAt(picture.floats[name], row)]));
  const { n, nan, posinf, neginf } = picture.integers;
  const counts = { n: n[row], nan: nan[row], posinf: posinf[row], neginf: neginf[row] };
  return /** @type {SummaryDump} */ ({ ...floats, ...counts });
}

// Tensor by tensor

/** @typedef {{tensor: string, name: string, a: string, b: string, difference: number}} TensorPair tensor: its id in B;
 * a, b: its std, of one value that value itself; difference: Infinity where NaN or Inf came or went */

/** Where two dumps differ most.
 * @param {Picture} picture B @param {PinnedRun} run A, matched @param {number} most @returns {{pairs: TensorPair[],
 * alike: number, compared: number}} pairs: the greatest differences first; alike: how many tensors differ in nothing */
export function greatestDifferences(picture, { dump }, most) {
  const match = dump?.match;
  if (dump === undefined || match == null) return { pairs: [], alike: 0, compared: 0 };
  const all = differences(picture, { picture: dump.picture, match });
  const order = [...all.keys()].filter((tensor) => !Number.isNaN(all[tensor]));
  const apart = order.filter((tensor) => all[tensor] !== 0).sort((one, other) => all[other] - all[one] || one - other);
  const pairs = apart.slice(0, most).map((tensor) => {
    const { id = "", name = "" } = picture.topology.tensors[tensor] ?? {};
    const there = dump.picture.topology.tensors[match.tensors[tensor]]?.id ?? "";
    return { tensor: id, name, a: figureOf(dump.picture, there), b: figureOf(picture, id), difference: all[tensor] };
  });
  return { pairs, alike: order.length - apart.length, compared: order.length };
}

/** @param {Picture} picture @param {string} tensor @returns {string} */
function figureOf(picture, tensor) {
  const row = picture.rows.get(tensor);
  if (row === undefined) return "–";
  const bad = nonFinite(picture, row);
  if (bad !== null) return bad.word;
  const isSingle = picture.integers.n[row] === 1;
  return significant(valueAt(isSingle ? picture.floats.mean : picture.floats.std, row));
}

/** In what two dumps differ besides their numbers: keys of their specs, of what they were recorded with, types of
 * numbers. @param {DumpFacts} a @param {DumpFacts} b */
export function dumpDifferences(a, b) {
  const [one, other] = [factsOf(a), factsOf(b)];
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].flatMap((key) => {
    const [left = "–", right = "–"] = [one[key], other[key]];
    return left === right ? [] : [{ key, a: left, b: right }];
  });
}

/** @param {DumpFacts} dump @returns {Record<string, string>} */
function factsOf({ spec, environment, tensors, ops }) {
  const parameters = tensors.filter(({ role }) => role === "parameter");
  const types = [...new Set((parameters.length > 0 ? parameters : tensors).map(({ dtype }) => dtype))].sort();
  const values = Object.entries({ ...spec, ...environment }).map(
    ([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]
  );
  return { ...Object.fromEntries(values), dtype: types.join(", "), ops: String(ops.length),
    parameters: String(parameters.length) };
}
