/** Finds the selection and the open groups again in another graph of nearly the same model: after an edit of its code,
 * or where control flow depends on values. Ids count in order of execution, so one more op shifts all those after it;
 * modules are therefore known by their path, parameters and inputs by their name, and ops by their place among the ops
 * of their module. At the level aten an op is a group, and its counterpart the ATen op that makes its result. No DOM. */

import { expansionOf, written } from "./expansion.js";
import { find, GROUP_KINDS, idOf, openGroups } from "./graph.js";
import { gradientsOf, outputsOf } from "./wiring.js";

/** Maps the ops, tensors and groups of one graph to those of another. */
export class Counterparts {
  /** op → op; -1: missing */
  #ops;
  /** @type {Map<string, number[]>} */
  #named;
  /** tensor of the graph after → its gradient */
  #gradients;

  /** @param {Graph} before @param {Graph} after */
  constructor(before, after) {
    this.before = before;
    this.after = after;
    this.#ops = counterpartsOfOps(before, after);
    this.#named = byKey(after.topology.tensors, ({ name }) => name);
    this.#gradients = gradientsOf(after);
  }

  /** @param {Item} item @returns {Item | null} null: it has gone */
  of(item) {
    if (item.kind === "group") {
      const group = this.#group(item.index);
      return group < 0 ? null : { ...item, index: group };
    }
    const index = item.kind === "op" ? this.op(item.index) : this.#tensor(item.index);
    return index < 0 ? null : { ...item, index };
  }

  /** @param {string} id as in addresses @returns {string} likewise; "" for what has gone */
  id(id) {
    const item = find(this.before, id);
    const there = item === null ? null : this.of(item);
    return there === null ? "" : idOf(this.after, there);
  }

  /** @param {number} op @returns {number} -1: it has gone */
  op(op) {
    return this.#ops[op];
  }

  /** @param {number} tensor @returns {number} -1: it has gone */
  #tensor(tensor) {
    const { before, after } = this;
    const of = before.arrays.gradientOf[tensor];
    // A gradient has no gradient here, or a dump that says otherwise would be followed in circles.
    const original = of < 0 || before.arrays.gradientOf[of] >= 0 ? -1 : this.#tensor(of);
    if (original >= 0) return this.#gradients[original];
    const maker = before.arrays.producer[tensor];
    const op = maker < 0 ? -1 : this.op(maker);
    if (op >= 0) {
      const place = outputsOf(before.arrays, maker).indexOf(tensor);
      const made = outputsOf(after.arrays, op)[place];
      if (made !== undefined) return made;
    }
    const name = before.topology.tensors[tensor]?.name ?? "";
    const theirs = this.#named.get(name) ?? [];
    if (theirs.length < 2) return theirs[0] ?? -1;
    // Several tensors have the name: take the one of the same order.
    let earlier = 0;
    for (let at = 0; at < tensor; at += 1) if (before.topology.tensors[at]?.name === name) earlier += 1;
    return theirs[earlier] ?? -1;
  }

  /** @param {number} group @returns {number} -1: it has gone */
  #group(group) {
    const { before, after } = this;
    const id = before.groupId[group];
    const same = find(after, id);
    if (same?.kind === "group") return same.index;
    if (GROUP_KINDS[before.arrays.groupKind[group]] === "module") return -1;
    // A fold is named after how often it repeats, too.
    const stem = unrepeated(id);
    return after.groupId.findIndex((each, at) =>
      after.arrays.groupKind[at] === before.arrays.groupKind[group] && unrepeated(each) === stem
    );
  }
}

/** The changes to a view so that it shows the same selection, groups and step in the graph after. Ids of missing things
 * are dropped, except those of groups, which may come back. @param {View} view @param {Counterparts} counterparts */
export function keepView(view, counterparts) {
  const { before, after } = counterparts;
  const select = view.select === "" ? "" : counterparts.id(view.select);
  const [figure = ""] = /^.*(?=\.)/.exec(view.predict) ?? [];
  const isAsked = view.predict === "" || figure === "loss"
    || after.topology.tensors.some(({ name }) => name === figure);
  return {
    select,
    toggled: keepToggled(view, counterparts),
    step: keepStep(view.step, counterparts, before, after),
    ...(select === "" ? { reach: "" } : {}),
    ...(isAsked ? {} : { predict: "", guess: "" }),
  };
}

/** @param {View} view @param {Counterparts} counterparts @returns {string} `toggled`: what was opened or closed by hand
 * is so again, whatever the level says of it now */
function keepToggled(view, counterparts) {
  const { before, after } = counterparts;
  const expansion = expansionOf(view);
  if (expansion.toggled.length === 0) return "";
  const { open } = openGroups(before, expansion);
  const byLevel = openGroups(after, { ...expansion, toggled: [] }).open;
  const ids = new Set();
  for (const id of expansion.toggled) {
    const item = find(before, id);
    const there = item?.kind === "group" ? counterparts.of(item) : null;
    if (item === null || there === null) ids.add(id);
    else if (byLevel[there.index] !== open[item.index]) ids.add(after.groupId[there.index]);
  }
  return written(ids);
}

