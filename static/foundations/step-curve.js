/** The error of the differences at every step, on two logarithmic axes: the V of rounding and truncation, per dtype. */

import { html, svg } from "../core/dom.js";
import { significant } from "../core/format.js";

const HEIGHT = 320;
const MARGIN = { left: 52, right: 16, top: 24, bottom: 40 };
const [MIN_X, MAX_X] = [-12, -1];
const [MIN_Y, MAX_Y] = [-14, 4];
const DTYPES = /** @type {const} */ (["float64", "float32"]);

/** @param {StepCurves} steps @param {{eps: number, atol: number}} chosen @param {number} width px
 * @param {(eps: number) => void} choose @returns {HTMLElement} */
export function stepCurve(steps, chosen, width, choose) {
  const x = scale(MIN_X, MAX_X, MARGIN.left, width - MARGIN.right);
  const y = scale(MIN_Y, MAX_Y, HEIGHT - MARGIN.bottom, MARGIN.top);
  const picture = svg("svg", { class: "step-curve", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT,
    role: "img", "aria-label": said(steps) });
  picture.append(...axes(x, y, width));
  if (chosen.atol > 0) {
    const at = y(chosen.atol);
    picture.append(svg("line", { class: "atol", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }),
      svg("text", { class: "note", x: width - MARGIN.right, y: at - 4, "text-anchor": "end" },
        `atol ${power(chosen.atol)}`));
  }
  const now = x(chosen.eps);
  picture.append(svg("line", { class: "now", x1: now, x2: now, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
    svg("text", { class: "note strong", x: now, y: MARGIN.top - 8, "text-anchor": "middle" },
      `eps ${power(chosen.eps)}`));
  for (const dtype of DTYPES) picture.append(curve(dtype, steps, x, y, choose));
  return html("div", { class: "step-curve-frame" }, picture,
    html("p", { class: "keys" }, key("float64"), key("float32"),
      html("span", { class: "soft" },
        "dots: measured · lines: rounding / eps + truncation · eps², expected of a backward without a mistake")));
}

/** @param {number} value @returns {string} 1e−6 */
export function power(value) {
  return Number(value.toPrecision(3)).toExponential().replace("e+", "e").replace("-", "−");
}

/** @param {string} dtype @returns {HTMLElement} */
function key(dtype) {
  return html("span", { class: `key ${dtype}` }, html("i"), dtype);
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
    made.push(
      svg("text", { class: "tick", x: x(10 ** power), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle" },
        `1e${power}`.replace("-", "−")),
    );
  }
  for (let power = MIN_Y + 2; power <= MAX_Y; power += 4) {
    const at = y(10 ** power);
    made.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }),
      svg("text", { class: "tick", x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" },
        power === 0 ? "1" : `1e${power}`.replace("-", "−")));
  }
  made.push(
    svg("text", { class: "note", x: (MARGIN.left + width - MARGIN.right) / 2, y: HEIGHT - 6, "text-anchor": "middle" },
      "step eps"),
  );
  made.push(svg("text", { class: "note", x: 4, y: MARGIN.top - 10 }, "largest error"));
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
    const dot = svg("circle", { cx: x(eps), cy: error === 0 ? HEIGHT - MARGIN.bottom : y(error), r: 3.5 });
    dot.append(
      svg("title", {}, `${dtype}, eps ${significant(eps)}: error ${significant(error)}. Click to take this step.`),
    );
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
    return `${dtype}: the error is least, ${significant(errors[least])}, at eps ${significant(steps.eps[least])}`;
  }).join("; ");
}

/** @param {StepCurves} steps @returns {string} */
export function curveText(steps) {
  return DTYPES.map((dtype) => {
    const { rounding, best_step: best, machine_epsilon: machine, truncation } = steps[dtype];
    const head = `${dtype}, ε ${significant(machine)}:`;
    if (best === null)
      return `${head} nothing is cut off, for f is linear or quadratic along every element, and so a larger step is always better`;
    return `${head} best at eps ≈ ${significant(best)}, where ${
      significant(rounding / best + truncation * best * best)
    } is left of the error`;
  }).join("; ");
}
