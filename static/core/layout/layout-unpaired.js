/**
 * Backward ops that are the mirror image of nothing, such as those of a second derivative, and what they pass on: laid
 * out on their own beneath the backward half, against the depth as all of that half.
 */

import { layered } from "./layered.js";
import { labelled, MARGIN, named, OP, TENSOR } from "./layout-sizes.js";

/** Between the backward half and what is beneath it. */
const APART = 28;

/** @type {WeakMap<FrameStore, Unpaired | null>} */
const known = new WeakMap();

/**
 * @param {FrameStore} store
 * @returns {Unpaired | null} null: everything has a twin
 */
export function placeUnpaired(store) {
  const found = known.get(store);
  if (found !== undefined) return found;
  const { arrays, sumOf } = store.index;
  const items = [];
  for (let op = 0; op < arrays.ops; op += 1) {
    if (arrays.opHalf[op] === 0 || arrays.opAnchor[op] >= 0 || sumOf[op] >= 0) continue;
    items.push({ kind: OP, ref: op });
    for (let at = arrays.outputStart[op]; at < arrays.outputStart[op + 1]; at += 1) {
      const tensor = arrays.outputs[at];
      if (store.slots.isPassedOn(tensor)) items.push({ kind: TENSOR, ref: tensor });
    }
  }
  const unpaired = items.length === 0 ? null : new Unpaired(store, items);
  known.set(store, unpaired);
  return unpaired;
}

class Unpaired {
  /** @param {FrameStore} store @param {readonly {kind: number, ref: number}[]} items in order of execution */
  constructor(store, items) {
    this.items = items;
    const { arrays } = store.index;
    const { sizes } = store;
    this.size = items.map(({ kind, ref }) =>
      kind === OP ? labelled(sizes, sizes.op, arrays.opLabelLetters[ref])
        : named(sizes, sizes.satellite, arrays.tensorLabelLetters[ref])
    );
    const node = new Map(items.map(({ kind, ref }, at) => [`${kind} ${ref}`, at]));
    /** @type {[number, number][]} */
    const ends = [];
    items.forEach(({ kind, ref }, at) => {
      if (kind !== OP) return;
      for (let out = arrays.outputStart[ref]; out < arrays.outputStart[ref + 1]; out += 1) {
        const tensor = arrays.outputs[out];
        const stands = node.get(`${TENSOR} ${tensor}`);
        if (stands !== undefined) ends.push([at, stands]);
        for (let reader = arrays.consumerStart[tensor]; reader < arrays.consumerStart[tensor + 1]; reader += 1) {
          const reads = node.get(`${OP} ${arrays.consumers[reader]}`);
          if (reads !== undefined) ends.push([stands ?? at, reads]);
        }
      }
    });
    ends.sort(([a], [b]) => a - b);
    const half = Float32Array.from(this.size, ([, height]) => height / 2);
    const none = new Float32Array(ends.length);
    this.layout = layered({
      nodes: items.length,
      portsIn: 0,
      portsOut: 0,
      isOpen: true,
      axis: -1,
      depth: Float32Array.from(this.size, ([depth]) => depth),
      inner: [half, half],
      outer: [half, half],
      kind: Uint8Array.from(items, ({ kind }) => kind),
      edges: ends.length,
      source: Int32Array.from(ends, ([from]) => from),
      target: Int32Array.from(ends, ([, to]) => to),
      origin: Int32Array.from(ends, ([from]) => from),
      sourceOffset: [none, none],
      targetOffset: [none, none],
    }, { gap: sizes.gap, rowGap: sizes.rowGap, fold: 0, reach: 0, start: 0, end: 0 });
  }

  /** @param {LayoutBoxes} boxes with both halves placed */
  put(boxes) {
    const { layout } = this;
    const floor = boxes.bottom - APART;
    boxes.length = boxes.natural = Math.max(boxes.length, layout.width + 2 * MARGIN);
    const end = boxes.length - MARGIN;
    this.items.forEach(({ kind, ref }, at) => {
      const [depth, thickness] = this.size[at] ?? [0, 0];
      const column = layout.column[at];
      const middle = end - layout.columnStart[column] - layout.columnDepth[column] / 2;
      boxes.putUnpaired(kind, ref, middle - depth / 2, depth, floor - layout.height[0][at], thickness);
    });
    boxes.bottom = Math.min(boxes.bottom, floor - layout.top[0]);
  }
}
