/** Where tensors stand along the depth, for what lines up with them. No DOM. */

import { TENSOR } from "./layout-sizes.js";

/** Of a drawing of more boxes than this, layers alone: hundreds of thousands take longer to tell than to draw. */
const MOST_BOXES = 2000;

export class DepthColumns {
  /** @type {Drawing | null} */
  #drawing = null;
  /** Tensor id and box. @type {[string, number][]} */
  #boxes = [];

  /**
   * @param {Sight} sight
   * @param {Viewport} viewport
   * @returns {Map<string, number>} tensor id → x in px of the panel
   */
  positions(sight, viewport) {
    if (this.#drawing !== sight.drawing) {
      this.#drawing = sight.drawing;
      this.#boxes = boxesOf(sight);
    }
    const { rect } = sight.drawing;
    return new Map(
      this.#boxes.map(
        ([tensor, box]) => [tensor, viewport.x + (rect[4 * box] + rect[4 * box + 2] / 2) * viewport.scale]
      ),
    );
  }
}

/** @param {Sight} sight @returns {[string, number][]} */
function boxesOf({ drawing, graph, index }) {
  /** @type {[string, number][]} */
  const boxes = [];
  const { tensors, layers } = graph.topology;
  if (drawing.boxes <= MOST_BOXES) {
    for (let box = 0; box < drawing.boxes; box += 1) {
      const tensor = drawing.kind[box] === TENSOR ? tensors[drawing.ref[box]] : undefined;
      if (tensor !== undefined) boxes.push([tensor.id, box]);
    }
    return boxes;
  }
  for (const { preactivation, activation, gradient, weight } of layers) {
    for (const id of [preactivation, activation, gradient, weight]) {
      const tensor = id === null ? undefined : graph.tensorIndex.get(id);
      const box = tensor === undefined ? -1 : index.boxOf({ kind: "tensor", index: tensor, half: "forward" });
      if (id !== null && box >= 0) boxes.push([id, box]);
    }
  }
  return boxes;
}
