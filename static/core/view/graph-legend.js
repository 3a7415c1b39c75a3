/** What the colours of the overlay mean: from which number to which, or which words. */

import { html } from "../dom.js";
import { significant } from "../format.js";

/**
 * @param {Legend} legend
 * @returns {HTMLElement}
 */
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
  // What has no place on the scale stands beside it.
  return html("div", {}, name, scale, ...list);
}

export class LegendLine {
  root = html("div", { class: "legend", hidden: true });
  #shown = "";

  /** @param {Legend | null} legend null: nothing is coloured */
  show(legend) {
    const now = legend === null ? "" : JSON.stringify(legend);
    if (now === this.#shown) return;
    this.#shown = now;
    this.root.hidden = legend === null;
    this.root.replaceChildren(...(legend === null ? [] : [...written(legend).childNodes]));
  }
}
