/** <dump-opener>: opens graph dumps from files, chosen or dropped anywhere on the page. It names the files that are
 * no dumps, with the reason, and opens the others.
 * Call `choose()`, `refuse(problems)`. Events, bubbling: `dumps-open` {sources}. */

import { during } from "../core/activity.js";
import { emit, html } from "../core/dom.js";
import { DumpProblem } from "../core/dump/checks.js";
import { checkSize } from "../core/dump/dump.js";
import { beginsLikeDump, inOrder, readSource } from "../core/dump/sources.js";

/** @typedef {{name: string, message: string, where?: string}} Refusal where: path inside the dump */

/** Refused files listed. */
const MAX_TOLD = 6;

class DumpOpener extends HTMLElement {
  #input = html("input", { type: "file", accept: ".json,.json.gz,.gz,application/json,application/gzip", multiple: true,
    hidden: true, "aria-label": "Graph dumps" });
  #veil = html("p", { class: "veil", hidden: true },
    "Drop a graph dump to open it, or several dumps to step through them");
  #title = html("h2", {}, "This is not a graph dump");
  #told = html("div");
  #dialog = html("dialog", { class: "dump-problem", role: "alertdialog", "aria-label": "The file cannot be opened" },
    this.#title, this.#told, html("form", { method: "dialog" }, html("button", { class: "button" }, "Close")));

  connectedCallback() {
    this.append(this.#input, this.#veil, this.#dialog);
    this.#input.addEventListener("change", () => {
      const files = [...(this.#input.files ?? [])];
      // Choosing the same file again must fire another event.
      if (files.length > 0) void during(this.#open(files)).then(() => (this.#input.value = ""));
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
      const files = [...(event.dataTransfer?.files ?? [])];
      if (files.length > 0) void during(this.#open(files));
    });
  }

  choose() {
    this.#input.click();
  }

  /** @param {readonly Refusal[]} problems */
  refuse(problems) {
    this.#title.textContent = problems.length > 1 ? `${problems.length} files are not graph dumps`
      : "This is not a graph dump";
    const more = problems.length - MAX_TOLD;
    this.#told.replaceChildren(
      ...problems.slice(0, MAX_TOLD).map(({ name, message, where = "" }) =>
        html("section", {}, html("p", { class: "file" }, name), html("p", { class: "message" }, message),
          html("p", { class: "where mono", hidden: where === "" }, where))
      ),
      ...(more > 0 ? [html("p", { class: "file" }, `and ${more} more`)] : []),
    );
    if (!this.#dialog.open) this.#dialog.showModal();
  }

  /** @param {readonly File[]} files */
  async #open(files) {
    const sources = /** @type {DumpSource[]} */ ([]);
    const problems = /** @type {Refusal[]} */ ([]);
    for (const file of inOrder(files)) {
      const problem = await refusalOf(file, files.length === 1);
      if (problem === null) sources.push({ name: file.name, file });
      else problems.push(problem);
    }
    if (sources.length > 0) emit(this, "dumps-open", { sources });
    if (problems.length > 0) this.refuse(problems);
  }
}

/** Looks at the beginning of a file; a single file is checked when it is shown. @param {File} file
 * @param {boolean} isAlone @returns {Promise<Refusal | null>} null: it may be opened */
async function refusalOf(file, isAlone) {
  const { name } = file;
  try {
    checkSize(file.size);
    if (!isAlone && !(await beginsLikeDump(file))) await readSource({ name, file });
    return null;
  } catch (problem) {
    if (problem instanceof DumpProblem) return { name, message: problem.message, where: problem.where };
    return { name, message: "The file cannot be read." };
  }
}

/** @param {DragEvent} event @returns {boolean} */
function holdsFile({ dataTransfer }) {
  return dataTransfer?.types.includes("Files") === true;
}

customElements.define("dump-opener", DumpOpener);
