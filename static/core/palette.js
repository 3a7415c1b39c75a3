/** The colours of the style sheet, for canvas. */

/** @returns {Palette} as the current colour scheme has them */
export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const token = (name) => style.getPropertyValue(name).trim();
  return {
    forward: token("--forward"),
    backward: token("--backward"),
    parameter: token("--parameter"),
    neutral: token("--neutral"),
    ink: token("--ink"),
    muted: token("--ink-muted"),
    line: token("--line"),
    warning: token("--warning"),
    paper: token("--paper"),
  };
}

/**
 * Calls back when the colour scheme changes.
 *
 * @param {() => void} listener
 */
export function onSchemeChange(listener) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener);
}

/**
 * Phase colours borders, edges and bars; parameters and what is not computed have colours of their own.
 *
 * @param {Phase} half
 * @param {string} role
 * @returns {"forward" | "backward" | "parameter" | "neutral"}
 */
export function hue(half, role) {
  if (half === "backward") return "backward";
  if (role === "parameter") return "parameter";
  return role === "target" || role === "buffer" || role === "constant" ? "neutral" : "forward";
}
