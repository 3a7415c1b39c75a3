/** Lines of the forward half: from a tensor's producer to the tensor, and on to its readers, through the ports of the
 * frames between. The mirror images are kept for the backward half. */

import { lowerBound, Numbers, PORT_OUT } from "./scene.js";
import { takeOver } from "./moves.js";
import { DATA, FRAME, GROUP, OP, REUSE, SATELLITE, TENSOR } from "./sizes.js";
import { direct, dropping, stacked, STOP, throughStops } from "./routes.js";

/** Groups between pauses. */
const AT_ONCE = 64;

export class ForwardLines {
  #stops = new Numbers();

  /** @param {RouteList} list */
  constructor(list) {
    this.list = list;
    this.boxes = list.boxes;
    this.store = list.boxes.store;
    this.index = list.boxes.store.index;
    /** Mirror images of the routes, and the start of each; empty without a gradient, and for routes that only moved. */
    this.mirror = new Numbers(Float64Array);
    this.mirrorStart = new Numbers(Int32Array);
    /** Tensors in the order of their lines: the tensor, its node, its first line, one past its last. */
    this.tensorAt = this.boxes.numbers.take("line tensor", Int32Array);
    this.nodeAt = this.boxes.numbers.take("line node", Int32Array);
    this.firstAt = this.boxes.numbers.take("line first", Int32Array);
    this.lastAt = this.boxes.numbers.take("line last", Int32Array);
    /** Group → its first such tensor, and one past its last. */
    this.groupFirst = new Int32Array(this.index.arrays.groups);
    this.groupLast = new Int32Array(this.index.arrays.groups);
    const { leaf, back, keptTensor } = this.store.belonging;
    /** Leaf, backward tensor and saved value → its first line, with one entry more. */
    this.leafLines = new Int32Array(leaf.length + 1);
    this.backLines = new Int32Array(back.length + 1);
    this.keptLines = new Int32Array(keptTensor.length + 1);
    /** Tensor → its first route, and one past its last. */
    this.first = new Int32Array(this.index.arrays.tensors);
    this.last = new Int32Array(this.index.arrays.tensors);
  }

  /** Adds the lines to the list; yields now and then. @returns {Generator<undefined, void, void>} */
  *run() {
    const { open, moves } = this.boxes;
    const { leafGroup, leaf } = this.store.belonging;
    for (let at = 0; at < open.length; at += 1) {
      if (at % AT_ONCE === 0) yield;
      const group = open[at];
      this.groupFirst[group] = this.tensorAt.length;
      if (moves.rootOf(group) >= 0) this.#takeOver(group);
      else {
        const { scene } = this.store.frame(group);
        for (let node = scene.portsIn; node < scene.nodes - scene.portsOut; node += 1) {
          if (scene.kind[node] === TENSOR) this.#tensor(group, node);
        }
      }
      this.groupLast[group] = this.tensorAt.length;
    }
    takeOver(this.list, moves, leafGroup, this.leafLines, moves.last?.lines.leafLines ?? null,
      (at) => this.#leaf(leaf[at]));
  }

  /** Lines of a group that only moved: taken over, or drawn again for tensors that lines enter or leave.
   * @param {number} group */
  #takeOver(group) {
    const { list } = this;
    const { moves } = this.boxes;
    const { forward } = this.store.belonging;
    const last = moves.last?.lines;
    if (last === undefined) return;
    const to = last.groupLast[group];
    for (let item = last.groupFirst[group]; item < to;) {
      const start = item;
      while (item < to && moves.rootOf(forward[last.tensorAt.at(item)]) >= 0) item += 1;
      if (item === start) {
        this.#tensor(group, last.nodeAt.at(item));
        item += 1;
        continue;
      }
      const begin = last.firstAt.at(start);
      const shift = list.count - begin;
      this.tensorAt.append(last.tensorAt, start, item);
      this.nodeAt.append(last.nodeAt, start, item);
      this.firstAt.append(last.firstAt, start, item, shift);
      this.lastAt.append(last.lastAt, start, item, shift);
      list.take(last.list, begin, last.lastAt.at(item - 1), moves.rootOf(group), moves);
      while (this.mirrorStart.length < list.count) this.mirrorStart.push(this.mirror.length);
    }
  }

