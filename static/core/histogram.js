/**
 * Histograms on a canvas: bars where there is room, a strip of shades where a box is a few pixels wide. Bar heights and
 * shades go with the square root of the counts, so that tails stay visible beside the spike of zeros that relu makes.
 */

/** @typedef {import("./types.js").Picture} Picture */

/** @typedef {{x: number, y: number, w: number, h: number}} Rectangle */

/** @typedef {{ink: string, muted: string, warning: string}} Paint ink: of the bars, muted: of the zero line */

const SHADES = 12;

/**
 * @param {Picture} picture
 * @param {number} row
 * @returns {number} the greatest count of a bin; 0 for a tensor without a finite value
 */
export function peak(picture, row) {
  const from = row * picture.bins;
  let most = 0;
  for (let bin = from; bin < from + picture.bins; bin += 1) most = Math.max(most, picture.counts[bin] ?? 0);
  return most;
}

/**
 * Bars over [min, max] of the tensor, before a thin line at zero where zero lies inside.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {number} row
 * @param {Rectangle} at
 * @param {Paint} paint
 */
export function drawBars(context, picture, row, at, paint) {
  const most = peak(picture, row);
  if (most === 0) {
    drawHatch(context, at, paint.warning);
    return;
  }
  const low = picture.floats.min[row] ?? 0;
  const high = picture.floats.max[row] ?? 0;
  context.fillStyle = paint.ink;
  if (low === high) {
    // One value only: a single bar in the middle.
    context.fillRect(at.x + at.w / 2 - 1.5, at.y, 3, at.h);
    return;
  }
  if (low < 0 && high > 0) {
    context.fillStyle = paint.muted;
    context.globalAlpha = 0.5;
    context.fillRect(Math.round(at.x + (-low / (high - low)) * at.w) - 0.5, at.y, 1, at.h);
    context.globalAlpha = 1;
    context.fillStyle = paint.ink;
  }
  // Bars of at least two pixels: neighbouring bins are added up.
  const fold = Math.max(1, 2 ** Math.ceil(Math.log2((2 * picture.bins) / Math.max(8, at.w))));
  const bars = Math.ceil(picture.bins / fold);
  const width = at.w / bars;
  let tallest = 0;
  const sums = new Float64Array(bars);
  for (let bin = 0; bin < picture.bins; bin += 1) {
    const bar = Math.floor(bin / fold);
    sums[bar] = (sums[bar] ?? 0) + (picture.counts[row * picture.bins + bin] ?? 0);
    tallest = Math.max(tallest, sums[bar] ?? 0);
  }
  const seam = width > 4 ? 1 : 0;
  context.beginPath();
  for (let bar = 0; bar < bars; bar += 1) {
    const sum = sums[bar] ?? 0;
    if (sum === 0) continue;
    const height = Math.max(1, Math.sqrt(sum / tallest) * at.h);
    // On whole pixels: neighbours neither overlap nor leave a gap.
    const [from, to] = [Math.round(at.x + bar * width), Math.round(at.x + (bar + 1) * width)];
    context.rect(from, at.y + at.h - height, to - from - seam, height);
  }
  context.fill();
}

/**
 * The same as shades, values running upward.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {number} row
 * @param {Rectangle} at
 * @param {Paint} paint
 */
export function drawStrip(context, picture, row, at, paint) {
  const most = peak(picture, row);
  context.fillStyle = most === 0 ? paint.warning : paint.ink;
  if (most === 0) {
    context.globalAlpha = 0.8;
    context.fillRect(at.x, at.y, at.w, at.h);
    context.globalAlpha = 1;
    return;
  }
  context.globalAlpha = 0.07;
  context.fillRect(at.x, at.y, at.w, at.h);
  if (picture.floats.min[row] === picture.floats.max[row]) {
    context.globalAlpha = 1;
    context.fillRect(at.x, at.y + at.h / 2 - 1, at.w, 2);
    return;
  }
  const fold = Math.max(1, Math.ceil(picture.bins / Math.max(8, at.h)));
  const cells = Math.ceil(picture.bins / fold);
  const height = at.h / cells;
  for (let cell = 0; cell < cells; cell += 1) {
    let sum = 0;
    for (let bin = cell * fold; bin < Math.min(picture.bins, (cell + 1) * fold); bin += 1) {
      sum += picture.counts[row * picture.bins + bin] ?? 0;
    }
    if (sum === 0) continue;
    context.globalAlpha = Math.max(0.12, Math.min(1, Math.round(Math.sqrt(sum / (most * fold)) * SHADES) / SHADES));
    context.fillRect(at.x, at.y + at.h - (cell + 1) * height, at.w, height + 0.25);
  }
  context.globalAlpha = 1;
}

/**
 * Diagonal lines: there is no finite value to show.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Rectangle} at
 * @param {string} color
 */
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
