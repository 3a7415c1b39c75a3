/** The layout off the main thread: a graph's arrays come once, then any number of states. */

import { columnsOf, LayoutQueue, messagePause } from "./queue.js";

const queue = new LayoutQueue((answer) => postMessage(answer, { transfer: columnsOf(answer.drawing) }), messagePause());

addEventListener("message", (/** @type {MessageEvent<LayoutRequest>} */ { data }) => queue.ask(data));
