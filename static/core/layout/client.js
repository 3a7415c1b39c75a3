/** Requests drawings: one request for all changes of a task, and no answer older than the last one. */

import { begin } from "../activity.js";
import { openGroups } from "../graph/graph.js";
import { LayoutQueue, messagePause } from "./queue.js";

// Layouts from a worker, or in the page where workers fail, as in a page opened from a file.

export class LayoutClient {
  #onDrawing;
  #requests = 0;
  /** The graph sent last. @type {Graph | null} */
  #sent = null;
  #sentKey = "";
  /** @type {Worker | null} */
  #worker = null;
  /** @type {LayoutQueue | null} */
  #queue = null;
  /** The request that a failing worker has not answered. @type {LayoutRequest | null} */
  #unanswered = null;

  /** @param {(answer: LayoutAnswer) => void} onDrawing gets the answers to the latest requests; others have none */
  constructor(onDrawing) {
    this.#onDrawing = onDrawing;
    try {
      this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    } catch {
      // A page opened from a file cannot start a worker.
      this.#here();
      return;
    }
    this.#worker.addEventListener("message",
      (/** @type {MessageEvent<LayoutAnswer>} */ { data }) => this.#receive(data));
    this.#worker.addEventListener("error", () => this.#here());
  }

  /** @param {object} wanted @param {string} wanted.key names the graph; a new key sends its arrays
   * @param {Graph} wanted.graph @param {Expansion} wanted.expansion @param {LayoutOptions} wanted.options
   * @returns {number} the request's number */
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

  /** Lays out in the page from now on. */
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

  /** @param {() => Wanted | null} wanted the request at the time of sending; null: none
   * @param {(key: string, drawing: Drawing) => void} receive */
  constructor(wanted, receive) {
    this.wanted = wanted;
    this.receive = receive;
  }

  get isWaiting() {
    return this.#isAsking || this.#asked !== this.#answered;
  }

  /** Sends one request at the end of the present task. */
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
