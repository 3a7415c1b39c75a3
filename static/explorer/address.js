/** The address: it takes a spec once the server has accepted it, so that a reload never fails. */

import { address, AddressBar, parseView, viewFragment, viewPushes } from "../core/url-state.js";

/** The picture is on the screen by then. */
const AFTER_PICTURE_MS = 60;

/** @param {Signal<View>} view @param {string} accepted query of the spec */
export function connectAddress(view, accepted) {
  const bar = new AddressBar();

  /** @param {Partial<View>} change @returns {boolean} whether the view changes */
  function take(change) {
    const next = { ...view.value, ...change };
    if (viewFragment(next) === viewFragment(view.value)) return false;
    view.value = next;
    return true;
  }

  return {
    /** Query of the accepted spec. */
    query: accepted,
    /** Whether the next spec makes a history entry: one per drag or choice. */
    pushes: false,

    /** @param {boolean} push @param {number} [delay] ms */
    write(push, delay) {
      bar.write(address(this.query, viewFragment(view.value)), push, delay);
    },

    /** @param {string} query of the picture's spec */
    accept(query) {
      this.query = query;
      this.write(this.pushes, AFTER_PICTURE_MS);
      this.pushes = false;
    },

    /** The browser went to another entry of its history. @param {string} query of that entry */
    moved(query) {
      bar.moved();
      this.pushes = false;
      this.query = query;
      view.value = parseView(location.hash);
    },

    /** @param {Partial<View>} change */
    setView(change) {
      if (take(change)) this.write(viewPushes(change));
    },

    /** For changes that the user did not ask for: no history entry. @param {Partial<View>} change */
    replaceView(change) {
      if (take(change)) this.write(false);
    },
  };
}
