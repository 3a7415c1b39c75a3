/** <what-if-controls>: changes to a copy of the user's model before it runs: a group of its modules, a factor for
 * the group's weights, a scheme to draw them anew, and its seed.
 * Call `configure(pageData)`, `offer(groups, tied)`; set `spec`, `picture`, `error`, and `here`: the group of the
 * selection, or null. Event, bubbling: `spec-change` {change, moving}, `moving`: the slider is still held. */

import { buttonOf, emit, html, write, writeText } from "../core/dom.js";
import { count, setting, significant, valueAt } from "../core/format.js";
import { PathBox } from "../core/lab/path-box.js";
import { ScaleSlider } from "../core/lab/scale-slider.js";
import { dice, fieldOf, markFault, readControl, textInput, writeControl } from "../core/lab/spec-fields.js";
import { weightsIn } from "../core/lab/weights.js";
import { decadeLabel } from "../core/scales.js";

const ALL = "the whole model";
const AS_IT_IS = "unchanged";
const NO_DRAW = "No weights are redrawn, so the seed has no effect.";
const NO_SCALE = "Zeros stay zero at every scale.";

/** Decades that the pointer snaps to; ×1 is the unchanged model. */
const SNAPS = [-3, -2, -1, 0, 1, 2, 3];

class WhatIfControls extends HTMLElement {
  #fields = /** @type {Map<string, SpecField>} */ (new Map());
  #defaults = /** @type {Spec} */ ({});
  #spec = /** @type {Spec} */ ({});
  #here = /** @type {string | null} */ (null);
  #tied = /** @type {Tied} */ ({});
  #picture = /** @type {Picture | null} */ (null);
  /** Rows of the changed weights, and the number of all weights; of: graph and group. */
  #weights = { of: "", rows: /** @type {number[]} */ ([]), total: 0 };

  #groupBox = new PathBox({ id: "what-if-group", label: "Group", all: ALL }, (group) => this.#change({ group }));
  #slider = new ScaleSlider("Scale of the weights", (scale, moving) => this.#change({ scale }, moving));
  #reset = buttonOf({ class: "button reset", title: "Back to the model: every weight ×1, nothing redrawn" },
    () => this.#change(this.#defaults), "Reset");
  #take = buttonOf({ class: "link take" }, () => this.#here !== null && this.#change({ group: this.#here }));
  #count = html("span", { class: "count" });
  #sigma = html("span", { class: "sigma", title: "smallest and largest std of these weights in this run" });

