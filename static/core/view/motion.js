/** When groups open or close, each box moves from where it stood, and what a group holds grows out of its box. */

import { begin } from "../activity.js";
import { FRAME } from "../layout/sizes.js";

const MOTION = { duration: 180, easing: "ease-out" };
/** More boxes jump: to move them would be slower than to draw them. */
const MOST = 400;
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

/** @typedef {{x: number, y: number, scale: number}} Place of a drawing on the screen */

export class Motion {
  /** @type {Animation[]} */
  #running = [];

  /** @param {GraphStage} stage */
  constructor(stage) {
    this.stage = stage;
  }

  stop() {
    for (const animation of this.#running) animation.cancel();
    this.#running = [];
  }

  /** Moves the boxes that are drawn. @param {Sight} before @param {Place} from of the drawing before
   * @param {Sight} now */
  play(before, from, now) {
    const all = [...this.stage.boxes.parts];
    if (reduced.matches || all.length > MOST) return;
    const end = begin();
    for (const parts of all) this.#move(parts, before, from, now);
    // Lines and histograms belong to the new places.
    for (const element of this.stage.unmoved) this.#animate(element, [{ opacity: 0 }, { opacity: 0 }, { opacity: 1 }]);
    Promise.allSettled(this.#running.map(({ finished }) => finished)).then(end);
  }

  /** @param {BoxParts} parts @param {Sight} before @param {Place} from @param {Sight} now */
  #move({ root, frame, name, box }, before, from, now) {
    const around = now.index.framesAround(box).reverse();
    // Itself, or the innermost group around it that had a box.
    const known = [box, ...around].find((each) => before.index.boxOf(now.index.itemOf(each)) >= 0);
    const appear = [{ opacity: 0 }, { opacity: 1 }];
    if (known === undefined) {
      this.#animate(root, appear);
      return;
    }
    const was = before.index.boxOf(now.index.itemOf(known));
    const [old, there] = [before.index.rectOf(was), now.index.rectOf(known)];
    const to = this.stage.viewport;
    const [across, down] = [(old.width / there.width) * (from.scale / to.scale),
      (old.height / there.height) * (from.scale / to.scale)];
    const x = (old.x * from.scale + from.x - to.x) / to.scale - there.x * across;
    const y = (old.y * from.scale + from.y - to.y) / to.scale - there.y * down;
    const way = [{ transform: `matrix(${across}, 0, 0, ${down}, ${x}, ${y})` }, { transform: "none" }];
    // The words of a group that has opened or closed are others.
    const isOther = known === box && (before.drawing.kind[was] === FRAME) !== (now.drawing.kind[box] === FRAME);
    this.#animate(isOther ? frame : root, way);
    if (isOther) this.#animate(name, appear);
  }

  /** @param {Element} element @param {Keyframe[]} way */
  #animate(element, way) {
    this.#running.push(element.animate(way, MOTION));
  }
}
