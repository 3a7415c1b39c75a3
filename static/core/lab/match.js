/** Matches the ops and tensors of two graphs. Graphs of the same structure match by position. Else ops match by pass,
 * module path, name and order; tensors by their producer, by the tensor they are the gradient of, or by role and name.
 * Things without a partner are listed. No DOM, no recursion. */

import { structureOf } from "../dump/dump.js";
import { memo } from "../memo.js";

const matchesWith = memo((/** @type {MatchableThings} */ a) => memo((/** @type {MatchableThings} */ b) => made(a, b)));

/** @param {MatchableThings} a @param {MatchableThings} b @returns {GraphMatch} kept as long as the two are */
export function matchGraphs(a, b) {
  return matchesWith(a)(b);
}

/** @param {MatchableThings} a @param {MatchableThings} b @returns {GraphMatch} */
function made(a, b) {
  if (a.tensors === b.tensors || structureOf(a) === structureOf(b)) {
    const places = (/** @type {readonly unknown[]} */ things) => Int32Array.from(things, (_, place) => place);
    return { isSame: true, ops: places(b.ops), tensors: places(b.tensors), onlyA: { modules: [], tensors: [] },
      onlyB: { modules: [], tensors: [] } };
  }
  const ops = matchOps(a, b);
  const tensors = matchTensors(a, b, ops);
  const taken = new Set(tensors);
  return {
    isSame: false,
    ops,
    tensors,
    onlyA: alone(a, b, (tensor) => !taken.has(tensor)),
    onlyB: alone(b, a, (tensor) => tensors[tensor] === -1),
  };
}

/** @param {MatchableThings} a @param {MatchableThings} b @returns {Int32Array} */
function matchOps(a, b) {
  const ops = new Int32Array(b.ops.length).fill(-1);
  const [pathA, pathB] = [paths(a), paths(b)];
  const forward = (/** @type {ReadonlyMap<string, string>} */ path) => (/** @type {Op} */ { phase, module, name }) =>
    phase === "forward" ? `${path.get(module)} ${name}` : null;
  pair(a.ops, b.ops, forward(pathA), forward(pathB), ops);

  // A backward op belongs to its forward op, wherever that stands.
  const [placeA, placeB] = [places(a.ops), places(b.ops)];
  const twin = (/** @type {Op} */ { phase, twin, name }, /** @type {(id: string) => number} */ place) => {
    const at = phase === "backward" && twin !== null ? place(twin) : -1;
    return at < 0 ? null : `${at} ${name}`;
  };
  pair(a.ops, b.ops, (op) => twin(op, (id) => placeA.get(id) ?? -1),
    (op) => twin(op, (id) => ops[placeB.get(id) ?? -1]), ops);
  const orphan =
    (/** @type {ReadonlyMap<string, string>} */ path) => (/** @type {Op} */ { phase, twin, module, name }) =>
      phase === "backward" && twin === null ? `${path.get(module)} ${name}` : null;
  pair(a.ops, b.ops, orphan(pathA), orphan(pathB), ops);
  return ops;
}

