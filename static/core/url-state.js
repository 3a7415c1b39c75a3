/** The address is the state. The query string is the spec and nothing else; the fragment is the view. One table each:
 * the spec's comes with the page data, the view's stands here. */

export const MAX_ZOOM = 2 ** 20;

/** Which groups are open: as many as are legible, all but the innermost, all, or those less deep than a number. */
const LEVELS = ["auto", "layer", "all", ...Array.from({ length: 20 }, (_, depth) => String(depth))];

/** The parts of the view: any text, one of some texts, the first of them at first, or a number: [at first, at most].
 * @type {Record<keyof View, "" | readonly string[] | readonly [number, number]>} */
const VIEW_KEYS = {
  select: "",
  statistic: ["std", "mean", "dead_fraction", "saturation", "ratio"],
  show: ["graph", "layers", "steps", "training"],
  over: ["activation_std", "gradient_std", "update_ratio", "gradient_norms", "weight_norms", "dead_fraction",
    "saturation"],
  tab: ["graph", "profile", "inspector", "controls"],
  form: ["heatmap", "ridgeline"],
  of: ["activation", "preactivation", "gradient", "weight", "weight_gradient"],
  range: ["fixed", "adaptive"],
  axis: ["linear", "log"],
  bins: ["shared", "own"],
  ...{ lesson: "", answer: "" },
  mode: ["", "teach"],
  ...{ predict: "", guess: "", a: "" },
  level: LEVELS,
  toggled: "",
  fold: ["auto", "on", "off"],
  colour: ["", "std", "gradient_norm", "dead_fraction", "time", "memory", "flops", "health", "difference", "precision"],
  span: "",
  thickness: ["", "size", "gradient"],
  ...{ q: "", reach: "", step: [0, Infinity], dump: [0, Infinity] },
  ...{ zoom: [1, MAX_ZOOM], at: [0, 1], across: [0.5, 1] },
};

/** Changes of these make no history entry. */
export const UNPUSHED = ["q", "step", "dump", "zoom", "at", "across"];

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

/** The spec that a query string asks for, unchecked: the server says what is wrong with it.
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
  for (const [name, [initial = ""]] of Object.entries(VIEW_KEYS)) {
    const given = view[/** @type {keyof View} */ (name)];
    const value = typeof given === "number" ? Number(given.toPrecision(7)) : given;
    if (value !== initial) parts.push(`${name}=${encode(String(value))}`);
  }
  return parts.join("&");
}

/** @param {string} fragment with or without the #
 * @returns {View} what it does not say, or says wrongly, is as initially */
export function parseView(fragment) {
  const given = pairs(fragment.replace(/^#/, ""));
  const view = Object.entries(VIEW_KEYS).map(([name, allowed]) => {
    const [initial = "", most] = allowed;
    const text = given.get(name) ?? String(initial);
    if (typeof initial !== "number")
      return [name, allowed === "" || allowed.some((each) => each === text) ? text : initial];
    const number = Number(text);
    return [name, Number.isFinite(number) && number >= 0 ? Math.min(number, Number(most)) : initial];
  });
  return Object.fromEntries(view);
}

/** @param {string} query @param {string} fragment @returns {string} the address relative to the page's path */
export function address(query, fragment) {
  return `${location.pathname}${query && `?${query}`}${fragment && `#${fragment}`}`;
}
