/** The inspector's way from a tensor to the loss: the chain rule along it, factor by factor, with what was measured. */

import { chainPath, chainText, measured } from "../graph/chain-path.js";
import { buttonOf, emit, headings, html, writeText } from "../dom.js";
import { significant } from "../format.js";

/** The line of a longer path has only its first and last factors; the table has all. */
const MAX_WRITTEN = 8;
const MAX_ROWS = 300;
/** Factors by which a gradient grows or shrinks that fill the bar, as powers of ten. */
const WIDEST = 2;

/** @param {Inspection} inspection @param {number} tensor a forward one */
export function pathToLoss(inspection, tensor) {
  const { graph, host } = inspection;
  const path = chainPath(graph, tensor);
  if (path === null) return [];
  const { left, factors } = chainText(graph, path);

  const light = buttonOf({ class: "toggle", "aria-pressed": "false" }, () => {
    const isLit = light.getAttribute("aria-pressed") !== "true";
    light.setAttribute("aria-pressed", String(isLit));
    emit(host, "path-light", { ids: isLit ? [...path.ids] : [] });
  }, "Highlight it in the graph");

  const factorLink = (/** @type {ChainFactor} */ factor, /** @type {string} */ text) => {
    const target = factor.gradient >= 0 ? factor.gradient : factor.from;
    const name = (/** @type {number} */ tensor) => graph.topology.tensors[tensor]?.name ?? "";
    const whole = `∂${name(factor.to)}/∂${name(factor.from)}`;
    // The title has the full names.
    const title = [...(whole === text ? [] : [whole]), ...(factor.rule === null ? [] : [factor.rule])].join("\n");
    return inspection.link(text, () => emit(host, "box-select", { id: graph.tensorId[target] ?? "" }), title);
  };
  const chain = html("p", { class: "chain mono" }, `${left} = `);
  const isLong = factors.length > MAX_WRITTEN;
  path.factors.forEach((factor, order) => {
    const fromEnd = factors.length - order;
    if (isLong && order >= MAX_WRITTEN / 2 && fromEnd > MAX_WRITTEN / 2) {
      if (order === MAX_WRITTEN / 2) chain.append(" · … ");
      return;
    }
    chain.append(...(order > 0 ? [" · "] : []), factorLink(factor, factors[order]));
  });

  const rows = path.factors.slice(0, MAX_ROWS).map((factor, order) => {
    const [size, ratio] = [html("td"), html("td", { class: "ratio" })];
    const bar = html("i");
    const change = html("span");
    ratio.append(change, html("span", { class: "bar", "aria-hidden": "true" }, bar));
    const name = html("th", { scope: "row" }, factorLink(factor, factors[order]));
    const rule = factor.rule === null ? [] : [html("tr", { class: "rule" }, html("td", { colspan: "3" }, factor.rule))];
    return { order, size, change, bar, nodes: [html("tr", {}, name, size, ratio), ...rule] };
  });
  inspection.updates.push((picture) => {
    const figures = measured(graph, picture, path);
    for (const { order, size, change, bar } of rows) {
      const figure = figures[order];
      const { rms = null, ratio = null, isHidden = false } = figure ?? {};
      writeText(size, isHidden ? "?" : significant(rms));
      writeText(change, isHidden ? "?" : ratio === null ? "–" : `× ${significant(ratio)}`);
      const share = ratio === null || ratio === 0 ? 0 : Math.max(-1, Math.min(1, Math.log10(ratio) / WIDEST));
      bar.className = share < 0 ? "shrinks" : "grows";
      bar.style.width = `${Math.abs(share) * 50}%`;
    }
  });
  const head = headings(["factor", "gradient RMS", "change"]);
  ["", "root mean square of the gradient after the factor", "ratio to the root mean square before it"].forEach((
    title,
    column,
  ) => (head.cells[column].title = title));
  return [
    html("section", { class: "path" }, html("h3", {}, "Path to the loss", light), chain, ...(path.isOneOfMany ? [
      html("p", { class: "hint" }, "This is the shortest of several paths. The gradient is the sum over all paths."),
    ] : []),
      html("details", { open: !isLong },
        html("summary", {},
          factors.length === 1 ? "The factor and its effect on the gradient"
            : `The ${factors.length} factors and their effects on the gradient`),
        html("div", { class: "scroll" },
          html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows.flatMap(({ nodes }) => nodes)))))),
  ];
}
