/**
 * Where a drawing is put on the screen: elements, canvases, and the one transform that turns them. What is drawn
 * reaches beyond the stage, so that panning only moves it, and zooming stretches it until there is time to draw it
 * sharp.
 */

import { html, svg, write, writeText } from "../dom.js";
import { BoxLayer } from "./graph-boxes.js";
import { Ground, Histograms } from "./graph-canvas.js";
import { EdgeLayer } from "./graph-edges.js";
import { countSaved, detailOf, LEGIBLE } from "./graph-sight.js";
import { Viewport } from "./viewport.js";

/** How far beyond the stage is drawn where there is more, px. */
const MARGIN = 220;
/** How far what is drawn may be stretched. */
const STRETCH = 1.9;
/** More lines of saved tensors than this are drawn fainter. */
const MANY_SAVED = 120;
/** Of one thing that is pointed out. */
const MOST_LINES = 200;

export class GraphStage {
  viewport = new Viewport();
  boxes = new BoxLayer();
  /** What is drawn as elements. @type {ViewDetail} */
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
  /** What the elements and canvases were drawn for. */
  #drawn = { x: 0, y: 0, scale: 1, margin: 0 };
  /** Boxes whose lines are pointed out. @type {number[]} */
  #pointed = [];
  /** @type {Drawing | null} */
  #counted = null;

