/** The stage: elements and canvases that one transform moves. They reach beyond the stage, so that panning only moves
 * them, and zooming stretches them until they are drawn again. */

import { FRAME, GROUP, REUSE } from "../layout/sizes.js";
import { html, svg, write, writeText } from "../dom.js";
import { BoxLayer } from "./boxes.js";
import { Ground, Histograms, savedIn } from "./canvas.js";
import { EdgeLayer } from "./parts.js";
import { Viewport } from "./viewport.js";

// The level of detail.

/** With at most so many boxes, each one is an element, in view or not. */
const WHOLE = 400;
/** The same for elastic drawings. */
const WHOLE_ELASTIC = 1000;
/** Least scale at which boxes are legible, px of the screen per px of the drawing. */
const READABLE = 0.4;
/** Least scale at which words are legible. */
export const LEGIBLE = 0.5;
/** Closed groups and frames at least this large, px of the screen, are elements on any scale. */
const READABLE_GROUP = 26;
const READABLE_FRAME = [56, 6];
/** With few boxes in view, they are elements down to this scale. */
const LEAST = 0.15;
const FEW_BOXES = 400;
/** Most elements that the browser moves smoothly. */
const MAX_BOXES = 1200;
const MAX_ROUTES = 2500;

/** Chooses the boxes and routes that are elements; the others in the region are plain shapes. isElement: by box; null:
 * all are; isAll: whether all the region's boxes and routes are elements. @param {Drawing} drawing @param {Region} region in px of the drawing
 * @param {number} scale px of the screen per px of the drawing @param {readonly number[]} boxes needed in any case */
export function detailOf(drawing, region, scale, boxes) {
  if (drawing.boxes <= (drawing.isElastic ? WHOLE_ELASTIC : WHOLE)) {
    const routes = countTo(drawing.routes).filter((route) => drawing.routeKind[route] !== REUSE);
    return { boxes: countTo(drawing.boxes), routes, isElement: null, routesAreElements: true, isAll: true };
  }
  const right = region.x + region.width;
  const bottom = region.y + region.height;
  const { rect, kind, bounds, routeKind } = drawing;
  /** 1: in the region; 2: also large enough on any scale; 3: needed. */
  const isElement = new Uint8Array(drawing.boxes);
  const [leastWidth, leastHeight] = READABLE_FRAME;
  let [all, large] = [0, 0];
  for (let box = 0; box < drawing.boxes; box += 1) {
    const [x, y, w, h] = [rect[4 * box], rect[4 * box + 1], rect[4 * box + 2], rect[4 * box + 3]];
    if (x > right || y > bottom || x + w < region.x || y + h < region.y) continue;
    const isLarge = kind[box] === FRAME ? w * scale >= leastWidth && h * scale >= leastHeight
      : kind[box] === GROUP && Math.min(w, h) * scale >= READABLE_GROUP;
    isElement[box] = isLarge ? 2 : 1;
    all += 1;
    if (isLarge) large += 1;
  }
  const isReadable = all <= (scale >= READABLE ? MAX_BOXES : scale >= LEAST ? FEW_BOXES : 0);
  const least = isReadable ? 1 : large <= MAX_BOXES ? 2 : 3;
  for (const box of boxes) if (box >= 0) isElement[box] = 3;
  const chosen = [];
  for (let box = 0; box < drawing.boxes; box += 1) {
    if (isElement[box] >= least) chosen.push(box);
    isElement[box] = isElement[box] >= least ? 1 : 0;
  }

  const routes = [];
  for (let route = 0; isReadable && route < drawing.routes; route += 1) {
    const [x, y, w, h] = [bounds[4 * route], bounds[4 * route + 1], bounds[4 * route + 2], bounds[4 * route + 3]];
    if (routeKind[route] === REUSE || x > right || y > bottom || x + w < region.x || y + h < region.y) continue;
    // If some lines have to be painted, all are: a mixture would look like a difference.
    if (routes.length === MAX_ROUTES)
      return { boxes: chosen, routes: [], isElement, routesAreElements: false, isAll: false };
    routes.push(route);
  }
  return { boxes: chosen, routes, isElement, routesAreElements: isReadable, isAll: isReadable };
}

