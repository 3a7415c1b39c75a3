/** The groups of a graph as a tree: runs of ops of one module, in runs of its parent, and so on up to the whole model.
 * Runs follow the order of execution, which is a topological order, so what is drawn of a tree never forms a cycle. No
 * recursion: models nest deep. */

import { Variants } from "./variants.js";

// Repeated blocks, folded: the first repetition stands for all, the others are put away together.

const LONGEST_PERIOD = 8;
/** Ops that only rearrange elements, though they may copy them. */
const REARRANGING = new Set(["contiguous", "getitem", "pad", "to"]);
/** How often a run of leaves has to repeat to be folded, and a run that holds groups of groups. */
const FEWEST = { leaves: 4, blocks: 2 };
/** Items of a stretch, at least. */
const FEWEST_IN_STRETCH = 3;

/** @param {GroupNode} group @param {readonly number[]} shapes of its items; equal numbers, equal structure
 * @param {Variants} variants
 * @returns {(number | GroupNode)[]} its items, every periodic run of them and every run of blocks that differ in little
 * replaced by one fold */
function foldSiblings({ items, module }, shapes, variants) {
  const matches = matchLengths(shapes);
  /** @type {(number | GroupNode)[]} */
  const folded = [];
  for (let at = 0; at < items.length;) {
    const equal = longestRun(items, matches, at);
    const alike = variants.run(items, shapes, at, equal.period * equal.repeats);
    const { period, repeats } = alike > 0 ? { period: 1, repeats: alike } : equal;
    if (repeats === 0) {
      folded.push(items[at]);
      at += 1;
      continue;
    }
    const end = at + period * repeats;
    const differences = variants.differences(items.slice(at, end), shapes.slice(at, end), period);
    /** @type {GroupNode} */
    const rest = { kind: "rest", module, items: items.slice(at + period, end), repeats: repeats - 1 };
    folded.push({ kind: "fold", module, items: [...items.slice(at, at + period), rest], repeats, differences });
    at = end;
  }
  return folded;
}

/** @param {Topology} topology @returns {boolean[]} op → whether it only rearranges elements or computes indices */
function plumbingOf({ ops, tensors }) {
  const integral = new Set(tensors.filter(({ dtype }) => /^(u?int|bool)/.test(dtype)).map(({ id }) => id));
  return ops.map(({ name, bytes, outputs }) =>
    bytes === 0 || REARRANGING.has(name) || (outputs.length > 0 && outputs.every((id) => integral.has(id)))
  );
}

/** @param {readonly (number | GroupNode)[]} items of a group @param {number} module @param {readonly boolean[]} plumbing
 * @returns {(number | GroupNode)[]} the same; between modules, every run of such ops is one group */
function foldPlumbing(items, module, plumbing) {
  const isPlumbing = (/** @type {number | GroupNode} */ item) => typeof item === "number" && plumbing[item];
  /** @type {(number | GroupNode)[]} */
  const folded = [];
  if (items.every((item) => typeof item === "number")) return [...items];
  for (let at = 0; at < items.length;) {
    let end = at;
    while (end < items.length && isPlumbing(items[end])) end += 1;
    if (end - at > 1) folded.push({ kind: "plumbing", module, items: items.slice(at, end), repeats: 0 });
    else folded.push(...items.slice(at, Math.max(end, at + 1)));
    at = Math.max(end, at + 1);
  }
  return folded;
}

/** @param {readonly (number | GroupNode)[]} items of the whole model @param {number} module
 * @returns {(number | GroupNode)[]} the same; where there are blocks, the layers and ops before, between and after them
 * are one group each, without the last item, which is the loss */
function foldStretches(items, module) {
  const isBlock = (/** @type {number | GroupNode} */ item) => typeof item !== "number" && holdsGroup(item);
  if (!items.some(isBlock)) return [...items];
  /** @type {(number | GroupNode)[]} */
  const folded = [];
  for (let at = 0; at < items.length;) {
    let end = at;
    while (end < items.length - 1 && !isBlock(items[end])) end += 1;
    const stretch = items.slice(at, end);
    const layers = stretch.filter((item) => typeof item !== "number" && item.kind === "module");
    if (stretch.length >= FEWEST_IN_STRETCH && layers.length > 1)
      folded.push({ kind: "stretch", module, items: stretch, repeats: 0 });
    else folded.push(...stretch);
    folded.push(...items.slice(end, end + 1));
    at = end + 1;
  }
  return folded;
}

