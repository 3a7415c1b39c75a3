/** Which parameters a what-if changes, and which group a thing of the graph belongs to. No DOM. */

import { find } from "../graph/graph.js";

/** @param {string} path of a module, or of a parameter @param {string} group path of a module; "" is the model */
export function isIn(path, group) {
  return group === "" || path === group || path.startsWith(`${group}.`);
}

/** @param {Topology} topology @param {string} group @param {Tied} [tied]
 * @returns {string[]} ids of its parameters with two or more dimensions */
export function weightsIn({ tensors }, group, tied = {}) {
  const isOf = (/** @type {string} */ name) => [name, ...(tied[name] ?? [])].some((each) => isIn(each, group));
  return tensors.filter(({ role, shape, name }) => role === "parameter" && shape.length >= 2 && isOf(name)).map(
    ({ id }) => id
  );
}

/** The group of something in the graph: its module, or the nearest around it that is one of the groups. An activation
 * without a layer, and its gradient, belong to the layer before.
 * @param {Graph} graph @param {string} id as in addresses @param {readonly string[]} groups
 * @returns {string | null} null: it is in none of them */
export function groupAt(graph, id, groups) {
  const item = find(graph, id);
  if (item === null) return null;
  const known = new Set(groups);
  for (const start of [pathOf(graph, item), weightOf(graph, item)]) {
    for (let path = start; path !== ""; path = path.slice(0, Math.max(0, path.lastIndexOf(".")))) {
      if (known.has(path)) return path;
    }
  }
  return null;
}

/** @param {Graph} graph @param {Item} item @returns {string} name of the weight of a tensor's layer, or "" */
function weightOf({ topology: { layers, tensors }, tensorIndex }, { kind, index }) {
  const id = kind === "tensor" ? tensors[index]?.id : undefined;
  const layer = id === undefined ? undefined
    : layers.find(({ preactivation, activation, gradient }) => [preactivation, activation, gradient].includes(id));
  return tensors[tensorIndex.get(layer?.weight ?? "") ?? -1]?.name ?? "";
}

/** @param {Graph} graph @param {Item} item @returns {string} of its module; of a parameter, or its gradient, its own */
function pathOf({ topology: { modules, ops, tensors }, arrays, groupModule }, { kind, index }) {
  if (kind === "group") return modules[groupModule[index]]?.path ?? "";
  const original = kind === "tensor" ? arrays.gradientOf[index] : -1;
  const tensor = kind === "tensor" ? tensors[original < 0 ? index : original] : undefined;
  if (tensor?.role === "parameter") return tensor.name;
  const module = kind === "op" ? ops[index].module : tensor?.module;
  return modules.find(({ id }) => id === module)?.path ?? "";
}
