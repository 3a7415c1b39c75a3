/** <run-curves>: one curve per run over the steps, with the events as marks on them and as a list.
 * Call `show(shown)`. Events, bubbling: `cursor-change` {step}, null without a pointer or focus on the chart. */

import { oncePerFrame } from "../core/activity.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { emit, html, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";
import { chartOf, figure } from "../core/lab/chart-figure.js";
import { drawCurves } from "../core/lab/training-charts.js";
import { followSteps } from "../core/lab/step-cursor.js";

/** px around a mark in which the pointer is on it. */
const NEAR = 12;
/** Width of a run's curve. */
const WIDTH = 1.75;
/** Values this many times above nine tenths of all are drawn at the top. */
const BEYOND = 1000;

/** @typedef {{runs: readonly ListedRun[], curve: RunCurve, isLog: boolean, step: number | null, title: Node}} Shown */
/** @typedef {{event: RunEvent, listed: ListedRun, value: number}} Mark */

class RunCurves extends HTMLElement {
  #shown = /** @type {Shown | null} */ (null);
  #palette = /** @type {Palette | null} */ (null);
  #chart = chartOf("Loss over the steps");
  #tip = html("p", { class: "tip", hidden: true });
  #list = html("ol", { class: "events" });
  #more = html("p", { class: "more" });
  #none = html("p", { class: "more" }, "No events.");
  /** The rows in the list, to keep them and their focus if they do not change. */
  #listed = "";
  /** @type {Mark[]} */
  #marks = [];
  /** On the screen. @type {{x: number, y: number, mark: Mark}[]} */
  #places = [];
  /** The event that is pointed at or focused. @type {RunEvent | null} */
  #chosen = null;
  #drawSoon = oncePerFrame(() => this.#draw());

