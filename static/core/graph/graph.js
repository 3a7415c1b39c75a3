/** Builds a graph from a topology: numbers its parts, and adds groups, ids for addresses and the arrays for layouts. No
 * DOM, no geometry, no recursion. */

import { idIndex } from "../ids.js";
import { anchors, results, wiring } from "./wiring.js";
import { groupTree } from "./group-tree.js";
import { labelLines } from "../labels.js";
import { memo } from "../memo.js";

export const ROLES =
  /** @type {const} */ (["input", "target", "parameter", "buffer", "constant", "preactivation", "activation",
    "intermediate", "loss", "gradient", "saved"]);

export const GROUP_KINDS = /** @type {const} */ (["module", "stretch", "fold", "rest", "plumbing"]);

/** How many of GROUP_KINDS are groups in a drawing. The items of a group of another kind belong to the group around it. */
export const KINDS = { modules: 1, stretches: 2, all: GROUP_KINDS.length };

/** A graph of more boxes than this at layer level has its repetitions folded. At level "auto" its layers
 * are shown if their forward boxes are at most MAX_AT_SIGHT, else the outermost groups that are at least MIN_AT_SIGHT. */
const MAX_UNFOLDED = 160;
const MAX_AT_SIGHT = 24;
const MIN_AT_SIGHT = 6;
/** Up to this number, equal stages of a network stay open. */
const MAX_STAGES = 4;
/** Width of a note's letter relative to a name's letter, and the maximum width of a note in letters of a name. */
const NOTE_LETTER = 0.75;
const MAX_NOTE = 48;
/** A fold's label names this many items of its pattern. */
const NAMED_ITEMS = 3;

/** differences: of each fold what is different in some of its repetitions; activations: of each op the name of the activation that it computes, or ""; tensorId: in addresses, the name where it is unique, else the id; groupId: of the forward half, layers.0/forward;
 * groupModule: position in the topology's modules; opIndex, tensorIndex: by id in the dump; groupIndex: by id in addresses; nameIndex: by name, -1 for the name of several tensors.
 * @param {Topology} topology whose ids hold together, as in a checked dump; what dangles is left out */
export function buildGraph(topology) {
  const { ops, tensors, modules } = topology;
  const [opIndex, tensorIndex] = [idIndex(ops), idIndex(tensors)];
  const groups = numberGroups(topology);
  const opGroup = groupOfOps(topology, groups.nodes);
  const wired = wiring(topology);
  const opAnchor = anchors(topology, opIndex, wired);
  ops.forEach((_, op) => {
    const anchor = opAnchor[op];
    if (anchor >= 0) opGroup[op] = opGroup[anchor];
  });

  const activations = activationsOf(topology);
  const opLabel = ops.map(({ name }, op) => withActivation(name, activations[op] ?? ""));
  const paths = new Set(modules.map(({ path }) => path));
  const tensorLabel = tensors.map(({ name }) => withoutPath(name, paths));
  const groupLabel = groups.nodes.map((node) => labelOfGroup(node, topology, activations));
  /** As they are measured: a fold's label is followed by how often it repeats. */
  const measured = groups.nodes.map((node, group) =>
    node.kind === "fold" ? `${groupLabel[group]} × ${node.repeats}` : groupLabel[group]
  );
  const differences = groups.nodes.map((node) => node.differences ?? []);
  // The data for a layout, as numbers; -1 means none. Ops and tensors have the numbers of the topology; groups are
  // numbered in the order of their first op, and 0 is the whole model.
  const arrays = {
    ops: ops.length,
    tensors: tensors.length,
    groups: groups.nodes.length,
    opHalf: Uint8Array.from(ops, ({ phase }) => phase === "forward" ? 0 : 1),
    opGroup, // innermost group; of a backward op its anchor's
    opAnchor, // backward op → the forward op above it: its twin, or the first reader of the leaf of its gradient
    opLabelLetters: Uint8Array.from(opLabel, longestLine), // longest line of the op's label
    ...wired,
    tensorRole: Uint8Array.from(tensors, ({ role }) => Math.max(0, ROLES.findIndex((name) => name === role))),
    elements: Float64Array.from(tensors, ({ shape }) => shape.reduce((product, size) => product * size, 1)),
    tensorLabelLetters: Uint8Array.from(tensorLabel, (label) => Math.min(255, label.length)),
    isResult: results(topology, wired, tensorIndex), // drawn even where nothing reads it
    ...groups.columns,
    groupDifferences: Uint8Array.from(differences, ({ length }) => length), // of a fold: lines that say what is different
    groupLabelLetters: Uint8Array.from(measured,
      (label, group) =>
        Math.max(longestLine(label), ...differences[group].map(({ length }) =>
          Math.min(MAX_NOTE, NOTE_LETTER * length)
        ))),
  };
  const groupId = groupIds(groups.nodes, topology);
  const { tensorId, groupIndex, nameIndex } = addresses(topology, groupId, opIndex, tensorIndex);
  const groupModule = Int32Array.from(groups.nodes, ({ module }) => Math.min(module, modules.length - 1));
  return { topology, arrays, opLabel, activations, differences, tensorLabel, tensorId, groupId, groupLabel, groupModule,
    opIndex, tensorIndex, groupIndex, nameIndex };
}

