/** Histograms as bars on a canvas, as high as the square root of the counts: tails stay visible beside relu's zeros. */

import { isHidden } from "./format.js";

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

/** Bars over [min, max] of the tensor, before a thin line at zero where zero lies inside.
 * @param {CanvasRenderingContext2D} context @param {Picture} picture @param {number} row @param {Rectangle} at
 * @param {HistogramPaint} paint */
export function drawBars(context, picture, row, at, paint) {
  if (isHidden(picture, row)) {
    drawCover(context, at, paint.muted);
    return;
  }
  const most = peak(picture, row);
  if (most === 0) {
    drawHatch(context, at, paint.warning);
    return;
  }
  const low = picture.floats.min[row];
  const high = picture.floats.max[row];
  context.fillStyle = paint.ink;
  if (low === high) {
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
    sums[bar] = sums[bar] + picture.counts[row * picture.bins + bin];
    tallest = Math.max(tallest, sums[bar]);
  }
  const seam = width > 4 ? 1 : 0;
  context.beginPath();
  for (let bar = 0; bar < bars; bar += 1) {
    const sum = sums[bar];
    if (sum === 0) continue;
    const height = Math.max(1, Math.sqrt(sum / tallest) * at.h);
    // On whole pixels: neighbours neither overlap nor leave a gap.
    const [from, to] = [Math.round(at.x + bar * width), Math.round(at.x + (bar + 1) * width)];
    context.rect(from, at.y + at.h - height, to - from - seam, height);
  }
  context.fill();
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
