/** Images painted pixel by pixel, which is a hundred times faster than thousands of canvas calls per frame. */

import { colourOf, MIN_COUNT } from "../colours.js";
import { isHidden } from "../format.js";
import { barsOf, END, endOpacity } from "../histogram.js";

/** @type {Map<string, number>} */
const known = new Map();
const reading = document.createElement("canvas").getContext("2d");

/** A CSS colour as ImageData holds it, without its alpha. @param {string} css @returns {number} 0xBBGGRR */
export function pixelOf(css) {
  let pixel = known.get(css);
  if (pixel !== undefined) return pixel;
  let hex = css;
  if (!/^#[0-9a-f]{6}$/i.test(css) && reading !== null) {
    reading.fillStyle = "#000000";
    // Reads back as #rrggbb, or as rgba(…) if translucent.
    reading.fillStyle = css;
    hex = reading.fillStyle;
  }
  const [r, g, b] = hex.startsWith("#") ? colourOf(hex) : (hex.match(/[\d.]+/g) ?? []).map(Number);
  pixel = (b << 16) | (g << 8) | r;
  if (known.size > 4000) known.clear();
  known.set(css, pixel);
  return pixel;
}

class Pixels {
  image = new ImageData(1, 1);
  pixels = new Uint32Array(this.image.data.buffer);
  isUsed = false;

  /** Clears the image. @param {number} width in pixels of the canvas @param {number} height */
  start(width, height) {
    if (this.image.width !== width || this.image.height !== height) {
      this.image = new ImageData(Math.max(1, width), Math.max(1, height));
      this.pixels = new Uint32Array(this.image.data.buffer);
    } else if (this.isUsed) this.pixels.fill(0);
    this.isUsed = false;
  }

  /** Overwrites a canvas of the same size. @param {CanvasRenderingContext2D} context */
  onto(context) {
    context.putImageData(this.image, 0, 0);
  }
}

/** Overlapping shapes: the more opaque one wins. */
export class PixelImage extends Pixels {
  /** A rectangle of at least one pixel. @param {number} x @param {number} y @param {number} w @param {number} h px of
   * the picture @param {number} colour as pixelOf gives it @param {number} alpha 0 to 1 */
  fill(x, y, w, h, colour, alpha) {
    const { width, height } = this.image;
    const left = Math.max(0, Math.round(x));
    const top = Math.max(0, Math.round(y));
    const right = Math.min(width, Math.max(Math.round(x) + 1, Math.round(x + w)));
    const bottom = Math.min(height, Math.max(Math.round(y) + 1, Math.round(y + h)));
    if (right <= left || bottom <= top) return;
    this.isUsed = true;
    const pixel = (colour | (Math.round(alpha * 255) << 24)) >>> 0;
    const pixels = this.pixels;
    for (let row = top; row < bottom; row += 1) {
      const start = row * width;
      if (right - left > 24) pixels.fill(pixel, start + left, start + right);
      else for (let place = start + left; place < start + right; place += 1) pixels[place] = pixel;
    }
  }

  /** The border of a rectangle, a pixel wide. @param {number} x @param {number} y @param {number} w @param {number} h
   * @param {number} colour @param {number} alpha */
  outline(x, y, w, h, colour, alpha) {
    this.fill(x, y, w, 1, colour, alpha);
    this.fill(x, y + h - 1, w, 1, colour, alpha);
    this.fill(x, y, 1, h, colour, alpha);
    this.fill(x + w - 1, y, 1, h, colour, alpha);
  }

