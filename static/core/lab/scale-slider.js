/** A slider over decades, with ticks that the pointer snaps to and [ and ] go to. The arrow keys go by hundredths of a
 * decade, with Shift, PageUp and PageDown by tenths. */

import { buttonOf, html } from "../dom.js";
import { decadeLabel, sliderScale } from "../scales.js";

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

/** px between thumb and tick within which the pointer snaps */
const SNAP_REACH = 6;
/** px that the thumb takes of the slider's width */
const THUMB = 18;
const LABEL_GAP = 2;
/** Decades' labels give way to those of ticks. */
const DECADE_RANK = 10;

const TICK_HELP = "[ and ] go from tick to tick; with Alt the thumb does not snap.";

export class ScaleSlider {
  input = html("input", { type: "range", class: "slider", min: "-1", max: "1", step: "any" });
  marks = html("div", { class: "ticks" });
  #change;
  range = { minimum: 1e-4, maximum: 1e4 };
  #scale = sliderScale(1e-4, 1e4);
  /** The value, which may lie beyond the slider. */
  #value = 1;
  /** @type {{ticks: readonly SliderTick[], places: number[]}} */
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
    this.#change = change;
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
    this.#scale = sliderScale(this.range.minimum, this.range.maximum);
    this.input.title = `${doc} ${TICK_HELP}`;
    typed.before(html("span", { class: "times", "aria-hidden": "true" }, "×"));
  }

  /** @param {number} scale that is set; the thumb stays where it is if it is none */
  set value(scale) {
    const { input } = this;
    this.#value = scale;
    if (Number.isFinite(scale) && scale > 0 && this.#scale.value(Number(input.value)) !== scale)
      input.value = String(this.#scale.position(scale));
    input.style.setProperty("--fill", String((Number(input.value) + 1) / 2));
  }

  /** @param {readonly SliderTick[]} ticks by rising scale */
  set ticks(ticks) {
    const { minimum, maximum } = this.range;
    this.#snaps = { ticks, places: ticks.map(({ scale }) => this.#scale.position(scale)) };
    const buttons = ticks.map(({ label, says, scale, anchor, rank }) => {
      const tick = buttonOf({ class: `tick ${anchor}`, tabindex: "-1", title: `${says}. ${TICK_HELP}`,
        "aria-label": says, "data-rank": String(rank), "data-scale": String(scale) }, () => this.#change(scale, false),
        html("span", {}, label));
      return this.#at(tick, scale);
    });
    const decades = [-4, -2, 0, 2, 4].filter((exponent) => 10 ** exponent >= minimum && 10 ** exponent <= maximum).map(
      (exponent, order, { length }) => {
        const decade = html("span", { class: order === length - 1 ? "decade last" : "decade", "aria-hidden": "true",
          "data-rank": String(DECADE_RANK + order) }, html("span", {}, `×${decadeLabel(exponent)}`));
        return this.#at(decade, 10 ** exponent);
      },
    );
    this.marks.replaceChildren(...decades, ...buttons);
    this.#placeLabels();
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
    const { minimum, maximum } = this.range;
    const isJump = event.ctrlKey && event.key.startsWith("Arrow");
    const back = event.key === "[" || (isJump && (event.key === "ArrowLeft" || event.key === "ArrowDown"));
    if (back || event.key === "]" || isJump) {
      event.preventDefault();
      const next = nextTick(this.#snaps.ticks, this.#shown, back ? -1 : 1);
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
    const { minimum, maximum } = this.range;
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
