/** <training-bar>: the step of the training: play, a slider over the steps, and the scores at the step.
 * Call `show(shown, isFailed)`, `goTo(step, moving)`. Event, bubbling: `spec-change` {change: {step}, moving}. */

import { emit, html, writeText } from "../core/dom.js";
import { percent, significant } from "../core/format.js";
import { iconButton, Player } from "../core/player.js";

/** The largest step of a spec. */
const LAST_STEP = 100_000;
/** Steps per picture. */
const STRIDES = [1, 2, 5, 10, 50, 200];
/** The slider goes this far at least. */
const SHORTEST = 100;
/** How often a next step is asked for, unless an answer is awaited. */
const PER_SECOND = 60;

class TrainingBar extends HTMLElement {
  #step = 0;
  /** The requested step. @type {number | null} */
  #awaited = null;
  /** Whether the box has a text that is not entered yet. */
  #isTyped = false;

  #stride = html("select", { "aria-label": "Steps per picture", title: "Steps per picture" },
    ...STRIDES.map((stride) => html("option", { value: String(stride) }, stride === 1 ? "1 step" : `${stride} steps`)));
  #scrubber = html("input", { type: "range", min: "0", max: String(SHORTEST), step: "1",
    "aria-label": "Training step" });
  #number = html("input", { type: "text", inputmode: "numeric", autocomplete: "off", "aria-label": "Step" });
  #scores = html("span", { class: "scores" });
  #player = new Player({ perSecond: () => PER_SECOND, isHidden: () => false,
    isAtEnd: () => (this.#awaited ?? this.#step) >= LAST_STEP, rewind: () => this.#go(0, true), next: () => {
      if (this.#awaited === null) this.#playOn();
    } });

  connectedCallback() {
    const move = (/** @type {string} */ icon, /** @type {string} */ title, /** @type {() => number} */ to) =>
      iconButton(icon, title, () => this.goTo(to(), false));
    this.#player.button.addEventListener("click", () => {
      // A pause ends the drag that playing is.
      if (!this.#player.isPlaying) this.#go(this.#awaited ?? this.#step, false);
    });
    this.#scrubber.addEventListener("input", () => this.goTo(Number(this.#scrubber.value), true));
    this.#scrubber.addEventListener("change", () => this.#go(Number(this.#scrubber.value), false));
    this.#number.addEventListener("input", () => (this.#isTyped = true));
    this.#number.addEventListener("blur", () => (this.#isTyped = false));
    this.#number.addEventListener("change", () => {
      this.#isTyped = false;
      const asked = Number(this.#number.value.trim() || NaN);
      if (Number.isSafeInteger(asked) && asked >= 0) this.goTo(asked, false);
      else this.#number.value = String(this.#step);
    });
    this.append(move("first", "Step 0", () => 0), move("back", "Step back", () => this.#step - 1), this.#player.button,
      move("on", "One step", () => this.#step + 1), this.#scrubber, html("label", {}, "Step ", this.#number),
      html("label", {}, "A picture every ", this.#stride), this.#scores);
  }

  /** Pauses, and goes to a step. @param {number} step @param {boolean} moving whether a drag goes on */
  goTo(step, moving) {
    this.#player.pause();
    this.#go(step, moving);
  }

  get isPlaying() {
    return this.#player.isPlaying;
  }

  /** While it plays, asks for the next step when the awaited one arrives: the server computes it while the page paints.
   * @param {number} step */
  arrived(step) {
    if (step !== this.#awaited) return;
    this.#awaited = null;
    this.#step = step;
    if (this.isPlaying && step < LAST_STEP) this.#playOn();
  }

  /** Plays on from step 0, which is asked for: a picture of the net before that is still to come does not count. */
  beginAnew() {
    this.#awaited = 0;
  }

  /** @param {TrainingShown} shown @param {boolean} isRefused whether the server refused what was asked */
  show({ run, step }, isRefused) {
    if (isRefused && this.isPlaying) {
      this.#player.pause();
      // The refused step stays the wanted one; the drag that playing is ends.
      emit(this, "spec-change", { change: { step: this.#awaited ?? this.#step }, moving: false });
    }
    if (isRefused || step === this.#awaited) this.#awaited = null;
    this.#step = step;
    const longest = String(Math.max(SHORTEST, nice(Math.max(step, run.last))));
    if (this.#scrubber.max !== longest) this.#scrubber.max = longest;
    if (this.#awaited === null || this.#player.isPlaying) this.#scrubber.value = String(step);
    if (!this.#isTyped) this.#number.value = String(this.isPlaying ? step : this.#awaited ?? step);
    writeText(this.#scores, scoresOf(run.scores.get(step)));
  }

  /** Asks for the next step that is played; the last one ends the play. */
  #playOn() {
    const next = this.#step + Number(this.#stride.value);
    if (next >= LAST_STEP) this.#player.pause();
    this.#go(next, this.isPlaying);
  }

  /** @param {number} step @param {boolean} moving */
  #go(step, moving) {
    const next = Math.min(LAST_STEP, Math.max(0, step));
    this.#awaited = next === this.#step ? null : next;
    emit(this, "spec-change", { change: { step: next }, moving });
  }
}

/** @param {number} value @returns {number} 1, 2 or 5 times a power of ten that is not less */
function nice(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return unit * ([1, 2, 5].find((times) => times * unit >= value) ?? 10);
}

/** @param {TrainingScores | undefined} scores @returns {string} */
function scoresOf(scores) {
  if (scores === undefined) return "";
  const { loss, accuracy, heldOutLoss, heldOutAccuracy } = scores;
  const told = (/** @type {number} */ value, /** @type {number} */ share) =>
    significant(value) + (Number.isNaN(share) ? "" : `, ${percent(share)} correct`);
  const heldOut = Number.isNaN(heldOutAccuracy) && Number.isNaN(heldOutLoss) ? ""
    : ` · held out ${told(heldOutLoss, heldOutAccuracy)}`;
  return `Loss ${told(loss, accuracy)}${heldOut}`;
}

customElements.define("training-bar", TrainingBar);
