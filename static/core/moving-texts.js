/** Figures that change with every picture, painted on a canvas over their elements: the browser lays an element out anew
 * whenever its text changes, a canvas never. The elements keep their places, without their words, until the pictures
 * rest. */

import { readPalette } from "./colours.js";
import { html } from "./dom.js";
import { surface } from "./surface.js";

export class MovingTexts {
  #canvas = html("canvas", { class: "moving-texts", "aria-hidden": "true" });
  #host;
  #rest;
  /** Right end and baseline of each text on the canvas, px. @type {Map<Element, {x: number, y: number}>} */
  #places = new Map();
  #size = { width: 0, height: 0 };
  /** Width and height of the host when the places were measured. */
  #own = "";
  #watch = new ResizeObserver(() => this.#sizeOfHost() !== this.#own && this.#rest());
  #font = "";
  #ink = { usual: "", warning: "" };

  /** @param {HTMLElement} host holds the elements and the canvas, and is positioned @param {() => void} rest called when
   * the page scrolls or the host changes its size: the elements are elsewhere then */
  constructor(host, rest) {
    this.#host = host;
    this.#rest = rest;
  }

  get isMoving() {
    return this.#canvas.isConnected;
  }

  /** Hides the words of elements that look alike and whose texts end at their right, and measures those on the screen.
   * @param {readonly Element[]} elements */
  begin(elements) {
    const [first] = elements;
    const context = this.#canvas.getContext("2d");
    if (first === undefined || context === null) return;
    const { fontSize, fontFamily, color } = getComputedStyle(first);
    this.#font = `${fontSize} ${fontFamily}`;
    this.#ink = { usual: color, warning: readPalette().warning };
    context.font = this.#font;
    const ascent = context.measureText("0").fontBoundingBoxAscent;
    const own = this.#host.getBoundingClientRect();
    const [top, bottom] = [Math.max(0, own.top), Math.min(innerHeight, own.bottom)];
    const range = document.createRange();
    this.#places.clear();
    for (const element of elements) {
      range.selectNodeContents(element);
      const box = range.getBoundingClientRect();
      if (box.bottom > top && box.top < bottom)
        this.#places.set(element, { x: box.right - own.left, y: box.top + ascent - top });
    }
    if (this.#places.size === 0) return;
    this.#size = { width: own.width, height: bottom - top };
    this.#canvas.style.cssText = `top: ${top - own.top}px; width: ${own.width}px; height: ${bottom - top}px`;
    this.#host.append(this.#canvas);
    this.#host.classList.add("moving");
    addEventListener("scroll", this.#rest, { capture: true, passive: true });
    this.#own = this.#sizeOfHost();
    this.#watch.observe(this.#host);
  }

  #sizeOfHost() {
    return `${this.#host.offsetWidth} ${this.#host.offsetHeight}`;
  }

  /** @param {Iterable<{element: Element, text: string, isWarning: boolean}>} texts of all elements */
  paint(texts) {
    const context = surface(this.#canvas, this.#size.width, this.#size.height);
    if (context === null) return;
    context.textAlign = "right";
    let isBold = null;
    for (const { element, text, isWarning } of texts) {
      const place = this.#places.get(element);
      if (place === undefined) continue;
      if (isWarning !== isBold) {
        isBold = isWarning;
        context.font = `${isWarning ? 600 : 400} ${this.#font}`;
        context.fillStyle = isWarning ? this.#ink.warning : this.#ink.usual;
      }
      context.fillText(text, place.x, place.y);
    }
  }

  /** Shows the words of the elements again. */
  end() {
    removeEventListener("scroll", this.#rest, { capture: true });
    this.#watch.disconnect();
    this.#canvas.remove();
    this.#host.classList.remove("moving");
  }
}
