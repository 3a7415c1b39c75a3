/** All layers on a canvas: cells of a heatmap from one image, or outlines of a ridgeline; axes on a canvas of their
 * own, which stays when Plotly takes the place of the first. */

import { percent, valueAt } from "../format.js";
import { columnX, countTicks, LABELS, LANE, LANE_CELL, laneOpacity, laneText, layerLabels, mostOf, NEEDLE, needleFill,
  needleOf, peakShare, ridgeFill, ridgeOf } from "./layers-plan.js";
import { colourOf, hex, MIN_COUNT, rampPixels, rampStops } from "../colours.js";
import { BINS } from "../value-axis.js";

/** @type {Record<LaneKind, number>} rows of the image of cells, after the bins' */
const LANE_ROWS = { nan: BINS, posinf: BINS + 1, above: BINS + 2, below: BINS + 3, neginf: BINS + 4 };
const SCALE_BAR = 48;
const RAMP = { width: 140, height: 7 };

/** Draws the layers; keeps the image that the cells are painted into. */
export class LayersPainter {
  #cells = document.createElement("canvas");
  /** @type {{image: ImageData, pixels: Uint32Array} | null} */
  #image = null;
  #shades;
  #warning;
  #ridge;
  #deep;
  /** @type {LayersPaint} */
  #paint;

  /** @param {LayersPaint} paint */
  constructor(paint) {
    this.#paint = paint;
    this.#shades = rampPixels(rampStops(paint.paper, paint.hue, paint.ink));
    this.#ridge = ridgeFill(paint);
    this.#deep = needleFill(paint);
    const warning = new Uint8ClampedArray([...colourOf(paint.warning), 0]);
    this.#warning = new Uint32Array(warning.buffer)[0];
  }

  /** @param {CanvasRenderingContext2D} context @param {LayersPlan} plan @param {LayerHistograms} histograms */
  draw(context, plan, histograms) {
    context.clearRect(0, 0, plan.width, plan.height);
    const { main, pitch, gap } = plan;
    const layers = histograms.columns.length;
    const across = layers * pitch;
    this.#fill(histograms);
    context.imageSmoothingEnabled = false;
    for (const { kind, y } of plan.lanes)
      context.drawImage(this.#cells, 0, LANE_ROWS[kind], layers, 1, main.x, y, across, LANE_CELL);
    if (plan.form === "heatmap") context.drawImage(this.#cells, 0, 0, layers, BINS, main.x, main.y, across, main.h);
    if (gap > 0) {
      // On the pixels that Plotly leaves free.
      const bottom = main.y + main.h + plan.lanes.length * LANE;
      for (let order = 0; order <= layers; order += 1)
        context.clearRect(Math.round(main.x + order * pitch) - Math.ceil(gap / 2), 0, gap, bottom);
    }
    if (plan.form === "ridgeline") this.#ridges(context, plan, histograms);
  }

  /** Two lines at the mean ± 2 standard deviations that the layers had when the drag began.
   * @param {CanvasRenderingContext2D} context @param {LayersPlan} plan @param {LayerHistograms} histograms
   * @param {Picture} before */
  drawStart(context, { main, pitch }, { columns, axis }, { floats }) {
    context.strokeStyle = this.#paint.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    for (const side of [-2, 2]) {
      columns.forEach(({ row }, order) => {
        const place = axis.place((valueAt(floats.mean, row) ?? 0) + side * (valueAt(floats.std, row) ?? 0));
        const y = main.y + main.h * (1 - Math.max(0, Math.min(1, place)));
        const x = main.x + order * pitch;
        if (order === 0) context.moveTo(x, y);
        context.lineTo(x, y);
        context.lineTo(x + pitch, y);
      });
    }
    context.stroke();
  }

  /** One pixel per cell: the bins from the top down, then the lanes. @param {LayerHistograms} histograms */
  #fill(histograms) {
    const { columns, counts, sizes } = histograms;
    const layers = columns.length;
    const rows = BINS + Object.keys(LANE_ROWS).length;
    if (this.#image === null || this.#image.image.width !== layers) {
      this.#cells.width = layers;
      this.#cells.height = rows;
      const image = new ImageData(layers, rows);
      this.#image = { image, pixels: new Uint32Array(image.data.buffer) };
    }
    const { image, pixels } = this.#image;
    const scale = 254 / Math.log1p(mostOf(histograms));
    const shade = (/** @type {number} */ count) =>
      count < MIN_COUNT ? 0 : this.#shades[1 + Math.floor(scale * Math.log1p(count))];
    for (let order = 0; order < layers; order += 1) {
      for (let bin = 0; bin < BINS; bin += 1)
        pixels[(BINS - 1 - bin) * layers + order] = shade(counts[order * BINS + bin]);
      for (const kind of /** @type {const} */ (["above", "below"]))
        pixels[LANE_ROWS[kind] * layers + order] = shade(histograms[kind][order] ?? 0);
      for (const kind of /** @type {const} */ (["nan", "posinf", "neginf"])) {
        const share = (histograms[kind][order] ?? 0) / (sizes[order] || 1);
        // Little endian, as in every browser there is: opacity is the highest byte.
        pixels[LANE_ROWS[kind] * layers + order] = share > 0
          ? (this.#warning | (Math.round(255 * laneOpacity(share)) << 24)) >>> 0 : 0;
      }
    }
    this.#cells.getContext("2d")?.putImageData(image, 0, 0);
  }

  /** @param {CanvasRenderingContext2D} context @param {LayersPlan} plan @param {LayerHistograms} histograms */
  #ridges(context, plan, histograms) {
    const { main, pitch, reach, gap } = plan;
    const peak = peakShare(histograms);
    const y = (/** @type {number} */ place) => main.y + main.h * (1 - place);
    context.lineJoin = "round";
    // From the last to the first: a ridge's tips lie over the foot of the next ones, else nothing but feet would be
    // seen.
    for (let order = histograms.columns.length - 1; order >= 0; order -= 1) {
      const base = main.x + order * pitch + gap / 2;
      context.beginPath();
      for (const { places, heights } of ridgeOf(histograms, order, peak)) {
        context.moveTo(base, y(places[0] ?? 0));
        for (let point = 1; point < places.length; point += 1)
          context.lineTo(base + heights[point] * (reach - gap), y(places[point]));
      }
      context.fillStyle = this.#ridge;
      context.fill();
      context.strokeStyle = this.#paint.hue;
      context.lineWidth = 1;
      context.stroke();
    }
    context.fillStyle = this.#deep;
    histograms.columns.forEach((_, order) => {
      const needle = needleOf(histograms, order);
      if (needle === null) return;
      const base = main.x + order * pitch + gap / 2;
      context.fillRect(base, Math.round(y(needle.place)) - NEEDLE / 2, needle.share * (pitch - gap), NEEDLE);
    });
  }
}

