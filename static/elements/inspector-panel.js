/** <inspector-panel>: everything recorded about the selected tensor, op or box; without a selection, a table of the
 * layers and the size of the graph.
 * Set `rules`, `theory`, `reach` ("up2", "down", "") and, if the model's Functions can be checked, `check`; call
 * `show(picture, graph, id)`. Events, bubbling: `box-select` {id}, `box-open` {id}, `tensor-select` {tensor},
 * `prediction-start` {figure}, `reach-change` {direction, hops}, `path-light` {ids}. */

import { buttonOf, emit, html, writeText } from "../core/dom.js";
import { count, duration, quantity, shape } from "../core/format.js";
import { find } from "../core/graph/graph.js";
import { gradientCheck, isOfFunction } from "../core/inspector/check.js";
import { comparison, figures, guessFirst, histogram, roundingError, valueTable } from "../core/inspector/figures.js";
import { heading, Inspection, list, reachControls, sources, unique } from "../core/inspector/sections.js";
import { formulas, gradientRules } from "../core/inspector/math.js";
import { pathToLoss } from "../core/inspector/path.js";
import { flopsText, sizeText } from "../core/inspector/op-facts.js";
import { faultsOf, firstBad } from "../core/lab/faults.js";
import { hue } from "../core/colours.js";
import { opsOf } from "../core/graph/reach.js";
import { itemSize } from "../core/graph/steps.js";
import { layersOf } from "../core/view/facts.js";
import { entriesOf, gradientsOf, inputsOf, outputsOf, readersOf, wiringOf } from "../core/graph/wiring.js";

/** @typedef {HTMLElement & {picture: Picture, theory: Theory | null}} LayerTable */
/** @typedef {HTMLElement & {isOpen: boolean, show: (picture: Picture, graph: Graph, tensor: number) => void}}
 * ValueMap */

/** Ops listed of one box. */
const MAX_LISTED = 100;

class InspectorPanel extends HTMLElement {
  rules = /** @type {Rules | null} */ (null);
  /** Checks the gradients of the custom Function that an op belongs to. @type {BackwardChecker | null} */
  check = null;
  #theory = /** @type {Theory | null} */ (null);
  #picture = /** @type {Picture | null} */ (null);
  #graph = /** @type {Graph | null} */ (null);
  #selected = "";
  #inspection = /** @type {Inspection | null} */ (null);
  #reach = "";
  #controls = reachControls(this);
  /** Whether the values are open; kept from selection to selection. */
  #hasValuesOpen = false;

  /** @param {Theory | null} theory */
  set theory(theory) {
    this.#theory = theory;
    this.#expect();
  }

  /** @param {string} reach */
  set reach(reach) {
    this.#reach = reach;
    this.#controls.fill(reach);
  }

  #expect() {
    if (this.#picture !== null) {
      for (const expect of this.#inspection?.expectations ?? []) expect(this.#picture, this.#theory);
    }
  }

