/** The form of a graph dump, as its published schema states it, and the first place that has another form. */

/** Whole numbers stay below this bound, at which JavaScript still compares them as Python does. */
const LARGEST = 2 ** 63;

/** The maximum length of names and ids, in code points. */
const MAX_NAME = 10_000;

/** Numbers that JSON cannot hold. @type {readonly unknown[]} */
const WORDS = ["NaN", "Infinity", "-Infinity"];

const TEXT = "text";
const NAME = `text of at most ${MAX_NAME} characters`;
const NUMBER = "a number";
const AMOUNT = "a number of at least 0";
const VALUE = "a number, NaN or Infinity";
const INTEGER = "a whole number";
const SIZE = "a whole number of at least 0";
const LINE = "a whole number of at least 1";
const COUNT = "a count";
const OBJECT = "an object";

/** Whether a value is of a kind, by the kind's name in messages. @type {Record<string, (value: any) => boolean>} */
const KINDS = {
  [TEXT]: isText,
  [NAME]: (value) =>
    isText(value) && (value.length <= MAX_NAME || (value.length <= 2 * MAX_NAME && [...value].length <= MAX_NAME)),
  [NUMBER]: Number.isFinite,
  [AMOUNT]: (value) => Number.isFinite(value) && value >= 0,
  [VALUE]: (value) => Number.isFinite(value) || WORDS.includes(value),
  [INTEGER]: (value) => Number.isInteger(value) && Math.abs(value) < LARGEST,
  [SIZE]: (value) => Number.isInteger(value) && value >= 0 && value < LARGEST,
  [LINE]: (value) => Number.isInteger(value) && value >= 1 && value < LARGEST,
  [COUNT]: (value) => Number.isInteger(value) && value >= 0 && value < 2 ** 32,
  [OBJECT]: isRecord,
};

/** A kind; values of which it is one; a record, where `?` marks a field that may be missing; or a form made of another:
 * a list of it, such a list that is not empty, a list of two, an object with members of it, it or null.
 * @typedef {string | readonly unknown[] | Made | {readonly [field: string]: Form}} Form */

export class Made {
  /** @param {"list" | "filled" | "pair" | "map" | "or null"} how @param {Form} form */
  constructor(how, form) {
    this.how = how;
    this.form = form;
  }
}

const list = (/** @type {Form} */ form) => new Made("list", form);
const filled = (/** @type {Form} */ form) => new Made("filled", form);
const pair = (/** @type {Form} */ form) => new Made("pair", form);
const map = (/** @type {Form} */ form) => new Made("map", form);
const orNull = (/** @type {Form} */ form) => new Made("or null", form);

const ID = orNull(TEXT);
const SOURCE = orNull({ file: NAME, line: INTEGER, text: TEXT, function: NAME });
const [TEXTS, COUNTS, FIGURES] = [list(TEXT), list(COUNT), list(orNull(NUMBER))];

/** @type {Form} */
export const DUMP = {
  schema: ["chainrule.trace/1"],
  spec: orNull(OBJECT),
  environment: OBJECT,
  loss: orNull(VALUE),
  modules: filled({ id: NAME, path: NAME, type: NAME, parent: ID }),
  ops: list({ id: NAME, name: NAME, phase: ["forward", "backward"], module: TEXT, attributes: OBJECT, inputs: TEXTS,
    outputs: TEXTS, twin: ID, flops: SIZE, bytes: SIZE, source: SOURCE }),
  tensors: list({ id: NAME, name: NAME,
    role: ["input", "target", "parameter", "buffer", "constant", "preactivation", "activation", "intermediate", "loss",
      "gradient", "saved"], shape: list(SIZE), dtype: NAME, module: TEXT, producer: ID, consumers: TEXTS,
    gradient_of: ID, note: ID }),
  saved: list({ tensor: TEXT, op: TEXT }),
  layers: list({ index: INTEGER, name: NAME, preactivation: ID, activation: ID, gradient: ID, weight: ID,
    weight_gradient: ID, bias: ID, bias_gradient: ID }),
  "faults?": list({
    kind: ["failed", "in_place", "first_nonfinite", "wrong_backward", "unregistered", "detach", "no_gradient",
      "no_optimizer", "leftover_gradient", "eval_mode", "untied", "broadcast", "softmax", "exploding", "vanishing",
      "gradient_drop", "dead", "saturated", "starts_at_zero", "replicas", "graph_break", "recompilation", "precision"],
    message: TEXT,
    module: orNull(NAME),
    op: ID,
    tensor: ID,
    source: SOURCE,
    remedy: ID,
    "level?": ["fault", "note", "unchecked"],
    "layers?": list(INTEGER),
    "rule?": ID,
  }),
  "sources?": map(list({ line: LINE, text: TEXT })),
  statistics: { tensor: TEXTS, n: COUNTS, mean: FIGURES, std: FIGURES, min: FIGURES, max: FIGURES, norm: FIGURES,
    zero_fraction: list(NUMBER), nan: COUNTS, posinf: COUNTS, neginf: COUNTS, dead_fraction: FIGURES,
    saturation: FIGURES, histogram: { bins: [64], low: FIGURES, high: FIGURES, counts: list(COUNTS) } },
  "values?": map(list(VALUE)),
  error: orNull({ op: ID, message: TEXT }),
  timing: OBJECT,
  "precision?": orNull({ name: TEXT, of: TEXT, against: TEXT, tensor: TEXTS, error: list(AMOUNT),
    expected: list(AMOUNT), "differing?": map(pair(COUNT)) }),
};

