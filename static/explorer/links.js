/** Links and buttons of the header that depend on the spec: models, traces, the map and node data. */

import { cancel, later } from "../core/activity.js";
import { apiPath } from "../core/api.js";
import { write } from "../core/dom.js";

/** Links need not follow a slider: each one that changes is styled again. */
const REST_MS = 100;

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
    if (nodeData !== null) write(nodeData, "href", apiPath("node-data.json", `${statistic}${query && `&${query}`}`));
  };

  const writeLinks = () => {
    const value = spec.value;
    for (const button of modelButtons) {
      const isShown = value["program"] === NET && button.getAttribute("data-widths") === value["widths"];
      write(button, "aria-pressed", String(isShown));
    }
    writeNodeData();
    for (const link of traceLinks)
      link.setAttribute("href", apiPath(`trace.${link.getAttribute("data-trace")}`, queryOf(value)));
    for (const link of mapLinks) link.setAttribute("href", `/map${queryOf(value) && `?${queryOf(value)}`}`);
  };
  writeLinks();
  let resting = 0;
  spec.subscribe(() => {
    cancel(resting);
    resting = later(writeLinks, REST_MS);
  });
  view.subscribe(writeNodeData);
}
