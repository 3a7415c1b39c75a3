/** The parts around the drawing: a trail of the open groups in view, a minimap, the text for screen readers, and the bar
 * beneath: the figure in the boxes, the legend of their colours, and zoom buttons. */

import { cancel, later } from "../activity.js";
import { html } from "../dom.js";
import { significant } from "../format.js";
import { inksOf } from "./canvas.js";
import { FRAME, TENSOR } from "../layout/sizes.js";
import { PixelImage } from "./images.js";
import { fullLabel } from "./facts.js";
import { nameBox, Twin } from "./describe.js";
import { ZOOM_STEP } from "./input.js";

// The minimap: the whole drawing in a corner, with a frame around the part in view.

const WIDEST = 160;
const HIGHEST = 72;
/** Most of the stage that the minimap may cover, as shares of its width and height. */
const SHARE = { width: 0.22, height: 0.14 };
/** Least width and height, because a long chain would shrink to a line, px. */
const LEAST = 22;
const LATER_MS = 80;

class Minimap {
  root = html("div", { class: "minimap", "aria-hidden": "true", hidden: true });
  #canvas = document.createElement("canvas");
  #window = html("i");
  #image = new PixelImage();
  #size = { width: 0, height: 0 };
  #room = { width: 0, height: 0 };
  #timer = 0;
  /** @type {Drawing | null} */
  #drawing = null;
  /** @type {Palette | null} */
  #palette = null;

  /** @param {(x: number, y: number) => void} go gets the new centre of the view, px of the drawing */
  constructor(go) {
    this.root.append(this.#canvas, this.#window);
    /** @param {PointerEvent} event */
    const follow = (event) => {
      const area = this.#canvas.getBoundingClientRect();
      const drawing = this.#drawing;
      if (drawing === null) return;
      go(((event.clientX - area.left) / area.width) * drawing.width,
        ((event.clientY - area.top) / area.height) * drawing.height);
    };
    this.root.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.stopPropagation();
      event.preventDefault();
      this.root.setPointerCapture(event.pointerId);
      follow(event);
    });
    this.root.addEventListener("pointermove", (event) => {
      if (this.root.hasPointerCapture(event.pointerId)) follow(event);
    });
  }

  /** @param {Drawing} drawing @param {Palette} palette @param {Region} seen of the drawing @param {PanelSize} room of
   * the stage @param {boolean} isNeeded whether a part of the drawing is out of view */
  show(drawing, palette, seen, room, isNeeded) {
    if (this.root.hidden === isNeeded) this.root.hidden = !isNeeded;
    if (!isNeeded) return;
    if (drawing !== this.#drawing || palette !== this.#palette || room.width !== this.#room.width
      || room.height !== this.#room.height)
    {
      this.#room = { ...room };
      this.#drawing = drawing;
      this.#palette = palette;
      this.#measure(drawing);
      // Painting tens of thousands of boxes must not delay the stage.
      cancel(this.#timer);
      this.#timer = later(() => this.#paint(drawing, palette), LATER_MS);
    }
    const { width, height } = this.#size;
    const across = width / drawing.width;
    const down = height / drawing.height;
    this.#window.style.transform = `translate(${(seen.x * across).toFixed(1)}px, ${(seen.y * down).toFixed(1)}px)`;
    const size = `${Math.max(4, seen.width * across).toFixed(1)} ${Math.max(4, seen.height * down).toFixed(1)}`;
    if (size === this.#window.dataset["size"]) return;
    // Written only when it changes, because each write makes the browser lay the page out again.
    this.#window.dataset["size"] = size;
    const [wide, high] = size.split(" ");
    this.#window.style.width = `${wide}px`;
    this.#window.style.height = `${high}px`;
  }

  /** @param {Drawing} drawing */
  #measure(drawing) {
    const scale = Math.min(Math.min(WIDEST, SHARE.width * this.#room.width) / drawing.width,
      Math.min(HIGHEST, SHARE.height * this.#room.height) / drawing.height);
    const width = Math.max(LEAST, Math.round(drawing.width * scale));
    const height = Math.max(LEAST, Math.round(drawing.height * scale));
    this.#size = { width, height };
    this.#canvas.style.width = `${width}px`;
    this.#canvas.style.height = `${height}px`;
  }

  /** @param {Drawing} drawing @param {Palette} palette */
  #paint(drawing, palette) {
    const ratio = devicePixelRatio;
    this.#canvas.width = Math.round(this.#size.width * ratio);
    this.#canvas.height = Math.round(this.#size.height * ratio);
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    this.#image.start(this.#canvas.width, this.#canvas.height);
    const inks = inksOf(palette);
    const [across, down] = [this.#canvas.width / drawing.width, this.#canvas.height / drawing.height];
    const { rect, kind, half, boxes } = drawing;
    for (let box = 0; box < boxes; box += 1) {
      const ink = inks[half[box] === 1 ? "backward" : "forward"];
      const colour = kind[box] === FRAME ? ink.ground : kind[box] === TENSOR ? ink.soft : ink.strong;
      this.#image.fill(rect[4 * box] * across, rect[4 * box + 1] * down, rect[4 * box + 2] * across,
        rect[4 * box + 3] * down, colour, 1);
    }
    this.#image.onto(context);
  }
}

// The trail: a button for each frame around the view, the outermost first.

/** The view is inside a frame that covers at least this share of its depth. */
const TAKES = 0.6;

/** @param {Sight} sight @param {Region} seen of the drawing @returns {number} the innermost frame that covers most of
 * the view, preferably its forward half; -1 for none */
function frameInSight({ drawing, graph, isVertical }, seen) {
  const { rect, kind, ref, boxes } = drawing;
  const [along, across] = isVertical ? [1, 0] : [0, 1];
  const [from, room] = isVertical ? [seen.y, seen.height] : [seen.x, seen.width];
  const [level, breadth] = isVertical ? [seen.x, seen.width] : [seen.y, seen.height];
  let [found, deepest] = [-1, 0];
  // A view of the whole drawing is inside no frame.
  if (room >= (isVertical ? drawing.height : drawing.width)) return found;
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] !== FRAME) continue;
    const [start, size] = [rect[4 * box + along], rect[4 * box + along + 2]];
    if (Math.min(start + size, from + room) - Math.max(start, from) < TAKES * room) continue;
    const [top, height] = [rect[4 * box + across], rect[4 * box + across + 2]];
    const depth = graph.arrays.groupDepth[ref[box]];
    if (top < level + breadth && top + height > level && depth > deepest) [found, deepest] = [box, depth];
  }
  return found;
}