  /** @param {PageData} page */
  configure({ keys, model }) {
    // The level of the recording is a button of the toolbar.
    const own = keys.filter(({ name }) => name !== "recording");
    this.#defaults = Object.fromEntries(own.map(({ name, default: value }) => [name, value]));
    const key = (/** @type {string} */ name) => /** @type {SpecKey} */ (keys.find((each) => each.name === name));
    const head = html("div", { class: "head" }, html("h2", {}, "What if"), this.#reset);
    const first = html("div", { class: "group first" }, head,
      html("p", { class: "about" }, "This changes a copy, not your model."), this.#scaleField(key("scale")));
    const init = html("select", {},
      ...(key("init").choices ?? []).map((choice) => html("option", { value: choice }, choice || AS_IT_IS)));
    const seed = textInput(key("seed").kind);
    const second = html("div", { class: "group second" },
      this.#field(key("group"), "Group", this.#groupBox.input, this.#groupBox.root, this.#take),
      this.#field(key("init"), "Draw", init, init),
      this.#field(key("seed"), "Seed", seed, seed, dice((value) => this.#change({ seed: value }))));
    this.replaceChildren(first, second);
    this.offer(model?.groups ?? [], model?.tied ?? {});
    this.here = null;
  }

  /** @param {SpecKey} key */
  #scaleField(key) {
    const typed = textInput(key.kind);
    const { input, marks, button } = this.#slider;
    const field = this.#field(key, "Scale", typed, typed, input, marks,
      html("p", { class: "unit" }, this.#count, button, this.#sigma));
    this.#slider.configure(key, typed);
    this.#slider.mark(SNAPS.map((exponent) => ({
      label: exponent === 0 ? "×1" : decadeLabel(exponent).replace("0.", "."),
      scale: Number(`1e${exponent}`),
      says: `×${decadeLabel(exponent)}`,
      anchor: /** @type {const} */ ("middle"),
      rank: Math.abs(exponent),
    })));
    return field;
  }

  /** @param {SpecKey} key @param {string} label @param {SpecControl} control
   * @param {HTMLElement[]} parts including the control @returns {HTMLElement} */
  #field(key, label, control, ...parts) {
    const { name } = key;
    const field = fieldOf(key, `what-if-${name}`, label, control, parts);
    this.#fields.set(name, field);
    // The box of paths reports changes itself.
    if (name !== "group") control.addEventListener("change", () => this.#change({ [name]: readControl(key, control) }));
    return field.root;
  }

  /** @param {Spec} change @param {boolean} [moving] */
  #change(change, moving = false) {
    emit(this, "spec-change", { change, moving });
  }

  /** @param {Spec} spec the what-if */
  set spec(spec) {
    this.#spec = spec;
    const why = whyOff(spec);
    for (const [name, { key, root, control, note }] of this.#fields) {
      const value = spec[name] ?? key.default;
      if (name === "group") this.#groupBox.value = String(value);
      else writeControl(key, control, value);
      const off = why[name] ?? null;
      control.disabled = off !== null;
      control.title = off ?? key.doc;
      for (const button of root.querySelectorAll("button.dice"))
        if (button instanceof HTMLButtonElement) button.disabled = off !== null;
      if (!root.classList.contains("at-fault")) writeText(note, name === "scale" ? (off ?? "") : "");
    }
    const scale = Number(spec["scale"] ?? 1);
    this.#slider.input.disabled = why["scale"] !== undefined;
    this.#slider.value = scale;
    write(this.#slider.input, "aria-valuetext", `times ${setting(scale)}`);
    const isAsItIs = Object.entries(this.#defaults).every(([name, value]) => (spec[name] ?? value) === value);
    this.classList.toggle("changed", !isAsItIs);
    // It stays focusable when there is nothing to do.
    write(this.#reset, "aria-disabled", String(isAsItIs));
    this.#writeTake();
    this.#writeWeights();
  }

  /** @param {readonly string[]} groups paths of modules @param {Tied} tied names of shared parameters */
  offer(groups, tied) {
    this.#groupBox.paths = groups;
    this.#tied = tied;
    this.#weights.of = "";
  }

  /** @param {string | null} here group of the selection, null for none */
  set here(here) {
    this.#here = here;
    this.#writeTake();
  }

  #writeTake() {
    const here = this.#here;
    const isTaken = here !== null && here === (this.#spec["group"] ?? "");
    this.#take.disabled = here === null || isTaken;
    writeText(this.#take, here === null ? "group of the selected box" : `this group: ${here || ALL}`);
    const title = isTaken ? "This group is already chosen" : "Choose the group of the selected box";
    write(this.#take, "title", here === null ? "First select a box inside a group of the graph" : title);
  }

  /** @param {Picture} picture */
  set picture(picture) {
    this.#picture = picture;
    this.#writeWeights();
  }

  #writeWeights() {
    const picture = this.#picture;
    if (picture === null) return;
    // The picture's group, which may lag behind the controls.
    const group = String(picture.spec?.["group"] ?? "");
    const of = `${picture.key} ${group}`;
    if (of !== this.#weights.of) {
      const rows = weightsIn(picture.topology, group, this.#tied).flatMap((tensor) => picture.rows.get(tensor) ?? []);
      this.#weights = { of, rows, total: weightsIn(picture.topology, "").length };
    }
    const { rows, total } = this.#weights;
    const stds = rows.flatMap((row) => valueAt(picture.floats.std, row) ?? []);
    const share = rows.length === total ? count(total) : `${count(rows.length)} of ${count(total)}`;
    writeText(this.#count, total === 0 ? "no weights" : `${share} ${total === 1 ? "weight" : "weights"}`);
    write(this.#count, "title", "the multiplied parameters, those with 2 or more dimensions");
    const [low, high] = [significant(Math.min(...stds)), significant(Math.max(...stds))];
    writeText(this.#sigma, stds.length === 0 ? "" : `σ ${low === high ? low : `${low}–${high}`}`);
  }

  /** @param {ErrorBody | null} error shown at the control at fault */
  set error(error) {
    const why = whyOff(this.#spec);
    markFault(this.#fields, error, (name) => name === "scale" ? (why["scale"] ?? "") : "");
  }
}

/** @param {Spec} spec @returns {Record<string, string>} key → why its control is off */
function whyOff(spec) {
  return {
    ...(spec["init"] === "zeros" ? { scale: NO_SCALE } : {}),
    ...((spec["init"] ?? "") === "" ? { seed: NO_DRAW } : {}),
  };
}

customElements.define("what-if-controls", WhatIfControls);
