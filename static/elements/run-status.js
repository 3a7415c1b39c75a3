/** <run-status>: the loss, the connection, the time of the run, and the error if any.
 * Set `picture`, `connection`, `error`. `data-seq` is the sequence number of the picture shown. */

import { html, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";

/** A short text and its explanation. @type {Record<ConnectionState, [string, string]>} */
const CONNECTION = {
  connecting: ["connecting…", ""],
  live: ["live", ""],
  computing: ["computing…",
    "The server is there and needs more time for this picture. The last picture stays until the answer comes."],
  fetch: ["no live connection",
    "The server has no free live connection for this page, so each change is a separate request."],
  busy: ["server is busy, trying again",
    "The server is too busy for this request. The last picture stays until the server answers."],
  locked: ["token needed", "The server needs its token. Open the link that the server printed."],
  reconnecting: ["reconnecting…", "The page cannot reach the server. The last picture stays until it can."],
  offline: ["offline, reconnecting…", "There is no network. The last picture stays until the server can be reached."],
};

/** ms before a state is shown, so that short interruptions are not. */
const WRITE_AFTER = 400;
/** ms before a screen reader announces it */
const READ_AFTER = 1500;

class RunStatus extends HTMLElement {
  #loss = html("output", { class: "loss", "aria-label": "loss" });
  #error = html("p", { class: "error", role: "alert" });
  #connection = html("span", { class: "connection" });
  #time = html("span", { class: "time" });
  #news = html("span", { class: "visually-hidden", role: "status" });
  #writing = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  #reading = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  /** The state that was read out last: "live" is read out only after another state.
   * @type {ConnectionState} */
  #read = "live";

  connectedCallback() {
    const loss = html("p", { class: "loss-line" }, html("span", { class: "label" }, "loss"), this.#loss);
    this.append(loss, this.#error, html("p", { class: "foot" }, this.#connection, this.#time), this.#news);
  }

  /** @param {Picture} picture */
  set picture(picture) {
    write(this, "data-seq", String(picture.seq));
    writeText(this.#loss, picture.hidden?.loss === true ? "?" : significant(picture.loss));
    writeText(this.#time, Number.isFinite(picture.computeMs) ? `${significant(picture.computeMs)} ms` : "");
    write(this.#time, "title", "time of the whole pass on the server, with recording and statistics");
  }

  /** @param {ConnectionState} state */
  set connection(state) {
    const isFirst = this.dataset["connection"] === undefined;
    this.dataset["connection"] = state;
    clearTimeout(this.#writing);
    clearTimeout(this.#reading);
    if (state === "live" || isFirst) this.#write(state);
    else this.#writing = setTimeout(() => this.#write(state), WRITE_AFTER);
    if (state !== "connecting" && state !== "computing" && state !== this.#read)
      this.#reading = setTimeout(() => {
        this.#read = state;
        const [word, meaning] = CONNECTION[state];
        writeText(this.#news, state === "live" ? "Live again" : meaning || word);
      }, READ_AFTER);
  }

  /** @param {ConnectionState} state */
  #write(state) {
    const [word, meaning] = CONNECTION[state];
    writeText(this.#connection, word);
    write(this.#connection, "title", meaning);
    // For the dot: it turns with the word.
    this.dataset["shown"] = state;
  }

  /** @param {ErrorBody | null} error */
  set error(error) {
    this.#error.textContent = error?.message ?? "";
    this.#error.hidden = error === null;
  }
}

customElements.define("run-status", RunStatus);
