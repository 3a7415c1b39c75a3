/** <spec-presets>: the menu of the chapter's experiments, each with the printed figure.
 * Set `presets`, `current` (the query of the spec shown), `secretive` (hides figures that would reveal a guess).
 * Event, bubbling: `preset-choose` {preset}. */

import { emit, html, put, writeText } from "../core/dom.js";

class SpecPresets extends HTMLElement {
  #details = html("details", { class: "menu" });
  #list = html("div", { class: "menu-list" });
  #current = html("span", { class: "current" });
  #notes = /** @type {WeakMap<HTMLElement, string>} */ (new WeakMap());

  connectedCallback() {
    this.#details.append(html("summary", {}, "Presets", this.#current), this.#list);
    this.append(this.#details);
    this.#list.addEventListener("keydown", (event) => this.#walk(event));
  }

  /** @param {readonly Preset[]} presets */
  set presets(presets) {
    this.#list.replaceChildren(...presets.map((preset) => {
      const figure = preset.printed === "–" ? `theory ${preset.theory}` : `printed ${preset.printed}`;
      const button = html("button", { type: "button", "data-preset": preset.name, "data-query": preset.query },
        html("span", {}, preset.title), html("small", {}, figure));
      button.title = preset.note;
      this.#notes.set(button, preset.note);
      button.addEventListener("click", () => {
        this.#details.open = false;
        this.#details.querySelector("summary")?.focus();
        emit(this, "preset-choose", { preset });
      });
      return button;
    }));
  }

  /** @param {string} query */
  set current(query) {
    let title = "";
    for (const button of this.#list.querySelectorAll("button")) {
      if (button.dataset["query"] !== query) {
        button.removeAttribute("aria-current");
        continue;
      }
      button.setAttribute("aria-current", "true");
      // Two experiments may share a run: the first names it.
      title ||= button.querySelector("span")?.textContent ?? "";
    }
    writeText(this.#current, title);
  }

  /** @param {boolean} secretive */
  set secretive(secretive) {
    for (const button of this.#list.querySelectorAll("button")) {
      put(button, "title", secretive ? "" : (this.#notes.get(button) ?? ""));
      const figure = button.querySelector("small");
      if (figure !== null) put(figure, "hidden", secretive);
    }
  }

  /** @param {KeyboardEvent} event */
  #walk(event) {
    const buttons = [...this.#list.querySelectorAll("button")];
    const at = buttons.findIndex((button) => button === document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[(to + buttons.length) % buttons.length]?.focus();
  }
}

customElements.define("spec-presets", SpecPresets);