/** @param {number} step @param {Counterparts} counterparts @param {Graph} before @param {Graph} after
 * @returns {number} the same op's; of one that has gone, that of the last before it which is still there */
function keepStep(step, counterparts, before, after) {
  for (let op = Math.min(step, before.arrays.ops - 1); op >= 0; op -= 1) {
    const there = counterparts.op(op);
    if (there >= 0) return Math.min(there, Math.max(0, after.arrays.ops - 1));
  }
  return 0;
}

/** @param {Graph} before @param {Graph} after @returns {Int32Array} */
function counterpartsOfOps(before, after) {
  const found = new Int32Array(before.arrays.ops).fill(-1);
  const [ours, theirs] = [opsByPlace(before), opsByPlace(after)];
  for (const [place, ops] of ours) {
    const others = theirs.get(place) ?? [];
    align(ops.map((op) => before.opLabel[op]), others.map((op) => after.opLabel[op])).forEach((at, order) => {
      found[ops[order]] = others[at] ?? -1;
    });
  }
  const match = (/** @type {number} */ op, /** @type {number} */ other) => {
    if (found[op] < 0) found[op] = other;
  };
  for (const [place, ops] of opsByGroup(before)) {
    const inside = theirs.get(place);
    if (inside !== undefined) { for (const op of ops) match(op, makerOf(after, inside)); }
  }
  for (const [place, [op]] of opsByGroup(after)) for (const inside of ours.get(place) ?? []) match(inside, op);
  return found;
}

/** @param {Graph} graph @returns {Map<string, number[]>} pass and path of the group that an op is at the level aten →
 * that op, or the ops that are its backward */
function opsByGroup({ topology: { modules, ops } }) {
  const paths = new Map(modules.map(({ id, path }) => [id, path]));
  const calls = new Map();
  /** @type {Map<string, string>} */
  const groups = new Map();
  return byKey(ops, ({ id, name, phase, module, twin }) => {
    let group = groups.get(twin ?? "");
    if (group === undefined) {
      const path = [paths.get(module), name].filter(Boolean).join(".");
      const call = calls.get(path) ?? 0;
      calls.set(path, call + 1);
      group = call > 0 ? `${path}_${call}` : path;
      groups.set(id, group);
    }
    return `${phase} ${group}`;
  });
}

/** @param {Graph} graph @param {readonly number[]} group ops of one module
 * @returns {number} the first that makes something for others, else the last */
function makerOf({ arrays, topology: { ops } }, group) {
  const { consumers, consumerStart } = arrays;
  return group.find((op) =>
    outputsOf(arrays, op).some((tensor) =>
      consumers.slice(consumerStart[tensor], consumerStart[tensor + 1]).some((reader) =>
        ops[reader].module !== ops[op].module
      )
    )
  ) ?? group[group.length - 1];
}

/** @param {Graph} graph @returns {Map<string, number[]>} pass and module → its ops, in order of execution */
function opsByPlace({ topology: { modules, ops } }) {
  const paths = new Map(modules.map(({ id, path }) => [id, path]));
  return byKey(ops, ({ phase, module }) => `${phase} ${paths.get(module) ?? ""}`);
}

/** Aligns two lists of names. Equal beginnings and equal ends match. In between, names match by position if both lists
 * are equally long, else by name, first to first. @param {readonly string[]} names @param {readonly string[]} others
 * @returns {number[]} for each of `names` its place in `others`; -1: it has none */
export function align(names, others) {
  const most = Math.min(names.length, others.length);
  let head = 0;
  while (head < most && names[head] === others[head]) head += 1;
  let tail = 0;
  while (tail < most - head && names[names.length - 1 - tail] === others[others.length - 1 - tail]) tail += 1;
  const shift = others.length - names.length;
  const [end, otherEnd] = [names.length - tail, others.length - tail];
  const between = byKey(others.slice(head, otherEnd), (name) => name);
  return names.map((name, at) => {
    if (at < head) return at;
    if (at >= end) return at + shift;
    if (shift === 0) return at;
    const place = between.get(name)?.shift();
    return place === undefined ? -1 : head + place;
  });
}

/** @param {string} id of a fold or a rest @returns {string} whatever the number of repetitions */
function unrepeated(id) {
  return id.replace(/\*\d+(?=(\.rest)?\/forward)/, "*");
}

/** @template T @param {readonly T[]} items @param {(item: T) => string} keyOf @returns {Map<string, number[]>} places
 * by key */
function byKey(items, keyOf) {
  /** @type {Map<string, number[]>} */
  const places = new Map();
  items.forEach((item, place) => {
    const key = keyOf(item);
    const known = places.get(key);
    if (known === undefined) places.set(key, [place]);
    else known.push(place);
  });
  return places;
}
