/**
 * <spec-controls>: every key of the spec, the program first, then the scale of the init. What keys there are, and what
 * they allow, comes with the page data; depth and width are steppers for `widths`. What the program does not use is greyed.
 *
 * The slider's ticks are in units of the weights' standard deviation, in the layer that is selected (else the first):
 * .01, 1/√n, √(2/n), 1. The pointer snaps to them; the keyboard goes from one to the next with [ and ].
 *
 * Call `configure(pageData)`; set `spec`, `picture`, `theory`, `selection`, `error`. Event, bubbling: `spec-change`
 * {change, moving}, where `moving` says that the slider is still on its way.
 */

import { emit, html, svg, writeText } from "../core/dom.js";
import { figureAt, isHidden, setting, significant, valueAt } from "../core/format.js";
import { decadeLabel, sliderScale } from "../core/scales.js";
import { fitLabels, nextTick, snap, snapTicks } from "../core/lab/snap.js";
import { hiddenWidth, nextWidth, parseWidths, widthsText, withDepth, withWidth } from "../core/lab/widths.js";

/** @typedef {import("../core/types.js").Spec} Spec */
/** @typedef {import("../core/types.js").SpecKey} SpecKey */
/** @typedef {import("../core/types.js").Program} Program */
/** @typedef {import("../core/types.js").PageData} PageData */
/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").Theory} Theory */
/** @typedef {import("../core/types.js").Layer} Layer */
/** @typedef {import("../core/types.js").ErrorBody} ErrorBody */
/** @typedef {import("../core/lab/snap.js").Tick} Tick */

/** @typedef {HTMLInputElement | HTMLSelectElement} Control */
/** @typedef {{key: SpecKey, root: HTMLElement, control: Control, note: HTMLElement}} Field */
/** @typedef {{root: HTMLElement, show: (widths: number[] | null) => void}} Stepper */
/** @typedef {{unit: number, n: number, tensor: string | null, weight: string}} Unit std of a layer's weights at scale 1, their tensor and its name */

