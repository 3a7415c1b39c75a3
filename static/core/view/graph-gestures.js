/** Wheel, drag, pinch and double click as what they mean. No state of the graph's. */

/**
 * @typedef {object} Wishes
 * @property {() => boolean} canPan
 * @property {() => {x: number, y: number}} start where the drawing's corner is on the screen
 * @property {(x: number, y: number) => void} moveTo puts the corner there
 * @property {(factor: number, x: number, y: number) => void} zoomBy around a point of the stage
 * @property {(event: MouseEvent) => void} press a click that was no drag
 * @property {(event: MouseEvent) => void} doublePress
 */

/** A click may tremble this far, px. */
const TREMBLE = 3;
const PER_LINE = 0.05;
const PER_PIXEL = 0.002;

/**
 * Listens on a stage.
 *
 * @param {HTMLElement} stage
 * @param {Wishes} wishes
 */
export function listen(stage, { canPan, start, moveTo, zoomBy, press, doublePress }) {
  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  /** Where the drag began. @type {{x: number, y: number, start: {x: number, y: number}} | null} */
  let begun = null;
  let wasDragged = false;
  /** The middle of the fingers, and how far apart they are. */
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
      const { x, y } = start();
      moveTo(x - (event.deltaX || event.deltaY), y);
      return;
    }
    const area = stage.getBoundingClientRect();
    zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? PER_LINE : PER_PIXEL)), event.clientX - area.left,
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
    } else begun = canPan() ? { x: event.clientX, y: event.clientY, start: start() } : null;
  });
  stage.addEventListener("pointermove", (event) => {
    const pointer = pointers.get(event.pointerId);
    if (pointer === undefined) return;
    [pointer.x, pointer.y] = [event.clientX, event.clientY];
    if (pointers.size === 2) {
      const now = measure();
      const area = stage.getBoundingClientRect();
      const at = start();
      moveTo(at.x + now.x - pinch.x, at.y + now.y - pinch.y);
      zoomBy(now.spread / pinch.spread, now.x - area.left, now.y - area.top);
      pinch = now;
      return;
    }
    if (begun === null) return;
    const [dx, dy] = [event.clientX - begun.x, event.clientY - begun.y];
    if (!wasDragged && Math.hypot(dx, dy) <= TREMBLE) return;
    wasDragged = true;
    if (!stage.hasPointerCapture(event.pointerId)) stage.setPointerCapture(event.pointerId);
    moveTo(begun.start.x + dx, begun.start.y + dy);
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
  stage.addEventListener("dblclick", doublePress);
}
