/** <spec-controls>: every key of the spec, the program first, then the scale of the init. The page data lists the
 * keys and their values; depth and width are steppers for `widths`. Keys that the program does not use are greyed.
 * The slider's ticks mark standard deviations of the weights of the selected layer (else the first).
 * Call `configure(pageData)`; set `spec`, `picture`, `theory`, `selection`, `error`. Event, bubbling: `spec-change`
 * {change, moving}, `moving`: the slider is still held. */

import { buttonOf, emit, html, put, writeText } from "../core/dom.js";
import { figureAt, isHidden, setting, significant, valueAt } from "../core/format.js";
import { ScaleSlider, snapTicks } from "../core/lab/scale-slider.js";
import { dice, fieldOf, markFault, readControl, textInput, writeControl } from "../core/lab/spec-fields.js";
import { hiddenWidth, nextWidth, parseWidths, widthsText, withDepth, withWidth } from "../core/lab/widths.js";

/** @typedef {{root: HTMLElement, show: (widths: number[] | null) => void}} Stepper */
/** @typedef {{unit: number, n: number, tensor: string | null, weight: string}} Unit std of a layer's weights at
 * scale 1 */

/** Labels that are not the key itself. @type {Record<string, string>} */
const LABELS = { init: "Scheme", last_activation: "Activation after the last layer", bias: "Biases",
  bias_std: "Std of biases", lr: "Learning rate", weight_decay: "Weight decay" };

const PROGRAM = ["program", "rung", "constant"];
const FIRST = ["init", "scale"];
const SECOND = ["activation", "seed"];
const TRAINING = ["data", "optimizer", "lr", "weight_decay", "parametrization"];
/** The step has a bar of its own. */
const ELSEWHERE = ["step"];
const MORE = ["widths", "batch", "bias", "bias_std", "last_activation", "dtype", "style", "loss", "device"];

/** The net needs no description. */
const NET = "mlp";

/** Why a control is off. @type {Record<string, (spec: Spec) => string | null>} */
const DISABLED = {
  scale: (spec) => spec["init"] === "zeros" ? "Zeros stay zero at every scale." : null,
  bias_std: (spec) =>
    spec["bias"] === false ? "There are no biases."
      : spec["init"] === "torch_default" ? "torch_default draws its own biases." : null,
};

/** Notes on values. @type {Record<string, (spec: Spec) => string | null>} */
const HINTS = {
  dtype: ({ dtype }) =>
    dtype === "float16" ? "Values above 65504 overflow."
      : dtype === "bfloat16" ? "The range of float32, with 8 bits of precision." : null,
};

class SpecControls extends HTMLElement {
  #fields = /** @type {Map<string, SpecField>} */ (new Map());
  #steppers = /** @type {Stepper[]} */ ([]);
  #spec = /** @type {Spec} */ ({});
  #slider = new ScaleSlider("Init scale", (scale, moving) => this.#change("scale", scale, moving));
  #drawn = html("span", { class: "drawn" });
  #where = html("span", { class: "where" });
  #sigma = html("span", { class: "sigma" });
  #measured = html("span", { class: "measured" }, "measured ", this.#sigma);
  #more = html("details", { class: "more" }, html("summary", {}, "More"));
  #training = html("details", { class: "training" }, html("summary", {}, "Training"));
  /** The net of a data set has its features, its classes and a loss for classes. @type {PageData["data_sets"]} */
  #dataSets = {};
  #programs = /** @type {Map<string, Program>} */ (new Map());
  #program = html("p", { class: "program-doc", hidden: true });
  /** The std of the weights is hidden until a guess. */
  #isSecret = false;

  #picture = /** @type {Picture | null} */ (null);
  #selection = "";
  /** Theory's std of every layer's weights at scale 1, and the net it belongs to. */
  #units = { net: "", stds: /** @type {number[]} */ ([]) };
  #unit = /** @type {Unit | null} */ (null);

