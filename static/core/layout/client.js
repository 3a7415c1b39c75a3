/** Asking for drawings: once for all that changes in one go, and nothing older than what is there. */

import { begin } from "../activity.js";
import { openGroups } from "../graph/graph.js";
import { LayoutQueue, messagePause } from "./queue.js";

// Layouts on demand: from a worker, or from the page itself where none can be made, as in a page opened from a file.

export class LayoutClient {
  #onDrawing;
  #requests = 0;
  /** Of the graph that was sent last. @type {Graph | null} */
  #sent = null;
  #sentKey = "";
  /** @type {Worker | null} */
  #worker = null;
  /** @type {LayoutQueue | null} */
  #queue = null;
  /** Requests that a worker which fails to start has not answered. @type {LayoutRequest | null} */
  #unanswered = null;

  /** @param {(answer: LayoutAnswer) => void} onDrawing gets the answers to the latest requests; what was overtaken has
   * none */
  constructor(onDrawing) {
    this.#onDrawing = onDrawing;
    try {
      this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    } catch {
      // Not from a file, and not where the page is one file.
      this.#here();
      return;
    }
    this.#worker.addEventListener("message",
      (/** @type {MessageEvent<LayoutAnswer>} */ { data }) => this.#receive(data));
    this.#worker.addEventListener("error", () => this.#here());
  }

  /** @param {object} wanted @param {string} wanted.key names the graph; its arrays are handed over when it changes
   * @param {Graph} wanted.graph @param {Expansion} wanted.expansion @param {LayoutOptions} wanted.options
   * @returns {number} of the request, as in the answer */
  ask({ key, graph, expansion, options }) {
    this.#requests += 1;
    const isSent = this.#sent === graph && this.#sentKey === key;
    /** @type {LayoutRequest} */
    const request = { request: this.#requests, key, arrays: isSent ? null : graph.arrays,
      ...openGroups(graph, expansion), options };
    [this.#sent, this.#sentKey] = [graph, key];
    if (this.#queue !== null) this.#queue.ask(request);
    else {
      this.#unanswered = { ...request, arrays: graph.arrays };
      this.#worker?.postMessage(request);
    }
    return this.#requests;
  }

  /** @param {LayoutAnswer} answer */
  #receive(answer) {
    if (this.#queue !== null || answer.key !== this.#sentKey) return;
    if (answer.request === this.#requests) this.#unanswered = null;
    this.#onDrawing(answer);
  }

  /** From now on in the page itself. */
  #here() {
    if (this.#queue !== null) return;
    this.#worker?.terminate();
    this.#worker = null;
    this.#queue = new LayoutQueue((answer) => this.#onDrawing(answer), messagePause());
    if (this.#unanswered !== null) this.#queue.ask(this.#unanswered);
    this.#unanswered = null;
  }
}

/** @typedef {Parameters<LayoutClient["ask"]>[0]} Wanted */

export class DrawingRequests {
  #asked = 0;
  #answered = 0;
  #isAsking = false;
  #end = () => {};
  #client = new LayoutClient((answer) => this.#receive(answer));

  /** @param {() => Wanted | null} wanted what to ask for, when it comes to asking; null: nothing
   * @param {(key: string, drawing: Drawing) => void} receive */
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
