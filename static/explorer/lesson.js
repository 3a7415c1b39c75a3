/** The lesson beside the picture: its steps open views of the explorer, and end when their conditions hold. */

import { put } from "../core/dom.js";
import { holds, stepOf, unknownName } from "../core/lab/lesson.js";
import { parseView } from "../core/url-state.js";

const VISITED = "chainrule.visited";

/** @returns {boolean} whether this is the first visit; from now on it no longer is */
function isFirstVisit() {
  try {
    const isFirst = localStorage.getItem(VISITED) === null;
    localStorage.setItem(VISITED, "1");
    return isFirst;
  } catch {
    // A page without storage, such as one in a frame, cannot remember: it shows no greeting.
    return false;
  }
}

/** @param {Lesson[]} lessons @returns {string} where the page starts, as from its ? on; "" where the address says it */
export function landing(lessons) {
  if (location.search !== "") return "";
  const fragment = location.hash.slice(1);
  // A link that names a step and no spec leads to the step's own view.
  const found = stepOf(lessons, parseView(fragment).lesson);
  if (found !== null) return `${addressOf(found.lesson, found.at)}&${fragment}`;
  return fragment === "" && lessons[0] !== undefined && isFirstVisit() ? addressOf(lessons[0], 0) : "";
}

/** @param {Lesson} lesson @param {number} at
 * @returns {string} from its ? or # on; a step without a view of its own keeps that of the step before */
function addressOf(lesson, at) {
  const view = lesson.steps.slice(0, at + 1).findLast((step) => step.view !== "")?.view ?? "";
  return `${view}${view.includes("#") ? "&" : "#"}lesson=${lesson.name}.${at + 1}`;
}

/** @param {object} page @param {Lesson[]} page.lessons @param {any} page.column @param {Signal<View>} page.view
 * @param {Signal<Spec>} page.spec the one asked for
 * @param {Signal<Picture | null>} page.picture @param {(change: Partial<View>) => void} page.setView
 * @param {(address: string) => void} page.open a query and a fragment
 * @param {(type: string, listener: (detail: any) => void) => void} page.on */
export function connectLesson({ lessons, column, view, spec, picture, setView, open, on }) {
  /** The step whose condition has been met. */
  let met = "";
  let isOpening = false;
  const isCurrent = () => !isOpening && picture.value?.spec === spec.value;

  function show() {
    const { lesson: place, answer, mode } = view.value;
    const found = stepOf(lessons, place);
    put(column, "hidden", found === null);
    document.body.toggleAttribute("data-lesson", found !== null);
    document.body.dataset["mode"] = mode;
    if (found === null) return;
    const { lesson, step, at } = found;
    const isAnswered = step.answers.length === 0 || answer !== "";
    if (met !== place) met = "";
    if (isAnswered && step.until !== "" && picture.value !== null && isCurrent()
      && holds(step.until, picture.value, view.value)) met = place;
    const unknown = picture.value !== null && isCurrent() ? unknownName(step, picture.value) : "";
    column.show(lesson, at, answer, met === place, unknown);
  }

  /** @param {string} name @param {number} at */
  function go(name, at) {
    const lesson = lessons.find((each) => each.name === name);
    if (lesson === undefined) return;
    const { view: target } = lesson.steps[at] ?? { view: "" };
    if (target === "") setView({ lesson: `${name}.${at + 1}`, answer: "" });
    else {
      // Until the new spec is requested, the picture is still that of the previous step.
      isOpening = true;
      open(addressOf(lesson, at));
      isOpening = false;
    }
  }

  view.subscribe(show);
  picture.subscribe(show);
  on("lesson-step", ({ at }) => go(view.value.lesson.split(".")[0] ?? "", at));
  on("lesson-answer", ({ answer }) => setView({ answer }));
  on("lesson-end", () => setView({ lesson: "", answer: "" }));
  for (const button of document.querySelectorAll("button[data-lesson]")) {
    button.addEventListener("click", () => {
      button.closest("details")?.removeAttribute("open");
      go(button.getAttribute("data-lesson") ?? "", 0);
    });
  }
}
