/**
 * From a topology to what is drawn at layer level: one box per run of ops of one module and phase, one per tensor that
 * passes between them. No DOM and no geometry.
 *
 * A run is contiguous in execution order, which is a topological order, so the boxes of a phase never form a cycle.
 * Backward ops join the box that mirrors their twin's.
 */

/** @typedef {import("./types.js").Topology} Topology */
/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").SceneGroup} SceneGroup */
/** @typedef {import("./types.js").SceneTensor} SceneTensor */
/** @typedef {import("./types.js").SceneEdge} SceneEdge */
/** @typedef {import("./types.js").Op} Op */
/** @typedef {import("./types.js").Tensor} Tensor */
/** @typedef {import("./types.js").Module} Module */
/** @typedef {import("./types.js").Phase} Phase */

/**
 * @param {Topology} topology
 * @returns {Scene}
 */
export function buildScene(topology) {
  const index = indexOf(topology);
  const grouping = groupOps(topology, index);
  const tensors = visibleTensors(topology, index, grouping);
  return { groups: [...grouping.groups.values()], tensors: [...tensors.values()], edges: edgesOf(topology, index, grouping, tensors) };
}

/**
 * @typedef {object} Index
 * @property {ReadonlyMap<string, Op>} ops
 * @property {ReadonlyMap<string, Tensor>} tensors
 * @property {ReadonlyMap<string, Module>} modules
 */

/**
 * @param {Topology} topology
 * @returns {Index}
 */
function indexOf(topology) {
  return {
    ops: new Map(topology.ops.map((op) => [op.id, op])),
    tensors: new Map(topology.tensors.map((tensor) => [tensor.id, tensor])),
    modules: new Map(topology.modules.map((module) => [module.id, module])),
  };
}

/** @typedef {{groups: Map<string, SceneGroup>, groupOf: Map<string, string>}} Grouping groupOf: op id → group id */

/**
 * @param {Topology} topology
 * @param {Index} index
 * @returns {Grouping}
 */
function groupOps(topology, index) {
  /** @type {Map<string, SceneGroup>} */
  const groups = new Map();
  /** @type {Map<string, string>} */
  const groupOf = new Map();

  /** @param {Op} op @param {string} id @param {string | null} twin */
  const join = (op, id, twin) => {
    let group = groups.get(id);
    if (group === undefined) {
      const module = index.modules.get(op.module) ?? { id: op.module, path: "", type: op.name, parent: null };
      group = { id, half: op.phase, module, label: module.type, ops: [], twin: null };
      groups.set(id, group);
      const other = twin === null ? undefined : groups.get(twin);
      if (other !== undefined) {
        group.twin = other.id;
        group.label = other.label;
        other.twin = group.id;
      }
    }
    group.ops.push(op.id);
    groupOf.set(op.id, id);
  };

  /** @param {Op} op @returns {string} an id for a new run of the op's module and phase */
  const freshId = (op) => {
    const stem = `${index.modules.get(op.module)?.path || "model"}/${op.phase}`;
    let id = stem;
    for (let run = 2; groups.has(id); run += 1) id = `${stem}.${run}`;
    return id;
  };

  let run = { module: "", id: "" };
  for (const op of topology.ops) {
    if (op.phase !== "forward") continue;
    if (run.id === "" || op.module !== run.module) run = { module: op.module, id: freshId(op) };
    join(op, run.id, null);
  }

  run = { module: "", id: "" };
  for (const op of topology.ops) {
    if (op.phase !== "backward") continue;
    const forward = forwardGroupOf(op, index, groupOf);
    if (forward !== null) {
      join(op, forward.replace(/\/forward(?=[^/]*$)/, "/backward"), forward);
      run = { module: "", id: "" };
    } else {
      if (run.id === "" || op.module !== run.module) run = { module: op.module, id: freshId(op) };
      join(op, run.id, null);
    }
  }

  // A group in no module of its own is called by what it does.
  for (const group of groups.values()) {
    const [first] = group.ops;
    if (group.module.parent === null && group.ops.length === 1 && first !== undefined) {
      group.label = index.ops.get(first)?.name ?? group.label;
    }
  }
  return { groups, groupOf };
}

/**
 * The forward group that a backward op belongs to: its twin's, or else that of the leaf whose gradient it accumulates.
 *
 * @param {Op} op
 * @param {Index} index
 * @param {ReadonlyMap<string, string>} groupOf
 * @returns {string | null}
 */
function forwardGroupOf(op, index, groupOf) {
  if (op.twin !== null) return groupOf.get(op.twin) ?? null;
  for (const output of op.outputs) {
    const original = index.tensors.get(index.tensors.get(output)?.gradient_of ?? "");
    if (original === undefined || original.producer !== null) continue;
    for (const consumer of original.consumers) {
      const group = groupOf.get(consumer);
      if (group !== undefined && index.ops.get(consumer)?.phase === "forward") return group;
    }
  }
  return null;
}

/**
 * @param {Topology} topology
 * @param {Index} index
 * @param {Grouping} grouping
 * @returns {Map<string, SceneTensor>} by tensor id, in order of execution
 */
