/** What pointers and keys mean on a graph: which box is meant, and what is to be done with it. */

import { idOf } from "../graph/graph.js";
import { listen } from "./graph-gestures.js";
import { boxShowing, firstInput, lossBox } from "./graph-selection.js";
import { FRAME, GROUP } from "../layout/layout-sizes.js";
import { walk } from "../graph/navigation.js";

/**
 * @typedef {object} Does
 * @property {() => Sight | null} sight
 * @property {() => number} focused box
 * @property {(id: string) => void} select
 * @property {(box: number) => void} toggle opens or closes a group
 * @property {(box: number, take: boolean) => void} moveFocus take: with the browser's own
 * @property {(box: number) => void} hover -1: nothing
 * @property {() => void} fit
 * @property {(factor: number, x?: number, y?: number) => void} zoomBy
 * @property {(box: number) => void} zoomTo
 * @property {(x: number, y: number) => void} moveTo puts the drawing's corner there
 */

/** With a key, or a click of a button. */
export const ZOOM_STEP = 1.3;
const DOUBLE_PRESS_ZOOM = 2;
/** What lies on the stage and is no part of the graph. */
const BESIDE = ".minimap, .trail";
const ARROWS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]);

/** @param {Sight} sight @param {number} box @returns {string} in addresses; "" for none */
export function addressOf({ graph, index }, box) {
  return box < 0 ? "" : idOf(graph, index.itemOf(box));
}

/**
 * Listens on a stage.
 *
 * @param {GraphStage} stage
 * @param {Does} does
 */
export function connectHands(stage, does) {
  const { root, svg, viewport } = stage;
  listen(root, {
    canPan: () => viewport.overflows,
    start: () => ({ x: viewport.x, y: viewport.y }),
    moveTo: does.moveTo,
    zoomBy: does.zoomBy,
    press: (event) => withSight((sight) => press(sight, event)),
    doublePress: (event) => withSight((sight) => doublePress(sight, event)),
  });
  svg.addEventListener("focusin",
    ({ target }) => withSight((sight) => does.moveFocus(elementBox(sight, target), false)));
  svg.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) withSight((sight) => key(sight, event));
  });
  root.addEventListener("pointermove", (event) => {
    if (event.buttons === 0) withSight((sight) => does.hover(boxAt(sight, event)));
  });
  root.addEventListener("pointerleave", () => does.hover(-1));

  /** @param {(sight: Sight) => void} act */
  function withSight(act) {
    const sight = does.sight();
    if (sight !== null) act(sight);
  }

  /** @param {Sight} sight @param {EventTarget | null} target @returns {number} */
  function elementBox(sight, target) {
    const element = target instanceof Element ? target.closest("[data-id]") : null;
    return element === null ? -1 : boxShowing(sight, element.getAttribute("data-id") ?? "");
  }

  /** @param {Sight} sight @param {MouseEvent} event @returns {number} */
  function boxAt(sight, event) {
    const own = elementBox(sight, event.target);
    // Frames are there to be seen through: what is too small to be an element may lie in them.
    if ((own >= 0 && sight.drawing.kind[own] !== FRAME) || stage.detail.isElement === null) return own;
    const { x, y } = onStage(event);
    return sight.index.boxAt((x - viewport.x) / viewport.scale, (y - viewport.y) / viewport.scale);
  }

  /** @param {MouseEvent} event */
  function onStage(event) {
    const area = root.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  }

  /** @param {Sight} sight @param {MouseEvent} event */
  function press(sight, event) {
    if (isIn(event, BESIDE)) return;
    const box = boxAt(sight, event);
    if (!isIn(event, ".toggle")) does.select(addressOf(sight, box));
    // The second click of two would take back the first.
    else if (event.detail < 2) does.toggle(box);
  }

  /** @param {Sight} sight @param {MouseEvent} event */
  function doublePress(sight, event) {
    if (isIn(event, BESIDE) || isIn(event, ".toggle")) return;
    const box = boxAt(sight, event);
    const { x, y } = onStage(event);
    if (box < 0) does.zoomBy(DOUBLE_PRESS_ZOOM, x, y);
    else if (sight.drawing.kind[box] === GROUP) does.toggle(box);
    else does.zoomTo(box);
  }

  /** @param {Sight} sight @param {KeyboardEvent} event */
  function key(sight, event) {
    const { drawing, isVertical } = sight;
    const focused = does.focused();
    const isGroup = drawing.kind[focused] === GROUP || drawing.kind[focused] === FRAME;
    if (ARROWS.has(event.key))
      does.moveFocus(
        walk(drawing, focused, /** @type {ArrowKey} */ (event.key), isVertical ? "vertical" : "horizontal"),
        true,
      );
    else if (event.key === "Home") does.moveFocus(firstInput(sight), true);
    else if (event.key === "End") does.moveFocus(lossBox(sight), true);
    else if (event.key === "u") does.moveFocus(drawing.frame[focused], true);
    else if ((event.key === "e" || event.key === " ") && isGroup) does.toggle(focused);
    else if (event.key === "Enter" || event.key === " ") does.select(addressOf(sight, focused));
    else if (event.key === "Escape") does.select("");
    else if (event.key === "+" || event.key === "=") does.zoomBy(ZOOM_STEP);
    else if (event.key === "-") does.zoomBy(1 / ZOOM_STEP);
    else if (event.key === "0") does.fit();
    else return;
    event.preventDefault();
  }
}

/** @param {Event} event @param {string} selector @returns {boolean} */
function isIn({ target }, selector) {
  return target instanceof Element && target.closest(selector) !== null;
}
