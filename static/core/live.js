/**
 * The live path: specs out, pictures in. One request is in flight; of those that wait, the latest wins. The socket
 * comes back by itself and resends the last spec; while there is none, the same spec is fetched as a dump.
 */

import { ApiError, getJson, liveUrl, profilePath, tracePath } from "./api.js";
import { decodeFrame, frameHeader, pictureOfDump, rowIndex } from "./picture.js";

/** @typedef {import("./types.js").Spec} Spec */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").ErrorBody} ErrorBody */
/** @typedef {import("./types.js").Topology} Topology */
/** @typedef {import("./types.js").Theory} Theory */

/** @typedef {"connecting" | "live" | "reconnecting" | "fetch"} ConnectionState */

/**
 * @typedef {object} Listener
 * @property {(picture: Picture) => void} picture
 * @property {(theory: Theory, spec: Spec) => void} theory comes after its picture, or after a later one, or not at all
 * @property {(error: ErrorBody, spec: Spec) => void} error
 * @property {(state: ConnectionState) => void} state
 */

const OPEN_WITHIN_MS = 2000;
const ANSWER_WITHIN_MS = 30_000;
const RETRY_FIRST_MS = 250;
const RETRY_LAST_MS = 8000;
const TOPOLOGIES_KEPT = 8;

export class Live {
  /**
   * @param {Listener} listener
   * @param {(spec: Spec) => string} query the canonical query of a spec, for the way without a socket
   */
  constructor(listener, query) {
    this.listener = listener;
    this.query = query;
    /** @type {ConnectionState} */
    this.state = "connecting";
    /** @type {WebSocket | null} */
    this.socket = null;
    this.seq = 0;
    this.shapes = 0;
    /** @type {{seq: number, spec: Spec, timer: number} | null} */
    this.inFlight = null;
    /** @type {Spec | null} */
    this.waiting = null;
    /** @type {Spec | null} */
    this.last = null;
    this.retryMs = RETRY_FIRST_MS;
    /** @type {Map<number, {key: string, topology: Topology, rows: Map<string, number>}>} */
    this.topologies = new Map();
    this.dumpShape = { text: "", key: "" };
    /** @type {{seq: number, spec: Spec} | null} */
    this.answered = null;
  }

  /** Opens the socket; call once. */
  start() {
    this.#connect();
  }

  /**
   * Asks for the picture of a spec. An earlier one that has not been sent yet is dropped.
   *
   * @param {Spec} spec
   */
  request(spec) {
    this.last = spec;
    this.waiting = spec;
    this.#send();
  }

  #connect() {
    let socket;
    try {
      socket = new WebSocket(liveUrl());
    } catch {
      this.#lost(null);
      return;
    }
    socket.binaryType = "arraybuffer";
    const deadline = setTimeout(() => socket.close(), OPEN_WITHIN_MS);
    socket.addEventListener("open", () => {
      clearTimeout(deadline);
      this.socket = socket;
      this.topologies.clear();
      this.retryMs = RETRY_FIRST_MS;
      this.#enter("live");
      this.waiting ??= this.last;
      this.#send();
    });
    socket.addEventListener("message", (event) => this.#receive(event.data));
    let isOver = false;
    const over = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(deadline);
      this.#lost(socket);
    };
    socket.addEventListener("close", over);
    // One that a policy of the browser forbids reports an error and never closes.
    socket.addEventListener("error", () => {
      if (socket.readyState === WebSocket.CLOSED) over();
    });
  }

  /** @param {WebSocket | null} socket */
  #lost(socket) {
    if (this.socket === socket && socket !== null) {
      // Whatever was in flight on it gets no answer any more: it is asked for again, whichever way there will be.
      this.waiting ??= this.inFlight?.spec ?? null;
      this.#settle();
      this.socket = null;
      this.#enter("reconnecting");
    } else {
      // It never opened: a proxy without WebSockets, or no server. The dump may still be had.
      this.#enter("fetch");
      this.#send();
    }
    setTimeout(() => this.#connect(), this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, RETRY_LAST_MS);
  }

  /** @param {ConnectionState} state */
  #enter(state) {
    if (this.state === state) return;
    this.state = state;
    this.listener.state(state);
  }

  #settle() {
    if (this.inFlight !== null) clearTimeout(this.inFlight.timer);
    this.inFlight = null;
  }

  #send() {
    if (this.inFlight !== null || this.waiting === null) return;
    const { socket, waiting: spec } = this;
    if (socket === null && this.state !== "fetch") return;
    this.waiting = null;
    this.seq += 1;
    const seq = this.seq;
    if (socket === null) {
      this.inFlight = { seq, spec, timer: 0 };
      void this.#fetch(seq, spec);
      return;
    }
    const timer = setTimeout(() => socket.close(), ANSWER_WITHIN_MS);
    this.inFlight = { seq, spec, timer };
    socket.send(JSON.stringify({ seq, spec }));
  }

  /**
   * @param {number} seq
   * @param {Spec} spec
   */
  async #fetch(seq, spec) {
    try {
      const dump = await getJson(tracePath("json", this.query(spec)));
      this.listener.picture({ ...pictureOfDump(dump, seq, this.#dumpKey(dump)), spec });
      this.listener.theory({ ...(await getJson(profilePath(this.query(spec)))), seq }, spec);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.listener.error(error.body, spec);
    } finally {
      if (this.inFlight?.seq === seq) this.#settle();
      this.#send();
    }
  }

  /**
   * @param {import("./types.js").Dump} dump
   * @returns {string} the key of the last dump where this one has its shape, else a new one
   */
  #dumpKey({ modules, ops, tensors, saved, layers }) {
    const text = JSON.stringify([modules, ops, tensors, saved, layers]);
    if (text !== this.dumpShape.text) {
      this.shapes += 1;
      this.dumpShape = { text, key: `shape ${this.shapes}` };
    }
    return this.dumpShape.key;
  }

  /** @param {string | ArrayBuffer} data */
  #receive(data) {
    if (typeof data !== "string") {
      this.#frame(data);
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "topology") {
      this.shapes += 1;
      const topology = /** @type {Topology} */ (message.trace);
      this.topologies.set(message.topology, { key: `shape ${this.shapes}`, topology, rows: rowIndex(topology) });
      for (const key of this.topologies.keys()) if (this.topologies.size > TOPOLOGIES_KEPT) this.topologies.delete(key);
    } else if (message.type === "theory") {
      // Of a picture before the last it is dropped: its own is on the way.
      const { answered } = this;
      if (answered !== null && message.seq === answered.seq) this.listener.theory({ ...message.theory, seq: message.seq }, answered.spec);
    } else if (message.type === "error") {
      const spec = this.inFlight?.spec ?? this.last ?? {};
      if (message.seq === null || message.seq === this.inFlight?.seq) this.#settle();
      this.listener.error(message.error, spec);
      this.#send();
    }
  }

  /** @param {ArrayBuffer} buffer */
  #frame(buffer) {
    const { seq, topology } = frameHeader(buffer);
    const shape = this.topologies.get(topology);
    if (shape === undefined || this.inFlight === null || seq !== this.inFlight.seq) return;
    const { spec } = this.inFlight;
    this.answered = { seq, spec };
    this.#settle();
    // First what waits: the server computes it while the page paints this one.
    this.#send();
    this.listener.picture(decodeFrame(buffer, shape, spec));
  }
}
