/** The selection and the focus on the stage, kept from drawing to drawing. */

import { find } from "../graph/graph.js";
import { FRAME } from "../layout/sizes.js";
import { nameBox } from "./describe.js";
import { locate } from "./navigation.js";

export class GraphSelection {
  /** The boxes of the present drawing. @type {BoxSelection} */
  boxes = { selected: -1, twin: -1, holder: -1, focused: -1 };
  #id = "";
  /** @type {Item | null} */
  #focused = null;
  #hovered = -1;

  /** @param {GraphStage} stage */
  constructor(stage) {
    this.stage = stage;
  }

  /** Takes a new drawing. @param {Sight} sight @param {boolean} isNew whether it is of another graph */
  renew(sight, isNew) {
    this.#hovered = -1;
    // An item of another graph cannot keep the focus.
    if (isNew) this.#focused = this.#id === "" ? null : find(sight.graph, this.#id);
    this.boxes = locate(sight, this.#id, this.#focused);
  }

  /** @param {Sight | null} sight @param {string} id @returns {boolean} false: the stage must be drawn again */
  select(sight, id) {
    const isNew = id !== this.#id;
    this.#id = id;
    if (sight === null || !isNew) return true;
    const item = find(sight.graph, id);
    if (item !== null && sight.index.holderOf(item) >= 0) this.#focused = item;
    return this.#mark(sight);
  }

  /** @param {Sight} sight @param {number} box @returns {boolean} false: the stage must be drawn again */
  focus(sight, box) {
    this.keep(sight.index.itemOf(box));
    return box === this.boxes.focused || this.#mark(sight);
  }

  /** Gives an item the focus in the next drawing. @param {Item} item */
  keep(item) {
    this.#focused = item;
  }

  /** @param {Sight} sight @returns {boolean} whether all boxes of the selection are elements */
  #mark(sight) {
    this.boxes = locate(sight, this.#id, this.#focused);
    const { selected, twin, holder, focused } = this.boxes;
    const isThere = [selected, twin, holder, focused].every((box) =>
      box < 0 || this.stage.boxes.partsOf(sight, box) !== undefined
    );
    if (isThere) this.stage.mark(sight, this.boxes);
    return isThere;
  }

  /** Gives the browser's focus to the focused box. @param {Sight} sight */
  focusElement(sight) {
    const parts = this.stage.boxes.partsOf(sight, this.boxes.focused);
    if (parts === undefined) return;
    nameBox(sight, parts);
    parts.root.focus({ preventScroll: true });
  }

  /** Lights the lines of a box, or of the selection. @param {Sight} sight @param {number} box */
  hover(sight, box) {
    if (box === this.#hovered) return;
    this.#hovered = box;
    const { selected, holder } = this.boxes;
    const boxes = box >= 0 && sight.drawing.kind[box] !== FRAME ? [box]
      : [selected, holder].filter((each) => each >= 0);
    if (!this.stage.points(boxes)) this.stage.point(sight, boxes);
  }
}
