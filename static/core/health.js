/** Health as an icon. Shapes of icons differ, so that nothing hangs on colour; the word always stands beside it. */

import { svg } from "./dom.js";

/** Icons in a square of 16: each shows a typical histogram or signal. @type {Record<Health | "healthy", string>} */
export const HEALTH_SHAPES = {
  healthy: "M2.5 8.5l3.5 3.5 7.5-8",
  // A number line with a hole in it.
  "non-finite": "M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 1 0 0-12.4M3.6 12.4l8.8-8.8",
  dead: "M1.5 13.5h13M5 4l6 6M11 4l-6 6",
  // All of it at both ends.
  saturated: "M2.5 13.5v-11M6.2 13.5v-2.2M9.8 13.5v-2.2M13.5 13.5v-11",
  vanishing: "M2.5 13.5v-11M6.2 13.5v-6.5M9.8 13.5v-3.5M13.5 13.5v-1.2",
  exploding: "M2.5 13.5v-1.2M6.2 13.5v-3.5M9.8 13.5v-6.5M13.5 13.5v-11",
};

/** @param {Health | "healthy" | FaultKind} kind @param {string} shape in a square of 16 @returns {SVGSVGElement} */
export function iconOf(kind, shape) {
  return svg("svg", { class: `health-icon ${kind}`, viewBox: "0 0 16 16", width: 14, height: 14,
    "aria-hidden": "true" }, svg("path", { d: shape }));
}

/** @param {Health | "healthy"} health */
export function healthIcon(health) {
  return iconOf(health, HEALTH_SHAPES[health]);
}
