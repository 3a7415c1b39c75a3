/** The gradient check: verdicts in both dtypes, the Jacobians of one, the error at every step, and an exercise's
 * solution. */

import { byId, code, decadeText, div, factsTable, label, lightLines, p, row, span, td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { html, svg } from "../core/dom.js";
import { significant } from "../core/format.js";
import { jacobians, verdictCard } from "./jacobians.js";

/** @typedef {{line: number, wrong: string, right: string, shows: string}} Solution */
/** @typedef {object} Answer @property {string} function @property {boolean} is_exercise @property {string} formula
 * @property {"float64" | "float32"} dtype @property {number} eps @property {number} atol @property {number} rtol
 * @property {Record<"float64" | "float32", GradientCheck>} checks @property {StepCurves} steps
 * @property {Solution | null} solution */

let shown = /** @type {Answer | null} */ (null);
let isRevealed = false;

const page = new ChapterPage({ show });
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
    each.toggleAttribute("hidden", each.getAttribute("data-function") !== answer.function);
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
  if (!checks.float64.passed) {
    return checks.float64.comparisons.find(({ kink }) => kink !== null)?.kink
      ?? (isExercise ? "The forward is correct, and the backward is not." : "");
  }
  if (checks.float32.passed)
    return `float32 passes too: at eps ${power(eps)} the expected error, ${significant(expected)}, is tolerated.`;
  return `The same backward fails in float32, although it is correct. The values of forward have a relative rounding error of ε = ${
    significant(steps.float32.machine_epsilon)
  }, and the finite difference divides their error by 2 eps. The expected error at eps ${power(eps)} is about ${
    significant(expected)
  }; atol allows ${power(atol)}.`;
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
  place.append(p("", solution.shows),
    factsTable([], [row("is", td("", code(solution.wrong))), row("should be", td("", code(solution.right)))]));
}

// The error of the differences at every step, on two logarithmic axes: the V of rounding and truncation, per dtype

const HEIGHT = 320;
const MARGIN = { left: 52, right: 16, top: 24, bottom: 40 };
const [MIN_X, MAX_X] = [-12, -1];
const [MIN_Y, MAX_Y] = [-14, 4];
const DTYPES = /** @type {const} */ (["float64", "float32"]);

/** @param {StepCurves} steps @param {{eps: number, atol: number}} chosen @param {number} width px
 * @param {(eps: number) => void} choose @returns {HTMLElement} */
function stepCurve(steps, chosen, width, choose) {
  const x = scale(MIN_X, MAX_X, MARGIN.left, width - MARGIN.right);
  const y = scale(MIN_Y, MAX_Y, HEIGHT - MARGIN.bottom, MARGIN.top);
  const picture = svg("svg", { class: "step-curve", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT,
    role: "img", "aria-label": said(steps) });
  picture.append(...axes(x, y, width));
  if (chosen.atol > 0) {
    const at = y(chosen.atol);
    picture.append(svg("line", { class: "atol", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }),
      label(width - MARGIN.right, at - 4, `atol ${power(chosen.atol)}`, "end", "note"));
  }
  const now = x(chosen.eps);
  picture.append(svg("line", { class: "now", x1: now, x2: now, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
    label(now, MARGIN.top - 8, `eps ${power(chosen.eps)}`, "middle", "note strong"));
  for (const dtype of DTYPES) picture.append(curve(dtype, steps, x, y, choose));
  return div("step-curve-frame", picture,
    p("keys", key("float64"), key("float32"),
      span("soft",
        "dots: measured error · lines: expected error of a correct backward, rounding / eps + truncation · eps²")));
}

/** @param {number} value @returns {string} 1e−6 */
function power(value) {
  return Number(value.toPrecision(3)).toExponential().replace("e+", "e").replace("-", "−");
}

/** @param {string} dtype @returns {HTMLElement} */
function key(dtype) {
  return span(`key ${dtype}`, html("i"), dtype);
}

/** @param {number} low @param {number} high exponents @param {number} from @param {number} to px
 * @returns {(value: number) => number} */
function scale(low, high, from, to) {
  return (value) => from + ((Math.min(high, Math.max(low, Math.log10(value))) - low) / (high - low)) * (to - from);
}

/** @param {(value: number) => number} x @param {(value: number) => number} y @param {number} width */
function axes(x, y, width) {
  const made = [];
  const every = width < 480 ? 3 : 1;
  for (let power = MIN_X; power <= MAX_X; power += every) {
    made.push(label(x(10 ** power), HEIGHT - MARGIN.bottom + 16, decadeText(power), "middle"));
  }
  for (let power = MIN_Y + 2; power <= MAX_Y; power += 4) {
    const at = y(10 ** power);
    made.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }),
      label(MARGIN.left - 8, at + 4, decadeText(power)));
  }
  made.push(label((MARGIN.left + width - MARGIN.right) / 2, HEIGHT - 6, "step eps", "middle", "note"),
    label(4, MARGIN.top - 10, "largest error", "start", "note"));
  return made;
}

/** @param {"float64" | "float32"} dtype @param {StepCurves} steps @param {(value: number) => number} x
 * @param {(value: number) => number} y @param {(eps: number) => void} choose @returns {SVGElement} */
function curve(dtype, steps, x, y, choose) {
  const { measured, rounding, truncation } = steps[dtype];
  const group = svg("g", { class: `curve ${dtype}` });
  const line = [];
  for (let power = MIN_X; power <= MAX_X + 1e-9; power += 0.1) {
    const eps = 10 ** power;
    line.push(`${x(eps).toFixed(1)},${y(rounding / eps + truncation * eps * eps).toFixed(1)}`);
  }
  group.append(svg("polyline", { points: line.join(" ") }));
  steps.eps.forEach((eps, at) => {
    const error = measured[at];
    if (typeof error !== "number") return;
    // Zero has no logarithm: it is drawn on the axis.
    const title = `${dtype}, eps ${significant(eps)}: error ${significant(error)}. Click to use this step.`;
    const dot = svg("circle", { cx: x(eps), cy: error === 0 ? HEIGHT - MARGIN.bottom : y(error), r: 3.5 },
      svg("title", {}, title));
    dot.addEventListener("click", () => choose(eps));
    group.append(dot);
  });
  return group;
}

/** @param {StepCurves} steps @returns {string} for screen readers */
function said(steps) {
  return DTYPES.map((dtype) => {
    const { measured } = steps[dtype];
    const errors = measured.map((each) => typeof each === "number" ? each : Number.POSITIVE_INFINITY);
    const least = errors.indexOf(Math.min(...errors));
    return `${dtype}: the smallest error is ${significant(errors[least])}, at eps ${significant(steps.eps[least])}`;
  }).join("; ");
}

/** @param {StepCurves} steps @returns {string} */
function curveText(steps) {
  return DTYPES.map((dtype) => {
    const { rounding, best_step: best, machine_epsilon: machine, truncation } = steps[dtype];
    const head = `${dtype}, ε ${significant(machine)}:`;
    if (best === null)
      return `${head} f is linear or quadratic in every element, so there is no truncation error, and a larger step is always better`;
    return `${head} the best step is eps ≈ ${significant(best)}, with an error of ${
      significant(rounding / best + truncation * best * best)
    }`;
  }).join("; ");
}
