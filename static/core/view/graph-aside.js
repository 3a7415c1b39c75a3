/** What stands beside the drawing: where in the model one is, all of it in a corner, and words for who does not see it. */

import { cancel, later } from "../activity.js";
import { Twin, nameBox } from "./graph-describe.js";
import { Minimap } from "./graph-minimap.js";
import { Trail } from "./graph-trail.js";

/** @typedef {import("./graph-sight.js").Sight} Sight */
/** @typedef {import("./graph-stage.js").GraphStage} GraphStage */

const STILL_MS = 30;
const REST_MS = 250;

export class GraphAside {
  #still = 0;
  #rest = 0;
  #twin = new Twin();
  #trail;
  #minimap;

  /** @param {{fit: () => void, zoomTo: (box: number) => void, centre: (x: number, y: number) => void}} does centre: px of the drawing */
  constructor({ fit, zoomTo, centre }) {
    this.#trail = new Trail((box) => (box < 0 ? fit() : zoomTo(box)));
    this.#minimap = new Minimap(centre);
  }

  /** @returns {HTMLElement[]} to lie on the stage */
  get overlays() {
    return [this.#minimap.root, this.#trail.root];
  }

  /** @returns {HTMLElement} for a screen reader */
  get twin() {
    return this.#twin.root;
  }

  /** After every move. @param {Sight} sight @param {GraphStage} stage @param {boolean} isSeen */
  place({ drawing, palette }, { root, viewport }, isSeen) {
    root.classList.toggle("pannable", viewport.overflows);
    this.#minimap.show(drawing, palette, viewport.seen, viewport.room, isSeen && viewport.overflows);
  }

  /** Once all is still. @param {Sight} sight @param {GraphStage} stage */
  settle(sight, { viewport, boxes }) {
    cancel(this.#still);
    this.#still = later(() => this.#trail.show(sight, viewport.seen), STILL_MS);
    cancel(this.#rest);
    // Names are what only a reader gets: they wait until the slider rests.
    this.#rest = later(() => {
      for (const parts of boxes.parts) nameBox(sight, parts);
      this.#twin.show(sight);
    }, REST_MS);
  }

  /** Nobody listens to names while all of it moves. */
  unsettle() {
    cancel(this.#rest);
  }
}
