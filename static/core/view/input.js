/** Pointers and keys on the graph: finds the box and calls the action. */

import { idOf } from "../graph/graph.js";
import { boxShowing, firstInput, lossBox, walk } from "./navigation.js";
import { FRAME, GROUP } from "../layout/sizes.js";

// Wheel, drag and pinch.

/** A click may move this far, px. */
const TREMBLE = 3;
const PER_LINE = 0.05;
const PER_PIXEL = 0.002;

/** @param {GraphScreen} screen @param {(event: MouseEvent) => void} press a click that was no drag */
function listen(screen, press) {
  const { root: stage, viewport } = screen.stage;
  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  /** Start of the drag. @type {{x: number, y: number, start: {x: number, y: number}} | null} */
  let begun = null;
  let wasDragged = false;
  /** The middle of two fingers, and their distance. */
  let pinch = { x: 0, y: 0, spread: 0 };

  const measure = () => {
    const [one, other] = [...pointers.values()];
    if (one === undefined || other === undefined) return pinch;
    return { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2,
      spread: Math.max(1, Math.hypot(one.x - other.x, one.y - other.y)) };
  };

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (isSideways && !event.ctrlKey) {
      screen.moveTo(viewport.x - (event.deltaX || event.deltaY), viewport.y);
      return;
    }
    const area = stage.getBoundingClientRect();
    screen.zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? PER_LINE : PER_PIXEL)), event.clientX - area.left,
      event.clientY - area.top);
  }, { passive: false });

  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (pointers.size === 1) wasDragged = false;
    if (pointers.size === 2) {
      pinch = measure();
      wasDragged = true;
      begun = null;
      for (const id of pointers.keys()) stage.setPointerCapture(id);
    } else if (viewport.overflows)
      begun = { x: event.clientX, y: event.clientY, start: { x: viewport.x, y: viewport.y } };
    else begun = null;
  });
  stage.addEventListener("pointermove", (event) => {
    const pointer = pointers.get(event.pointerId);
    if (pointer === undefined) return;
    [pointer.x, pointer.y] = [event.clientX, event.clientY];
    if (pointers.size === 2) {
      const now = measure();
      const area = stage.getBoundingClientRect();
      screen.moveTo(viewport.x + now.x - pinch.x, viewport.y + now.y - pinch.y);
      screen.zoomBy(now.spread / pinch.spread, now.x - area.left, now.y - area.top);
      pinch = now;
      return;
    }
    if (begun === null) return;
    const [dx, dy] = [event.clientX - begun.x, event.clientY - begun.y];
    if (!wasDragged && Math.hypot(dx, dy) <= TREMBLE) return;
    wasDragged = true;
    if (!stage.hasPointerCapture(event.pointerId)) stage.setPointerCapture(event.pointerId);
    screen.moveTo(begun.start.x + dx, begun.start.y + dy);
  });
  const end = (/** @type {PointerEvent} */ event) => {
    pointers.delete(event.pointerId);
    begun = null;
  };
  stage.addEventListener("pointerup", end);
  stage.addEventListener("pointercancel", end);
  stage.addEventListener("click", (event) => {
    if (!wasDragged) press(event);
  });
}

/** Zoom factor of a key or a button. */
export const ZOOM_STEP = 1.3;
const DOUBLE_PRESS_ZOOM = 2;
/** Controls on the stage that are no part of the graph. */
const BESIDE = ".minimap, .trail";
const ARROWS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]);

/** @param {Sight} sight @param {number} box @returns {string} in addresses; "" for none */
export function addressOf({ graph, index }, box) {
  return box < 0 ? "" : idOf(graph, index.itemOf(box));
}

/** @param {GraphScreen} screen @param {(id: string) => void} select */
export function connectHands(screen, select) {
  const { stage } = screen;
  const { root, svg, viewport } = stage;
  listen(screen, (event) => withSight((sight) => press(sight, event)));
  root.addEventListener("dblclick", (event) => withSight((sight) => doublePress(sight, event)));
  svg.addEventListener("focusin",
    ({ target }) => withSight((sight) => screen.moveFocus(elementBox(sight, target), false)));
  svg.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) withSight((sight) => key(sight, event));
  });
  root.addEventListener("pointermove", (event) => {
    if (event.buttons === 0) withSight((sight) => screen.hover(boxAt(sight, event)));
  });
  root.addEventListener("pointerleave", () => screen.hover(-1));

  /** @param {(sight: Sight) => void} act */
  function withSight(act) {
    const sight = screen.sight;
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
    // A frame may hold boxes too small for an element.
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
    if (!isIn(event, ".toggle")) select(addressOf(sight, box));
    // The second click of a double click would undo the first.
    else if (event.detail < 2) screen.toggle(box);
  }

  /** @param {Sight} sight @param {MouseEvent} event */
  function doublePress(sight, event) {
    if (isIn(event, BESIDE) || isIn(event, ".toggle")) return;
    const box = boxAt(sight, event);
    const { x, y } = onStage(event);
    if (box < 0) screen.zoomBy(DOUBLE_PRESS_ZOOM, x, y);
    else if (sight.drawing.kind[box] === GROUP) screen.toggle(box);
    else screen.zoomToBox(box);
  }

  /** @param {Sight} sight @param {KeyboardEvent} event */
  function key(sight, event) {
    const { drawing, isVertical } = sight;
    const focused = screen.focused;
    const isGroup = drawing.kind[focused] === GROUP || drawing.kind[focused] === FRAME;
    if (ARROWS.has(event.key))
      screen.moveFocus(
        walk(drawing, focused, /** @type {ArrowKey} */ (event.key), isVertical ? "vertical" : "horizontal"),
        true,
      );
    else if (event.key === "Home") screen.moveFocus(firstInput(sight), true);
    else if (event.key === "End") screen.moveFocus(lossBox(sight), true);
    else if (event.key === "u") screen.moveFocus(drawing.frame[focused], true);
    else if ((event.key === "e" || event.key === " ") && isGroup) screen.toggle(focused);
    else if (event.key === "Enter" || event.key === " ") select(addressOf(sight, focused));
    else if (event.key === "Escape") select("");
    else if (event.key === "+" || event.key === "=") screen.zoomBy(ZOOM_STEP);
    else if (event.key === "-") screen.zoomBy(1 / ZOOM_STEP);
    else if (event.key === "0") screen.fit();
    else return;
    event.preventDefault();
  }
}

/** @param {Event} event @param {string} selector @returns {boolean} */
function isIn({ target }, selector) {
  return target instanceof Element && target.closest(selector) !== null;
}
