/** The canvases: beneath the elements, boxes too small for an element; above them, histograms. Panning moves the
 * canvases, so they hold a margin around the view. */

import { drawBars } from "../histogram.js";
import { FRAME, GROUP, OP, REUSE, SAVED, TENSOR } from "../layout/sizes.js";
import { colourOf, hex, hue, mix } from "../colours.js";
import { isComputed } from "../graph/steps.js";
import { memo } from "../memo.js";
import { surface } from "../surface.js";
import { PixelImage, pixelOf, StripImage } from "./images.js";
import { phaseOf, repetitionStrips } from "./look.js";

/** @typedef {{x: number, y: number, width: number, height: number}} Place of the drawing's corner on the canvas, and
 * the canvas's size, px */

/** Least width and height of a histogram, px of the screen. */
const MIN_STRIP = [3, 8];
/** A narrower histogram has shades instead of bars, px of the screen. */
const MIN_BARS = 12;
/** Shorter lines are left out, px of the screen. */
const MIN_LINE = 2.5;
/** With more, lines of saved tensors are left out. */
const MAX_SAVED = 1500;
/** Lower strips of a fold are left out, px of the screen. */
const MIN_STRIPS_HEIGHT = 4;
const DIMMED = 0.3;

export class Ground {
  canvas = document.createElement("canvas");
  #image = new PixelImage();

  constructor() {
    this.canvas.className = "ground";
  }

  /** @param {Sight} sight @param {ViewDetail} detail @param {Place} place */
  paint(sight, detail, place) {
    const { scale } = sight;
    const { isElement, routesAreElements } = detail;
    if (detail.isAll) {
      // The browser would composite even an empty canvas at every step of a pan.
      this.canvas.hidden = true;
      return;
    }
    this.canvas.hidden = false;
    const context = surface(this.canvas, place.width, place.height);
    if (context === null) return;
    const ratio = devicePixelRatio;
    this.#image.start(this.canvas.width, this.canvas.height);
    const [k, dx, dy] = [scale * ratio, place.x * ratio, place.y * ratio];
    this.#boxes(sight, isElement, k, dx, dy, true);
    if (!routesAreElements) this.#lines(sight, k, dx, dy);
    this.#boxes(sight, isElement, k, dx, dy, false);
    this.#image.onto(context);
  }

  /** @param {Sight} sight @param {Uint8Array | null} isElement @param {number} k @param {number} dx @param {number} dy
   * @param {boolean} ofFrames */
  #boxes({ drawing, graph, palette, paintwork, lit, index }, isElement, k, dx, dy, ofFrames) {
    const { rect, kind, ref, boxes } = drawing;
    const { width, height } = this.canvas;
    const inks = inksOf(palette);
    for (let box = 0; box < boxes; box += 1) {
      const isFrame = kind[box] === FRAME;
      if (isFrame !== ofFrames || isElement?.[box] === 1) continue;
      const [x, y] = [rect[4 * box] * k + dx, rect[4 * box + 1] * k + dy];
      const [w, h] = [rect[4 * box + 2] * k, rect[4 * box + 3] * k];
      if (x > width || y > height || x + w < 0 || y + h < 0) continue;
      const phase = phaseOf(drawing, box);
      if (isFrame) {
        if (Math.min(w, h) < 3) continue;
        this.#image.fill(x, y, w, h, inks[phase].ground, 1);
        if (Math.min(w, h) >= 8) this.#image.outline(x, y, w, h, inks[phase].border, 1);
        continue;
      }
      const ink = inks[kind[box] === TENSOR ? hue(phase, graph.topology.tensors[ref[box]].role) : phase];
      const item = paintwork === null ? null : index.itemOf(box);
      const painted = item === null ? null : (paintwork?.fill(item.kind, item.index, item.half) ?? null);
      const isDimmed = lit !== null && lit[box] === 0;
      const own = kind[box] === TENSOR ? ink.soft : kind[box] === OP ? ink.middle : ink.strong;
      const alpha = isDimmed ? DIMMED : 1;
      this.#image.fill(x, y, w, h, painted === null ? own : pixelOf(painted), alpha);
      if (Math.min(w, h) >= 6) this.#image.outline(x, y, w, h, ink.border, alpha);
    }
  }

  /** @param {Sight} sight @param {number} k @param {number} dx @param {number} dy */
  #lines({ drawing, palette, lit }, k, dx, dy) {
    const { bounds, routeKind, routeHalf, points, pointStart, source, target, routes } = drawing;
    const { width, height } = this.canvas;
    const inks = inksOf(palette);
    const muted = pixelOf(palette.muted);
    const saved = savedIn(drawing);
    for (let route = 0; route < routes; route += 1) {
      const kind = routeKind[route];
      if (kind === REUSE || (kind === SAVED && saved > MAX_SAVED)) continue;
      const [w, h] = [bounds[4 * route + 2] * k, bounds[4 * route + 3] * k];
      if (w + h < MIN_LINE) continue;
      const [x, y] = [bounds[4 * route] * k + dx, bounds[4 * route + 1] * k + dy];
      if (x > width || y > height || x + w < 0 || y + h < 0) continue;
      const isDimmed = lit !== null && (lit[source[route]] === 0 || lit[target[route]] === 0);
      const colour = kind === SAVED ? muted : inks[routeHalf[route] === 1 ? "backward" : "forward"].border;
      const alpha = (kind === SAVED ? 0.3 : 0.75) * (isDimmed ? DIMMED : 1);
      for (let at = 2 * pointStart[route]; at + 7 < 2 * pointStart[route + 1]; at += 6) {
        this.#image.curve(points, at, k, dx, dy, colour, alpha);
      }
    }
  }
}

