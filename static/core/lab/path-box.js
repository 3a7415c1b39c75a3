/** A field for the path of a module: it offers those that there are, narrowed down by what is typed. Words of it may
 * stand anywhere in a path. Arrow keys walk the offers, Enter takes one, Escape leaves the field as it was. */

import { html } from "../dom.js";

/** The list shows the first of them. */
const MAX_OFFERED = 200;

export class PathBox {
  #list;
  #change;
  #all;
  #value = "";
  /** @type {readonly string[]} */
  #paths = [];
  /** @type {readonly string[]} */
  #offered = [];
  /** The offer that Enter takes; -1: the typed text. */
  #at = -1;

  /** @param {{id: string, label: string, all: string}} names all: what no path at all stands for
   * @param {(path: string) => void} change */
  constructor({ id, label, all }, change) {
    this.#all = all;
    this.#change = change;
    this.#list = html("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true });
    this.input = html("input", {
      ...{ type: "text", id, role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: all },
      ...{ "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": this.#list.id },
    });
    this.root = html("div", { class: "path-box" }, this.input, this.#list);
    const { input } = this;
    input.addEventListener("focus", () => input.select());
    input.addEventListener("click", () => this.#offer(""));
    input.addEventListener("input", () => this.#offer(input.value));
    input.addEventListener("keydown", (event) => this.#onKey(event));
    // Text that was typed but not taken is dropped.
    input.addEventListener("blur",
      () => this.#take(["", ...this.#paths].includes(input.value.trim()) ? input.value : this.#value));
    // The field keeps the focus, and with it what is typed.
    this.#list.addEventListener("mousedown", (event) => event.preventDefault());
    // Not on pointerdown, since a finger may begin to scroll.
    this.#list.addEventListener("click", (event) => {
      const option = event.target instanceof Element ? event.target.closest("[data-path]") : null;
      if (option instanceof HTMLElement) this.#take(option.dataset["path"] ?? "");
    });
  }

  /** @param {readonly string[]} paths */
  set paths(paths) {
    this.#paths = paths;
    if (this.#isOpen) this.#offer(this.input.value);
  }

  /** @param {string} path */
  set value(path) {
    this.#value = path;
    if (document.activeElement !== this.input || !this.#isOpen) this.input.value = path;
    this.input.title = path || this.#all;
  }

  get #isOpen() {
    return !this.#list.hidden;
  }

  /** @param {string} typed */
  #offer(typed) {
    const words = typed.toLowerCase().split(/\s+/);
    const found = ["", ...this.#paths].filter((path) =>
      words.every((word) => (path || this.#all).toLowerCase().includes(word))
    );
    this.#offered = found.slice(0, MAX_OFFERED);
    const options = this.#offered.map((path, order) =>
      html("li", { role: "option", id: `${this.#list.id}-${order}`, "data-path": path,
        "aria-selected": String(path === this.#value) }, path || this.#all)
    );
    const left = found.length - this.#offered.length;
    const rest = left > 0 ? `${left} more: type to narrow them down`
      : found.length === 0 ? "No module of this model has this name." : "";
    this.#list.replaceChildren(...options,
      ...(rest === "" ? [] : [html("li", { role: "presentation", class: "rest" }, rest)]));
    this.#list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.#walk(typed === "" ? this.#offered.indexOf(this.#value) : found.length > 0 ? 0 : -1);
  }

  /** @param {number} to one of the offers, or -1 */
  #walk(to) {
    this.#list.children[this.#at]?.classList.remove("active");
    this.#at = to;
    const option = this.#list.children[to];
    if (to < 0 || option === undefined) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    option.classList.add("active");
    option.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", option.id);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const { key } = event;
    const count = this.#offered.length;
    if (key === "ArrowDown" || key === "ArrowUp") {
      event.preventDefault();
      if (!this.#isOpen) this.#offer("");
      else if (count > 0) this.#walk((this.#at + (key === "ArrowDown" ? 1 : this.#at < 0 ? 0 : -1) + count) % count);
    } else if (key === "Enter") {
      event.preventDefault();
      this.#take(this.#isOpen && this.#at >= 0 ? (this.#offered[this.#at] ?? "") : this.input.value);
    } else if (key === "Escape" && this.#isOpen) {
      // Only the next Escape clears the page's selection.
      event.stopPropagation();
      this.input.value = this.#value;
      this.#close();
    }
  }

  /** @param {string} path */
  #take(path) {
    this.#close();
    const next = path.trim();
    this.input.value = next;
    if (next !== this.#value) this.#change(next);
  }

  #close() {
    this.#list.hidden = true;
    this.#at = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
