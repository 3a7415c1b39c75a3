/** The graph in words for screen readers: a sentence per box, a table of tensors, a summary. */

import { html, writeText } from "../dom.js";
import { count, duration, quantity, shape } from "../format.js";
import { describeTensor, figure } from "../labels.js";
import { FRAME, GROUP, OP, TENSOR } from "../layout/sizes.js";
import { layersOf } from "./facts.js";
import { phaseOf } from "./look.js";

/** Most rows of the table, and most items of the list. */
const MAX_ROWS = 500;

/** @param {Sight} sight @param {number} box @returns {string} */
function describeBox({ drawing, graph, picture, facts }, box) {
  const kind = drawing.kind[box];
  const index = drawing.ref[box];
  const half = phaseOf(drawing, box);
  const { topology, arrays } = graph;
  if (kind === TENSOR) {
    const tensor = topology.tensors[index];
    return tensor === undefined ? "" : describeTensor(picture, tensor);
  }
  if (kind === OP) {
    const op = topology.ops[index];
    if (op === undefined) return "";
    const shapes = (/** @type {readonly string[]} */ ids) =>
      ids.map((id) => shape(topology.tensors[graph.tensorIndex.get(id) ?? -1]?.shape ?? [])).join(" and ");
    const failed = topology.error?.op === op.id ? ", where the run failed" : "";
    return `${graph.opLabel[index]}, ${half} op, from ${shapes(op.inputs) || "nothing"} to ${
      shapes(op.outputs) || "nothing"
    }${failed}`;
  }
  const module = topology.modules[graph.groupModule[index]];
  const repeats = arrays.groupRepeats[index];
  const parts = [`${graph.groupLabel[index]}${repeats > 0 ? `, ${repeats} times` : ""}`];
  parts.push(...graph.differences[index]);
  const layers = layersOf(graph, index);
  if (layers !== "") parts.push(layers);
  if (module !== undefined && module.path !== "") parts.push(module.path);
  parts.push(half, plural(facts.opsOf(index, half).length, "op"));
  const parameters = facts.parameters(index);
  if (parameters > 0) parts.push(`${quantity(parameters, "").trim()} parameters`);
  const time = facts.time(index, half);
  if (time !== null) parts.push(duration(time));
  const ailment = kind === GROUP ? facts.ailment(picture, index, half) : null;
  if (ailment !== null) parts.push(`${ailment.word} in ${ailment.tensors} of its tensors`);
  return parts.join(", ");
}

/** Sets a box's accessible name and tooltip. @param {Sight} sight @param {BoxParts} parts */
export function nameBox(sight, { root, title, box }) {
  const text = describeBox(sight, box);
  if (root.getAttribute("aria-label") === text) return;
  root.setAttribute("aria-label", text);
  title.textContent = text;
}

/** @param {number} number @param {string} noun @returns {string} */
function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** @param {Sight} sight @returns {string} */
export function summary({ facts, drawing }) {
  const { opsForward, opsBackward, tensors, path, groups } = facts.extents;
  let open = 0;
  for (let box = 0; box < drawing.boxes; box += 1)
    if (drawing.kind[box] === FRAME && drawing.half[box] === 0) open += 1;
  return `${plural(opsForward, "op")} forward, ${count(opsBackward)} backward, ${
    plural(tensors, "tensor")
  }; longest path ${plural(path, "op")}; ${plural(groups, "group")}, ${count(open)} of them open; ${
    plural(drawing.boxes, "box").replace(/boxs$/, "boxes")
  } drawn.`;
}

export class Twin {
  #summary = html("p");
  #table = document.createElement("table");
  #groups = html("ul");
  #rest = html("p");
  /** The drawing that the table shows, and its cells with figures. @type {{drawing: Drawing, cells: {tensor: Tensor,
   * cell: HTMLTableCellElement, statistic: "mean" | "std"}[]} | null} */
  #shown = null;
  root = html("div", { class: "visually-hidden twin-table" }, this.#summary, this.#table, this.#rest, this.#groups);

  /** @param {Sight} sight */
  show(sight) {
    const { drawing, picture } = sight;
    writeText(this.#summary, summary(sight));
    // The rows of one drawing stay; only the figures change.
    if (this.#shown?.drawing !== drawing) this.#build(sight);
    for (const { tensor, cell, statistic } of this.#shown?.cells ?? []) {
      writeText(cell, picture.rows.has(tensor.id) ? figure(picture, tensor, statistic).text : "–");
    }
  }

  /** @param {Sight} sight */
  #build(sight) {
    const { drawing, graph } = sight;
    /** @type {{tensor: Tensor, cell: HTMLTableCellElement, statistic: "mean" | "std"}[]} */
    const figures = [];
    const body = document.createElement("tbody");
    const groups = [];
    let [rows, left] = [0, 0];
    for (let box = 0; box < drawing.boxes; box += 1) {
      if (drawing.kind[box] === GROUP || drawing.kind[box] === FRAME) {
        if (groups.length < MAX_ROWS
          && !(graph.arrays.groupIsLeaf[drawing.ref[box]] === 1 && drawing.kind[box] === GROUP))
        {
          groups.push(html("li", {}, `${describeBox(sight, box)}, ${drawing.kind[box] === FRAME ? "open" : "closed"}`));
        }
        continue;
      }
      const tensor = drawing.kind[box] === TENSOR ? graph.topology.tensors[drawing.ref[box]] : undefined;
      if (tensor === undefined) continue;
      if (rows >= MAX_ROWS) {
        left += 1;
        continue;
      }
      rows += 1;
      const line = body.insertRow();
      for (const text of [tensor.name, tensor.role, shape(tensor.shape)]) line.insertCell().textContent = text;
      for (const statistic of /** @type {const} */ (["mean", "std"]))
        figures.push({ tensor, cell: line.insertCell(), statistic });
    }
    const caption = html("caption", {}, "Every tensor that the graph shows, in order of execution");
    const titles = ["tensor", "role", "shape", "mean", "std"].map((title) => html("th", { scope: "col" }, title));
    this.#table.replaceChildren(caption, html("thead", {}, html("tr", {}, ...titles)), body);
    writeText(this.#rest, left === 0 ? "" : `and ${count(left)} more tensors`);
    this.#groups.replaceChildren(...groups);
    this.#shown = { drawing, cells: figures };
  }
}