/** Lines of saved tensors in a drawing. */
export const savedIn = memo((/** @type {Drawing} */ { routeKind }) =>
  routeKind.reduce((found, kind) => found + (kind === SAVED ? 1 : 0), 0)
);

export const inksOf = memo(mixInks);

/** @param {Palette} palette */
function mixInks(palette) {
  const paper = colourOf(palette.paper);
  /** @param {string} name */
  const inks = (name) => {
    const shade = (/** @type {number} */ share) => pixelOf(hex(mix(paper, colourOf(name), share)));
    return { ground: shade(0.05), soft: shade(0.3), middle: shade(0.55), strong: shade(0.75), border: shade(0.85) };
  };
  return { forward: inks(palette.forward), backward: inks(palette.backward), parameter: inks(palette.parameter),
    neutral: inks(palette.neutral) };
}

/** Histograms above the elements: bars where there is room, else shades. */
export class Histograms {
  canvas = document.createElement("canvas");
  #strips = new StripImage();

  /** @param {Sight} sight @param {ViewDetail} detail @param {Place} place
   * @param {(box: number) => BoxParts | undefined} partsOf */
  paint(sight, detail, place, partsOf) {
    const context = surface(this.canvas, place.width, place.height);
    if (context === null) return;
    const { drawing, scale, facts, picture } = sight;
    const ratio = devicePixelRatio;
    this.#strips.start(this.canvas.width, this.canvas.height);
    /** Drawn after the strips, which overwrite the canvas. @type {(() => void)[]} */
    const bars = [];
    const { rect, kind, ref } = drawing;
    const [leastWidth, leastHeight] = MIN_STRIP;
    for (let box = 0; box < drawing.boxes; box += 1) {
      if (kind[box] === OP || kind[box] === FRAME) continue;
      const [w, h] = [rect[4 * box + 2] * scale, rect[4 * box + 3] * scale];
      const [x, y] = [place.x + rect[4 * box] * scale, place.y + rect[4 * box + 1] * scale];
      if (x > place.width || y > place.height || x + w < 0 || y + h < 0) continue;
      const isElement = detail.isElement === null || detail.isElement[box] === 1;
      if (!isElement && (w < leastWidth || h < leastHeight)) continue;
      const index = ref[box];
      const phase = phaseOf(drawing, box);
      const parts = isElement ? partsOf(box) : undefined;
      const text = parts?.look?.text ?? null;
      if (isElement && (text === null || text.plot === null || parts?.numbers != null)) continue;
      const plot = text?.plot ?? null;
      /** @type {Rectangle} */
      const at = plot === null ? { x, y, w, h }
        : { x: x + plot.x * scale, y: y + plot.y * scale, w: plot.w * scale, h: plot.h * scale };
      const isDimmed = sight.lit !== null && sight.lit[box] === 0;
      if (kind[box] === GROUP) {
        if (at.h < MIN_STRIPS_HEIGHT) continue;
        const paint = paintOf(sight, phase, isDimmed);
        for (const strip of repetitionStrips(picture, facts, index, phase, at, sight.step))
          this.#strips.draw(picture, strip.row, scaled(strip.at, ratio), paint, strip.isPositive);
        continue;
      }
      const row = facts.rows[index];
      if (row < 0 || !isComputed(sight.graph, index, sight.step)) continue;
      const paint = paintOf(sight, hue(phase, sight.graph.topology.tensors[index].role), isDimmed);
      if (text === null || text.level === "strip" || at.w < MIN_BARS || at.h < MIN_BARS / 2)
        this.#strips.draw(picture, row, scaled(at, ratio), paint);
      else {
        const share = scale < 1 ? 1 : scale;
        const inset = text.level === "narrow" ? 3 : 6;
        // The room beside the bars does not grow with the box.
        const wide = { x: x + inset, y: at.y, w: w - 2 * inset, h: Math.max(4, at.h) };
        bars.push(() => drawBars(context, picture, row, share > 1 ? wide : at, paint));
      }
    }
    if (this.#strips.isUsed) this.#strips.onto(context);
    for (const draw of bars) draw();
  }
}

/** @param {Sight} sight @param {"forward" | "backward" | "parameter" | "neutral"} name @param {boolean} isDimmed */
function paintOf({ palette }, name, isDimmed) {
  if (!isDimmed) return { ink: palette[name], muted: palette.muted, warning: palette.warning };
  const paper = colourOf(palette.paper);
  const faint = (/** @type {string} */ colour) => hexOf(mix(paper, colourOf(colour), DIMMED));
  return { ink: faint(palette[name]), muted: faint(palette.muted), warning: faint(palette.warning) };
}

/** @param {RgbColour} colour @returns {string} #rrggbb */
function hexOf(colour) {
  return `#${colour.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {Rectangle} at @param {number} ratio @returns {Rectangle} */
function scaled({ x, y, w, h }, ratio) {
  return { x: x * ratio, y: y * ratio, w: w * ratio, h: h * ratio };
}
