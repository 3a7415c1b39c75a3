/** Lays out off the main thread: a graph's arrays arrive once, then any number of requests. */

import { columnsOf, LayoutQueue, messagePause } from "./queue.js";

const queue = new LayoutQueue((answer) => postMessage(answer, { transfer: columnsOf(answer.drawing) }), messagePause());

addEventListener("message", (/** @type {MessageEvent<LayoutRequest>} */ { data }) => queue.ask(data));
