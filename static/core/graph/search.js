/** Finds ops, tensors and modules of a graph by what is said of them: text, shape, figures of a picture. Answers come
 * in order of execution. The searched texts are collected once per graph. No DOM. */

import { find, ROLES } from "./graph.js";
import { memo } from "../memo.js";
import { OP_FIGURES, parseQuery } from "./query.js";
import { idsOf } from "./reach.js";
import { inputsOf, outputsOf } from "./wiring.js";

export { parseQuery };

/**
 * @typedef {object} Found
 * @property {string[]} ids as in addresses, in order of execution, at most so many as were asked for
 * @property {number} total
 * @property {string | null} note what the answer lacks, and why
 */

/** @typedef {"op" | "tensor" | "group"} Kind */

/**
 * @typedef {object} Index things in order of execution
 * @property {Uint8Array} kinds position in KINDS
 * @property {Int32Array} places of each in the graph
 * @property {string[]} texts of each, in small letters: name, op, shapes, role, module path
 * @property {Int32Array} rows tensor → row of the statistics
 */

const KINDS = /** @type {const} */ (["op", "tensor", "group"]);

/** No more of a text is held against a regular expression. */
const LONGEST_TEXT = 200;
/** A pattern that is not done by then is not going to be. */
const MAX_MS = 250;

/** @param {Graph} graph @param {Picture} picture whose figures are compared @param {SearchQuery} query
 * @param {number} [most] @returns {Found} nothing for a query without terms */
export function search(graph, picture, query, most = Infinity) {
  if (query.terms.length === 0) return { ids: [], total: 0, note: null };
  const index = indexOf(graph);
  const tests = query.terms.map((term) => testOf(term, graph, picture, index, query.isAboutOps));
  const isTimed = query.terms.some(({ kind }) => kind === "pattern");
  const began = performance.now();
  /** @type {string[]} */
  const ids = [];
  let total = 0;
  let note = noteOf(query, graph, picture);
  for (let at = 0; at < index.kinds.length; at += 1) {
    const kind = KINDS[index.kinds[at]];
    // Only ops have these figures.
    if (query.isAboutOps && kind !== "op") continue;
    const place = index.places[at];
    if (tests.every((test) => test(kind, place, index.texts[at]))) {
      total += 1;
      if (ids.length < most) ids.push(idAt(graph, kind, place));
    }
    if (isTimed && performance.now() - began > MAX_MS) {
      note = "The search took too long and stopped here: a simpler expression finds more.";
      break;
    }
  }
  return { ids, total, note };
}

/** The ids to highlight: the results and the groups around them. @param {Graph} graph @param {readonly string[]} ids */
export function litOfFound(graph, ids) {
  const { arrays } = graph;
  const ops = new Uint8Array(arrays.ops);
  const tensors = new Uint8Array(arrays.tensors);
  const holders = new Uint8Array(arrays.ops);
  for (const id of ids) {
    const item = find(graph, id);
    if (item?.kind === "op") ops[item.index] = 1;
    if (item?.kind !== "tensor") continue;
    tensors[item.index] = 1;
    const holder = arrays.producer[item.index];
    holders[holder >= 0 ? holder : arrays.consumers[arrays.consumerStart[item.index]]] = 1;
  }
  const lit = idsOf(graph, ops, tensors);
  // A closed box lights for a tensor that it hides, the op beside the tensor does not.
  for (const id of idsOf(graph, holders, new Uint8Array(arrays.tensors)))
    if (find(graph, id)?.kind === "group") lit.add(id);
  for (const id of ids) lit.add(id);
  return lit;
}

/** @param {Graph} graph @param {Kind} kind @param {number} place @returns {string} */
function idAt(graph, kind, place) {
  if (kind === "op") return graph.topology.ops[place].id;
  return (kind === "tensor" ? graph.tensorId[place] : graph.groupId[place]);
}

/** @param {SearchQuery} query @param {Graph} graph @param {Picture} picture @returns {string | null} */
function noteOf({ terms }, { topology }, picture) {
  const figures = terms.flatMap((term) => term.kind === "figure" ? [term.figure] : []);
  if (figures.includes("time") && topology.op_us == null) return "This recording does not say how long its ops took.";
  const isCompared = figures.some((figure) => !OP_FIGURES.has(figure) && figure !== "numel" && figure !== "rank");
  return isCompared && picture.hidden !== null ? "What waits for a guess is not compared." : null;
}

const indexOf = memo(build);

/** @param {Graph} graph @returns {Index} */
function build({ arrays, topology, tensorIndex, groupId, groupLabel }) {
  /** @type {[number, number][]} */
  const order = [];
  const listed = new Uint8Array(arrays.tensors);
  /** @type {number[][]} */
  const opening = [];
  for (let group = arrays.groups - 1; group >= 0; group -= 1) {
    if (arrays.groupKind[group] === 0) (opening[arrays.groupFirst[group]] ??= []).push(group);
  }
  const list = (/** @type {number} */ tensor) => {
    if (listed[tensor] === 1) return;
    listed[tensor] = 1;
    order.push([1, tensor]);
  };
  for (let op = 0; op < arrays.ops; op += 1) {
    for (const group of (opening[op] ?? []).sort((a, b) => arrays.groupDepth[a] - arrays.groupDepth[b]))
      order.push([2, group]);
    inputsOf(arrays, op).forEach(list);
    order.push([0, op]);
    outputsOf(arrays, op).forEach(list);
  }
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) list(tensor);

  const modules = new Map(topology.modules.map(({ id, path, type }) => [id, `${path}\n${type}`.toLowerCase()]));
  const shapeText = (/** @type {readonly number[]} */ sizes) => sizes.length === 0 ? "scalar" : sizes.join("×");
  const texts = order.map(([kind, place]) => {
    if (kind === 0) {
      const op = topology.ops[place];
      return op === undefined ? "" : `${op.name.toLowerCase()}\n${op.id}\n${modules.get(op.module) ?? ""}`;
    }
    if (kind === 1) {
      const tensor = topology.tensors[place];
      return tensor === undefined ? ""
        : `${tensor.name.toLowerCase()}\n${tensor.id}\n${tensor.role}\n${shapeText(tensor.shape)}\n${
          modules.get(tensor.module) ?? ""
        }`;
    }
    return `${groupId[place]}\n${groupLabel[place]}`.toLowerCase();
  });
  const rows = new Int32Array(arrays.tensors).fill(-1);
  topology.statistics.tensor.forEach((id, row) => (rows[tensorIndex.get(id) ?? -1] = row));
  return { kinds: Uint8Array.from(order, ([kind]) => kind), places: Int32Array.from(order, ([, place]) => place), texts,
    rows };
}

