/**
 * <graph-view>: the butterfly. Boxes, labels and edges are elements where they can be read and plain shapes where they
 * cannot; one canvas above them holds every histogram. Boxes are walked with the arrow keys, and a table says the same
 * to a screen reader.
 *
 * Call `show(picture, graph)`, before it `follow(find)` where another graph is of much the same model; set `theory`,
 * `expansion`, `statistic`, `selection`, `camera`, `paintwork`, `lit`; call `reveal(id)`, `zoomTo(id)`, `fit()`; read
 * `drawing`, `viewBox()`. Events, bubbling: `box-select` {id}, `group-toggle` {id}, `camera-change` {zoom, at, across},
 * `drawing-change` {}, `axis-change` {positions, width}.
 */

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
    // Read once: asked for in every frame it would have the page laid out then and there.
    const measure = () => screen.resize({ width: root.clientWidth, height: root.clientHeight }, this.#narrow.matches);
    measure();
    new ResizeObserver(measure).observe(root);
    this.#narrow.addEventListener("change", measure);
    onSchemeChange(() => screen.recolour());
    connectHands(screen.stage, {
      sight: () => screen.sight,
      focused: () => screen.focused,
      select: (id) => emit(this, "box-select", { id }),
      toggle: (box) => screen.toggle(box),
      moveFocus: (box, take) => screen.moveFocus(box, take),
      hover: (box) => screen.hover(box),
      fit: () => this.fit(),
      zoomBy: (factor, x, y) => screen.zoomBy(factor, x, y),
      zoomTo: (box) => screen.zoomToBox(box),
      moveTo: (x, y) => screen.moveTo(x, y),
    });
  }

  /** @param {Picture} picture @param {Graph} graph of its topology; the same one as long as that is the same */
  show(picture, graph) {
    this.#screen.show(picture, graph);
  }

  /** Lets the next graph be seen where this one is. @param {(item: Item) => Item | null} find from a thing of this
   * graph to its counterpart */
  follow(find) {
    this.#screen.follow(find);
  }

  /** @param {Theory | null} theory of the picture, or of one shortly before */
  set theory(theory) {
    this.#screen.theory = theory;
  }

  /** @param {Expansion} expansion which groups are open */
  set expansion(expansion) {
    this.#screen.expansion = expansion;
  }

  /** @param {Statistic} statistic written in boxes */
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

  /** @param {ReadonlySet<string> | null} ids of what is pointed out, all else dimmed; null: all are alike */
  set lit(ids) {
    this.#screen.lit = ids;
  }

  /** @returns {Drawing | null} */
  get drawing() {
    return this.#screen.sight?.drawing ?? null;
  }

  /** @returns {Region} what of the drawing is on the screen */
  viewBox() {
    return this.#screen.stage.viewport.seen;
  }

  /** Pans, once the graph is shown, as far as needed for a thing to be seen, and magnifies what could not be read.
   * @param {string} id */
  reveal(id) {
    this.#screen.reveal(id);
  }

  /** Brings a thing, or what holds it, into the middle at a size that can be read. @param {string} id */
  zoomTo(id) {
    this.#screen.zoomTo(id);
  }

  /** All of the graph into the panel. */
  fit() {
    this.#screen.fit();
  }

  /** Into the graph: to the box that the arrow keys go on from. @override */
  focus() {
    this.#screen.moveFocus(this.#screen.focused, true);
  }
}

customElements.define("graph-view", GraphView);
