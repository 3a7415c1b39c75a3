/** <layers-view>: the values of all layers, one column each, as a heatmap of counts or a ridgeline: a canvas while
 * the numbers change, Plotly with hover, zoom and export when they rest. Idle while hidden.
 * Set `picture`, `options`, `selection`. Events, bubbling: `tensor-select` {tensor}, `layers-options-change`
 * {partial options}, `axis-change` {positions, width}. */

import { cancel, later } from "../core/activity.js";
import { csv, saveFile } from "../core/lab/csv.js";
import { buttonOf, emit, html, put } from "../core/dom.js";
import { figureAt, percent, significant, valueAt } from "../core/format.js";
import { adaptiveRange, fixedRange, histogramRows, layerColumns,
  layerHistograms } from "../core/lab/layer-histograms.js";
import { drawAxes, drawLegend, LayersPainter } from "../core/lab/layers-canvas.js";
import { exportedFigure, layersFigure } from "../core/lab/layers-figure.js";
import { columnX, planOf, wholeSection } from "../core/lab/layers-plan.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { loadPlotly, LOCAL } from "../core/lab/plotly.js";
import { whyNoLayers } from "../core/lab/profile-text.js";
import { ValueAxis } from "../core/value-axis.js";
import { surface } from "../core/surface.js";

/** Plotly's graph div. @typedef {HTMLElement & {on?: Function, layout?: Record<string, any>}} Plot */

/** ms from the last change to the new range, and to the picture of Plotly. */
const SETTLE_MS = 400;
const REST_MS = 700;
const LEGEND = { width: 240, height: 24 };
const NARROW_SCREEN = "(max-width: 899px)";

/** @type {Record<LayerTensor, string>} */
const TITLES = { activation: "Activations", preactivation: "Preactivations", gradient: "Gradients", weight: "Weights",
  weight_gradient: "Weight gradients" };

/** @type {Record<LayerTensor, "forward" | "backward" | "parameter">} */
const HUES = { activation: "forward", preactivation: "forward", gradient: "backward", weight: "parameter",
  weight_gradient: "backward" };

/** @type {{key: "form" | "range" | "axis", label: string, choices: [string, string][]}[]} */
const SWITCHES = [
  { key: "form", label: "Kind of chart", choices: [["heatmap", "Heatmap"], ["ridgeline", "Ridgeline"]] },
  { key: "range", label: "Range of values", choices: [["fixed", "Fixed"], ["adaptive", "Fit"]] },
  { key: "axis", label: "Axis of values", choices: [["linear", "Linear"], ["log", "Log"]] },
];

class LayersView extends HTMLElement {
  #picture = /** @type {Picture | null} */ (null);
  /** @type {LayersOptions} */
  #options = { form: "heatmap", of: "activation", range: "fixed", axis: "linear" };
  #selection = "";
  /** The size of the frame, px; 0 while hidden. */
  #size = { width: 0, height: 0 };
  #chain = /** @type {{key: string, of: LayerTensor, columns: LayerColumn[]} | null} */ (null);
  /** The range shown; it only grows while the slider moves. @type {ValueRange | null} */
  #range = null;
  /** @type {{histograms: LayerHistograms, plan: LayersPlan, rule: string} | null} */
  #shown = null;
  /** The part that is zoomed into. @type {LayersSection} */
  #section = { x: [0, 1], y: [0, 1] };
  /** The state drawn on the canvas of the axes. */
  #drawnAxes = "";
  #settle = 0;
  #rest = 0;
  /** Column under the pointer or at the arrow keys, −1 for none. */
  #cursor = -1;
  #family = "sans-serif";
  /** @type {LayersPaint} */
  #paint = paintOf("forward");
  #painter = new LayersPainter(this.#paint);
  #narrow = matchMedia(NARROW_SCREEN);
  #toldAxis = "";
  /** Below the title of a saved image. */
  caption = "";

  #of = html("select", { "aria-label": "Tensors" });
  #readout = html("p", { class: "readout" });
  #spoken = html("p", { class: "visually-hidden", "aria-live": "polite" });
  #legend = html("canvas", { class: "legend", "aria-hidden": "true" });
  #frame = html("div", { class: "frame", tabindex: "0", role: "group" });
  #axes = html("canvas", { class: "axes", "aria-hidden": "true" });
  #layers = html("canvas", { class: "layers", "aria-hidden": "true" });
  /** @type {Plot} */
  #plot = html("div", { class: "plot", "aria-hidden": "true" });
  #outlines = { selected: html("i", { class: "outline selected" }), cursor: html("i", { class: "outline cursor" }) };
  #empty = html("p", { class: "empty", hidden: true });

