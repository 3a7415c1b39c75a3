/**
 * The form of a graph dump, field by field, as the published schema has it. What a value should be is a function that
 * says what is wrong with one: where inside it, and in words.
 */

/** @typedef {{at: string, says: string}} Fault at: path inside the value, "[0].line" */
/** @typedef {(value: unknown) => Fault | null} Check */
/** @typedef {Record<string, Check>} Form every field with its check */

const MAX_COUNT = 2 ** 32;
/** Free-form values go no deeper than this: whoever walks them may do so by recursion. */
const DEEPEST = 100;

/** @param {string} says @returns {Fault} */
const fault = (says) => ({ at: "", says });

/**
 * @param {unknown} value
 * @returns {string} a value as a message shows it: short, whatever it is
 */
export function shown(value) {
  if (value === undefined) return "nothing";
  const isDeep = typeof value === "object" && value !== null;
  const text = isDeep ? (Array.isArray(value) ? `a list of ${value.length}` : "an object") : JSON.stringify(value);
  return text.length <= 60 ? text : `${text.slice(0, 57)}…`;
}

/** @type {Check} */
const text = (value) => typeof value === "string" ? null : fault(`${shown(value)} is not text`);
/** @type {Check} */
const textOrNull = (value) =>
  value === null || typeof value === "string" ? null : fault(`${shown(value)} is neither text nor null`);
/** @type {Check} */
const integer = (value) => Number.isInteger(value) ? null : fault(`${shown(value)} is not an integer`);
/** @type {Check} */
const natural = (value) =>
  Number.isInteger(value) && /** @type {number} */ (value) >= 0 ? null
    : fault(`${shown(value)} is not an integer from 0 on`);
/** @type {Check} */
const lineNumber = (value) =>
  Number.isInteger(value) && /** @type {number} */ (value) >= 1 ? null
    : fault(`${shown(value)} is not an integer from 1 on`);
/** JSON may hold what no float can: 1e400 is read as Infinity. */
const TOO_LARGE = "the number is too large";
/** @param {unknown} value @returns {Fault | null} of what is known to be a number */
const finite = (value) => Number.isFinite(value) ? null : fault(TOO_LARGE);
/** @type {Check} */
const number = (value) => typeof value === "number" ? finite(value) : fault(`${shown(value)} is not a number`);
/** @type {Check} */
const numberOrNull = (value) =>
  typeof value === "number" ? finite(value)
    : value === null ? null : fault(`${shown(value)} is neither a number nor null`);
/** @type {Check} */
const jsonNumber = (value) =>
  typeof value === "number" ? finite(value)
    : value === null || value === "NaN" || value === "Infinity" || value === "-Infinity" ? null
    : fault(`${shown(value)} is neither a number, "NaN", "Infinity", "-Infinity" nor null`);
/** @type {Check} */
const count = (value) =>
  Number.isInteger(value) && /** @type {number} */ (value) >= 0 && /** @type {number} */ (value) < MAX_COUNT ? null
    : fault(`${shown(value)} is not a count from 0 to ${MAX_COUNT - 1}`);

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {object} value @returns {string} path of the first number in it that is not finite */
function placeOfInfinite(value) {
  /** @type {[string, object][]} */
  const pending = [["", value]];
  for (const [at, part] of pending) {
    for (const [key, inner] of Object.entries(part)) {
      const place = Array.isArray(part) ? `${at}[${key}]` : `${at}.${key}`;
      if (typeof inner === "number" && !Number.isFinite(inner)) return place;
      if (typeof inner === "object" && inner !== null) pending.push([place, inner]);
    }
  }
  return "";
}

/** @type {Check} */
const anyRecord = (value) => {
  if (!isRecord(value)) return fault(`${shown(value)} is not an object`);
  /** @type {unknown[]} */
  let level = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > DEEPEST) return fault(`what stands here is more than ${DEEPEST} levels deep`);
    /** @type {unknown[]} */
    const next = [];
    for (const part of level) {
      for (const inner of Array.isArray(part) ? part : Object.values(/** @type {object} */ (part))) {
        if (typeof inner === "object" && inner !== null) next.push(inner);
        else if (typeof inner === "number" && !Number.isFinite(inner))
          return { at: placeOfInfinite(value), says: TOO_LARGE };
      }
    }
    level = next;
  }
  return null;
};
/** @type {Check} */
const anyRecordOrNull = (value) => value === null ? null : anyRecord(value);

/** @param {readonly string[]} words @returns {Check} */
const oneOf = (words) => {
  const known = new Set(words);
  return (value) =>
    known.has(/** @type {string} */ (value)) ? null : fault(`${shown(value)} is none of ${words.join(", ")}`);
};

