/** Sums over closed groups, and the rows of tensors in a picture: computed once per graph, on demand. No DOM. */

import { GROUP_KINDS } from "../graph/graph.js";
import { gradientsOf } from "../graph/wiring.js";
import { CAUSES_FIRST, layersText } from "../lab/diagnosis.js";
import { isNonFinite } from "../lab/faults.js";
import { memo } from "../memo.js";
import { nonFinite } from "../picture.js";

export class GraphFacts {
  /** Tensor → row of the statistics, -1 for none. @type {Int32Array} */
  rows;
  /** Tensor → its gradient, after parts were added up; -1 for none. @type {Int32Array} */
  gradients;
  /** Fold → the result of each repetition. @type {Map<number, Int32Array>} */
  #repetitions = new Map();
  /** @type {Map<number, number>} */
  #parameters = new Map();
  /** Twice the group, plus 1 for the backward half → µs. @type {Map<number, number>} */
  #times = new Map();
  /** Tensor → the verdict on its layer, except non-finite, which is what a tensor's own numbers are.
   * @type {Map<number, Health>} */
  #verdicts = new Map();
  /** Whether tensors that are not finite are a fault: masks of −Inf are none. */
  #isNonFinite = false;

  /** @param {Graph} graph */
  constructor(graph) {
    this.graph = graph;
    const { arrays, topology } = graph;
    this.rows = new Int32Array(arrays.tensors).fill(-1);
    topology.statistics.tensor.forEach((id, row) => {
      const tensor = graph.tensorIndex.get(id);
      if (tensor !== undefined) this.rows[tensor] = row;
    });
    this.gradients = gradientsOf(graph);
  }

