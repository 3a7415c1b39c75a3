/** Parts of the inspector's sections: headings, lists of facts, links. */

import { buttonOf, emit, html } from "../dom.js";
import { idOf } from "../graph/graph.js";

// Controls to highlight what lies upstream or downstream of the selection.

/** @type {readonly [string, string, string][]} */
const WAYS = [
  ["", "Off", "No highlight"],
  ["up", "Up", "Upstream: boxes that the selection depends on"],
  ["down", "Down", "Downstream: boxes that depend on the selection"],
  ["both", "Both", "Upstream and downstream"],
];
const HOPS = [1, 2, 3, 5, 10, 20, Infinity];

/** @param {HTMLElement} host that events start from
 * @returns {{element: HTMLElement, fill: (reach: string) => void}} fill: with "up2", "down", "both1" or "" */
export function reachControls(host) {
  let [direction, hops] = ["", 1];
  const tell = () => emit(host, "reach-change", { direction, hops });
  const buttons = WAYS.map(([way, text, title]) => {
    const choose = () => {
      direction = way;
      tell();
    };
    return { way, button: buttonOf({ title, "aria-pressed": "false" }, choose, text) };
  });
  const select = html("select", { "aria-label": "Distance in ops" },
    ...HOPS.map((each) =>
      html("option", { value: String(each) }, each === Infinity ? "all" : `${each} ${each === 1 ? "op" : "ops"}`)
    ));
  select.addEventListener("change", () => {
    hops = Number(select.value);
    if (direction !== "") tell();
  });
  const group = html("div", { class: "segmented small", role: "group", "aria-label": "Highlight connected boxes" },
    ...buttons.map(({ button }) => button));
  return {
    element: html("section", { class: "reach" }, html("h3", {}, "Highlight connected boxes"),
      html("div", {}, group, select)),
    fill(reach) {
      const [, way = "", far] = /^(up|down|both)(\d*)$/.exec(reach) ?? [];
      direction = way;
      if (far !== undefined) hops = far === "" ? Infinity : Number(far);
      for (const { way: each, button } of buttons) button.setAttribute("aria-pressed", String(each === direction));
      // Another number, from an address, gets its own option.
      if (!HOPS.includes(hops) && ![...select.options].some(({ value }) => value === String(hops)))
        select.append(html("option", { value: String(hops) }, `${hops} ops`));
      select.value = String(hops);
    },
  };
}

// The source lines of ops, with the lines around them.

const CONTEXT = 3;
const MAX_PLACES = 6;

/** @param {Topology} topology @param {readonly Op[]} ops @returns {Node[]} one per stretch of code */
export function sources({ sources: files }, ops) {
  /** Lines of one function that lie near each other are one stretch. @type {{first: Source, lines: Set<number>}[]} */
  const stretches = [];
  for (const { source } of ops) {
    if (source === null) continue;
    const near = stretches.find(({ first, lines }) =>
      first.file === source.file && first.function === source.function
      && [...lines].some((line) => Math.abs(line - source.line) <= CONTEXT)
    );
    if (near === undefined) stretches.push({ first: source, lines: new Set([source.line]) });
    else near.lines.add(source.line);
  }
  const nodes = stretches.slice(0, MAX_PLACES).map(({ first, lines }) =>
    stretch(first, lines, files?.[first.file] ?? [])
  );
  if (stretches.length > MAX_PLACES)
    nodes.push(html("p", { class: "hint" }, `and ${stretches.length - MAX_PLACES} more places`));
  return nodes;
}

/** @param {Source} source @param {ReadonlySet<number>} lit @param {readonly Snippet[]} snippets */
function stretch(source, lit, snippets) {
  const place = `${source.file}:${source.line}`;
  const where = html("span", { class: "place", title: place }, `${place} in ${source.function}`);
  const around = snippets.find(({ line, text }) => line <= source.line && source.line < line + text.split("\n").length);
  if (around === undefined) return html("div", { class: "source" }, html("code", {}, source.text.trim()), where);
  const all = around.text.split("\n").map((text, order) => ({ number: around.line + order, text }));
  const shown = all.filter(({ number }) => [...lit].some((line) => Math.abs(line - number) <= CONTEXT));
  const margin = Math.min(
    ...shown.filter(({ text }) => text.trim() !== "").map(({ text }) => text.length - text.trimStart().length),
  );
  const rows = shown.map(({ number, text }) => {
    const isLit = lit.has(number);
    const line = html("span", { class: isLit ? "line lit" : "line", ...(isLit ? { "aria-current": "true" } : {}) });
    line.append(html("span", { class: "number", "aria-hidden": "true" }, String(number)),
      text.slice(Number.isFinite(margin) ? margin : 0) || " ");
    return line;
  });
  return html("div", { class: "source" },
    html("pre", { tabindex: "0", "aria-label": `Code around ${place}` }, html("code", {}, ...rows)), where);
}

/** More links than these in one place are counted, not listed. */
const MAX_LINKS = 12;

/** One selection in one graph. Sections register what to do with a new picture or new theory. */
export class Inspection {
  /** @type {((picture: Picture) => void)[]} */
  updates = [];
  /** @type {((picture: Picture, theory: Theory | null) => void)[]} */
  expectations = [];

  /** @param {HTMLElement} host that events start from @param {Picture} picture @param {Graph} graph
   * @param {Rules | null} rules */
  constructor(host, picture, graph, rules) {
    this.host = host;
    this.picture = picture;
    this.graph = graph;
    this.rules = rules;
  }

  /** @param {string} text @param {() => void} act @param {string} [title] @returns {HTMLElement} */
  link(text, act, title = "") {
    return buttonOf({ class: "link mono", ...(title === "" ? {} : { title }) }, act, text);
  }

  /** @param {Item} item @param {string} text @returns {HTMLElement} */
  itemLink(item, text) {
    return this.link(text, () => emit(this.host, "box-select", { id: idOf(this.graph, item) }));
  }

  /** @param {readonly number[]} tensors @returns {Node | null} null for none */
  tensorLinks(tensors) {
    return inline(tensors, (tensor) => {
      const { id, name } = this.graph.topology.tensors[tensor];
      return this.link(name, () => emit(this.host, "tensor-select", { tensor: id }));
    });
  }

  /** @param {readonly number[]} ops @returns {Node | null} null for none */
  opLinks(ops) {
    return inline(ops, (op) => this.opLink(op));
  }

  /** @param {number} op @returns {HTMLElement} */
  opLink(op) {
    const { id, name } = this.graph.topology.ops[op];
    return this.link(name, () => emit(this.host, "box-select", { id }), id);
  }
}

/** With commas between. @param {readonly number[]} items @param {(item: number) => Node} made */
function inline(items, made) {
  if (items.length === 0) return null;
  const line = html("span");
  items.slice(0, MAX_LINKS).forEach((item, order) => line.append(...(order > 0 ? [", "] : []), made(item)));
  if (items.length > MAX_LINKS) line.append(`, and ${items.length - MAX_LINKS} more`);
  return line;
}

/** @param {Inspection} inspection @param {string} name @param {string} kind @param {string} colour class of the chip
 * @param {readonly Node[]} [beside] before the button that closes */
export function heading({ host }, name, kind, colour, beside = []) {
  const close = buttonOf({ class: "icon-button", "aria-label": "Back to the overview",
    title: "Back to the overview (Esc)" }, () => emit(host, "box-select", { id: "" }), "✕");
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
