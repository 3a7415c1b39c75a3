/** Widths of a net as text, 100x51 or 784,50x2,10, and what becomes of them when depth or width is stepped. No DOM. */

const MAX_LAYERS = 10_000;
const MAX_WIDTH = 2 ** 31 - 1;
const RUN = /^(\d{1,10})(?:x(\d{1,10}))?$/;

/** @param {string} text @returns {number[] | null} null for what the server would refuse; it says why */
export function parseWidths(text) {
  const widths = [];
  for (const part of text.split(",", MAX_LAYERS + 2)) {
    const run = RUN.exec(part);
    if (run === null) return null;
    const [width, count] = [Number(run[1]), Number(run[2] ?? 1)];
    if (width < 1 || width > MAX_WIDTH || count < 1 || widths.length + count > MAX_LAYERS + 1) return null;
    for (let copy = 0; copy < count; copy += 1) widths.push(width);
  }
  return widths.length < 2 ? null : widths;
}

/** @param {readonly number[]} widths @returns {string} as the server writes it, runs compressed: 100x2,1 */
export function widthsText(widths) {
  const parts = [];
  for (let start = 0; start < widths.length;) {
    let end = start + 1;
    while (end < widths.length && widths[end] === widths[start]) end += 1;
    parts.push(end - start > 1 ? `${widths[start]}x${end - start}` : String(widths[start]));
    start = end;
  }
  return parts.join(",");
}

/** @param {readonly number[]} widths @returns {boolean} whether all are equal: then input and output go along */
function isUniform(widths) {
  return widths.every((width) => width === widths[0]);
}

/** The net with another number of layers: the last hidden width is repeated, or hidden layers go from the end; input
 * and output stay. @param {readonly number[]} widths @param {number} depth 1 or more */
export function withDepth(widths, depth) {
  const layers = Math.min(MAX_LAYERS, Math.max(1, depth));
  const [first = 1, last = 1] = [widths[0], widths.at(-1)];
  const hidden = widths.slice(1, -1).slice(0, layers - 1);
  const repeated = hidden.at(-1) ?? first;
  while (hidden.length < layers - 1) hidden.push(repeated);
  return [first, ...hidden, last];
}

/** The net with all its hidden layers of one width; of a net that is uniform, input and output too.
 * @param {readonly number[]} widths @param {number} width 1 or more */
export function withWidth(widths, width) {
  const to = Math.min(MAX_WIDTH, Math.max(1, width));
  if (isUniform(widths)) return widths.map(() => to);
  return widths.map((old, index) => index === 0 || index === widths.length - 1 ? old : to);
}

/** @param {readonly number[]} widths @returns {{width: number, isMixed: boolean} | null} the last hidden width, and
 * whether others differ; null where no layer is hidden */
export function hiddenWidth(widths) {
  const hidden = isUniform(widths) ? widths : widths.slice(1, -1);
  const width = hidden.at(-1);
  return width === undefined ? null : { width, isMixed: !isUniform(hidden) };
}

/** The next width by a stepper: by tens, on to a multiple of ten; up to ten by ones.
 * @param {number} width @param {1 | -1} by */
export function nextWidth(width, by) {
  if (by > 0) return width < 10 ? width + 1 : 10 * (Math.floor(width / 10) + 1);
  return width <= 10 ? width - 1 : 10 * (Math.ceil(width / 10) - 1);
}
