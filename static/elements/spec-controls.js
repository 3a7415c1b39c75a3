/**
 * <spec-controls>: every key of the spec. What keys there are, and what they allow, comes with the page data.
 *
 * Call `configure(pageData)`; set `spec`, `picture`, `error`. Event, bubbling: `spec-change` {change, moving}, where
 * `moving` says that the slider is still on its way.
 */

import { emit, html } from "../core/dom.js";
import { setting, significant, valueAt } from "../core/format.js";
import { decadeLabel, sliderScale } from "../core/scales.js";

/** @typedef {import("../core/types.js").Spec} Spec */
/** @typedef {import("../core/types.js").SpecKey} SpecKey */
/** @typedef {import("../core/types.js").PageData} PageData */
/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").ErrorBody} ErrorBody */

/** @typedef {HTMLInputElement | HTMLSelectElement} Control */
/** @typedef {{key: SpecKey, root: HTMLElement, control: Control, note: HTMLElement}} Field */

/** @type {Record<string, string>} */
const LABELS = {
  init: "Scheme",
  scale: "Init scale",
  widths: "Widths",
  activation: "Activation",
  style: "Style",
  seed: "Seed",
  last_activation: "Activation after the last layer",
  bias: "Biases",
  bias_std: "Std of biases",
  loss: "Loss",
  batch: "Batch",
  dtype: "Dtype",
  device: "Device",
};

const FIRST = ["init", "scale"];
const SECOND = ["widths", "activation", "style", "seed"];

/** Why a control means nothing at the moment. @type {Record<string, (spec: Spec) => string | null>} */
const DISABLED = {
  scale: (spec) => (spec["init"] === "zeros" ? "Zeros stay zero at every scale." : null),
  bias_std: (spec) =>
    spec["bias"] === false ? "There are no biases." : spec["init"] === "torch_default" ? "torch_default draws biases of its own." : null,
};

const FINE_STEP = 1;
const COARSE_STEP = 10;

class SpecControls extends HTMLElement {
  /** @type {Map<string, Field>} */
  #fields = new Map();
  /** @type {Spec} */
  #spec = {};
  #scale = sliderScale(1e-4, 1e4);
  #slider = html("input", { type: "range", class: "slider", min: "-1", max: "1", step: "any", "aria-label": "Init scale" });
  #sigma = html("output", { class: "sigma" });
  #more = html("details", { class: "more" }, html("summary", {}, "More"));
  #keyboardMoving = false;

