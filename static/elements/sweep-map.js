/** <sweep-map>: the nets of a run as cells. Call `show(run, look)`; `svg()` and `png()` give what it shows.
 * Events, bubbling: `cell-point` {cell}, `cell-open` {cell, isAside}, `region-choose` {x, y}: places along the axes. */

import { later, oncePerFrame } from "../core/activity.js";
import { colourOf, isDarkScheme, onSchemeChange, readPalette } from "../core/colours.js";
import { emit, html, write } from "../core/dom.js";
import { surfaceOf } from "../core/lab/training-charts.js";
import { paint, pixelOf, scaleOf, shades } from "../core/map/colour-scale.js";
import { contours } from "../core/map/contours.js";
import { barTicks, drawMap, plotBox, projection, specialColours } from "../core/map/draw.js";
import { nearestKnown } from "../core/map/grid.js";
import { canvasPen, svgPen } from "../core/map/pens.js";
import { titleOf } from "../core/map/query.js";

/** px that the pointer moves before a click becomes a drag. */
const DRAG = 5;
/** A pause after colouring the cells, as a multiple of the time it took. */
const REST = 3;
/** Fewest cells across when zoomed. */
const CLOSEST = 2;
/** The factor for a turn of the wheel by 100. */
const ZOOM = 1.25;
const PNG_SCALE = 2;

/** @typedef {import("../core/map/run.js").MapRun} MapRun */
/** @typedef {import("../core/map/draw.js").MapScene} MapScene */
/** @typedef {import("../core/map/pens.js").Pen} Pen */
/** @typedef {{field: "median" | "spread", hasContours: boolean, mode: "zoom" | "pan"}} MapLook */

