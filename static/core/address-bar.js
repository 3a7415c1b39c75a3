/** Writes the address of the page: not too often, since browsers refuse more than a few changes a second. */

import { cancel, later } from "./activity.js";

const EVERY_MS = 250;

export class AddressBar {
  #shown = location.pathname + location.search + location.hash;
  #written = 0;
  #later = 0;

  /**
   * @param {string} next
   * @param {boolean} push whether it makes a history entry, which is done at once
   * @param {number} [delay] ms that it may wait: it takes the browser a millisecond or two
   */
  write(next, push, delay = 0) {
    cancel(this.#later);
    const wait = Math.max(delay, this.#written + EVERY_MS - performance.now());
    if (wait > 0 && !push) {
      this.#later = later(() => this.write(next, false), wait);
      return;
    }
    if (next === this.#shown) return;
    this.#shown = next;
    this.#written = performance.now();
    try {
      if (push) history.pushState(null, "", next);
      else history.replaceState(null, "", next);
    } catch (problem) {
      // In a frame that holds the page itself, as a notebook shows it, there is no address to write.
      if (!(problem instanceof DOMException && problem.name === "SecurityError")) throw problem;
    }
  }

  /** The browser went to another entry of its history: that is what is shown now. */
  moved() {
    this.#shown = location.pathname + location.search + location.hash;
    cancel(this.#later);
  }
}
