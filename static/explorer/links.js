/** Links and buttons of the header that depend on the spec: models, traces, the map and node data. */

import { apiPath } from "../core/api.js";

/** The only program with layers. */
export const NET = "mlp";

/** Names of the colourings in the node data. @type {Record<string, string>} */
const NODE_DATA = { std: "std", gradient_norm: "gradient_norm", dead_fraction: "dead_fraction", time: "time",
  memory: "bytes", flops: "flops" };

/** @param {Signal<Spec>} spec @param {Signal<View>} view @param {(spec: Spec) => string} queryOf
 * @param {(widths: string) => void} choose a net of these widths */
export function connectLinks(spec, view, queryOf, choose) {
  // Looked up once: a search through thousands of elements takes longer than the rest of a slider event.
  const modelButtons = document.querySelectorAll("[data-widths]");
  const traceLinks = document.querySelectorAll("a[data-trace]");
  const mapLinks = document.querySelectorAll("a[data-map]");
  const nodeData = document.querySelector("#node-data");
  for (const button of modelButtons)
    button.addEventListener("click", () => choose(button.getAttribute("data-widths") ?? ""));

  /** One statistic per file: the colouring of the boxes, if Model Explorer knows it. */
  const writeNodeData = () => {
    const query = queryOf(spec.value);
    const statistic = `statistic=${NODE_DATA[view.value.colour] ?? "std"}`;
    nodeData?.setAttribute("href", apiPath("node-data.json", `${statistic}${query && `&${query}`}`));
  };

  spec.subscribe((value) => {
    for (const button of modelButtons) {
      const isShown = value["program"] === NET && button.getAttribute("data-widths") === value["widths"];
      button.setAttribute("aria-pressed", String(isShown));
    }
    writeNodeData();
    for (const link of traceLinks)
      link.setAttribute("href", apiPath(`trace.${link.getAttribute("data-trace")}`, queryOf(value)));
    for (const link of mapLinks) link.setAttribute("href", `/map${queryOf(value) && `?${queryOf(value)}`}`);
  });
  view.subscribe(writeNodeData);
}