/** @type {Record<string, string>} */
const LABELS = {
  program: "Program",
  rung: "Rung",
  constant: "Constant",
  init: "Scheme",
  scale: "Scale",
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

const PROGRAM = ["program", "rung", "constant"];
const FIRST = ["init", "scale"];
const SECOND = ["activation", "seed"];
const MORE = ["widths", "batch", "bias", "bias_std", "last_activation", "dtype", "style", "loss", "device"];

/** The program that is a net, which goes without saying. */
const NET = "mlp";

/** Why a control means nothing at the moment. @type {Record<string, (spec: Spec) => string | null>} */
const DISABLED = {
  scale: (spec) => (spec["init"] === "zeros" ? "Zeros stay zero at every scale." : null),
  bias_std: (spec) =>
    spec["bias"] === false ? "There are no biases." : spec["init"] === "torch_default" ? "torch_default draws biases of its own." : null,
};

/** What is worth knowing of a choice. @type {Record<string, (spec: Spec) => string | null>} */
const HINTS = {
  dtype: ({ dtype }) =>
    dtype === "float16" ? "Overflows above 65504." : dtype === "bfloat16" ? "The range of float32, 8 bits of precision." : null,
};

const FINE_STEP = 1;
const COARSE_STEP = 10;

/** px between thumb and tick within which the pointer snaps */
const SNAP_REACH = 6;
/** px that the thumb takes of the slider's width */
const THUMB = 18;
/** px between labels */
const LABEL_GAP = 2;
/** Rank of a decade's label: it gives way to any tick's. */
const DECADE_RANK = 10;

const TICK_HELP = "[ and ] go from tick to tick; with Alt the thumb does not snap.";

class SpecControls extends HTMLElement {
  /** @type {Map<string, Field>} */
  #fields = new Map();
  /** @type {Stepper[]} */
  #steppers = [];
  /** @type {Spec} */
  #spec = {};
  #range = { minimum: 1e-4, maximum: 1e4 };
  #scale = sliderScale(1e-4, 1e4);
  #slider = html("input", { type: "range", class: "slider", min: "-1", max: "1", step: "any", "aria-label": "Init scale" });
  #drawn = html("span", { class: "drawn" });
  #where = html("span", { class: "where" });
  #sigma = html("span", { class: "sigma" });
  #measured = html("span", { class: "measured" }, "measured ", this.#sigma);
  #ticks = html("div", { class: "ticks" });
  #more = html("details", { class: "more" }, html("summary", {}, "More"));
  /** @type {Map<string, Program>} */
  #programs = new Map();
  #program = html("p", { class: "program-doc", hidden: true });
  #keyboardMoving = false;
  /** The scale that the pointer is dragging, until it lets go. @type {number | null} */
  #dragged = null;
  /** Whether the std of the weights waits for a guess. */
  #isSecret = false;
  /** From the middle of the slider to the last place of its thumb, px: asked for during a drag it would lay out the page. */
  #travel = 0;
  #isAltDown = false;

  /** @type {Picture | null} */
  #picture = null;
  #selection = "";
  /** What theory said last of the std of every layer's weights at scale 1, and of which nets that holds. */
  #units = { net: "", stds: /** @type {number[]} */ ([]) };
  /** @type {Unit | null} */
  #unit = null;
  /** @type {{ticks: Tick[], places: number[]}} */
  #snaps = { ticks: [], places: [] };

  /** @param {PageData} page */
  configure({ keys, programs, devices }) {
    const byName = new Map(keys.map((key) => [key.name, key]));
    const rest = keys.map(({ name }) => name).filter((name) => ![...PROGRAM, ...FIRST, ...SECOND, ...MORE].includes(name));
    this.#programs = new Map(programs.map((program) => [program.name, program]));
    /** @param {readonly string[]} names */
    const fields = (names) => names.flatMap((name) => this.#field(byName.get(name), devices) ?? []);
    const program = html("div", { class: "group program" }, ...fields(PROGRAM));
    program.querySelector('[data-key="program"]')?.after(this.#program);
    const first = html("div", { class: "group first" }, ...fields(FIRST));
    const second = html("div", { class: "group second" }, ...fields(SECOND));
    const more = html("div", { class: "group" }, ...fields([...MORE, ...rest]));
    more.querySelector('[data-key="widths"]')?.after(this.#widthSteppers());
    this.#more.append(more);
    // On a narrow screen the model has a tab of its own, and nothing to give way to.
    this.#more.open = matchMedia("(max-width: 899px)").matches;
    this.replaceChildren(program, first, second, this.#more);
    new ResizeObserver(() => this.#placeTicks()).observe(this.#ticks);
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
    const pips = [[5, 5], [11, 5], [8, 8], [5, 11], [11, 11]].map(([cx = 0, cy = 0]) => svg("circle", { cx, cy, r: 1.2 }));
    const frame = svg("rect", { x: 1.5, y: 1.5, width: 13, height: 13, rx: 2.5 });
    const icon = svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, frame, ...pips);
    const button = html("button", { type: "button", class: "icon-button dice", title: "Another seed", "aria-label": "Another seed" }, icon);
    button.addEventListener("click", () => {
      const [number = 0] = crypto.getRandomValues(new Uint32Array(1));
      this.#change("seed", number % 10_000);
    });
    return button;
  }

  /** @returns {HTMLElement} depth and width, which edit the widths */
  #widthSteppers() {
    this.#steppers = [
      this.#stepper("depth", "Depth", "number of layers", (widths) => ({ value: widths.length - 1, isMixed: false }), withDepth, (depth, by) => depth + by),
      this.#stepper(
        "width",
        "Width",
        "units of every hidden layer; of input and output too where all are equal",
        (widths) => {
          const hidden = hiddenWidth(widths);
          return hidden && { value: hidden.width, isMixed: hidden.isMixed };
        },
        withWidth,
        nextWidth,
      ),
    ];
    return html("div", { class: "steppers" }, ...this.#steppers.map(({ root }) => root));
  }

  /**
   * @param {string} name
   * @param {string} label
   * @param {string} help
   * @param {(widths: number[]) => {value: number, isMixed: boolean} | null} read null where there is nothing to step
   * @param {(widths: number[], value: number) => number[]} apply
   * @param {(value: number, by: 1 | -1) => number} step
   * @returns {Stepper}
   */
  #stepper(name, label, help, read, apply, step) {
    /** @type {number[] | null} */
    let widths = null;
    const typed = html("input", { type: "text", inputmode: "numeric", autocomplete: "off", id: `spec-${name}`, title: help });
    /** @param {number} value */
    const to = (value) => {
      if (widths !== null && Number.isSafeInteger(value) && value >= 1) this.#change("widths", widthsText(apply(widths, value)));
      else show(widths);
    };
    /** @param {1 | -1} by */
    const go = (by) => {
      const now = widths === null ? null : read(widths);
      if (now !== null) to(Math.max(1, step(now.value, by)));
    };
    const button = (/** @type {string} */ sign, /** @type {1 | -1} */ by, /** @type {string} */ title) => {
      const element = html("button", { type: "button", class: "icon-button step", title, "aria-label": title, tabindex: "-1" }, sign);
      element.addEventListener("click", () => go(by));
      return element;
    };
    const [less, more] = [button("−", -1, `Less ${name}`), button("+", 1, `More ${name}`)];
    typed.addEventListener("change", () => to(Number(typed.value.trim() || NaN)));
    typed.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
      event.preventDefault();
      go(event.key === "ArrowUp" ? 1 : -1);
    });
    /** @param {number[] | null} next */
    const show = (next) => {
      widths = next;
      const now = next === null ? null : read(next);
      const text = now === null || now.isMixed ? "" : String(now.value);
      if (typed.value !== text) typed.value = text;
      typed.placeholder = now?.isMixed ? "mixed" : "–";
      typed.title = now === null && next !== null ? "no layer is hidden" : help;
      for (const control of [typed, less, more]) control.disabled = now === null;
    };
    const root = html("div", { class: "stepper" }, html("label", { for: typed.id, title: help }, label), html("span", {}, less, typed, more));
    return { root, show };
  }

  /** @param {SpecKey} key @param {HTMLElement} root @param {HTMLInputElement} typed */
  #wireScale(key, root, typed) {
    const [minimum, maximum] = [key.minimum ?? 1e-4, key.maximum ?? 1e4];
    this.#range = { minimum, maximum };
    this.#scale = sliderScale(minimum, maximum);
    const slider = this.#slider;
    slider.title = `${key.doc} ${TICK_HELP}`;
    new ResizeObserver(([entry]) => (this.#travel = ((entry?.contentRect.width ?? 0) - THUMB) / 2)).observe(slider);
    slider.addEventListener("input", () => this.#drag(Number(slider.value)));
    for (const type of ["change", "pointerup", "pointercancel"]) slider.addEventListener(type, () => this.#letGo());
    // An input event does not say which keys are held.
    for (const type of ["pointerdown", "pointermove"]) {
      slider.addEventListener(type, (event) => (this.#isAltDown = event instanceof PointerEvent && event.altKey));
    }
    slider.addEventListener("keydown", (event) => this.#sliderKey(event, minimum, maximum));
    for (const type of ["keyup", "blur"]) slider.addEventListener(type, () => this.#keyboardStops());
    typed.before(html("span", { class: "times", "aria-hidden": "true" }, "×"));
    root.append(this.#drawn, slider, this.#ticks, html("p", { class: "unit" }, this.#where, this.#measured));
  }

  /** @param {number} position where the pointer has the thumb */
  #drag(position) {
    const caught = this.#isAltDown ? null : snap(position, this.#snaps.places, SNAP_REACH / Math.max(1, this.#travel));
    const tick = caught === null ? undefined : this.#snaps.ticks[caught];
    this.#dragged = tick?.scale ?? this.#scale.value(position);
    this.#change("scale", this.#dragged, true);
  }

  #letGo() {
    if (this.#dragged === null) return;
    const scale = this.#dragged;
    this.#dragged = null;
    this.#change("scale", scale);
  }

  /** @param {KeyboardEvent} event @param {number} minimum @param {number} maximum */
  #sliderKey(event, minimum, maximum) {
    const isJump = event.ctrlKey && event.key.startsWith("Arrow");
    const back = event.key === "[" || (isJump && (event.key === "ArrowLeft" || event.key === "ArrowDown"));
    if (back || event.key === "]" || isJump) {
      event.preventDefault();
      const next = nextTick(this.#snaps.ticks, this.#shownScale, back ? -1 : 1);
      if (next === null) return;
      this.#keyboardMoving = true;
      this.#change("scale", next, true);
      return;
    }
    const step = event.shiftKey ? COARSE_STEP : FINE_STEP;
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: COARSE_STEP, PageDown: -COARSE_STEP };
    const by = steps[event.key];
    const ends = event.key === "Home" ? minimum : event.key === "End" ? maximum : undefined;
    if (by === undefined && ends === undefined) return;
    event.preventDefault();
    this.#keyboardMoving = true;
    this.#change("scale", ends ?? this.#scale.step(this.#shownScale, by ?? 0), true);
  }

  /** The scale that keys go on from: the spec's, or the thumb's where that is none. */
  get #shownScale() {
    const scale = Number(this.#spec["scale"]);
    const { minimum, maximum } = this.#range;
    return scale >= minimum && scale <= maximum ? scale : this.#scale.value(Number(this.#slider.value));
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
    if (Boolean(next["bias_std"]) && DISABLED["bias_std"]?.(next) != null) change["bias_std"] = 0;
    emit(this, "spec-change", { change, moving });
  }

  /** @param {Spec} spec */
  set spec(spec) {
    this.#spec = spec;
    for (const [name, { key, control, root, note }] of this.#fields) {
      const unused = this.#whyUnused(name);
      root.classList.toggle("unused", unused !== null);
      // What one program alone has is no news to the others.
      root.hidden = unused !== null && PROGRAM.includes(name);
      root.title = unused ?? "";
      control.title = unused ?? key.doc;
      const value = spec[name] ?? key.default;
      if (control instanceof HTMLInputElement && control.type === "checkbox") control.checked = value === true;
      else if (document.activeElement !== control || control instanceof HTMLSelectElement || typeof value === "number") {
        const text = key.kind === "float" && typeof value === "number" ? setting(value) : String(value);
        if (control.value !== text) control.value = text;
      }
      control.disabled = unused !== null || DISABLED[name]?.(spec) != null;
      if (!root.classList.contains("at-fault")) writeText(note, unused ?? noteOf(name, spec));
      if (name === "seed") for (const dice of root.querySelectorAll("button")) dice.disabled = control.disabled;
    }
    this.#describeProgram();
    const widths = spec["program"] === NET ? parseWidths(String(spec["widths"])) : null;
    for (const { root, show } of this.#steppers) {
      root.hidden = spec["program"] !== NET;
      show(widths);
    }
    // Where no scale is used the thumb stands in the middle.
    const scale = Number(spec["scale"] ?? 1);
    this.#slider.disabled = this.#whyUnused("scale") !== null || DISABLED["scale"]?.(spec) != null;
    if (Number.isFinite(scale) && scale > 0 && this.#scale.value(Number(this.#slider.value)) !== scale) {
      this.#slider.value = String(this.#scale.position(scale));
    }
    this.#slider.style.setProperty("--fill", String((Number(this.#slider.value) + 1) / 2));
    this.#writeDrawn();
  }

  /** @param {string} name of a key @returns {string | null} why the program has no use for it, null where it has */
  #whyUnused(name) {
    const program = this.#programs.get(String(this.#spec["program"]));
    return program === undefined || name in program.defaults ? null : `not used by ${program.name}`;
  }

  /** What the program computes, and where the chapter does; of the net the whole page speaks. */
  #describeProgram() {
    const program = this.#programs.get(String(this.#spec["program"]));
    const name = program?.name ?? "";
    if (this.#program.dataset["of"] === name) return;
    this.#program.dataset["of"] = name;
    this.#program.hidden = program === undefined || name === NET;
    const link = program?.page == null ? "" : html("a", { href: program.page }, "In the chapter →");
    this.#program.replaceChildren(`${program?.doc ?? ""} What it does not use is greyed. `, link);
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
      this.#writeDrawn();
    }
    writeText(this.#sigma, row === undefined ? "" : `σ ${figureAt(picture, picture.floats.std, row)}`);
    this.#measured.hidden = row === undefined;
  }

  /** @param {Theory | null} theory */
  set theory(theory) {
    const picture = this.#picture;
    if (theory === null || picture === null || theory.seq !== picture.seq) return;
    const net = netOf(picture.spec ?? {});
    const scale = Number(picture.spec?.["scale"]);
    // At rest and in motion the same net says the same: only rounding would differ.
    if (net === this.#units.net || !(scale > 0)) return;
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

  /** @returns {Layer | undefined} the one whose weights the slider speaks of: that of the selected tensor, else the first */
  #layer() {
    const topology = this.#picture?.topology;
    if (topology === undefined) return undefined;
    const selection = topology.tensors.find(({ id }) => id === this.#selection);
    const ids = [selection?.id, selection?.gradient_of];
    const own = topology.layers.find(({ index: _index, name: _name, ...parts }) => ids.some((id) => id != null && Object.values(parts).includes(id)));
    return own ?? topology.layers[0];
  }

  /** What std the weights have at scale 1: as drawn, by theory; before it has spoken of this net, as measured. */
  #measureUnit() {
    const [picture, layer] = [this.#picture, this.#layer()];
    const n = picture === null || layer === undefined ? undefined : parseWidths(String((picture.spec ?? {})["widths"]))?.[layer.index - 1];
    if (picture !== null && layer === undefined) {
      // No layers, no weights that the ticks could be units of.
      this.#unit = null;
      this.#where.textContent = "";
      this.#drawTicks();
      this.#writeDrawn();
    }
    if (picture === null || layer === undefined || n === undefined) return;
    const told = netOf(picture.spec ?? {}) === this.#units.net ? this.#units.stds[layer.index - 1] : undefined;
    const row = layer.weight === null ? undefined : picture.rows.get(layer.weight);
    const unit = told ?? (valueAt(picture.floats.std, row) ?? NaN) / Number(picture.spec?.["scale"]);
    const weight = picture.topology.tensors.find(({ id }) => id === layer.weight)?.name ?? "";
    this.#unit = { unit, n, tensor: layer.weight, weight };
    writeText(this.#where, `layer ${layer.index}, n = ${n}`);
    this.#where.title = `n: inputs of the layer. ${this.#selection === "" ? "Select a tensor for the scale of its layer." : ""}`;
    this.#measured.title = `std of ${weight} as drawn, over all its elements`;
    this.#drawn.title = `std that ${weight}, the weights of layer ${layer.index}, are drawn with`;
    this.#drawTicks();
    this.#writeDrawn();
  }

  #writeDrawn() {
    const scale = Number(this.#spec["scale"]);
    const std = this.#unit === null ? NaN : this.#unit.unit * scale;
    const text = this.#unit === null || Number.isNaN(std) ? "" : `σ(${this.#unit.weight}) ${this.#isSecret ? "?" : significant(std)}`;
    const spoken = this.#whyUnused("scale") ?? `times ${setting(scale)}${text && `, ${text}`}`;
    if (this.#slider.getAttribute("aria-valuetext") === spoken) return;
    this.#slider.setAttribute("aria-valuetext", spoken);
    writeText(this.#drawn, text);
  }

  #drawTicks() {
    const { unit, n, weight } = this.#unit ?? { unit: NaN, n: 0, weight: "" };
    const { minimum, maximum } = this.#range;
    // Where the ticks stand says which std the weights have.
    const ticks = this.#unit === null || this.#isSecret ? [] : snapTicks(unit, n, minimum, maximum);
    this.#snaps = { ticks, places: ticks.map(({ scale }) => this.#scale.position(scale)) };
    const buttons = ticks.map(({ label, formula, std, scale, anchor, rank }) => {
      const says = `σ(${weight}) = ${formula}${formula.includes("n") ? ` = ${significant(std)} for n = ${n}` : ""}: ×${setting(scale)}`;
      const tick = html("button", { type: "button", class: `tick ${anchor}`, tabindex: "-1", title: `${says}. ${TICK_HELP}`, "aria-label": says }, html("span", {}, label));
      tick.dataset["rank"] = String(rank);
      tick.dataset["scale"] = String(scale);
      tick.addEventListener("click", () => this.#change("scale", scale));
      return this.#at(tick, scale);
    });
    const decades = [-4, -2, 0, 2, 4]
      .filter((exponent) => 10 ** exponent >= minimum && 10 ** exponent <= maximum)
      .map((exponent, order, { length }) => {
        const decade = html("span", { class: order === length - 1 ? "decade last" : "decade", "aria-hidden": "true" }, html("span", {}, `×${decadeLabel(exponent)}`));
        decade.dataset["rank"] = String(DECADE_RANK + order);
        return this.#at(decade, 10 ** exponent);
      });
    this.#ticks.replaceChildren(...decades, ...buttons);
    this.#placeTicks();
  }

  /** @param {HTMLElement} tick @param {number} scale */
  #at(tick, scale) {
    tick.style.setProperty("--at", String((this.#scale.position(scale) + 1) / 2));
    return tick;
  }

  /** Labels that find no room give way; the tick stays. */
  #placeTicks() {
    const row = this.#ticks.getBoundingClientRect();
    if (row.width === 0) return;
    const ticks = /** @type {HTMLElement[]} */ ([...this.#ticks.children]);
    const labels = ticks.map((tick) => {
      const { left, width } = (tick.firstElementChild ?? tick).getBoundingClientRect();
      return { left: left - row.left, width, rank: Number(tick.dataset["rank"]) };
    });
    const fits = fitLabels(labels, row.width, LABEL_GAP);
    ticks.forEach((tick, index) => tick.classList.toggle("mute", !fits[index]));
  }

  /** @param {ErrorBody | null} error shown at the control at fault */
  set error(error) {
    for (const [name, { root, control, note }] of this.#fields) {
      const isAtFault = error?.field === name;
      root.classList.toggle("at-fault", isAtFault);
      if (isAtFault) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
      note.textContent = isAtFault ? (error?.message ?? "") : (this.#whyUnused(name) ?? noteOf(name, this.#spec));
      if (isAtFault && this.#more.contains(root)) this.#more.open = true;
    }
  }
}

/** @param {string} name @param {Spec} spec @returns {string} why the control is off, or what its value means */
function noteOf(name, spec) {
  return DISABLED[name]?.(spec) ?? HINTS[name]?.(spec) ?? "";
}

/** @param {Spec} spec @returns {string} what the std of the weights at scale 1 depends on */
function netOf(spec) {
  return `${spec["program"]} ${spec["init"]} ${spec["widths"]}`;
}

customElements.define("spec-controls", SpecControls);
