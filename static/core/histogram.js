/** Histograms as bars on a canvas, as high as the square root of the counts: tails stay visible beside relu's zeros. */

import { MIN_COUNT } from "./colours.js";
import { isHidden, valueAt } from "./format.js";
import { BINS, spread } from "./value-axis.js";

/** @param {Picture} picture @param {number} row
 * @returns {number} the greatest count of a bin; 0 for a tensor without a finite value */
export function peak(picture, row) {
  const { bins, counts } = picture;
  let most = 0;
  for (let bin = row * bins; bin < (row + 1) * bins; bin += 1) {
    const found = counts[bin];
    if (found > most) most = found;
  }
  return most;
}

/** Width of the bar of a tensor whose values are all equal, px. */
const NEEDLE = 3;
/** Width of the bars for values beyond the axis, px. */
export const END = 3;

/** @param {number} values beyond the axis @param {number} tallest bar @returns {number} opacity of a strip's end */
export function endOpacity(values, tallest) {
  return 0.3 + 0.7 * Math.sqrt(values / tallest);
}

/** A tensor's histogram in few bars, over the axis that its kind shares or else over its own [min, max].
 * @param {Picture} picture @param {number} row @param {number} most number of bars
 * @param {boolean} [isPositive] whether the half of the shared axis below zero is left out
 * @returns {Bars | null} null where no value is finite */
export function barsOf({ axes, floats, integers, bins, counts }, row, most, isPositive = false) {
  const [low, high] = [valueAt(floats.min, row), valueAt(floats.max, row)];
  if (low === null || high === null) return null;
  const axis = axes?.[row] ?? null;
  const source = counts.subarray(row * bins, (row + 1) * bins);
  if (axis === null)
    return { ...folded(source, most), below: 0, above: 0, zero: low < 0 && high > 0 ? -low / (high - low) : null,
      isNeedle: low === high };
  const zeros = Math.round(floats.zero_fraction[row] * integers.n[row]);
  onAxis.fill(0);
  const { below, above } = spread(source, low, high, zeros, axis, onAxis);
  const bars = folded(isPositive ? onAxis.subarray(Math.max(0, axis.binOf(0))) : onAxis, most);
  return { ...bars, tallest: Math.max(bars.tallest, below, above), below, above,
    zero: axis.low < 0 ? axis.place(0) : null, isNeedle: false };
}

const onAxis = new Float64Array(BINS);

/** @param {Uint32Array | Float64Array} source @param {number} most number of sums */
function folded(source, most) {
  let bars = source.length;
  while (bars > 4 && (bars > most || source.length % bars !== 0)) bars -= 1;
  // Loops: this runs for every histogram of every picture.
  const each = source.length / bars;
  const sums = new Float64Array(bars);
  let tallest = 0;
  for (let bar = 0, bin = 0; bar < bars; bar += 1) {
    let sum = 0;
    for (const end = bin + each; bin < end; bin += 1) sum += source[bin];
    sums[bar] = sum;
    if (sum > tallest) tallest = sum;
  }
  return { sums, tallest };
}

/** Bars, a thin line at zero where zero lies inside, bars at the ends for values beyond the axis, and the outline that
 * the histogram had when the drag began.
 * @param {CanvasRenderingContext2D} context @param {Picture} picture @param {number} row @param {Rectangle} at
 * @param {HistogramPaint} paint */