/** @param {readonly number[]} shapes @returns {Int32Array[]} [period][at]: how many items from there on equal the one a
 * period later */
function matchLengths(shapes) {
  const lengths = [];
  for (let period = 0; period <= LONGEST_PERIOD; period += 1) {
    const run = new Int32Array(shapes.length + 1);
    for (let at = shapes.length - 1 - period; at >= 0 && period > 0; at -= 1)
      run[at] = shapes[at] === shapes[at + period] ? run[at + 1] + 1 : 0;
    lengths.push(run);
  }
  return lengths;
}

/** @param {readonly (number | GroupNode)[]} items @param {readonly Int32Array[]} matches @param {number} at
 * @returns {{period: number, repeats: number}} of the run that covers most; of equal ones that with the shortest
 * period */
function longestRun(items, matches, at) {
  let best = { period: 0, repeats: 0 };
  for (let period = 1; period <= LONGEST_PERIOD; period += 1) {
    const repeats = Math.floor(matches[period][at] / period) + 1;
    if (repeats < FEWEST.blocks || repeats * period <= best.repeats * best.period) continue;
    const holdsGroups = items.slice(at, at + period).some((item) => typeof item !== "number" && holdsGroup(item));
    if (repeats >= (holdsGroups ? FEWEST.blocks : FEWEST.leaves)) best = { period, repeats };
  }
  return best;
}

/** @param {GroupNode} group @returns {boolean} */
function holdsGroup({ items }) {
  const isModule = (/** @type {number | GroupNode} */ item) => typeof item !== "number" && item.kind === "module";
  return items.some((item) => isModule(item) || (typeof item !== "number" && item.items.some(isModule)));
}

/** @param {Topology} topology @returns {GroupNode} the whole model */
export function groupTree(topology) {
  const { modules } = topology;
  const root = runs(topology);
  dissolve(root, modules);
  fold(root, topology, modules);
  return root;
}

/** @param {number} module @returns {GroupNode} */
function emptyGroup(module) {
  return { kind: "module", module, items: [], repeats: 0 };
}

/** @param {Topology} topology @returns {GroupNode} */
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

/** Takes away wrappers: groups that alone among their siblings hold groups, and are nothing but groups or the trunk of a
 * model, such as the GPT2Model of a GPT2LMHeadModel. @param {GroupNode} root @param {readonly Module[]} modules */
function dissolve(root, modules) {
  for (;;) {
    const only = onlyHolder(root);
    if (only === undefined) return;
    if (only.items.some((item) => typeof item === "number") && !isTrunk(only, modules)) return;
    root.items = root.items.flatMap((item) => item === only ? only.items : [item]);
  }
}

/** @param {GroupNode} around @returns {GroupNode | undefined} the group in it that alone holds groups */
function onlyHolder(around) {
  const holders = groupsIn(around).filter((group) => groupsIn(group).length > 0);
  return holders.length === 1 ? holders[0] : undefined;
}

/** @param {GroupNode} group @param {readonly Module[]} modules @returns {boolean} whether it holds one list of blocks, all
 * of one type */
function isTrunk(group, modules) {
  const list = onlyHolder(group);
  if (list === undefined) return false;
  const blocks = groupsIn(list);
  const isList = blocks.length === list.items.length && blocks.length > 1
    && blocks.every((block) =>
      groupsIn(block).length > 0 && modules[block.module].type === modules[blocks[0].module].type
    );
  return isList || isTrunk(list, modules);
}

/** @param {GroupNode} group @returns {GroupNode[]} */
function groupsIn({ items }) {
  return items.filter((item) => typeof item !== "number");
}

/** Folds repetitions, from the innermost groups outward. @param {GroupNode} root @param {Topology} topology
 * @param {readonly Module[]} modules */
function fold(root, topology, modules) {
  const { ops } = topology;
  const plumbing = plumbingOf(topology);
  const variants = new Variants(topology);
  const order = [root];
  for (let at = 0; at < order.length; at += 1) for (const child of groupsIn(order[at] ?? root)) order.push(child);
  /** Numbers of structures, by their content. @type {Map<string, number>} */
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
    variants.add(group, shapes);
    group.items = foldPlumbing(foldSiblings(group, shapes, variants), group.module, plumbing);
  }
  root.items = foldStretches(root.items, root.module);
}