/** @param {MatchableThings} a @param {MatchableThings} b @param {Int32Array} ops @returns {Int32Array} */
function matchTensors(a, b, ops) {
  const tensors = new Int32Array(b.tensors.length).fill(-1);
  const [placeA, placeB] = [places(a.tensors), places(b.tensors)];
  const taken = new Set();
  const set = (/** @type {number} */ there, /** @type {number} */ here) => {
    if (there < 0 || here < 0 || tensors[here] !== -1 || taken.has(there)) return;
    tensors[here] = there;
    taken.add(there);
  };
  // A gradient belongs to what it is the gradient of, even where another op makes it.
  b.ops.forEach(({ outputs }, op) => {
    const other = a.ops[ops[op]];
    outputs.forEach((id, at) => {
      const [there, here] = [placeA.get(other?.outputs[at] ?? "") ?? -1, placeB.get(id) ?? -1];
      if (a.tensors[there]?.gradient_of === null && b.tensors[here]?.gradient_of === null) set(there, here);
    });
  });
  /** Matches the remaining tensors by a key.
   * @param {(tensor: Tensor) => string | null} keyA @param {(tensor: Tensor) => string | null} keyB */
  const byKey = (keyA, keyB) => {
    const found = new Int32Array(b.tensors.length).fill(-1);
    const isFree = (/** @type {Tensor} */ { id }) => !taken.has(placeA.get(id) ?? -1);
    const isOpen = (/** @type {Tensor} */ { id }) => tensors[placeB.get(id) ?? -1] === -1;
    pair(a.tensors, b.tensors, (tensor) => isFree(tensor) ? keyA(tensor) : null,
      (tensor) => isOpen(tensor) ? keyB(tensor) : null, found);
    found.forEach(set);
  };
  const leaf = (/** @type {Tensor} */ { producer, gradient_of, role, name }) =>
    producer === null && gradient_of === null ? `${role} ${name}` : null;
  byKey(leaf, leaf);
  byKey(({ gradient_of }) => gradient_of === null ? null : String(placeA.get(gradient_of)),
    ({ gradient_of }) =>
      gradient_of === null || tensors[placeB.get(gradient_of) ?? -1] < 0 ? null
        : String(tensors[placeB.get(gradient_of) ?? -1]));
  return tensors;
}

/** The first of a name with the first of that name, the second with the second. @template T @param {readonly T[]} a
 * @param {readonly T[]} b @param {(thing: T) => string | null} keyA null: not to be paired
 * @param {(thing: T) => string | null} keyB @param {Int32Array} into of B → of A */
function pair(a, b, keyA, keyB, into) {
  /** @type {Map<string, number[]>} */
  const waiting = new Map();
  for (let at = a.length - 1; at >= 0; at -= 1) {
    const thing = a[at];
    const key = thing === undefined ? null : keyA(thing);
    if (key === null) continue;
    const others = waiting.get(key);
    if (others === undefined) waiting.set(key, [at]);
    else others.push(at);
  }
  b.forEach((thing, at) => {
    const key = keyB(thing);
    const other = key === null ? undefined : waiting.get(key)?.pop();
    if (other !== undefined) into[at] = other;
  });
}

/** @param {MatchableThings} here @param {MatchableThings} there @param {(tensor: number) => boolean} isAlone */
function alone(here, there, isAlone) {
  const path = paths(here);
  const others = new Set(there.modules.map(({ path }) => path));
  const modules = here.modules.filter(({ path }) => !others.has(path));
  const inside = new Set(modules.map(({ path }) => path));
  // A parameter is of the module that it is named after, wherever it is read.
  const isTold = (/** @type {Tensor} */ { module, name }) =>
    inside.has(path.get(module) ?? "") || [...inside].some((stem) => name.startsWith(`${stem}.`));
  const tensors = here.tensors.flatMap((tensor, at) =>
    tensor.gradient_of === null && tensor.role !== "gradient" && isAlone(at) && !isTold(tensor) ? [at] : []
  );
  return { modules: modules.map(({ path, type }) => `${path} ${type}`.trim()), tensors };
}

/** The id of a selection in another graph; unchanged if it is a name that both graphs have.
 * @param {string} select as in addresses @param {MatchableThings} from @param {MatchableThings} to
 * @returns {string} "" for an op that has no partner */
export function carried(select, from, to) {
  const { ops, tensors } = matchGraphs(from, to);
  const op = from.ops.findIndex(({ id }) => id === select);
  if (op >= 0) return to.ops[ops.indexOf(op)]?.id ?? "";
  const tensor = from.tensors.findIndex(({ id, name }) => id === select || name === select);
  if (tensor < 0) return select;
  const there = to.tensors[tensors.indexOf(tensor)];
  return there === undefined || (there.name === select && from.tensors[tensor]?.id !== select) ? select : there.id;
}

/** @param {MatchableThings} things @returns {Map<string, string>} module id → path */
function paths({ modules }) {
  return new Map(modules.map(({ id, path }) => [id, path]));
}

/** @param {readonly {id: string}[]} things @returns {Map<string, number>} */
function places(things) {
  return new Map(things.map(({ id }, place) => [id, place]));
}
