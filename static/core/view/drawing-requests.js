/** Asking for drawings: once for all that changes in one go, and nothing older than what is there. */

import { begin } from "../activity.js";
import { LayoutClient } from "../layout/layout-client.js";

/** @typedef {import("../types.js").Drawing} Drawing */
/** @typedef {Parameters<LayoutClient["ask"]>[0]} Wanted */

export class DrawingRequests {
  #asked = 0;
  #answered = 0;
  #isAsking = false;
  #end = () => {};
  #client = new LayoutClient((answer) => this.#receive(answer));

  /**
   * @param {() => Wanted | null} wanted what to ask for, when it comes to asking; null: nothing
   * @param {(key: string, drawing: Drawing) => void} receive
   */
  constructor(wanted, receive) {
    this.wanted = wanted;
    this.receive = receive;
  }

  /** @returns {boolean} whether a drawing has been asked for that is not there yet */
  get isWaiting() {
    return this.#isAsking || this.#asked !== this.#answered;
  }

  /** Asks, at the end of the task at hand. */
  ask() {
    if (this.#isAsking) return;
    if (!this.isWaiting) this.#end = begin();
    this.#isAsking = true;
    queueMicrotask(() => {
      this.#isAsking = false;
      const wanted = this.wanted();
      if (wanted !== null) this.#asked = this.#client.ask(wanted);
      if (!this.isWaiting) this.#end();
    });
  }

  /** @param {{request: number, key: string, drawing: Drawing}} answer */
  #receive({ request, key, drawing }) {
    if (request < this.#answered) return;
    this.#answered = request;
    const end = this.isWaiting ? () => {} : this.#end;
    this.receive(key, drawing);
    end();
  }
}