  /** A smooth line a pixel wide. @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1
   * @param {number} colour @param {number} alpha */
  line(x0, y0, x1, y1, colour, alpha) {
    const { width, height } = this.image;
    const isSteep = Math.abs(y1 - y0) > Math.abs(x1 - x0);
    // u runs along the line, v across it.
    let [u0, v0, u1, v1] = isSteep ? [y0, x0, y1, x1] : [x0, y0, x1, y1];
    if (u0 > u1) [u0, v0, u1, v1] = [u1, v1, u0, v0];
    const [alongMost, acrossMost] = isSteep ? [height, width] : [width, height];
    const slope = u1 === u0 ? 0 : (v1 - v0) / (u1 - u0);
    let from = Math.max(0, Math.round(u0));
    let to = Math.min(alongMost - 1, Math.round(u1));
    const pixels = this.pixels;
    if (slope === 0) {
      this.#straight(isSteep, from, to, v0, colour, alpha);
      return;
    }
    // Clipped, because most of a long line may be outside.
    const ends = [u0 + (-1 - v0) / slope, u0 + (acrossMost - v0) / slope];
    from = Math.max(from, Math.floor(Math.min(...ends)));
    to = Math.min(to, Math.ceil(Math.max(...ends)));
    for (let u = from; u <= to; u += 1) {
      const v = v0 + (u - u0) * slope;
      const near = Math.floor(v);
      for (let side = 0; side < 2; side += 1) {
        const at = near + side;
        if (at < 0 || at >= acrossMost) continue;
        const strength = Math.round((side === 0 ? 1 - (v - near) : v - near) * alpha * 255);
        const place = isSteep ? u * width + at : at * width + u;
        if (strength > pixels[place] >>> 24) pixels[place] = (colour | (strength << 24)) >>> 0;
      }
    }
    if (to >= from) this.isUsed = true;
  }

  /** A line along the picture's edges. @param {boolean} isSteep whether it runs downward @param {number} from along it
   * @param {number} to @param {number} v where it is across @param {number} colour @param {number} alpha */
  #straight(isSteep, from, to, v, colour, alpha) {
    if (to < from) return;
    this.isUsed = true;
    const { width, height } = this.image;
    const pixels = this.pixels;
    const near = Math.floor(v);
    const step = isSteep ? width : 1;
    for (let side = 0; side < 2; side += 1) {
      const at = near + side;
      const strength = Math.round((side === 0 ? 1 - (v - near) : v - near) * alpha * 255);
      if (at < 0 || at >= (isSteep ? width : height) || strength === 0) continue;
      const pixel = (colour | (strength << 24)) >>> 0;
      const start = isSteep ? at : at * width;
      for (let place = start + from * step, last = start + to * step; place <= last; place += step) {
        if (strength > pixels[place] >>> 24) pixels[place] = pixel;
      }
    }
  }

  /** A cubic Bézier curve. @param {ArrayLike<number>} points eight numbers from `at` on @param {number} at
   * @param {number} scale @param {number} dx @param {number} dy @param {number} colour @param {number} alpha */
  curve(points, at, scale, dx, dy, colour, alpha) {
    const p = (/** @type {number} */ offset) => (points[at + offset] ?? 0) * scale + (offset % 2 === 0 ? dx : dy);
    const [ax, ay, bx, by, cx, cy, ex, ey] = [p(0), p(1), p(2), p(3), p(4), p(5), p(6), p(7)];
    const { width, height } = this.image;
    // A curve lies among its four points.
    if (Math.max(ax, bx, cx, ex) < -1 || Math.min(ax, bx, cx, ex) > width || Math.max(ay, by, cy, ey) < -1
      || Math.min(ay, by, cy, ey) > height) return;
    const size = Math.abs(ex - ax) + Math.abs(ey - ay);
    const isStraight = Math.abs(ay - by) + Math.abs(cy - ey) + Math.abs(ay - ey) < 1
      || Math.abs(ax - bx) + Math.abs(cx - ex) + Math.abs(ax - ex) < 1;
    const steps = isStraight ? 1 : Math.min(24, Math.max(2, Math.ceil(size / 10)));
    let [x, y] = [ax, ay];
    for (let step = 1; step <= steps; step += 1) {
      const t = step / steps;
      const s = 1 - t;
      const nextX = s * s * s * ax + 3 * s * s * t * bx + 3 * s * t * t * cx + t * t * t * ex;
      const nextY = s * s * s * ay + 3 * s * s * t * by + 3 * s * t * t * cy + t * t * t * ey;
      this.line(x, y, nextX, nextY, colour, alpha);
      [x, y] = [nextX, nextY];
    }
  }
}