/** @param {number} length @returns {number[]} 0, 1, 2 … */
function countTo(length) {
  return Array.from({ length }, (_, index) => index);
}

/** Drawn beyond the stage on each side, px. */
const MARGIN = 220;
/** Most that zooming stretches the elements. */
const STRETCH = 1.9;
/** More lines of saved tensors than this are drawn fainter. */
const MANY_SAVED = 120;
/** Most lines of one box that light up. */
const MAX_LINES = 200;

export class GraphStage {
  viewport = new Viewport();
  boxes = new BoxLayer();
  /** @type {ViewDetail} */
  detail = { boxes: [], routes: [], isElement: null, routesAreElements: true, isAll: true };

  svg = svg("svg", { class: "graph-svg", role: "tree",
    "aria-label": "Computation graph: arrow keys walk along its edges, Enter inspects, E opens and closes" });
  #edges = new EdgeLayer();
  #ground = new Ground();
  #histograms = new Histograms();
  #world = svg("g", { class: "world" });
  #sides = { forward: svg("text", { class: "side forward" }, "forward"),
    backward: svg("text", { class: "side backward" }, "backward") };
  #layer = html("div", { class: "layer" });
  #nothing = html("p", { class: "nothing", role: "status", hidden: true });
  root = html("div", { class: "stage" });
  /** The viewport for which elements and canvases were drawn. */
  #drawn = { x: 0, y: 0, scale: 1, margin: 0 };
  /** Boxes whose lines are lit. @type {number[]} */
  #pointed = [];

  constructor() {
    this.#histograms.canvas.setAttribute("aria-hidden", "true");
    this.#ground.canvas.setAttribute("aria-hidden", "true");
    this.#world.append(this.boxes.frames, this.#edges.root, this.#sides.forward, this.#sides.backward,
      this.boxes.boxes);
    this.svg.append(this.#edges.definitions, this.#world);
    // The style sheet puts the ground beneath the elements.
    this.#layer.append(this.svg, this.#histograms.canvas, this.#ground.canvas);
    this.root.append(this.#layer, this.#nothing);
  }

  /** @returns {Element[]} what does not move with the boxes */
  get unmoved() {
    return [this.#edges.root, this.#histograms.canvas, this.#ground.canvas];
  }

  /** @returns {boolean} whether the elements are stretched */
  get isBlurred() {
    return this.viewport.scale !== this.#drawn.scale;
  }

  /** @param {Sight} sight @param {BoxSelection} selection @param {(sight: Sight, box: number) => string} idOf */
  draw(sight, selection, idOf) {
    const { viewport } = this;
    const { room, x, y, scale } = viewport;
    sight.scale = scale;
    const margin = viewport.overflows ? MARGIN : 0;
    this.#drawn = { x, y, scale, margin };
    this.#layer.style.inset = `${-margin}px`;
    this.#layer.style.transform = "";
    this.#world.setAttribute("transform", `translate(${x + margin} ${y + margin}) scale(${scale})`);
    // Keeps lines as thick as at scale 1.
    this.#world.style.setProperty("--px", (1 / Math.min(1, scale)).toFixed(3));
    this.svg.classList.toggle("illegible", scale < LEGIBLE);
    const { seen } = viewport;
    const beyond = margin / scale;
    const region = { x: seen.x - beyond, y: seen.y - beyond, width: seen.width + 2 * beyond,
      height: seen.height + 2 * beyond };
    const needed = [selection.selected, selection.twin, selection.holder, selection.focused];
    this.detail = detailOf(sight.drawing, region, scale, needed);
    this.boxes.show(sight, this.detail.boxes, idOf);
    write(this.svg, "aria-owns", this.boxes.order(sight, this.detail.boxes));
    this.#nothing.hidden = sight.graph.arrays.ops > 0;
    if (!this.#nothing.hidden)
      writeText(this.#nothing,
        `Nothing was recorded: ${
          sight.picture.failed ? "the run failed before its first op" : "the model ran no op"
        }.`);
    this.#headSides(sight);
    this.svg.classList.toggle("many-saved", savedIn(sight.drawing) > MANY_SAVED);
    this.mark(sight, selection);
    if (room.width > 0) {
      this.#ground.paint(sight, this.detail, this.#place);
      this.paint(sight);
    }
  }

  /** Moves the elements to the viewport. @returns {boolean} false: the stage must be drawn again */
  turn() {
    const { x, y, scale, room, extent } = this.viewport;
    const drawn = this.#drawn;
    const stretch = scale / drawn.scale;
    if (extent === null || stretch > STRETCH || stretch < 1 / STRETCH) return false;
    const left = x + drawn.margin - stretch * (drawn.x + drawn.margin);
    const top = y + drawn.margin - stretch * (drawn.y + drawn.margin);
    // Regions outside the drawing need no elements.
    const [from, to] = [left - drawn.margin, left - drawn.margin + stretch * (room.width + 2 * drawn.margin)];
    const [above, below] = [top - drawn.margin, top - drawn.margin + stretch * (room.height + 2 * drawn.margin)];
    if (from > Math.max(0, x) + 1 || to < Math.min(room.width, x + extent.width * scale) - 1) return false;
    if (above > Math.max(0, y) + 1 || below < Math.min(room.height, y + extent.height * scale) - 1) return false;
    this.#layer.style.transform = `translate(${left}px, ${top}px) scale(${stretch})`;
    return true;
  }

  /** Writes the numbers of a new picture. @param {Sight} sight */
  write(sight) {
    this.boxes.write(sight);
    // The ground shows no numbers.
    if (this.viewport.room.width > 0) this.paint(sight);
  }

  /** Shows the colours and widths of the overlay. @param {Sight} sight */
  colour(sight) {
    this.boxes.fill(sight);
    this.#edges.widen(sight);
    if (this.viewport.room.width > 0) this.#ground.paint(sight, this.detail, this.#place);
  }

  /** Paints the histograms. @param {Sight} sight */
  paint(sight) {
    const scale = sight.scale;
    // The canvas may be stretched at present.
    sight.scale = this.#drawn.scale;
    this.#histograms.paint(sight, this.detail, this.#place, (box) => this.boxes.partsOf(sight, box));
    sight.scale = scale;
  }

  /** Marks the selection and lights its lines. @param {Sight} sight @param {BoxSelection} selection */
  mark(sight, selection) {
    this.boxes.mark(sight, selection);
    this.point(sight, [selection.selected, selection.holder].filter((box) => box >= 0));
  }

  /** Repaints the canvases after a change of the lit boxes. @param {Sight} sight */
  dim(sight) {
    if (this.viewport.room.width === 0) return;
    this.#ground.paint(sight, this.detail, this.#place);
    this.paint(sight);
  }

  /** Lights the lines of boxes, even those that are not drawn otherwise. @param {Sight} sight
   * @param {number[]} boxes */
  point(sight, boxes) {
    this.#pointed = boxes;
    const extra = boxes.flatMap((box) => sight.index.routesAt(box, MAX_LINES));
    this.#edges.show(sight, extra.length === 0 ? this.detail.routes : [...new Set([...this.detail.routes, ...extra])]);
    this.#edges.mark(sight, boxes);
  }

  /** @param {number[]} boxes @returns {boolean} whether their lines are lit already */
  points(boxes) {
    return boxes.length === this.#pointed.length && boxes.every((box, order) => box === this.#pointed[order]);
  }

  get #place() {
    const { x, y, margin } = this.#drawn;
    const { room } = this.viewport;
    return { x: x + margin, y: y + margin, width: room.width + 2 * margin, height: room.height + 2 * margin };
  }

  /** Writes "forward" and "backward" before the first column. @param {Sight} sight */
  #headSides({ drawing, isVertical }) {
    // In other drawings the first column may be anywhere.
    const isHeaded = drawing.isElastic && !isVertical;
    for (const half of /** @type {const} */ (["forward", "backward"])) {
      const side = half === "backward" ? 1 : 0;
      const box = !isHeaded ? -1 : drawing.half.findIndex((candidate, at) =>
        candidate === side && drawing.kind[at] !== 1 && drawing.kind[at] !== 3
      );
      const level = (drawing.rect[4 * box + 1] ?? 0) + (drawing.rect[4 * box + 3] ?? 0) / 2;
      this.#sides[half].setAttribute("transform", `translate(18 ${level}) rotate(-90)`);
      this.#sides[half].classList.toggle("absent", box < 0);
    }
  }
}
