/**
 * <inspector-panel>: everything recorded about the selected tensor, box or op; without a selection, the layers in
 * figures and what the graph consists of.
 *
 * Of a tensor that theory speaks of, measured stands beside expected, with the rule and its source. A tensor that waits
 * for a guess shows "?" for every figure.
 *
 * Set `rules`, `theory`; call `show(picture, scene, id)`. Events, bubbling: `box-select` {id}, `tensor-select` {tensor},
 * `prediction-start` {figure}.
 */

import { bandText, expectedText, figuresOf, figureText, isWithin, MEASURES } from "../core/diagnosis.js";
import { emit, html, writeText } from "../core/dom.js";
import { count, figureAt, percent, quantity, shape, significant, valueAt } from "../core/format.js";
import { definitions } from "../core/formula.js";
import { healthIcon } from "../core/health.js";
import { hue } from "../core/palette.js";
import { resolve } from "../core/scene.js";

/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").Scene} Scene */
/** @typedef {import("../core/types.js").SceneGroup} SceneGroup */
/** @typedef {import("../core/types.js").Op} Op */
/** @typedef {import("../core/types.js").Tensor} Tensor */
/** @typedef {import("../core/types.js").Topology} Topology */
/** @typedef {import("../core/types.js").Layer} Layer */
/** @typedef {import("../core/types.js").Rules} Rules */
/** @typedef {import("../core/types.js").Theory} Theory */

/**
 * @typedef {object} Comparison a figure beside its expectation, as written
 * @property {string} key
 * @property {string} label
 * @property {string} measured
 * @property {string} expected
 * @property {string} band "" for none
 * @property {boolean | null} isIn
 * @property {string} says rule, and who found it
 * @property {string} source in full
 */
/** @typedef {{elements: HTMLElement[], fill: (now: Comparison, isPaired: boolean) => void}} ComparisonRow */

/** @typedef {HTMLElement & {picture: Picture}} LayerTable */
/** @typedef {HTMLElement & {show: (picture: Picture, row: number, colour: string, name: string) => void}} HistogramChart */

/** @type {[string, (picture: Picture, row: number) => string | null][]} */
const FIGURES = [
  ["mean", (picture, row) => figureAt(picture, picture.floats.mean, row)],
  ["std", (picture, row) => figureAt(picture, picture.floats.std, row)],
  ["min", (picture, row) => figureAt(picture, picture.floats.min, row)],
  ["max", (picture, row) => figureAt(picture, picture.floats.max, row)],
  ["L2 norm", (picture, row) => figureAt(picture, picture.floats.norm, row)],
  ["zeros", (picture, row) => unlessHidden(picture, row, percent(valueAt(picture.floats.zero_fraction, row)))],
  ["NaN", (picture, row) => unlessHidden(picture, row, count(picture.integers.nan[row] ?? 0))],
  ["+Inf", (picture, row) => unlessHidden(picture, row, count(picture.integers.posinf[row] ?? 0))],
  ["−Inf", (picture, row) => unlessHidden(picture, row, count(picture.integers.neginf[row] ?? 0))],
  ["dead units", ({ floats }, row) => optional(valueAt(floats.dead_fraction, row))],
  ["saturated", ({ floats }, row) => optional(valueAt(floats.saturation, row))],
];

/** @param {Picture} picture @param {number} row @param {string} text @returns {string} */
function unlessHidden(picture, row, text) {
  return isHidden(picture, row) ? "?" : text;
}

/** @param {Picture} picture @param {number} row @returns {boolean} whether its figures wait for a guess */
function isHidden(picture, row) {
  return picture.hidden?.row === row;
}

/** @type {Record<string, string>} */
const FIGURE_HELP = {
  mean: "over the finite values",
  std: "of the population, over the finite values",
  "dead units": "at most 0 for every input of the batch",
  saturated: "in the flat ends of the activation",
};

/** @param {number | null} fraction @returns {string | null} null where it does not apply */
function optional(fraction) {
  return fraction === null ? null : percent(fraction);
}

