/**
 * Zoom and pan over a drawing. No DOM.
 *
 * An elastic drawing is first spread along its depth by laying it out anew, until each box has its natural size, and is
 * magnified only from there on: fifty layers open up like a timeline. Any other is magnified in both directions alike.
 */

import { MAX_ZOOM } from "../url-state.js";

/** @typedef {{width: number, height: number, natural: number, isElastic: boolean}} Extent of a drawing, see Drawing in
 * types.d.ts */

/** @typedef {{box: Region, shareX: number, shareY: number, x: number, y: number}} Hold the point of a box that stays at
 * x, y on the screen */

/** Most scale, px of the screen per px of the drawing. */
const MAX_MAGNIFICATION = 3;
/** A drawing that fits only at a smaller scale shows its beginning first. */
const MIN_FIT = 0.5;
const NATURAL_STRETCH = 1.25;
/** At a smaller scale the header of a frame stands outside it. */
export const MIN_HEADED = 0.46;
/** Room for a header outside, px of the screen. */
const HEADROOM = 18;
/** Room at the top, where the names of the groups around the view stand, px of the screen. */
export const TRAIL = 38;

/** Splits a zoom into a spread of the columns and a magnification. @param {number} zoom @param {number} natural length
 * of the drawing with every box at its natural size @param {number} length of the panel
 * @returns {{spread: number, magnify: number, zoom: number}} zoom: clamped to its range */
export function splitZoom(zoom, natural, length) {
  const open = Math.max(1, (natural * NATURAL_STRETCH) / Math.max(1, length));
  const clamped = Math.min(Math.max(1, zoom), open * MAX_MAGNIFICATION, MAX_ZOOM);
  const spread = Math.min(clamped, open);
  return { spread, magnify: clamped / spread, zoom: clamped };
}

/** The start of content: centred if it fits, else with `at` of it in the middle and no gap at the ends.
 * @param {number} content px @param {number} room px @param {number} at 0 to 1 @returns {number} px */
export function offset(content, room, at) {
  if (content <= room) return (room - content) / 2;
  return Math.min(0, Math.max(room - content, room / 2 - at * content));
}

/** @param {number} share @returns {number} within 0 to 1 */
function clampShare(share) {
  return Math.min(1, Math.max(0, share));
}

/** The place of a drawing on the screen: `x`, `y` of its corner, px; `scale`, px of the screen per px of the
 * drawing. */
export class Viewport {
  x = 0;
  y = 0;
  scale = 1;
  isVertical = false;
  /** Whether frames need room for their headers. */
  isHeaded = false;
  /** @type {PanelSize} */
  room = { width: 0, height: 0 };
  /** @type {Extent | null} */
  extent = null;
  /** As set last, by the address or the user. @type {Camera} */
  camera = { zoom: 1, at: 0, across: 0.5 };

