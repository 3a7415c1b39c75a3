/** The scene of one open group: its boxes, the values that pass between them, and ports where values enter and leave. A
 * scene depends only on the open groups within it. No geometry, no recursion. */

import { byKey } from "../graph/wiring.js";
import { FRAME, GROUP, OP, TENSOR } from "./sizes.js";

// Arrays that grow, and a store that keeps them for the next layout.

/** @typedef {Float64Array | Float32Array | Int32Array | Uint8Array} Values */

/** A longer stretch is copied by `set`; for a shorter one a loop is faster. */
const LONG = 256;

export class Numbers {
  #type;
  /** @type {Values} */
  #values;
  length = 0;

  /** @param {ValuesType} [type] */
  constructor(type = Float64Array) {
    this.#type = type;
    this.#values = new type(256);
  }

  /** @param {number} value */
  push(value) {
    if (this.length === this.#values.length) this.#grow(this.length);
    this.#values[this.length] = value;
    this.length += 1;
  }

  /** @param {number} index @returns {number} */
  at(index) {
    return this.#values[index];
  }

  /** @param {number} index @param {number} value */
  set(index, value) {
    this.#values[index] = value;
  }

  /** The values; valid until the next push. @returns {Values} */
  get all() {
    return this.#values.subarray(0, this.length);
  }

  /** The values and the room after them; valid until the next push. @returns {Values} */
  get room() {
    return this.#values;
  }

  /** Makes room for so many values in all. @param {number} length */
  reserve(length) {
    if (length > this.#values.length) this.#grow(length);
  }

  /** Appends a stretch of others, each plus `by`. @param {Numbers} others @param {number} from @param {number} to
   * @param {number} [by] */
  append(others, from, to, by = 0) {
    const begin = this.extend(to - from);
    const values = this.#values;
    const old = others.#values;
    if (by === 0 && to - from > LONG) values.set(old.subarray(from, to), begin);
    else for (let at = from; at < to; at += 1) values[at - from + begin] = old[at] + by;
  }

  /** Extends by so many undefined values. @param {number} count @returns {number} the first of them */
  extend(count) {
    const begin = this.length;
    const length = begin + count;
    if (length > this.#values.length) this.#grow(length);
    this.length = length;
    return begin;
  }

  /** A small array grows fourfold: most layouts need only two steps. @param {number} least length */
  #grow(least) {
    const larger = new this.#type(Math.max(least, (this.length < 16384 ? 4 : 2) * this.length));
    larger.set(this.#values.subarray(0, this.length));
    this.#values = larger;
  }
}

/** Arrays that later layouts use again, so that they need not grow. */
export class NumbersStore {
  /** @type {Map<string, Numbers>} */
  #kept = new Map();

  /** @param {string} name @param {ValuesType} [type] @returns {Numbers} empty */
  take(name, type) {
    const numbers = this.#kept.get(name) ?? new Numbers(type);
    this.#kept.set(name, numbers);
    numbers.length = 0;
    return numbers;
  }
}

/** @template {Values} T @param {new (length: number) => T} type @param {number} length @returns {[T, T]} one for each
 * half */
export function pair(type, length) {
  return [new type(length), new type(length)];
}

/** Kinds of nodes besides the kinds of boxes in sizes.js. */
export const PORT_IN = 4;
export const PORT_OUT = 5;

/** Makes the scenes of a graph. */
export class SceneMaker {
  /** @type {Int32Array} */
  #opNode;
  /** @type {Int32Array} */
  #groupNode;
  /** @type {Int32Array} */
  #stamp;
  #stamps = 0;

  /** @param {GraphIndex} index */
  constructor(index) {
    this.index = index;
    this.#opNode = new Int32Array(index.arrays.ops);
    this.#groupNode = new Int32Array(index.arrays.groups);
    this.#stamp = new Int32Array(index.arrays.ops + index.arrays.groups + 2 * index.arrays.tensors + 1);
  }

  /** Nodes in order of execution: ports in, boxes, ports out; edges by source, then by tensor. `leaving` has a node's
   * first edge, `entering` the edge to a tensor or a port out, `axis` the node of the loss.
   * @param {number} group that is open @param {Uint8Array} open */
  make(group, open) {
    const { arrays, childStart, child, touchStart, touch, parent, home, readerStart, reader, loss } = this.index;
    const [first, last] = [arrays.groupFirst[group], arrays.groupLast[group]];
    const holds = (/** @type {number} */ op) => op >= first && op < last;

    const portsIn = [];
    const portsOut = [];
    /** Tensors that stand here, by producer. @type {number[]} */
    const here = [];
    const inputs = [];
    for (let at = touchStart[group]; at < touchStart[group + 1]; at += 1) {
      const tensor = touch[at];
      const maker = arrays.producer[tensor];
      if (maker < 0 && group === 0) inputs.push(tensor);
      else if (maker < 0 || !holds(maker)) portsIn.push(tensor);
      else {
        if (this.#standsIn(tensor, group, open)) here.push(tensor);
        if (group > 0 && this.#leaves(tensor, first, last)) portsOut.push(tensor);
      }
    }
    here.sort((a, b) => arrays.producer[a] - arrays.producer[b] || a - b);

    const children = childStart[group + 1] - childStart[group];
    const nodes = portsIn.length + inputs.length + children + here.length + portsOut.length;
    const kind = new Uint8Array(nodes);
    const ref = new Int32Array(nodes);
    const tensorNode = new Map();
    let count = 0;
    /** @param {number} nodeKind @param {number} nodeRef */
    const add = (nodeKind, nodeRef) => {
      kind[count] = nodeKind;
      ref[count] = nodeRef;
      count += 1;
      return count - 1;
    };
    for (const tensor of portsIn) add(PORT_IN, tensor);
    for (const tensor of inputs) tensorNode.set(tensor, add(TENSOR, tensor));
    let standing = 0;
    for (let at = 0; at < children; at += 1) {
      const item = child[childStart[group] + at];
      const isOp = item >= 0;
      if (isOp) this.#opNode[item] = add(OP, item);
      else {
        this.#groupNode[~item] = add(open[~item] === 1 ? FRAME : GROUP, ~item);
      }
      const end = isOp ? item + 1 : arrays.groupLast[~item];
      for (; standing < here.length && arrays.producer[here[standing]] < end; standing += 1) {
        const tensor = here[standing];
        tensorNode.set(tensor, add(TENSOR, tensor));
      }
    }
    const firstOut = count;
    for (const tensor of portsOut) add(PORT_OUT, tensor);

    const ends = [];
    const entering = new Int32Array(nodes).fill(-1);
    let [inPort, outPort] = [0, 0];
    for (let at = touchStart[group]; at < touchStart[group + 1]; at += 1) {
      const tensor = touch[at];
      const maker = arrays.producer[tensor];
      const maker1 = maker >= 0 && holds(maker) ? this.#nodeOf(maker, group, parent) : -1;
      const standing1 = tensorNode.get(tensor) ?? -1;
      let origin = standing1;
      if (standing1 >= 0 && maker1 >= 0) ends.push(maker1, standing1, tensor);
      if (standing1 < 0) origin = maker1;
      if (origin < 0) origin = inPort++;
      if (portsOut[outPort] === tensor) ends.push(origin, firstOut + outPort++, tensor);
      if (maker1 >= 0 && standing1 < 0 && home[tensor] < group) continue;
      this.#stamps += 1;
      const end = readerStart[tensor + 1];
      for (let position = lowerBound(reader, readerStart[tensor], end, first); position < end; position += 1) {
        const op = reader[position];
        if (op >= last) break;
        const node = this.#nodeOf(op, group, parent);
        if (node === maker1 || this.#stamp[node] === this.#stamps) continue;
        this.#stamp[node] = this.#stamps;
        ends.push(origin, node, tensor);
      }
    }
    const edges = sorted(ends, nodes, entering, kind);
    const axis = group === 0 && loss >= 0 ? (tensorNode.get(loss) ?? -1) : -1;
    return { group, nodes, kind, ref, portsIn: portsIn.length, portsOut: portsOut.length, ...edges, entering, axis };
  }

  /** @param {number} op @param {number} group @param {Int32Array} parent @returns {number} the node that shows or holds
   * the op */
  #nodeOf(op, group, parent) {
    let inside = this.index.opGroup[op];
    if (inside === group) return this.#opNode[op];
    for (let around = parent[inside]; around !== group && around >= 0; around = parent[inside])
      inside = around;
    return this.#groupNode[inside];
  }

  /** @param {number} tensor made in the group @param {number} group @param {Uint8Array} open */
  #standsIn(tensor, group, open) {
    const { home, parent } = this.index;
    let inside = home[tensor];
    if (inside === group) return true;
    if (inside < group) return false;
    for (let around = parent[inside]; around !== group; around = parent[inside]) {
      if (around < 0) return false;
      inside = around;
    }
    return open[inside] === 0;
  }

  /** @param {number} tensor @param {number} first @param {number} last @returns {boolean} whether an op outside reads
   * it */
  #leaves(tensor, first, last) {
    const { readerStart, reader, loss } = this.index;
    if (tensor === loss) return true;
    const [from, to] = [readerStart[tensor], readerStart[tensor + 1]];
    return from < to && (reader[to - 1] >= last || reader[from] < first);
  }
}

/** @param {Int32Array} values sorted from `from` up to `to` @param {number} from @param {number} to
 * @param {number} least @returns {number} position of the first value not below `least` */
export function lowerBound(values, from, to, least) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] < least) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** @param {readonly number[]} ends source, target and tensor of each edge, by tensor @param {number} nodes
 * @param {Int32Array} entering is filled @param {Uint8Array} kind */
function sorted(ends, nodes, entering, kind) {
  const edges = ends.length / 3;
  const [leaving, order] = byKey(new Int32Array(edges).map((_, at) => ends[3 * at]), nodes);
  const [source, target, tensor] = [new Int32Array(edges), new Int32Array(edges), new Int32Array(edges)];
  for (let edge = 0; edge < edges; edge += 1) {
    const at = 3 * order[edge];
    const to = ends[at + 1];
    source[edge] = ends[at];
    target[edge] = to;
    tensor[edge] = ends[at + 2];
    if (kind[to] === TENSOR || kind[to] === PORT_OUT) entering[to] = edge;
  }
  return { edges, source, target, tensor, leaving };
}
