/**
 * The groups of a graph as a tree: runs of ops of one module, in runs of its parent, and so on up to the whole model.
 * Runs follow the order of execution, which is a topological order, so what is drawn of a tree never forms a cycle.
 * No recursion: models nest deep.
 */

import { foldSiblings } from "./folds.js";

/**
 * @param {Topology} topology
 * @returns {GroupNode} the whole model
 */
export function groupTree(topology) {
  const { modules } = topology;
  const root = runs(topology);
  dissolve(root);
  fold(root, topology, modules);
  return root;
}

/** @param {number} module @returns {GroupNode} */
function emptyGroup(module) {
  return { kind: "module", module, items: [], repeats: 0 };
}

/**
 * @param {Topology} topology
 * @returns {GroupNode}
 */
function runs({ modules, ops }) {
  const position = new Map(modules.map(({ id }, index) => [id, index]));
  const top = Math.max(0, modules.findIndex(({ parent }) => parent === null));
  /** @type {number[][]} */
  const chains = [];
  /** @param {string} id @returns {number[]} the modules around it and itself, outermost first, without the whole
   * model */
  const chainOf = (id) => {
    const start = position.get(id);
    if (start === undefined) return [];
    const known = chains[start];
    if (known !== undefined) return known;
    const chain = [];
    // A dump's parents may go in circles: no chain is longer than there are modules.
    for (let at = /** @type {number | undefined} */ (start);
      at !== undefined && at !== top && chain.length < modules.length;)
    {
      chain.push(at);
      at = position.get(modules[at]?.parent ?? "");
    }
    return (chains[start] = chain.reverse());
  };

  const root = emptyGroup(top);
  const open = [root];
  ops.forEach((op, index) => {
    if (op.phase !== "forward") return;
    const chain = chainOf(op.module);
    let depth = 0;
    while (depth < chain.length && open[depth + 1]?.module === chain[depth]) depth += 1;
    open.length = depth + 1;
    for (; depth < chain.length; depth += 1) {
      const group = emptyGroup(chain[depth] ?? top);
      open[depth].items.push(group);
      open.push(group);
    }
    open[depth].items.push(index);
  });
  return root;
}

/** Takes away wrappers: groups of nothing but groups that alone among their siblings hold groups.
 * @param {GroupNode} root */
function dissolve(root) {
  for (;;) {
    const holders = groupsIn(root).filter((group) => groupsIn(group).length > 0);
    const [only] = holders;
    if (holders.length !== 1 || only === undefined || only.items.some((item) => typeof item === "number")) return;
    root.items = root.items.flatMap((item) => item === only ? only.items : [item]);
  }
}

/** @param {GroupNode} group @returns {GroupNode[]} */
function groupsIn({ items }) {
  return items.filter((item) => typeof item !== "number");
}

/**
 * Folds repetitions, from the innermost groups outward.
 *
 * @param {GroupNode} root
 * @param {Topology} topology
 * @param {readonly Module[]} modules
 */
function fold(root, { ops }, modules) {
  const order = [root];
  for (let at = 0; at < order.length; at += 1) for (const child of groupsIn(order[at] ?? root)) order.push(child);
  /** Structures seen, by what they are made of. @type {Map<string, number>} */
  const known = new Map();
  /** @type {Map<GroupNode, number>} */
  const structures = new Map();
  const numbered = (/** @type {string} */ key) => {
    const number = known.get(key) ?? known.size;
    known.set(key, number);
    return number;
  };
  for (const group of order.reverse()) {
    const shapes = group.items.map((item) =>
      typeof item === "number" ? numbered(`op ${ops[item].name}`) : (structures.get(item) ?? -1)
    );
    structures.set(group, numbered(`${modules[group.module].type}(${shapes.join()})`));
    group.items = foldSiblings(group, shapes);
  }
}