  connectedCallback() {
    const events = html("section", { class: "event-list", "aria-label": "Events" }, html("h2", {}, "Events"),
      this.#none, this.#list, this.#more);
    this.append(figure(html("span", { class: "title" }), this.#chart, this.#tip), events);
    followSteps(this.#chart, () => this.#last, (step) => emit(this, "cursor-change", { step }));
    this.#chart.addEventListener("pointermove", ({ offsetX, offsetY }) => this.#pointAt(offsetX, offsetY));
    this.#chart.addEventListener("pointerleave", () => this.#choose(null));
    new ResizeObserver(() => this.#drawSoon()).observe(this.#chart);
    onSchemeChange(() => {
      this.#palette = null;
      this.#drawSoon();
    });
  }

  /** @param {Shown} shown */
  show(shown) {
    this.#shown = shown;
    const title = this.querySelector(".title");
    if (title !== null && title.firstChild !== shown.title) title.replaceChildren(shown.title);
    this.#marks = shown.runs.flatMap((listed) =>
      listed.isShown && listed.run !== null
        ? listed.run.events.map((event) => ({ event, listed,
          value: listed.run?.finiteAt(shown.curve, event.step) ?? NaN })
        ) : []
    );
    this.#showEvents();
    this.#drawSoon();
  }

  get #last() {
    const shown = this.#shown?.runs.filter(({ isShown }) => isShown) ?? [];
    return Math.max(1, ...shown.map(({ run }) => run?.last ?? 0));
  }

  #draw() {
    const shown = this.#shown;
    if (shown === null || this.#chart.clientWidth === 0) return;
    const palette = this.#palette ??= readPalette();
    const runs = shown.runs.filter(({ isShown, run }) => isShown && run !== null);
    const most = mostOf(runs.map(({ run }) => run?.curves[shown.curve] ?? []));
    const lines = runs.map(({ run, line }) => ({ points: atMost(run?.curves[shown.curve] ?? [], most), ...line,
      width: WIDTH })
    );
    const last = this.#last;
    const events = this.#marks.map(({ event, listed, value }) => ({ at: event.step, value, colour: listed.line.colour,
      isChosen: event === this.#chosen })
    );
    const place = drawCurves(this.#chart, { lines, last, step: shown.step, isLog: shown.isLog, events, palette,
      least: 0 });
    this.#places = place === null ? []
      : this.#marks.map((mark) => ({ mark, x: place.x(mark.event.step),
        y: Number.isFinite(mark.value) ? place.y(mark.value) : 0 })
      );
    const step = shown.step ?? last;
    const values = runs.map(({ entry, run }) => `${entry.name} ${significant(run?.valueAt(shown.curve, step))}`);
    write(this.#chart, "aria-valuemax", String(last));
    write(this.#chart, "aria-valuenow", String(step));
    write(this.#chart, "aria-valuetext", `Step ${step}: ${values.join(", ") || "no curve"}`);
    write(this.#chart, "aria-label",
      { loss: "Loss", gradient_norm: "Gradient norm", lr: "Learning rate" }[shown.curve] + " over the steps");
    this.#showTip();
  }

  /** @param {number} x @param {number} y on the chart */
  #pointAt(x, y) {
    const distance = (/** @type {{x: number, y: number}} */ place) => Math.hypot(place.x - x, place.y - y);
    const [nearest] = [...this.#places].sort((one, other) => distance(one) - distance(other));
    this.#choose(nearest !== undefined && distance(nearest) <= NEAR ? nearest.mark.event : null);
  }

  /** @param {RunEvent | null} event */
  #choose(event) {
    if (this.#chosen === event) return;
    this.#chosen = event;
    this.#drawSoon();
  }

  #showTip() {
    const place = this.#places.find(({ mark }) => mark.event === this.#chosen);
    this.#tip.hidden = place === undefined;
    if (place === undefined) return;
    const same = this.#places.filter(({ mark }) =>
      mark.event.step === place.mark.event.step && mark.listed === place.mark.listed
    );
    writeText(this.#tip, `${nameOf(place.mark.event)}: ${same.map(({ mark }) => mark.event.text).join("; ")}`);
    const isRight = place.x > this.#chart.clientWidth / 2;
    const side = `${isRight ? this.#chart.clientWidth - place.x : place.x}px`;
    Object.assign(this.#tip.style, { left: isRight ? "" : side, right: isRight ? side : "",
      top: `${this.#chart.offsetTop + place.y + 12}px` });
  }

  #showEvents() {
    const more = this.#shown?.runs.reduce((sum, { isShown, run }) => sum + (isShown ? run?.moreEvents ?? 0 : 0), 0)
      ?? 0;
    const parts = this.#marks.map(({ event, listed }) => ({ event, listed,
      graph: listed.run?.graphOf(event) ?? null })
    );
    const listed = JSON.stringify([more, ...parts.map(({ event, graph }) => [event, graph])]);
    this.#none.hidden = parts.length > 0;
    this.#more.hidden = more === 0;
    writeText(this.#more, `${more} more events are in the files.`);
    if (listed === this.#listed) return;
    this.#listed = listed;
    this.#list.replaceChildren(...parts.map(({ event, listed: { line }, graph }) => {
      const what = html("button", { type: "button", class: "link" }, nameOf(event));
      const swatch = html("span", { class: "dot", "aria-hidden": "true" });
      swatch.style.borderColor = line.colour;
      const item = html("li", {}, swatch, what, html("span", {}, ` ${event.text} `));
      if (graph !== null) {
        const beside = graph.before === null ? "" : `, beside step ${graph.before}`;
        item.append(html("a", { href: graph.address }, `Graph of step ${graph.step}${beside}`));
      }
      const point = () => {
        this.#choose(
          this.#marks.find((mark) =>
            mark.event.run === event.run && mark.event.step === event.step && mark.event.text === event.text
          )?.event ?? null,
        );
      };
      for (const type of ["focusin", "pointerenter"]) item.addEventListener(type, point);
      for (const type of ["focusout", "pointerleave"]) item.addEventListener(type, () => this.#choose(null));
      return item;
    }));
  }
}

/** @param {RunEvent} event @returns {string} */
function nameOf({ run, step, batch }) {
  return `${run}, step ${step}${batch === null || batch === step ? "" : `, batch ${batch}`}`;
}

/** @typedef {readonly (readonly [number, number])[]} Points */

/** @param {readonly Points[]} curves @returns {number} what is drawn at most: of a run that diverges only the beginning */
function mostOf(curves) {
  const values = Float64Array.from(curves.flat().map(([, value]) => value).filter(Number.isFinite)).sort();
  return BEYOND * (values[Math.floor(0.9 * values.length)] ?? Infinity) || Infinity;
}

/** @param {readonly [number, number][]} points @param {number} most @returns {readonly [number, number][]} */
function atMost(points, most) {
  return points.some(([, value]) => value > most)
    ? points.map(([at, value]) => [at, Number.isFinite(value) ? Math.min(value, most) : value]) : points;
}

customElements.define("run-curves", RunCurves);