  connectedCallback() {
    this.#family = getComputedStyle(this).fontFamily;
    this.#frame.append(this.#axes, this.#layers, this.#plot, this.#outlines.selected, this.#outlines.cursor,
      this.#empty);
    this.append(this.#header(), html("div", { class: "caption" }, this.#readout, this.#legend), this.#frame,
      this.#spoken);
    new ResizeObserver((entries) => {
      const { width = 0, height = 0 } = entries.at(-1)?.contentRect ?? {};
      this.#size = { width, height };
      this.#restart();
    }).observe(this.#frame);
    document.addEventListener("visibilitychange", () => this.#restart());
    onSchemeChange(() => this.#recolour());
    this.#listen();
    this.#mark();
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    if (picture?.key !== this.#picture?.key) this.#range = null;
    this.#picture = picture;
    this.#moved();
  }

  /** @param {LayersOptions} options */
  set options({ form, of, range, axis }) {
    const before = JSON.stringify(this.#options);
    this.#options = { form, of, range, axis };
    if (JSON.stringify(this.#options) === before) return;
    this.#range = null;
    this.#cursor = -1;
    this.#mark();
    this.#recolour();
  }

  /** @param {string} tensor id, "" for none */
  set selection(tensor) {
    if (tensor === this.#selection) return;
    this.#selection = tensor;
    this.#outline();
  }

  #header() {
    this.#of.append(...Object.entries(TITLES).map(([value, text]) => html("option", { value }, text)));
    this.#of.addEventListener("change", () => emit(this, "layers-options-change", { of: this.#of.value }));
    const switches = SWITCHES.map(({ key, label, choices }) => {
      const group = html("div", { class: "segmented small", role: "group", "aria-label": label });
      for (const [value, text] of choices) {
        const button = buttonOf({ [`data-${key}`]: value }, () => emit(this, "layers-options-change", { [key]: value }),
          text);
        group.append(button);
      }
      return group;
    });
    return html("header", {}, this.#of, ...switches, this.#saveMenu());
  }

  #saveMenu() {
    const list = html("div", { class: "menu-list" });
    const menu = html("details", { class: "menu save" }, html("summary", {}, "Save"), list);
    /** @type {[string, string, () => void][]} */
    const items = [
      ["csv", "Numbers, 64 bins each", () => this.#saveTable()],
      ["svg", "Image", () => void this.#saveImage("svg")],
      ["png", "Image", () => void this.#saveImage("png")],
    ];
    for (const [format, text, act] of items) {
      const button = buttonOf({ "data-save": format }, () => {
        menu.open = false;
        act();
      }, text, html("small", {}, format.toUpperCase()));
      list.append(button);
    }
    return menu;
  }

  #listen() {
    const frame = this.#frame;
    frame.addEventListener("pointermove", ({ clientX }) => this.#point(this.#columnAt(clientX)));
    frame.addEventListener("pointerleave", () => this.#point(-1));
    frame.addEventListener("click", ({ clientX }) => this.#select(this.#columnAt(clientX)));
    frame.addEventListener("keydown", (event) => this.#key(event));
    frame.addEventListener("blur", () => this.#point(-1));
  }

  // Drawing

  get #isSeen() {
    return this.#size.width > 0 && this.#size.height > 0 && !document.hidden;
  }

  #recolour() {
    this.#paint = paintOf(HUES[this.#options.of]);
    this.#painter = new LayersPainter(this.#paint);
    this.#moved();
  }

  /** It became visible or was resized: the range starts anew, and another view may have set the profile's axis. */
  #restart() {
    this.#range = null;
    this.#toldAxis = "";
    this.#moved();
  }

  /** After a change of numbers or options: draws the canvas now, the rest after a pause. */
  #moved() {
    cancel(this.#settle);
    clearTimeout(this.#rest);
    if (!this.#isSeen) return;
    this.classList.remove("at-rest");
    this.#draw();
    this.#settle = later(() => {
      this.#range = null;
      this.#draw();
    }, SETTLE_MS);
    // Plotly would hide the lines of the start.
    if (this.#picture?.before == null) this.#rest = setTimeout(() => void this.#atRest(), REST_MS);
  }

  #draw() {
    const picture = this.#picture;
    if (picture === null || !this.#isSeen) return;
    const { form, of, axis } = this.#options;
    if (this.#chain?.key !== picture.key || this.#chain.of !== of) {
      this.#chain = { key: picture.key, of, columns: layerColumns(picture, of) };
    }
    const { columns } = this.#chain;
    if (this.#empty.hidden === (columns.length === 0)) this.#showEmpty(columns.length === 0);
    if (columns.length === 0) {
      this.#shown = null;
      this.#readout.textContent = "";
      this.#empty.textContent = picture.topology.layers.length === 0 ? whyNoLayers(picture.spec)
        : `No ${TITLES[of].toLowerCase()} were recorded.`;
      this.#frame.setAttribute("aria-label", this.#empty.textContent);
      this.#outline();
      return;
    }
    const { low, high, threshold, rule } = this.#rangeOf(picture, columns);
    const histograms = layerHistograms(picture, columns, new ValueAxis(axis, low, high, threshold));
    const plan = planOf(form, this.#size.width, this.#size.height, columns.length, this.#options.range === "fixed");
    this.#shown = { histograms, plan, rule };
    this.#section = wholeSection(plan);
    const context = fit(this.#layers, plan.width, plan.height);
    if (context !== null) this.#painter.draw(context, plan, histograms);
    if (context !== null && picture.before !== null) this.#painter.drawStart(context, plan, histograms, picture.before);
    this.#drawAxes();
    const legend = fit(this.#legend, LEGEND.width, LEGEND.height);
    if (legend !== null) drawLegend(legend, LEGEND.width, plan, histograms, this.#paint, this.#family);
    this.#outline();
    this.#say();
    this.#tellAxis(picture, plan, columns);
  }

  /** @param {boolean} isEmpty */
  #showEmpty(isEmpty) {
    this.#empty.hidden = !isEmpty;
    this.#legend.hidden = isEmpty;
    this.#frame.classList.toggle("is-empty", isEmpty);
  }

  #drawAxes() {
    if (this.#shown === null) return;
    const { histograms, plan } = this.#shown;
    const { kind, low, high, threshold } = histograms.axis;
    // During a drag the axes rarely change.
    const axis = { kind, low, high, threshold };
    const all = [this.#chain?.key, this.#options.of, axis, plan, this.#section, histograms.hidden, this.#paint,
      devicePixelRatio];
    const drawn = JSON.stringify(all);
    if (drawn === this.#drawnAxes) return;
    this.#drawnAxes = drawn;
    const context = fit(this.#axes, plan.width, plan.height);
    if (context !== null) drawAxes(context, plan, histograms, this.#section, this.#paint, this.#family);
  }

  /** @param {Picture} picture @param {LayerColumn[]} columns @returns {ValueRange & {rule: string}} */
  #rangeOf(picture, columns) {
    const fixed = this.#options.range === "fixed" ? fixedRange(picture.before ?? picture, columns, this.#options.of)
      : null;
    const start = picture.before === null ? "" : ". Lines: mean ± 2σ before the drag";
    if (fixed !== null) return { ...fixed, rule: `Fixed: ±${significant(fixed.high)} = ${fixed.rule}${start}` };
    const needed = adaptiveRange(picture, columns);
    const before = this.#range;
    if (needed !== null) {
      this.#range = before === null ? needed : {
        low: Math.min(before.low, needed.low),
        high: Math.max(before.high, needed.high),
        threshold: Math.min(before.threshold, needed.threshold),
      };
    }
    const range = this.#range ?? { low: -1, high: 1, threshold: 1 };
    const all = needed === null ? "No finite value"
      : `All finite values: ${significant(needed.low)} to ${significant(needed.high)}`;
    return { ...range,
      rule: this.#options.range === "fixed" ? `The fixed range needs a finite std, and this picture has none. ${all}`
        : all };
  }

  async #atRest() {
    const shown = this.#shown;
    const picture = this.#picture;
    if (shown === null || picture === null || !this.isConnected) return;
    this.#describe(picture, shown.histograms.columns);
    const plotly = await loadPlotly().catch(() => null);
    // Without Plotly the canvas shows the same.
    if (plotly === null || this.#shown !== shown || !this.#isSeen) return;
    const { data, layout } = layersFigure(shown.histograms, shown.plan, this.#paint, this.#family);
    await plotly.react(this.#plot, data, layout, { ...LOCAL, displayModeBar: false, doubleClick: "reset" });
    if (this.#plot.dataset["heard"] === undefined) {
      this.#plot.dataset["heard"] = "";
      this.#plot.on?.("plotly_relayout", () => this.#zoomed());
    }
    if (this.#shown === shown) this.classList.add("at-rest");
  }

  get #isZoomed() {
    if (this.#shown === null) return false;
    const whole = wholeSection(this.#shown.plan);
    return [...this.#section.x, ...this.#section.y].some((end, order) => end !== [...whole.x, ...whole.y][order]);
  }

  #zoomed() {
    const { xaxis, yaxis } = this.#plot.layout ?? {};
    if (!this.classList.contains("at-rest") || xaxis === undefined) return;
    this.#section = { x: xaxis.range, y: yaxis.range };
    this.#drawAxes();
    this.#outline();
    this.#say();
  }

  /** @param {Picture} picture @param {readonly LayerColumn[]} columns */
  #describe(picture, columns) {
    const { form, of } = this.#options;
    const { std } = picture.floats;
    const ends = [columns[0], columns.at(-1)].map((column) =>
      `${column?.name} (std ${figureAt(picture, std, column?.row)})`
    );
    const what = `${form === "heatmap" ? "Heatmap" : "Ridgeline"} of ${TITLES[of].toLowerCase()} per layer`;
    const how =
      "Use the arrow keys to move between layers and Enter to select one. The inspector's table has the values.";
    this.#frame.setAttribute("aria-label", `${what}, from ${ends.join(" to ")}. ${how}`);
  }

  // Columns: under the pointer, by keyboard, selected

  /** @param {number} clientX @returns {number} −1 outside the columns */
  #columnAt(clientX) {
    if (this.#shown === null) return -1;
    const { plan, histograms } = this.#shown;
    const [from, to] = this.#section.x;
    const share = (clientX - this.#frame.getBoundingClientRect().left - plan.main.x) / plan.main.w;
    const column = Math.round(from + share * (to - from));
    return share >= 0 && share <= 1 && column < histograms.columns.length ? Math.max(0, column) : -1;
  }

  /** @param {number} column */
  #point(column) {
    if (column === this.#cursor) return;
    this.#cursor = column;
    this.#outline();
    this.#say();
  }

  /** @param {number} column */
  #select(column) {
    const tensor = this.#shown?.histograms.columns[column]?.tensor;
    if (tensor != null) emit(this, "tensor-select", { tensor });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const columns = this.#shown?.histograms.columns ?? [];
    if (columns.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const selected = columns.findIndex(({ tensor }) => tensor === this.#selection && tensor !== null);
    const at = this.#cursor >= 0 ? this.#cursor : selected;
    const last = columns.length - 1;
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last };
    const next = steps[event.key];
    if (next !== undefined) {
      this.#point(next);
      this.#spoken.textContent = this.#columnText(next);
    } else if (event.key === "Enter" || event.key === " ") {
      this.#select(at);
    } else if (event.key === "0") {
      this.#moved();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Places the outlines of the selected layer and of the cursor. */
  #outline() {
    const { plan, histograms } = this.#shown ?? {};
    const selected = histograms?.columns.findIndex(({ tensor }) => tensor === this.#selection && tensor !== null) ?? -1;
    for (const [element, column]
      of /** @type {const} */ ([[this.#outlines.selected, selected], [this.#outlines.cursor, this.#cursor]]))
    {
      const [left, right] = plan === undefined ? [0, 0] : [column - 0.5, column + 0.5].map((x) =>
        columnX(plan, this.#section, x)
      );
      const isShown = plan !== undefined && column >= 0 && (right ?? 0) > plan.main.x
        && (left ?? 0) < plan.main.x + plan.main.w;
      if (element.hidden === isShown) element.hidden = !isShown;
      if (!isShown) continue;
      const from = Math.max(plan.main.x, left ?? 0);
      const to = Math.min(plan.main.x + plan.main.w, right ?? 0);
      element.style.transform = `translateX(${from.toFixed(1)}px)`;
      element.style.width = `${(to - from).toFixed(1)}px`;
    }
  }

  /** Describes the layer under the cursor, or without one the range of the axis. */
  #say() {
    const rule = this.#isZoomed ? "Zoomed in: double-click, or press 0, to show all" : this.#shown?.rule;
    const text = this.#cursor >= 0 ? this.#columnText(this.#cursor) : (rule ?? "");
    if (this.#readout.textContent !== text) this.#readout.textContent = text;
  }

  /** @param {number} order @returns {string} */
  #columnText(order) {
    const picture = this.#picture;
    const { histograms } = this.#shown ?? {};
    const column = histograms?.columns[order];
    if (picture === null || histograms === undefined || column === undefined) return "";
    const title = `${column.index === 0 ? "input" : `layer ${column.index}`}: ${column.name || "–"}`;
    if (order === histograms.hidden) return `${title} ?`;
    if (column.row < 0) return `${title}, not recorded`;
    const { std, min, max } = picture.floats;
    const low = valueAt(min, column.row);
    const parts = low === null ? []
      : [`σ ${figureAt(picture, std, column.row)}`, `${significant(low)} to ${significant(valueAt(max, column.row))}`];
    const outside =
      /** @type {const} */ ([["above", "above"], ["below", "below"], ["nan", "NaN"], ["posinf", "+Inf"], ["neginf",
        "−Inf"]]);
    for (const [kind, word] of outside) {
      const share = (histograms[kind][order] ?? 0) / (histograms.sizes[order] || 1);
      if (share > 0) parts.push(`${percent(share)} ${word}`);
    }
    return `${title} ${parts.join(", ")}`;
  }

  /** The profile beneath aligns its layers with these. @param {Picture} picture @param {LayersPlan} plan
   * @param {LayerColumn[]} columns */
  #tellAxis({ key, topology }, plan, columns) {
    const told = [key, this.#options.of, plan.form, plan.width, this.#narrow.matches].join();
    if (told === this.#toldAxis) return;
    this.#toldAxis = told;
    const positions = /** @type {Map<string, number>} */ (new Map());
    const section = wholeSection(plan);
    const input = topology.tensors.find(({ role }) => role === "input")?.id;
    if (input !== undefined) positions.set(input, columns[0]?.index === 0 ? columnX(plan, section, 0) : plan.main.x);
    const places = new Map(columns.map(({ index }, place) => [index, place]));
    topology.layers.forEach(({ index, preactivation, activation }) => {
      const column = places.get(index) ?? -1;
      const isOne = preactivation === activation || preactivation === null;
      if (preactivation !== null) positions.set(preactivation, columnX(plan, section, column - 0.25));
      if (activation !== null) positions.set(activation, columnX(plan, section, column + (isOne ? 0 : 0.25)));
    });
    if (this.#narrow.matches) positions.clear();
    emit(this, "axis-change", { positions, width: plan.width });
  }

  // Controls

  #mark() {
    this.#of.value = this.#options.of;
    for (const { key } of SWITCHES) {
      for (const button of this.querySelectorAll(`button[data-${key}]`)) {
        button.setAttribute("aria-pressed", String(button.getAttribute(`data-${key}`) === this.#options[key]));
      }
    }
  }

  #saveTable() {
    const picture = this.#picture;
    if (picture === null) return;
    const table = histogramRows(picture, layerColumns(picture, this.#options.of));
    saveFile(`chainrule-${this.#options.of}-histograms.csv`, csv(table), "text/csv");
  }

  /** @param {"svg" | "png"} format */
  async #saveImage(format) {
    if (this.#shown === null) return;
    const { histograms, plan, rule } = this.#shown;
    const { of } = this.#options;
    const plotly = await loadPlotly().catch(() => null);
    if (plotly === null) {
      this.#readout.textContent = "No image: Plotly could not be loaded.";
      return;
    }
    const figure = exportedFigure(histograms, plan, this.#paint, this.#family, `${TITLES[of]} per layer`, rule,
      this.caption);
    const { width, height } = figure.layout;
    await plotly.downloadImage(figure, { format, filename: `chainrule-${of}-layers`, width, height,
      scale: format === "png" ? 2 : 1 });
  }
}

/** @param {"forward" | "backward" | "parameter"} hue @returns {LayersPaint} */
function paintOf(hue) {
  const palette = readPalette();
  return { hue: palette[hue], paper: palette.paper, ink: palette.ink, muted: palette.muted, line: palette.line,
    warning: palette.warning };
}

/** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
 * @returns {CanvasRenderingContext2D | null} in px, at the resolution of the screen */
function fit(canvas, width, height) {
  put(canvas.style, "width", `${width}px`);
  put(canvas.style, "height", `${height}px`);
  return surface(canvas, width, height);
}

customElements.define("layers-view", LayersView);