/** @param {Graph} graph @param {string} id as in addresses, or that of an op or tensor in the dump
 * @returns {Item | null} */
export function find(graph, id) {
  const { topology, arrays, opIndex, tensorIndex, groupIndex, nameIndex, tensorId } = graph;
  const group = groupIndex.get(id);
  if (group !== undefined) return group;
  const op = opIndex.get(id);
  if (op !== undefined) return { kind: "op", index: op, half: topology.ops[op].phase };
  const index = tensorIndex.get(id) ?? nameIndex.get(id) ?? -1;
  if (index < 0 || (!tensorIndex.has(id) && tensorId[index] !== id)) return null;
  return { kind: "tensor", index, half: arrays.tensorHalf[index] === 1 ? "backward" : "forward" };
}

/** @param {Graph} graph @param {Item} item @returns {string} as in addresses, whatever is open; "" for what is not in
 * the graph */
export function idOf(graph, { kind, index, half }) {
  if (kind === "tensor") return graph.tensorId[index];
  if (kind === "op") return graph.topology.ops[index].id;
  const id = graph.groupId[index];
  return half === "forward" ? id : backwardId(id);
}

/** @param {string} id of a group's forward half @returns {string} of its backward half */
export function backwardId(id) {
  return id.replace(/\/forward(?=[^/]*$)/, "/backward");
}

/** Which groups are open, one number per group, and which kinds there are, see KINDS; entries of other kinds are ignored.
 * @param {Graph} graph @param {Expansion} expansion @returns {{open: Uint8Array, kinds: number}} */
