/** The address is the state. The query string is the spec and nothing else; the fragment is the view. One table each:
 * the spec's comes with the page data, the view's stands here. */

import { cancel, later } from "./activity.js";

// Writes the address of the page: not too often, since browsers refuse more than a few changes a second.

export const MAX_ZOOM = 2 ** 20;

const EVERY_MS = 250;

export class AddressBar {
  #shown = location.pathname + location.search + location.hash;
  #written = 0;
  #later = 0;

  /** @param {string} next @param {boolean} push whether it makes a history entry, which is done at once
   * @param {number} [delay] ms that it may wait: it takes the browser a millisecond or two */
  write(next, push, delay = 0) {
    cancel(this.#later);
    const wait = Math.max(delay, this.#written + EVERY_MS - performance.now());
    if (wait > 0 && !push) {
      this.#later = later(() => this.write(next, false), wait);
      return;
    }
    if (next === this.#shown) return;
    this.#shown = next;
    this.#written = performance.now();
    try {
      if (push) history.pushState(null, "", next);
      else history.replaceState(null, "", next);
    } catch (problem) {
      // In a frame that holds the page itself, as a notebook shows it, there is no address to write.
      if (!(problem instanceof DOMException && problem.name === "SecurityError")) throw problem;
    }
  }

  /** Call after the browser went to another entry of its history. */
  moved() {
    this.#shown = location.pathname + location.search + location.hash;
    cancel(this.#later);
  }
}

/** @typedef {object} ViewKey
 * @property {keyof View} name
 * @property {string | number} initial
 * @property {readonly string[] | null} choices
 * @property {number} [most] that a number may be
 * @property {boolean} push whether a change makes a history entry */

/** Which groups are open: all but the innermost, all, or those less deep than a number. */
export const LEVELS = ["layer", "all", ...Array.from({ length: 20 }, (_, depth) => String(depth))];
const THICKNESSES = ["", "size", "gradient"];
const OVERLAY_NAMES = ["", "std", "gradient_norm", "dead_fraction", "time", "memory", "flops", "health", "difference"];

/** @type {readonly ViewKey[]} */
const VIEW_KEYS = [
  { name: "select", initial: "", choices: null, push: true },
  { name: "statistic", initial: "std", choices: ["std", "mean", "dead_fraction", "saturation", "ratio"], push: true },
  { name: "show", initial: "graph", choices: ["graph", "layers", "steps"], push: true },
  { name: "tab", initial: "graph", choices: ["graph", "profile", "inspector", "controls"], push: true },
  { name: "form", initial: "heatmap", choices: ["heatmap", "ridgeline"], push: true },
  { name: "of", initial: "activation",
    choices: ["activation", "preactivation", "gradient", "weight", "weight_gradient"], push: true },
  { name: "range", initial: "adaptive", choices: ["adaptive", "fixed"], push: true },
  { name: "axis", initial: "linear", choices: ["linear", "log"], push: true },
  { name: "predict", initial: "", choices: null, push: true },
  { name: "guess", initial: "", choices: null, push: true },
  { name: "a", initial: "", choices: null, push: true },
  { name: "level", initial: "layer", choices: LEVELS, push: true },
  { name: "toggled", initial: "", choices: null, push: true },
  { name: "fold", initial: "auto", choices: ["auto", "on", "off"], push: true },
  { name: "colour", initial: "", choices: OVERLAY_NAMES, push: true },
  { name: "span", initial: "", choices: null, push: true },
  { name: "thickness", initial: "", choices: THICKNESSES, push: true },
  { name: "q", initial: "", choices: null, push: false },
  { name: "reach", initial: "", choices: null, push: true },
  { name: "step", initial: 0, choices: null, push: false },
  { name: "dump", initial: 0, choices: null, push: false },
  { name: "zoom", initial: 1, choices: null, most: MAX_ZOOM, push: false },
  { name: "at", initial: 0, choices: null, most: 1, push: false },
  { name: "across", initial: 0.5, choices: null, most: 1, push: false },
];

/** Characters that a query or fragment may hold as they are, kept readable: 100,50,1, layers.0/forward, ?seed=1. */
const READABLE = /%(2C|2F|3A|3D|3F|40)/g;

/** @param {string} text @returns {string} */
function encode(text) {
  return encodeURIComponent(text).replace(READABLE, (escaped) => decodeURIComponent(escaped));
}

/** @param {string} text key=value pairs joined by & @returns {Map<string, string>} */
function pairs(text) {
  return new Map(new URLSearchParams(text));
}

/** The default spec of a program. @param {SpecTable} table
 * @param {Spec[string] | undefined} program its name; undefined for the first, which goes without saying
 * @returns {Spec} of one that is not known, the first one's: the server says what is wrong */
function programDefaults({ programs }, program) {
  const [first] = programs;
  const known = programs.find(({ name }) => name === (program ?? first?.name));
  return known?.defaults ?? { ...first?.defaults, program: program ?? "" };
}

/** The canonical query string of a spec: the program, and the keys that differ from its defaults, in the table's order.
 * @param {SpecTable} table @param {Spec} spec */
export function specQuery(table, spec) {
  /** @type {Record<string, Spec[string] | undefined>} */
  const defaults = { ...programDefaults(table, spec["program"]), program: table.programs[0]?.name };
  const parts = [];
  for (const { name } of table.keys) {
    const value = spec[name];
    if (value !== undefined && value !== defaults[name])
      parts.push(`${name}=${encode(String(value).replace("e+", "e"))}`);
  }
  return parts.join("&");
}

/** The spec that a query string asks for, unchecked: values that do not read as their kind stay text, and keys that the
 * program does not use stay there; the server says what is wrong with them.
 * @param {SpecTable} table @param {string} query */
export function parseSpec(table, query) {
  const given = pairs(query);
  /** @type {Spec} */
  const spec = { ...programDefaults(table, given.get("program")) };
  for (const { name, kind } of table.keys) {
    const text = given.get(name);
    if (text === undefined) continue;
    const number = text.trim() === "" ? NaN : Number(text);
    if ((kind === "int" || kind === "float") && Number.isFinite(number) && String(number).length <= 16)
      spec[name] = number;
    else if (kind === "bool" && (text === "true" || text === "false")) spec[name] = text === "true";
    else spec[name] = text;
  }
  return spec;
}

/** The spec of another program. Keys that both use with the same default keep their values, such as the seed, but not
 * the widths. @param {SpecTable} table @param {Spec} spec @param {string} program @returns {Spec} */
export function withProgram(table, spec, program) {
  const [before, after] = [programDefaults(table, spec["program"]), programDefaults(table, program)];
  const kept = Object.keys(after).filter((name) => name !== "program" && name in spec && before[name] === after[name]);
  return { ...after, ...Object.fromEntries(kept.map((name) => [name, spec[name] ?? ""])) };
}

/** @param {View} view @returns {string} without the #; "" for the initial view */
export function viewFragment(view) {
  const parts = [];
  for (const { name, initial } of VIEW_KEYS) {
    const value = typeof view[name] === "number" ? Number(Number(view[name]).toPrecision(7)) : view[name];
    if (value !== initial) parts.push(`${name}=${encode(String(value))}`);
  }
  return parts.join("&");
}

/** @param {string} fragment with or without the #
 * @returns {View} what it does not say, or says wrongly, is as initially */
export function parseView(fragment) {
  /** @type {Record<string, string | number>} */
  const view = {};
  const given = pairs(fragment.replace(/^#/, ""));
  for (const { name, initial, choices, most } of VIEW_KEYS) {
    const text = given.get(name);
    view[name] = initial;
    if (text === undefined) continue;
    if (typeof initial === "number") {
      const number = Number(text);
      if (Number.isFinite(number) && number >= 0) view[name] = Math.min(number, most ?? Infinity);
    } else if (choices === null || choices.includes(text)) {
      view[name] = text;
    }
  }
  return /** @type {View} */ (/** @type {unknown} */ (view));
}

/** @param {Partial<View>} change @returns {boolean} whether it makes a history entry */
export function viewPushes(change) {
  return VIEW_KEYS.some(({ name, push }) => push && name in change);
}

/** @param {string} query @param {string} fragment @returns {string} the address relative to the page's path */
export function address(query, fragment) {
  return `${location.pathname}${query && `?${query}`}${fragment && `#${fragment}`}`;
}