function visibleTensors(topology, index, { groups, groupOf }) {
  /** @type {Map<string, number>} */
  const uses = new Map();
  for (const { name } of topology.tensors) uses.set(name, (uses.get(name) ?? 0) + 1);

  // What the layers put out is drawn even where nothing reads it.
  const results = new Set(topology.layers.flatMap(({ preactivation, activation }) => [preactivation, activation]));

  /** @type {Map<string, SceneTensor>} */
  const visible = new Map();
  for (const tensor of topology.tensors) {
    const half = halfOf(tensor, index);
    const own = tensor.producer === null ? null : (groupOf.get(tensor.producer) ?? null);
    const consumers = tensor.consumers.filter((op) => index.ops.get(op)?.phase === half);
    const crosses = consumers.some((op) => groupOf.get(op) !== own);
    const original = tensor.gradient_of === null ? undefined : visible.get(tensor.gradient_of);
    const ends = tensor.consumers.length === 0 && (half === "forward" || original !== undefined);
    const isShown =
      crosses || original !== undefined || (ends && tensor.role !== "saved") || tensor.role === "loss" || results.has(tensor.id);
    if (!isShown) continue;

    let satellite = null;
    if (half === "forward" && tensor.producer === null && tensor.role !== "input") {
      const [first] = consumers;
      satellite = first === undefined ? null : (groupOf.get(first) ?? null);
    } else if (half === "backward" && original !== undefined && original.satellite !== null) {
      satellite = groups.get(original.satellite)?.twin ?? null;
    } else if (half === "backward" && tensor.producer === null && original === undefined) {
      const [first] = consumers;
      satellite = first === undefined ? null : (groupOf.get(first) ?? null);
    }
    const isUnique = uses.get(tensor.name) === 1 && !index.tensors.has(tensor.name) && !groups.has(tensor.name);
    const id = isUnique ? tensor.name : tensor.id;
    visible.set(tensor.id, { id, tensor: tensor.id, half, satellite, twin: original?.id ?? null });
  }
  return visible;
}

/**
 * A tensor stands in the half of the op that made it; a leaf in that of the op that reads it first.
 *
 * @param {Tensor} tensor
 * @param {Index} index
 * @returns {Phase}
 */
function halfOf(tensor, index) {
  if (tensor.role === "gradient" || tensor.gradient_of !== null) return "backward";
  const op = tensor.producer ?? tensor.consumers[0];
  return (op === undefined ? undefined : index.ops.get(op)?.phase) ?? "forward";
}

/**
 * @param {Topology} topology
 * @param {Index} index
 * @param {Grouping} grouping
 * @param {ReadonlyMap<string, SceneTensor>} visible
 * @returns {SceneEdge[]}
 */
function edgesOf(topology, index, { groups, groupOf }, visible) {
  /** @type {Map<string, SceneEdge>} */
  const edges = new Map();
  /** @param {SceneEdge} edge */
  const add = (edge) => {
    const key = JSON.stringify([edge.source, edge.target, edge.kind === "saved"]);
    if (!edges.has(key)) edges.set(key, edge);
  };
  /** What is kept for the backward: a line from the tensor, or from the op that hides it, across to the op that needs it.
   * @param {Tensor | undefined} tensor @param {string | undefined} target */
  const addSaved = (tensor, target) => {
    if (tensor === undefined || target === undefined || tensor.role === "loss") return;
    const source = visible.get(tensor.id)?.id ?? groupOf.get(tensor.producer ?? "");
    if (source !== undefined) add({ source, target, kind: "saved", half: "forward", tensor: tensor.id });
  };

  for (const op of topology.ops) {
    const group = groupOf.get(op.id);
    if (group === undefined) continue;
    for (const id of op.inputs) {
      const shown = visible.get(id);
      const tensor = index.tensors.get(id);
      if (op.phase === "backward" && tensor !== undefined && halfOf(tensor, index) === "forward") addSaved(tensor, group);
      else if (shown !== undefined && groupOf.get(tensor?.producer ?? "") !== group) {
        const kind = shown.satellite === group ? "satellite" : "data";
        add({ source: shown.id, target: group, kind, half: op.phase, tensor: id });
      }
    }
    for (const id of op.outputs) {
      const shown = visible.get(id);
      if (shown === undefined) continue;
      const kind = shown.satellite === group ? "satellite" : "data";
      add({ source: group, target: shown.id, kind, half: op.phase, tensor: id });
    }
  }
  for (const { tensor, op } of topology.saved) {
    const forward = groups.get(groupOf.get(op) ?? "");
    const kept = index.tensors.get(tensor);
    if (kept !== undefined && halfOf(kept, index) === "forward") addSaved(kept, forward?.twin ?? undefined);
  }

  // The backward pass starts where the forward pass ended: at the loss.
  for (const shown of visible.values()) {
    const tensor = index.tensors.get(shown.tensor);
    if (tensor?.role !== "loss") continue;
    const seed = [...visible.values()].find((other) => other.twin === shown.id);
    const target = seed?.id ?? groups.get(groupOf.get(tensor.producer ?? "") ?? "")?.twin;
    if (target != null) add({ source: shown.id, target, kind: "fold", half: "backward", tensor: shown.tensor });
  }
  return [...edges.values()];
}

/**
 * What an id of the view state means: a box of the scene, or an op inside one.
 *
 * @typedef {{kind: "tensor", tensor: Tensor} | {kind: "group", group: SceneGroup} | {kind: "op", op: Op}} Selected
 */

/**
 * @param {Topology} topology
 * @param {Scene} scene
 * @param {string} id
 * @returns {Selected | null}
 */
export function resolve(topology, scene, id) {
  if (id === "") return null;
  const group = scene.groups.find((candidate) => candidate.id === id);
  if (group !== undefined) return { kind: "group", group };
  const shown = scene.tensors.find((candidate) => candidate.id === id)?.tensor ?? id;
  const tensor = topology.tensors.find((candidate) => candidate.id === shown);
  if (tensor !== undefined) return { kind: "tensor", tensor };
  const op = topology.ops.find((candidate) => candidate.id === id);
  return op === undefined ? null : { kind: "op", op };
}
