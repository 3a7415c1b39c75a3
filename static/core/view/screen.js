/** The graph view without its custom element: takes pictures, requests drawings, and draws them. */

import { atFrame, cancel, later } from "../activity.js";
import { boxShowing, DrawingIndex, litBoxes } from "./navigation.js";
import { DrawingRequests } from "../layout/client.js";
import { GraphAside } from "./aside.js";
import { GraphCamera, GraphNews } from "./camera.js";
import { GraphFacts } from "./facts.js";
import { addressOf } from "./input.js";
import { Motion } from "./motion.js";
import { GraphSelection } from "./selection.js";
import { GraphStage } from "./stage.js";
import { idOf } from "../graph/graph.js";
import { FRAME, GROUP } from "../layout/sizes.js";
import { readPalette } from "../colours.js";

/** @type {[number, number]} */
const UNSEEN = [800, 600];
const STILL_MS = 120;
const PHASES = /** @type {const} */ (["forward", "backward"]);

export class GraphScreen {
  /** The drawing on the screen and its data. @type {Sight | null} */
  #sight = null;
  /** A picture of another graph, until its drawing arrives. @type {{picture: Picture, graph: Graph} | null} */
  #next = null;
  /** From an item on the screen to its counterpart in the next graph; null: the next graph starts fresh.
   * @type {((item: Item) => Item | null) | null} */
  #find = null;
  /** The expansion of the drawing on the screen. @type {Expansion | null} */
  #drawn = null;
  /** @type {Expansion} */
  #expansion = { level: "auto", toggled: [], fold: "auto" };
  /** @type {Statistic} */
  #statistic = "std";
  /** @type {Paintwork | null} */
  #paintwork = null;
  /** @type {Theory | null} */
  #theory = null;
  /** @type {ReadonlySet<string> | null} */
  #lit = null;
  /** @type {number | null} */
  #step = null;
  /** Id of the item to bring into view with the next drawing. */
  #wanted = "";
  #palette = readPalette();
  #news;

  #frame = 0;
  #still = 0;
  #size = { width: 0, height: 0 };
  /** Whether depth runs downward. */
  #isVertical = false;
  #requests = new DrawingRequests(() => this.#wanting(), (key, drawing) => this.#receive(key, drawing));

