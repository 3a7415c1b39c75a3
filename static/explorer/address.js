/** The address: it takes a spec once the server has accepted it, so that a reload never fails. */

import { cancel, later } from "../core/activity.js";
import { address, parseView, UNPUSHED, viewFragment } from "../core/url-state.js";

/** Pictures no longer follow each other by then: it takes the browser milliseconds. */
const AFTER_PICTURE_MS = 250;
/** Browsers refuse more than a few changes a second. */
const EVERY_MS = 250;

/** @param {Signal<View>} view @param {string} accepted query of the spec */
export function connectAddress(view, accepted) {
  let shown = location.pathname + location.search + location.hash;
  let writtenAt = 0;
  let timer = 0;

  /** @param {string} next @param {boolean} push whether it makes a history entry, which is done at once
   * @param {number} delay ms that it may wait */
  function writeAddress(next, push, delay) {
    cancel(timer);
    const wait = Math.max(delay, writtenAt + EVERY_MS - performance.now());
    if (wait > 0 && !push) {
      timer = later(() => writeAddress(next, false, 0), wait);
      return;
    }
    if (next === shown) return;
    shown = next;
    writtenAt = performance.now();
    try {
      if (push) history.pushState(null, "", next);
      else history.replaceState(null, "", next);
    } catch (problem) {
      // In a frame that holds the page itself, as a notebook shows it, there is no address to write.
      if (!(problem instanceof DOMException && problem.name === "SecurityError")) throw problem;
    }
  }

  return {
    /** Query of the accepted spec. */
    query: accepted,
    /** Whether the next spec makes a history entry: one per drag or choice. */
    pushes: false,

    /** @param {boolean} push @param {number} [delay] ms */
    write(push, delay = 0) {
      writeAddress(address(this.query, viewFragment(view.value)), push, delay);
    },

    /** @param {string} query of the picture's spec */
    accept(query) {
      this.query = query;
      this.write(this.pushes, AFTER_PICTURE_MS);
      this.pushes = false;
    },

    /** The browser went to another entry of its history.
     * @param {string} query of that entry @param {string} fragment of its view */
    moved(query, fragment) {
      shown = location.pathname + location.search + location.hash;
      cancel(timer);
      this.pushes = false;
      this.query = query;
      view.value = parseView(fragment);
    },

    /** @param {Partial<View>} change @param {boolean} [push] false for what the user did not ask for */
    setView(change, push = Object.keys(change).some((name) => !UNPUSHED.includes(name))) {
      const next = { ...view.value, ...change };
      if (viewFragment(next) === viewFragment(view.value)) return;
      view.value = next;
      this.write(push);
    },
  };
}