  /** @param {number} group @param {number} node */
  #tensor(group, node) {
    const { scene } = this.store.frame(group);
    const tensor = scene.ref[node];
    const own = this.boxes.tensorBox[tensor];
    this.first[tensor] = this.list.count;
    this.tensorAt.push(tensor);
    this.nodeAt.push(node);
    this.firstAt.push(this.list.count);
    this.#made(group, node, tensor, own);

    const stops = this.#stops;
    /** Edges to follow: the group, the edge, and the number of stops before it. @type {number[]} */
    const stack = [];
    stops.length = 0;
    this.#leave(own, group, node);
    this.#follow(stack, group, node, tensor);
    while (stack.length > 0) {
      stops.length = stack.pop() ?? 0;
      const edge = stack.pop() ?? 0;
      const at = stack.pop() ?? 0;
      const { scene: here } = this.store.frame(at);
      this.#along(at, edge);
      const target = here.target[edge];
      const ref = here.ref[target];
      const kind = here.kind[target];
      if (kind === FRAME) {
        this.#arrive(at, edge, this.boxes.originDepth[ref]);
        this.#follow(stack, ref, this.store.portIn(ref, tensor), tensor);
      } else if (kind === PORT_OUT) {
        this.#arrive(at, edge, this.#endOf(at));
        this.#follow(stack, this.index.parent[at], this.boxes.nodeAround[at], tensor);
      } else {
        const box = this.#boxOf(kind, ref);
        this.#arrive(at, edge, this.boxes.start.at(box));
        this.#add(own, box, tensor);
      }
    }
    this.last[tensor] = this.list.count;
    this.lastAt.push(this.list.count);
  }

  /** @param {number} kind @param {number} ref @returns {number} */
  #boxOf(kind, ref) {
    return (kind === OP ? this.boxes.opBox[ref] : kind === GROUP ? this.boxes.groupBox[0][ref] : -1);
  }

  /** Adds the line along the stops. @param {number} source @param {number} target @param {number} tensor */
  #add(source, target, tensor) {
    const { gradientStart } = this.index;
    this.list.begin(source, target, DATA, 0, tensor);
    throughStops(this.list.points, this.#stops, 0);
    this.mirrorStart.push(this.mirror.length);
    if (gradientStart[tensor] !== gradientStart[tensor + 1]) throughStops(this.mirror, this.#stops, 1);
  }

  /** Stacks the edges by which a tensor leaves a node. @param {number[]} stack @param {number} group
   * @param {number} node @param {number} tensor */
  #follow(stack, group, node, tensor) {
    const { scene } = this.store.frame(group);
    const end = scene.leaving[node + 1];
    const first = lowerBound(scene.tensor, scene.leaving[node], end, tensor);
    let edge = first;
    while (edge < end && scene.tensor[edge] === tensor) edge += 1;
    for (edge -= 1; edge >= first; edge -= 1) stack.push(group, edge, this.#stops.length);
  }

  /** The line from the producer of a tensor. @param {number} group @param {number} node @param {number} tensor
   * @param {number} own box */
  #made(group, node, tensor, own) {
    const { boxes, store } = this;
    /** Groups and edges from the tensor back to its producer. @type {number[]} */
    const way = [];
    let [at, kind, ref, source] = [group, FRAME, -1, -1];
    let edge = store.frame(group).scene.entering[node];
    while (edge >= 0) {
      const { scene } = store.frame(at);
      way.push(at, edge);
      source = scene.source[edge];
      [kind, ref] = [scene.kind[source], scene.ref[source]];
      if (kind !== FRAME) break;
      at = ref;
      edge = store.frame(ref).scene.entering[store.portOut(ref, tensor)];
    }
    const box = this.#boxOf(kind, ref);
    if (box < 0) return;
    this.#stops.length = 0;
    this.#leave(box, at, source);
    const isDrop = tensor === this.index.loss && boxes.height.at(box) > boxes.height.at(own);
    for (let index = way.length - 2; index >= 0; index -= 2) {
      const [through, passing] = [way[index], way[index + 1]];
      if (index > 0) {
        this.#along(through, passing);
        this.#arrive(through, passing, this.#endOf(through));
      } else if (!isDrop) {
        this.#along(through, passing);
        this.#arrive(through, passing, boxes.start.at(own));
      } else this.#pass(through, passing);
    }
    this.#add(box, own, tensor);
    if (!isDrop) return;
    const last = this.#stops.length - STOP;
    for (const value of dropping(this.#stops.at(last), this.#stops.at(last + 1), this.list.place(own)))
      this.list.points.push(value);
  }

  /** @param {number} depth @param {number} forward height in either half @param {number} backward */
  #stop(depth, forward, backward) {
    this.#stops.push(depth);
    this.#stops.push(this.boxes.across(forward));
    this.#stops.push(this.boxes.across(-backward));
  }

  /** @param {number} group that is open @returns {number} its end along the depth */
  #endOf(group) {
    return this.boxes.originDepth[group] + this.store.frame(group).layout.width;
  }

  /** Leaves a box. @param {number} box @param {number} group @param {number} node that the box shows */
  #leave(box, group, node) {
    const { boxes } = this;
    this.#stop(boxes.start.at(box) + boxes.depth.at(box), boxes.heightOf(group, node, 0),
      boxes.heightOf(group, node, 1));
  }

  /** Leaves an edge's column and passes the columns between. @param {number} group @param {number} edge */
  #along(group, edge) {
    const { scene, shape, layout } = this.store.frame(group);
    const { boxes } = this;
    const source = scene.source[edge];
    const column = layout.column[source];
    const { start, depth } = boxes.columnsOf(group);
    // In an elastic drawing boxes fill their columns.
    if (!boxes.isElastic) {
      const end = Number(start[column]) + Number(depth[column]);
      const [forward, backward] = [shape.sourceOffset[0][edge], shape.sourceOffset[1][edge]];
      this.#stop(boxes.originDepth[group] + end, boxes.heightOf(group, source, 0) + forward,
        boxes.heightOf(group, source, 1) + backward);
    }
    this.#pass(group, edge);
  }

  /** Passes the columns between the ends of an edge. @param {number} group @param {number} edge */
  #pass(group, edge) {
    const { scene, layout } = this.store.frame(group);
    const { boxes } = this;
    const via = layout.via[edge];
    if (via < 0) return;
    const { start, depth } = boxes.columnsOf(group);
    const from = layout.column[scene.source[edge]];
    const to = layout.column[scene.target[edge]];
    for (let column = from + 1; column < to; column += 1) {
      const dummy = via + column - from - 1;
      const [forward, backward] = [boxes.heightOf(group, dummy, 0), boxes.heightOf(group, dummy, 1)];
      const begin = boxes.originDepth[group] + Number(start[column]);
      this.#stop(begin, forward, backward);
      this.#stop(begin + Number(depth[column]), forward, backward);
    }
  }

  /** Enters an edge's target. @param {number} group @param {number} edge @param {number} border of the target along the
   * depth */
  #arrive(group, edge, border) {
    const { scene, shape, layout } = this.store.frame(group);
    const { boxes } = this;
    const target = scene.target[edge];
    const column = layout.column[target];
    const forward = boxes.heightOf(group, target, 0) + shape.targetOffset[0][edge];
    const backward = boxes.heightOf(group, target, 1) + shape.targetOffset[1][edge];
    if (!boxes.isElastic && layout.column[scene.source[edge]] < column) {
      const left = boxes.originDepth[group] + Number(boxes.columnsOf(group).start[column]);
      this.#stop(Math.min(left, border), forward, backward);
    }
    this.#stop(border, forward, backward);
  }

  /** Lines from a leaf to its readers. @param {number} tensor */
  #leaf(tensor) {
    const { list } = this;
    const { owner, readerStart, reader } = this.index;
    const own = this.boxes.tensorBox[tensor];
    if (own < 0) return;
    const beside = list.boxOfOp(owner[tensor], 0);
    list.startRound();
    for (let at = readerStart[tensor]; at < readerStart[tensor + 1]; at += 1) {
      const box = list.boxOfOp(reader[at], 0);
      if (box < 0 || !list.meet(box)) continue;
      const [a, b] = [list.place(own), list.place(box)];
      if (box === beside) list.add(own, box, SATELLITE, 0, tensor, stacked(a, b, 0));
      else list.add(own, box, REUSE, 0, tensor, direct(a, b));
    }
  }
}