  /** @param {number} group @returns {number} elements of its parameters */
  parameters(group) {
    const known = this.#parameters.get(group);
    if (known !== undefined) return known;
    const { topology, arrays } = this.graph;
    let sum = 0;
    const seen = new Set();
    this.#eachTensor(group, (tensor) => {
      if (seen.has(tensor) || topology.tensors[tensor].role !== "parameter") return;
      seen.add(tensor);
      sum += arrays.elements[tensor];
    });
    this.#parameters.set(group, sum);
    return sum;
  }

  /** @param {number} group @param {Phase} half @returns {number | null} µs that its ops of that half took; null:
   * unknown */
  time(group, half) {
    const took = this.graph.topology.op_us;
    if (took == null) return null;
    const key = 2 * group + (half === "backward" ? 1 : 0);
    let known = this.#times.get(key);
    if (known === undefined)
      this.#times.set(key, known = this.opsOf(group, half).reduce((sum, op) => sum + took[op], 0));
    return known;
  }

  /** Takes the verdicts on a picture. @param {Picture} picture @param {Theory | null} theory of it, or of one shortly
   * before @returns {boolean} whether a verdict changed */
  judge(picture, theory) {
    const { topology, tensorIndex } = this.graph;
    /** @type {Map<number, Health>} */
    const verdicts = new Map();
    // A verdict would give away what is to be guessed.
    for (const { health, index } of (picture.hidden === null ? theory : null)?.layers ?? []) {
      const layer = topology.layers[index - 1];
      if (health === null || health === "non-finite" || layer === undefined) continue;
      const tensor = tensorIndex.get(layer.activation ?? layer.preactivation ?? "");
      if (tensor !== undefined) verdicts.set(tensor, health);
    }
    const isBad = isNonFinite(picture, theory);
    const isNews = isBad !== this.#isNonFinite || verdicts.size !== this.#verdicts.size
      || [...verdicts].some(([tensor, health]) => this.#verdicts.get(tensor) !== health);
    this.#verdicts = verdicts;
    this.#isNonFinite = isBad;
    return isNews;
  }

  get isHealthy() {
    return this.#verdicts.size === 0 && !this.#isNonFinite;
  }

  /** The fault in a group; a cause comes before its consequences.
   * @param {Picture} picture @param {number} group @param {Phase} half @returns {Ailment | null} */
  ailment(picture, group, half) {
    let tensors = 0;
    let isNan = false;
    /** @type {Health[]} */
    const verdicts = [];
    this.#eachTensor(group, (tensor) => {
      const verdict = this.#verdicts.get(tensor);
      if (verdict !== undefined) verdicts.push(verdict);
      const own = !this.#isNonFinite ? -1 : half === "backward" ? this.gradients[tensor] : tensor;
      const row = own < 0 ? -1 : this.rows[own];
      const bad = row < 0 ? null : nonFinite(picture, row);
      if (bad === null) return;
      tensors += 1;
      isNan ||= bad.word === "NaN";
    });
    if (tensors > 0) return { word: isNan ? "NaN" : "Inf", health: "non-finite", tensors };
    const first = CAUSES_FIRST.find((health) => verdicts.includes(health));
    return first === undefined ? null
      : { word: first, health: first, tensors: verdicts.filter((verdict) => verdict === first).length };
  }

  /** The result of each repetition of a fold. @param {number} group @param {Phase} half backward: the gradients of the
   * results @returns {Int32Array} tensors, -1 for none; empty if the group is no fold */
  repetitions(group, half) {
    let results = this.#repetitions.get(group);
    const { arrays } = this.graph;
    if (results === undefined) {
      const parts = this.#partsOf(group);
      results = Int32Array.from(parts, (ops) => {
        const op = ops.findLast((each) => arrays.outputStart[each + 1] > arrays.outputStart[each]);
        return op === undefined ? -1 : arrays.outputs[arrays.outputStart[op]];
      });
      this.#repetitions.set(group, results);
    }
    return half === "forward" ? results : results.map((tensor) => tensor < 0 ? -1 : this.gradients[tensor]);
  }

  /** @param {number} group @returns {number[][]} the forward ops of each repetition of a fold, or of its rest */
  #partsOf(group) {
    const { groupRepeats, groupParent, groupKind, groups } = this.graph.arrays;
    const repeats = groupRepeats[group];
    const blocks = [];
    for (let at = group + 1; at < groups && repeats > 0; at += 1) {
      const around = groupParent[at];
      const isIn = around === group || (groupParent[around] === group && GROUP_KINDS[groupKind[around]] === "rest");
      if (isIn && GROUP_KINDS[groupKind[at]] === "module") blocks.push(at);
    }
    // Blocks that differ in little have not equally many ops.
    if (blocks.length === repeats) return blocks.map((block) => this.opsOf(block, "forward"));
    const ops = this.opsOf(group, "forward");
    const each = ops.length / repeats;
    return Array.from({ length: Number.isInteger(each) ? repeats : 0 },
      (_, at) => ops.slice(at * each, (at + 1) * each));
  }

  get extents() {
    return extentsIn(this.graph.arrays);
  }

  /** @param {number} group @param {Phase} half @returns {number[]} its ops, of the backward half those beneath them */
  opsOf(group, half) {
    const { groupFirst, groupLast, ops, opHalf, opAnchor } = this.graph.arrays;
    const [first, last] = [groupFirst[group], groupLast[group]];
    const isBackward = half === "backward";
    const found = [];
    for (let op = isBackward ? 0 : first; op < (isBackward ? ops : last); op += 1) {
      const place = isBackward ? opAnchor[op] : op;
      if (opHalf[op] === (isBackward ? 1 : 0) && place >= first && place < last) found.push(op);
    }
    return found;
  }

  /** Visits the tensors that a group's forward ops read or write. @param {number} group
   * @param {(tensor: number) => void} visit */
  #eachTensor(group, visit) {
    const { groupFirst, groupLast, opHalf, inputStart, inputs, outputStart, outputs, producer } = this.graph.arrays;
    for (let op = groupFirst[group]; op < groupLast[group]; op += 1) {
      if (opHalf[op] !== 0) continue;
      for (let entry = inputStart[op]; entry < inputStart[op + 1]; entry += 1) {
        const tensor = inputs[entry];
        // A tensor with a producer is visited as that op's output.
        if (tensor >= 0 && producer[tensor] < 0) visit(tensor);
      }
      for (let entry = outputStart[op]; entry < outputStart[op + 1]; entry += 1)
        visit(outputs[entry]);
    }
  }
}

