/** Walking a layout with the arrow keys. No DOM. */

/** @typedef {import("./types.js").Box} Box */

/** @typedef {"ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown"} Arrow */

/** How much a step aside counts against a step ahead. */
const ASIDE = 2.5;

/**
 * The box to go to: of those that lie wholly in that direction the nearest, preferring those straight ahead.
 *
 * @param {readonly Box[]} boxes
 * @param {Box} from
 * @param {Arrow} arrow
 * @returns {Box | null}
 */
export function neighbour(boxes, from, arrow) {
  const sideways = arrow === "ArrowLeft" || arrow === "ArrowRight";
  const sign = arrow === "ArrowRight" || arrow === "ArrowDown" ? 1 : -1;
  let best = null;
  let least = Infinity;
  for (const box of boxes) {
    const dx = box.x + box.w / 2 - (from.x + from.w / 2);
    const dy = box.y + box.h / 2 - (from.y + from.h / 2);
    const ahead = sign * (sideways ? dx : dy);
    const aside = Math.abs(sideways ? dy : dx);
    const reach = sideways ? (box.w + from.w) / 2 : (box.h + from.h) / 2;
    const cost = ahead + ASIDE * aside;
    if (ahead > reach - 1 && ahead > 0.5 && cost < least) {
      least = cost;
      best = box;
    }
  }
  return best;
}
