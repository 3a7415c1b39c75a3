/** Finds ops, tensors and modules of a graph by what is said of them: text, shape, figures of a picture. Answers come
 * in order of execution. The searched texts are collected once per graph. No DOM. */

import { find, idOf, ROLES } from "./graph.js";
import { memo } from "../memo.js";
import { OP_FIGURES } from "./query.js";
import { idsOf } from "./reach.js";
import { inputsOf, outputsOf } from "./wiring.js";

/** @typedef {{kind: Item["kind"], place: number, text: string}} Thing of the graph; text: name, op, shapes, role and module
 * path, in small letters */

/** No more of a text is held against a regular expression. */
const LONGEST_TEXT = 200;
/** A pattern that is not done by then is not going to be. */
const MAX_MS = 250;

/** @param {Graph} graph @param {Picture} picture whose figures are compared @param {SearchQuery} query
 * @param {number} [most] ids @returns {{ids: string[], total: number, note: string | null}} ids in order of execution;
 * note: why results are missing */
export function search(graph, picture, query, most = Infinity) {
  if (query.terms.length === 0) return { ids: [], total: 0, note: null };
  const tests = query.terms.map((term) => testOf(term, graph, picture, query.isAboutOps));
  const isTimed = query.terms.some(({ kind }) => kind === "pattern");
  const began = performance.now();
  /** @type {string[]} */
  const ids = [];
  let total = 0;
  let note = noteOf(query, graph, picture);
  for (const thing of thingsIn(graph)) {
    // Only ops have these figures.
    if (query.isAboutOps && thing.kind !== "op") continue;
    if (tests.every((test) => test(thing))) {
      total += 1;
      if (ids.length < most) ids.push(idOf(graph, { kind: thing.kind, index: thing.place, half: "forward" }));
    }
    if (isTimed && performance.now() - began > MAX_MS) {
      note = "The search took too long and stopped. Use a simpler expression.";
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

/** @param {SearchQuery} query @param {Graph} graph @param {Picture} picture @returns {string | null} */
function noteOf({ terms }, { topology }, picture) {
  const figures = terms.flatMap((term) => term.kind === "figure" ? [term.figure] : []);
  if (figures.includes("time") && topology.op_us == null) return "This recording has no times of its ops.";
  const isCompared = figures.some((figure) => !OP_FIGURES.has(figure) && figure !== "numel" && figure !== "rank");
  return isCompared && picture.hidden !== null ? "The search skips the numbers that are hidden until you guess." : null;
}

const thingsIn = memo(build);

/** @param {Graph} graph @returns {Thing[]} in order of execution */
function build({ arrays, topology, groupId, groupLabel }) {
  const modules = new Map(topology.modules.map(({ id, path, type }) => [id, `${path}\n${type}`.toLowerCase()]));
  const moduleOf = (/** @type {{module: string}} */ { module }) => modules.get(module) ?? "";
  const shapeText = (/** @type {readonly number[]} */ sizes) => sizes.length === 0 ? "scalar" : sizes.join("×");
  /** @type {Thing[]} */
  const things = [];
  const listed = new Uint8Array(arrays.tensors);
  /** @type {number[][]} */
  const opening = [];
  for (let group = arrays.groups - 1; group >= 0; group -= 1) {
    if (arrays.groupKind[group] === 0) (opening[arrays.groupFirst[group]] ??= []).push(group);
  }
  const list = (/** @type {number} */ place) => {
    if (listed[place] === 1) return;
    listed[place] = 1;
    const { name, id, role, shape, ...tensor } = topology.tensors[place];
    const text = `${name.toLowerCase()}\n${id}\n${role}\n${shapeText(shape)}\n${moduleOf(tensor)}`;
    things.push({ kind: "tensor", place, text });
  };
  topology.ops.forEach((op, place) => {
    for (const group of (opening[place] ?? []).sort((a, b) => arrays.groupDepth[a] - arrays.groupDepth[b]))
      things.push({ kind: "group", place: group, text: `${groupId[group]}\n${groupLabel[group]}`.toLowerCase() });
    inputsOf(arrays, place).forEach(list);
    things.push({ kind: "op", place, text: `${op.name.toLowerCase()}\n${op.id}\n${moduleOf(op)}` });
    outputsOf(arrays, place).forEach(list);
  });
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) list(tensor);
  return things;
}

/** @param {SearchTerm} term @param {Graph} graph @param {Picture} picture @param {boolean} isAboutOps if true, an op has
 * the figures of its outputs @returns {(thing: Thing) => boolean} */
function testOf(term, graph, picture, isAboutOps) {
  const test = affirmative(term, graph, picture, isAboutOps);
  return term.isNot ? (thing) => !test(thing) : test;
}

/** @param {SearchTerm} term @param {Graph} graph @param {Picture} picture @param {boolean} isAboutOps
 * @returns {(thing: Thing) => boolean} */
function affirmative(term, graph, picture, isAboutOps) {
  const { topology, arrays } = graph;
  if (term.kind === "word") return ({ text }) => text.includes(term.word);
  if (term.kind === "pattern") return ({ text }) => term.pattern.test(text.slice(0, LONGEST_TEXT));

  /** Whether it holds of a tensor, or of one that an op puts out. @param {(tensor: number) => boolean} holds
   * @returns {(thing: Thing) => boolean} */
  const ofTensor = (holds) => ({ kind, place }) => {
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
      return ({ kind, place }) => kind === "op" && holds(cost(place));
    }
    const value = valueOf(graph, picture, /** @type {TensorFigure} */ (term.figure));
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
  if (key === "op") return ({ kind, place }) => kind === "op" && topology.ops[place].name.toLowerCase().includes(word);
  if (key === "phase") {
    const half = "forward".startsWith(word) ? 0 : 1;
    return ({ kind, place }) =>
      (kind === "op" ? arrays.opHalf[place] : kind === "tensor" ? arrays.tensorHalf[place] : 0) === half;
  }
  const named = (/** @type {Thing} */ { kind, place }) => (kind === "op" ? topology.ops : topology.tensors)[place];
  if (key === "name") {
    return (thing) =>
      (thing.kind === "group" ? graph.groupLabel[thing.place] : named(thing).name).toLowerCase().includes(word);
  }
  const paths = new Map(topology.modules.map(({ id, path, type }) => [id, `${path} ${type}`.toLowerCase()]));
  return (thing) => (thing.kind === "group" ? thing.text : (paths.get(named(thing).module) ?? "")).includes(word);
}

/** @param {Graph} graph @param {OpFigure} figure @returns {(op: number) => number} NaN where it is not known: no
 * comparison holds of it */
function costOf({ topology }, figure) {
  if (figure === "time") return (op) => topology.op_us?.[op] ?? NaN;
  return (op) => topology.ops[op]?.[figure] ?? NaN;
}

/** @param {Graph} graph @param {Picture} picture @param {TensorFigure} figure
 * @returns {(tensor: number) => number | null} null: no value, or a hidden one */
function valueOf({ arrays, topology }, picture, figure) {
  if (figure === "numel") return (tensor) => arrays.elements[tensor];
  if (figure === "rank") return (tensor) => topology.tensors[tensor].shape.length;
  const { rows, floats, integers, hidden } = picture;
  return (tensor) => {
    const row = rows.get(topology.tensors[tensor].id);
    if (row === undefined || hidden?.rows.has(row)) return null;
    if (figure === "nan") return integers.nan[row];
    if (figure === "inf") return integers.posinf[row] + integers.neginf[row];
    const value = floats[figure][row] ?? NaN;
    return Number.isNaN(value) ? null : value;
  };
}