class SweepMap extends HTMLElement {
  #canvas = html("canvas", { tabindex: "0", role: "application", "aria-roledescription": "map",
    "aria-label": "Map of nets. Arrow keys choose a cell, Enter opens its net, plus and minus zoom",
    "aria-describedby": "readout" });
  #run = /** @type {MapRun | null} */ (null);
  #look = /** @type {MapLook} */ ({ field: "median", hasContours: false, mode: "zoom" });
  #view = { x0: 0, x1: 1, y0: 0, y1: 1 };
  #palette = /** @type {Palette | null} */ (null);
  #pen = /** @type {Pen | null} */ (null);
  /** The coloured cells. @type {Pick<MapScene, "cells" | "mask" | "hasNan" | "hasMissing" | "scale" | "shades" | "contours">
   * | null} */
  #painted = null;
  #paintTimer = 0;
  #nextPaint = 0;
  /** The cell that is pointed at. @type {number | null} */
  #cell = null;
  /** The pointer's first and present place in px, while it is down. @type {{from: DOMPoint, to: DOMPoint, view: MapScene["view"],
   * isDrag: boolean, isFresh: boolean} | null} */
  #press = null;
  #drawSoon = oncePerFrame(() => this.#draw());

  connectedCallback() {
    this.append(this.#canvas);
    const canvas = this.#canvas;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", () => this.#drop());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => {
      if (this.#cell === null && canvas.matches(":focus-visible")) this.point(0);
    });
    canvas.addEventListener("wheel", (event) => {
      const at = this.#places(new DOMPoint(event.offsetX, event.offsetY));
      if (this.#zoom(ZOOM ** (event.deltaY / 100), at.x, at.y)) event.preventDefault();
    }, { passive: false });
    new ResizeObserver(() => this.#drawSoon()).observe(canvas);
    onSchemeChange(() => {
      this.#palette = null;
      this.#repaint();
    });
  }

  /** @param {MapRun | null} run @param {MapLook} look */
  show(run, look) {
    const isOther = run !== this.#run;
    this.#run = run;
    if (isOther) this.reset();
    if (isOther) this.#cell = null;
    write(this.#canvas, "data-mode", look.mode);
    this.#look = { ...look };
    if (isOther) this.#nextPaint = 0;
    this.#repaint();
  }

  /** Shows all cells. */
  reset() {
    this.#view = { x0: 0, x1: this.#run?.grid.nx ?? 1, y0: 0, y1: this.#run?.grid.ny ?? 1 };
    this.#drawSoon();
  }

  /** @param {number} cell */
  point(cell) {
    if (cell === this.#cell) return;
    this.#cell = cell;
    emit(this, "cell-point", { cell });
    this.#drawSoon();
  }

  // The drawing

  #repaint() {
    if (this.#paintTimer !== 0) return;
    this.#paintTimer = later(() => {
      this.#paintTimer = 0;
      const start = performance.now();
      this.#paint();
      const end = performance.now();
      this.#nextPaint = end + REST * (end - start);
      this.#drawSoon();
    }, Math.max(0, this.#nextPaint - performance.now()));
  }

  #paint() {
    if (this.#run === null) return;
    const { grid, plan: { measure } } = this.#run;
    const palette = this.#palette ??= readPalette();
    const isSpread = this.#look.field === "spread";
    const field = grid[this.#look.field];
    const scale = scaleOf(field, grid.states, measure.log, isSpread ? "" : measure.name);
    const colours = shades(scale?.isCentred === true, isDarkScheme());
    const special = specialColours(palette);
    const [infinite, missing, nan] = [special.infinite, special["not computed"], special.NaN].map((colour) =>
      pixelOf(colourOf(colour))
    );
    const nearest = nearestKnown(grid);
    const painted = paint(field, grid, nearest, scale, Uint32Array.from(colours, pixelOf), { infinite, missing, nan });
    const filled = nearest === null ? field : Float64Array.from(nearest, (cell) => field[cell] ?? NaN);
    const levels = scale === null || !this.#look.hasContours ? []
      : barTicks(scale, this.#canvas.clientWidth).map(({ value }) => value);
    this.#painted = { ...painted, scale, shades: colours, cells: imageOf(painted.pixels, grid.nx, grid.ny),
      mask: painted.mask && imageOf(painted.mask, grid.nx, grid.ny),
      contours: contours(filled, grid.nx, grid.ny, levels, measure.log) };
  }

  /** @returns {MapScene | null} null before anything is there */
  #scene() {
    if (this.#run === null || this.#painted === null) return null;
    const { xs, ys, curves, plan: { measure, seeds } } = this.#run;
    const of = this.#look.field === "median" ? (seeds.length > 1 ? ", median" : "")
      : measure.log ? ": largest ÷ smallest of the seeds" : ": largest − smallest of the seeds";
    return { ...this.#painted, xs, ys, curves, view: this.#view, title: titleOf(measure) + of,
      palette: this.#palette ??= readPalette() };
  }

  #draw() {
    const on = surfaceOf(this.#canvas);
    const scene = this.#scene();
    if (on === null || scene === null) return;
    const { context, width, height } = on;
    const pen = this.#pen ??= canvasPen(context, getComputedStyle(this.#canvas).fontFamily);
    drawMap(pen, width, height, scene);
    const plot = plotBox(width, height);
    pen.within(plot, () => {
      const to = projection(this.#view, plot);
      if (this.#cell !== null) {
        const [x, y] = [this.#cell % this.#nx, Math.floor(this.#cell / this.#nx)];
        const [w, h] = [Math.max(6, to.x(1) - to.x(0)), Math.max(6, to.y(0) - to.y(1))];
        const box = { x: to.x(x + 0.5) - w / 2, y: to.y(y + 0.5) - h / 2, w, h };
        pen.box(box, null, { colour: scene.palette.paper, width: 4 });
        pen.box(box, null, { colour: scene.palette.ink, width: 2 });
      }
      const box = this.#rectangle();
      if (box === null) return;
      pen.box(box, null, { colour: scene.palette.paper, width: 4 });
      pen.box(box, null, { colour: scene.palette.ink, width: 1.5, dash: [5, 3] });
    });
  }

  get #nx() {
    return this.#run?.grid.nx ?? 1;
  }

  get #ny() {
    return this.#run?.grid.ny ?? 1;
  }

  // The pointer

  /** @param {DOMPoint} point px on the canvas @returns {{x: number, y: number}} places */
  #places({ x, y }) {
    const to = projection(this.#view, plotBox(this.#canvas.clientWidth, this.#canvas.clientHeight));
    return { x: to.placeX(x), y: to.placeY(y) };
  }

  /** @param {DOMPoint} point @returns {number | null} */
  #cellAt(point) {
    const plot = plotBox(this.#canvas.clientWidth, this.#canvas.clientHeight);
    const isInside = point.x >= plot.x && point.x <= plot.x + plot.w && point.y >= plot.y && point.y <= plot.y + plot.h;
    const { x, y } = this.#places(point);
    if (!isInside || this.#run === null) return null;
    return Math.min(this.#ny - 1, Math.max(0, Math.floor(y))) * this.#nx
      + Math.min(this.#nx - 1, Math.max(0, Math.floor(x)));
  }

  /** @returns {import("../core/map/pens.js").Box | null} the rectangle that is drawn; of one row it is as high as the map */
  #rectangle() {
    if (this.#press?.isDrag !== true || this.#look.mode !== "zoom") return null;
    const plot = plotBox(this.#canvas.clientWidth, this.#canvas.clientHeight);
    const [left, right] = [this.#press.from.x, this.#press.to.x].map((x) =>
      Math.min(plot.x + plot.w, Math.max(plot.x, x))
    ).sort((a, b) => a - b);
    const [top, bottom] = this.#run?.ys == null ? [plot.y, plot.y + plot.h]
      : [this.#press.from.y, this.#press.to.y].map((y) => Math.min(plot.y + plot.h, Math.max(plot.y, y))).sort((a, b) =>
        a - b
      );
    return { x: left, y: top, w: right - left, h: bottom - top };
  }

  /** @param {PointerEvent} event */
  #down(event) {
    const at = new DOMPoint(event.offsetX, event.offsetY);
    const cell = this.#cellAt(at);
    if (event.button !== 0 || cell === null) return;
    this.#canvas.setPointerCapture(event.pointerId);
    // A first touch only points.
    const isFresh = event.pointerType !== "mouse" && cell !== this.#cell;
    this.#press = { from: at, to: at, view: this.#view, isDrag: false, isFresh };
    this.point(cell);
  }

  /** @param {PointerEvent} event */
  #move({ offsetX, offsetY }) {
    const at = new DOMPoint(offsetX, offsetY);
    const press = this.#press;
    if (press === null) {
      const cell = this.#cellAt(at);
      if (cell !== null) this.point(cell);
      return;
    }
    press.to = at;
    press.isDrag ||= Math.hypot(at.x - press.from.x, at.y - press.from.y) > DRAG;
    if (press.isDrag && this.#look.mode === "pan") {
      const plot = plotBox(this.#canvas.clientWidth, this.#canvas.clientHeight);
      const { x0, x1, y0, y1 } = press.view;
      this.#lookAt(x0 - ((at.x - press.from.x) / plot.w) * (x1 - x0), x1 - x0,
        y0 + ((at.y - press.from.y) / plot.h) * (y1 - y0), y1 - y0);
    }
    this.#drawSoon();
  }

  /** @param {PointerEvent} event */
  #up({ ctrlKey, metaKey }) {
    const press = this.#press;
    const box = this.#rectangle();
    this.#drop();
    if (press === null) return;
    if (box !== null && box.w > DRAG && box.h > DRAG) {
      const [start, end] = [this.#places(new DOMPoint(box.x, box.y + box.h)),
        this.#places(new DOMPoint(box.x + box.w, box.y))];
      emit(this, "region-choose", { x: [start.x, end.x], y: [start.y, end.y] });
    } else if (!press.isDrag && !press.isFresh && this.#cell !== null)
      emit(this, "cell-open", { cell: this.#cell, isAside: ctrlKey || metaKey });
  }

  #drop() {
    this.#press = null;
    this.#drawSoon();
  }

  // The view

  /** @param {number} x0 @param {number} width @param {number} y0 @param {number} height in cells */
  #lookAt(x0, width, y0, height) {
    const [left, low] = [Math.min(this.#nx - width, Math.max(0, x0)), Math.min(this.#ny - height, Math.max(0, y0))];
    this.#view = { x0: left, x1: left + width, y0: low, y1: low + height };
    this.#drawSoon();
  }

  /** @param {number} by above 1: outwards @param {number} x @param {number} y places that stay
   * @returns {boolean} whether the view changes */
  #zoom(by, x, y) {
    const { x0, x1, y0, y1 } = this.#view;
    const size = (/** @type {number} */ now, /** @type {number} */ all) =>
      Math.min(all, Math.max(Math.min(all, CLOSEST), now * by));
    const [width, height] = [size(x1 - x0, this.#nx), size(y1 - y0, this.#ny)];
    if (width === x1 - x0 && height === y1 - y0) return false;
    this.#lookAt(x - ((x - x0) * width) / (x1 - x0), width, y - ((y - y0) * height) / (y1 - y0), height);
    return true;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.#run === null) return;
    const cell = this.#cell ?? 0;
    const [x, y] = [cell % this.#nx, Math.floor(cell / this.#nx)];
    const step =
      { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Home: [-x, 0],
        End: [this.#nx, 0] }[event.key];
    const zoom = { "+": 1 / ZOOM, "=": 1 / ZOOM, "-": ZOOM }[event.key];
    if (event.key === "Enter") emit(this, "cell-open", { cell, isAside: false });
    else if (event.key === "Escape") this.#drop();
    else if (zoom !== undefined) this.#zoom(zoom, x + 0.5, y + 0.5);
    else if (step !== undefined) {
      const [dx = 0, dy = 0] = step;
      const [nextX, nextY] = [Math.min(this.#nx - 1, Math.max(0, x + dx)), Math.min(this.#ny - 1, Math.max(0, y + dy))];
      this.point(nextY * this.#nx + nextX);
      this.#reveal(nextX, nextY);
    } else return;
    event.preventDefault();
  }

  /** @param {number} x @param {number} y of a cell */
  #reveal(x, y) {
    const { x0, x1, y0, y1 } = this.#view;
    this.#lookAt(Math.min(x, Math.max(x0, x + 1 - (x1 - x0))), x1 - x0, Math.min(y, Math.max(y0, y + 1 - (y1 - y0))),
      y1 - y0);
  }

  // Files

  /** @returns {string} an SVG document: axes and curves as shapes, the cells as a picture */
  svg() {
    const scene = this.#scene();
    if (scene === null || this.#pen === null) throw new Error("nothing is drawn yet");
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const { pen, document } = svgPen(this.#pen.widthOf, getComputedStyle(this.#canvas).fontFamily);
    drawMap(pen, width, height, scene);
    return document(width, height, scene.title, scene.palette.paper);
  }

  /** @returns {Promise<Blob>} */
  png() {
    const scene = this.#scene();
    if (scene === null) throw new Error("nothing is drawn yet");
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const canvas = html("canvas", { width: String(PNG_SCALE * width), height: String(PNG_SCALE * height) });
    const context = canvas.getContext("2d");
    if (context === null) throw new Error("this browser has no canvas");
    context.scale(PNG_SCALE, PNG_SCALE);
    const pen = canvasPen(context, getComputedStyle(this.#canvas).fontFamily);
    pen.box({ x: 0, y: 0, w: width, h: height }, scene.palette.paper);
    drawMap(pen, width, height, scene);
    return new Promise((resolve, reject) =>
      canvas.toBlob((blob) => blob === null ? reject(new Error("the browser gives no picture")) : resolve(blob))
    );
  }
}

/** @param {Uint32Array} pixels @param {number} width @param {number} height @returns {HTMLCanvasElement} */
function imageOf(pixels, width, height) {
  const canvas = html("canvas", { width: String(width), height: String(height) });
  const image = new ImageData(width, height);
  image.data.set(new Uint8ClampedArray(pixels.buffer));
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

customElements.define("sweep-map", SweepMap);
