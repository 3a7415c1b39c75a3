/** The bar beneath the graph: the figure in its boxes, the legend of its colours, and zoom buttons. */

import { html } from "../dom.js";
import { significant } from "../format.js";
import { ZOOM_STEP } from "./input.js";

// The legend of the overlay: a colour scale between two numbers, or a word for each colour.

/** @param {Legend} legend @returns {HTMLElement} */
function written(legend) {
  const { title, unit, low, high, isLog, stops, words } = legend;
  const name = html("span", { class: "legend-title" }, unit === "" ? title : `${title}, ${unit}`);
  const list = words.map(([colour, word]) => {
    const patch = html("i", { class: "patch" });
    patch.style.background = colour;
    return html("span", { class: "legend-word" }, patch, word);
  });
  if (stops.length === 0) return html("div", {}, name, ...list);
  const bar = html("i", { class: "bar" });
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const scale = html("span", { class: "legend-scale" }, html("span", {}, significant(low)), bar,
    html("span", {}, significant(high)), html("span", { class: "legend-axis" }, isLog ? "log" : "linear"));
  // Words for values that have no place on the scale, such as NaN.
  return html("div", {}, name, scale, ...list);
}

class LegendLine {
  root = html("div", { class: "legend", hidden: true });
  #shown = "";

  /** @param {Legend | null} legend null: no overlay */
  show(legend) {
    const now = legend === null ? "" : JSON.stringify(legend);
    if (now === this.#shown) return;
    this.#shown = now;
    this.root.hidden = legend === null;
    this.root.replaceChildren(...(legend === null ? [] : [...written(legend).childNodes]));
  }
}

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

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    if (statistic === this.#statistic) return;
    this.#statistic = statistic;
    this.#caption.replaceChildren(html("span", {}, `number in a box: ${statistic}`), " ",
      html("span", {}, html("i"), "saved for backward"));
  }
}