  stage = new GraphStage();
  #motion = new Motion(this.stage);
  #selection = new GraphSelection(this.stage);
  #camera = new GraphCamera(this.stage.viewport, {
    ask: () => this.#requests.ask(),
    draw: () => this.#draw(),
    turned: () => this.#turned(),
    isWaiting: () => this.#requests.isWaiting,
  });
  aside = new GraphAside({
    fit: () => this.fit(),
    zoomTo: (box) => this.zoomToBox(box),
    centre: (x, y) => {
      this.#camera.held = null;
      this.stage.viewport.centre({ x, y, width: 0, height: 0 });
      this.#turned();
    },
  });

  /** @param {TellNews} tell */
  constructor(tell) {
    this.#news = new GraphNews(tell);
  }

  // Properties that the page sets

  /** @param {Picture} picture @param {Graph} graph the same object as long as the topology is the same */
  show(picture, graph) {
    const sight = this.#sight;
    if (sight !== null && graph === sight.graph) {
      this.#next = null;
      sight.picture = picture;
      sight.facts.judge(picture, this.#theory);
      // A hidden graph is drawn when it appears.
      if (this.#size.width === 0) return;
      this.stage.write(sight);
      this.aside.settle(sight, this.stage);
      return;
    }
    const isAsked = this.#next?.graph === graph;
    this.#next = { picture, graph };
    if (!isAsked) this.#requests.ask();
  }

  /** Keeps the view when the next graph comes. @param {(item: Item) => Item | null} find from an item of the present
   * graph to its counterpart in the next; null: it has none */
  follow(find) {
    const before = this.#next === null ? null : this.#find;
    this.#find = (item) => {
      const there = before === null ? item : before(item);
      return there === null ? null : find(there);
    };
  }

  /** @param {Theory | null} theory */
  set theory(theory) {
    this.#theory = theory;
    const sight = this.#sight;
    if (sight === null || !sight.facts.judge(sight.picture, theory)) return;
    // Histograms do not depend on the theory.
    this.stage.boxes.write(sight);
    this.aside.settle(sight, this.stage);
  }

  /** @param {Expansion} expansion */
  set expansion(expansion) {
    const { level, toggled, fold } = this.#expansion;
    if (expansion.level === level && expansion.fold === fold && expansion.toggled.join("\n") === toggled.join("\n"))
      return;
    this.#expansion = expansion;
    this.#requests.ask();
  }

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    if (statistic === this.#statistic) return;
    this.#statistic = statistic;
    if (this.#sight === null) return;
    this.#sight.statistic = statistic;
    this.stage.write(this.#sight);
  }

  /** @param {string} id */
  set selection(id) {
    if (!this.#selection.select(this.#sight, id)) this.#draw();
  }

  /** @param {Camera} camera */
  set camera(camera) {
    if (!this.#news.hears(camera)) return;
    this.#wanted = "";
    this.#camera.look({ zoom: camera.zoom, at: camera.at, across: camera.across });
  }

  /** @param {Paintwork | null} paintwork */
  set paintwork(paintwork) {
    if (paintwork === this.#paintwork) return;
    this.#paintwork = paintwork;
    if (this.#sight === null) return;
    this.#sight.paintwork = paintwork;
    this.stage.colour(this.#sight);
  }

  /** @param {ReadonlySet<string> | null} ids items to light; null: none */
  set lit(ids) {
    if (ids === this.#lit) return;
    this.#lit = ids;
    const sight = this.#sight;
    if (sight === null) return;
    sight.lit = litBoxes(sight, this.#lit);
    this.stage.mark(sight, this.#selection.boxes);
    this.stage.dim(sight);
  }

  /** @param {number | null} step boxes of tensors that are not computed then are empty; null: none are */
  set step(step) {
    if (step === this.#step) return;
    this.#step = step;
    if (this.#sight === null) return;
    this.#sight.step = step;
    this.stage.write(this.#sight);
  }

  get sight() {
    return this.#sight;
  }

  /** @returns {number} the box that the arrow keys start from */
  get focused() {
    return this.#selection.boxes.focused;
  }

  /** Brings an item into view at a legible size, as soon as the graph is shown. @param {string} id */
  reveal(id) {
    this.#wanted = id;
    this.#showWanted();
  }

  /** Centres an item, or the box that holds it, at a legible size. @param {string} id */
  zoomTo(id) {
    const box = this.#sight === null ? -1 : boxShowing(this.#sight, id);
    if (box >= 0) this.zoomToBox(box);
  }

  /** Fits the whole graph into the panel. */
  fit() {
    // at 0.5: a camera at the beginning would show a long drawing larger than it fits.
    this.#camera.look({ zoom: 1, at: this.#sight?.drawing.isElastic === false ? 0.5 : 0, across: 0.5 });
    this.#news.camera(this.stage.viewport);
  }

  /** @param {number} box */
  zoomToBox(box) {
    if (this.#sight !== null) this.#camera.zoomTo(this.#sight, box);
  }

  /** @param {number} factor @param {number} [x] the fixed point on the stage; without it the middle
   * @param {number} [y] */
  zoomBy(factor, x, y) {
    if (this.#sight !== null) this.#camera.zoomBy(this.#sight, factor, x, y);
  }

  /** Moves the drawing's corner to a point of the stage. @param {number} x @param {number} y */
  moveTo(x, y) {
    this.#camera.held = null;
    this.stage.viewport.moveTo(x, y);
    this.#turned();
  }

  // Asking for drawings

  /** Reads the colours of the style sheet again. */
  recolour() {
    this.#palette = readPalette();
    if (this.#sight === null) return;
    this.#sight.palette = this.#palette;
    this.#draw();
  }

  /** @returns {PanelSize} a hidden tab has no size, but needs a drawing all the same */
  get #room() {
    return this.#size.width > 0 && this.#size.height > 0 ? this.#size : { width: UNSEEN[0], height: UNSEEN[1] };
  }

  /** @param {PanelSize} size of the stage; 0 by 0 while it is hidden @param {boolean} isVertical whether depth runs
   * downward */
  resize(size, isVertical) {
    this.#size = size;
    const { viewport } = this.stage;
    viewport.room = this.#room;
    if (isVertical !== this.#isVertical) {
      this.#isVertical = isVertical;
      this.#requests.ask();
      return;
    }
    if (this.#sight === null || this.#sight.drawing.isElastic || this.#size.width === 0) this.#requests.ask();
    else {
      viewport.show(this.#sight.drawing, null);
      this.#draw();
    }
    this.#showWanted();
  }

  /** @returns {WantedDrawing | null} */
  #wanting() {
    const of = this.#next ?? this.#sight;
    if (of === null) return null;
    const { viewport } = this.stage;
    const isVertical = this.#isVertical;
    viewport.isVertical = isVertical;
    viewport.room = this.#room;
    const breadth = isVertical ? viewport.room.width : viewport.room.height;
    const options = { orientation: isVertical ? /** @type {const} */ ("vertical") : /** @type {const} */ ("horizontal"),
      length: this.#camera.length(), breadth };
    return { key: of.picture.key, graph: of.graph, expansion: this.#expansion, options };
  }

  /** @param {string} key @param {Drawing} drawing */
  #receive(key, drawing) {
    const before = this.#sight;
    const of = this.#next?.picture.key === key ? this.#next : before?.picture.key === key ? before : null;
    if (of === null) return;
    if (of === this.#next) this.#next = null;
    const { graph, picture } = of;
    const isNew = before?.graph !== graph;
    const facts = isNew || before === null ? new GraphFacts(graph) : before.facts;
    if (isNew) facts.judge(picture, this.#theory);
    const index = new DrawingIndex(graph.arrays, drawing);
    /** @type {Sight} */
    const sight = { graph, drawing, index, facts, picture, statistic: this.#statistic, paintwork: this.#paintwork,
      palette: this.#palette, lit: null, step: this.#step, scale: 1, isVertical: this.#isVertical };
    sight.lit = litBoxes(sight, this.#lit);
    this.#sight = sight;
    this.stage.viewport.room = this.#room;
    const counterpart = isNew && before !== null ? this.#find : null;
    if (isNew) this.#find = null;
    if (before !== null && counterpart !== null) this.#camera.follow(before, counterpart);
    const { x, y, scale } = this.stage.viewport;
    const opened = this.#camera.held?.item ?? null;
    const isHeld = this.#camera.show(sight, !this.#requests.isWaiting, isNew && counterpart === null);
    if (isHeld && opened !== null) this.#enclose(sight, opened);
    this.#selection.renew(sight, isNew);
    this.#draw();
    if (before !== null && !isNew && this.#drawn !== this.#expansion && this.#size.width > 0)
      this.#motion.play(before, { x, y, scale }, sight);
    this.#drawn = this.#expansion;
    this.#news.tell("drawing-change", {});
    if (isHeld) this.#news.camera(this.stage.viewport);
    // Only now the natural length is known, on which the spread depends.
    if (this.#camera.isTooNarrow()) this.#requests.ask();
    this.#showWanted();
  }

  /** Brings both halves of a group that has opened into view. @param {Sight} sight @param {Item} item */
  #enclose({ index, drawing }, item) {
    const boxes = PHASES.map((half) => index.boxOf({ ...item, half })).filter((box) => drawing.kind[box] === FRAME);
    if (item.kind !== "group" || boxes.length === 0) return;
    const rects = boxes.map((box) => index.rectOf(box));
    const [left, top] = [Math.min(...rects.map(({ x }) => x)), Math.min(...rects.map(({ y }) => y))];
    this.#camera.enclose({ x: left, y: top, width: Math.max(...rects.map(({ x, width }) => x + width)) - left,
      height: Math.max(...rects.map(({ y, height }) => y + height)) - top });
  }

  // Drawing

  #draw() {
    const sight = this.#sight;
    if (sight === null) return;
    this.#motion.stop();
    const hadFocus = this.stage.svg.contains(document.activeElement);
    this.stage.viewport.room = this.#room;
    this.stage.draw(sight, this.#selection.boxes, addressOf);
    // Elements that move in the document lose the focus.
    if (hadFocus && !this.stage.svg.contains(document.activeElement)) this.#selection.focusElement(sight);
    this.#placed();
    this.#tellAxis(sight);
    this.aside.settle(sight, this.stage);
  }

  /** Updates the overlays after a move. */
  #placed() {
    if (this.#sight !== null) this.aside.place(this.#sight, this.stage, this.#size.width > 0);
  }

  /** Draws a moved view at the next frame. */
  #turned() {
    if (this.#frame === 0) {
      this.#frame = atFrame(() => {
        this.#frame = 0;
        if (this.#sight === null) return;
        if (!this.stage.turn()) this.#draw();
        else {
          this.#placed();
          if (this.#sight.drawing.isElastic) this.#tellAxis(this.#sight);
        }
      });
    }
    this.aside.unsettle();
    cancel(this.#still);
    this.#still = later(() => this.#stopped(), STILL_MS);
  }

  #stopped() {
    const sight = this.#sight;
    if (sight === null) return;
    if (this.stage.isBlurred) this.#draw();
    this.#tellAxis(sight);
    this.#news.camera(this.stage.viewport);
    this.aside.settle(sight, this.stage);
  }

  /** @param {Sight} sight */
  #tellAxis(sight) {
    this.#news.axis(sight, this.stage.viewport, this.#size.width);
  }

  // Boxes

  /** @param {number} box @param {boolean} take whether the element gets the browser's focus */
  moveFocus(box, take) {
    const sight = this.#sight;
    if (sight === null || box < 0) return;
    if (!this.#selection.focus(sight, box)) this.#draw();
    if (!take) return;
    this.#bring(box);
    this.#selection.focusElement(sight);
  }

  #showWanted() {
    // A panel that has just appeared has no view until its drawing arrives.
    if (this.#wanted === "" || this.#size.width === 0 || this.#requests.isWaiting || this.#next !== null) return;
    const box = this.#sight === null ? -1 : boxShowing(this.#sight, this.#wanted);
    this.#wanted = "";
    if (box >= 0) this.#bring(box);
  }

  /** Brings a box into view at a legible size. @param {number} box */
  #bring(box) {
    const sight = this.#sight;
    if (sight === null) return;
    if (!this.#camera.bring(sight, box)) return;
    if (!this.stage.turn() || this.stage.isBlurred) this.#draw();
    else this.#placed();
    this.#tellAxis(sight);
    this.#news.camera(this.stage.viewport);
  }

  /** @param {number} box of a group, which opens or closes in place */
  toggle(box) {
    const sight = this.#sight;
    const kind = sight?.drawing.kind[box];
    if (sight === null || (kind !== GROUP && kind !== FRAME)) return;
    this.#camera.holdCorner(sight, box);
    const item = sight.index.itemOf(box);
    this.#selection.keep(item);
    this.#news.tell("group-toggle", { id: idOf(sight.graph, { ...item, half: "forward" }) });
  }

  /** @param {number} box */
  hover(box) {
    if (this.#sight !== null) this.#selection.hover(this.#sight, box);
  }
}