export function drawBars(context, picture, row, at, paint) {
  if (isHidden(picture, row)) {
    drawCover(context, at, paint.muted);
    return;
  }
  // Bars of at least two pixels.
  const bars = barsOf(picture, row, at.w / 2);
  if (bars === null) {
    drawHatch(context, at, paint.warning);
    return;
  }
  context.fillStyle = paint.ink;
  if (bars.isNeedle) {
    context.fillRect(at.x + (at.w - NEEDLE) / 2, at.y, NEEDLE, at.h);
    return;
  }
  const { sums, tallest, below, above, zero } = bars;
  if (zero !== null) {
    context.fillStyle = paint.muted;
    context.globalAlpha = 0.5;
    context.fillRect(Math.round(at.x + zero * at.w) - 0.5, at.y, 1, at.h);
    context.globalAlpha = 1;
    context.fillStyle = paint.ink;
  }
  const width = at.w / sums.length;
  const seam = width > 4 ? 1 : 0;
  context.beginPath();
  sums.forEach((sum, bar) => {
    if (sum < MIN_COUNT) return;
    const height = Math.max(1, Math.sqrt(sum / tallest) * at.h);
    // On whole pixels: neighbours neither overlap nor leave a gap.
    const [from, to] = [Math.round(at.x + bar * width), Math.round(at.x + (bar + 1) * width)];
    context.rect(from, at.y + at.h - height, to - from - seam, height);
  });
  context.fill();
  context.fillStyle = paint.warning;
  for (const [values, x] of [[below, at.x], [above, at.x + at.w - END]]) {
    if (values < MIN_COUNT) continue;
    const height = Math.max(2, Math.sqrt(values / tallest) * at.h);
    context.fillRect(x, at.y + at.h - height, END, height);
  }
  drawGhost(context, picture, row, at, paint.muted);
}

/** The bars of the picture before a drag, which each picture of the drag draws again.
 * @type {{before: Picture["before"], axes: Picture["axes"], byRow: Map<number, {most: number, bars: Bars | null}>}} */
let ghosts = { before: null, axes: null, byRow: new Map() };

/** @param {CanvasRenderingContext2D} context @param {Picture} picture @param {number} row @param {Rectangle} at
 * @param {string} color */
function drawGhost(context, { before, axes }, row, at, color) {
  if (before === null || axes?.[row] == null) return;
  if (ghosts.before !== before || ghosts.axes !== axes) ghosts = { before, axes, byRow: new Map() };
  let ghost = ghosts.byRow.get(row);
  if (ghost?.most !== at.w / 2) {
    ghost = { most: at.w / 2, bars: barsOf({ ...before, axes }, row, at.w / 2) };
    ghosts.byRow.set(row, ghost);
  }
  const { bars } = ghost;
  if (bars === null) return;
  const width = at.w / bars.sums.length;
  context.beginPath();
  context.moveTo(at.x, at.y + at.h);
  bars.sums.forEach((sum, bar) => {
    const y = at.y + at.h - Math.sqrt(sum / bars.tallest) * at.h;
    context.lineTo(at.x + bar * width, y);
    context.lineTo(at.x + (bar + 1) * width, y);
  });
  context.lineTo(at.x + at.w, at.y + at.h);
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.stroke();
}

/** A question mark, or its ground alone where there is no room: what is here waits for a guess.
 * @param {CanvasRenderingContext2D} context @param {Rectangle} at @param {string} color */
function drawCover(context, at, color) {
  context.save();
  context.fillStyle = color;
  context.globalAlpha = 0.12;
  context.fillRect(at.x, at.y, at.w, at.h);
  const size = Math.min(at.h * 0.7, at.w * 0.9, 32);
  if (size >= 8) {
    context.globalAlpha = 0.8;
    context.font = `600 ${size}px sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText("?", at.x + at.w / 2, at.y + at.h / 2);
  }
  context.restore();
}

/** Diagonal lines: there is no finite value to show.
 * @param {CanvasRenderingContext2D} context @param {Rectangle} at @param {string} color */
function drawHatch(context, at, color) {
  context.save();
  context.beginPath();
  context.rect(at.x, at.y, at.w, at.h);
  context.clip();
  context.strokeStyle = color;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = at.x - at.h; x < at.x + at.w; x += 6) {
    context.moveTo(x, at.y + at.h);
    context.lineTo(x + at.h, at.y);
  }
  context.stroke();
  context.restore();
}
