/** The drawing of a map: colour bar, axes, cells, contours, curves with their names. The same for a canvas and a file. */

import { colourOf, hex, mix } from "../colours.js";
import { share } from "./colour-scale.js";
import { ticks } from "./ticks.js";

/** @typedef {import("./pens.js").Pen} Pen */
/** @typedef {import("./pens.js").Point} Point */
/** @typedef {import("./pens.js").Box} Box */
/** Places on both axes. @typedef {{x0: number, x1: number, y0: number, y1: number}} MapView */

/** @typedef {object} MapScene
 * @property {import("./axis.js").AxisScale} xs @property {import("./axis.js").AxisScale | null} ys null: one row
 * @property {MapView} view @property {HTMLCanvasElement | null} cells one pixel per cell, the last row on top
 * @property {HTMLCanvasElement | null} mask of the infinite values @property {boolean} hasNan
 * @property {boolean} hasMissing @property {import("./colour-scale.js").ColourScale | null} scale
 * @property {readonly RgbColour[]} shades @property {string} title of the colour bar
 * @property {readonly {name: string, places: readonly (Point | null)[]}[]} curves
 * @property {readonly (readonly Point[])[]} contours @property {Palette} palette */

const MARGIN = { left: 52, right: 16, top: 66, bottom: 38 };
const BAR = { top: 17, height: 10, widest: 460 };
/** px per tick across, and down. */
const [ACROSS, DOWN] = [64, 34];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const BAR_STEPS = 64;

/** @param {number} width @param {number} height @returns {Box} where the cells are */
export function plotBox(width, height) {
  return { x: MARGIN.left, y: MARGIN.top, w: Math.max(1, width - MARGIN.left - MARGIN.right),
    h: Math.max(1, height - MARGIN.top - MARGIN.bottom) };
}

/** @param {MapView} view @param {Box} plot @returns {{x: (place: number) => number, y: (place: number) => number,
 * placeX: (x: number) => number, placeY: (y: number) => number}} */
export function projection({ x0, x1, y0, y1 }, plot) {
  return {
    x: (place) => plot.x + ((place - x0) / (x1 - x0)) * plot.w,
    y: (place) => plot.y + plot.h - ((place - y0) / (y1 - y0)) * plot.h,
    placeX: (x) => x0 + ((x - plot.x) / plot.w) * (x1 - x0),
    placeY: (y) => y0 + ((plot.y + plot.h - y) / plot.h) * (y1 - y0),
  };
}

/** @param {import("./colour-scale.js").ColourScale} scale @param {number} width @returns {import("./ticks.js").Tick[]} */
export function barTicks({ low, high, isLog }, width) {
  return ticks(low, high, isLog, Math.max(3, Math.floor(Math.min(width, BAR.widest) / ACROSS)));
}

/** @param {Pen} pen @param {number} width @param {number} height @param {MapScene} scene */
export function drawMap(pen, width, height, scene) {
  const { palette, view, xs, ys, cells, mask } = scene;
  const plot = plotBox(width, height);
  const to = projection(view, plot);
  drawBar(pen, plot, scene);
  if (cells !== null) {
    const whole = { x: to.x(0), y: to.y(cells.height), w: to.x(cells.width) - to.x(0),
      h: to.y(0) - to.y(cells.height) };
    pen.within(plot, () => {
      pen.image(cells, whole);
      if (mask !== null) pen.hatch(mask, whole, palette.ink);
      if (scene.contours.length > 0) {
        const lines = scene.contours.map((line) => line.map(([x, y]) => /** @type {Point} */ ([to.x(x), to.y(y)])));
        pen.lines(lines, { colour: palette.paper, width: 2.5 });
        pen.lines(lines, { colour: palette.ink, width: 1 });
      }
      drawCurves(pen, plot, to, scene);
    });
  }
  pen.box(plot, null, { colour: palette.muted, width: 1 });
  const look = { colour: palette.muted };
  const foot = plot.y + plot.h;
  for (const { place, text } of xs.ticks(view.x0, view.x1, Math.floor(plot.w / ACROSS))) {
    pen.lines([[[to.x(place), foot], [to.x(place), foot + 4]]], { colour: palette.muted, width: 1 });
    pen.text(text, to.x(place), foot + 12, { ...look, align: "center" });
  }
  pen.text(xs.key, plot.x + plot.w / 2, foot + 28, { colour: palette.ink, align: "center", isBold: true });
  if (ys === null) return;
  for (const { place, text } of ys.ticks(view.y0, view.y1, Math.floor(plot.h / DOWN))) {
    pen.lines([[[plot.x - 4, to.y(place)], [plot.x, to.y(place)]]], { colour: palette.muted, width: 1 });
    pen.text(text, plot.x - 7, to.y(place), { ...look, align: "right" });
  }
  pen.text(ys.key, plot.x, plot.y - 10, { colour: palette.ink, align: "left", isBold: true });
}

/** @param {Palette} palette @returns {Record<"NaN" | "infinite" | "not computed", string>} the colours of values that
 * are no numbers: greys on which curves in ink are visible; infinite cells are also hatched */
export function specialColours({ ink, paper }) {
  const grey = (/** @type {number} */ share) => hex(mix(colourOf(ink), colourOf(paper), share));
  return { NaN: grey(0.2), infinite: paper, "not computed": grey(0.6) };
}