  /** @param {Picture} picture @param {Graph} graph of that picture @param {string} id "" for no selection */
  show(picture, graph, id) {
    this.#picture = picture;
    if (graph !== this.#graph || id !== this.#selected || this.#inspection === null) {
      this.#graph = graph;
      this.#selected = id;
      const inspection = new Inspection(this, picture, graph, this.rules);
      this.#inspection = inspection;
      const item = find(graph, id);
      if (item === null) this.replaceChildren(...this.#overview(inspection));
      else if (item.kind === "tensor") this.replaceChildren(...this.#tensor(inspection, item));
      else if (item.kind === "group") this.replaceChildren(...this.#group(inspection, item));
      else this.replaceChildren(...this.#op(inspection, item));
      this.#controls.fill(this.#reach);
      this.scrollTop = 0;
    }
    for (const update of this.#inspection.updates) update(picture);
    this.#expect();
  }

  /** @param {Inspection} inspection @returns {Node[]} */
  #overview(inspection) {
    const { topology } = inspection.graph;
    const table = /** @type {LayerTable} */ (document.createElement("layer-table"));
    inspection.updates.push((picture) => (table.picture = picture));
    inspection.expectations.push((_, theory) => (table.theory = theory));
    const ops = (/** @type {Phase} */ half) => topology.ops.filter(({ phase }) => phase === half);
    const parameters = topology.tensors.flatMap(({ role }, tensor) => role === "parameter" ? [tensor] : []);
    const flops = (/** @type {Op[]} */ some) => quantity(some.reduce((sum, op) => sum + op.flops, 0), "FLOP");
    const passes = /** @type {const} */ (["forward", "backward"]).map(
      (half) => /** @type {[string, string]} */ ([half, `${ops(half).length} ops, ${flops(ops(half))}`])
    );
    return [
      html("header", {}, html("h2", {}, "Overview")),
      this.#firstBad(inspection),
      ...(topology.layers.length > 0 ? [table] : []),
      list([["parameters", parametersText(inspection, parameters)], ...passes]),
      html("p", { class: "hint" }, "Click a box of the graph to inspect it."),
    ];
  }

  /** A button that leads to the first bad tensor. @param {Inspection} inspection @returns {HTMLElement} */
  #firstBad({ graph, expectations }) {
    let target = -1;
    const button = buttonOf({ class: "first-bad", hidden: true },
      () => emit(this, "box-open", { id: graph.tensorId[target] ?? "" }));
    expectations.push((picture, theory) => {
      const faults = faultsOf(picture, theory);
      if (faults === null) return;
      const bad = firstBad(graph, picture, faults);
      button.hidden = bad === null;
      target = bad?.tensor ?? -1;
      writeText(button, `First bad tensor: ${graph.topology.tensors[target]?.name ?? ""}, ${bad?.why ?? ""}`);
    });
    return button;
  }

  /** @param {Inspection} inspection @param {Item} item @returns {Node[]} */
  #tensor(inspection, { index, half }) {
    const { graph, picture } = inspection;
    const { topology, arrays } = graph;
    const tensor = topology.tensors[index];
    const colour = hue(half, tensor.role);
    const row = picture.rows.get(tensor.id);
    const isNamed = graph.tensorId[index] === tensor.name;
    const isSmall = arrays.elements[index] > 0 && arrays.elements[index] <= picture.values.length;
    /** @type {Node[]} */
    const nodes = [
      heading(inspection, tensor.name, tensor.role, colour,
        row === undefined || !isNamed || picture.spec === null ? [] : [guessFirst(inspection, tensor.name, row)]),
    ];
    if (row === undefined) {
      nodes.push(html("p", { class: "hint" }, tensor.note ?? "This tensor has no statistics."));
    } else {
      if (arrays.elements[index] > 1) nodes.push(...histogram(inspection, row, colour, tensor.name));
      if (isSmall) nodes.push(valueTable(inspection, row, tensor.shape));
      nodes.push(figures(inspection, row), roundingError(inspection, tensor.id));
      const layer = topology.layers.find((one) =>
        [one.preactivation, one.activation, one.gradient, one.weight].includes(tensor.id)
      );
      if (layer !== undefined) nodes.push(comparison(inspection, layer, tensor.id));
    }
    const { needed } = wiringOf(graph);
    const readers = readersOf(arrays, index);
    // A hand-written layer keeps what its backward reads; only autograd's saved tensors are recorded as saved.
    const isBackward = (/** @type {number} */ op) => half === "forward" && arrays.opHalf[op] === 1;
    const savers = [...arrays.savedOp].filter((_, edge) => arrays.savedTensor[edge] === index);
    const original = arrays.gradientOf[index];
    const gradient = gradientsOf(graph)[index];
    const maker = arrays.producer[index];
    const producers = maker < 0 ? [] : [maker];
    nodes.push(list([
      ["shape", shape(tensor.shape)],
      ["dtype", tensor.dtype],
      ["elements",
        `${count(arrays.elements[index])}, ${quantity(arrays.elements[index] * itemSize(tensor.dtype), "B")}`],
      ["module", this.#module(inspection, tensor.module, half)],
      ["gradient", inspection.tensorLinks(gradient < 0 ? [] : [gradient])],
      ["gradient of", inspection.tensorLinks(original < 0 ? [] : [original])],
      ["made by", inspection.opLinks(producers)],
      ["read by", inspection.opLinks([...readers].filter((op) => !isBackward(op)))],
      ["saved for", inspection.opLinks(unique([...savers, ...[...readers].filter(isBackward)]))],
      ["needed by", inspection.opLinks([...entriesOf(needed, index)])],
    ]));
    const made = producers.map((op) => topology.ops[op]);
    nodes.push(...formulas(inspection, made), ...sources(topology, made), ...gradientRules(inspection, producers));
    if (!isSmall) nodes.push(this.#values(inspection, index));
    nodes.push(...pathToLoss(inspection, original < 0 ? index : original), this.#controls.element);
    return nodes;
  }

  /** @param {Inspection} inspection @param {number} tensor @returns {HTMLElement} */
  #values({ graph, updates }, tensor) {
    const map = /** @type {ValueMap} */ (document.createElement("value-map"));
    const fold = html("details", { class: "values", open: this.#hasValuesOpen }, html("summary", {}, "Values"), map);
    map.isOpen = this.#hasValuesOpen;
    fold.addEventListener("toggle", () => {
      this.#hasValuesOpen = fold.open;
      map.isOpen = fold.open;
    });
    updates.push((picture) => map.show(picture, graph, tensor));
    return fold;
  }

  /** @param {Inspection} inspection @param {number} op
   * @returns {Node[]} nothing if the op is not of a custom Function */
  #check(inspection, op) {
    return this.check === null || op < 0 || !isOfFunction(inspection.graph, op) ? []
      : [gradientCheck(inspection, op, this.check)];
  }

  /** @param {Inspection} inspection @param {Item} item @returns {Node[]} */
  #group(inspection, item) {
    const { graph } = inspection;
    const { topology, arrays } = graph;
    const places = opsOf(graph, item);
    const ops = places.flatMap((op) => topology.ops[op] ?? []);
    const other = /** @type {Item} */ ({ ...item, half: item.half === "forward" ? "backward" : "forward" });
    const module = topology.modules[graph.groupModule[item.index]];
    const repeats = arrays.groupRepeats[item.index];
    const sum = (/** @type {(op: Op) => number} */ of) => ops.reduce((total, op) => total + of(op), 0);
    const { keeps } = wiringOf(graph);
    const read = opsOf(graph, { ...item, half: "forward" }).flatMap((op) => [...inputsOf(arrays, op)]);
    const parameters = unique(read).filter((tensor) => topology.tensors[tensor].role === "parameter");
    const hasTwin = opsOf(graph, other).length > 0;
    const took = topology.op_us;
    return [
      heading(inspection, `${graph.groupLabel[item.index]}${repeats > 0 ? ` × ${repeats}` : ""}`, item.half, item.half),
      ...formulas(inspection, ops),
      ...gradientRules(inspection, places),
      // Functions inside an open module have their own boxes.
      ...(arrays.groupIsLeaf[item.index] === 1 ? this.#check(inspection, places[0] ?? -1) : []),
      ...sources(topology, ops),
      list([
        ["module", module === undefined || module.path === "" ? "the model itself" : module.path],
        ["different", graph.differences[item.index].join("; ") || null],
        ["in the profile", layersOf(graph, item.index) || null],
        [other.half, hasTwin ? inspection.itemLink(other, `${graph.groupLabel[item.index]} (${other.half})`) : null],
        ["parameters", parameters.length === 0 ? null : parametersText(inspection, parameters)],
        ["FLOPs", quantity(sum(({ flops }) => flops), "FLOP")],
        ["read + written", quantity(sum(({ bytes }) => bytes), "B")],
        ["time", took == null ? null : duration(places.reduce((total, op) => total + (took[op] ?? 0), 0))],
        ["saves", inspection.tensorLinks(unique(places.flatMap((op) => [...entriesOf(keeps, op)])))],
      ]),
      html("h3", {}, ops.length === 1 ? "1 op" : `${count(ops.length)} ops, in order`),
      html("ol", { class: "ops" },
        ...places.slice(0, MAX_LISTED).map((op) =>
          html("li", {}, inspection.opLink(op), html("span", {}, ` ${signature(inspection, op)}`))
        )),
      ...(places.length > MAX_LISTED ? [html("p", { class: "hint" }, `and ${count(places.length - MAX_LISTED)} more`)]
        : []),
      this.#controls.element,
    ];
  }

  /** @param {Inspection} inspection @param {Item} item @returns {Node[]} */
  #op(inspection, { index, half }) {
    const { graph } = inspection;
    const { topology, arrays } = graph;
    const op = topology.ops[index];
    const { keeps, needs, backward, twin } = wiringOf(graph);
    const forward = twin[index];
    const twins = half === "backward" ? (forward < 0 ? [] : [forward]) : [...entriesOf(backward, index)];
    const group = arrays.opGroup[index];
    const attributes = Object.entries(op.attributes).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
    const took = topology.op_us?.[index];
    // An op that raised has inputs, but no costs.
    const hasFailed = topology.error?.op === op.id;
    return [
      heading(inspection, op.name, `${op.phase} op`, op.phase),
      ...formulas(inspection, [op]),
      ...gradientRules(inspection, [index]),
      ...this.#check(inspection, index),
      ...sources(topology, [op]),
      list([
        ["module", this.#module(inspection, op.module, half)],
        ["box",
          group < 0 ? null
            : inspection.itemLink({ kind: "group", index: group, half }, `${graph.groupLabel[group]} (${half})`)],
        ["attributes", attributes.length === 0 ? null : attributes.join(", ")],
        ["reads", inspection.tensorLinks([...inputsOf(arrays, index)])],
        ["and, saved for it", inspection.tensorLinks([...entriesOf(needs, index)])],
        ["writes", inspection.tensorLinks([...outputsOf(arrays, index)])],
        ["saves", inspection.tensorLinks(unique(entriesOf(keeps, index)))],
        [half === "forward" ? "backward" : "forward", inspection.opLinks(twins)],
        ["FLOPs",
          hasFailed ? null
            : flopsText(op, (id) => topology.tensors[graph.tensorIndex.get(id) ?? -1], topology.ops[forward] ?? null)],
        ["read + written", hasFailed ? null : quantity(op.bytes, "B")],
        ["time", took === undefined || hasFailed ? null : duration(took)],
        ["step", `${index + 1} of ${arrays.ops}`],
      ]),
      this.#controls.element,
    ];
  }

  /** @param {Inspection} inspection @param {string} id of a module @param {Phase} half */
  #module(inspection, id, half) {
    const { graph } = inspection;
    const place = graph.topology.modules.findIndex((module) => module.id === id);
    const module = graph.topology.modules[place];
    if (module === undefined) return "–";
    const text = `${module.path} ${module.type}`.trim();
    const group = graph.groupModule.findIndex((each, at) =>
      each === place && at > 0 && graph.arrays.groupKind[at] === 0
    );
    return group < 0 ? text : inspection.itemLink({ kind: "group", index: group, half }, text);
  }
}

/** @param {Inspection} inspection @param {readonly number[]} tensors */
function parametersText({ graph: { arrays } }, tensors) {
  const total = tensors.reduce((sum, tensor) => sum + arrays.elements[tensor], 0);
  return `${count(total)} in ${tensors.length} ${tensors.length === 1 ? "tensor" : "tensors"}`;
}

/** @param {Inspection} inspection @param {number} op @returns {string} (200×100), (100×50) → (200×50) */
function signature({ graph: { topology, tensorIndex } }, op) {
  const size = (/** @type {string} */ id) => sizeText(topology.tensors[tensorIndex.get(id) ?? -1]?.shape ?? []);
  const { inputs = [], outputs = [] } = topology.ops[op] ?? {};
  return `${inputs.map(size).join(", ")} → ${outputs.map(size).join(", ")}`;
}

customElements.define("inspector-panel", InspectorPanel);