class Trail {
  root = html("nav", { class: "trail", "aria-label": "Where in the model", hidden: true });
  #shown = "";

  /** @param {(box: number) => void} go box of a frame; -1: the whole drawing */
  constructor(go) {
    this.root.addEventListener("click", ({ target }) => {
      const button = target instanceof Element ? target.closest("button") : null;
      if (button !== null) go(Number(button.dataset["box"]));
    });
  }

  /** @param {Sight} sight @param {Region} seen */
  show(sight, seen) {
    const frame = frameInSight(sight, seen);
    const { drawing, graph, index } = sight;
    const path = frame < 0 ? [] : [...index.framesAround(frame), frame];
    const labels = path.map((box) => fullLabel(graph, drawing.ref[box]));
    const now = JSON.stringify([path, labels]);
    if (now === this.#shown) return;
    this.#shown = now;
    this.root.hidden = path.length === 0;
    const steps = [html("button", { type: "button", "data-box": "-1" }, "model"),
      ...path.map((box, order) => html("button", { type: "button", "data-box": String(box) }, labels[order]))];
    this.root.replaceChildren(
      ...steps.flatMap((step, order) => order === 0 ? [step] : [html("span", { "aria-hidden": "true" }, "›"), step]),
    );
  }
}

const STILL_MS = 30;
const REST_MS = 250;

export class GraphAside {
  #still = 0;
  #rest = 0;
  #twin = new Twin();
  #trail;
  #minimap;