  /** @param {PageData} page */
  configure({ keys, programs, devices, data_sets: dataSets }) {
    this.#dataSets = dataSets;
    const byName = new Map(keys.map((key) => [key.name, key]));
    const rest = keys.map(({ name }) => name).filter((name) =>
      ![...PROGRAM, ...FIRST, ...SECOND, ...TRAINING, ...ELSEWHERE, ...MORE].includes(name)
    );
    this.#programs = new Map(programs.map((program) => [program.name, program]));
    const fields = (/** @type {readonly string[]} */ names) =>
      names.flatMap((name) => byName.get(name) ?? []).map((key) => this.#field(key, devices));
    const program = html("div", { class: "group program" }, ...fields(PROGRAM));
    program.querySelector('[data-key="program"]')?.after(this.#program);
    const first = html("div", { class: "group first" }, ...fields(FIRST));
    const second = html("div", { class: "group second" }, ...fields(SECOND));
    const more = html("div", { class: "group" }, ...fields([...MORE, ...rest]));
    more.querySelector('[data-key="widths"]')?.after(this.#widthSteppers());
    this.#more.append(more);
    // The model has its own tab on a narrow screen, with room for all controls.
    this.#more.open = matchMedia("(max-width: 899px)").matches;
    this.#training.append(html("div", { class: "group" }, ...fields(TRAINING)));
    this.replaceChildren(program, first, second, this.#training, this.#more);
  }

  /** @param {SpecKey} key @param {readonly string[]} devices */
  #field(key, devices) {
    const { name } = key;
    const control = this.#control(key, devices);
    const { input, marks, button } = this.#slider;
    const beside = name === "seed" ? [dice((seed) => this.#change("seed", seed))]
      : name === "scale"
      ? [this.#drawn, input, marks, html("p", { class: "unit" }, this.#where, button, this.#measured)] : [];
    const field = fieldOf(key, `spec-${name}`, LABELS[name] ?? name.charAt(0).toUpperCase() + name.slice(1), control, [
      control,
      ...beside,
    ]);
    if (name === "scale") this.#slider.configure(key, control);
    this.#fields.set(name, field);
    control.addEventListener("change", () => this.#change(name, readControl(key, control)));
    return field.root;
  }

  /** @param {SpecKey} key @param {readonly string[]} devices @returns {SpecControl} */
  #control(key, devices) {
    if (key.kind === "bool") return html("input", { type: "checkbox" });
    if (key.kind === "choice") {
      const options = (key.choices ?? []).map((choice) => {
        const isAbsent = key.name === "device" && !devices.includes(choice);
        return html("option", { value: choice, disabled: isAbsent }, isAbsent ? `${choice} (not available)` : choice);
      });
      return html("select", {}, ...options);
    }
    return textInput(key.kind);
  }

  /** @returns {HTMLElement} depth and width */
  #widthSteppers() {
    this.#steppers = [
      this.#stepper("depth", "Depth", "number of layers", (widths) => ({ value: widths.length - 1, isMixed: false }),
        withDepth, (depth, by) => depth + by),
      this.#stepper("width", "Width", "units of every hidden layer; also of input and output if all widths are equal",
        (widths) => {
          const hidden = hiddenWidth(widths);
          return hidden && { value: hidden.width, isMixed: hidden.isMixed };
        }, withWidth, nextWidth),
    ];
    return html("div", { class: "steppers" }, ...this.#steppers.map(({ root }) => root));
  }

  /** @param {string} name @param {string} label @param {string} help
   * @param {(widths: number[]) => {value: number, isMixed: boolean} | null} read null: nothing to step
   * @param {(widths: number[], value: number) => number[]} apply @param {(value: number, by: 1 | -1) => number} step */
  #stepper(name, label, help, read, apply, step) {
    let widths = /** @type {number[] | null} */ (null);
    const typed = html("input", { type: "text", inputmode: "numeric", autocomplete: "off", id: `spec-${name}`,
      title: help });
    const to = (/** @type {number} */ value) => {
      if (widths !== null && Number.isSafeInteger(value) && value >= 1)
        this.#change("widths", widthsText(apply(widths, value)));
      else show(widths);
    };
    const go = (/** @type {1 | -1} */ by) => {
      const now = widths === null ? null : read(widths);
      if (now !== null) to(Math.max(1, step(now.value, by)));
    };
    const button = (/** @type {string} */ sign, /** @type {1 | -1} */ by, /** @type {string} */ title) =>
      buttonOf({ class: "icon-button step", title, "aria-label": title, tabindex: "-1" }, () => go(by), sign);
    const [less, more] = [button("−", -1, `Less ${name}`), button("+", 1, `More ${name}`)];
    typed.addEventListener("change", () => to(Number(typed.value.trim() || NaN)));
    typed.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
      event.preventDefault();
      go(event.key === "ArrowUp" ? 1 : -1);
    });
    const show = (/** @type {number[] | null} */ next) => {
      widths = next;
      const now = next === null ? null : read(next);
      const text = now === null || now.isMixed ? "" : String(now.value);
      if (typed.value !== text) typed.value = text;
      put(typed, "placeholder", now?.isMixed ? "mixed" : "–");
      put(typed, "title", now === null && next !== null ? "there is no hidden layer" : help);
      for (const control of [typed, less, more]) put(control, "disabled", now === null);
    };
    const root = html("div", { class: "stepper" }, html("label", { for: typed.id, title: help }, label),
      html("span", {}, less, typed, more));
    return { root, show };
  }

