/** What the sections of the inspector are made of: headings, lists of facts, links to what else there is. */

import { emit, html } from "../dom.js";
import { idOf } from "../graph/graph.js";

/** More links than these in one place are counted, not listed. */
const MOST_LINKS = 12;

/** What is shown of one selection in one graph: sections add to it what new pictures and new expectations change. */
export class Inspection {
  /** @type {((picture: Picture) => void)[]} */
  updates = [];
  /** @type {((picture: Picture, theory: Theory | null) => void)[]} */
  expectations = [];

  /**
   * @param {HTMLElement} host that events start from
   * @param {Picture} picture
   * @param {Graph} graph
   * @param {Rules | null} rules
   */
  constructor(host, picture, graph, rules) {
    this.host = host;
    this.picture = picture;
    this.graph = graph;
    this.rules = rules;
  }

  /** @param {number} tensor @returns {Tensor | undefined} */
  tensor(tensor) {
    return this.graph.topology.tensors[tensor];
  }

  /** @param {number} op @returns {Op | undefined} */
  op(op) {
    return this.graph.topology.ops[op];
  }

  /** @param {string} text @param {() => void} act @param {string} [title] @returns {HTMLElement} */
  link(text, act, title = "") {
    const button = html("button", { type: "button", class: "link mono", ...(title === "" ? {} : { title }) }, text);
    button.addEventListener("click", act);
    return button;
  }

  /** @param {Item} item @param {string} text @returns {HTMLElement} */
  itemLink(item, text) {
    return this.link(text, () => emit(this.host, "box-select", { id: idOf(this.graph, item) }));
  }

  /** @param {readonly number[]} tensors @returns {Node | null} null for none */
  tensorLinks(tensors) {
    const { topology } = this.graph;
    return inline(tensors, (tensor) => {
      const { id = "", name = "" } = topology.tensors[tensor] ?? {};
      return this.link(name, () => emit(this.host, "tensor-select", { tensor: id }));
    });
  }

  /** @param {readonly number[]} ops @returns {Node | null} null for none */
  opLinks(ops) {
    return inline(ops, (op) => this.opLink(op));
  }

  /** @param {number} op @returns {HTMLElement} */
  opLink(op) {
    const { id = "", name = "" } = this.op(op) ?? {};
    return this.link(name, () => emit(this.host, "box-select", { id }), id);
  }
}

/** @param {readonly number[]} items @param {(item: number) => Node} made @returns {Node | null} with commas between;
 * null for none */
function inline(items, made) {
  if (items.length === 0) return null;
  const line = html("span");
  items.slice(0, MOST_LINKS).forEach((item, order) => line.append(...(order > 0 ? [", "] : []), made(item)));
  if (items.length > MOST_LINKS) line.append(`, and ${items.length - MOST_LINKS} more`);
  return line;
}

/**
 * @param {Inspection} inspection
 * @param {string} name
 * @param {string} kind
 * @param {string} colour class of the chip
 * @param {readonly Node[]} [beside] before the button that closes
 * @returns {HTMLElement}
 */
export function heading({ host }, name, kind, colour, beside = []) {
  const close = html("button", { type: "button", class: "icon-button", "aria-label": "Back to the overview",
    title: "Back to the overview (Esc)" }, "✕");
  close.addEventListener("click", () => emit(host, "box-select", { id: "" }));
  return html("header", {}, html("h2", { class: "mono" }, name), html("span", { class: `chip ${colour}` }, kind),
    ...beside, close);
}

/** @param {readonly [string, Node | string | null][]} rows what is null is left out @returns {HTMLElement} */
export function list(rows) {
  const lines = rows.flatMap(([name, value]) =>
    value === null ? [] : [html("div", {}, html("dt", {}, name), html("dd", {}, value))]
  );
  return html("dl", { class: "facts" }, ...lines);
}

/** @template T @param {Iterable<T>} values @returns {T[]} each once */
export function unique(values) {
  return [...new Set(values)];
}
