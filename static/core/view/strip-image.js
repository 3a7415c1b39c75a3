/**
 * Hundreds of histograms a few pixels wide, put on a canvas as one picture: shade by shade they would be thousands of
 * rectangles a frame. Values run upward, shades go with the square root of the counts.
 */

import { isHidden } from "../format.js";
import { peak } from "../histogram.js";
import { colourOf } from "../ramp.js";

const SHADES = 12;
const GROUND = 0.07;
const FAINTEST = 0.12;
const COVER = 0.12;
const NO_NUMBERS = 0.8;

/** @type {Map<string, Uint32Array>} hex colour → its shades, the ground first */
const shadesOf = new Map();

/** @param {string} hex @param {number} alpha @returns {number} one pixel as ImageData holds it */
function pixel(hex, alpha) {
  return new Uint32Array(new Uint8ClampedArray([...colourOf(hex), Math.round(alpha * 255)]).buffer)[0];
}

/** @param {string} hex @returns {Uint32Array} the ground, then SHADES shades on it */
function shades(hex) {
  let known = shadesOf.get(hex);
  if (known === undefined) {
    const alphas = Array.from({ length: SHADES }, (_, shade) => Math.max(FAINTEST, (shade + 1) / SHADES));
    known = Uint32Array.from([GROUND, ...alphas.map((alpha) => 1 - (1 - GROUND) * (1 - alpha))], (alpha) =>
      pixel(hex, alpha));
    shadesOf.set(hex, known);
  }
  return known;
}

export class StripImage {
  #image = new ImageData(1, 1);
  #pixels = new Uint32Array(this.#image.data.buffer);
  #used = false;

  /**
   * An empty picture.
   *
   * @param {number} width in pixels of the canvas
   * @param {number} height
   */
  start(width, height) {
    if (this.#image.width !== width || this.#image.height !== height) {
      this.#image = new ImageData(Math.max(1, width), Math.max(1, height));
      this.#pixels = new Uint32Array(this.#image.data.buffer);
    } else if (this.#used) {
      this.#pixels.fill(0);
    }
    this.#used = false;
  }

  /**
   * @param {Picture} picture
   * @param {number} row
   * @param {Rectangle} at in pixels of the canvas
   * @param {{ink: string, muted: string, warning: string}} paint #rrggbb each
   */
  draw(picture, row, at, paint) {
    this.#used = true;
    if (isHidden(picture, row)) {
      this.#fill(at, 0, 1, pixel(paint.muted, COVER));
      return;
    }
    const most = peak(picture, row);
    if (most === 0) {
      this.#fill(at, 0, 1, pixel(paint.warning, NO_NUMBERS));
      return;
    }
    const colours = shades(paint.ink);
    if (picture.floats.min[row] === picture.floats.max[row]) {
      const thick = Math.min(1, 2 / at.h);
      this.#fill(at, 0, 1, colours[0]);
      this.#fill(at, 0.5 - thick / 2, 0.5 + thick / 2, colours[SHADES]);
      return;
    }
    const { bins, counts } = picture;
    const fold = Math.max(1, Math.ceil(bins / Math.max(8, at.h)));
    const cells = Math.ceil(bins / fold);
    for (let cell = 0; cell < cells; cell += 1) {
      const from = row * bins + cell * fold;
      const to = Math.min((row + 1) * bins, from + fold);
      let sum = 0;
      for (let bin = from; bin < to; bin += 1) sum += counts[bin];
      const shade = sum === 0 ? 0 : Math.max(1, Math.min(SHADES, Math.round(Math.sqrt(sum / (most * fold)) * SHADES)));
      this.#fill(at, 1 - (cell + 1) / cells, 1 - cell / cells, colours[shade]);
    }
  }

  /** @param {Rectangle} at @param {number} from share of the height, from above @param {number} to
   * @param {number} colour */
  #fill(at, from, to, colour) {
    const { width, height } = this.#image;
    const [left, right] = [Math.max(0, Math.round(at.x)),
      Math.min(width, Math.max(Math.round(at.x) + 1, Math.round(at.x + at.w)))];
    const top = Math.max(0, Math.round(at.y + from * at.h));
    const bottom = Math.min(height, Math.max(top + 1, Math.round(at.y + to * at.h)));
    const pixels = this.#pixels;
    // A strip is a few pixels wide: a call per row would cost more than the pixels.
    for (let y = top; y < bottom; y += 1)
      for (let place = y * width + left; place < y * width + right; place += 1) pixels[place] = colour;
  }

  /** Puts the picture on a canvas of its size, in place of what is there. @param {CanvasRenderingContext2D} context */
  onto(context) {
    if (this.#used) context.putImageData(this.#image, 0, 0);
  }
}
