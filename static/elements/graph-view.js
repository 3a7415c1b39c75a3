/** <graph-view>: the butterfly. Boxes, labels and edges are elements where they are legible and plain shapes
 * elsewhere; one canvas above them holds every histogram. The arrow keys move between boxes; a table holds the same
 * for screen readers.
 * Its `screen` takes pictures, the selection and the camera; the bar beneath shares `statistic` and `paintwork`.
 * Read `drawing`, `viewBox()`. Events, bubbling: `box-select` {id}, `group-toggle` {id}, `camera-change` {zoom, at,
 * across}, `drawing-change` {}, `axis-change` {positions, width}. */

import { emit } from "../core/dom.js";
import { GraphBar } from "../core/view/aside.js";
import { connectHands } from "../core/view/input.js";
import { GraphScreen } from "../core/view/screen.js";
import { onSchemeChange } from "../core/colours.js";

const NARROW_SCREEN = "(max-width: 899px)";

class GraphView extends HTMLElement {
  screen = new GraphScreen((type, detail) => emit(this, type, detail));
  #bar = new GraphBar({ zoomBy: (factor) => this.screen.zoomBy(factor), fit: () => this.screen.fit() });
  #narrow = matchMedia(NARROW_SCREEN);

  connectedCallback() {
    const screen = this.screen;
    const { root } = screen.stage;
    root.append(...screen.aside.overlays);
    this.append(root, this.#bar.root, screen.aside.twin);
    // Read once: reading it in every frame would force a layout.
    const measure = () => screen.resize({ width: root.clientWidth, height: root.clientHeight }, this.#narrow.matches);
    measure();
    new ResizeObserver(measure).observe(root);
    this.#narrow.addEventListener("change", measure);
    onSchemeChange(() => screen.recolour());
    connectHands(screen, (id) => emit(this, "box-select", { id }));
  }

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    this.#bar.statistic = statistic;
    this.screen.statistic = statistic;
  }

  /** @param {Paintwork | null} paintwork */
  set paintwork(paintwork) {
    this.#bar.legend.show(paintwork?.legend ?? null);
    this.screen.paintwork = paintwork;
  }

  get drawing() {
    return this.screen.sight?.drawing ?? null;
  }

  /** @returns {Region} the visible part of the drawing */
  viewBox() {
    return this.screen.stage.viewport.seen;
  }

  /** Focuses the box where the arrow keys continue. @override */
  focus() {
    this.screen.moveFocus(this.screen.focused, true);
  }
}

customElements.define("graph-view", GraphView);