  constructor() {
    this.#histograms.canvas.setAttribute("aria-hidden", "true");
    this.#ground.canvas.setAttribute("aria-hidden", "true");
    this.#world.append(this.boxes.frames, this.#edges.root, this.#sides.forward, this.#sides.backward,
      this.boxes.boxes);
    this.svg.append(this.#edges.definitions, this.#world);
    // The ground lies beneath the elements all the same: the style sheet says so.
    this.#layer.append(this.svg, this.#histograms.canvas, this.#ground.canvas);
    this.root.append(this.#layer, this.#nothing);
  }

  /** @returns {boolean} whether what is drawn is stretched, or does not fill the stage */
  get isBlurred() {
    return this.viewport.scale !== this.#drawn.scale;
  }

  /**
   * Draws what is in sight.
   *
   * @param {Sight} sight
   * @param {BoxSelection} selection
   * @param {(sight: Sight, box: number) => string} idOf
   */
  draw(sight, selection, idOf) {
    const { viewport } = this;
    const { room, x, y, scale } = viewport;
    sight.scale = scale;
    const margin = viewport.overflows ? MARGIN : 0;
    this.#drawn = { x, y, scale, margin };
    this.#layer.style.inset = `${-margin}px`;
    this.#layer.style.transform = "";
    this.#world.setAttribute("transform", `translate(${x + margin} ${y + margin}) scale(${scale})`);
    // Lines as thick as at their natural size.
    this.#world.style.setProperty("--px", (1 / Math.min(1, scale)).toFixed(3));
    this.svg.classList.toggle("illegible", scale < LEGIBLE);
    const { seen } = viewport;
    const beyond = margin / scale;
    const region = { x: seen.x - beyond, y: seen.y - beyond, width: seen.width + 2 * beyond,
      height: seen.height + 2 * beyond };
    const needed = [selection.selected, selection.twin, selection.holder, selection.focused];
    this.detail = detailOf(sight.drawing, region, scale, needed, []);
    this.boxes.show(sight, this.detail.boxes, idOf);
    write(this.svg, "aria-owns", this.boxes.order(sight, this.detail.boxes));
    this.#nothing.hidden = sight.graph.arrays.ops > 0;
    if (!this.#nothing.hidden)
      writeText(this.#nothing,
        `Nothing was recorded: ${
          sight.picture.failed ? "the run broke off before its first op" : "the model ran no op"
        }.`);
    this.#headSides(sight);
    if (this.#counted !== sight.drawing) {
      this.#counted = sight.drawing;
      this.svg.classList.toggle("many-saved", countSaved(sight.drawing) > MANY_SAVED);
    }
    this.mark(sight, selection);
    if (room.width > 0) {
      this.#ground.paint(sight, this.detail, this.#place);
      this.paint(sight);
    }
  }

  /**
   * Turns what is drawn to where the viewport is, if that is enough.
   *
   * @returns {boolean} false: it has to be drawn anew
   */
  turn() {
    const { x, y, scale, room, extent } = this.viewport;
    const drawn = this.#drawn;
    const stretch = scale / drawn.scale;
    if (extent === null || stretch > STRETCH || stretch < 1 / STRETCH) return false;
    const left = x + drawn.margin - stretch * (drawn.x + drawn.margin);
    const top = y + drawn.margin - stretch * (drawn.y + drawn.margin);
    // Where there is nothing of the drawing, nothing need be drawn.
    const [from, to] = [left - drawn.margin, left - drawn.margin + stretch * (room.width + 2 * drawn.margin)];
    const [above, below] = [top - drawn.margin, top - drawn.margin + stretch * (room.height + 2 * drawn.margin)];
    if (from > Math.max(0, x) + 1 || to < Math.min(room.width, x + extent.width * scale) - 1) return false;
    if (above > Math.max(0, y) + 1 || below < Math.min(room.height, y + extent.height * scale) - 1) return false;
    this.#layer.style.transform = `translate(${left}px, ${top}px) scale(${stretch})`;
    return true;
  }

  /** The numbers of a new picture. @param {Sight} sight */
  write(sight) {
    this.boxes.write(sight);
    // Without an overlay nothing on the ground hangs on numbers.
    if (this.viewport.room.width > 0) this.paint(sight);
  }

  /** The colours and widths of the overlay. @param {Sight} sight */
  colour(sight) {
    this.boxes.fill(sight);
    this.#edges.widen(sight);
    if (this.viewport.room.width > 0) this.#ground.paint(sight, this.detail, this.#place);
  }

  /** The histograms. @param {Sight} sight */
  paint(sight) {
    const scale = sight.scale;
    // On the canvas as it lies, which may be stretched just now.
    sight.scale = this.#drawn.scale;
    this.#histograms.paint(sight, this.detail, this.#place, (box) => this.boxes.partsOf(sight, box));
    sight.scale = scale;
  }

  /** What is selected, linked to that, lit. @param {Sight} sight @param {BoxSelection} selection */
  mark(sight, selection) {
    this.boxes.mark(sight, selection);
    this.point(sight, [selection.selected, selection.holder].filter((box) => box >= 0));
  }

  /** What is lit on the ground as well. @param {Sight} sight */
  dim(sight) {
    if (this.viewport.room.width === 0) return;
    this.#ground.paint(sight, this.detail, this.#place);
    this.paint(sight);
  }

  /** Lights the lines of boxes, drawing those that are not there otherwise. @param {Sight} sight
   * @param {number[]} boxes */
  point(sight, boxes) {
    this.#pointed = boxes;
    const extra = boxes.flatMap((box) => sight.index.routesAt(box, MOST_LINES));
    this.#edges.show(sight, extra.length === 0 ? this.detail.routes : [...new Set([...this.detail.routes, ...extra])]);
    this.#edges.mark(sight, boxes);
  }

  /** @param {number[]} boxes @returns {boolean} whether theirs are the lines that are lit */
  points(boxes) {
    return boxes.length === this.#pointed.length && boxes.every((box, order) => box === this.#pointed[order]);
  }

  get #place() {
    const { x, y, margin } = this.#drawn;
    const { room } = this.viewport;
    return { x: x + margin, y: y + margin, width: room.width + 2 * margin, height: room.height + 2 * margin };
  }

  /** "forward" and "backward" before the first column. @param {Sight} sight */
  #headSides({ drawing, isVertical }) {
    // Elsewhere the first column may be anywhere.
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
