/** What the page is told of where the graph stands on the screen. */

import { DepthColumns } from "../layout/depth-columns.js";

export class GraphNews {
  /** What the page last said or heard of the camera. @type {Camera} */
  #known = { zoom: 1, at: 0, across: 0.5 };
  #columns = new DepthColumns();

  /** @param {TellNews} tell */
  constructor(tell) {
    this.tell = tell;
  }

  /** @param {Viewport} viewport */
  camera({ camera }) {
    this.#known = camera;
    this.tell("camera-change", { ...camera });
  }

  /** @param {Camera} camera that the page asks for @returns {boolean} whether that is another one than it knows of */
  hears({ zoom, at, across }) {
    const known = this.#known;
    this.#known = { zoom, at, across };
    return zoom !== known.zoom || at !== known.at || across !== known.across;
  }

  /** Where tensors stand along the depth, for what lines up with them. @param {Sight} sight @param {Viewport} viewport
   * @param {number} width of the stage; 0: it is not shown */
  axis(sight, viewport, width) {
    // Out of sight it lines up with nothing.
    if (width === 0 && !sight.isVertical) return;
    this.tell("axis-change", { positions: sight.isVertical ? new Map() : this.#columns.positions(sight, viewport),
      width });
  }
}