/** The first place at which a value has another form, or null. The path is made from its end, so that only a problem
 * costs time. @typedef {{path: string, says: string} | null} Misfit */

/** @param {Form} form @returns {(value: any) => Misfit} */
export function misfitOf(form) {
  if (form instanceof Made) return MADE[form.how](misfitOf(form.form));
  if (typeof form !== "string" && !(form instanceof Array)) return misfitOfRecord(form);
  const is = typeof form === "string" ? KINDS[form] : (/** @type {any} */ value) => form.includes(value);
  const words = typeof form === "string" ? form : form.join(" or ");
  return (value) => is(value) ? null : misfit(`${shown(value)} is not ${words}`);
}

/** @param {string} says @param {string} [path] */
function misfit(says, path = "") {
  return { path, says };
}

/** @param {{readonly [field: string]: Form}} form @returns {(value: any) => Misfit} */
function misfitOfRecord(form) {
  const fields = Object.entries(form).map(([key, part]) => ({ name: key.replace("?", ""), isNeeded: !key.endsWith("?"),
    misfitOfPart: misfitOf(part) })
  );
  const names = new Set(fields.map(({ name }) => name));
  return (value) => {
    if (!isRecord(value)) return misfit(`${shown(value)} is not an object`);
    let known = 0;
    for (const { name, isNeeded, misfitOfPart } of fields) {
      const part = value[name];
      // JSON has no undefined.
      if (part === undefined) {
        if (isNeeded) return misfit("the field is missing", `.${name}`);
        continue;
      }
      known += 1;
      const found = misfitOfPart(part);
      if (found !== null) return misfit(found.says, `.${name}${found.path}`);
    }
    let all = 0;
    for (const _ in value) all += 1;
    if (all === known) return null;
    const surplus = Object.keys(value).find((name) => !names.has(name));
    return misfit("the field is not part of the schema", `.${surplus}`);
  };
}

/** @type {Record<Made["how"], (misfitOfPart: (value: any) => Misfit) => (value: any) => Misfit>} */
const MADE = {
  "or null": (misfitOfPart) => (value) => value === null ? null : misfitOfPart(value),
  list: (misfitOfPart) => (value) => misfitOfList(value, misfitOfPart),
  filled: (misfitOfPart) => (value) =>
    Array.isArray(value) && value.length === 0 ? misfit("the list is empty") : misfitOfList(value, misfitOfPart),
  pair: (misfitOfPart) => (value) =>
    Array.isArray(value) && value.length !== 2 ? misfit(`${value.length} items; expected 2`)
      : misfitOfList(value, misfitOfPart),
  map: (misfitOfPart) => (value) => {
    if (!isRecord(value)) return misfit(`${shown(value)} is not an object`);
    for (const [name, member] of Object.entries(value)) {
      const found = isText(name) ? misfitOfPart(member) : misfit("the name is not text");
      if (found !== null) return misfit(found.says, `.${name}${found.path}`);
    }
    return null;
  },
};

/** @param {any} value @param {(value: any) => Misfit} misfitOfPart @returns {Misfit} */
function misfitOfList(value, misfitOfPart) {
  if (!Array.isArray(value)) return misfit(`${shown(value)} is not a list`);
  for (let at = 0; at < value.length; at += 1) {
    const found = misfitOfPart(value[at]);
    if (found !== null) return misfit(found.says, `[${at}]${found.path}`);
  }
  return null;
}

/** @param {unknown} value @returns {value is string} no lone surrogates: Python has none in texts */
export function isText(value) {
  return typeof value === "string" && value.isWellFormed();
}

/** @param {unknown} value @returns {value is Record<string, any>} */
export function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {unknown} value @returns {string} the value in at most 60 characters */
export function shown(value) {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return `a list of ${value.length}`;
  const text = isRecord(value) ? "an object" : JSON.stringify(value);
  return text.length <= 60 ? text : `${text.slice(0, 57)}…`;
}