/** The axes: labels, thin lines behind the layers, and a question mark for a layer that waits for a guess.
 * @param {CanvasRenderingContext2D} context @param {LayersPlan} plan @param {LayerHistograms} histograms
 * @param {LayersSection} section @param {LayersPaint} paint @param {string} family of the font */
export function drawAxes(context, plan, histograms, section, paint, family) {
  const { main, lanes } = plan;
  const { axis } = histograms;
  context.clearRect(0, 0, plan.width, plan.height);
  context.font = `10px ${family}`;
  context.textBaseline = "middle";
  context.fillStyle = paint.muted;
  context.strokeStyle = paint.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  const [from, to] = section.y;
  context.beginPath();
  for (const { place, text } of axis.ticks(from, to, main.h, 26)) {
    const y = Math.round(main.y + main.h * (1 - (place - from) / (to - from)));
    context.fillText(text, main.x - 8, y);
    context.moveTo(main.x - 4, y + 0.5);
    context.lineTo(main.x + main.w, y + 0.5);
  }
  context.stroke();
  context.beginPath();
  context.setLineDash([1, 3]);
  for (const { kind, y } of lanes) {
    context.fillText(laneText(kind, axis), main.x - 8, y + LANE_CELL / 2);
    context.moveTo(main.x - 4, y + LANE_CELL / 2);
    context.lineTo(main.x + main.w, y + LANE_CELL / 2);
  }
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "center";
  context.font = `11px ${family}`;
  for (const { column, text } of layerLabels(histograms, plan, section))
    context.fillText(text, columnX(plan, section, column), plan.height - LABELS / 2);
  if (histograms.hidden < 0) return;
  context.font = `600 14px ${family}`;
  context.fillStyle = paint.ink;
  context.fillText("?", columnX(plan, section, histograms.hidden), main.y + main.h / 2);
}

/** The legend of the shades or the ridges.
 * @param {CanvasRenderingContext2D} context @param {number} width @param {LayersPlan} plan
 * @param {LayerHistograms} histograms @param {LayersPaint} paint @param {string} family of the font */
export function drawLegend(context, width, plan, histograms, paint, family) {
  context.clearRect(0, 0, width, 24);
  context.font = `10px ${family}`;
  context.textBaseline = "top";
  context.fillStyle = paint.muted;
  if (plan.form === "ridgeline") {
    const hasNeedles = histograms.spikes.some((spike) => spike > 0);
    const bar = Math.min(SCALE_BAR, plan.reach);
    const y = hasNeedles ? 1 : 7;
    const share = peakShare(histograms) * (bar / plan.reach) ** 2;
    context.textAlign = "right";
    context.fillText(`${percent(share)} of a layer’s values in one bin (width ∝ √)`, width - bar - 8, y);
    if (hasNeedles) context.fillText("line: equal values, full column width = all", width - bar - 8, 13);
    context.fillStyle = ridgeFill(paint);
    context.fillRect(width - bar, y + 1, bar, 8);
    context.fillStyle = paint.hue;
    context.fillRect(width - 1, y + 1, 1, 8);
    context.fillStyle = needleFill(paint);
    if (hasNeedles) context.fillRect(width - bar, 17, Math.min(bar, plan.pitch), NEEDLE);
    return;
  }
  const most = mostOf(histograms);
  const [from, top] = [width - RAMP.width, 2];
  context.textAlign = "right";
  context.fillText("values in a bin", from - 10, top - 1);
  const gradient = context.createLinearGradient(from, 0, width, 0);
  for (const [at, colour] of rampStops(paint.paper, paint.hue, paint.ink)) gradient.addColorStop(at, hex(colour));
  for (const { place, text } of countTicks(most)) {
    const x = from + place * RAMP.width;
    context.fillRect(Math.round(x), top, 1, RAMP.height + 3);
    context.textAlign = place > 0.95 ? "right" : place < 0.05 ? "left" : "center";
    context.fillText(text, x, top + RAMP.height + 4);
  }
  context.fillStyle = gradient;
  context.fillRect(from, top, RAMP.width, RAMP.height);
}
