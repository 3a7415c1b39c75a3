/**
 * <dump-note>: what the dump on the screen says of itself, in the place of the controls.
 *
 * Call `show(name, dump, canClose)`; set `picture`. Events, bubbling: `dump-close`.
 */

import { emit, html, writeText } from "../core/dom.js";
import { count, significant } from "../core/format.js";

/** @typedef {import("../core/types.js").Dump} Dump */
/** @typedef {import("../core/types.js").Picture} Picture */

class DumpNote extends HTMLElement {
  #loss = html("dd");

  /** @param {Picture} picture whose loss may wait for a guess */
  set picture({ loss, hidden }) {
    writeText(this.#loss, hidden?.loss === true ? "?" : significant(loss));
  }

  /** @param {string} name @param {Dump} dump @param {boolean} canClose whether there is anything to go back to */
  show(name, { spec, environment, error, ops, tensors }, canClose) {
    const close = html("button", { type: "button", class: "button" }, "Back to the live explorer");
    close.addEventListener("click", () => emit(this, "dump-close", {}));
    const figures = [
      ["ops", count(ops.length)],
      ["tensors", count(tensors.length)],
    ];
    this.replaceChildren(
      html("h2", {}, "Graph dump"),
      html("p", { class: "file" }, name),
      ...(error === null ? [] : [html("p", { class: "error", role: "alert" }, `The recording broke off${error.op === null ? "" : ` at ${error.op}`}: ${error.message}`)]),
      list(figures, html("dt", {}, "loss"), this.#loss),
      ...(spec === null ? [] : [html("h3", {}, "Spec"), list(written(spec))]),
      ...(Object.keys(environment).length === 0 ? [] : [html("h3", {}, "Recorded with"), list(written(environment))]),
      ...(canClose ? [close] : []),
    );
  }
}

/** @param {Record<string, unknown>} values @returns {string[][]} */
function written(values) {
  return Object.entries(values).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
}

/** @param {readonly string[][]} rows @param {readonly Node[]} first @returns {HTMLElement} */
function list(rows, ...first) {
  return html("dl", {}, ...first, ...rows.flatMap(([name = "", value = ""]) => [html("dt", {}, name), html("dd", {}, value)]));
}

customElements.define("dump-note", DumpNote);