export function openGroups({ arrays, groupId }, { level, toggled, fold }) {
  const { groups, groupKind, groupDepth, groupIsLeaf, groupRepeats, groupParent } = arrays;
  const open = new Uint8Array(groups);
  const flipped = new Set(toggled);
  const isLarge = boxesAtLayerLevel(arrays) > MAX_UNFOLDED;
  const isOverview = level === "auto" && isLarge;
  /** @param {number} depth @param {boolean} withLeaves whether the innermost groups open too */
  const openTo = (depth, withLeaves) => {
    for (let group = 0; group < groups; group += 1) {
      const isOpen = groupKind[group] === 0 && groupDepth[group] < depth && (withLeaves || groupIsLeaf[group] === 0);
      open[group] = isOpen || (level !== "auto" && groupKind[group] === 1) ? 1 : 0;
    }
    // A closed model would be a single box.
    open[0] = 1;
  };
  openTo(0, false);
  // The stages of a network stand side by side where they are few.
  const areFew = isOverview && itemsShown(arrays, open, KINDS.stretches) <= MAX_AT_SIGHT
    && !groupRepeats.some((repeats, group) => groupParent[group] === 0 && repeats > MAX_STAGES);
  const isFolded = fold === "on" || (fold === "auto" && isLarge && !areFew);
  const kinds = isFolded ? KINDS.all : isOverview ? KINDS.stretches : KINDS.modules;
  if (level === "layer" || level === "auto") openTo(Infinity, false);
  else openTo(level === "all" ? Infinity : Number.parseInt(level, 10), true);
  if (isOverview && itemsShown(arrays, open, kinds) > MAX_AT_SIGHT) {
    const deepest = Math.max(...groupDepth);
    let depth = 0;
    do {
      openTo(depth, false);
      depth += 1;
    } while (depth <= deepest && itemsShown(arrays, open, kinds) < MIN_AT_SIGHT);
  }
  groupId.forEach((id, group) => {
    if (group > 0 && flipped.has(id)) open[group] = 1 - open[group];
  });
  return { open, kinds };
}

/** @param {GraphArrays} arrays @param {Uint8Array} open @param {number} kinds @returns {number} boxes of ops and closed
 * groups in the forward half */
function itemsShown({ ops, groups, opHalf, opGroup, groupKind, groupParent }, open, kinds) {
  /** Whether what is directly in a group is shown. */
  const isSeen = new Uint8Array(groups);
  let items = 0;
  for (let group = 0; group < groups; group += 1) {
    const isAround = group === 0 || isSeen[groupParent[group]] === 1;
    const isSeeThrough = groupKind[group] >= kinds;
    isSeen[group] = isAround && (isSeeThrough || open[group] === 1) ? 1 : 0;
    if (isAround && isSeen[group] === 0) items += 1;
  }
  for (let op = 0; op < ops; op += 1) if (opHalf[op] === 0 && opGroup[op] >= 0) items += isSeen[opGroup[op]];
  return items;
}

const boxesAtLayerLevel = memo(countBoxes);

/** @param {GraphArrays} arrays @returns {number} about how many boxes there are with all but the innermost groups open
 * and nothing folded */
function countBoxes(arrays) {
  const { ops, tensors, groups, opHalf, opGroup, groupKind, groupIsLeaf, groupParent, producer, consumerStart,
    consumers } = arrays;
  /** The closed group that hides what is directly in a group, or -1. */
  const hides = new Int32Array(groups);
  for (let group = 0; group < groups; group += 1) {
    const above = group === 0 ? -1 : hides[groupParent[group]];
    hides[group] = above >= 0 ? above : groupKind[group] === 0 && groupIsLeaf[group] === 1 && group > 0 ? group : -1;
  }
  const placeOf = (/** @type {number} */ op) => {
    const hidden = hides[opGroup[op]];
    return hidden >= 0 ? hidden : -2 - op;
  };
  let boxes = 0;
  for (let group = 1; group < groups; group += 1)
    if (groupKind[group] === 0 && (hides[group] === group || hides[group] === -1)) boxes += 2;
  for (let op = 0; op < ops; op += 1) if (opGroup[op] >= 0 && placeOf(op) < -1) boxes += 1;
  for (let tensor = 0; tensor < tensors; tensor += 1) {
    const maker = producer[tensor];
    let crosses = false;
    for (let at = consumerStart[tensor]; at < consumerStart[tensor + 1] && !crosses; at += 1) {
      const reader = consumers[at];
      crosses = opHalf[reader] === 0 && (maker < 0 || placeOf(maker) !== placeOf(reader));
    }
    // With its gradient.
    if (crosses) boxes += 2;
  }
  return boxes;
}

// Groups

