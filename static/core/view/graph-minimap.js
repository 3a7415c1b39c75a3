/** All of a drawing in a corner, with a frame around what is seen of it. For eyes and pointers only: the keyboard has the graph itself. */

import { cancel, later } from "../activity.js";
import { html } from "../dom.js";
import { inksOf } from "./graph-canvas.js";
import { FRAME, TENSOR } from "../layout/layout-sizes.js";
import { PixelImage } from "./pixel-image.js";

/** @typedef {import("../types.js").Drawing} Drawing */
/** @typedef {import("../palette.js").Palette} Palette */
/** @typedef {import("./viewport.js").Region} Region */

const WIDEST = 160;
const HIGHEST = 72;
/** Of the stage, on which it hides what is beneath it. */
const SHARE = { width: 0.22, height: 0.14 };
/** A long chain is a line: this much of it is shown at least, px. */
const LEAST = 22;
const LATER_MS = 80;

export class Minimap {
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

  /** @param {(x: number, y: number) => void} go called with the middle of what is to be seen, px of the drawing */
  constructor(go) {
    this.root.append(this.#canvas, this.#window);
    /** @param {PointerEvent} event */
    const follow = (event) => {
      const area = this.#canvas.getBoundingClientRect();
      const drawing = this.#drawing;
      if (drawing === null) return;
      go(((event.clientX - area.left) / area.width) * drawing.width, ((event.clientY - area.top) / area.height) * drawing.height);
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

  /**
   * @param {Drawing} drawing
   * @param {Palette} palette
   * @param {Region} seen of the drawing
   * @param {import("./viewport.js").Room} room of the stage
   * @param {boolean} isNeeded whether there is more than is seen
   */
  show(drawing, palette, seen, room, isNeeded) {
    if (this.root.hidden === isNeeded) this.root.hidden = !isNeeded;
    if (!isNeeded) return;
    if (drawing !== this.#drawing || palette !== this.#palette || room.width !== this.#room.width || room.height !== this.#room.height) {
      this.#room = { ...room };
      this.#drawing = drawing;
      this.#palette = palette;
      this.#measure(drawing);
      // Tens of thousands of boxes, which nobody waits for.
      cancel(this.#timer);
      this.#timer = later(() => this.#paint(drawing, palette), LATER_MS);
    }
    const { width, height } = this.#size;
    const across = width / drawing.width;
    const down = height / drawing.height;
    this.#window.style.transform = `translate(${(seen.x * across).toFixed(1)}px, ${(seen.y * down).toFixed(1)}px)`;
    const size = `${Math.max(4, seen.width * across).toFixed(1)} ${Math.max(4, seen.height * down).toFixed(1)}`;
    if (size === this.#window.dataset["size"]) return;
    // Only where it changes: otherwise every step of a pan would have the page laid out.
    this.#window.dataset["size"] = size;
    const [wide, high] = size.split(" ");
    this.#window.style.width = `${wide}px`;
    this.#window.style.height = `${high}px`;
  }

  /** @param {Drawing} drawing */
  #measure(drawing) {
    const scale = Math.min(Math.min(WIDEST, SHARE.width * this.#room.width) / drawing.width, Math.min(HIGHEST, SHARE.height * this.#room.height) / drawing.height);
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
      this.#image.fill((rect[4 * box] ?? 0) * across, (rect[4 * box + 1] ?? 0) * down, (rect[4 * box + 2] ?? 0) * across, (rect[4 * box + 3] ?? 0) * down, colour, 1);
    }
    this.#image.onto(context);
  }
}
