/** <run-layers>: the layers of one run over its steps: a statistic of a part as a map, and update : weight.
 * Call `show(shown)`. Events, bubbling: `cursor-change` {step}, `layers-change` {run?, part?, statistic?}. */

import { oncePerFrame } from "../core/activity.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { emit, html, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";
import { chartOf, figure, shadesText } from "../core/lab/chart-figure.js";
import { followSteps } from "../core/lab/step-cursor.js";
import { drawCurves, drawStepMap, HEALTHY_UPDATE, layerAt } from "../core/lab/training-charts.js";

/** Shares of elements or units. */
const SHARES = ["zero_fraction", "dead_fraction", "saturation"];
const LINEAR = [...SHARES, "mean", "min", "max", "nan", "posinf", "neginf"];

const WORDS =
  /** @type {Record<string, string>} */ ({ dead_fraction: "dead units", saturation: "saturated", zero_fraction: "zeros",
    nan: "NaN", posinf: "+Inf", neginf: "−Inf", ratio: "update : weight", weight_gradient: "gradient of the weight",
    gradient: "gradient of the activation" });

/** @typedef {import("../core/lab/board-run.js").BoardRun} BoardRun */
/** @typedef {{runs: readonly string[], run: BoardRun | null, part: string, statistic: string, step: number | null,
 * last: number}} Shown */

class RunLayers extends HTMLElement {
  #shown = /** @type {Shown | null} */ (null);
  #palette = /** @type {Palette | null} */ (null);
  #layer = 0;
  #selects = { run: html("select"), part: html("select"), statistic: html("select") };
  #map = chartOf("Layers and steps");
  #ratio = chartOf("Update : weight over the steps");
  #scale = html("span", { class: "scale" });
  #readout = html("p", { class: "readout" });
  #ratioReadout = html("p", { class: "readout" });
  #empty = html("p", { class: "more", hidden: true });
  #ratioFigure = figure("Update : weight, a line per parameter", this.#ratio);
  #mapFigure = figure("Layers", this.#map);
  /** @type {ReturnType<typeof drawCurves>} */
  #places = null;
  #drawSoon = oncePerFrame(() => this.#draw());

