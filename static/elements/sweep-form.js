/** <sweep-form>: the base spec, the axes, the measure and the seeds of a map. Set `page` once, `form`, and `error`: why the
 * server refused the form. Event, bubbling: `form-change` {form}. */

import { emit, html, writeText } from "../core/dom.js";

class SweepForm extends HTMLElement {
  #spec = html("input", { type: "text", name: "spec", autocomplete: "off", spellcheck: "false" });
  #link = html("a", { href: "/" }, "Open this spec in the explorer");
  #measure = html("select", { name: "measure" });
  #argument = html("input", { type: "text", name: "argument", autocomplete: "off" });
  #argumentName = html("span");
  #argumentLabel = html("label", {}, this.#argumentName, this.#argument);
  #doc = html("p", { class: "more" });
  #seeds = html("input", { type: "text", name: "seeds", inputmode: "numeric", autocomplete: "off" });
  #x = axisFields("x", "X axis");
  #y = axisFields("y", "Y axis");
  #error = html("p", { class: "page-error", role: "alert", hidden: true });
  /** @type {readonly SweepMeasure[]} */
  #measures = [];

  connectedCallback() {
    const labelled = (/** @type {string} */ text, /** @type {HTMLElement} */ field) => html("label", {}, text, field);
    const form = html("form", {}, this.#x.fields, this.#y.fields, labelled("Colour", this.#measure), this.#doc,
      this.#argumentLabel, labelled("Seeds per net", this.#seeds), labelled("Spec of all nets", this.#spec), this.#link,
      html("button", { class: "button", type: "submit" }, "Draw the map"), this.#error);
    this.append(form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      emit(this, "form-change", { form: this.form });
    });
    this.#measure.addEventListener("change", () => {
      this.#argument.value = "";
      this.#tell();
      // There is no usual loss.
      if (this.#chosen?.argument === "loss") this.#argument.focus();
      else form.requestSubmit();
    });
    this.#spec.addEventListener("input", () => this.#tell());
    for (const axis of [this.#x, this.#y]) {
      axis.key.addEventListener("change", () => {
        axis.over.value = axis.key.selectedOptions[0]?.dataset["over"] ?? "";
        axis.over.disabled = axis.key.value === "";
        form.requestSubmit();
      });
    }
  }

  /** @param {MapPageData} page */
  set page({ axes, measures }) {
    this.#measures = measures;
    this.#measure.replaceChildren(...measures.map(({ name, title }) => html("option", { value: name }, title)));
    for (const { key } of [this.#x, this.#y]) {
      key.append(
        ...axes.map(({ name, doc, over }) =>
          html("option", { value: name, title: doc, "data-over": over.replace(`${name}=`, "") }, name)
        ),
      );
    }
    this.#y.key.append(html("option", { value: "" }, "none"));
  }

  /** @param {MapForm} form */
  set form({ spec, x, y, seeds, measure }) {
    this.#spec.value = decodeURIComponent(spec);
    [this.#measure.value = "", this.#argument.value = ""] = measure.split(":");
    this.#seeds.value = String(seeds);
    for (const [axis, text] of /** @type {const} */ ([[this.#x, x], [this.#y, y]])) {
      const [, key = "", over = ""] = /^([^=]*)=(.*)$/.exec(text) ?? [];
      if (![...axis.key.options].some(({ value }) => value === key))
        axis.key.append(html("option", { value: key }, key));
      axis.key.value = key;
      axis.over.value = over;
      axis.over.disabled = key === "";
    }
    this.#tell();
  }

  /** @returns {MapForm} */
  get form() {
    const textOf = (/** @type {ReturnType<typeof axisFields>} */ { key, over }) =>
      key.value === "" ? "" : `${key.value}=${over.value.trim()}`;
    const argument = this.#argument.value.trim();
    return { spec: this.#spec.value.trim().replace(/^\?/, ""), x: textOf(this.#x), y: textOf(this.#y),
      seeds: Number(this.#seeds.value), measure: this.#measure.value + (argument && `:${argument}`) };
  }

  /** @param {ErrorBody | null} error */
  set error(error) {
    this.#error.hidden = error === null;
    writeText(this.#error, error?.message ?? "");
  }

  #tell() {
    this.#link.href = `/?${this.#spec.value.trim()}`;
    const argument = this.#chosen?.argument ?? "";
    writeText(this.#doc, this.#chosen?.doc ?? "");
    writeText(this.#argumentName, argument === "loss" ? "Loss to reach" : "Layer (empty: the last hidden one)");
    this.#argumentLabel.hidden = argument === "";
  }

  get #chosen() {
    return this.#measures.find(({ name }) => name === this.#measure.value);
  }
}

/** @param {string} name @param {string} title */
function axisFields(name, title) {
  const key = html("select", { name: `${name}-key`, "aria-label": `${title}: key` });
  const over = html("input", { type: "text", name: `${name}-over`, autocomplete: "off", spellcheck: "false",
    "aria-label": `${title}: values`, title: "FROM:TO:COUNT, log:FROM:TO:COUNT, or values with commas" });
  return { key, over, fields: html("fieldset", {}, html("legend", {}, title), key, over) };
}

customElements.define("sweep-form", SweepForm);
