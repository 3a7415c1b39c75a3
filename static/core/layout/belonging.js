/** For the lines of each tensor or saved value, the smallest group that holds everything they depend on. While nothing
 * opens or closes in that group, the lines only move with it. Computed once per graph and folding. */

import { Numbers } from "./scene.js";

/**
 * @typedef {object} Belonging groups, -1 for none
 * @property {Int32Array} forward tensor → group of the lines from its producer, to its readers, and of its gradients' lines
 * @property {Int32Array} leaf leaves that are satellites
 * @property {Int32Array} leafGroup their groups
 * @property {Int32Array} back backward tensors, in order
 * @property {Int32Array} backGroup their groups
 * @property {Int32Array} keptTensor saved for the backward pass
 * @property {Int32Array} keptFor the backward op that needs it
 * @property {Int32Array} keptGroup
 */

/** @param {GraphIndex} index @returns {Belonging} */
export function belonging(index) {
  const { arrays, readerStart, reader, gradientStart, gradient, owner, home } = index;
  const around = new Around(index);
  const back = new Numbers(Int32Array);
  const backGroup = new Numbers(Int32Array);
  const leaf = new Numbers(Int32Array);
  const leafGroup = new Numbers(Int32Array);
  const backwardOf = new Int32Array(arrays.tensors).fill(-1);
  const forward = new Int32Array(arrays.tensors).fill(-1);
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    if (arrays.tensorHalf[tensor] === 0) continue;
    backwardOf[tensor] = around.gradient(tensor);
    back.push(tensor);
    backGroup.push(backwardOf[tensor]);
  }
  for (let tensor = 0; tensor < arrays.tensors; tensor += 1) {
    if (arrays.tensorHalf[tensor] === 1) continue;
    const isLeaf = owner[tensor] >= 0;
    if (!isLeaf && home[tensor] < 0) continue;
    let group = around.tensor(tensor);
    for (let at = readerStart[tensor]; at < readerStart[tensor + 1]; at += 1) {
      group = around.both(group, index.opGroup[reader[at]]);
    }
    if (isLeaf) {
      leaf.push(tensor);
      leafGroup.push(group);
      continue;
    }
    // A gradient's line may mirror the tensor's line, so both are drawn again together.
    for (let at = gradientStart[tensor]; at < gradientStart[tensor + 1]; at += 1) {
      group = around.both(group, backwardOf[gradient[at]]);
    }
    forward[tensor] = group;
  }
  const kept = keptValues(index);
  return {
    forward,
    leaf: new Int32Array(leaf.all),
    leafGroup: new Int32Array(leafGroup.all),
    back: new Int32Array(back.all),
    backGroup: new Int32Array(backGroup.all),
    ...kept,
    keptGroup: kept.keptTensor.map((tensor, at) =>
      around.both(around.tensor(tensor), around.backward(kept.keptFor[at]))
    ),
  };
}

class Around {
  /** @param {GraphIndex} index */
  constructor(index) {
    this.index = index;
  }

  /** @param {number} a group or -1 @param {number} b @returns {number} the smallest group that holds both, or -1 */
  both(a, b) {
    const { parent } = this.index;
    if (a < 0 || b < 0) return -1;
    // Outer groups have lower numbers.
    while (a !== b) {
      if (a > b) a = parent[a];
      else b = parent[b];
    }
    return a;
  }

  /** @param {number} tensor of the forward half @returns {number} its group when all groups are open */
  tensor(tensor) {
    const { arrays, home, owner, opGroup } = this.index;
    const maker = arrays.producer[tensor];
    const reads = owner[tensor];
    const own = home[tensor];
    if (reads >= 0) return opGroup[reads];
    if (maker < 0) return own;
    return own < 0 ? opGroup[maker] : this.both(own, opGroup[maker]);
  }

  /** @param {number} op @returns {number} the group that holds its place and its hiding place; -1 for a forward op */
  backward(op) {
    const { arrays, opGroup, sumOf, home, owner } = this.index;
    if (arrays.opHalf[op] === 0) return -1;
    const hidden = opGroup[op];
    const summed = sumOf[op];
    if (summed >= 0 && (home[summed] >= 0 || owner[summed] >= 0))
      return this.both(hidden, this.tensor(summed));
    const anchor = arrays.opAnchor[op];
    return anchor < 0 ? -1 : this.both(hidden, opGroup[anchor]);
  }

  /** @param {number} tensor of the backward half @returns {number} */
  gradient(tensor) {
    const { arrays } = this.index;
    const maker = arrays.producer[tensor];
    const of = arrays.gradientOf[tensor];
    if (of >= 0 && arrays.tensorHalf[of] === 1) return -1;
    if (of < 0 && maker < 0) return -1;
    let group = of >= 0 ? this.tensor(of) : this.backward(maker);
    if (maker >= 0) group = this.both(group, this.backward(maker));
    for (let at = arrays.consumerStart[tensor]; at < arrays.consumerStart[tensor + 1]; at += 1) {
      group = this.both(group, this.backward(arrays.consumers[at]));
    }
    return group;
  }
}

/** @param {GraphIndex} index */
function keptValues({ arrays, backStart, back, loss }) {
  const tensors = new Numbers(Int32Array);
  const needs = new Numbers(Int32Array);
  /** @param {number} tensor @param {number} backward */
  const keep = (tensor, backward) => {
    if (tensor === loss || backward < 0) return;
    tensors.push(tensor);
    needs.push(backward);
  };
  /** Pairs of forward op and tensor for which the reading backward op is known. @type {Set<number>} */
  const known = new Set();
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] === 0) continue;
    for (let at = arrays.inputStart[op]; at < arrays.inputStart[op + 1]; at += 1) {
      const tensor = arrays.inputs[at];
      if (arrays.tensorHalf[tensor] === 1) continue;
      known.add(arrays.opAnchor[op] * arrays.tensors + tensor);
      keep(tensor, op);
    }
  }
  for (let at = 0; at < arrays.savedTensor.length; at += 1) {
    const [tensor, op] = [arrays.savedTensor[at], arrays.savedOp[at]];
    if (arrays.tensorHalf[tensor] === 1 || backStart[op] === backStart[op + 1]
      || known.has(op * arrays.tensors + tensor)) continue;
    keep(tensor, back[backStart[op]]);
  }
  return { keptTensor: new Int32Array(tensors.all), keptFor: new Int32Array(needs.all) };
}
