/** The part of a layout that does not depend on the open groups: the tree of groups, the possible places of each
 * tensor, and the backward ops beneath each op. Computed once per graph and folding. No DOM, no recursion. */

import { byKey } from "../graph/wiring.js";

const INPUT = 0;
const TARGET = 1;
const PARAMETER = 2;
const LOSS = 8;
/** Most satellites of a closed group. */
const MAX_SATELLITES = 4;

/** By tensor: home, the group it stands in when all is open; reach, the outermost group it may stand in; owner, the
 * first forward op that reads a leaf; gradient, its gradients in order of execution, the whole one last. By group: child,
 * its ops, and its groups as ~group; touch, tensors made, read or passed in it. By op: sumOf, the tensor whose gradient's
 * parts it adds up; back, the backward ops beneath it; backsBefore, how many ops before it have some; satellite, leaves
 * beside it. -1 stands for none. @param {GraphArrays} arrays @param {number} kinds */
export function indexGraph(arrays, kinds) {
  const tree = treeOf(arrays, kinds);
  const [readerStart, reader] = readers(arrays);
  const places = placesOf(arrays, tree.parent, tree.opGroup, readerStart, reader);
  const [touchStart, touch] = touches(arrays, tree.parent, tree.opGroup, readerStart, reader, places.home,
    places.reach);
  const { gradientStart, gradient, sumOf } = gradients(arrays);
  const [backStart, back] = byKey(arrays.opAnchor.map((anchor, op) => arrays.opHalf[op] === 1 ? anchor : -1),
    arrays.ops);
  const backsBefore = new Int32Array(arrays.ops + 1);
  for (let op = 0; op < arrays.ops; op += 1) {
    backsBefore[op + 1] = backsBefore[op] + (backStart[op + 1] > backStart[op] ? 1 : 0);
  }
  const [satelliteStart, satellite] = byKey(places.owner, arrays.ops);
  const [groupSatelliteStart, groupSatellite] = satellitesOfGroups(arrays, places.owner);
  return { arrays, ...tree, readerStart, reader, ...places, touchStart, touch, gradientStart, gradient, sumOf,
    backStart, back, backsBefore, satelliteStart, satellite, groupSatelliteStart, groupSatellite };
}

/** @param {GraphArrays} arrays @param {number} kinds */
function treeOf({ ops, groups, opHalf, opGroup, groupParent, groupKind, groupFirst }, kinds) {
  const isThere = (/** @type {number} */ group) => groupKind[group] < kinds;
  /** Group → itself, or the nearest group around it that is not folded away. */
  const seen = new Int32Array(groups);
  const parent = new Int32Array(groups).fill(-1);
  for (let group = 0; group < groups; group += 1) {
    const around = group === 0 ? -1 : seen[groupParent[group]];
    parent[group] = around;
    seen[group] = isThere(group) ? group : around;
  }
  const inside = opGroup.map((group) => group < 0 ? -1 : seen[group]);
  /** Ops, and groups as ~group, sorted by first op, groups before their ops. */
  const order = new Int32Array(ops + groups);
  const [start, groupAt] = byKey(groupFirst.map((op, group) => group > 0 && isThere(group) ? op : -1), ops + 1);
  let count = 0;
  for (let op = 0; op <= ops; op += 1) {
    for (let at = start[op]; at < start[op + 1]; at += 1) order[count++] = ~groupAt[at];
    if (op < ops && opHalf[op] === 0 && inside[op] >= 0) order[count++] = op;
  }
  const around = order.map((item) => item >= 0 ? inside[item] : parent[~item]);
  const [childStart, places] = byKey(around, groups, count);
  const child = places.map((at) => order[at]);
  return { parent, opGroup: inside, childStart, child };
}

/** @param {GraphArrays} arrays @returns {[Int32Array, Int32Array]} */
function readers({ tensors, consumerStart, consumers, opHalf, opGroup }) {
  const starts = new Int32Array(tensors + 1);
  const all = new Int32Array(consumers.length);
  let count = 0;
  for (let tensor = 0; tensor < tensors; tensor += 1) {
    for (let at = consumerStart[tensor]; at < consumerStart[tensor + 1]; at += 1) {
      const op = consumers[at];
      if (opHalf[op] === 0 && opGroup[op] >= 0) all[count++] = op;
    }
    starts[tensor + 1] = count;
  }
  return [starts, all.slice(0, count)];
}

/** @param {GraphArrays} arrays @param {Int32Array} parent @param {Int32Array} opGroup @param {Int32Array} readerStart
 * @param {Int32Array} reader */
