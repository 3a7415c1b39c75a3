/** The live connection: it sends specs and receives pictures. The latest waiting spec replaces earlier ones, here and at
 * the server: while that computes, newer specs follow, and it begins with the newest as soon as it is free.
 * The socket comes back by itself and asks for the last spec again. If a server answers but gives no socket, the spec
 * is fetched as a dump. No request is dropped before its answer. */

import { begin, cancel, later } from "./activity.js";
import { ApiError, apiPath, getJson, isReachable, liveUrl } from "./api.js";
import { decodeFrame, frameHeader, pictureOfDump, rowIndex } from "./picture.js";

/** @typedef {object} Listener
 * @property {(picture: Picture) => void} picture
 * @property {(theory: Theory, spec: Spec) => void} theory comes after its picture, or after a later one, or not at all
 * @property {(error: ErrorBody, spec: Spec) => void} error
 * @property {(state: ConnectionState) => void} state
 * @property {(message: TrainingMessage, spec: Spec) => void} [training] comes after its picture
 * @property {(news: ModelNews) => void} [model] the model's code was read again */

/** @typedef {{seq: number, spec: Spec, at: number}} Asked */
/** @typedef {{spec: Spec, at: number, isPatient: boolean, hasPicture: boolean, controller: AbortController}} Fetching */

/** The least time between two specs on a socket. */
const SEND_EVERY_MS = 15;
/** After this long without an answer a newer spec is fetched, which ends the connection of the older. */
const OVERTAKE_FETCH_MS = 1000;

// A healthy server with thirty sockets in line may take a minute for a picture; one that is gone never answers. A ping
// tells them apart, since it is answered before every picture: it is sent after a silence, and a socket without an
// answer to it counts as dead.
const QUIET_MS = 2000;
const PING = JSON.stringify({ type: "ping" });
/** Wait for the answer; doubled after each lost socket, since on a slow line it may come behind a large picture. */
const PATIENCE_MS = 2000;
const PATIENCE_LAST_MS = 30_000;
/** A timer this late shows that the page was busy or asleep: messages may be waiting to be read. */
const LATE_MS = 500;
/** A page that becomes visible after this silence checks its socket. */
const STALE_MS = 15_000;

/** A socket that opens more slowly than this is bridged by fetching a dump. */
const SLOW_MS = 2000;
/** Browsers hold back sockets to a host that has refused many, by up to 5 s. */
const OPEN_WITHIN_MS = 8000;
/** [least, most] ms until a lost socket is opened again; random, so that thirty pages do not come at once. */
const FIRST_MS = /** @type {const} */ ([50, 300]);
/** [least, most] ms between two looks for a lost server. */
const AGAIN_MS = /** @type {const} */ ([500, 1200]);
/** First and longest wait for another socket while the server gives none. */
const SOCKET_MS = 1000;
const SOCKET_LAST_MS = 15_000;

/** A fetch without an answer checks this often whether a server is there, at most FETCH_LOOKS times. */
const FETCH_QUIET_MS = 3000;
const FETCH_LOOKS = 20;
/** Seconds until a busy server is asked again: if it does not say, and at most. */
const RETRY_AFTER = 1;
const RETRY_AFTER_MOST = 30;

const NEW_TOKEN = "The server restarted with another token. Open the link that it printed; your settings stay.";

const TOPOLOGIES_KEPT = 8;

/** Failed theory is never sent: after this long the page counts as idle. */
const THEORY_MS = 10_000;

export class Live {
  state = /** @type {ConnectionState} */ ("connecting");
  seq = 0;
  shapes = 0;
  waiting = /** @type {Spec | null} */ (null);
  last = /** @type {Spec | null} */ (null);
  /** Ends the activity of the open request. */
  endAsking = () => {};
  /** Ends the activity of the last answer's theory. */
  theoryTimer = 0;

  /** null unless it is open. */
  socket = /** @type {WebSocket | null} */ (null);
  /** Ends the socket, open or opening. */
  end = () => {};
  /** In flight on the socket, oldest first. */
  asked = /** @type {Asked[]} */ ([]);
  topologies = /** @type {Map<number, {key: string, topology: Topology, rows: Map<string, number>}>} */ (new Map());
  answered = /** @type {Asked | null} */ (null);
  heardAt = 0;
  pingedAt = /** @type {number | null} */ (null);
  pings = 0;
  patience = PATIENCE_MS;
  /** Whether the server has said, by a pong, that it is there and has no answer yet. */
  isSlow = false;
  watch = 0;
  watchDue = 0;
  sending = 0;

