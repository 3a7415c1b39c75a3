/** <lesson-column>: one step of a lesson: a question, its answers, and when it is done the explanation.
 * Call `show(lesson, at, answer, isMet, unknown)`. Events, bubbling: `lesson-step` {at}, `lesson-answer` {answer},
 * `lesson-end` {}. */

import { buttonOf, emit, html } from "../core/dom.js";

class LessonColumn extends HTMLElement {
  #shown = "";

  /** @param {Lesson} lesson @param {number} at the step, from 0 @param {string} answer chosen, from 1; "" for none
   * @param {boolean} isMet whether the step's condition has been met
   * @param {string} unknown a name in the step that the page does not know, as a sentence; "" for none */
  show(lesson, at, answer, isMet, unknown) {
    const shown = JSON.stringify([lesson.name, at, answer, isMet, unknown]);
    if (shown === this.#shown) return;
    const isSameStep = this.#shown.startsWith(JSON.stringify([lesson.name, at]).slice(0, -1) + ",");
    this.#shown = shown;
    const step = lesson.steps[at];
    if (step === undefined) return;
    const chosen = step.answers[Number(answer) - 1];
    const isAnswered = step.answers.length === 0 || chosen !== undefined;
    const isDone = isAnswered && (isMet || step.until === "");
    const isLast = at === lesson.steps.length - 1;
    const close = buttonOf({ class: "icon-button", "aria-label": "Close the lesson" },
      () => emit(this, "lesson-end", {}), "×");
    const parts = [
      html("header", {}, html("p", { class: "place" }, `${lesson.title} · step ${at + 1} of ${lesson.steps.length}`),
        close),
      html("h2", {}, step.title),
      markup(step.question),
    ];
    if (step.answers.length > 0) parts.push(this.#answers(step, answer));
    const told = html("div", { class: "text", "aria-live": "polite" });
    if (chosen !== undefined)
      told.append(html("p", { class: "said" }, chosen.is_right ? "Yes." : "No. The marked answer is correct."));
    if (isAnswered && (step.until !== "" || unknown !== ""))
      told.append(
        html("p", { class: isMet ? "task is-met" : "task" },
          isMet ? "✓ Done" : unknown || "Now try it in the picture."),
      );
    if (isDone && step.explanation !== "") told.append(markup(step.explanation));
    const steps = html("footer", {});
    if (at > 0) steps.append(buttonOf({ class: "toggle" }, () => emit(this, "lesson-step", { at: at - 1 }), "Back"));
    steps.append(
      isLast ? buttonOf({ class: "toggle" }, () => emit(this, "lesson-end", {}), "End of the lesson")
        : buttonOf({ class: isDone ? "toggle next" : "toggle" }, () => emit(this, "lesson-step", { at: at + 1 }),
          isDone ? "Next" : "Skip"),
    );
    const focused = isSameStep ? document.activeElement?.getAttribute("data-answer") : null;
    this.replaceChildren(...parts, told, steps);
    if (focused != null) /** @type {HTMLElement | null} */ (this.querySelector(`[data-answer="${focused}"]`))?.focus();
    if (!isSameStep) this.scrollTop = 0;
    else told.scrollIntoView({ block: "nearest" });
  }

  /** @param {LessonStep} step @param {string} answer */
  #answers({ answers }, answer) {
    const isAnswered = answers[Number(answer) - 1] !== undefined;
    return html("ul", { class: "answers" }, ...answers.map(({ text, is_right }, order) => {
      const number = String(order + 1);
      const button = buttonOf({ "data-answer": number, "aria-pressed": String(number === answer) },
        () => emit(this, "lesson-answer", { answer: number }));
      button.innerHTML = text;
      if (isAnswered && is_right) button.className = "is-right";
      return html("li", {}, button);
    }));
  }
}

/** @param {string} text HTML that the server made of a lesson's Markdown, in which markup of the file is text */
function markup(text) {
  const element = html("div", { class: "text" });
  element.innerHTML = text;
  return element;
}

customElements.define("lesson-column", LessonColumn);
