/** How wide a text is about, where no font can be asked: on a server, or in a worker. */

/** Of a sans-serif such as Helvetica or Arial, thousandths of the size, from the space to the tilde. */
const WIDTHS = [
  ...[278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278],
  ...[556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556],
  ...[1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778],
  ...[667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556],
  ...[333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556],
  ...[556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584],
];
const OTHER = 600;
/** From here on scripts begin whose letters are as wide as they are high. */
const FIRST_SQUARE = 0x2e80;
const BOLD = 1.08;
/** Fonts differ: rather too much room than too little. */
const MARGIN = 1.04;

/**
 * @param {string} text
 * @param {number} size px
 * @param {boolean} isBold
 * @returns {number} px
 */
export function estimatedWidth(text, size, isBold) {
  let sum = 0;
  for (const letter of text) {
    const code = letter.codePointAt(0) ?? 0;
    sum += code >= FIRST_SQUARE ? 1000 : (WIDTHS[code - 32] ?? OTHER);
  }
  return (sum / 1000) * size * (isBold ? BOLD : 1) * MARGIN;
}
