/** The layout off the main thread. A topology comes once, then any number of sizes; only the latest waiting size is laid out. */

import { layoutScene } from "./layout.js";
import { buildScene } from "./scene.js";

/** @typedef {import("./types.js").Topology} Topology */
/** @typedef {import("./types.js").Scene} Scene */
/** @typedef {import("./types.js").Layout} Layout */
/** @typedef {import("./types.js").LayoutOptions} LayoutOptions */

/** @typedef {{request: number, key: string, topology: Topology | null, options: LayoutOptions}} LayoutRequest */
/** @typedef {{request: number, key: string, scene: Scene | null, layout: Layout}} LayoutAnswer scene: with the first layout of a topology */

/** @type {{key: string, topology: Topology, scene: Scene} | null} */
let current = null;
/** @type {LayoutRequest | null} */
let waiting = null;
let sceneSent = false;

/** Lays out the latest request; those that it overtook are dropped. */
function work() {
  const job = waiting;
  if (job === null || current === null) return;
  waiting = null;
  const { key, topology, scene } = current;
  /** @type {LayoutAnswer} */
  const answer = { request: job.request, key, scene: sceneSent ? null : scene, layout: layoutScene(topology, scene, job.options) };
  sceneSent = true;
  postMessage(answer);
}

addEventListener("message", (/** @type {MessageEvent<LayoutRequest>} */ { data }) => {
  if (data.topology !== null) {
    current = { key: data.key, topology: data.topology, scene: buildScene(data.topology) };
    sceneSent = false;
  }
  if (waiting === null) setTimeout(work);
  waiting = data;
});
