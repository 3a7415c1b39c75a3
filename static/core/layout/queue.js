/** Lays out one request at a time, always the latest; a newer request stops the layout in progress. Runs in a worker,
 * or in the page. */

import { LayoutCache, layoutSteps } from "./layout.js";

/** Time between looks for newer requests, ms. */
const PATIENCE_MS = 20;

export class LayoutQueue {
  #answer;
  #pause;
  /** @type {{key: string, arrays: GraphArrays, cache: LayoutCache} | null} */
  #graph = null;
  /** @type {LayoutRequest | null} */
  #waiting = null;
  #isRunning = false;

  /** @param {(answer: LayoutAnswer) => void} answer @param {() => Promise<void>} pause lets messages arrive */
  constructor(answer, pause) {
    this.#answer = answer;
    this.#pause = pause;
  }

  /** @param {LayoutRequest} request */
  ask(request) {
    if (request.arrays !== null) this.#graph = { key: request.key, arrays: request.arrays, cache: new LayoutCache() };
    this.#waiting = request;
    if (!this.#isRunning) void this.#run();
  }

  async #run() {
    this.#isRunning = true;
    try {
      // Lets the other requests of a burst arrive.
      await this.#pause();
      for (let next = this.#waiting; next !== null; next = this.#waiting) {
        this.#waiting = null;
        if (this.#graph?.key === next.key) await this.#layOut(next, this.#graph.arrays, this.#graph.cache);
      }
    } finally {
      this.#isRunning = false;
    }
  }

  /** @param {LayoutRequest} request @param {GraphArrays} arrays @param {LayoutCache} cache */
  async #layOut({ request, key, open, kinds, options }, arrays, cache) {
    const steps = layoutSteps(arrays, { open, kinds }, options, cache);
    let began = performance.now();
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) {
        this.#answer({ request, key, drawing: value });
        return;
      }
      if (performance.now() - began < PATIENCE_MS) continue;
      await this.#pause();
      if (this.#waiting !== null) return;
      began = performance.now();
    }
  }
}

/** @returns {() => Promise<void>} resolves after the messages that have arrived, without the delay of timers */
export function messagePause() {
  const { port1, port2 } = new MessageChannel();
  /** @type {(() => void)[]} */
  const waiting = [];
  port1.onmessage = () => waiting.shift()?.();
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      port2.postMessage(null);
    });
}

/** @param {Drawing} drawing @returns {ArrayBuffer[]} its arrays, to transfer without a copy */
export function columnsOf(drawing) {
  const buffers = [];
  for (const value of Object.values(drawing)) {
    if (ArrayBuffer.isView(value) && value.buffer instanceof ArrayBuffer) buffers.push(value.buffer);
  }
  return buffers;
}