class InspectorPanel extends HTMLElement {
  /** @type {Rules | null} */
  rules = null;
  /** @type {Theory | null} */
  #theory = null;
  /** @type {Picture | null} */
  #picture = null;
  #built = "";
  /** @type {((picture: Picture) => void)[]} what to do with new numbers */
  #updates = [];
  /** @type {((picture: Picture, theory: Theory | null) => void)[]} what to do with new expectations */
  #expectations = [];

  /** @param {Theory | null} theory */
  set theory(theory) {
    this.#theory = theory;
    this.#expect();
  }

  #expect() {
    if (this.#picture !== null) for (const expect of this.#expectations) expect(this.#picture, this.#theory);
  }

  /**
   * @param {Picture} picture
   * @param {Scene} scene
   * @param {string} id
   */
  show(picture, scene, id) {
    this.#picture = picture;
    const what = `${picture.key} ${id}`;
    if (what !== this.#built) {
      this.#built = what;
      this.#updates = [];
      this.#expectations = [];
      const selected = resolve(picture.topology, scene, id);
      if (selected === null) this.replaceChildren(...this.#overview(picture));
      else if (selected.kind === "tensor") this.replaceChildren(...this.#tensor(picture, scene, selected.tensor));
      else if (selected.kind === "group") this.replaceChildren(...this.#group(picture, scene, selected.group));
      else this.replaceChildren(...this.#op(picture, scene, selected.op));
      this.scrollTop = 0;
    }
    for (const update of this.#updates) update(picture);
    this.#expect();
  }

  /** @param {Picture} picture @returns {Node[]} */
  #overview({ topology }) {
    const table = /** @type {LayerTable} */ (document.createElement("layer-table"));
    this.#updates.push((picture) => (table.picture = picture));
    const forward = topology.ops.filter(({ phase }) => phase === "forward");
    const backward = topology.ops.filter(({ phase }) => phase === "backward");
    const parameters = topology.tensors.filter(({ role }) => role === "parameter");
    const flops = (/** @type {Op[]} */ ops) => quantity(ops.reduce((sum, op) => sum + op.flops, 0), "FLOP");
    return [
      html("header", {}, html("h2", {}, "Overview")),
      table,
      list([
        ["parameters", `${count(parameters.reduce((sum, tensor) => sum + elements(tensor), 0))} in ${parameters.length} tensors`],
        ["forward", `${forward.length} ops, ${flops(forward)}`],
        ["backward", `${backward.length} ops, ${flops(backward)}`],
      ]),
      html("p", { class: "hint" }, "Click a box of the graph to see what is in it."),
    ];
  }

  /** @param {Picture} picture @param {Scene} scene @param {Tensor} tensor @returns {Node[]} */
  #tensor({ topology, rows }, scene, tensor) {
    const module = topology.modules.find(({ id }) => id === tensor.module);
    const half = scene.tensors.find((shown) => shown.tensor === tensor.id)?.half ?? (tensor.role === "gradient" ? "backward" : "forward");
    const colour = hue(half, tensor.role);
    /** @type {Node[]} */
    const nodes = [this.#heading(tensor.name, tensor.role, colour)];
    const row = rows.get(tensor.id);
    if (row !== undefined) nodes[0]?.insertBefore(this.#guessFirst(tensor, row), nodes[0].lastChild);
    if (row === undefined) {
      nodes.push(html("p", { class: "hint" }, tensor.note ?? "No statistics were taken of this tensor."));
    } else {
      if (elements(tensor) > 1) {
        const chart = /** @type {HistogramChart} */ (document.createElement("histogram-chart"));
        const veil = html("p", { class: "veil" }, html("b", {}, "?"), "Its figures show once you have guessed.");
        this.#updates.push((picture) => {
          chart.hidden = isHidden(picture, row);
          veil.hidden = !chart.hidden;
          if (!chart.hidden) chart.show(picture, row, colour, tensor.name);
        });
        nodes.push(chart, veil);
      }
      nodes.push(this.#figures());
      this.#figureUpdates(row);
      const layer = topology.layers.find((one) => [one.preactivation, one.activation, one.gradient, one.weight].includes(tensor.id));
      if (layer !== undefined) nodes.push(this.#comparison(layer, tensor.id));
    }
    const gradients = topology.tensors.filter((other) => other.gradient_of === tensor.id);
    // A layer written by hand keeps what its backward reads; autograd's saving is recorded as such.
    const isBackward = (/** @type {string} */ id) => half === "forward" && topology.ops.some((op) => op.id === id && op.phase === "backward");
    const saved = topology.saved.filter((edge) => edge.tensor === tensor.id).map(({ op }) => op);
    const kept = unique([...saved, ...tensor.consumers.filter(isBackward)]);
    const readers = tensor.consumers.filter((id) => !isBackward(id));
    nodes.push(
      list([
        ["shape", shape(tensor.shape)],
        ["dtype", tensor.dtype],
        ["elements", count(elements(tensor))],
        ["module", module === undefined ? "–" : `${module.path} ${module.type}`.trim()],
        ["gradient", this.#tensorLinks(topology, gradients.map(({ id }) => id))],
        ["gradient of", this.#tensorLinks(topology, tensor.gradient_of === null ? [] : [tensor.gradient_of])],
        ["made by", this.#opLinks(topology, tensor.producer === null ? [] : [tensor.producer])],
        ["read by", this.#opLinks(topology, readers)],
        ["saved for", this.#opLinks(topology, kept)],
      ]),
    );
    const producer = topology.ops.find(({ id }) => id === tensor.producer);
    if (producer !== undefined) nodes.push(...this.#formulas(topology, scene, [producer]), ...sources([producer]));
    return nodes;
  }

  /** @param {Picture} picture @param {Scene} scene @param {SceneGroup} group @returns {Node[]} */
  #group({ topology }, scene, group) {
    const ops = topology.ops.filter(({ id }) => group.ops.includes(id));
    /** @type {Node[]} */
    const nodes = [this.#heading(group.label, group.half, group.half)];
    nodes.push(...this.#formulas(topology, scene, ops), ...sources(ops));
    nodes.push(
      list([
        ["module", group.module.path === "" ? "the model itself" : group.module.path],
        [group.half === "forward" ? "backward" : "forward", group.twin === null ? null : this.#boxLink(group.twin, scene)],
        ["FLOPs", quantity(ops.reduce((sum, { flops }) => sum + flops, 0), "FLOP")],
        ["read + written", quantity(ops.reduce((sum, { bytes }) => sum + bytes, 0), "B")],
        ["saves", this.#tensorLinks(topology, unique(topology.saved.filter(({ op }) => group.ops.includes(op)).map(({ tensor }) => tensor)))],
      ]),
      html("h3", {}, ops.length === 1 ? "1 op" : `${ops.length} ops, in order`),
      html("ol", { class: "ops" }, ...ops.map((op) => html("li", {}, this.#opLink(op), html("span", {}, ` ${signature(topology, op)}`)))),
    );
    return nodes;
  }

  /** @param {Picture} picture @param {Scene} scene @param {Op} op @returns {Node[]} */
  #op({ topology }, scene, op) {
    const module = topology.modules.find(({ id }) => id === op.module);
    const twins = op.twin === null ? topology.ops.filter(({ twin }) => twin === op.id).map(({ id }) => id) : [op.twin];
    const box = scene.groups.find(({ ops }) => ops.includes(op.id));
    const attributes = Object.entries(op.attributes).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
    return [
      this.#heading(op.name, `${op.phase} op`, op.phase),
      ...this.#formulas(topology, scene, [op]),
      ...sources([op]),
      list([
        ["module", module === undefined ? "–" : `${module.path} ${module.type}`.trim()],
        ["box", box === undefined ? null : this.#boxLink(box.id, scene)],
        ["attributes", attributes.length === 0 ? null : attributes.join(", ")],
        ["reads", this.#tensorLinks(topology, op.inputs)],
        ["writes", this.#tensorLinks(topology, op.outputs)],
        ["saves", this.#tensorLinks(topology, topology.saved.filter((edge) => edge.op === op.id).map(({ tensor }) => tensor))],
        [op.phase === "forward" ? "backward" : "forward", this.#opLinks(topology, twins)],
        ["FLOPs", quantity(op.flops, "FLOP")],
        ["read + written", quantity(op.bytes, "B")],
      ]),
    ];
  }

  /** @param {string} name @param {string} kind @param {string} colour @returns {HTMLElement} */
  #heading(name, kind, colour) {
    const close = html("button", { type: "button", class: "icon-button", "aria-label": "Back to the overview", title: "Back to the overview (Esc)" }, "✕");
    close.addEventListener("click", () => emit(this, "box-select", { id: "" }));
    return html("header", {}, html("h2", { class: "mono" }, name), html("span", { class: `chip ${colour}` }, kind), close);
  }

  /** @param {Tensor} tensor @param {number} row @returns {HTMLElement} */
  #guessFirst({ name }, row) {
    const button = html("button", { type: "button", class: "guess", title: `Hide the figures of ${name} until you have said what its std is` }, "Guess first");
    button.addEventListener("click", () => emit(this, "prediction-start", { figure: `${name}.std` }));
    this.#updates.push((picture) => (button.disabled = isHidden(picture, row)));
    return button;
  }

  /**
   * What was measured of a tensor beside what theory expects, and how its layer fares. What is measured follows every
   * picture; what is expected and whether it fits, when theory has spoken of that picture.
   *
   * @param {Layer} layer
   * @param {string} tensor
   * @returns {HTMLElement}
   */
  #comparison(layer, tensor) {
    const health = html("span", { class: "health" });
    const body = html("tbody");
    const band = html("p");
    const fold = html("details", { class: "band-rule" }, html("summary", {}, "What the band is"), band);
    const columns = ["", "measured", "expected"].map((text) => html("th", { scope: "col" }, text));
    const head = html("tr", {}, ...columns, html("th", { scope: "col" }, html("span", { class: "visually-hidden" }, "in its band")));
    const none = html("p", { class: "hint" }, "Theory expects no figure of this tensor: its numbers leave the range of the dtype.");
    const title = html("h3", {}, `Layer ${layer.index}`, health);
    const section = html("section", { class: "comparison" }, title, html("table", {}, html("thead", {}, head), body), fold, none);
    let built = "none yet";
    let word = "";
    /** @type {ComparisonRow[]} */
    let rows = [];
    this.#expectations.push((picture, theory) => {
      const verdict = theory?.layers[layer.index - 1];
      section.hidden = theory === null || verdict === undefined;
      if (theory === null || verdict === undefined) return;
      const isPaired = theory.seq === picture.seq;
      const condition = verdict.health ?? "healthy";
      if (isPaired && condition !== word) {
        word = condition;
        health.className = `health ${condition}`;
        health.title = verdict.health === null ? "" : ruleText(this.rules?.health?.[verdict.health]);
        health.replaceChildren(healthIcon(condition), condition);
      }
      const lines = comparisons(picture, theory, layer, tensor, this.rules);
      const what = lines.map(({ key }) => key).join();
      if (what !== built) {
        built = what;
        rows = lines.map(comparisonRow);
        body.replaceChildren(...rows.flatMap(({ elements }) => elements));
        head.hidden = lines.length === 0;
        none.hidden = lines.length > 0;
        fold.hidden = lines.length === 0 || tensor === layer.weight;
        band.textContent = ruleText(this.rules?.band);
      }
      lines.forEach((line, order) => rows[order]?.fill(line, isPaired));
    });
    return section;
  }

  /** @returns {HTMLElement} */
  #figures() {
    const rows = FIGURES.map(([name]) =>
      html("div", { "data-figure": name, title: FIGURE_HELP[name] ?? "" }, html("dt", {}, name), html("dd")),
    );
    return html("dl", { class: "figures" }, ...rows);
  }

  /** @param {number} row */
  #figureUpdates(row) {
    this.#updates.push((picture) => {
      for (const [name, read] of FIGURES) {
        const line = this.querySelector(`[data-figure="${name}"]`);
        const value = line?.querySelector("dd");
        if (!(line instanceof HTMLElement) || value == null) continue;
        const text = read(picture, row);
        line.hidden = text === null;
        value.textContent = text;
        line.classList.toggle("warning", /NaN|Inf/.test(name) && text !== "0" && text !== "?");
      }
    });
  }

  /** The maths of some ops, once with names and once with shapes. @param {Topology} topology @param {Scene} scene @param {readonly Op[]} ops @returns {Node[]} */
  #formulas(topology, scene, ops) {
    const tensors = new Map(topology.tensors.map((tensor) => [tensor.id, tensor]));
    const shown = new Set(scene.tensors.map(({ tensor }) => tensor));
    const single = ops.length === 1;
    const isKept = (/** @type {string} */ id) => single || shown.has(id);
    const allOps = new Map(topology.ops.map((op) => [op.id, op]));
    const byName = definitions(ops, allOps, tensors, (id) => tensors.get(id)?.name ?? id, isKept);
    const byShape = definitions(ops, allOps, tensors, (id) => `(${(tensors.get(id)?.shape ?? []).join(", ")})`, isKept);
    const shapes = new Map(byShape.map(({ tensor, text }) => [tensor, text]));
    return byName.map(({ tensor, text }) => {
      const name = tensors.get(tensor)?.name ?? tensor;
      const size = `(${(tensors.get(tensor)?.shape ?? []).join(", ")})`;
      return html(
        "div",
        { class: "formula" },
        html("code", {}, `${name} = ${text}`),
        html("code", { class: "shapes" }, `${size} = ${shapes.get(tensor) ?? ""}`),
      );
    });
  }

  /** @param {string} id @param {Scene} scene @returns {HTMLElement} */
  #boxLink(id, scene) {
    const group = scene.groups.find((candidate) => candidate.id === id);
    return this.#link(group === undefined ? id : `${group.label} (${group.half})`, () => emit(this, "box-select", { id }));
  }

  /** @param {Topology} topology @param {readonly string[]} ids @returns {Node | null} */
  #tensorLinks(topology, ids) {
    return inline(ids.map((tensor) => {
      const name = topology.tensors.find(({ id }) => id === tensor)?.name ?? tensor;
      return this.#link(name, () => emit(this, "tensor-select", { tensor }));
    }));
  }

  /** @param {Op} op @returns {HTMLElement} */
  #opLink(op) {
    return this.#link(op.name, () => emit(this, "box-select", { id: op.id }));
  }

  /** @param {Topology} topology @param {readonly string[]} ids @returns {Node | null} */
  #opLinks(topology, ids) {
    return inline(ids.flatMap((id) => {
      const op = topology.ops.find((candidate) => candidate.id === id);
      return op === undefined ? [] : [this.#opLink(op)];
    }));
  }

  /** @param {string} text @param {() => void} act @returns {HTMLElement} */
  #link(text, act) {
    const button = html("button", { type: "button", class: "link mono" }, text);
    button.addEventListener("click", act);
    return button;
  }
}

/**
 * @param {Picture} picture
 * @param {Theory} theory
 * @param {Layer} layer
 * @param {string} tensor of that layer
 * @param {Rules | null} rules
 * @returns {Comparison[]}
 */
function comparisons(picture, theory, layer, tensor, rules) {
  if (tensor === layer.weight) {
    const std = figureAt(picture, picture.floats.std, picture.rows.get(tensor));
    const drawn = significant(theory.layers[layer.index - 1]?.weight_std);
    return [{ key: "weight_std", label: "std", measured: std, expected: drawn, band: "", isIn: null, says: "the std that the init draws with, its scale included", source: "" }];
  }
  return figuresOf(picture, theory, tensor).map((figure) => {
    const { quantity: name, measured, expected } = figure;
    return {
      key: name,
      label: MEASURES[name].label,
      measured: figureText(name, measured),
      expected: expected === null ? "–" : expectedText(name, expected),
      band: expected === null ? "" : bandText(name, expected.band),
      isIn: isWithin(figure),
      says: shortRuleText(rules?.expected?.[name]),
      source: rules?.expected?.[name]?.source ?? "",
    };
  });
}

/** @param {Comparison} first @returns {ComparisonRow} */
function comparisonRow({ key, label, says, source }) {
  const [measured, expected, mark] = [html("td"), html("td"), html("td", { class: "mark" })];
  const [value, band] = [html("b"), html("small")];
  expected.append(value, band);
  const line = html("tr", { "data-quantity": key }, html("th", { scope: "row" }, label), measured, expected, mark);
  const elements = says === "" ? [line] : [line, html("tr", { class: "rule" }, html("td", { colspan: "4", title: source }, says))];
  return {
    elements,
    fill(now, isPaired) {
      writeText(measured, now.measured);
      if (!isPaired) return;
      writeText(value, now.expected);
      writeText(band, now.band);
      writeText(mark, now.isIn === null ? "" : now.isIn ? "✓ in" : "✗ out");
      mark.title = now.isIn === false ? "One draw in twenty lies outside by chance." : "";
      line.classList.toggle("out", now.isIn === false);
    },
  };
}

/** @param {import("../core/types.js").Rule | undefined} rule @returns {string} with author and year, or work, in place of the source */
function shortRuleText(rule) {
  if (rule === undefined) return "";
  const [author] = /^.*?\b\d{4}\b|^[^:;]*/.exec(rule.source) ?? [rule.source];
  return `${rule.rule} (${author}).`;
}

/** @param {import("../core/types.js").Rule | undefined} rule @returns {string} */
function ruleText(rule) {
  return rule === undefined ? "" : `${rule.rule} (${rule.source}).`;
}

/** @param {Tensor} tensor @returns {number} */
function elements(tensor) {
  return tensor.shape.reduce((product, size) => product * size, 1);
}

/** @template T @param {readonly T[]} values @returns {T[]} */
function unique(values) {
  return [...new Set(values)];
}

/** @param {readonly Node[]} nodes @returns {Node | null} with commas between; null for none */
function inline(nodes) {
  if (nodes.length === 0) return null;
  const line = html("span");
  nodes.forEach((node, order) => line.append(...(order > 0 ? [", ", node] : [node])));
  return line;
}

/** @param {readonly [string, Node | string | null][]} rows what is null is left out @returns {HTMLElement} */
function list(rows) {
  const lines = rows.flatMap(([name, value]) => (value === null ? [] : [html("div", {}, html("dt", {}, name), html("dd", {}, value))]));
  return html("dl", { class: "facts" }, ...lines);
}

/** @param {Topology} topology @param {Op} op @returns {string} (200, 100), (100, 50) → (200, 50) */
function signature(topology, op) {
  const size = (/** @type {string} */ id) => `(${(topology.tensors.find((tensor) => tensor.id === id)?.shape ?? []).join(", ")})`;
  return `${op.inputs.map(size).join(", ")} → ${op.outputs.map(size).join(", ")}`;
}

/** The lines of code that some ops come from, each once. @param {readonly Op[]} ops @returns {Node[]} */
function sources(ops) {
  /** @type {Map<string, Node>} */
  const lines = new Map();
  for (const { source } of ops) {
    if (source === null) continue;
    const place = `${source.file}:${source.line}`;
    const where = html("span", { class: "place", title: place }, `${place} in ${source.function}`);
    lines.set(place, html("div", { class: "source" }, html("code", {}, source.text.trim()), where));
  }
  return [...lines.values()];
}

customElements.define("inspector-panel", InspectorPanel);