/** Groups in the order of their first op, parents before children. @param {Topology} topology */
function numberGroups(topology) {
  const nodes = [];
  const [parents, depths] = [[-1], [0]];
  const waiting = [{ node: groupTree(topology), parent: -1, depth: 0 }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { node, parent, depth } = next;
    const index = nodes.push(node) - 1;
    [parents[index], depths[index]] = [parent, depth];
    const inside = node.kind === "module" ? depth + 1 : depth;
    for (let at = node.items.length - 1; at >= 0; at -= 1) {
      const child = node.items[at];
      if (typeof child === "object") waiting.push({ node: child, parent: index, depth: inside });
    }
  }

  const count = nodes.length;
  const columns = {
    groupParent: Int32Array.from(parents),
    groupKind: Uint8Array.from(nodes, ({ kind }) => GROUP_KINDS.indexOf(kind)),
    groupFirst: new Int32Array(count).fill(topology.ops.length),
    groupLast: new Int32Array(count), // one past its last forward op: a group is a run in the order of execution
    groupDepth: Int32Array.from(depths), // 0 for the whole model
    groupIsLeaf: new Uint8Array(count).fill(1), // whether it holds no group
    groupRepeats: Int32Array.from(nodes, ({ repeats }) => repeats), // of a fold, of a rest one less; else 0
  };
  const { groupParent, groupKind, groupFirst, groupLast, groupIsLeaf } = columns;
  for (let group = count - 1; group >= 0; group -= 1) {
    for (const item of nodes[group].items) {
      if (typeof item !== "number") continue;
      groupFirst[group] = Math.min(groupFirst[group], item);
      groupLast[group] = Math.max(groupLast[group], item + 1);
    }
    const parent = groupParent[group];
    if (parent < 0) continue;
    groupFirst[parent] = Math.min(groupFirst[parent], groupFirst[group]);
    groupLast[parent] = Math.max(groupLast[parent], groupLast[group]);
    if (groupKind[group] === 0 || groupIsLeaf[group] === 0) groupIsLeaf[parent] = 0;
  }
  return { nodes, columns };
}

/** @param {Topology} topology @param {readonly GroupNode[]} nodes @returns {Int32Array} */
function groupOfOps({ ops }, nodes) {
  const opGroup = new Int32Array(ops.length).fill(-1);
  nodes.forEach(({ items }, group) => {
    for (const item of items) if (typeof item === "number") opGroup[item] = group;
  });
  return opGroup;
}

/** @param {readonly GroupNode[]} nodes @param {Topology} topology @returns {string[]} */
function groupIds(nodes, { modules, ops }) {
  /** @type {Map<string, number>} */
  const runs = new Map();
  const named = (/** @type {string} */ stem) => {
    const run = (runs.get(stem) ?? 0) + 1;
    runs.set(stem, run);
    return `${stem}/forward${run > 1 ? `.${run}` : ""}`;
  };
  const pathOf = (/** @type {number} */ module) => modules[module].path || "model";
  let fold = "";
  return nodes.map(({ kind, module, items, repeats }) => {
    if (kind === "module") return named(pathOf(module));
    if (kind === "rest") return named(`${fold}.rest`);
    const group = items.find((item) => typeof item === "object" && item.kind === "module");
    const [first] = items;
    if (kind === "plumbing") return named(`${ops[Number(first)].name}+${items.length - 1}`);
    if (kind === "stretch") return named(`${pathOf(/** @type {GroupNode} */ (group).module)}+${items.length - 1}`);
    fold = `${
      typeof group === "object" ? pathOf(group.module) : (typeof first === "number" && ops[first].name) || "model"
    }*${repeats}`;
    return named(fold);
  });
}

/** @param {GroupNode} node @param {Topology} topology @param {readonly string[]} activations @returns {string} */
function labelOfGroup(node, { modules, ops }, activations) {
  const { kind, items, repeats } = node;
  if (kind === "module") return labelOfModule(node, modules, activations);
  if (kind === "rest") return `${repeats} more`;
  const all = items.flatMap((item) => {
    if (typeof item === "number") return kind === "stretch" ? [] : [activations[item] || ops[item].name];
    return item.kind === "rest" || item.kind === "plumbing" ? []
      : [item.kind === "module" ? labelOfModule(unwrapped(item), modules, activations) : "…"];
  });
  const names = kind === "stretch" ? all.filter((name, at) => name !== all[at - 1]) : all;
  return names.length <= NAMED_ITEMS ? names.join(" → ") : `${names.slice(0, NAMED_ITEMS - 1).join(" → ")} → …`;
}

