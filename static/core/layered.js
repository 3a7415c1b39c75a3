/**
 * A layered layout of one half: which column each box stands in, in what order, and how high. No DOM; iterative.
 *
 *   columns: longest path from the inputs · order within a column: barycentre sweeps, with dummies where an edge passes
 *   through · heights: weighted isotonic regression, column by column
 */

/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").SceneEdge} SceneEdge */

const SWEEPS = 8;

/** @typedef {{rowGap: number, fold: number}} Spacing between boxes of one column, and from the axis to the nearest box */

/**
 * A box on its way to its place. Heights count from the axis; `inner` and `outer` are the reach of the box and of its
 * satellites from `height`, toward the axis and away from it.
 *
 * @typedef {object} Node
 * @property {string} id
 * @property {"op" | "tensor" | "dummy"} kind
 * @property {[number, number]} size natural depth and height
 * @property {string[]} satellites
 * @property {number} column
 * @property {number} height
 * @property {number} inner
 * @property {number} outer
 * @property {number} position within its column
 * @property {Node[]} before neighbours in the column before
 * @property {Node[]} after
 */

/**
 * Longest path from the inputs; an input then moves to just before what first reads it.
 *
 * @param {ReadonlyMap<string, Node>} nodes
 * @param {readonly SceneEdge[]} edges
 * @param {Scene} scene
 */
export function assignColumns(nodes, edges, scene) {
  /** @type {Map<string, string[]>} */
  const next = new Map();
  /** @type {Map<string, number>} */
  const open = new Map([...nodes.keys()].map((id) => [id, 0]));
  for (const { source, target } of edges) {
    next.set(source, [...(next.get(source) ?? []), target]);
    open.set(target, (open.get(target) ?? 0) + 1);
  }
  for (const { id, half } of scene.groups) {
    const node = nodes.get(id);
    if (half === "forward" && node !== undefined) node.column = 1;
  }
  const ready = [...nodes.keys()].filter((id) => open.get(id) === 0);
  const sources = new Set(ready);
  const order = [];
  for (let id = ready.shift(); id !== undefined; id = ready.shift()) {
    order.push(id);
    for (const target of next.get(id) ?? []) {
      const [from, to] = [nodes.get(id), nodes.get(target)];
      if (from !== undefined && to !== undefined) to.column = Math.max(to.column, from.column + 1);
      const left = (open.get(target) ?? 1) - 1;
      open.set(target, left);
      if (left === 0) ready.push(target);
    }
  }
  for (const id of sources) {
    const node = nodes.get(id);
    const readers = (next.get(id) ?? []).map((target) => nodes.get(target)?.column ?? 1);
    if (node !== undefined && readers.length > 0) node.column = Math.min(...readers) - 1;
  }
}

/** @param {number} column @returns {Node} a place that an edge passes through */
function dummy(column) {
  return { id: "", kind: "dummy", size: [0, 4], satellites: [], column, height: 0, inner: 2, outer: 2, position: 0, before: [], after: [] };
}

/**
 * @param {ReadonlyMap<string, Node>} nodes
 * @param {readonly SceneEdge[]} edges
 * @returns {{columns: Node[][], chains: Map<SceneEdge, Node[]>}} chains: the nodes that an edge runs along
 */
export function fillColumns(nodes, edges) {
  /** @type {Node[][]} */
  const columns = [];
  /** @param {Node} node */
  const put = (node) => {
    while (columns.length <= node.column) columns.push([]);
    columns[node.column]?.push(node);
  };
  for (const node of nodes.values()) put(node);
  /** @type {Map<SceneEdge, Node[]>} */
  const chains = new Map();
  for (const edge of edges) {
    const [source, target] = [nodes.get(edge.source), nodes.get(edge.target)];
    if (source === undefined || target === undefined) continue;
    const chain = [source];
    let last = source;
    for (let column = source.column + 1; column < target.column; column += 1) {
      const through = dummy(column);
      put(through);
      chain.push(through);
      last.after.push(through);
      through.before.push(last);
      last = through;
    }
    last.after.push(target);
    target.before.push(last);
    chain.push(target);
    chains.set(edge, chain);
  }
  return { columns, chains };
}

/** @param {readonly Node[][]} columns */
function numberPositions(columns) {
  for (const column of columns) column.forEach((node, position) => (node.position = position));
}

/**
 * Barycentre sweeps, alternately with the depth and against it; the order with fewest crossings stays.
 *
 * @param {Node[][]} columns
 */
export function orderColumns(columns) {
  numberPositions(columns);
  let fewest = crossings(columns);
  let best = columns.map((column) => [...column]);
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep += 1) {
    const along = sweep % 2 === 0;
    for (let step = 1; step < columns.length; step += 1) {
      const column = columns[along ? step : columns.length - 1 - step] ?? [];
      const weight = new Map(column.map((node) => [node, barycentre(node, along ? node.before : node.after)]));
      column.sort((a, b) => (weight.get(a) ?? 0) - (weight.get(b) ?? 0) || a.position - b.position);
      column.forEach((node, position) => (node.position = position));
    }
    const now = crossings(columns);
    if (now < fewest) {
      fewest = now;
      best = columns.map((column) => [...column]);
    }
  }
  best.forEach((column, index) => (columns[index] = column));
  numberPositions(columns);
}