const SHADES = 12;
const GROUND = 0.07;
const FAINTEST = 0.12;
const COVER = 0.12;
const NO_NUMBERS = 0.8;

/** Hex colour → its shades, the background first. @type {Map<string, Uint32Array>} */
const shadesOf = new Map();

/** @param {string} hex @param {number} alpha @returns {number} one pixel as ImageData holds it */
function pixel(hex, alpha) {
  return (pixelOf(hex) | (Math.round(alpha * 255) << 24)) >>> 0;
}

/** @param {string} hex @returns {Uint32Array} the background, then SHADES shades */
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

/** Histograms as strips of shades: values run upward, a shade is the square root of the count. */
export class StripImage extends Pixels {
  /** @param {Picture} picture @param {number} row @param {Rectangle} at in pixels of the canvas
   * @param {{ink: string, muted: string, warning: string}} paint #rrggbb each @param {boolean} [isPositive] as in
   * barsOf */
  draw(picture, row, at, paint, isPositive = false) {
    this.isUsed = true;
    if (isHidden(picture, row)) {
      this.#fill(at, 0, 1, pixel(paint.muted, COVER));
      return;
    }
    const bars = barsOf(picture, row, Math.max(8, at.h), isPositive);
    if (bars === null) {
      this.#fill(at, 0, 1, pixel(paint.warning, NO_NUMBERS));
      return;
    }
    const colours = shades(paint.ink);
    if (bars.isNeedle) {
      const thick = Math.min(1, 2 / at.h);
      this.#fill(at, 0, 1, colours[0]);
      this.#fill(at, 0.5 - thick / 2, 0.5 + thick / 2, colours[SHADES]);
      return;
    }
    const { sums, tallest, below, above } = bars;
    const cells = sums.length;
    // Relative to the second tallest: the zeros of a relu, in one cell, would make all others faint.
    let [most, second] = [0, 0];
    for (let cell = 0; cell < cells; cell += 1) {
      const sum = sums[cell];
      if (sum > most) [most, second] = [sum, most];
      else if (sum > second) second = sum;
    }
    const full = Math.max(second, MIN_COUNT);
    for (let cell = 0; cell < cells; cell += 1) {
      const sum = sums[cell];
      const shade = sum < MIN_COUNT ? 0 : Math.max(1, Math.min(SHADES, Math.round(Math.sqrt(sum / full) * SHADES)));
      this.#fill(at, 1 - (cell + 1) / cells, 1 - cell / cells, colours[shade]);
    }
    const end = Math.min(0.25, END / at.h);
    if (above >= MIN_COUNT) this.#fill(at, 0, end, pixel(paint.warning, endOpacity(above, tallest)));
    if (below >= MIN_COUNT) this.#fill(at, 1 - end, 1, pixel(paint.warning, endOpacity(below, tallest)));
  }

  /** @param {Rectangle} at @param {number} from share of the height, from above @param {number} to
   * @param {number} colour */
  #fill(at, from, to, colour) {
    const { width, height } = this.image;
    const [left, right] = [Math.max(0, Math.round(at.x)),
      Math.min(width, Math.max(Math.round(at.x) + 1, Math.round(at.x + at.w)))];
    const top = Math.max(0, Math.round(at.y + from * at.h));
    const bottom = Math.min(height, Math.max(top + 1, Math.round(at.y + to * at.h)));
    const pixels = this.pixels;
    // A strip is a few pixels wide, so `fill` per row would cost more than the loop.
    for (let y = top; y < bottom; y += 1)
      for (let place = y * width + left; place < y * width + right; place += 1) pixels[place] = colour;
  }
}
