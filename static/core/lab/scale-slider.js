/** A slider from ×0.5 to ×2 with equal steps. A button shows the whole range, in decades; a value outside ×0.5 to ×2
 * shows it too. The pointer snaps to ticks, and [ and ] go to them. The arrow keys go by 1 %, with Shift, PageUp and
 * PageDown by 10 %. */

import { buttonOf, html, write, writeText } from "../dom.js";
import { setting } from "../format.js";
import { decadeLabel, decadeTicks, linearScale, sliderScale } from "../scales.js";
import { ValueAxis } from "../value-axis.js";

/** formula, std: of the weights; scale: with which they have it, four significant digits; anchor: which end of the label
 * stands at the tick; rank: which labels to keep where not all fit, small ones first
 * @typedef {{label: string, formula: string, std: number, scale: number, anchor: "start" | "middle" | "end",
 * rank: number}} Tick */

/** @type {readonly (Pick<Tick, "label" | "formula" | "anchor" | "rank"> & {std: (n: number) => number})[]} */
const WORTH_HITTING = [
  { label: ".01", formula: "0.01", std: () => 0.01, anchor: "end", rank: 3 },
  // Only 0.15 decades apart: their labels hang to either side.
  { label: "1/√n", formula: "1/√n", std: (n) => 1 / Math.sqrt(n), anchor: "end", rank: 1 },
  { label: "√2/√n", formula: "√(2/n)", std: (n) => Math.sqrt(2 / n), anchor: "start", rank: 0 },
  { label: "1", formula: "1", std: () => 1, anchor: "middle", rank: 2 },
];

/** Share of the way to a neighbouring tick that snaps, so that values between close ticks can be chosen. */
const SHARED = 1 / 3;

/** @param {number} unit std of the weights at scale 1 @param {number} n inputs of the layer @param {number} minimum
 * @param {number} maximum
 * @returns {Tick[]} those within reach, by rising scale; none where the weights have no scale */
export function snapTicks(unit, n, minimum, maximum) {
  if (!(unit > 0) || !Number.isFinite(unit)) return [];
  return WORTH_HITTING.map(({ std, ...tick }) => ({ ...tick, std: std(n),
    scale: Number((std(n) / unit).toPrecision(4)) })
  ).filter(({ scale }) => scale >= minimum && scale <= maximum).sort((a, b) => a.scale - b.scale);
}

/** Which of some rising places the pointer's place snaps to: one no more than `reach` away, and less than a third of
 * the way from it to its neighbour on that side.
 * @param {number} at @param {readonly number[]} places @param {number} reach @returns {number | null} its index */
export function snap(at, places, reach) {
  let nearest = null;
  let least = Infinity;
  places.forEach((place, index) => {
    const away = Math.abs(at - place);
    const neighbour = places[at < place ? index - 1 : index + 1] ?? Infinity;
    if (away > reach || away >= least || away > SHARED * Math.abs(neighbour - place)) return;
    nearest = index;
    least = away;
  });
  return nearest;
}

/** @param {readonly Pick<Tick, "scale">[]} ticks by rising scale @param {number} scale @param {1 | -1} direction
 * @returns {number | null} the scale of the next tick that way */
export function nextTick(ticks, scale, direction) {
  // Half a unit of the fourth digit, so that the current tick is not the next one.
  const ahead = ticks.filter((tick) => direction * (tick.scale / scale - 1) > 5e-4);
  return (direction > 0 ? ahead[0] : ahead.at(-1))?.scale ?? null;
}

/** Which labels of a row fit: by rank, each where it overlaps none before it and lies inside.
 * @param {readonly {left: number, width: number, rank: number}[]} labels @param {number} length of the row
 * @param {number} gap */
export function fitLabels(labels, length, gap) {
  const fits = labels.map(() => false);
  /** @type {{left: number, width: number}[]} */
  const placed = [];
  const order = labels.map((_, index) => index).sort((a, b) => labels[a].rank - labels[b].rank);
  for (const index of order) {
    const label = labels[index];
    if (label === undefined || label.left < 0 || label.left + label.width > length) continue;
    if (placed.some(({ left, width }) => label.left < left + width + gap && left < label.left + label.width + gap))
      continue;
    placed.push(label);
    fits[index] = true;
  }
  return fits;
}

/** @typedef {Pick<Tick, "label" | "scale" | "anchor" | "rank"> & {says: string}} SliderTick says: the whole of it */

const FINE_STEP = 1;
const COARSE_STEP = 10;

/** Around ×1, where it matters most. */
const NEAR = { minimum: 0.5, maximum: 2 };
/** px between thumb and tick within which the pointer snaps */
const SNAP_REACH = 3;
/** px that the thumb takes of the slider's width */
const THUMB = 24;
const LABEL_GAP = 2;
/** Labels of the axis give way to those of ticks. */
const AXIS_RANK = 10;
/** The length of a slider in the panel, and the distance between its labels, px. A label without room is left out. */
const USUAL_LENGTH = 220;
const LABEL_SPACING = 36;