function placesOf(arrays, parent, opGroup, readerStart, reader) {
  const { ops, tensors, opHalf, tensorHalf, tensorRole, producer, isResult, groupFirst, groupLast, groupKind,
    groupIsLeaf } = arrays;
  const home = new Int32Array(tensors).fill(-1);
  const reach = new Int32Array(tensors).fill(-1);
  const owner = new Int32Array(tensors).fill(-1);
  const holds = (/** @type {number} */ group, /** @type {number} */ op) =>
    op >= groupFirst[group] && op < groupLast[group];
  let loss = -1;
  let lastOp = ops - 1;
  while (lastOp > 0 && opHalf[lastOp] === 1) lastOp -= 1;
  for (let tensor = 0; tensor < tensors; tensor += 1) {
    if (tensorHalf[tensor] === 1) continue;
    const maker = producer[tensor];
    const from = readerStart[tensor];
    const to = readerStart[tensor + 1];
    const role = tensorRole[tensor];
    if (role === LOSS) {
      [home[tensor], reach[tensor], loss] = [0, 0, tensor];
    } else if (maker < 0) {
      if (role === INPUT) [home[tensor], reach[tensor]] = [0, 0];
      else if (from < to) owner[tensor] = reader[from];
    } else if (opHalf[maker] === 0 && (from < to || isResult[tensor] === 1)) {
      const [first, last] = [reader[from] ?? 0, reader[to - 1] ?? 0];
      let group = opGroup[maker];
      if (from < to) { while (group > 0 && !holds(group, first) && !holds(group, last)) group = parent[group]; }
      home[tensor] = group;
      if (from < to) { while (group > 0 && !(holds(group, first) && holds(group, last))) group = parent[group]; }
      if (isResult[tensor] === 1) {
        // The result of a layer shows beside the closed layer, the result of the model always.
        let layer = opGroup[maker];
        while (layer > 0 && groupKind[layer] !== 0) layer = parent[layer];
        // The result of an op between layers is hidden with the op, as in a closed fold.
        const outside = groupIsLeaf[layer] === 1 ? Math.max(0, parent[layer]) : opGroup[maker];
        const around = maker === lastOp && from === to ? 0 : outside;
        group = Math.min(group, around);
      }
      reach[tensor] = group;
    }
  }
  return { home, reach, owner, loss };
}

/** For each group the tensors made, read or passed in it. @param {GraphArrays} arrays @param {Int32Array} parent
 * @param {Int32Array} opGroup @param {Int32Array} readerStart @param {Int32Array} reader @param {Int32Array} home
 * @param {Int32Array} reach @returns {[Int32Array, Int32Array]} */
function touches({ tensors, groups, producer }, parent, opGroup, readerStart, reader, home, reach) {
  const starts = new Int32Array(groups + 1);
  const seen = new Int32Array(groups);
  let all = new Int32Array(0);
  const next = new Int32Array(groups);
  for (const isFilling of [false, true]) {
    seen.fill(-1);
    for (let tensor = 0; tensor < tensors; tensor += 1) {
      if (home[tensor] < 0) continue;
      const top = reach[tensor];
      const from = readerStart[tensor] - 1;
      for (let at = from; at < readerStart[tensor + 1]; at += 1) {
        const op = at === from ? producer[tensor] : reader[at];
        // An input without a reader still stands in the model.
        let group = op < 0 ? top : opGroup[op];
        for (; group >= 0 && seen[group] !== tensor; group = group === top ? -1 : parent[group]) {
          seen[group] = tensor;
          if (isFilling) all[next[group]] = tensor;
          const count = isFilling ? next : starts;
          const place = isFilling ? group : group + 1;
          count[place] = count[place] + 1;
        }
      }
    }
    if (isFilling) break;
    for (let group = 0; group < groups; group += 1) starts[group + 1] = starts[group + 1] + starts[group];
    all = new Int32Array(starts[groups]);
    next.set(starts.subarray(0, groups));
  }
  return [starts, all];
}

/** @param {GraphArrays} arrays */
function gradients({ ops, tensors, opHalf, gradientOf, inputStart, inputs, outputStart, outputs }) {
  const [gradientStart, gradient] = byKey(gradientOf, tensors);
  const sumOf = new Int32Array(ops).fill(-1);
  for (let op = 0; op < ops; op += 1) {
    const [from, to] = [inputStart[op], inputStart[op + 1]];
    if (opHalf[op] === 0 || to - from < 2 || outputStart[op + 1] - outputStart[op] !== 1) continue;
    const of = gradientOf[outputs[outputStart[op]]];
    let isSum = of >= 0;
    for (let at = from; at < to && isSum; at += 1) isSum = gradientOf[inputs[at]] === of;
    if (isSum) sumOf[op] = of;
  }
  return { gradientStart, gradient, sumOf };
}

/** @param {GraphArrays} arrays @param {Int32Array} owner @returns {[Int32Array, Int32Array]} */
function satellitesOfGroups({ tensors, groups, opGroup, tensorRole, groupKind, groupParent, groupIsLeaf }, owner) {
  const taken = new Uint8Array(groups);
  const groupOf = new Int32Array(tensors).fill(-1);
  for (let tensor = 0; tensor < tensors; tensor += 1) {
    const op = owner[tensor];
    if (op < 0 || (tensorRole[tensor] !== PARAMETER && tensorRole[tensor] !== TARGET)) continue;
    let group = opGroup[op];
    while (group > 0 && groupKind[group] !== 0) group = groupParent[group];
    if (groupIsLeaf[group] === 0 || taken[group] >= MAX_SATELLITES) continue;
    taken[group] = taken[group] + 1;
    groupOf[tensor] = group;
  }
  return byKey(groupOf, groups);
}