  /** @param {string} name @param {string | number | boolean} value @param {boolean} [moving] */
  #change(name, value, moving = false) {
    /** @type {Spec} */
    const change = { [name]: value };
    const next = { ...this.#spec, ...change };
    const data = name === "data" ? this.#dataSets[String(value)] : undefined;
    const widths = parseWidths(String(next["widths"]));
    if (data !== undefined && widths !== null) {
      change["widths"] = widthsText([data.features, ...widths.slice(1, -1), data.classes]);
      change["loss"] = "cross_entropy";
      change["batch"] = Math.min(Number(next["batch"]), data.samples);
    }
    if (Boolean(next["bias_std"]) && DISABLED["bias_std"]?.(next) != null) change["bias_std"] = 0;
    emit(this, "spec-change", { change, moving });
  }

  /** @param {Spec} spec */
  set spec(spec) {
    this.#spec = spec;
    for (const [name, { key, control, root, note }] of this.#fields) {
      const unused = this.#whyUnused(name);
      root.classList.toggle("unused", unused !== null);
      // Keys of a single program are hidden for the others.
      put(root, "hidden", unused !== null && PROGRAM.includes(name));
      put(root, "title", unused ?? "");
      put(control, "title", unused ?? key.doc);
      writeControl(key, control, spec[name] ?? key.default);
      put(control, "disabled", unused !== null || DISABLED[name]?.(spec) != null);
      if (!root.classList.contains("at-fault")) writeText(note, unused ?? noteOf(name, spec));
      if (name === "seed") {
        for (const dice of root.querySelectorAll("button")) put(dice, "disabled", control.disabled);
      }
    }
    this.#describeProgram();
    const widths = spec["program"] === NET ? parseWidths(String(spec["widths"])) : null;
    for (const { root, show } of this.#steppers) {
      put(root, "hidden", spec["program"] !== NET);
      show(widths);
    }
    // Without a scale the thumb is in the middle.
    const scale = Number(spec["scale"] ?? 1);
    put(this.#slider.input, "disabled", this.#whyUnused("scale") !== null || DISABLED["scale"]?.(spec) != null);
    this.#slider.value = scale;
    this.#writeDrawn();
  }

  /** @param {string} name of a key @returns {string | null} null: the program uses it */
  #whyUnused(name) {
    const program = this.#programs.get(String(this.#spec["program"]));
    return program === undefined || name in program.defaults ? null : `not used by ${program.name}`;
  }

  /** Describes the program and links its page; the net needs no description. */
  #describeProgram() {
    const program = this.#programs.get(String(this.#spec["program"]));
    const name = program?.name ?? "";
    if (this.#program.dataset["of"] === name) return;
    this.#program.dataset["of"] = name;
    this.#program.hidden = program === undefined || name === NET;
    const link = program?.page == null ? "" : html("a", { href: program.page }, "In the chapter →");
    this.#program.replaceChildren(`${program?.doc ?? ""} Settings that it does not use are grey. `, link);
  }

