/** The marks of one half of the profile: shapes that elements show, or a canvas while they change with every picture.
 * The elements stay; new figures only change their shapes. */

import { svg, write } from "../dom.js";
import { CanvasPath, cross, line, PathText, polygon, square, tenth, triangle } from "./glyphs.js";
import { isOutside, magnitudes } from "./profile-series.js";

/** @type {readonly ProfileSeries[]} */
const SERIES = ["preactivation", "activation"];
/** From the ground up. */
const MARKS = /** @type {const} */ (["range", "theory", "run", "run-dots", "line", "dots", "outside", "crosses"]);
const CROSS = 3;
const CROWD = 40;
const THRONG = 200;
/** Half the width of a square that replaces each disc among many points: it is faster to fill and looks the same. */
const SPECK = 1.2;
/** Px: closer marks count as one. */
const APART = 0.5;
/** More than any chart's height in these units. */
const MAX_HIGH = 2 ** 15;
/** Half the width of what theory says of a layer that stands alone, at most. */
const STUB = 6;

export class ProfileHalf {
  /** @type {Record<ProfileSeries, Record<Mark, SVGPathElement>>} */
  #paths;
  /** How the style sheet draws the marks. @type {Record<ProfileSeries, Record<Mark, Ink>> | null} */
  #inks = null;
  #question = svg("text", { class: "question", "text-anchor": "middle" }, "?");

