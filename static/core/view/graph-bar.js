/** What stands beneath the graph: what is written in its boxes, what their colours mean, and the buttons that zoom. */

import { html } from "../dom.js";
import { ZOOM_STEP } from "./graph-hands.js";
import { LegendLine } from "./graph-legend.js";

export class GraphBar {
  legend = new LegendLine();
  #caption = html("p", { class: "caption" });
  #statistic = "";

  /** @param {{zoomBy: (factor: number) => void, fit: () => void}} does */
  constructor({ zoomBy, fit }) {
    const group = html("div", { class: "zoom", role: "group", "aria-label": "Zoom" });
    /** @type {[string, string, () => void][]} */
    const buttons = [
      ["−", "Zoom out (−)", () => zoomBy(1 / ZOOM_STEP)],
      ["Fit", "Fit to the panel (0)", fit],
      ["+", "Zoom in (+)", () => zoomBy(ZOOM_STEP)],
    ];
    for (const [text, label, act] of buttons) {
      const button = html("button", { type: "button", title: label, "aria-label": label }, text);
      button.addEventListener("click", act);
      group.append(button);
    }
    this.root = html("div", { class: "bar-below" }, this.#caption, this.legend.root, group);
  }

  /** @param {Statistic} statistic that stands in boxes */
  set statistic(statistic) {
    if (statistic === this.#statistic) return;
    this.#statistic = statistic;
    this.#caption.replaceChildren(html("span", {}, `number in a box: ${statistic}`), " ",
      html("span", {}, html("i"), "saved for backward"));
  }
}