/** @param {Pen} pen @param {Box} plot @param {MapScene} scene */
function drawBar(pen, plot, { scale, shades, title, palette, mask, hasNan, hasMissing }) {
  // A long title begins further left on a narrow screen; bold letters are wider.
  const room = plot.x + plot.w + MARGIN.right - 1.1 * pen.widthOf(title);
  pen.text(title, Math.max(0, Math.min(plot.x, room)), 7, { colour: palette.ink, isBold: true });
  const keys = /** @type {const} */ (["infinite", "NaN", "not computed"]).filter((_, at) =>
    [mask !== null, hasNan, hasMissing][at]
  );
  const keysWidth = keys.reduce((sum, key) => sum + pen.widthOf(key) + 30, 0);
  const bar = { x: plot.x, y: BAR.top, w: Math.min(BAR.widest, plot.w), h: BAR.height };
  if (scale !== null) {
    for (let step = 0; step < BAR_STEPS; step += 1) {
      const x = bar.x + (bar.w * step) / BAR_STEPS;
      pen.box({ ...bar, x, w: bar.w - (bar.w * step) / BAR_STEPS },
        hex(shades[Math.round((255 * step) / (BAR_STEPS - 1))]));
    }
    for (const { value, text } of barTicks(scale, bar.w)) {
      const x = bar.x + bar.w * share(scale, value);
      pen.lines([[[x, bar.y + bar.h], [x, bar.y + bar.h + 3]]], { colour: palette.muted, width: 1 });
      pen.text(text, x, bar.y + bar.h + 10, { colour: palette.muted, align: "center" });
    }
  }
  let x = plot.x + plot.w - keysWidth + 14;
  for (const key of keys) {
    const swatch = { x, y: plot.y - 16, w: 12, h: 11 };
    pen.box(swatch, specialColours(palette)[key], { colour: palette.ink, width: 1 });
    if (key === "infinite") pen.hatch(null, swatch, palette.ink);
    pen.text(key, x + 16, plot.y - 10, { colour: palette.ink });
    x += pen.widthOf(key) + 30;
  }
}

/** @param {Pen} pen @param {Box} plot @param {ReturnType<typeof projection>} to @param {MapScene} scene */
function drawCurves(pen, plot, to, { curves, palette }) {
  const drawn = curves.map(({ name, places }, order) => {
    const lines = /** @type {Point[][]} */ ([[]]);
    for (const place of places) {
      if (place === null) lines.push([]);
      else lines.at(-1)?.push([to.x(place[0]), to.y(place[1])]);
    }
    pen.lines(lines, { colour: palette.paper, width: 5 });
    pen.lines(lines, { colour: palette.ink, width: 2, dash: DASHES[order % DASHES.length] });
    return { name, points: dense(lines).filter(([x, y]) => meets(plot, { x, y, w: 0, h: 0 })) };
  });
  /** @type {Box[]} */
  const labels = [];
  for (const { name, points } of drawn) {
    const label = labelAt(points, drawn.flatMap((other) => other.points), pen.widthOf(name), plot, labels);
    if (label === null) continue;
    labels.push(label);
    pen.box(label, palette.paper);
    pen.text(name, label.x + label.w / 2, label.y + label.h / 2, { colour: palette.ink, align: "center",
      isBold: true });
  }
}

/** @param {readonly Point[][]} lines @returns {Point[]} their points, and some between */
function dense(lines) {
  return lines.flatMap((line) =>
    line.flatMap(([x, y], at) => {
      const [x2, y2] = line[at + 1] ?? [x, y];
      const steps = Math.min(50, 1 + Math.floor(Math.hypot(x2 - x, y2 - y) / 12));
      return Array.from({ length: steps },
        (_, step) => /** @type {Point} */ ([x + ((x2 - x) * step) / steps, y + ((y2 - y) * step) / steps]));
    })
  );
}

/** A place beside a curve for a name of that width, from the last quarter outwards: where no curve crosses it, if there is
 * any. @param {readonly Point[]} points of the curve @param {readonly Point[]} all of all curves @param {number} width
 * @param {Box} plot @param {readonly Box[]} taken @returns {Box | null} */
function labelAt(points, all, width, plot, taken) {
  const start = Math.floor(0.75 * points.length);
  const order = points.map((_, at) => at).sort((one, other) => Math.abs(one - start) - Math.abs(other - start));
  const [w, h] = [1.1 * width + 6, 16];
  let crossed = null;
  for (const at of order) {
    const [x, y] = points[at] ?? [0, 0];
    for (const [dx = 0, dy = 0] of [[8, -h / 2], [6, -h - 4], [6, 4], [-w - 8, -h / 2], [-w - 6, -h - 4], [-w - 6,
      4]])
    {
      const box = { x: x + dx, y: y + dy, w, h };
      const fits = box.x >= plot.x + 2 && box.x + w <= plot.x + plot.w - 2 && box.y >= plot.y + 2
        && box.y + h <= plot.y + plot.h - 2;
      if (!fits || taken.some((other) => meets(box, other))) continue;
      if (!all.some(([px, py]) => meets(box, { x: px - 2, y: py - 2, w: 4, h: 4 }))) return box;
      crossed ??= box;
    }
  }
  return crossed;
}

/** @param {Box} one @param {Box} other @returns {boolean} */
function meets(one, other) {
  return one.x < other.x + other.w && other.x < one.x + one.w && one.y < other.y + other.h && other.y < one.y + one.h;
}