/** @param {Check} check @returns {Check} */
const list = (check) => (value) => {
  if (!Array.isArray(value)) return fault(`${shown(value)} is not a list`);
  for (let index = 0; index < value.length; index += 1) {
    const found = check(value[index]);
    if (found !== null) return { at: `[${index}]${found.at}`, says: found.says };
  }
  return null;
};

/** `list(count)` in one loop: of these there are millions. @type {Check} */
const counts = (value) => {
  if (Array.isArray(value)) {
    let index = 0;
    for (; index < value.length; index += 1) {
      const entry = value[index];
      // Bit operations round: what they leave as it is, is an integer of 32 bits.
      if (typeof entry !== "number" || entry >>> 0 !== entry) break;
    }
    if (index === value.length) return null;
  }
  return list(count)(value);
};

/** @param {Form} form @param {readonly string[]} [optional] fields that may be missing @returns {Check} */
const record = (form, optional = []) => {
  const fields = Object.entries(form);
  const known = new Set(Object.keys(form));
  return (value) => {
    if (!isRecord(value)) return fault(`${shown(value)} is not an object`);
    let present = 0;
    for (const [field, check] of fields) {
      const part = value[field];
      if (part === undefined) {
        if (optional.includes(field)) continue;
        return { at: `.${field}`, says: "is missing" };
      }
      present += 1;
      const found = check(part);
      if (found !== null) return { at: `.${field}${found.at}`, says: found.says };
    }
    const keys = Object.keys(value);
    if (keys.length === present) return null;
    return { at: `.${keys.find((key) => !known.has(key))}`, says: "is not a field of the schema" };
  };
};

/** @param {Check} check @returns {Check} */
const orNull = (check) => (value) => value === null ? null : check(value);

/** @param {Check} check @returns {Check} an object of any keys */
const byKey = (check) => (value) => {
  if (!isRecord(value)) return fault(`${shown(value)} is not an object`);
  for (const [key, part] of Object.entries(value)) {
    const found = check(part);
    if (found !== null) return { at: `.${key}${found.at}`, says: found.says };
  }
  return null;
};

/** Fields of a layer that name tensors. */
export const LAYER_TENSORS = ["preactivation", "activation", "gradient", "weight", "weight_gradient", "bias",
  "bias_gradient"];

const ROLES = [
  ...["input", "target", "parameter", "buffer", "constant", "preactivation", "activation", "intermediate", "loss",
    "gradient"],
  "saved",
];

const FAULT_KINDS = ["failed", "in_place", "first_nonfinite", "unregistered", "detach", "no_gradient", "gradient_drop",
  "dead", "saturated"];

/** Where an op comes from. */
const sourceOrNull = orNull(record({ file: text, line: integer, text, function: text }));

/** Checks a whole dump but for what its ids say of one another. */
export const checkForm = record({
  schema: text,
  spec: anyRecordOrNull,
  environment: anyRecord,
  loss: jsonNumber,
  modules: list(record({ id: text, path: text, type: text, parent: textOrNull })),
  ops: list(record({
    id: text,
    name: text,
    phase: oneOf(["forward", "backward"]),
    module: text,
    attributes: anyRecord,
    inputs: list(text),
    outputs: list(text),
    twin: textOrNull,
    flops: natural,
    bytes: natural,
    source: sourceOrNull,
  })),
  tensors: list(record({
    id: text,
    name: text,
    role: oneOf(ROLES),
    shape: list(natural),
    dtype: text,
    module: text,
    producer: textOrNull,
    consumers: list(text),
    gradient_of: textOrNull,
    note: textOrNull,
  })),
  saved: list(record({ tensor: text, op: text })),
  layers: list(
    record({ index: integer, name: text, ...Object.fromEntries(LAYER_TENSORS.map((name) => [name, textOrNull])) }),
  ),
  faults: list(
    record({ kind: oneOf(FAULT_KINDS), message: text, module: textOrNull, op: textOrNull, tensor: textOrNull,
      source: sourceOrNull, remedy: textOrNull }),
  ),
  sources: byKey(list(record({ line: lineNumber, text }))),
  statistics: record({
    tensor: list(text),
    n: list(count),
    mean: list(numberOrNull),
    std: list(numberOrNull),
    min: list(numberOrNull),
    max: list(numberOrNull),
    norm: list(numberOrNull),
    zero_fraction: list(number),
    nan: list(count),
    posinf: list(count),
    neginf: list(count),
    dead_fraction: list(numberOrNull),
    saturation: list(numberOrNull),
    histogram: record({ bins: number, low: list(numberOrNull), high: list(numberOrNull), counts: list(counts) }),
  }),
  error: orNull(record({ op: textOrNull, message: text })),
  timing: anyRecord,
}, ["faults", "sources"]);