  /** @param {Picture} picture */
  set picture(picture) {
    const isOther = picture.key !== this.#picture?.key || picture.spec?.["init"] !== this.#picture.spec?.["init"];
    this.#picture = picture;
    if (isOther || this.#unit === null) this.#measureUnit();
    const row = picture.rows.get(this.#unit?.tensor ?? "");
    if (isHidden(picture, row) !== this.#isSecret) {
      this.#isSecret = isHidden(picture, row);
      this.#drawTicks();
    }
    writeText(this.#sigma, row === undefined ? "" : `σ ${figureAt(picture, picture.floats.std, row)}`);
    put(this.#measured, "hidden", row === undefined);
  }

  /** @param {Theory | null} theory */
  set theory(theory) {
    const picture = this.#picture;
    if (theory === null || picture === null || theory.seq !== picture.seq) return;
    const net = netOf(picture.spec ?? {});
    const scale = Number(picture.spec?.["scale"]);
    // The same net gives the same numbers, except for rounding; a trained net gives none.
    if (net === this.#units.net || !(scale > 0) || isTrained(picture)) return;
    this.#units = { net, stds: theory.layers.map(({ weight_std }) => weight_std / scale) };
    this.#measureUnit();
  }

  /** @param {string} selection id of the selected tensor, "" for none */
  set selection(selection) {
    if (selection === this.#selection) return;
    this.#selection = selection;
    this.#measureUnit();
    if (this.#picture !== null) this.picture = this.#picture;
  }

  /** @returns {Layer | undefined} the selected tensor's, else the first */
  #layer() {
    const topology = this.#picture?.topology;
    if (topology === undefined) return undefined;
    const selection = topology.tensors.find(({ id }) => id === this.#selection);
    const ids = [selection?.id, selection?.gradient_of];
    const own = topology.layers.find(({ index: _index, name: _name, ...parts }) =>
      ids.some((id) => id != null && Object.values(parts).includes(id))
    );
    return own ?? topology.layers[0];
  }

  /** The std of the weights at scale 1: of their distribution or, before the theory of this net has come, as
   * measured. */
  #measureUnit() {
    const [picture, layer] = [this.#picture, this.#layer()];
    const n = picture === null || layer === undefined ? undefined
      : parseWidths(String((picture.spec ?? {})["widths"]))?.[layer.index - 1];
    if (picture !== null && layer === undefined) {
      // Without layers the ticks have no unit.
      this.#unit = null;
      this.#where.textContent = "";
      this.#drawTicks();
    }
    if (picture === null || layer === undefined || n === undefined) return;
    const told = netOf(picture.spec ?? {}) === this.#units.net ? this.#units.stds[layer.index - 1] : undefined;
    const row = layer.weight === null ? undefined : picture.rows.get(layer.weight);
    const std = isTrained(picture) ? null : valueAt(picture.floats.std, row);
    const unit = told ?? (std ?? NaN) / Number(picture.spec?.["scale"]);
    const weight = picture.topology.tensors.find(({ id }) => id === layer.weight)?.name ?? "";
    this.#unit = { unit, n, tensor: layer.weight, weight };
    writeText(this.#where, `layer ${layer.index}, n = ${n}`);
    this.#where.title = `n: inputs of the layer. ${
      this.#selection === "" ? "Select a tensor for the scale of its layer." : ""
    }`;
    this.#measured.title = `std of all elements of ${weight}`;
    this.#drawn.title = `std of the distribution of ${weight}, the weights of layer ${layer.index}`;
    this.#drawTicks();
  }

  #writeDrawn() {
    const scale = Number(this.#spec["scale"]);
    const std = this.#unit === null ? NaN : this.#unit.unit * scale;
    const text = this.#unit === null || Number.isNaN(std) ? ""
      : `σ(${this.#unit.weight}) ${this.#isSecret ? "?" : significant(std)}`;
    const spoken = this.#whyUnused("scale") ?? `times ${setting(scale)}${text && `, ${text}`}`;
    if (this.#slider.input.getAttribute("aria-valuetext") === spoken) return;
    this.#slider.input.setAttribute("aria-valuetext", spoken);
    writeText(this.#drawn, text);
  }

  #drawTicks() {
    const { unit, n, weight } = this.#unit ?? { unit: NaN, n: 0, weight: "" };
    const { minimum, maximum } = this.#slider.range;
    // The position of the ticks would reveal the std.
    const ticks = this.#unit === null || this.#isSecret ? [] : snapTicks(unit, n, minimum, maximum);
    const marks = ticks.map(({ formula, std, scale, ...tick }) => {
      const says = `σ(${weight}) = ${formula}${formula.includes("n") ? ` = ${significant(std)} for n = ${n}` : ""}: ×${
        setting(scale)
      }`;
      return { ...tick, scale, says };
    });
    this.#slider.mark(marks, this.#unit === null || this.#isSecret || !(unit > 0) ? null : unit);
    this.#writeDrawn();
  }

  /** @param {ErrorBody | null} error shown at the control at fault */
  set error(error) {
    markFault(this.#fields, error, (name) => this.#whyUnused(name) ?? noteOf(name, this.#spec));
    const root = this.#fields.get(error?.field ?? "")?.root;
    if (root !== undefined && this.#more.contains(root)) this.#more.open = true;
  }
}

/** @param {string} name @param {Spec} spec @returns {string} */
function noteOf(name, spec) {
  return DISABLED[name]?.(spec) ?? HINTS[name]?.(spec) ?? "";
}

/** @param {Spec} spec @returns {string} the std of the weights at scale 1 depends on these */
function netOf(spec) {
  return `${spec["program"]} ${spec["init"]} ${spec["widths"]}`;
}

/** Whether the weights differ from their initial values. @param {Picture} picture */
function isTrained({ spec }) {
  return Number(spec?.["step"]) > 0;
}

customElements.define("spec-controls", SpecControls);
