/** <prediction-prompt>: asks for a guess before a figure is shown, then compares the two.
 * Call `show(picture, prediction)`; set `theory`. Events, bubbling: `prediction-guess` {guess}, null: again; `prediction-end`. */

import { buttonOf, emit, html, put } from "../core/dom.js";
import { percent, significant } from "../core/format.js";
import { expected, measured, problemOf, readGuess, STATISTIC_NAMES } from "../core/lab/prediction.js";

class PredictionPrompt extends HTMLElement {
  #picture = /** @type {Picture | null} */ (null);
  #prediction = /** @type {Prediction | null} */ (null);
  #theory = /** @type {Theory | null} */ (null);
  /** The content on the screen: typed text must survive new pictures. */
  #built = "";
  #input = html("input", { type: "text", inputmode: "decimal", autocomplete: "off", size: "8", id: "guess",
    "aria-describedby": "guess-problem" });
  #problem = html("span", { class: "problem", id: "guess-problem", role: "alert" });
  #answer = html("p", { class: "answer", id: "guess-answer" });

  connectedCallback() {
    put(this, "hidden", this.#prediction === null);
    this.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.#end();
    });
  }

  /** @param {Picture} picture @param {Prediction | null} prediction */
  show(picture, prediction) {
    this.#picture = picture;
    this.#prediction = prediction;
    this.#draw();
  }

  /** @param {Theory | null} theory */
  set theory(theory) {
    this.#theory = theory;
    this.#draw();
  }

  /** @override */
  focus() {
    (this.querySelector("input") ?? this.querySelector("button"))?.focus();
  }

  #draw() {
    const [picture, prediction] = [this.#picture, this.#prediction];
    put(this, "hidden", prediction === null);
    if (picture === null || prediction === null) {
      this.#built = "";
      this.replaceChildren();
      return;
    }
    const problem = problemOf(picture, prediction);
    const what = problem ?? `${prediction.figure} ${prediction.guess ?? ""}`;
    if (what !== this.#built) {
      const hadFocus = this.contains(document.activeElement);
      this.#built = what;
      if (problem !== null) this.replaceChildren(html("p", { role: "status" }, problem), this.#close());
      else if (prediction.guess === null) this.replaceChildren(...this.#question(prediction));
      else {
        // Focusing this button makes a screen reader announce the answer once, not with every picture.
        const again = buttonOf({ class: "link", "aria-describedby": "guess-answer" }, () =>
          emit(this, "prediction-guess", { guess: null }), "guess again");
        this.replaceChildren(this.#answer, again, this.#close());
      }
      if (hadFocus) this.focus();
    }
    if (problem === null && prediction.guess !== null) this.#tell(picture, prediction, prediction.guess);
  }

  /** @param {Prediction} prediction @returns {Node[]} */
  #question(prediction) {
    const { tensor, statistic } = prediction;
    this.#input.value = "";
    this.#complain("");
    const words = statistic === null ? "" : STATISTIC_NAMES[statistic];
    const range = isShareOf(prediction) ? " (0 to 1, or %)" : "";
    const label = html("label", { for: "guess" }, `What will the ${words} of ${tensor} be?${range}`);
    const form = html("form", {}, label, this.#input, html("button", { class: "button" }, "Reveal"), this.#problem);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const guess = readGuess(this.#input.value);
      if (guess !== null) {
        emit(this, "prediction-guess", { guess });
        return;
      }
      const typed = this.#input.value.trim();
      this.#complain(
        typed === "" ? "Type a number first." : `${typed.slice(0, 20)} is not a number: write it like 0.8 or 1e-3.`,
      );
      this.#input.focus();
    });
    this.#input.oninput = () => this.#complain("");
    return [form, this.#close()];
  }

  /** @param {string} problem */
  #complain(problem) {
    this.#problem.textContent = problem;
    if (problem === "") this.#input.removeAttribute("aria-invalid");
    else this.#input.setAttribute("aria-invalid", "true");
  }

  /** @param {Picture} picture @param {Prediction} prediction @param {number} guess */
  #tell(picture, prediction, guess) {
    const value = measured(picture, prediction);
    const theory = expected(picture, this.#theory, prediction);
    const isShare = isShareOf(prediction);
    const written = isShare ? percent : significant;
    const range = theory?.band == null ? "" : ` (${written(theory.band[0])}–${written(theory.band[1])})`;
    const parts = [
      [`${prediction.figure}: your guess `, html("b", {}, isShare ? percent(guess) : String(guess).replace("-", "−"))],
      [" · measured ", html("b", {}, value === null ? "no finite value" : written(value)),
        value === null ? "" : ` (${nearness(guess, value, isShare)})`],
      theory === null ? [] : [` · theory ${written(theory.value)}${range}`],
    ].flat();
    const text = parts.map((part) => typeof part === "string" ? part : part.textContent).join("");
    if (this.#answer.textContent !== text) this.#answer.replaceChildren(...parts);
  }

  #close() {
    return buttonOf({ class: "icon-button", "aria-label": "End the prediction", title: "End the prediction (Esc)" },
      () => this.#end(), "✕");
  }

  #end() {
    emit(this, "prediction-end", {});
  }
}

/** @param {Prediction} prediction @returns {boolean} whether the figure is a share, 0 to 1 */
function isShareOf({ statistic }) {
  return statistic === "zero_fraction" || statistic === "dead_fraction" || statistic === "saturation";
}

/** @param {number} guess @param {number} value @param {boolean} isShare
 * @returns {string} measured ÷ guess, or their difference if the signs differ */
function nearness(guess, value, isShare) {
  if (guess !== 0 && value !== 0 && Math.sign(guess) === Math.sign(value)) return `×${significant(value / guess)}`;
  const away = value - guess;
  return `${away > 0 ? "+" : ""}${isShare ? `${significant(100 * away)} pp` : significant(away)}`;
}

customElements.define("prediction-prompt", PredictionPrompt);