  connectedCallback() {
    const { run, part, statistic } = this.#selects;
    const labelled = (/** @type {string} */ text, /** @type {HTMLElement} */ of) => html("label", {}, `${text} `, of);
    this.append(
      html("header", {}, html("h2", {}, "Layers of a run"), labelled("run", run), labelled("part", part),
        labelled("statistic", statistic)),
      this.#empty,
      this.#mapFigure,
      this.#ratioFigure,
    );
    this.#mapFigure.querySelector("figcaption")?.append(this.#scale, this.#readout);
    this.#ratioFigure.querySelector("figcaption")?.append(this.#ratioReadout);
    for (const [name, select] of Object.entries(this.#selects))
      select.addEventListener("change", () => emit(this, "layers-change", { [name]: select.value }));
    for (const chart of [this.#map, this.#ratio]) {
      followSteps(chart, () => Math.max(1, this.#shown?.last ?? 1), (step) => emit(this, "cursor-change", { step }));
      chart.addEventListener("keydown", (event) => {
        const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (move === undefined) return;
        event.preventDefault();
        this.#lookAt(this.#layer + move);
      });
      new ResizeObserver(() => this.#drawSoon()).observe(chart);
    }
    this.#map.addEventListener("pointermove",
      ({ offsetY }) => this.#lookAt(layerAt(this.#map.clientHeight, this.#table?.layers.length ?? 1, offsetY)));
    this.#ratio.addEventListener("pointermove", ({ offsetY }) => this.#lookNear(offsetY));
    onSchemeChange(() => {
      this.#palette = null;
      this.#drawSoon();
    });
  }

  /** @param {Shown} shown */
  show(shown) {
    this.#shown = shown;
    const { runs, run, part, statistic } = shown;
    choose(this.#selects.run, runs, run?.name ?? "", String);
    choose(this.#selects.part, run?.parts ?? [], part);
    choose(this.#selects.statistic, statisticsOf(run, part), statistic);
    this.hidden = runs.length === 0;
    this.#drawSoon();
  }

  get #table() {
    const { run = null, part = "", statistic = "" } = this.#shown ?? {};
    return run?.table(part, statistic) ?? null;
  }

  /** @param {number} layer */
  #lookAt(layer) {
    const most = Math.max(this.#table?.layers.length ?? 1, this.#ratios?.layers.length ?? 1) - 1;
    this.#layer = Math.max(0, Math.min(most, layer));
    this.#drawSoon();
  }

  get #ratios() {
    return this.#shown?.run?.table("update", "ratio") ?? null;
  }

  /** The line nearest to the pointer. @param {number} y */
  #lookNear(y) {
    const column = this.#ratios?.at(this.#shown?.step ?? Infinity)?.[1];
    const place = this.#places;
    if (column === undefined || place === null) return;
    const distances = Array.from(column,
      (value) => value !== null && Number.isFinite(value) ? Math.abs(place.y(value) - y) : Infinity);
    this.#lookAt(distances.indexOf(Math.min(...distances)));
  }

  #draw() {
    const shown = this.#shown;
    if (shown === null || this.clientWidth === 0) return;
    const palette = this.#palette ??= readPalette();
    const at = { last: Math.max(1, shown.last), step: shown.step, palette };
    this.#drawMap(shown, at);
    this.#drawRatio(shown, at);
  }

  /** @param {Shown} shown @param {{last: number, step: number | null, palette: Palette}} at */
  #drawMap({ run, part, statistic, step }, at) {
    const { layers, columns } = this.#table ?? { layers: [], columns: [] };
    const isKnown = columns.some(([, column]) => column.some((value) => value !== null));
    this.#mapFigure.hidden = !isKnown;
    this.#empty.hidden = isKnown;
    writeText(this.#empty,
      run === null ? ""
        : columns.length === 0 ? "The run has no statistics of its layers yet."
        : `No layer has the ${words(statistic)} of its ${words(part)}.`);
    if (!isKnown) return;
    const isLog = !LINEAR.includes(statistic);
    const shades = shadesText(drawStepMap(this.#map, { ...at, columns, layerCount: layers.length, isLog }),
      SHARES.includes(statistic));
    writeText(this.#scale, shades);
    const said = this.#say(this.#table, step, true);
    writeText(this.#readout, said);
    describe(this.#map, at, `${words(statistic)} of the ${words(part)}, layers over the steps: ${shades}`, said);
  }

  /** @param {Shown} shown @param {{last: number, step: number | null, palette: Palette}} at */
  #drawRatio({ step }, at) {
    const table = this.#ratios;
    this.#ratioFigure.hidden = table === null || table.columns.length === 0;
    if (table === null || this.#ratioFigure.hidden) return;
    const { layers, columns } = table;
    const lines = layers.map((_, layer) => ({
      points: columns.flatMap(([each, values]) => {
        const value = values[layer] ?? null;
        return value === null ? [] : [/** @type {[number, number]} */ ([each, value])];
      }),
      colour: at.palette.parameter,
      width: step !== null && layer === this.#layer ? 2.5 : layers.length > 8 ? 0.5 : 1,
    }));
    this.#places = drawCurves(this.#ratio, { ...at, lines, isLog: true, marks: [[HEALTHY_UPDATE, "1e−3"]] });
    const said = this.#say(table, step, false);
    writeText(this.#ratioReadout, said);
    describe(this.#ratio, at, "Update : weight over the steps", said);
  }

  /** @param {import("../core/lab/board-run.js").LayerTable | null} table @param {number | null} step
   * @param {boolean} isNumbered whether its rows are */
  #say(table, step, isNumbered) {
    const column = table?.at(step ?? Infinity);
    const layer = Math.min(this.#layer, (table?.layers.length ?? 1) - 1);
    if (column === undefined) return "";
    const row = isNumbered ? `row ${layer + 1}, ` : "";
    return `step ${column[0]}, ${row}${table?.layers[layer] ?? ""}: ${
      significant(column[1][layer]).replace("∞", "Inf")
    }`;
  }
}

/** @param {BoardRun | null} run @param {string} part @returns {string[]} */
function statisticsOf(run, part) {
  const own = run?.statistics.filter((name) => name !== "n") ?? [];
  return part === "update" ? [...own, "ratio"] : own;
}

/** @param {string} name @returns {string} */
function words(name) {
  return WORDS[name] ?? name;
}

/** @param {HTMLSelectElement} select @param {readonly string[]} values @param {string} value
 * @param {(value: string) => string} [textOf] */
function choose(select, values, value, textOf = words) {
  if (values.length !== select.options.length || values.some((each, at) => select.options[at]?.value !== each))
    select.replaceChildren(...values.map((each) => html("option", { value: each }, textOf(each))));
  select.value = value;
}

/** @param {HTMLCanvasElement} chart @param {{last: number, step: number | null}} at @param {string} title
 * @param {string} said */
function describe(chart, { last, step }, title, said) {
  write(chart, "aria-label", title);
  write(chart, "aria-valuemax", String(last));
  write(chart, "aria-valuenow", String(step ?? last));
  write(chart, "aria-valuetext", said);
}

customElements.define("run-layers", RunLayers);