const layersIn = memo(layersOfOps);

/** @param {Graph} graph @returns {Int32Array} op → index of the layer whose preactivation or activation it makes; 0: none */
function layersOfOps({ arrays, tensorIndex, topology }) {
  const layerOf = new Int32Array(arrays.ops);
  for (const { index, preactivation, activation } of topology.layers) {
    for (const id of [preactivation, activation]) {
      const maker = arrays.producer[tensorIndex.get(id ?? "") ?? -1];
      if (maker !== undefined && maker >= 0) layerOf[maker] = index;
    }
  }
  return layerOf;
}

/** @template T @param {Graph} graph @param {number} group @param {(op: number) => T} of @returns {T[]} of its forward ops,
 * each value once */
function valuesIn({ arrays }, group, of) {
  /** @type {Set<T>} */
  const values = new Set();
  for (let op = arrays.groupFirst[group]; op < arrays.groupLast[group]; op += 1)
    if (arrays.opHalf[op] === 0) values.add(of(op));
  return [...values];
}

/** @param {Graph} graph @param {number} group @returns {string} the numbers of its layers: "layer 3", "layers 3–5"; ""
 * for none */
export function layersOf(graph, group) {
  const layerOf = layersIn(graph);
  const layers = valuesIn(graph, group, (op) => layerOf[op]).filter((layer) => layer > 0).sort((a, b) => a - b);
  return layers.length === 0 ? "" : layersText(layers);
}

/** @param {Graph} graph @param {number} group @returns {string[]} the names of its activations */
export function activationsIn(graph, group) {
  return valuesIn(graph, group, (op) => graph.activations[op]).filter((name) => name !== "");
}

/** The last part of a module's path; where that is a number in a list, the number of its layer or of the list too.
 * @param {Graph} graph @param {number} group @returns {string} "" for the whole model, for a group that is no module,
 * and if it equals the type */
export function attributeOf(graph, group) {
  const { arrays, topology, groupModule, groupLabel } = graph;
  if (arrays.groupKind[group] !== 0) return "";
  const path = topology.modules[groupModule[group]]?.path ?? "";
  const last = path.slice(path.lastIndexOf(".") + 1);
  if (/^\d+$/.test(last)) {
    const layers = arrays.groupIsLeaf[group] === 1 ? layersOf(graph, group) : "";
    return layers === "" ? path.split(".").slice(-2).join(".") : layers;
  }
  return last.toLowerCase() === groupLabel[group].toLowerCase() ? "" : last;
}

/** @param {Graph} graph @param {number} group @returns {string} "norm1 · LayerNorm", "layer 1 · Lin", or only the type */
export function fullLabel(graph, group) {
  const type = graph.groupLabel[group];
  const attribute = attributeOf(graph, group);
  return attribute === "" ? type : `${attribute} · ${type}`;
}

const extentsIn = memo(measure);

/** path: ops on the longest path from an input to a result. @param {GraphArrays} arrays */
function measure(arrays) {
  const { ops, tensors, groups, opHalf, inputStart, inputs, producer } = arrays;
  const reach = new Int32Array(ops);
  let [forward, path] = [0, 0];
  // Ops are in execution order, so producers come before readers.
  for (let op = 0; op < ops; op += 1) {
    if (opHalf[op] === 1) continue;
    forward += 1;
    let before = 0;
    for (let entry = inputStart[op]; entry < inputStart[op + 1]; entry += 1) {
      const made = producer[inputs[entry]];
      if (made >= 0 && made < op) before = Math.max(before, reach[made]);
    }
    reach[op] = before + 1;
    path = Math.max(path, before + 1);
  }
  return { opsForward: forward, opsBackward: ops - forward, tensors, path, groups: Math.max(0, groups - 1) };
}
