/**
 * Zoom and pan over a layout, along the depth axis and across it. No DOM. Zooming in first spreads the columns until
 * each box has its natural size, and magnifies only from there on: fifty layers open up like a timeline.
 */

/** @typedef {{zoom: number, at: number, across: number}} Camera zoom 1: fit; at, across: what is at the centre, 0 to 1 */

/** @typedef {{length: number, breadth: number}} Extent along the depth and across it, px */

export const MOST_ZOOM = 64;
const MOST_MAGNIFICATION = 3;
const NATURAL_STRETCH = 1.25;

/**
 * How a zoom splits into columns spread further and plain magnification.
 *
 * @param {number} zoom
 * @param {number} natural length of the layout with every box at its natural size
 * @param {number} length of the panel
 * @returns {{spread: number, magnify: number, zoom: number}} zoom: as far as there is anything to zoom into
 */
export function splitZoom(zoom, natural, length) {
  const open = Math.max(1, (natural * NATURAL_STRETCH) / Math.max(1, length));
  const clamped = Math.min(Math.max(1, zoom), open * MOST_MAGNIFICATION, MOST_ZOOM);
  const spread = Math.min(clamped, open);
  return { spread, magnify: clamped / spread, zoom: clamped };
}

/**
 * Where content starts: centred while it fits, otherwise with `at` of it in the middle and no gap at the ends.
 *
 * @param {number} content px
 * @param {number} room px
 * @param {number} at 0 to 1
 * @returns {number} px
 */
export function offset(content, room, at) {
  if (content <= room) return (room - content) / 2;
  return Math.min(0, Math.max(room - content, room / 2 - at * content));
}

/** @param {number} share @returns {number} within 0 to 1 */
export function clampShare(share) {
  return Math.min(1, Math.max(0, share));
}
