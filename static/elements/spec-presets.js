/**
 * <spec-presets>: the menu of the chapter's experiments.
 *
 * Set `presets`, `current` (the query of the spec shown). Event, bubbling: `preset-choose` {preset}.
 */

import { emit, html } from "../core/dom.js";

/** @typedef {import("../core/types.js").Preset} Preset */

class SpecPresets extends HTMLElement {
  #details = html("details", { class: "menu" });
  #list = html("div", { class: "menu-list" });

  connectedCallback() {
    this.#details.append(html("summary", {}, "Presets"), this.#list);
    this.append(this.#details);
  }

  /** @param {readonly Preset[]} presets */
  set presets(presets) {
    this.#list.replaceChildren(
      ...presets.map((preset) => {
        const figure = preset.printed && preset.printed !== "–" ? html("small", {}, `printed ${preset.printed}`) : "";
        const button = html("button", { type: "button", "data-preset": preset.name, "data-query": preset.query }, html("span", {}, preset.title), figure);
        button.title = preset.note;
        button.addEventListener("click", () => {
          this.#details.open = false;
          this.#details.querySelector("summary")?.focus();
          emit(this, "preset-choose", { preset });
        });
        return button;
      }),
    );
  }

  /** @param {string} query */
  set current(query) {
    for (const button of this.#list.querySelectorAll("button")) {
      if (button.dataset["query"] === query) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }
}

customElements.define("spec-presets", SpecPresets);
