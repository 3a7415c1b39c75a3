/** <dump-note>: the spec, environment and size of the dump on the screen, instead of the controls.
 * Call `tell(name, bytes)` while it is read, then `show(name, dump, canClose, place)`; set `picture`. Events, bubbling: `dump-close`. */

import { buttonOf, emit, html, writeText } from "../core/dom.js";
import { count, significant } from "../core/format.js";

class DumpNote extends HTMLElement {
  #loss = html("dd");
  #file = html("p", { class: "file" });
  #read = html("p", { role: "status" });

  /** @param {Picture} picture its loss may be hidden until a guess */
  set picture({ loss, hidden }) {
    writeText(this.#loss, hidden?.loss === true ? "?" : significant(loss));
  }

  /** Shows how much of a dump has been read. @param {string} name @param {number} bytes */
  tell(name, bytes) {
    writeText(this.#file, name);
    writeText(this.#read, `${Math.round(bytes / 1e6)} MB read`);
    if (this.#read.isConnected) return;
    this.replaceChildren(html("h2", {}, "Graph dump"), this.#file, this.#read);
  }

  /** @param {string} name @param {DumpFacts} dump @param {boolean} canClose to the live explorer
   * @param {string} place "2 of 5", or "" for a single dump */
  show(name, { spec, environment, error, ops, tensors }, canClose, place) {
    const close = buttonOf({ class: "button" }, () => emit(this, "dump-close", {}), "Back to the live explorer");
    const failed = ops.find(({ id }) => id === error?.op);
    const figures = [
      ["ops", count(ops.length)],
      ["tensors", count(tensors.length)],
    ];
    this.replaceChildren(html("h2", {}, "Graph dump"),
      html("p", { class: "file" }, name, ...(place === "" ? [] : [" ", html("small", {}, place)])),
      ...(error === null ? [] : [
        html("p", { class: "error", role: "alert" },
          `The recording failed${failed === undefined ? "" : ` at ${failed.name}`}: ${error.message}`),
      ]), list(figures, html("dt", {}, "loss"), this.#loss),
      ...(spec === null ? [] : [html("h3", {}, "Spec"), list(written(spec))]),
      ...(Object.keys(environment).length === 0 ? [] : [html("h3", {}, "Recorded with"), list(written(environment))]),
      ...(canClose ? [close] : []));
  }
}

/** @param {Record<string, unknown>} values
 * @returns {string[][]} without empty values, such as the spec of a model as it is */
function written(values) {
  return Object.entries(values).flatMap(([name, value]) =>
    value === "" ? [] : [[name, typeof value === "string" ? value : JSON.stringify(value)]]
  );
}

/** @param {readonly string[][]} rows @param {readonly Node[]} first @returns {HTMLElement} */
function list(rows, ...first) {
  return html("dl", {}, ...first,
    ...rows.flatMap(([name = "", value = ""]) => [html("dt", {}, name), html("dd", {}, value)]));
}

customElements.define("dump-note", DumpNote);
