/** Where in the model one is: the frames around what is seen, from the outermost in, as buttons that lead there. */

import { html } from "../dom.js";
import { fullLabel } from "./graph-facts.js";
import { FRAME } from "../layout/layout-sizes.js";

/** What of the depth in view a frame has to take for the view to be inside it. */
const TAKES = 0.6;

/**
 * @param {Sight} sight
 * @param {Region} seen of the drawing
 * @returns {number} the innermost frame that takes most of the view, of its halves the forward one; -1 for none
 */
export function frameInSight({ drawing, graph, isVertical }, seen) {
  const { rect, kind, ref, boxes } = drawing;
  const [along, across] = isVertical ? [1, 0] : [0, 1];
  const [from, room] = isVertical ? [seen.y, seen.height] : [seen.x, seen.width];
  const [level, breadth] = isVertical ? [seen.x, seen.width] : [seen.y, seen.height];
  let [found, deepest] = [-1, 0];
  // Who sees all of it is in none of its parts.
  if (room >= (isVertical ? drawing.height : drawing.width)) return found;
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] !== FRAME) continue;
    const [start, size] = [rect[4 * box + along], rect[4 * box + along + 2]];
    if (Math.min(start + size, from + room) - Math.max(start, from) < TAKES * room) continue;
    const [top, height] = [rect[4 * box + across], rect[4 * box + across + 2]];
    const depth = graph.arrays.groupDepth[ref[box]];
    if (top < level + breadth && top + height > level && depth > deepest) [found, deepest] = [box, depth];
  }
  return found;
}

export class Trail {
  root = html("nav", { class: "trail", "aria-label": "Where in the model", hidden: true });
  #shown = "";

  /** @param {(box: number) => void} go to a frame; -1: to all of it */
  constructor(go) {
    this.root.addEventListener("click", ({ target }) => {
      const button = target instanceof Element ? target.closest("button") : null;
      if (button !== null) go(Number(button.dataset["box"]));
    });
  }

  /** @param {Sight} sight @param {Region} seen */
  show(sight, seen) {
    const frame = frameInSight(sight, seen);
    const { drawing, graph, index } = sight;
    const path = frame < 0 ? [] : [...index.framesAround(frame), frame];
    const labels = path.map((box) => fullLabel(graph, drawing.ref[box]));
    const now = JSON.stringify([path, labels]);
    if (now === this.#shown) return;
    this.#shown = now;
    this.root.hidden = path.length === 0;
    const steps = [html("button", { type: "button", "data-box": "-1" }, "model"),
      ...path.map((box, order) => html("button", { type: "button", "data-box": String(box) }, labels[order]))];
    this.root.replaceChildren(
      ...steps.flatMap((step, order) => order === 0 ? [step] : [html("span", { "aria-hidden": "true" }, "›"), step]),
    );
  }
}
