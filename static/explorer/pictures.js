/** Pictures and theories of the server on their way to the screen: once per frame, the latest one only. */

import { oncePerFrame } from "../core/activity.js";

/** Faster screens get no more pictures. */
const FRAME_MS = 1000 / 60;

/** @param {Signal<Picture | null>} picture @param {Signal<Theory | null>} theory @param {() => boolean} isLive
 * @returns {{take: (next: Picture) => void, takeTheory: (next: Theory) => void}} theory waits for its picture */
export function connectPictures(picture, theory, isLive) {
  let arrived = /** @type {Picture | null} */ (null);
  let arrivedTheory = /** @type {Theory | null} */ (null);
  let paintedAt = -Infinity;

  function paint() {
    paintedAt = performance.now();
    if (!isLive() || arrived === null || arrived.seq <= (picture.value?.seq ?? 0)) return;
    // Theory of another graph does not fit.
    if (arrived.key !== picture.value?.key) theory.value = null;
    picture.value = arrived;
    paintTheory();
  }

  const paintSoon = oncePerFrame(paint);

  function paintTheory() {
    if (!isLive() || arrivedTheory === null || arrivedTheory.seq > (picture.value?.seq ?? 0)) return;
    theory.value = arrivedTheory;
    arrivedTheory = null;
  }

  return {
    take(next) {
      arrived = next;
      // Painting at once, if it is time, leaves the next frame free.
      if (!document.hidden && performance.now() - paintedAt > FRAME_MS) paint();
      else paintSoon();
    },
    takeTheory(next) {
      arrivedTheory = next;
      paintTheory();
    },
  };
}
