/** Parses a search of the graph: words, /regular expressions/, op:matmul, shape:200×50, std>10. All of it has to hold;
 * what has a − in front must not. No DOM. */

import { ROLES } from "./graph.js";

/** @type {Record<string, TensorFigure | OpFigure>} */
const FIGURES = {
  std: "std",
  mean: "mean",
  min: "min",
  max: "max",
  norm: "norm",
  zeros: "zero_fraction",
  dead: "dead_fraction",
  saturated: "saturation",
  nan: "nan",
  inf: "inf",
  numel: "numel",
  rank: "rank",
  time: "time",
  flops: "flops",
  bytes: "bytes",
};

/** @type {ReadonlySet<string>} */
export const OP_FIGURES = new Set(["time", "flops", "bytes"]);

/** @type {Record<string, SearchTextKey>} */
const KEYS = { op: "op", name: "name", module: "module", role: "role", dtype: "dtype", phase: "phase" };

const KEY_LIST = [...Object.keys(KEYS), "shape"].join(", ");
const FIGURE_LIST = Object.keys(FIGURES).join(", ");

/** @type {Record<string, (a: number, b: number) => boolean>} */
const COMPARISONS = {
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
};

const LONGEST_QUERY = 300;
const LONGEST_PATTERN = 100;
/** More of them can take seconds per text. */
const MAX_REPEATS = 3;
const MAX_OPTIONAL = 8;

/** @param {string} text @returns {SearchQuery | {error: string}} error: what is wrong, and what is allowed */
export function parseQuery(text) {
  if (text.length > LONGEST_QUERY) return { error: `A search may have at most ${LONGEST_QUERY} characters.` };
  /** @type {SearchTerm[]} */
  const terms = [];
  for (const part of partsOf(text)) {
    const isNot = part.length > 1 && /^[-−]/.test(part);
    const term = termOf(isNot ? part.slice(1) : part);
    if ("error" in term) return term;
    terms.push({ ...term, isNot });
  }
  const isAboutOps = terms.some((term) =>
    (term.kind === "text" && term.key === "op") || (term.kind === "figure" && OP_FIGURES.has(term.figure))
  );
  return { terms, isAboutOps };
}

/** @param {string} text @returns {string[]} the parts between spaces, except spaces in quotes or between slashes */
function partsOf(text) {
  return text.match(/[-−]?(?:"[^"]*"?|\/(?:\\.|[^/\\])*\/?|[^\s"/][^\s]*)/g) ?? [];
}

/** @typedef {SearchTerm extends infer T ? T extends {isNot: boolean} ? Omit<T, "isNot"> : never : never} Bare */

/** @param {string} part @returns {Bare | {error: string}} */
function termOf(part) {
  if (part.startsWith('"')) return { kind: "word", word: asText(part.replaceAll('"', "")) };
  if (part.startsWith("/")) return patternOf(part);
  const compared = /^([a-z_]+)(>=|<=|!=|==|[><=≥≤≠])(.*)$/i.exec(part);
  if (compared !== null) return figureOf(part, compared[1] ?? "", compared[2] ?? "", compared[3] ?? "");
  const colon = part.indexOf(":");
  if (colon <= 0) return { kind: "word", word: asText(part) };
  const key = part.slice(0, colon).toLowerCase();
  const word = part.slice(colon + 1).replaceAll('"', "").toLowerCase();
  if (word === "")
    return { error: `${key}: the value is missing. Write it after the colon without a space, such as op:matmul.` };
  if (key === "shape") return shapeOf(word);
  const known = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
  if (known === undefined)
    return { error: `Unknown key: ${key}. Keys: ${KEY_LIST}. To search for this text, write "${part}" in quotes.` };
  if (known === "role" && !ROLES.some((role) => role.includes(word)))
    return { error: `Unknown role: ${word}. Roles: ${ROLES.join(", ")}.` };
  if (known === "phase" && !["forward", "backward"].some((phase) => phase.startsWith(word)))
    return { error: `Unknown phase: ${word}. Phases: forward, backward.` };
  return { kind: "text", key: known, word };
}

/** @param {string} word @returns {string} in lower case; sizes of any notation as 200×50 */
function asText(word) {
  return (/^\(?\d+( ?[x×,] ?\d+)+,?\)?$/.test(word) ? word.replace(/[() ]|,\)?$/g, "").replace(/[x,]/g, "×") : word)
    .toLowerCase();
}

