/** Where in the model one is: the frames around what is seen, from the outermost in, as buttons that lead there. */

import { html } from "./dom.js";
import { FRAME } from "./layout-sizes.js";

/** @typedef {import("./graph-sight.js").Sight} Sight */
/** @typedef {import("./viewport.js").Region} Region */

/** What a frame has to cover of the view for the view to be inside it. */
const COVERS = 0.55;

/**
 * @param {Sight} sight
 * @param {Region} seen of the drawing
 * @returns {number} the innermost frame that most of the view is in; -1 for none
 */
export function frameInSight({ drawing }, seen) {
  const { rect, kind, boxes } = drawing;
  let found = -1;
  for (let box = 0; box < boxes; box += 1) {
    if (kind[box] !== FRAME) continue;
    const [x, y, w, h] = [rect[4 * box] ?? 0, rect[4 * box + 1] ?? 0, rect[4 * box + 2] ?? 0, rect[4 * box + 3] ?? 0];
    const across = Math.min(x + w, seen.x + seen.width) - Math.max(x, seen.x);
    const down = Math.min(y + h, seen.y + seen.height) - Math.max(y, seen.y);
    // Frames come before what is in them: the last is the innermost.
    if (across > 0 && down > 0 && across * down >= COVERS * seen.width * seen.height) found = box;
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
    const labels = path.map((box) => graph.groupLabel[drawing.ref[box] ?? 0] ?? "");
    const now = JSON.stringify([path, labels]);
    if (now === this.#shown) return;
    this.#shown = now;
    this.root.hidden = path.length === 0;
    const steps = [html("button", { type: "button", "data-box": "-1" }, "model"), ...path.map((box, order) => html("button", { type: "button", "data-box": String(box) }, labels[order] ?? ""))];
    this.root.replaceChildren(...steps.flatMap((step, order) => (order === 0 ? [step] : [html("span", { "aria-hidden": "true" }, "›"), step])));
  }
}