/** @param {Node} node @param {readonly Node[]} neighbours @returns {number} */
function barycentre(node, neighbours) {
  if (neighbours.length === 0) return node.position;
  return neighbours.reduce((sum, neighbour) => sum + neighbour.position, 0) / neighbours.length;
}

/**
 * Edge crossings between neighbouring columns, counted with a Fenwick tree.
 *
 * @param {readonly Node[][]} columns
 * @returns {number}
 */
function crossings(columns) {
  let total = 0;
  for (let index = 1; index < columns.length; index += 1) {
    const width = (columns[index - 1]?.length ?? 0) + 1;
    const tree = new Int32Array(width + 1);
    let seen = 0;
    for (const node of columns[index] ?? []) {
      const ends = node.before.map(({ position }) => position).sort((a, b) => a - b);
      for (const end of ends) {
        let below = 0;
        for (let slot = end + 1; slot > 0; slot -= slot & -slot) below += tree[slot] ?? 0;
        total += seen - below;
      }
      for (const end of ends) {
        for (let slot = end + 1; slot <= width; slot += slot & -slot) tree[slot] = (tree[slot] ?? 0) + 1;
        seen += 1;
      }
    }
  }
  return total;
}

/**
 * Heights by sweeps with and against the depth: each column is solved exactly for the heights its neighbours ask for.
 *
 * @param {readonly Node[][]} columns
 * @param {Spacing} spacing
 * @param {ReadonlySet<string>} onAxis tensors that stand on the axis itself: the loss
 * @param {number} reach how far what stands on the axis goes from it, gradients of theirs included
 */
export function assignHeights(columns, spacing, onAxis, reach) {
  for (const column of columns) {
    let height = 0;
    column.forEach((node, position) => {
      if (position > 0) height += separation(column[position - 1], node, spacing);
      node.height = height;
    });
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const along = sweep % 2 === 0;
    for (let step = 0; step < columns.length; step += 1) {
      const column = columns[along ? step : columns.length - 1 - step] ?? [];
      const wanted = column.map((node) => {
        const neighbours = along ? node.before : node.after;
        return neighbours.length === 0 ? node.height : neighbours.reduce((sum, { height }) => sum + height, 0) / neighbours.length;
      });
      const weights = column.map((node) => (node.kind === "dummy" ? 4 : 1));
      const apart = column.slice(1).map((node, position) => separation(column[position], node, spacing));
      isotonic(wanted, weights, apart).forEach((height, position) => {
        const node = column[position];
        if (node !== undefined) node.height = height;
      });
    }
  }
  const isShared = columns.some((column) => column.some(({ id }) => onAxis.has(id)) && column.some(({ id }) => !onAxis.has(id)));
  const fold = isShared ? Math.max(spacing.fold, reach + spacing.rowGap) : spacing.fold;
  let lowest = Infinity;
  for (const node of columns.flat()) if (!onAxis.has(node.id)) lowest = Math.min(lowest, node.height - node.inner);
  for (const node of columns.flat()) node.height = onAxis.has(node.id) ? 0 : node.height - lowest + fold;
}

/** @param {Node | undefined} inner @param {Node} outer @param {Spacing} spacing @returns {number} */
function separation(inner, outer, spacing) {
  return (inner?.outer ?? 0) + spacing.rowGap + outer.inner;
}

/**
 * Weighted isotonic regression (pool adjacent violators): the x minimising Σ wᵢ(xᵢ − dᵢ)² with xᵢ₊₁ ≥ xᵢ + sᵢ.
 *
 * @param {readonly number[]} wanted d
 * @param {readonly number[]} weights w
 * @param {readonly number[]} apart s
 * @returns {number[]}
 */
export function isotonic(wanted, weights, apart) {
  const offsets = [0];
  apart.forEach((gap, position) => offsets.push((offsets[position] ?? 0) + gap));
  /** @type {{value: number, weight: number, size: number}[]} */
  const blocks = [];
  wanted.forEach((value, position) => {
    let block = { value: value - (offsets[position] ?? 0), weight: weights[position] ?? 1, size: 1 };
    for (let last = blocks[blocks.length - 1]; last !== undefined && last.value > block.value; last = blocks[blocks.length - 1]) {
      blocks.pop();
      const weight = last.weight + block.weight;
      block = { value: (last.value * last.weight + block.value * block.weight) / weight, weight, size: last.size + block.size };
    }
    blocks.push(block);
  });
  const solved = blocks.flatMap(({ value, size }) => Array.from({ length: size }, () => value));
  return solved.map((value, position) => value + (offsets[position] ?? 0));
}