/** @param {GroupNode} group of a module @param {readonly Module[]} modules @param {readonly string[]} activations
 * @returns {string} its type; of a layer with the name of its activation */
function labelOfModule({ module, items }, modules, activations) {
  const { type } = modules[module];
  if (items.some((item) => typeof item !== "number")) return type;
  const [only = "", more] = new Set(items.map((item) => activations[Number(item)] ?? "").filter((name) => name !== ""));
  if (only === "" || more !== undefined) return type;
  // Types such as Activation say nothing more than that.
  return /^activation/i.test(type) ? only : withActivation(type, only);
}

/** @param {string} name of an op or a type @param {string} activation "" for none @returns {string} both, where the name
 * does not say it */
function withActivation(name, activation) {
  const plain = (/** @type {string} */ text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  return plain(name).includes(plain(activation)) ? name : `${name} · ${activation}`;
}

/** @param {Topology} topology @returns {string[]} op → the name of the activation that it computes, or "" */
function activationsOf({ ops, tensors }) {
  const made = new Set(tensors.filter(({ role }) => role === "activation").map(({ id }) => id));
  return ops.map(({ name, phase, outputs, attributes }) => {
    // The output of a softmax also has the role activation.
    if (phase !== "forward" || name.includes("softmax") || !outputs.some((id) => made.has(id))) return "";
    return name.startsWith("clamp_min") && attributes["min"] === 0 ? "relu" : name.replace(/_$/, "");
  });
}

/** @param {GroupNode} group @returns {GroupNode} what is in it, where that is one group and nothing else: of a list of
 * layers, say */
function unwrapped(group) {
  for (;;) {
    const [only, more] = group.items;
    if (typeof only !== "object" || only.kind !== "module" || more !== undefined) return group;
    group = only;
  }
}

// Names

/** @param {string} label @returns {number} letters of its longest line */
function longestLine(label) {
  return Math.min(255, Math.max(...labelLines(label).map((line) => line.length)));
}

/** @param {string} name @param {ReadonlySet<string>} paths of modules @returns {string} */
function withoutPath(name, paths) {
  for (let dot = name.lastIndexOf("."); dot > 0; dot = name.lastIndexOf(".", dot - 1)) {
    if (dot < name.length - 1 && paths.has(name.slice(0, dot))) return name.slice(dot + 1);
  }
  return name;
}

/** @param {Topology} topology @param {readonly string[]} groupId @param {ReadonlyMap<string, number>} opIndex
 * @param {ReadonlyMap<string, number>} tensorIndex */
function addresses({ tensors }, groupId, opIndex, tensorIndex) {
  /** @type {Map<string, Item>} */
  const groupIndex = new Map();
  groupId.forEach((id, index) => {
    groupIndex.set(id, { kind: "group", index, half: "forward" });
    groupIndex.set(backwardId(id), { kind: "group", index, half: "backward" });
  });
  /** Names of one tensor alone, which nothing else has. @type {Map<string, number>} */
  const nameIndex = new Map();
  tensors.forEach(({ name }, index) => {
    const before = nameIndex.size;
    nameIndex.set(name, index);
    if (nameIndex.size === before) nameIndex.set(name, -1);
  });
  const tensorId = tensors.map(({ id, name }, index) => {
    const isFree = nameIndex.get(name) === index && !opIndex.has(name) && !tensorIndex.has(name)
      && !groupIndex.has(name);
    return isFree ? name : id;
  });
  return { tensorId, groupIndex, nameIndex };
}
