/** <training-view>: a training over its steps: loss and accuracy, layers and steps as a map, update : weight, and what the
 * net says of its data. Idle while hidden.
 * Set `statistic`; call `show(shown)`. Events, bubbling: `step-choose` {step, moving}, `over-change` {over}. */

import { oncePerFrame } from "../core/activity.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { buttonOf, emit, headings, html, write, writeText } from "../core/dom.js";
import { percent, significant } from "../core/format.js";
import { chartOf, figure, shadesText } from "../core/lab/chart-figure.js";
import { drawCurves, drawStepMap, drawSurface, drawUnits, HEALTHY_UPDATE,
  stepAt } from "../core/lab/training-charts.js";
import { STATISTICS } from "../core/lab/training-run.js";

/** Samples on a decision surface. */
const SAMPLES = 300;
/** Side of a digit, pixels. */
const DIGIT = 8;
const LINEAR = ["dead_fraction", "saturation"];

/** @typedef {HTMLCanvasElement} Canvas */
/** @typedef {import("../core/lab/training-charts.js").Line} Line */

const HINT =
  "Press play: the net trains, and every step has its own picture. The graph, the profile, the layers and the "
  + "inspector show the step.";
const NOTHING_TO_TRAIN = "This program has no parameters to train: choose the program mlp.";

class TrainingView extends HTMLElement {
  #shown = /** @type {TrainingShown | null} */ (null);
  /** @type {TrainingStatistic} */
  #statistic = "activation_std";
  #palette = /** @type {Palette | null} */ (null);