/** @typedef {(kind: Kind, place: number, text: string) => boolean} Test */

/** @param {SearchTerm} term @param {Graph} graph @param {Picture} picture @param {Index} index
 * @param {boolean} isAboutOps if true, an op has the figures of its outputs @returns {Test} */
function testOf(term, graph, picture, index, isAboutOps) {
  const test = affirmative(term, graph, picture, index, isAboutOps);
  return term.isNot ? (kind, place, text) => !test(kind, place, text) : test;
}

/** @param {SearchTerm} term @param {Graph} graph @param {Picture} picture @param {Index} index
 * @param {boolean} isAboutOps @returns {Test} */
function affirmative(term, graph, picture, index, isAboutOps) {
  const { topology, arrays } = graph;
  if (term.kind === "word") return (_kind, _place, text) => text.includes(term.word);
  if (term.kind === "pattern") return (_kind, _place, text) => term.pattern.test(text.slice(0, LONGEST_TEXT));

  /** Whether it holds of a tensor, or of one that an op puts out. @param {(tensor: number) => boolean} holds
   * @returns {Test} */
  const ofTensor = (holds) => (kind, place) => {
    if (kind === "tensor") return holds(place);
    return kind === "op" && isAboutOps && outputsOf(arrays, place).some(holds);
  };
  if (term.kind === "shape") {
    const { sizes } = term;
    return ofTensor((tensor) => {
      const shape = topology.tensors[tensor].shape;
      return shape.length === sizes.length && sizes.every((size, axis) => size === null || size === shape[axis]);
    });
  }
  if (term.kind === "figure") {
    const { holds } = term;
    if (OP_FIGURES.has(term.figure)) {
      const cost = costOf(graph, /** @type {OpFigure} */ (term.figure));
      return (kind, place) => kind === "op" && holds(cost(place));
    }
    const value = valueOf(graph, picture, index, /** @type {TensorFigure} */ (term.figure));
    return ofTensor((tensor) => {
      const figure = value(tensor);
      return figure !== null && holds(figure);
    });
  }
  const { key, word } = term;
  if (key === "role") {
    // "activation" is a role, and the end of another.
    const isWhole = ROLES.some((role) => role === word);
    return ofTensor((tensor) =>
      isWhole ? topology.tensors[tensor].role === word : topology.tensors[tensor].role.includes(word)
    );
  }
  if (key === "dtype") return ofTensor((tensor) => topology.tensors[tensor].dtype.includes(word));
  if (key === "op")
    return (kind, place) => kind === "op" && (topology.ops[place].name.toLowerCase()).includes(word);
  if (key === "phase") {
    const half = "forward".startsWith(word) ? 0 : 1;
    return (kind, place) =>
      kind === "op" ? arrays.opHalf[place] === half
        : kind === "tensor" ? arrays.tensorHalf[place] === half : half === 0;
  }
  if (key === "name") {
    return (kind, place) =>
      (kind === "op" ? topology.ops[place].name
        : kind === "tensor" ? topology.tensors[place].name : graph.groupLabel[place]).toLowerCase().includes(word);
  }
  const paths = new Map(topology.modules.map(({ id, path, type }) => [id, `${path} ${type}`.toLowerCase()]));
  return (kind, place, text) =>
    (kind === "group" ? text
      : (paths.get((kind === "op" ? topology.ops[place] : topology.tensors[place]).module) ?? "")).includes(word);
}

/** @param {Graph} graph @param {OpFigure} figure @returns {(op: number) => number} NaN where it is not known: no
 * comparison holds of it */
function costOf({ topology }, figure) {
  if (figure === "time") return (op) => topology.op_us?.[op] ?? NaN;
  return (op) => topology.ops[op]?.[figure] ?? NaN;
}

/** @param {Graph} graph @param {Picture} picture @param {Index} index @param {TensorFigure} figure
 * @returns {(tensor: number) => number | null} null: no value, or a hidden one */
function valueOf({ arrays, topology }, picture, { rows }, figure) {
  if (figure === "numel") return (tensor) => arrays.elements[tensor];
  if (figure === "rank") return (tensor) => topology.tensors[tensor].shape.length;
  const { floats, integers, hidden } = picture;
  return (tensor) => {
    const row = rows[tensor];
    if (row < 0 || hidden?.rows.has(row)) return null;
    if (figure === "nan") return integers.nan[row];
    if (figure === "inf") return integers.posinf[row] + integers.neginf[row];
    const value = floats[figure][row] ?? NaN;
    return Number.isNaN(value) ? null : value;
  };
}
