/** Requests drawings: one request for all changes of a task, and no answer older than the last one. The layouts come from
 * a worker, or from the page where workers fail, as in a page opened from a file. */

import { begin } from "../activity.js";
import { openGroups } from "../graph/graph.js";
import { LayoutQueue, messagePause } from "./queue.js";

/** @typedef {{key: string, graph: Graph, expansion: Expansion, options: LayoutOptions}} Wanted key: names the graph; a new
 * key sends its arrays */

export class DrawingRequests {
  #asked = 0;
  #answered = 0;
  #isAsking = false;
  #end = () => {};
  /** The graph sent last. @type {Graph | null} */
  #sent = null;
  #sentKey = "";
  /** @type {Worker | null} */
  #worker = null;
  /** @type {LayoutQueue | null} */
  #queue = null;
  /** The request that a failing worker has not answered. @type {LayoutRequest | null} */
  #unanswered = null;

  /** @param {() => Wanted | null} wanted the request at the time of sending; null: none
   * @param {(key: string, drawing: Drawing) => void} receive gets the answers to the latest requests; others have none */
  constructor(wanted, receive) {
    this.wanted = wanted;
    this.receive = receive;
    try {
      this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    } catch {
      // A page opened from a file cannot start a worker.
      this.#here();
      return;
    }
    this.#worker.addEventListener("message", (/** @type {MessageEvent<LayoutAnswer>} */ { data }) => {
      if (this.#queue === null && data.key === this.#sentKey) this.#answer(data);
    });
    this.#worker.addEventListener("error", () => this.#here());
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
      if (wanted !== null) this.#send(wanted);
      if (!this.isWaiting) this.#end();
    });
  }

  /** @param {Wanted} wanted */
  #send({ key, graph, expansion, options }) {
    this.#asked += 1;
    const isSent = this.#sent === graph && this.#sentKey === key;
    /** @type {LayoutRequest} */
    const request = { request: this.#asked, key, arrays: isSent ? null : graph.arrays, ...openGroups(graph, expansion),
      options };
    [this.#sent, this.#sentKey] = [graph, key];
    if (this.#queue !== null) this.#queue.ask(request);
    else {
      this.#unanswered = { ...request, arrays: graph.arrays };
      this.#worker?.postMessage(request);
    }
  }

  /** @param {LayoutAnswer} answer */
  #answer({ request, key, drawing }) {
    if (request === this.#asked) this.#unanswered = null;
    this.#answered = request;
    const end = this.isWaiting ? () => {} : this.#end;
    this.receive(key, drawing);
    end();
  }

  /** Switches to layouts in the page, without a worker. */
  #here() {
    if (this.#queue !== null) return;
    this.#worker?.terminate();
    this.#worker = null;
    this.#queue = new LayoutQueue((answer) => this.#answer(answer), messagePause());
    if (this.#unanswered !== null) this.#queue.ask(this.#unanswered);
    this.#unanswered = null;
  }
}
