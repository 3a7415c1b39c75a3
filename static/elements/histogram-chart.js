/** <histogram-chart>: one tensor's histogram: a canvas while the numbers change, Plotly with hover, zoom and export
 * when they rest.
 * Call `show(picture, row, colour, name)`. */

import { html } from "../core/dom.js";
import { count, isHidden, significant, valueAt } from "../core/format.js";
import { drawBars, peak } from "../core/histogram.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { loadPlotly, LOCAL } from "../core/lab/plotly.js";
import { surface } from "../core/surface.js";

/** @typedef {"forward" | "backward" | "parameter" | "neutral"} Hue */

const REST_MS = 700;
/** Share of the height above the tallest bar, for the label of its count. */
const HEADROOM = 0.12;

class HistogramChart extends HTMLElement {
  #shown = /** @type {{picture: Picture, row: number, colour: Hue, name: string} | null} */ (null);
  #rest = 0;
  #palette = readPalette();
  #canvas = html("canvas", { role: "img" });
  #plot = html("div", { class: "plot" });
  #low = html("span");
  #high = html("span");
  #note = html("span", { class: "note" });

  connectedCallback() {
    const box = html("div", { class: "box" }, this.#canvas, this.#plot);
    this.replaceChildren(box, html("div", { class: "ends" }, this.#low, this.#note, this.#high));
    new ResizeObserver(() => this.#moved()).observe(this.#canvas);
    onSchemeChange(() => {
      this.#palette = readPalette();
      this.#moved();
    });
  }

  disconnectedCallback() {
    clearTimeout(this.#rest);
  }

  /** @param {Picture} picture @param {number} row @param {Hue} colour @param {string} name */
  show(picture, row, colour, name) {
    this.#shown = { picture, row, colour, name };
    this.#moved();
  }

  #moved() {
    this.classList.remove("at-rest");
    this.#paint();
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => void this.#atRest(), REST_MS);
  }

  #paint() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const context = this.#shown === null || width === 0 ? null : surface(this.#canvas, width, height);
    if (this.#shown === null || context === null) return;
    const { picture, row, colour, name } = this.#shown;
    const { [colour]: ink, muted, warning } = this.#palette;
    const place = { x: 0, y: height * HEADROOM, w: width, h: height * (1 - HEADROOM) };
    // One tensor at its own range, bin by bin: the boxes are there to compare.
    drawBars(context, { ...picture, axes: null }, row, place, { ink, muted, warning });
    if (isHidden(picture, row)) {
      this.#low.textContent = "";
      this.#high.textContent = "";
      this.#note.textContent = "hidden until you guess";
      this.#canvas.setAttribute("aria-label", `Histogram of ${name}, hidden until you guess`);
      this.#forget();
      return;
    }
    const [low, high] = [valueAt(picture.floats.min, row), valueAt(picture.floats.max, row)];
    this.#low.textContent = low === null ? "" : significant(low);
    this.#high.textContent = high === null || high === low ? "" : significant(high);
    this.#note.textContent = low === null ? "no finite value" : "height ∝ √count";
    this.#canvas.setAttribute("aria-label", `Histogram of ${name} from ${significant(low)} to ${significant(high)}`);
  }

  /** Removes the hidden plot, which still holds the numbers. */
  #forget() {
    if (!this.#plot.hasChildNodes()) return;
    const empty = html("div", { class: "plot" });
    this.#plot.replaceWith(empty);
    this.#plot = empty;
  }

  async #atRest() {
    const shown = this.#shown;
    if (shown === null || !this.isConnected || this.clientWidth === 0 || peak(shown.picture, shown.row) === 0) return;
    const plotly = await loadPlotly().catch(() => null);
    // Without Plotly the canvas shows the same.
    if (plotly === null || this.#shown !== shown || !this.isConnected) return;
    const { picture, row, colour, name } = shown;
    const low = picture.floats.min[row];
    const high = picture.floats.max[row];
    const counts = Array.from(picture.counts.subarray(row * picture.bins, (row + 1) * picture.bins));
    const width = (high - low) / picture.bins || 1;
    const edges = counts.map((_, bin) => [low + bin * width, low + (bin + 1) * width]);
    const tallest = Math.sqrt(Math.max(...counts));
    const ticks = niceCounts(Math.max(...counts));
    const { ink, muted, line } = this.#palette;
    const trace = {
      type: "bar",
      x: edges.map(([from = 0, to = 0]) => (from + to) / 2),
      y: counts.map(Math.sqrt),
      width: counts.map(() => width),
      customdata: counts.map((n, bin) => [count(n), significant(edges[bin]?.[0]), significant(edges[bin]?.[1])]),
      hovertemplate: "%{customdata[0]} in [%{customdata[1]}, %{customdata[2]}]<extra></extra>",
      marker: { color: this.#palette[colour], line: { width: 0 } },
    };
    const layout = {
      width: this.#canvas.clientWidth,
      height: this.#canvas.clientHeight + 20,
      margin: { l: 0, r: 0, t: 0, b: 20 },
      bargap: 0,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(this).fontFamily, size: 10, color: muted },
      hoverlabel: { font: { color: ink } },
      xaxis: { zeroline: true, zerolinecolor: muted, gridcolor: line, nticks: 5,
        range: [low, low === high ? low + 1 : high] },
      yaxis: { gridcolor: line, tickvals: ticks.map(Math.sqrt), ticktext: ticks.map(count),
        ticklabelposition: "inside top", side: "right", fixedrange: true, range: [0, tallest / (1 - HEADROOM)] },
    };
    const config = {
      ...LOCAL,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "pan2d"],
      toImageButtonOptions: { filename: `chainrule-${name}`, format: "svg" },
    };
    await plotly.react(this.#plot, [trace], layout, config);
    if (this.#shown === shown) this.classList.add("at-rest");
  }
}

/** @param {number} most @returns {number[]} two or three round counts up to `most` */
function niceCounts(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most)));
  const lead = Math.max(1, Math.floor(most / power));
  const top = lead * power;
  return [...new Set([Math.max(1, Math.round(top / 10)), Math.max(1, Math.round(top / 2.5)), top])].filter((tick) =>
    tick > 0
  );
}

customElements.define("histogram-chart", HistogramChart);