  // Without a socket.
  canFetch = false;
  fetching = /** @type {Fetching | null} */ (null);
  /** Whether the server was too busy for the last request. */
  isBusy = false;
  /** Timer until a busy server is asked again. */
  rest = 0;
  /** Whether the server wants a token that this page does not have. */
  isLocked = false;
  dumpShape = { text: "", key: "" };
  /** Cuts the wait for the next try short. */
  hurry = (/** @type {number} */ _ms) => {};

  /** @param {Listener} listener
   * @param {(spec: Spec) => string} query the canonical query of a spec, for the way without a socket */
  constructor(listener, query) {
    this.listener = listener;
    this.query = query;
  }

  /** Opens the socket; call once. */
  start() {
    // A machine without a network still reaches a server of its own: this is a reason to look, and nothing more.
    for (const type of ["online", "offline"]) addEventListener(type, () => this.#look(0));
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.#look(STALE_MS);
    });
    void this.#keep();
  }

  /** Asks for the picture of a spec. An earlier one that has not been sent yet is dropped. @param {Spec} spec */
  request(spec) {
    this.last = spec;
    this.endAsking();
    this.endAsking = begin();
    this.waiting = spec;
    this.#send();
  }

  /** Keeps a socket, for as long as the page is there. */
  async #keep() {
    /** Sockets in a row that a server did not open. */
    let refused = 0;
    /** Sockets in a row that opened and ended without a word. */
    let mute = 0;
    for (;;) {
      const before = this.heardAt;
      if (await this.#open()) {
        refused = 0;
        mute = this.heardAt === before ? mute + 1 : 0;
        await this.#pause(between(mute === 0 ? FIRST_MS : AGAIN_MS));
      } else if (await isReachable()) {
        // A proxy without WebSockets, or every socket of the server is taken. A dump may still be had.
        this.#fetchFromNow();
        await this.#pause(Math.min(SOCKET_MS * 2 ** refused++, SOCKET_LAST_MS) * (0.5 + Math.random() / 2));
      } else {
        refused = 0;
        await this.#until(() => false);
      }
    }
  }

  /** Waits for a server. Sockets that fail are no way to find out: browsers hold back the next ones.
   * @param {() => boolean} isOver whether nobody waits any more */
  async #until(isOver) {
    do {
      this.canFetch = false;
      this.#tell();
      await this.#pause(between(AGAIN_MS));
    } while (!isOver() && !(await isReachable()));
  }

  /** @param {number} ms @returns {Promise<void>} or earlier, if there is reason to hurry */
  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.hurry = (soon) => {
        this.hurry = () => {};
        clearTimeout(timer);
        setTimeout(resolve, soon);
      };
    });
  }

  /** @returns {Promise<boolean>} once the socket is over: whether it had been open */
  #open() {
    return new Promise((resolve) => {
      const socket = new WebSocket(liveUrl());
      socket.binaryType = "arraybuffer";
      const listening = new AbortController();
      const { signal } = listening;
      // Called by us too: the browser waits seconds for the other side before it says that a socket is closed.
      const over = () => {
        if (signal.aborted) return;
        listening.abort();
        clearTimeout(slow);
        clearTimeout(deadline);
        this.end = () => {};
        socket.close();
        const wasOpen = this.socket === socket;
        if (wasOpen) this.#lose();
        resolve(wasOpen);
      };
      this.end = over;
      const slow = setTimeout(async () => {
        const isOver = () => signal.aborted || this.socket !== null;
        if (!(await isReachable())) await this.#until(isOver);
        if (!isOver()) this.#fetchFromNow();
      }, SLOW_MS);
      const deadline = setTimeout(over, OPEN_WITHIN_MS);
      const opened = () => {
        clearTimeout(slow);
        clearTimeout(deadline);
        this.socket = socket;
        this.#enter();
      };
      socket.addEventListener("open", opened, { signal });
      socket.addEventListener("message", (event) => this.#receive(event.data), { signal });
      socket.addEventListener("close", over, { signal });
      // One that a policy of the browser forbids reports an error and never closes.
      socket.addEventListener("error", () => socket.readyState === WebSocket.CLOSED && over(), { signal });
    });
  }

  #enter() {
    this.topologies.clear();
    this.asked = [];
    this.pingedAt = null;
    this.pings = 0;
    this.isSlow = false;
    clearTimeout(this.sending);
    this.sending = 0;
    this.#leaveFetch();
    this.isLocked = false;
    this.#tell();
    if (this.last !== null) this.request(this.last);
  }

  #lose() {
    cancel(this.theoryTimer);
    this.socket = null;
    this.asked = [];
    clearTimeout(this.watch);
    this.watch = 0;
    // Whatever was in flight gets no answer any more; and what was answered may be answered otherwise by another
    // server.
    this.waiting = this.last;
    this.#tell();
  }

  /** Tells how the server is reached, if that has changed. */
  #tell() {
    const fetching = this.isLocked ? "locked" : this.isBusy ? "busy" : "fetch";
    const state = this.socket !== null ? (this.isSlow ? "computing" : "live")
      : this.canFetch ? fetching : navigator.onLine ? "reconnecting" : "offline";
    if (this.state === state) return;
    this.state = state;
    this.listener.state(state);
  }

  /** There is reason to doubt how things were. @param {number} quiet ms that the socket may have been quiet */
  #look(quiet) {
    if (this.socket === null) {
      if (this.state !== "connecting") this.#tell();
      // One that has waited since before may wait for what does not come.
      this.end();
      this.hurry(between(FIRST_MS));
    } else if (performance.now() - this.heardAt >= quiet && this.pingedAt === null) this.#ping(this.socket);
  }

  #send() {
    if (this.waiting === null) return;
    if (this.socket !== null) this.#sendOn(this.socket, this.waiting);
    else if (this.canFetch && this.rest === 0) this.#sendFetch(this.waiting);
  }

  // On the socket

  /** @param {WebSocket} socket @param {Spec} spec */
  #sendOn(socket, spec) {
    const at = performance.now();
    const wait = SEND_EVERY_MS - (at - (this.asked.at(-1)?.at ?? -Infinity));
    if (wait > 0) return this.#sendIn(wait);
    this.waiting = null;
    this.seq += 1;
    this.asked.push({ seq: this.seq, spec, at });
    socket.send(JSON.stringify({ seq: this.seq, spec }));
    if (this.watch === 0) this.#watchIn(QUIET_MS);
  }

  /** @param {number} ms after which what waits then is sent */
  #sendIn(ms) {
    this.sending ||= setTimeout(() => {
      this.sending = 0;
      this.#send();
    }, ms);
  }

  /** @param {number} ms */
  #watchIn(ms) {
    this.watchDue = performance.now() + ms;
    this.watch = setTimeout(() => this.#checkSocket(), ms);
  }

  /** Whether the socket is still one, while something is expected of it. */
  #checkSocket() {
    this.watch = 0;
    const { socket, pingedAt } = this;
    const oldest = this.asked[0];
    if (socket === null || (oldest === undefined && pingedAt === null)) return;
    const now = performance.now();
    const left = pingedAt === null ? QUIET_MS - (now - Math.max(this.heardAt, oldest?.at ?? 0))
      : this.patience - (now - pingedAt);
    if (left > 0) this.#watchIn(left);
    else if (pingedAt === null || now - this.watchDue > LATE_MS) this.#ping(socket);
    else {
      this.patience = Math.min(2 * this.patience, PATIENCE_LAST_MS);
      this.end();
    }
  }

  /** @param {WebSocket} socket */
  #ping(socket) {
    this.pingedAt = performance.now();
    this.pings += 1;
    socket.send(PING);
    clearTimeout(this.watch);
    this.#watchIn(this.patience);
  }

  /** @param {string | ArrayBuffer} data */
  #receive(data) {
    this.heardAt = performance.now();
    this.pingedAt = null;
    if (typeof data !== "string") return this.#frame(data);
    const message = JSON.parse(data);
    if (message.type === "topology") {
      this.shapes += 1;
      const topology = /** @type {Topology} */ (message.trace);
      this.topologies.set(message.topology, { key: `shape ${this.shapes}`, topology, rows: rowIndex(topology) });
      for (const key of this.topologies.keys()) if (this.topologies.size > TOPOLOGIES_KEPT) this.topologies.delete(key);
    } else if (message.type === "theory") {
      // Theory of an earlier picture is dropped.
      const { answered } = this;
      if (answered === null || answered.seq !== message.seq) return;
      this.listener.theory({ ...message.theory, faults: message.faults ?? [], seq: message.seq }, answered.spec);
      cancel(this.theoryTimer);
    } else if (message.type === "training") {
      const { answered } = this;
      if (answered !== null && answered.seq === message.seq) this.listener.training?.(message, answered.spec);
    } else if (message.type === "error") this.#refused(message.seq, message.error);
    else if (message.type === "model") this.listener.model?.(message);
    else if (message.type === "pong") {
      this.pings -= 1;
      this.isSlow = this.asked.length > 0;
      this.#tell();
    }
  }

  /** @param {number | null} seq null: of a message that could not be read @param {ErrorBody} error */
  #refused(seq, error) {
    if (seq === null && this.pings > 0) {
      // An older server does not know pings, but its answer shows that it runs.
      this.pings -= 1;
      return;
    }
    const spec = seq === null ? this.last : (this.#answer(seq)?.spec ?? null);
    if (seq === null) {
      this.asked = [];
      this.isSlow = false;
    }
    // The server is stopping; the next one computes this.
    if (error.code === "stopped") return this.end();
    if (spec !== null) this.listener.error(error, spec);
    this.#send();
    this.#endAnswered();
  }

  /** @param {ArrayBuffer} buffer */
  #frame(buffer) {
    const { seq, topology } = frameHeader(buffer);
    const shape = this.topologies.get(topology);
    const asked = this.#answer(seq);
    if (shape === undefined || asked === null) return;
    this.answered = asked;
    // Send the waiting spec first: the server computes it while the page paints.
    this.#send();
    cancel(this.theoryTimer);
    this.theoryTimer = later(() => {}, THEORY_MS);
    this.listener.picture(decodeFrame(buffer, shape, asked.spec));
    this.#endAnswered();
  }

  /** @returns {boolean} whether an answer is to come */
  get isAsking() {
    return this.waiting !== null || this.asked.length > 0;
  }

  /** Ends the wait unless a newer request is open. */
  #endAnswered() {
    if (!this.isAsking) this.endAsking();
  }

  /** Numbers are answered in their order: what was asked before is overtaken, and no answer to it will come.
   * @param {number} seq @returns {Asked | null} what was asked with this number, unless that has been answered */
  #answer(seq) {
    const asked = this.asked.find((each) => each.seq === seq) ?? null;
    if (asked === null) return null;
    this.asked = this.asked.filter((each) => each.seq > seq);
    this.isSlow = false;
    this.#tell();
    // The line is fast.
    if (this.heardAt - asked.at < QUIET_MS) this.patience = PATIENCE_MS;
    return asked;
  }

  // Without a socket

  #fetchFromNow() {
    this.canFetch = true;
    this.#tell();
    this.#send();
  }

  /** @param {Spec} spec */
  #sendFetch(spec) {
    const { fetching } = this;
    const at = performance.now();
    if (fetching !== null && !fetching.hasPicture) {
      // The one after a fetch that was given up is let finish: else nothing would ever come of a quick run of values.
      if (fetching.isPatient) return;
      const wait = OVERTAKE_FETCH_MS - (at - fetching.at);
      if (wait > 0) return this.#sendIn(wait);
    }
    fetching?.controller.abort();
    this.waiting = null;
    this.seq += 1;
    const isPatient = fetching !== null && !fetching.hasPicture;
    this.fetching = { spec, at, isPatient, hasPicture: false, controller: new AbortController() };
    void this.#fetch(this.fetching, this.seq);
  }

  /** @param {Fetching} fetching @param {number} seq */
  async #fetch(fetching, seq) {
    const { spec, controller } = fetching;
    const { signal } = controller;
    const query = this.query(spec);
    let looks = 0;
    const watch = setInterval(async () => {
      looks += 1;
      const isThere = looks < FETCH_LOOKS && (await isReachable());
      if (!isThere && this.fetching === fetching && !fetching.hasPicture) this.#leaveServer();
    }, FETCH_QUIET_MS);
    signal.addEventListener("abort", () => clearInterval(watch));
    try {
      const dump = await getJson(apiPath("trace.json", query), signal);
      clearInterval(watch);
      fetching.hasPicture = true;
      this.isBusy = false;
      this.isLocked = false;
      this.#tell();
      this.listener.picture({ ...pictureOfDump(dump, seq, this.#dumpKey(dump)), spec });
      // The page may have asked for the next one meanwhile.
      if (this.fetching === fetching) this.#endAnswered();
      if (this.waiting === null) await this.#fetchTheory(query, seq, spec, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.#failed(error, fetching);
    } finally {
      clearInterval(watch);
      if (this.fetching === fetching) {
        this.fetching = null;
        this.#send();
      }
    }
  }

  /** @param {string} query @param {number} seq @param {Spec} spec @param {AbortSignal} signal */
  async #fetchTheory(query, seq, spec, signal) {
    for (;;) {
      try {
        const theory = await getJson(apiPath("profile.json", query), signal);
        this.listener.theory({ ...theory, seq }, spec);
        return;
      } catch (error) {
        if (!(error instanceof ApiError) || !isBusy(error)) throw error;
        await new Promise((resolve) => setTimeout(resolve, restAfter(error)));
        signal.throwIfAborted();
      }
    }
  }

  /** @param {ApiError} error @param {Fetching} fetching */
  #failed(error, fetching) {
    const { spec, hasPicture } = fetching;
    if (error.isOfNobody) this.#leaveServer();
    // A picture is valid without its theory.
    else if (hasPicture) return;
    else if (isBusy(error) || error.status === 401) {
      // Not forgotten; by the next try there may be a newer one.
      this.waiting ??= spec;
      this.fetching = null;
      if (isBusy(error)) this.#restFor(restAfter(error));
      else if (!this.isLocked) {
        // The server has another token. Its link, opened in any tab, gives this one the cookie.
        this.isLocked = true;
        this.#tell();
        if (this.last !== null) this.listener.error({ code: error.body.code, message: NEW_TOKEN }, this.last);
      }
    } else {
      this.isBusy = false;
      this.#tell();
      this.listener.error(error.body, spec);
      this.#endAnswered();
    }
  }

  /** @param {number} ms that a busy server is left alone */
  #restFor(ms) {
    this.isBusy = true;
    this.rest ||= setTimeout(() => {
      this.rest = 0;
      this.#send();
    }, ms);
    this.#tell();
  }

  #leaveServer() {
    this.#leaveFetch();
    this.waiting = this.last;
    this.#tell();
    this.end();
    this.hurry(between(AGAIN_MS));
  }

  #leaveFetch() {
    this.canFetch = false;
    this.isBusy = false;
    this.fetching?.controller.abort();
    this.fetching = null;
    clearTimeout(this.rest);
    this.rest = 0;
  }

  /** @param {Dump} dump @returns {string} the key of the last dump where this one has its shape, else a new one */
  #dumpKey({ modules, ops, tensors, saved, layers }) {
    const text = JSON.stringify([modules, ops, tensors, saved, layers]);
    if (text !== this.dumpShape.text) {
      this.shapes += 1;
      this.dumpShape = { text, key: `shape ${this.shapes}` };
    }
    return this.dumpShape.key;
  }
}

/** @param {ApiError} error @returns {boolean} whether the same may be asked again later */
function isBusy({ status }) {
  return status === 503 || status === 429;
}

/** ms after which thirty pages do not all ask again at once. @param {ApiError} error @returns {number} */
function restAfter({ retryAfter }) {
  return (Math.min(retryAfter ?? RETRY_AFTER, RETRY_AFTER_MOST) + Math.random() / 2) * 1000;
}

/** @param {readonly [number, number]} range @returns {number} somewhere in it */
function between([least, most]) {
  return least + Math.random() * (most - least);
}
