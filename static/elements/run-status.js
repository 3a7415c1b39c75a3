/**
 * <run-status>: the loss, how the server is reached and how long it took, and what went wrong if anything did.
 *
 * Set `picture`, `connection`, `error`. The sequence number of the picture shown stands in `data-seq`.
 */

import { html, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";

/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").ErrorBody} ErrorBody */
/** @typedef {import("../core/live.js").ConnectionState} ConnectionState */

/** @type {Record<ConnectionState, string>} */
const CONNECTION = {
  connecting: "connecting…",
  live: "live",
  reconnecting: "connection lost, trying again…",
  fetch: "no live connection, answers come one by one",
};

class RunStatus extends HTMLElement {
  #loss = html("output", { class: "loss", "aria-label": "loss" });
  #error = html("p", { class: "error", role: "alert" });
  #connection = html("span", { class: "connection" });
  #time = html("span", { class: "time" });

  connectedCallback() {
    const loss = html("p", { class: "loss-line" }, html("span", { class: "label" }, "loss"), this.#loss);
    this.append(loss, this.#error, html("p", { class: "foot" }, this.#connection, this.#time));
  }

  /** @param {Picture} picture */
  set picture(picture) {
    this.dataset["seq"] = String(picture.seq);
    writeText(this.#loss, picture.hidden?.loss === true ? "?" : significant(picture.loss));
    writeText(this.#time, Number.isFinite(picture.computeMs) ? `${significant(picture.computeMs)} ms` : "");
    write(this.#time, "title", "server time for the whole pass, recording and statistics included");
  }

  /** @param {ConnectionState} state */
  set connection(state) {
    this.#connection.textContent = CONNECTION[state];
    this.dataset["connection"] = state;
  }

  /** @param {ErrorBody | null} error */
  set error(error) {
    this.#error.textContent = error?.message ?? "";
    this.#error.hidden = error === null;
  }
}

customElements.define("run-status", RunStatus);
