/** <graph-view>: the butterfly. Boxes, labels and edges are elements where they are legible and plain shapes
 * elsewhere; one canvas above them holds every histogram. The arrow keys move between boxes; a table holds the same
 * for screen readers.
 * Call `show(picture, graph)`, before it `follow(find)` when the next graph is of much the same model; set `theory`,
 * `expansion`, `statistic`, `selection`, `camera`, `paintwork`, `lit`; call `reveal(id)`, `zoomTo(id)`, `fit()`;
 * read `drawing`, `viewBox()`. Events, bubbling: `box-select` {id}, `group-toggle` {id}, `camera-change` {zoom, at,
 * across}, `drawing-change` {}, `axis-change` {positions, width}. */

import { emit } from "../core/dom.js";
import { GraphBar } from "../core/view/aside.js";
import { connectHands } from "../core/view/input.js";
import { GraphScreen } from "../core/view/screen.js";
import { onSchemeChange } from "../core/colours.js";

const NARROW_SCREEN = "(max-width: 899px)";

class GraphView extends HTMLElement {
  #screen = new GraphScreen((type, detail) => emit(this, type, detail));
  #bar = new GraphBar({ zoomBy: (factor) => this.#screen.zoomBy(factor), fit: () => this.fit() });
  #narrow = matchMedia(NARROW_SCREEN);

  connectedCallback() {
    const screen = this.#screen;
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

  /** @param {Picture} picture @param {Graph} graph of its topology; the same object while the topology is the same */
  show(picture, graph) {
    this.#screen.show(picture, graph);
  }

  /** Keeps the view when the next graph comes.
   * @param {(item: Item) => Item | null} find the counterpart of an item of this graph */
  follow(find) {
    this.#screen.follow(find);
  }

  /** @param {Theory | null} theory may be of an earlier picture */
  set theory(theory) {
    this.#screen.theory = theory;
  }

  /** @param {Expansion} expansion */
  set expansion(expansion) {
    this.#screen.expansion = expansion;
  }

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    this.#bar.statistic = statistic;
    this.#screen.statistic = statistic;
  }

  /** @param {string} id */
  set selection(id) {
    this.#screen.selection = id;
  }

  /** @param {Camera} camera */
  set camera(camera) {
    this.#screen.camera = camera;
  }

  /** @param {Paintwork | null} paintwork */
  set paintwork(paintwork) {
    this.#bar.legend.show(paintwork?.legend ?? null);
    this.#screen.paintwork = paintwork;
  }

  /** @param {ReadonlySet<string> | null} ids of the items to light, others are dimmed; null: none are dimmed */
  set lit(ids) {
    this.#screen.lit = ids;
  }

  get drawing() {
    return this.#screen.sight?.drawing ?? null;
  }

  /** @returns {Region} the visible part of the drawing */
  viewBox() {
    return this.#screen.stage.viewport.seen;
  }

  /** Once the graph is shown, pans as far as needed to see the item, and zooms in until it is legible.
   * @param {string} id */
  reveal(id) {
    this.#screen.reveal(id);
  }

  /** Centres an item, or its closed group, at a legible size. @param {string} id */
  zoomTo(id) {
    this.#screen.zoomTo(id);
  }

  fit() {
    this.#screen.fit();
  }

  /** Focuses the box where the arrow keys continue. @override */
  focus() {
    this.#screen.moveFocus(this.#screen.focused, true);
  }
}

customElements.define("graph-view", GraphView);
