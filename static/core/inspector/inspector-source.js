/** The code that ops come from, its lines in their context. */

import { html } from "../dom.js";

/** Lines shown before and after one that an op comes from. */
const CONTEXT = 3;
/** Places shown of a box that many ops stand in. */
const MOST_PLACES = 6;

/**
 * @param {Topology} topology
 * @param {readonly Op[]} ops
 * @returns {Node[]} one per stretch of code
 */
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
  const nodes = stretches.slice(0, MOST_PLACES).map(({ first, lines }) =>
    stretch(first, lines, files?.[first.file] ?? [])
  );
  if (stretches.length > MOST_PLACES)
    nodes.push(html("p", { class: "hint" }, `and ${stretches.length - MOST_PLACES} more places`));
  return nodes;
}

/** @param {Source} source @param {ReadonlySet<number>} lit @param {readonly Snippet[]} snippets
 * @returns {HTMLElement} */
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