  /** @returns {number} scale at which the whole drawing fits, at most 1 */
  get fitScale() {
    const { extent, room } = this;
    if (extent === null || extent.isElastic) return 1;
    return this.#beneathHeaders((height) =>
      Math.min(1, room.width / Math.max(1, extent.width), height / Math.max(1, extent.height))
    );
  }

  /** @param {(height: number) => number} scaleFor from the height of the room @returns {number} a scale that leaves
   * room for headers outside the drawing */
  #beneathHeaders(scaleFor) {
    const { height } = this.room;
    const whole = scaleFor(height);
    return this.isHeaded && whole < MIN_HEADED ? scaleFor(Math.max(1, height - 2 * HEADROOM)) : whole;
  }

  /** @returns {number} spread of the columns of an elastic drawing, 1 or more */
  get spread() {
    const { extent } = this;
    return extent !== null && extent.isElastic ? splitZoom(this.camera.zoom, extent.natural, this.length).spread : 1;
  }

  /** @returns {boolean} whether the drawing is larger than the room */
  get overflows() {
    const { extent, room, scale } = this;
    return extent !== null && (extent.width * scale > room.width + 1 || extent.height * scale > room.height + 1);
  }

  /** @returns {Region} the part of the drawing in the room, px of the drawing */
  get seen() {
    const { x, y, scale, room } = this;
    return { x: -x / scale, y: -y / scale, width: room.width / scale, height: room.height / scale };
  }

  /** @returns {number} scale at which both halves of an elastic drawing stand side by side in the room, at most 1 */
  get #reduction() {
    const { extent, room } = this;
    return this.isVertical && extent?.isElastic === true ? Math.min(1, room.width / extent.width) : 1;
  }

  /** @returns {number} the room along the depth, px of an elastic drawing that is not magnified */
  get length() {
    return (this.isVertical ? this.room.height : this.room.width) / this.#reduction;
  }

  /** Takes a drawing, or a new room for the same one. @param {Extent} extent @param {Hold | null} hold null: as the
   * camera says */
  show(extent, hold) {
    const { isElastic, scale } = { isElastic: this.extent?.isElastic ?? extent.isElastic, scale: this.scale };
    this.extent = extent;
    if (hold === null) {
      this.look(this.camera);
      return;
    }
    if (extent.isElastic) {
      const { magnify, zoom } = splitZoom(isElastic ? this.camera.zoom : 1, extent.natural, this.length);
      this.scale = magnify * this.#reduction;
      this.camera = { ...this.camera, zoom };
    } else {
      this.#magnify(scale);
    }
    this.#keep(hold);
  }

  /** @param {Camera} camera */
  look(camera) {
    const { extent, room } = this;
    this.camera = camera;
    if (extent === null) return;
    const { at, across } = camera;
    const [sideways, upright] = this.isVertical ? [across, at] : [at, across];
    if (extent.isElastic) {
      const { magnify, zoom } = splitZoom(camera.zoom, extent.natural, this.length);
      this.camera = { zoom, at, across };
      this.scale = magnify * this.#reduction;
      // At first sight, a drawing that is too broad shows its beginning across too.
      const isFirst = camera.zoom === 1 && at === 0 && across === 0.5;
      this.x = offset(extent.width * this.scale, room.width, isFirst ? 0 : sideways);
      this.y = offset(extent.height * this.scale, room.height, isFirst ? 0 : upright);
      return;
    }
    if (camera.zoom === 1 && camera.at === 0 && this.fitScale < MIN_FIT) {
      this.#begin(extent);
      return;
    }
    this.#magnify(this.fitScale * camera.zoom);
    const isFit = this.camera.zoom === 1;
    // A fitted drawing is centred; otherwise any point of it may be at the centre.
    this.x = isFit ? (room.width - extent.width * this.scale) / 2
      : room.width / 2 - clampShare(sideways) * extent.width * this.scale;
    this.y = isFit ? (room.height - extent.height * this.scale) / 2
      : room.height / 2 - clampShare(upright) * extent.height * this.scale;
  }

  /** Shows the beginning of the drawing, as large as its breadth allows. @param {Extent} extent */
  #begin({ width, height }) {
    const { room } = this;
    const [above, beneath] = this.isHeaded ? [TRAIL, HEADROOM] : [0, 0];
    const high = Math.max(1, room.height - above - beneath);
    this.#magnify(Math.min(1, this.isVertical ? room.width / width : high / height));
    this.x = this.isVertical ? (room.width - width * this.scale) / 2 : 0;
    this.y = above + (this.isVertical ? 0 : (high - height * this.scale) / 2);
    // The next drawing shows its own beginning.
    this.camera = { ...this.camera, zoom: 1 };
  }

  /** @param {number} x of the drawing's corner on the screen @param {number} y */
  moveTo(x, y) {
    const { extent, room, scale } = this;
    if (extent === null) return;
    if (extent.isElastic) {
      this.x = within(x, extent.width * scale, room.width, this.x);
      this.y = within(y, extent.height * scale, room.height, this.y);
    } else {
      this.x = Math.min(room.width / 2, Math.max(room.width / 2 - extent.width * scale, x));
      this.y = Math.min(room.height / 2, Math.max(room.height / 2 - extent.height * scale, y));
    }
    this.#remember();
  }

  /** Magnifies a drawing that is not elastic, around a point of the screen. @param {number} scale px of the screen per
   * px of the drawing @param {number} x @param {number} y */
  magnifyAt(scale, x, y) {
    const before = this.scale;
    this.#magnify(scale);
    const ratio = this.scale / before;
    this.moveTo(x - (x - this.x) * ratio, y - (y - this.y) * ratio);
  }

  /** Centres a part of the drawing. @param {Region} part px of the drawing @param {number} [scale] */
  centre(part, scale) {
    if (scale !== undefined && this.extent?.isElastic === false) this.#magnify(scale);
    this.moveTo(this.room.width / 2 - (part.x + part.width / 2) * this.scale,
      this.room.height / 2 - (part.y + part.height / 2) * this.scale);
  }

  /** @param {number} scale */
  #magnify(scale) {
    const fit = this.fitScale;
    this.scale = Math.min(Math.max(scale, fit), Math.max(fit, MAX_MAGNIFICATION));
    this.camera = { ...this.camera, zoom: this.scale / fit };
  }

  /** @param {Hold} hold */
  #keep({ box, shareX, shareY, x, y }) {
    const { extent, room, scale } = this;
    if (extent === null) return;
    this.x = x - (box.x + shareX * box.width) * scale;
    this.y = y - (box.y + shareY * box.height) * scale;
    if (extent.isElastic) {
      this.x = within(this.x, extent.width * scale, room.width, NaN);
      this.y = within(this.y, extent.height * scale, room.height, NaN);
    }
    this.#remember();
  }

  #remember() {
    const { extent, room, scale } = this;
    if (extent === null) return;
    const sideways = clampShare((room.width / 2 - this.x) / (extent.width * scale));
    const upright = clampShare((room.height / 2 - this.y) / (extent.height * scale));
    const [at, across] = this.isVertical ? [upright, sideways] : [sideways, upright];
    this.camera = { zoom: extent.isElastic ? this.camera.zoom : scale / this.fitScale, at, across };
  }
}

/** @param {number} start @param {number} content px @param {number} room px @param {number} now present start, which
 * may stay out of range; NaN: none @returns {number} without gaps at the ends; centred if all of it fits */
function within(start, content, room, now) {
  const centred = (room - content) / 2;
  const [low, high] = content <= room ? [centred, centred] : [room - content, 0];
  return Math.min(Number.isNaN(now) ? high : Math.max(high, now),
    Math.max(Number.isNaN(now) ? low : Math.min(low, now), start));
}
