/** Lines of the backward half that mirror no other: straight from box to box, or around what stands between. */

import { FRAME } from "./layout-sizes.js";
import { direct } from "./routes.js";

/** Boxes are looked up by the stretch of depth that they are in, px each. */
const STRETCH = 256;
const ROOM = 9;
/** No line looks further for what stands in its way. */
const MOST_STRETCHES = 400;
/** Of one drawing, so many lines look at all. */
export const MOST_LINES = 4000;

export class Detours {
  /** Boxes of the backward half, by the stretches they reach into.
   * @type {{starts: Int32Array, boxes: Int32Array} | null} */
  #near = null;

  /** @param {RouteList} list */
  constructor(list) {
    this.list = list;
  }

  /** Whoever asks marks the line as wary. @param {number} from @param {number} to @returns {number[]} */
  around(from, to) {
    const [a, b] = [this.list.place(from), this.list.place(to)];
    const along = b.x + b.w / 2 > a.x + a.w / 2;
    const [left, right] = along ? [a.x + a.w, b.x] : [b.x + b.w, a.x];
    const [y0, y1] = [a.y + a.h / 2, b.y + b.h / 2];
    if (right - left < 2 * ROOM || this.list.wary >= MOST_LINES) return direct(a, b);
    // In its way is what the line would touch, or come close to.
    const inWay = this.#between(left + 1, right - 1, Math.min(y0, y1) - ROOM / 2, Math.max(y0, y1) + ROOM / 2, from,
      to);
    const touched = inWay.filter((place) => isTouched(place, along ? left : right, y0, along ? right : left, y1));
    if (touched.length === 0) return direct(a, b);
    let [begin, end, bottom] = [Infinity, -Infinity, -Infinity];
    for (const { x, y, w, h } of touched) {
      begin = Math.min(begin, x);
      end = Math.max(end, x + w);
      bottom = Math.max(bottom, y + h);
    }
    const low = freeLevel(this.#between(begin, end, -Infinity, Infinity, from, to), bottom);
    const [before, after] = [Math.max(left, begin - ROOM), Math.min(right, end + ROOM)];
    const [near, far] = along ? [before, after] : [after, before];
    const [x0, x1] = along ? [a.x + a.w, b.x] : [a.x, b.x + b.w];
    return [x0, y0, ...curve(x0, y0, near, low), ...curve(near, low, far, low), ...curve(far, low, x1, y1)];
  }

  /** @param {number} left @param {number} right @param {number} top @param {number} bottom @param {number} from
   * @param {number} to @returns {LayoutRectangle[]} */
  #between(left, right, top, bottom, from, to) {
    const near = (this.#near ??= this.#lookUp());
    const met = new Set([from, to]);
    const found = [];
    const end = Math.min(right, left + MOST_STRETCHES * STRETCH);
    const first = Math.max(0, Math.floor(left / STRETCH));
    const last = Math.min(near.starts.length - 2, Math.floor(end / STRETCH));
    for (let stretch = first; stretch <= last; stretch += 1) {
      for (let at = near.starts[stretch]; at < near.starts[stretch + 1]; at += 1) {
        const box = near.boxes[at];
        if (met.has(box)) continue;
        met.add(box);
        const place = this.list.place(box);
        const isThere = place.x < end && place.x + place.w > left && place.y < bottom && place.y + place.h > top;
        if (isThere) found.push(place);
      }
    }
    return found;
  }

  /** @returns {{starts: Int32Array, boxes: Int32Array}} */
  #lookUp() {
    const { count, half, kind, start, depth, length } = this.list.boxes;
    const stretches = Math.floor(length / STRETCH) + 2;
    const [halves, kinds, from, depths] = [half.all, kind.all, start.all, depth.all];
    const starts = new Int32Array(stretches + 1);
    const of = (/** @type {number} */ at) => Math.max(0, Math.min(stretches - 1, Math.floor(at / STRETCH)));
    /** @param {(stretch: number, box: number) => void} visit */
    const each = (visit) => {
      for (let box = 0; box < count; box += 1) {
        if (halves[box] === 0 || kinds[box] === FRAME) continue;
        const begin = from[box];
        const last = of(begin + depths[box]);
        for (let stretch = of(begin); stretch <= last; stretch += 1) visit(stretch, box);
      }
    };
    each((stretch) => {
      starts[stretch + 1] = starts[stretch + 1] + 1;
    });
    for (let stretch = 0; stretch < stretches; stretch += 1)
      starts[stretch + 1] = starts[stretch + 1] + starts[stretch];
    const boxes = new Int32Array(starts[stretches]);
    const next = starts.slice();
    each((stretch, box) => {
      const at = next[stretch];
      boxes[at] = box;
      next[stretch] = at + 1;
    });
    return { starts, boxes };
  }
}

/** @param {LayoutRectangle} place @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1
 * @returns {boolean} whether an S-curve between the points comes near the box */
function isTouched(place, x0, y0, x1, y1) {
  for (let step = 1; step < 24; step += 1) {
    const t = step / 24;
    const x = x0 + (x1 - x0) * t * (1.5 * (1 - t) + t * t);
    const y = y0 + (y1 - y0) * (3 - 2 * t) * t * t;
    if (x > place.x - 2 && x < place.x + place.w + 2 && y > place.y - 3 && y < place.y + place.h + 3) return true;
  }
  return false;
}

/** @param {readonly LayoutRectangle[]} places @param {number} start @returns {number} the first level beneath the start
 * with room for a line */
function freeLevel(places, start) {
  let level = start + ROOM;
  for (const { y, h } of [...places].sort((a, b) => a.y - b.y || b.h - a.h)) {
    if (y < level + ROOM / 2 && y + h > level - ROOM / 2) level = y + h + ROOM;
  }
  return level;
}

/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @returns {number[]} */
function curve(x0, y0, x1, y1) {
  const bend = (x0 + x1) / 2;
  return [bend, y0, bend, y1, x1, y1];
}
