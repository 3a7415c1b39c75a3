/** Finds what an item depends on, and what depends on it, up to a number of ops away. The backward pass is part of it:
 * a gradient depends on the forward values that were kept for it. It does not depend on the loss's value, only on its
 * expression, so nothing reaches from the loss to the seed of the backward pass. No DOM, no recursion. */

import { backwardId } from "./graph.js";
import { entriesOf, inputsOf, outputsOf, readersOf, wiringOf } from "./wiring.js";

/** @typedef {{hops: number, direction: "up" | "down" | "both"}} Reach hops: how many ops away; Infinity for all */

/** Everything that lies upstream or downstream of an item, the item and the enclosing groups included.
 * @param {Graph} graph @param {Item} item a group stands for all ops of its half @param {Reach} how
 * @returns {Set<string>} ids as in addresses: tensors, ops, groups */
export function reach(graph, item, { hops, direction }) {
  const { arrays } = graph;
  const ops = new Uint8Array(arrays.ops);
  const tensors = new Uint8Array(arrays.tensors);
  for (const way of /** @type {const} */ (["up", "down"])) {
    if (direction !== way && direction !== "both") continue;
    const walked = walk(graph, item, way, 2 * hops);
    walked.ops.forEach((isIn, op) => (ops[op] = ops[op] | isIn));
    walked.tensors.forEach((isIn, tensor) => (tensors[tensor] = tensors[tensor] | isIn));
  }
  return idsOf(graph, ops, tensors);
}

/** Ids of marked ops and tensors, and of all groups that hold a marked op: where a group is closed, it stands for them.
 * @param {Graph} graph @param {Uint8Array} ops marked with 1 @param {Uint8Array} tensors */
export function idsOf(graph, ops, tensors) {
  const { arrays, topology, tensorId, groupId } = graph;
  /** @type {Set<string>} */
  const ids = new Set();
  const groups = [new Uint8Array(arrays.groups), new Uint8Array(arrays.groups)];
  for (let op = 0; op < arrays.ops; op += 1) {
    if (ops[op] !== 1) continue;
    ids.add(topology.ops[op].id);
    const marked = groups[arrays.opHalf[op]];
    let group = arrays.opGroup[op];
    while (marked !== undefined && group >= 0 && marked[group] === 0) {
      marked[group] = 1;
      group = arrays.groupParent[group];
    }
  }
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) if (tensors[tensor] === 1) ids.add(tensorId[tensor]);
  groups.forEach((marked, half) => {
    for (let group = 0; group < arrays.groups; group += 1) {
      if (marked[group] !== 1) continue;
      const id = groupId[group];
      ids.add(half === 0 ? id : backwardId(id));
    }
  });
  return ids;
}

/** The ops that an item stands for, in order of execution. @param {Graph} graph @param {Item} item
 * @returns {number[]} none for a tensor */
export function opsOf({ arrays }, item) {
  if (item.kind === "tensor") return [];
  if (item.kind === "op") return [item.index];
  const ops = [];
  const wanted = item.half === "forward" ? 0 : 1;
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] !== wanted) continue;
    let group = arrays.opGroup[op];
    while (group >= 0 && group !== item.index) group = arrays.groupParent[group];
    if (group === item.index) ops.push(op);
  }
  return ops;
}

/** @param {Graph} graph @param {Item} item @param {"up" | "down"} way @param {number} limit steps from an op to a
 * tensor or from a tensor to an op @returns {{ops: Uint8Array, tensors: Uint8Array}} */
function walk(graph, item, way, limit) {
  const { arrays } = graph;
  const { needed, needs } = wiringOf(graph);
  const met = { ops: new Uint8Array(arrays.ops), tensors: new Uint8Array(arrays.tensors) };
  const ahead = way === "up" ? inputsOf : outputsOf;

  /** A layer of ops and one of tensors take turns. @type {{ops: number[], tensors: number[]}} */
  let next = { ops: [], tensors: [] };
  /** @param {"ops" | "tensors"} kind @param {Iterable<number>} indices */
  const meet = (kind, indices) => {
    for (const index of indices) {
      if (index < 0 || met[kind][index] === 1) continue;
      met[kind][index] = 1;
      next[kind].push(index);
    }
  };
  if (item.kind === "tensor") meet("tensors", [item.index]);
  else meet("ops", opsOf(graph, item));
  for (let step = 0; step < limit && next.ops.length + next.tensors.length > 0; step += 1) {
    const front = next;
    next = { ops: [], tensors: [] };
    for (const op of front.ops) {
      meet("tensors", ahead(arrays, op));
      if (way === "up") meet("tensors", entriesOf(needs, op));
    }
    for (const tensor of front.tensors) {
      if (way === "up") meet("ops", [arrays.producer[tensor]]);
      else {
        meet("ops", readersOf(arrays, tensor));
        meet("ops", entriesOf(needed, tensor));
      }
    }
  }
  return met;
}
