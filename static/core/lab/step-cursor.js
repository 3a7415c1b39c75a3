/** A chart over steps as a slider: the pointer and the arrow keys move its cursor. */

import { stepAt } from "./training-charts.js";

/** Steps of PageUp and PageDown, as a share of all. */
const PAGE = 0.1;

/** @param {HTMLCanvasElement} chart @param {() => number} last step @param {(step: number | null) => void} tell
 * null: the chart has neither the pointer nor the focus */
export function followSteps(chart, last, tell) {
  /** Keys may come faster than the chart is drawn. @type {number | null} */
  let at = null;
  const move = (/** @type {number | null} */ step) => {
    at = step;
    tell(step);
  };
  for (const [name, value] of Object.entries({ role: "slider", tabindex: "0", "aria-valuemin": "0" }))
    chart.setAttribute(name, value);
  chart.addEventListener("pointermove", ({ offsetX }) => move(stepAt(chart.clientWidth, last(), offsetX)));
  chart.addEventListener("pointerleave", () => chart.matches(":focus-visible") || move(null));
  chart.addEventListener("blur", () => move(null));
  chart.addEventListener("keydown", (event) => {
    const now = at ?? last();
    const page = Math.max(1, Math.round(PAGE * last()));
    const next =
      { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now + page, PageDown: now - page, Home: 0,
        End: last() }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    move(Math.min(last(), Math.max(0, next)));
  });
}