  #loss = chartOf("Loss over the steps");
  #accuracy = chartOf("Accuracy over the steps");
  #ratio = chartOf("Update : weight over the steps");
  #map = chartOf("Layers and steps");
  #surface = chartOf("Decision surface");
  #of = html("select", { "aria-label": "Statistic of the map" });
  #scale = html("span", { class: "scale" });
  #units = html("div", { class: "units" });
  #confusion = html("div", { class: "confusion", tabindex: "0" });
  #hint = html("p", { class: "hint" });
  #events = html("ol", { class: "events", "aria-label": "Events", hidden: true });
  #listed = /** @type {string[]} */ ([]);
  #keys = { batch: key("batch", "batch"), heldOut: key("held-out", "held out"),
    ghost: key("ghost", "before the change"), other: key("other", "run A") };
  /** @type {Record<"loss" | "accuracy" | "ratio" | "map" | "data", HTMLElement>} */
  #figures;
  #drawSoon = oncePerFrame(() => this.#draw());

  constructor() {
    super();
    this.#of.append(...Object.entries(STATISTICS).map(([value, { title }]) => html("option", { value }, title)));
    const legend = html("p", { class: "keys" }, ...Object.values(this.#keys));
    this.#figures = {
      loss: figure("Loss", this.#loss, legend),
      accuracy: figure("Accuracy", this.#accuracy),
      ratio: figure("Update : weight, a line per layer", this.#ratio),
      map: html("figure", { class: "map" }, html("figcaption", {}, this.#of, this.#scale), this.#map),
      data: html("figure", { class: "data", hidden: true }, html("figcaption", {}, "What the net has learned"),
        this.#surface, this.#units, this.#confusion),
    };
  }

  connectedCallback() {
    const { data, ...charts } = this.#figures;
    charts.loss.append(this.#events);
    this.append(this.#hint, data, ...Object.values(charts));
    this.#of.addEventListener("change", () => emit(this, "over-change", { over: this.#of.value }));
    for (const chart of [this.#loss, this.#accuracy, this.#ratio, this.#map]) this.#scrubOn(chart);
    new ResizeObserver(() => this.#drawSoon()).observe(this);
    onSchemeChange(() => {
      this.#palette = null;
      this.#drawSoon();
    });
  }

  /** @param {TrainingStatistic} statistic */
  set statistic(statistic) {
    this.#statistic = statistic;
    this.#of.value = statistic;
    this.#drawSoon();
  }

  /** @param {TrainingShown | null} shown null: there is nothing to train */
  show(shown) {
    this.#shown = shown;
    this.classList.toggle("empty", shown === null);
    writeText(this.#hint, shown === null ? NOTHING_TO_TRAIN : HINT);
    if (shown === null) this.#hint.hidden = false;
    this.#drawSoon();
  }

  /** @param {Canvas} chart */
  #scrubOn(chart) {
    const go = (/** @type {PointerEvent} */ { offsetX }, /** @type {boolean} */ moving) => {
      if (this.#shown === null) return;
      const step = stepAt(chart.clientWidth, this.#last, offsetX);
      emit(this, "step-choose", { step, moving });
    };
    chart.addEventListener("pointerdown", (event) => {
      chart.setPointerCapture(event.pointerId);
      go(event, true);
    });
    chart.addEventListener("pointermove", (event) => event.buttons === 1 && go(event, true));
    chart.addEventListener("pointerup", (event) => go(event, false));
  }

  get #last() {
    const { run, ghost, other } = /** @type {TrainingShown} */ (this.#shown);
    return Math.max(1, run.last, ghost?.last ?? 0, other?.last ?? 0);
  }

  #draw() {
    const shown = this.#shown;
    if (shown === null || this.clientWidth === 0) return;
    const { run, ghost, other, step, message } = shown;
    const palette = this.#palette ??= readPalette();
    const hasScores = [...run.scores.values()].some(({ accuracy }) => !Number.isNaN(accuracy));
    this.#keys.heldOut.hidden = run.curve("heldOutLoss").length === 0;
    this.#keys.ghost.hidden = ghost === null;
    this.#keys.other.hidden = other === null;
    this.#hint.hidden = run.updates.size > 0;
    this.#figures.accuracy.hidden = !hasScores;
    this.#figures.data.hidden = message === null || (message.surface === null && message.confusion === null);
    const at = { last: this.#last, step, palette };
    const scores = run.scores.get(step);
    const events = run.events.map(({ step: where }) => ({ at: where, value: run.updates.get(where)?.loss ?? NaN,
      colour: palette.warning, isChosen: where === step })
    );
    drawCurves(this.#loss, { ...at, lines: this.#linesOf("loss", "heldOutLoss", palette), isLog: true, events });
    this.#list(run.events);
    write(this.#loss, "aria-label",
      `Loss ${significant(scores?.loss)} at step ${step}, ${significant(run.curve("loss")[0]?.[1])} at step 0.`);
    if (hasScores) {
      drawCurves(this.#accuracy, { ...at, lines: this.#linesOf("accuracy", "heldOutAccuracy", palette), isLog: false,
        percent: true });
      write(this.#accuracy, "aria-label", `Accuracy ${percent(scores?.accuracy ?? null)} at step ${step}.`);
    }
    this.#drawRatio(at);
    const isLog = !LINEAR.includes(this.#statistic);
    const shades = shadesText(
      drawStepMap(this.#map, { ...at, columns: run.columns(this.#statistic), layerCount: run.layerCount, isLog }),
      !isLog,
    );
    writeText(this.#scale, shades);
    write(this.#map, "aria-label",
      `${STATISTICS[this.#statistic].title}, ${run.layerCount} layers by ${
        run.knownSteps(this.#statistic).length
      } steps: ${shades}.`);
    if (!this.#figures.data.hidden && message !== null) this.#drawData(message, palette);
  }

  /** @param {readonly TrainingEvent[]} events */
  #list(events) {
    const listed = events.map((event) => JSON.stringify(event));
    const kept = this.#listed.every((event, at) => event === listed[at]) ? this.#listed.length : 0;
    if (kept === listed.length && kept === this.#listed.length) return;
    this.#listed = listed;
    this.#events.hidden = events.length === 0;
    // The lines that stay keep the focus.
    while (this.#events.childElementCount > kept) this.#events.lastElementChild?.remove();
    this.#events.append(...events.slice(kept).map(({ step, text }) => {
      const go = buttonOf({ class: "link" }, () => emit(this, "step-choose", { step, moving: false }), `Step ${step}`);
      return html("li", {}, go, `: ${text}`);
    }));
  }

  /** @param {"loss" | "accuracy"} batch @param {"heldOutLoss" | "heldOutAccuracy"} heldOut @param {Palette} palette */
  #linesOf(batch, heldOut, palette) {
    const { run, ghost, other } = /** @type {TrainingShown} */ (this.#shown);
    return [
      ...(ghost === null ? [] : [{ points: ghost.curve(batch), colour: palette.line, width: 2 }]),
      ...(other === null ? [] : [{ points: other.curve(batch), colour: palette.backward, width: 1.5 }]),
      { points: run.curve(batch), colour: palette.forward, width: 1.5 },
      { points: run.curve(heldOut), colour: palette.ink, width: 1.5, dash: [5, 3] },
    ];
  }

  /** @param {{last: number, step: number, palette: Palette}} at */
  #drawRatio(at) {
    const { run, ghost, other, step } = /** @type {TrainingShown} */ (this.#shown);
    const { line, backward, parameter } = at.palette;
    const lines = [...ratioLines(ghost, line, 2), ...ratioLines(other, backward), ...ratioLines(run, parameter)];
    drawCurves(this.#ratio, { ...at, lines, isLog: true, marks: [[HEALTHY_UPDATE, "1e−3"]] });
    const now = run.updates.get(step - 1)?.update_ratio;
    write(this.#ratio, "aria-label",
      now === undefined ? "No update before step 0."
        : `Update : weight of the last step, over the layers: from ${significant(Math.min(...now))} to ${
          significant(Math.max(...now))
        }.`);
  }

  /** @param {TrainingMessage} message @param {Palette} palette */
  #drawData({ surface, confusion }, palette) {
    const data = this.#shown?.data ?? null;
    this.#surface.hidden = surface === null;
    this.#confusion.hidden = confusion === null;
    if (surface !== null) {
      const samples = data === null || data.features !== 2 ? []
        : data.held_out_x.slice(0, SAMPLES).map(([x = 0, y = 0], at) => ({ x, y, label: data.held_out_y[at] ?? 0 }));
      drawSurface(this.#surface, surface, samples, palette);
      write(this.#surface, "aria-label", "The class that the net predicts at every point, with held-out samples.");
    }
    this.#drawUnits(surface?.units ?? [], palette);
    if (confusion !== null) this.#showConfusion(confusion, data);
  }

  /** @param {TrainingPixels[]} layers @param {Palette} palette */
  #drawUnits(layers, palette) {
    while (this.#units.childElementCount > layers.length) this.#units.lastElementChild?.remove();
    layers.forEach((units, at) => {
      const row = this.#units.children[at]
        ?? this.#units.appendChild(
          html("div", {}, html("span", {}, `Layer ${at + 1}`), html("canvas", { role: "img" })),
        );
      const canvas = /** @type {Canvas} */ (row.lastElementChild);
      drawUnits(canvas, units, palette);
      write(canvas, "aria-label", `The activation of ${units.shape[0]} units of layer ${at + 1} at every point.`);
    });
  }

  /** @param {NonNullable<TrainingMessage["confusion"]>} confusion @param {DataSet | null} data */
  #showConfusion({ counts, wrong }, data) {
    const rows = counts.map((row, label) =>
      html("tr", {}, html("th", { scope: "row" }, String(label)), ...row.map((count, given) => {
        const cell = html("td", { class: label === given ? "right" : count > 0 ? "wrong" : "" },
          count === 0 ? "" : `${count}`);
        return cell;
      }))
    );
    const table = html("table", {},
      html("caption", {}, "Held-out digits: the true digit (rows) and the predicted digit (columns)"),
      html("thead", {}, headings(["digit", ...counts.map((_, given) => String(given))])), html("tbody", {}, ...rows));
    const samples = html("div", { class: "samples" });
    if (data !== null && data.features === DIGIT ** 2) {
      for (const [sample, given] of wrong) {
        const digit = html("canvas", { width: `${DIGIT}`, height: `${DIGIT}`, role: "img",
          "aria-label": `A ${data.held_out_y[sample]} that the net classifies as ${given}` });
        paintDigit(digit, data.held_out_x[sample] ?? []);
        samples.append(html("figure", {}, digit, html("figcaption", {}, `${data.held_out_y[sample]} → ${given}`)));
      }
    }
    this.#confusion.replaceChildren(table, samples);
  }
}

/** @param {TrainingShown["run"] | null} run @param {string} colour @param {number} [times] the usual width
 * @returns {Line[]} a line per layer */
function ratioLines(run, colour, times = 1) {
  const steps = run?.knownSteps("update_ratio") ?? [];
  return Array.from({ length: run?.layerCount ?? 0 }, (_, layer) => ({
    points: steps.map(
      (step) => /** @type {[number, number]} */ ([step, run?.column("update_ratio", step)?.[layer] ?? NaN])
    ),
    colour,
    width: times * ((run?.layerCount ?? 0) > 8 ? 0.5 : 1.25),
  }));
}

/** @param {string} name @param {string} text */
function key(name, text) {
  return html("span", { class: name }, text);
}

/** @param {Canvas} canvas of 8 by 8 @param {readonly number[]} values standardized */
function paintDigit(canvas, values) {
  const image = new ImageData(DIGIT, DIGIT);
  values.forEach((value, at) => {
    const shade = Math.max(0, Math.min(255, 200 - 70 * value));
    image.data.set([shade, shade, shade, 255], 4 * at);
  });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}

customElements.define("training-view", TrainingView);
