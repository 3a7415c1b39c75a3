/** Reading a graph dump that a user opens, and names for its graph. */

import { checked, DumpProblem } from "./checks.js";
import { isRecord, shown } from "./form.js";

const SCHEMA = "chainrule.trace/1";
export const MAX_BYTES = 2 ** 30;

/** The page shows this many letters of a longer text. */
const MAX_SHOWN = 2000;

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

/** @param {unknown} value of JSON, in which long texts of ops become shorter @returns {Dump} with `sources` and `faults` in any case @throws {DumpProblem} it is of
 * another schema, or its parts do not fit together */
export function checkedDump(value) {
  if (!isRecord(value)) throw new DumpProblem(`this is not a graph dump: ${shown(value)} instead of an object`);
  if (value["schema"] !== SCHEMA) {
    const found = value["schema"] === undefined ? "none" : shown(value["schema"]);
    throw new DumpProblem(`this page reads graph dumps of schema "${SCHEMA}", but this file has ${found}`, "schema");
  }
  const dump = checked(value);
  // Added since the first dumps were written.
  const faults = dump.faults.map((fault) =>
    brief({ ...{ level: "fault", layers: [], rule: null }, ...fault }, ["message", "remedy", "rule"])
  );
  for (const op of dump.ops)
    if (op.source !== null && op.source.text.length > MAX_SHOWN) op.source = brief(op.source, ["text"]);
  const error = dump.error == null ? dump.error : brief(dump.error, ["message"]);
  // A file may be called like a method of objects, such as toString.
  return { ...dump, faults, error, sources: Object.assign(Object.create(null), dump.sources) };
}

/** @template {object} T @param {T} part @param {readonly (keyof T)[]} names @returns {T} the same, with shorter texts */
function brief(part, names) {
  const copy = { ...part };
  for (const name of names) {
    const text = part[name];
    if (typeof text === "string" && text.length > MAX_SHOWN)
      copy[name] = /** @type {any} */ (`${text.slice(0, MAX_SHOWN).toWellFormed()}…`);
  }
  return copy;
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