const TICK_HELP = "Press [ and ] to go from tick to tick. Hold Alt to drag without snapping.";

export class ScaleSlider {
  input = html("input", { type: "range", class: "slider", min: "-1", max: "1", step: "any" });
  marks = html("div", { class: "ticks" });
  /** Shows the whole range. */
  button = buttonOf({ class: "link range" }, () => this.#press(), "Whole range");
  #change;
  /** All values that the key allows. */
  range = { minimum: 1e-4, maximum: 1e4 };
  #shownRange = NEAR;
  #scale = linearScale(NEAR.minimum, NEAR.maximum);
  /** A person has asked for the whole range. */
  #isAsked = false;
  /** The value that this slider reported last: while a person moves it, the range stays. */
  #reported = NaN;
  /** Std of the weights at ×1, for the labels; null: they are factors. @type {number | null} */
  #unit = null;
  /** The value, which may lie beyond the slider. */
  #value = 1;
  #ticks = /** @type {readonly SliderTick[]} */ ([]);
  /** The ticks in the shown range. @type {{ticks: readonly SliderTick[], places: number[]}} */
  #snaps = { ticks: [], places: [] };
  #keyboardMoving = false;
  /** The scale that the pointer is dragging, until it lets go. @type {number | null} */
  #dragged = null;
  /** From the middle of the slider to the last place of its thumb, px. Measuring during a drag would lay out the page. */
  #travel = 0;
  #isAltDown = false;

  /** @param {string} label
   * @param {(scale: number, moving: boolean) => void} change moving: the slider is still on its way */
  constructor(label, change) {
    const { input } = this;
    this.#change = (/** @type {number} */ scale, /** @type {boolean} */ moving) => {
      this.#reported = scale;
      change(scale, moving);
    };
    input.setAttribute("aria-label", label);
    new ResizeObserver(([entry]) => (this.#travel = ((entry?.contentRect.width ?? 0) - THUMB) / 2)).observe(input);
    new ResizeObserver(() => this.#placeLabels()).observe(this.marks);
    input.addEventListener("input", () => this.#drag(Number(input.value)));
    for (const type of ["change", "pointerup", "pointercancel"]) input.addEventListener(type, () => this.#letGo());
    // An input event does not say which keys are held.
    for (const type of ["pointerdown", "pointermove"])
      input.addEventListener(type, (event) => (this.#isAltDown = event instanceof PointerEvent && event.altKey));
    input.addEventListener("keydown", (event) => this.#onKey(event));
    for (const type of ["keyup", "blur"]) input.addEventListener(type, () => this.#keyboardStops());
  }

  /** @param {SpecKey} key @param {HTMLElement} typed the field for the same number, which gets a × before it */
  configure({ minimum, maximum, doc }, typed) {
    this.range = { minimum: minimum ?? 1e-4, maximum: maximum ?? 1e4 };
    this.#setRange(this.#isWhole);
    this.input.title = `${doc} ${TICK_HELP}`;
    typed.before(html("span", { class: "times", "aria-hidden": "true" }, "×"));
  }

  get #isWhole() {
    return this.#shownRange !== NEAR;
  }

  /** @param {boolean} isWhole */
  #setRange(isWhole) {
    this.#shownRange = isWhole ? this.range : NEAR;
    const { minimum, maximum } = this.#shownRange;
    this.#scale = (isWhole ? sliderScale : linearScale)(minimum, maximum);
    this.#writeButton();
    this.#drawMarks();
  }

  #writeButton() {
    const isNeeded = isOutside(this.#value);
    const told = isNeeded ? "The scale is outside ×0.5 to ×2"
      : this.#isWhole ? "Show ×0.5 to ×2 on a linear axis"
      : `Show ×${setting(this.range.minimum)} to ×${setting(this.range.maximum)} on a logarithmic axis`;
    writeText(this.button, this.#isWhole ? "×0.5 to ×2" : "Whole range");
    write(this.button, "aria-disabled", String(isNeeded));
    write(this.button, "title", told);
  }

  #press() {
    if (isOutside(this.#value)) return;
    this.#isAsked = !this.#isWhole;
    this.#setRange(this.#isAsked);
    this.value = this.#value;
  }

  /** @param {number} scale that is set; the thumb stays where it is if it is none */
  set value(scale) {
    const { input } = this;
    const isNews = scale !== this.#value;
    this.#value = scale;
    const stays = Number.isNaN(scale) || scale === this.#reported;
    const isWhole = isOutside(scale) || this.#isAsked || (this.#isWhole && stays);
    if (isWhole !== this.#isWhole) this.#setRange(isWhole);
    else if (isNews) this.#writeButton();
    if (Number.isFinite(scale) && scale > 0 && this.#scale.value(Number(input.value)) !== scale)
      input.value = String(this.#scale.position(scale));
    input.style.setProperty("--fill", String((Number(input.value) + 1) / 2));
  }

  /** @param {readonly SliderTick[]} ticks by rising scale @param {number | null} [unit] std of the weights at ×1, in
   * which the labels are; null: they are factors */
  mark(ticks, unit = null) {
    this.#ticks = ticks;
    this.#unit = unit;
    this.#drawMarks();
  }

  #drawMarks() {
    const { minimum, maximum } = this.#shownRange;
    const ticks = this.#ticks.filter(({ scale }) => scale >= minimum && scale <= maximum);
    this.#snaps = { ticks, places: ticks.map(({ scale }) => this.#scale.position(scale)) };
    const buttons = ticks.map(({ label, says, scale, anchor, rank }) => {
      const tick = buttonOf({ class: `tick ${anchor}`, tabindex: "-1", title: `${says}. ${TICK_HELP}`,
        "aria-label": says, "data-rank": String(rank), "data-scale": String(scale) }, () => this.#change(scale, false),
        html("span", {}, label));
      return this.#at(tick, scale);
    });
    const labels = this.#labels().map(({ scale, text }, order, { length }) => {
      const label = html("span", { class: order === length - 1 ? "decade last" : "decade", "aria-hidden": "true",
        "data-rank": String(AXIS_RANK + order) }, html("span", {}, text));
      return this.#at(label, scale);
    });
    this.marks.replaceChildren(...labels, ...buttons);
    this.#placeLabels();
  }

  /** @returns {{scale: number, text: string}[]} of the axis, in one unit: std of the weights, or factors */
  #labels() {
    const { minimum, maximum } = this.#shownRange;
    const [unit, sign] = this.#unit === null ? [1, "×"] : [this.#unit, ""];
    if (this.#isWhole) {
      const exponents = decadeTicks(Math.ceil(Math.log10(unit * minimum)), Math.floor(Math.log10(unit * maximum)),
        USUAL_LENGTH, LABEL_SPACING);
      return exponents.map((exponent) => ({ scale: 10 ** exponent / unit, text: sign + decadeLabel(exponent) }));
    }
    const axis = new ValueAxis("linear", unit * minimum, unit * maximum, 1);
    return axis.ticks(0, 1, USUAL_LENGTH, LABEL_SPACING).map(({ place, text }) => ({
      scale: minimum + place * (maximum - minimum),
      text: sign + text,
    }));
  }

  /** @param {number} position where the pointer has the thumb */
  #drag(position) {
    const caught = this.#isAltDown ? null : snap(position, this.#snaps.places, SNAP_REACH / Math.max(1, this.#travel));
    const tick = caught === null ? undefined : this.#snaps.ticks[caught];
    this.#dragged = tick?.scale ?? this.#scale.value(position);
    this.#change(this.#dragged, true);
  }

  #letGo() {
    if (this.#dragged === null) return;
    const scale = this.#dragged;
    this.#dragged = null;
    this.#change(scale, false);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const { minimum, maximum } = this.#shownRange;
    const isJump = event.ctrlKey && event.key.startsWith("Arrow");
    const back = event.key === "[" || (isJump && (event.key === "ArrowLeft" || event.key === "ArrowDown"));
    if (back || event.key === "]" || isJump) {
      event.preventDefault();
      const next = nextTick(this.#ticks, this.#shown, back ? -1 : 1);
      if (next === null) return;
      this.#keyboardMoving = true;
      this.#change(next, true);
      return;
    }
    const step = event.shiftKey ? COARSE_STEP : FINE_STEP;
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: COARSE_STEP,
      PageDown: -COARSE_STEP };
    const by = steps[event.key];
    const ends = event.key === "Home" ? minimum : event.key === "End" ? maximum : undefined;
    if (by === undefined && ends === undefined) return;
    event.preventDefault();
    this.#keyboardMoving = true;
    this.#change(ends ?? this.#scale.step(this.#shown, by ?? 0), true);
  }

  /** The scale from which keys move: the value, or the thumb's if the value lies beyond the slider. */
  get #shown() {
    const { minimum, maximum } = this.#shownRange;
    return this.#value >= minimum && this.#value <= maximum ? this.#value : this.#scale.value(Number(this.input.value));
  }

  #keyboardStops() {
    if (!this.#keyboardMoving) return;
    this.#keyboardMoving = false;
    this.#change(this.#value, false);
  }

  /** @param {HTMLElement} tick @param {number} scale */
  #at(tick, scale) {
    tick.style.setProperty("--at", String((this.#scale.position(scale) + 1) / 2));
    return tick;
  }

  /** Labels that find no room give way; the tick stays. */
  #placeLabels() {
    const row = this.marks.getBoundingClientRect();
    if (row.width === 0) return;
    const ticks = /** @type {HTMLElement[]} */ ([...this.marks.children]);
    const labels = ticks.map((tick) => {
      const { left, width } = (tick.firstElementChild ?? tick).getBoundingClientRect();
      return { left: left - row.left, width, rank: Number(tick.dataset["rank"]) };
    });
    const fits = fitLabels(labels, row.width, LABEL_GAP);
    ticks.forEach((tick, index) => tick.classList.toggle("mute", !fits[index]));
  }
}

/** @param {number} scale */
function isOutside(scale) {
  return scale < NEAR.minimum || scale > NEAR.maximum;
}
