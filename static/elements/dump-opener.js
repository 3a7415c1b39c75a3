/**
 * <dump-opener>: a graph dump from a file, chosen or dropped anywhere on the page. A file that is none is said to be
 * none, and why; what was shown stays.
 *
 * Call `choose()`, `read(text, name)`. Events, bubbling: `dump-open` {dump, name}.
 */

import { emit, html } from "../core/dom.js";
import { DumpProblem, checkSize, readDump } from "../core/dump/dump.js";

class DumpOpener extends HTMLElement {
  #input = html("input", { type: "file", accept: ".json,application/json", hidden: true, "aria-label": "Graph dump" });
  #veil = html("p", { class: "veil", hidden: true }, "Drop a graph dump to open it");
  #title = html("h2", {}, "This is no graph dump");
  #file = html("p", { class: "file" });
  #message = html("p", { class: "message" });
  #where = html("p", { class: "where mono" });
  #dialog = html(
    "dialog",
    { class: "dump-problem", role: "alertdialog", "aria-label": "The file cannot be opened" },
    this.#title,
    this.#file,
    this.#message,
    this.#where,
    html("form", { method: "dialog" }, html("button", { class: "button" }, "Close")),
  );

  connectedCallback() {
    this.append(this.#input, this.#veil, this.#dialog);
    this.#input.addEventListener("change", () => {
      const file = this.#input.files?.[0];
      // The same file again is another choice.
      if (file !== undefined) void this.#open(file).then(() => (this.#input.value = ""));
    });
    addEventListener("dragover", (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      this.#veil.hidden = false;
    });
    addEventListener("dragleave", ({ relatedTarget }) => {
      if (relatedTarget === null) this.#veil.hidden = true;
    });
    addEventListener("drop", (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      this.#veil.hidden = true;
      const file = event.dataTransfer?.files[0];
      if (file !== undefined) void this.#open(file);
    });
  }

  /** Asks for a file. */
  choose() {
    this.#input.click();
  }

  /** @param {string} text @param {string} name of the file it comes from */
  read(text, name) {
    try {
      emit(this, "dump-open", { dump: readDump(text), name });
    } catch (problem) {
      if (!(problem instanceof DumpProblem)) throw problem;
      this.refuse(problem, name);
    }
  }

  /** Says what is wrong with a file. @param {{message: string, where?: string}} problem @param {string} name */
  refuse({ message, where = "" }, name) {
    this.#file.textContent = name;
    this.#message.textContent = message;
    this.#where.textContent = where;
    this.#where.hidden = where === "";
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  /** @param {File} file */
  async #open(file) {
    try {
      checkSize(file.size);
    } catch (problem) {
      if (!(problem instanceof DumpProblem)) throw problem;
      this.refuse(problem, file.name);
      return;
    }
    let text;
    try {
      text = await file.text();
    } catch {
      this.refuse({ message: "The file cannot be read." }, file.name);
      return;
    }
    this.read(text, file.name);
  }
}

/** @param {DragEvent} event @returns {boolean} */
function holdsFile({ dataTransfer }) {
  return dataTransfer?.types.includes("Files") === true;
}

customElements.define("dump-opener", DumpOpener);