  /** @param {{fit: () => void, zoomTo: (box: number) => void, centre: (x: number, y: number) => void}} does centre: px
   * of the drawing */
  constructor({ fit, zoomTo, centre }) {
    this.#trail = new Trail((box) => box < 0 ? fit() : zoomTo(box));
    this.#minimap = new Minimap(centre);
  }

  get overlays() {
    return [this.#minimap.root, this.#trail.root];
  }

  /** @returns {HTMLElement} for a screen reader */
  get twin() {
    return this.#twin.root;
  }

  /** Follows every move. @param {Sight} sight @param {GraphStage} stage @param {boolean} isSeen */
  place({ drawing, palette }, { root, viewport }, isSeen) {
    root.classList.toggle("pannable", viewport.overflows);
    this.#minimap.show(drawing, palette, viewport.seen, viewport.room, isSeen && viewport.overflows);
  }

  /** Runs when nothing moves any more. @param {Sight} sight @param {GraphStage} stage */
  settle(sight, { viewport, boxes }) {
    cancel(this.#still);
    this.#still = later(() => this.#trail.show(sight, viewport.seen), STILL_MS);
    cancel(this.#rest);
    // Only screen readers use the names, so they wait until the slider rests.
    this.#rest = later(() => {
      for (const parts of boxes.parts) nameBox(sight, parts);
      this.#twin.show(sight);
    }, REST_MS);
  }

  /** Postpones the names while the view moves. */
  unsettle() {
    cancel(this.#rest);
  }
}

// The legend of the overlay: a colour scale between two numbers, or a word for each colour.

/** @param {Legend} legend @returns {HTMLElement} */
function written(legend) {
  const { title, unit, low, high, isLog, stops, words } = legend;
  const name = html("span", { class: "legend-title" }, unit === "" ? title : `${title}, ${unit}`);
  const list = words.map(([colour, word]) => {
    const patch = html("i", { class: "patch" });
    patch.style.background = colour;
    return html("span", { class: "legend-word" }, patch, word);
  });
  if (stops.length === 0) return html("div", {}, name, ...list);
  const bar = html("i", { class: "bar" });
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const scale = html("span", { class: "legend-scale" }, html("span", {}, significant(low)), bar,
    html("span", {}, significant(high)), html("span", { class: "legend-axis" }, isLog ? "log" : "linear"));
  // Words for values that have no place on the scale, such as NaN.
  return html("div", {}, name, scale, ...list);
}

class LegendLine {
  root = html("div", { class: "legend", hidden: true });
  #shown = "";

  /** @param {Legend | null} legend null: no overlay */
  show(legend) {
    const now = legend === null ? "" : JSON.stringify(legend);
    if (now === this.#shown) return;
    this.#shown = now;
    this.root.hidden = legend === null;
    this.root.replaceChildren(...(legend === null ? [] : [...written(legend).childNodes]));
  }
}

export class GraphBar {
  legend = new LegendLine();
  #caption = html("p", { class: "caption" });
  #statistic = "";

  /** @param {{zoomBy: (factor: number) => void, fit: () => void}} does */
  constructor({ zoomBy, fit }) {
    const group = html("div", { class: "zoom", role: "group", "aria-label": "Zoom" });
    /** @type {[string, string, () => void][]} */
    const buttons = [
      ["−", "Zoom out (−)", () => zoomBy(1 / ZOOM_STEP)],
      ["Fit", "Fit to the panel (0)", fit],
      ["+", "Zoom in (+)", () => zoomBy(ZOOM_STEP)],
    ];
    for (const [text, label, act] of buttons) {
      const button = html("button", { type: "button", title: label, "aria-label": label }, text);
      button.addEventListener("click", act);
      group.append(button);
    }
    this.root = html("div", { class: "bar-below" }, this.#caption, this.legend.root, group);
  }

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    if (statistic === this.#statistic) return;
    this.#statistic = statistic;
    this.#caption.replaceChildren(
      html("span", { "data-term": statistic, tabindex: "0" }, `number in a box: ${statistic}`),
      " ",
      html("span", { "data-term": "saved-for-backward", tabindex: "0" }, html("i"), "saved for backward"),
    );
  }
}
