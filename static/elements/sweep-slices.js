/** <sweep-slices>: the row and the column through the cell that is pointed at, as two charts. Call `show(run, cell)`. */

import { oncePerFrame } from "../core/activity.js";
import { onSchemeChange, readPalette } from "../core/colours.js";
import { html, writeText } from "../core/dom.js";
import { chartOf, figure } from "../core/lab/chart-figure.js";
import { surfaceOf } from "../core/lab/training-charts.js";
import { scaleOf, share } from "../core/map/colour-scale.js";
import { KNOWN } from "../core/map/grid.js";
import { canvasPen } from "../core/map/pens.js";
import { placeOf, placeText } from "../core/map/query.js";
import { ticks } from "../core/map/ticks.js";

const MARGIN = { left: 52, right: 12, top: 8, bottom: 22 };

/** @typedef {import("../core/map/run.js").MapRun} MapRun */

class SweepSlices extends HTMLElement {
  #charts = [0, 1].map((axis) => {
    const [title, canvas] = [html("span"), chartOf("")];
    return { axis, title, canvas, figure: figure(title, canvas) };
  });
  #run = /** @type {MapRun | null} */ (null);
  #cell = 0;
  #palette = /** @type {Palette | null} */ (null);
  #drawSoon = oncePerFrame(() => {
    for (const chart of this.#charts) this.#draw(chart);
  });

  connectedCallback() {
    this.hidden = true;
    this.append(...this.#charts.map(({ figure }) => figure));
    new ResizeObserver(() => this.#drawSoon()).observe(this);
    onSchemeChange(() => {
      this.#palette = null;
      this.#drawSoon();
    });
  }

  /** @param {MapRun | null} run @param {number | null} cell null: none is pointed at */
  show(run, cell) {
    this.#run = run;
    this.#cell = cell ?? 0;
    this.hidden = run === null || cell === null;
    this.#drawSoon();
  }

  /** @param {{axis: number, title: HTMLElement, canvas: HTMLCanvasElement, figure: HTMLElement}} chart */
  #draw({ axis, title, canvas, figure }) {
    const run = this.#run;
    const scale = axis === 0 ? run?.xs : run?.ys;
    figure.hidden = scale == null;
    if (run === null || scale == null) return;
    const { grid, plan } = run;
    const [x, y] = [this.#cell % grid.nx, Math.floor(this.#cell / grid.nx)];
    const count = axis === 0 ? grid.nx : grid.ny;
    const known = Array.from({ length: count }, (_, at) => axis === 0 ? y * grid.nx + at : at * grid.nx + x).map((
      cell,
      at,
    ) => ({ at, values: grid.valuesOf(cell), median: grid.median[cell], isKnown: grid.states[cell] === KNOWN })).filter(
      ({ isKnown }) => isKnown
    );
    const others = placeOf(plan.axes, this.#cell, grid.nx).filter((_, other) => other !== axis);
    const at = others.length > 0 ? `, at ${placeText(others)}` : "";
    const bars = grid.seeds > 1 ? ". Line: median. Bars: range of the seeds" : "";
    writeText(title, `Along ${scale.key}${at}${bars}`);
    canvas.setAttribute("aria-label",
      `${plan.measure.title} along ${scale.key}${at}: median, and the range of the seeds`);
    const on = surfaceOf(canvas);
    const numbers = Float64Array.from(
      known.flatMap(({ values }) => values.filter((value) => typeof value === "number")),
    );
    const values = scaleOf(numbers, new Uint8Array(numbers.length).fill(KNOWN), plan.measure.log, "", 0);
    if (on === null) return;
    const pen = canvasPen(on.context, getComputedStyle(canvas).fontFamily);
    const palette = this.#palette ??= readPalette();
    const box = { x: MARGIN.left, y: MARGIN.top, w: on.width - MARGIN.left - MARGIN.right,
      h: on.height - MARGIN.top - MARGIN.bottom };
    const toX = (/** @type {number} */ place) => box.x + (place / count) * box.w;
    const toY = (/** @type {number} */ value) => box.y + box.h * (1 - (values === null ? 0 : share(values, value)));
    const line = { colour: palette.line, width: 1 };
    if (values !== null) {
      for (const { value, text } of ticks(values.low, values.high, values.isLog, 4)) {
        pen.lines([[[box.x, toY(value)], [box.x + box.w, toY(value)]]], line);
        pen.text(text, box.x - 6, toY(value), { colour: palette.muted, align: "right" });
      }
    }
    for (const { place, text } of scale.ticks(0, count, Math.floor(box.w / 60)))
      pen.text(text, toX(place), box.y + box.h + 12, { colour: palette.muted, align: "center" });
    pen.within({ ...box, y: box.y - 4, h: box.h + 8 }, () => {
      const finite = known.filter(({ median }) => Number.isFinite(median));
      pen.lines(
        finite.map(({ at: place, values: seeds }) =>
          seeds.filter((value) => typeof value === "number" && Number.isFinite(value)).sort((a, b) =>
            Number(a) - Number(b)
          ).map((value) => /** @type {const} */ ([toX(place + 0.5), toY(Number(value))]))
        ),
        { colour: palette.neutral, width: Math.max(1.5, Math.min(6, box.w / count - 1)) },
      );
      pen.lines([finite.map(({ at: place, median }) => /** @type {const} */ ([toX(place + 0.5), toY(median)]))], {
        colour: palette.forward,
        width: 2,
      });
      const now = toX((axis === 0 ? x : y) + 0.5);
      pen.lines([[[now, box.y - 4], [now, box.y + box.h + 4]]], { colour: palette.ink, width: 1 });
    });
    pen.box(box, null, { colour: palette.muted, width: 1 });
  }
}

customElements.define("sweep-slices", SweepSlices);