  /** @param {PageData} page */
  configure({ keys, devices }) {
    const byName = new Map(keys.map((key) => [key.name, key]));
    const rest = keys.map(({ name }) => name).filter((name) => !FIRST.includes(name) && !SECOND.includes(name));
    /** @param {readonly string[]} names */
    const fields = (names) => names.flatMap((name) => this.#field(byName.get(name), devices) ?? []);
    const first = html("div", { class: "group first" }, ...fields(FIRST));
    const second = html("div", { class: "group second" }, ...fields(SECOND));
    this.#more.append(html("div", { class: "group" }, ...fields(rest)));
    this.replaceChildren(first, second, this.#more);
  }

  /**
   * @param {SpecKey | undefined} key
   * @param {readonly string[]} devices
   * @returns {HTMLElement | undefined}
   */
  #field(key, devices) {
    if (key === undefined) return undefined;
    const { name } = key;
    const control = this.#control(key, devices);
    control.id = `spec-${name}`;
    control.title = key.doc;
    const note = html("p", { class: "note", id: `spec-${name}-note` });
    control.setAttribute("aria-describedby", note.id);
    const label = html("label", { for: control.id, title: key.doc }, LABELS[name] ?? name);
    const root = html("div", { class: `field ${key.kind}`, "data-key": name }, label, control);
    if (name === "seed") root.append(this.#dice());
    if (name === "scale" && control instanceof HTMLInputElement) this.#wireScale(key, root, control);
    root.append(note);
    this.#fields.set(name, { key, root, control, note });
    control.addEventListener("change", () => this.#change(name, this.#read(key, control)));
    return root;
  }

  /** @param {SpecKey} key @param {readonly string[]} devices @returns {Control} */
  #control(key, devices) {
    if (key.kind === "bool") return html("input", { type: "checkbox" });
    if (key.kind === "choice") {
      const options = (key.choices ?? []).map((choice) => {
        const isAbsent = key.name === "device" && !devices.includes(choice);
        return html("option", { value: choice, disabled: isAbsent }, isAbsent ? `${choice} (none here)` : choice);
      });
      return html("select", {}, ...options);
    }
    // Text rather than number fields: what does not read as a number goes to the server too, which says what is allowed.
    const inputmode = key.kind === "int" ? "numeric" : key.kind === "float" ? "decimal" : "text";
    return html("input", { type: "text", inputmode, autocomplete: "off", spellcheck: "false" });
  }

  /** @returns {HTMLButtonElement} */
  #dice() {
    const button = html("button", { type: "button", class: "icon-button dice", title: "Another seed", "aria-label": "Another seed" }, "⚄");
    button.addEventListener("click", () => {
      const [number = 0] = crypto.getRandomValues(new Uint32Array(1));
      this.#change("seed", number % 10_000);
    });
    return button;
  }

  /** @param {SpecKey} key @param {HTMLElement} root @param {HTMLInputElement} typed */
  #wireScale(key, root, typed) {
    const [minimum, maximum] = [key.minimum ?? 1e-4, key.maximum ?? 1e4];
    this.#scale = sliderScale(minimum, maximum);
    this.#slider.title = key.doc;
    this.#slider.addEventListener("input", () => this.#change("scale", this.#scale.value(Number(this.#slider.value)), true));
    this.#slider.addEventListener("change", () => this.#change("scale", this.#scale.value(Number(this.#slider.value))));
    this.#slider.addEventListener("keydown", (event) => this.#sliderKey(event, minimum, maximum));
    for (const type of ["keyup", "blur"]) this.#slider.addEventListener(type, () => this.#keyboardStops());

    const ticks = html("div", { class: "ticks", "aria-hidden": "true" });
    for (const exponent of [-4, -2, -1, 0, 1, 2, 4]) {
      if (10 ** exponent < minimum || 10 ** exponent > maximum) continue;
      const tick = html("span", {}, decadeLabel(exponent));
      tick.style.setProperty("--at", String((this.#scale.position(10 ** exponent) + 1) / 2));
      ticks.append(tick);
    }
    typed.before(html("span", { class: "times", "aria-hidden": "true" }, "×"));
    root.append(this.#sigma, this.#slider, ticks);
  }

  /** @param {KeyboardEvent} event @param {number} minimum @param {number} maximum */
  #sliderKey(event, minimum, maximum) {
    const step = event.shiftKey ? COARSE_STEP : FINE_STEP;
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: COARSE_STEP, PageDown: -COARSE_STEP };
    const by = steps[event.key];
    const ends = event.key === "Home" ? minimum : event.key === "End" ? maximum : undefined;
    if (by === undefined && ends === undefined) return;
    event.preventDefault();
    this.#keyboardMoving = true;
    this.#change("scale", ends ?? this.#scale.step(Number(this.#spec["scale"]), by ?? 0), true);
  }

  #keyboardStops() {
    if (!this.#keyboardMoving) return;
    this.#keyboardMoving = false;
    this.#change("scale", Number(this.#spec["scale"]));
  }

  /** @param {SpecKey} key @param {Control} control @returns {string | number | boolean} */
  #read(key, control) {
    if (control instanceof HTMLInputElement && control.type === "checkbox") return control.checked;
    const text = control.value.trim();
    const number = Number(text);
    const isNumber = (key.kind === "int" || key.kind === "float") && text !== "" && Number.isFinite(number);
    // A seed beyond 2^53 is not a number to a browser: it stays text.
    return isNumber && (key.kind === "float" || Number.isSafeInteger(number)) ? number : text;
  }

  /** @param {string} name @param {string | number | boolean} value @param {boolean} [moving] */
  #change(name, value, moving = false) {
    /** @type {Spec} */
    const change = { [name]: value };
    const next = { ...this.#spec, ...change };
    if (next["bias_std"] !== 0 && DISABLED["bias_std"]?.(next) != null) change["bias_std"] = 0;
    emit(this, "spec-change", { change, moving });
  }

  /** @param {Spec} spec */
  set spec(spec) {
    this.#spec = spec;
    for (const [name, { key, control, root, note }] of this.#fields) {
      const value = spec[name];
      if (value === undefined) continue;
      if (control instanceof HTMLInputElement && control.type === "checkbox") control.checked = value === true;
      else if (document.activeElement !== control || control instanceof HTMLSelectElement || typeof value === "number") {
        const text = key.kind === "float" && typeof value === "number" ? setting(value) : String(value);
        if (control.value !== text) control.value = text;
      }
      const reason = DISABLED[name]?.(spec) ?? null;
      control.disabled = reason !== null;
      if (!root.classList.contains("at-fault")) note.textContent = reason ?? "";
    }
    const scale = Number(spec["scale"]);
    this.#slider.disabled = DISABLED["scale"]?.(spec) != null;
    if (Number.isFinite(scale) && scale > 0) {
      if (this.#scale.value(Number(this.#slider.value)) !== scale) this.#slider.value = String(this.#scale.position(scale));
      this.#slider.setAttribute("aria-valuetext", `times ${setting(scale)}`);
    }
    this.#slider.style.setProperty("--fill", String((Number(this.#slider.value) + 1) / 2));
  }

  /** @param {Picture} picture */
  set picture(picture) {
    const weight = picture.topology.layers[0]?.weight ?? null;
    const row = weight === null ? undefined : picture.rows.get(weight);
    const name = picture.topology.tensors.find(({ id }) => id === weight)?.name ?? "";
    this.#sigma.textContent = row === undefined ? "" : `σ ${significant(valueAt(picture.floats.std, row))}`;
    this.#sigma.title = `measured std of ${name}, the weights of layer 1`;
  }

  /** @param {ErrorBody | null} error shown at the control at fault */
  set error(error) {
    for (const [name, { root, control, note }] of this.#fields) {
      const isAtFault = error?.field === name;
      root.classList.toggle("at-fault", isAtFault);
      if (isAtFault) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
      note.textContent = isAtFault ? (error?.message ?? "") : (DISABLED[name]?.(this.#spec) ?? "");
      if (isAtFault && this.#more.contains(root)) this.#more.open = true;
    }
  }
}

customElements.define("spec-controls", SpecControls);
