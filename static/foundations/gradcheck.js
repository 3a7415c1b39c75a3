/** The gradient check: verdicts in both dtypes, the Jacobians of one, the error at every step, and an exercise's
 * solution. */

import { lightLines } from "../core/chapter/listing.js";
import { byId, row } from "../core/chapter/parts.js";
import { startPage } from "../core/chapter/page.js";
import { html } from "../core/dom.js";
import { significant } from "../core/format.js";
import { jacobians, verdictCard } from "./jacobians.js";
import { curveText, power, stepCurve } from "./step-curve.js";

/** @typedef {{line: number, wrong: string, right: string, shows: string}} Solution */
/** @typedef {object} Answer @property {string} function @property {boolean} is_exercise @property {string} formula
 * @property {"float64" | "float32"} dtype @property {number} eps @property {number} atol @property {number} rtol
 * @property {Record<"float64" | "float32", GradientCheck>} checks @property {StepCurves} steps
 * @property {Solution | null} solution */

let shown = /** @type {Answer | null} */ (null);
let isRevealed = false;

const page = startPage({ show });
new ResizeObserver(drawCurve).observe(byId("steps"));
byId("reveal").addEventListener("click", () => {
  isRevealed = !isRevealed;
  showSolution();
});

/** @param {Answer} answer */
function show(answer) {
  if (answer.function !== shown?.function) isRevealed = false;
  shown = answer;
  const { checks, dtype } = answer;
  byId("formula").textContent = answer.formula;
  byId("verdicts").replaceChildren(verdictCard("float64", checks.float64), verdictCard("float32", checks.float32));
  byId("why").textContent = why(answer);
  byId("jacobians-title").textContent = `The Jacobians in ${dtype}`;
  byId("jacobians").replaceChildren(jacobians(checks[dtype]));
  byId("steps-text").textContent = `${curveText(answer.steps)}.`;
  drawCurve();
  for (const each of document.querySelectorAll("[data-function]")) {
    if (each instanceof HTMLElement) each.hidden = each.dataset["function"] !== answer.function;
  }
  for (const each of document.querySelectorAll(".example[data-set^='function=']")) {
    each.setAttribute("aria-pressed",
      String(new URLSearchParams(each.getAttribute("data-set") ?? "").get("function") === answer.function));
  }
  byId("exercise").hidden = !answer.is_exercise;
  showSolution();
}

/** @param {Answer} answer @returns {string} why float32 differs */
function why({ checks, steps, eps, atol, is_exercise: isExercise }) {
  const { rounding, truncation } = steps.float32;
  const expected = rounding / eps + truncation * eps * eps;
  if (!checks.float64.passed) return isExercise ? "The forward is right, and the backward is not." : "";
  if (checks.float32.passed)
    return `float32 passes too: at eps ${power(eps)} rounding leaves ${
      significant(expected)
    } of error, which is tolerated.`;
  return `The same backward fails in float32, and not by its own mistake: forward is rounded to ε = ${
    significant(steps.float32.machine_epsilon)
  } of itself, and the difference divides that by 2 eps. About ${
    significant(expected)
  } of error is to be expected at eps ${power(eps)}; atol tolerates ${power(atol)}.`;
}

function drawCurve() {
  if (shown === null) return;
  const frame = byId("steps");
  const width = Math.min(760, Math.max(280, frame.clientWidth));
  frame.replaceChildren(
    stepCurve(shown.steps, shown, width, (eps) => page.set({ eps: Number(eps.toPrecision(3)).toExponential() })),
  );
}

function showSolution() {
  const solution = shown?.solution ?? null;
  const button = byId("reveal");
  button.textContent = isRevealed ? "Hide the line" : "Show the line";
  button.setAttribute("aria-expanded", String(isRevealed));
  const place = byId("solution");
  place.replaceChildren();
  if (shown === null) return;
  lightLines(shown.function, (_, number) => isRevealed && number === solution?.line);
  if (!isRevealed || solution === null) return;
  place.append(html("p", {}, solution.shows),
    html("table", { class: "facts" },
      html("tbody", {}, row("is", html("td", {}, html("code", {}, solution.wrong))),
        row("should be", html("td", {}, html("code", {}, solution.right))))));
}