  /** @param {ProfileSide} side */
  constructor(side) {
    const pathsOf = (/** @type {ProfileSeries} */ series) =>
      Object.fromEntries(MARKS.map((mark) => [mark, svg("path", { class: `${mark} ${side} ${series}`, d: "" })]));
    this.#paths = /** @type {any} */ (Object.fromEntries(SERIES.map((series) => [series, pathsOf(series)])));
    this.root = svg("g", { class: "half" });
    for (const mark of MARKS) this.root.append(...SERIES.map((series) => this.#paths[series][mark]));
    this.root.append(this.#question);
  }

  /** Draws the marks with pens. @template {Pen} P @param {new () => P} Kind of the pens
   * @param {Drawn} drawn @returns {Record<ProfileSeries, Record<Mark, P>>} */
  #shape(Kind, { axis, points, xs, figures: { measured, expected, run } }) {
    let hidden = "";
    const pens = () => /** @type {Record<Mark, P>} */ (Object.fromEntries(MARKS.map((mark) => [mark, new Kind()])));
    const shapes = { preactivation: pens(), activation: pens() };
    const pitch = Math.abs((xs.at(-1) ?? 0) - (xs[0] ?? 0)) / Math.max(1, points.length - 1);
    const stub = points.length > CROWD ? Math.max(1, Math.min(STUB, pitch / 2)) : STUB;
    const isThrong = points.length > THRONG;
    for (const series of SERIES) {
      const radius = isThrong ? 1.4 : points.length > CROWD ? 2 : 3.5;
      const drawn = shapes[series];
      const [curve, runCurve] = [new Stroke(drawn.line), new Stroke(drawn.run)];
      // With thousands of points, several fall on one pixel: draw each pixel once.
      const [isNewDot, isNewBand, isNewRing] = [new Places(isThrong), new Places(isThrong), new Places(isThrong)];
      /** @type {{x: number, value: number, low: number, high: number}[]} */
      let stretch = [];
      for (let order = 0; axis !== null && order < points.length; order += 1) {
        // The line starts at the input, which has no preactivation.
        if (points[order].series !== series) continue;
        const x = xs[order];
        const [reading, theory, other] = [measured[order] ?? null, expected[order] ?? null, run[order] ?? null];

        if (theory === null) {
          drawTheory(drawn, stretch, stub);
          stretch = [];
        } else {
          const [low, high] = magnitudes(theory).map((end) => axis.y(end));
          const value = axis.y(theory.value);
          // One that stands alone is drawn however near the last one is.
          if (isNewBand.at(x, value, low, high) || stretch.length < 2) stretch.push({ x, value, low, high });
        }
        if (other !== null) {
          const y = other.value === null ? null : axis.y(other.value);
          runCurve.to(x, y);
          if (y !== null) square(drawn["run-dots"], x, y, radius);
          if (other.hasNan) square(drawn["run-dots"], x, axis.nan, radius);
          if (other.hasInf) square(drawn["run-dots"], x, axis.inf, radius);
        }
        if (reading === null) continue;
        const { value } = reading;
        const y = value === null ? null : axis.y(value);
        const isBreak = y === null || (value === 0 && axis.decades !== null);
        const isNew = value === null || y === null || isNewDot.at(x, y, value < 0 ? 1 : 0);
        if (isBreak || isNew) curve.to(x, isBreak ? null : y);
        if (value !== null && y !== null) {
          if (isNew && value < 0) triangle(drawn.dots, x, y, radius + 0.5);
          else if (isNew && isThrong) square(drawn.dots, x, y, SPECK);
          else if (isNew) drawn.dots.disc(x, y, radius);
          if (isOutside(theory, reading) && isNewRing.at(x, y)) drawn.outside.disc(x, y, radius + 2);
        }
        if (reading.hasNan) cross(drawn.crosses, x, axis.nan, CROSS);
        if (reading.hasInf) cross(drawn.crosses, x, axis.inf, CROSS);
        if (reading.isHidden) hidden = `translate(${tenth(x)} ${tenth((axis.low + axis.high) / 2 + 5)})`;
      }
      drawTheory(drawn, stretch, stub);
    }
    write(this.#question, "transform", hidden);
    write(this.#question, "visibility", hidden === "" ? "hidden" : "visible");
    return shapes;
  }

  /** Lets the elements show the marks. @param {Drawn} drawn */
  write(drawn) {
    const shapes = this.#shape(PathText, drawn);
    for (const series of SERIES)
      for (const mark of MARKS) write(this.#paths[series][mark], "d", shapes[series][mark].d);
    this.#inks = null;
  }

  /** Paints the marks as the elements would show them. @param {CanvasRenderingContext2D} context @param {Drawn} drawn */
  paint(context, drawn) {
    const shapes = this.#shape(CanvasPath, drawn);
    this.#inks ??=
      /** @type {any} */ (Object.fromEntries(
        SERIES.map(
          (series) => [series, Object.fromEntries(MARKS.map((mark) => [mark, inkOf(this.#paths[series][mark])]))]
        ),
      ));
    for (const mark of MARKS) {
      for (const series of SERIES) {
        const path = shapes[series][mark];
        const ink = this.#inks?.[series][mark];
        if (ink === undefined) continue;
        context.globalAlpha = ink.opacity;
        if (ink.fill !== "none") {
          context.fillStyle = ink.fill;
          context.fill(path);
        }
        if (ink.stroke === "none") continue;
        context.strokeStyle = ink.stroke;
        context.lineWidth = ink.width;
        context.setLineDash(ink.dashes);
        context.stroke(path);
      }
    }
  }
}

/** @typedef {typeof MARKS[number]} Mark @typedef {import("./glyphs.js").Pen} Pen */
/** axis null: nothing is shown @typedef {{axis: ProfileAxis | null, points: readonly ProfilePoint[],
 * xs: readonly number[], figures: ProfileFigures}} Drawn */
/** @typedef {{fill: string, stroke: string, width: number, dashes: number[], opacity: number}} Ink */

/** @param {Element} element @returns {Ink} */
function inkOf(element) {
  const { fill, stroke, strokeWidth, strokeDasharray, opacity } = getComputedStyle(element);
  return { fill, stroke, width: Number.parseFloat(strokeWidth), opacity: Number(opacity),
    dashes: strokeDasharray === "none" ? [] : strokeDasharray.split(",").map(Number.parseFloat) };
}

/** Remembers the drawn places, to half a pixel; x must not fall. */
class Places {
  #column = NaN;
  /** @type {Set<number>} */
  #seen = new Set();

  /** @param {boolean} counts false: every place counts as new */
  constructor(counts) {
    this.counts = counts;
  }

  /** @param {number} x @param {number} y @param {number} [also] px; what else is drawn with it @param {number} [and]
   * @returns {boolean} whether nothing has been drawn there */
  at(x, y, also = 0, and = 0) {
    if (!this.counts) return true;
    const column = Math.round(x / APART);
    if (column !== this.#column) {
      this.#column = column;
      this.#seen.clear();
    }
    const place = (Math.round(y / APART) * MAX_HIGH + Math.round(also / APART)) * MAX_HIGH + Math.round(and / APART);
    if (this.#seen.has(place)) return false;
    this.#seen.add(place);
    return true;
  }
}

/** A line that breaks where there is nothing. */
class Stroke {
  #isBroken = true;

  /** @param {Pen} pen */
  constructor(pen) {
    this.pen = pen;
  }

  /** @param {number} x @param {number | null} y */
  to(x, y) {
    if (y !== null && this.#isBroken) this.pen.moveTo(x, y);
    else if (y !== null) this.pen.lineTo(x, y);
    this.#isBroken = y === null;
  }
}

/** The line and the band over a stretch of layers. @param {Record<"theory" | "range", Pen>} drawn
 * @param {readonly {x: number, value: number, low: number, high: number}[]} stretch
 * @param {number} stub half the width of a stretch of one */
function drawTheory(drawn, stretch, stub) {
  const [only] = stretch;
  if (only === undefined) return;
  const ends = stretch.length > 1 ? stretch : [{ ...only, x: only.x - stub }, { ...only, x: only.x + stub }];
  line(drawn.theory, ends.map(({ x, value }) => [x, value]));
  polygon(drawn.range, [
    ...ends.map(({ x, high }) => /** @type {const} */ ([x, high])),
    ...ends.toReversed().map(({ x, low }) => /** @type {const} */ ([x, low])),
  ]);
}