/** @param {string} part @param {string} name @param {string} sign @param {string} number
 * @returns {Bare | {error: string}} */
function figureOf(part, name, sign, number) {
  const figure = Object.hasOwn(FIGURES, name.toLowerCase()) ? FIGURES[name.toLowerCase()] : undefined;
  if (figure === undefined) return { error: `Unknown number: ${name}. Numbers: ${FIGURE_LIST}.` };
  const written = number.replace("−", "-").replace(/%$/, "e-2");
  const value = /^[-+]?inf(inity)?$/i.test(written) ? (written.startsWith("-") ? -Infinity : Infinity)
    : Number(written);
  if (written.trim() === "" || Number.isNaN(value))
    return {
      error: `${part}: ${
        number === "" ? "the value after the sign" : `“${number}”`
      } is not a number, such as 10 or 1e-3.`,
    };
  const compare = COMPARISONS[{ "≥": ">=", "≤": "<=", "≠": "!=", "==": "=" }[sign] ?? sign];
  if (compare === undefined)
    return { error: `Unknown comparison: ${sign}. Comparisons: ${Object.keys(COMPARISONS).join(" ")}.` };
  return { kind: "figure", figure, holds: (other) => compare(other, value) };
}

/** @param {string} word @returns {Bare | {error: string}} */
function shapeOf(word) {
  if (word === "scalar" || word === "()") return { kind: "shape", sizes: [] };
  const parts = word.replace(/^\(|\)$/g, "").split(/[×x,]/);
  if (!parts.every((part) => /^(\d{1,15}|\*)$/.test(part)))
    return { error: `shape:${word}: expected sizes separated by × , or x, such as 200×50; * stands for any size.` };
  return { kind: "shape", sizes: parts.map((part) => part === "*" ? null : Number(part)) };
}

/** @param {string} part @returns {Bare | {error: string}} */
function patternOf(part) {
  if (!/^\/.*\/$/.test(part) || part.length < 2)
    return { error: `${part}: the last slash is missing; expected a regular expression such as /^l\\d+$/.` };
  const source = part.slice(1, -1);
  if (source === "") return { error: "//: the regular expression between the slashes is empty." };
  if (source.length > LONGEST_PATTERN)
    return { error: `A regular expression may have at most ${LONGEST_PATTERN} characters.` };
  let pattern;
  try {
    // Lines: name, op, shape, role and path stand one beneath the other.
    pattern = new RegExp(source, "im");
  } catch (problem) {
    return {
      error: `${part}: ${
        problem instanceof Error ? problem.message.replace(/^Invalid regular expression: (\/.*\/im: )?/, "")
          : "not a regular expression"
      }.`,
    };
  }
  const danger = dangerOf(source);
  return danger === null ? { kind: "pattern", pattern } : { error: `${part}: ${danger}` };
}

/** Why matching may run almost forever: a backtracking engine tries every way if a repeat contains a repeat.
 * @param {string} source of a valid regular expression @returns {string | null} */
function dangerOf(source) {
  // An escape or a class matches one character.
  const plain = source.replace(/\\./g, "a").replace(/\[\^?(?:[^\]])*\]/g, "a");
  const repeats = plain.match(/[*+]|\{\d+,\d*\}/g)?.length ?? 0;
  const optional = (plain.match(/\?/g)?.length ?? 0) - (plain.match(/\(\?|[*+}]\?/g)?.length ?? 0);
  if (repeats > MAX_REPEATS || optional > MAX_OPTIONAL)
    return `at most ${MAX_REPEATS} repeats (* + {n,m}) and ${MAX_OPTIONAL} optional parts (?) are allowed; more can run forever.`;
  /** For every open bracket, whether a choice or a repeat stands in it. @type {boolean[]} */
  const open = [];
  for (let at = 0; at < plain.length; at += 1) {
    const letter = plain[at];
    if (letter === "(") {
      open.push(false);
      if (plain[at + 1] === "?") at += 1;
    } else if (letter === ")") {
      const isVaried = open.pop() ?? false;
      if (isVaried && /^(?:[*+]|\{\d+(?:,\d*)?\})/.test(plain.slice(at + 1)))
        return "a repeated group with a repeat or a choice in it, such as (a+)+ or (a|b)*, can run forever.";
      if (isVaried && open.length > 0) open[open.length - 1] = true;
    } else if (letter !== undefined && "*+?|{".includes(letter) && open.length > 0) {
      open[open.length - 1] = true;
    }
  }
  return null;
}
