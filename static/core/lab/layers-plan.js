/** Geometry of the picture of all layers, for the canvas and for Plotly: columns, lanes, outlines of ridges, labels. */

import { significant } from "../format.js";
import { colourOf, depth, hex, MIN_COUNT, mix, rampStops } from "../colours.js";
import { layerTicks } from "../scales.js";
import { BINS } from "../value-axis.js";

export const LANE = 12;
export const LANE_CELL = 11;
const LEFT = 60;
const RIGHT = 12;
const TOP = 4;
const LANE_GAP = 6;
export const LABELS = 22;
const FEWEST_CELLS_HIGH = 40;
const NAMED_PITCH = 100;
const CROWDED_PITCH = 14;
/** Thickness of a line that stands for equal values, px. */
export const NEEDLE = 2;

/** @param {LayersForm} form @param {number} width @param {number} height @param {number} layers
 * @param {boolean} isCut whether values may lie beyond the axis */
export function planOf(form, width, height, layers, isCut) {
  const upper = /** @type {LaneKind[]} */ (isCut ? ["nan", "posinf", "above"] : ["nan", "posinf"]);
  const lower = /** @type {LaneKind[]} */ (isCut ? ["below", "neginf"] : ["neginf"]);
  const y = TOP + upper.length * LANE + LANE_GAP;
  const h = Math.max(FEWEST_CELLS_HIGH, Math.round(height) - y - lower.length * LANE - LANE_GAP - LABELS);
  const w = Math.max(layers, Math.round(width) - LEFT - RIGHT);
  // Ridges overlap where there are many: what they lose in width they gain in height.
  const overlap = form === "ridgeline" ? Math.min(2.4, Math.max(0.92, layers / 18)) : 1;
  const pitch = w / (layers + Math.max(0, overlap - 1));
  return {
    form,
    width: Math.round(width),
    height: Math.round(height),
    main: { x: LEFT, y, w, h }, // where the axis of values runs, upward
    // For values that the axis cannot show; y: of the upper side.
    lanes: [
      ...upper.map((kind, order) => ({ kind, y: TOP + order * LANE })),
      ...lower.map((kind, order) => ({ kind, y: y + h + LANE_GAP + order * LANE })),
    ],
    pitch, // from one layer to the next
    gap: pitch > 60 ? 4 : pitch > 5 ? 1 : 0,
    reach: overlap * pitch, // of the tallest ridge
  };
}

/** @param {LayersPlan} plan @returns {LayersSection} everything */
export function wholeSection({ main, pitch }) {
  return { x: [-0.5, main.w / pitch - 0.5], y: [0, 1] };
}

/** @param {LayersPlan} plan @param {LayersSection} section @param {number} column its middle, px */
export function columnX({ main }, { x: [from, to] }, column) {
  return main.x + ((column - from) / (to - from)) * main.w;
}

/** @param {LayerHistograms} histograms @returns {number} the greatest count of a bin; at least 1 */
export function mostOf({ counts, below, above }) {
  let most = 1;
  for (const numbers of [counts, below, above]) for (const count of numbers) if (count > most) most = count;
  return most;
}

/** A ridge's count in a bin, less the spike: zeros exactly zero, which are half of what relu hands on, would leave no
 * width for all other values. @param {LayerHistograms} histograms @param {number} order @param {number} bin */
function smoothCount({ counts, spikes, spikeBins }, order, bin) {
  return counts[order * BINS + bin] - (bin === spikeBins[order] ? spikes[order] : 0);
}

/** @param {LayerHistograms} histograms @returns {number} the greatest share of a layer in one bin, less spikes */
export function peakShare(histograms) {
  let peak = 0;
  histograms.columns.forEach((_, order) => {
    const size = histograms.sizes[order] || Infinity;
    for (let bin = 0; bin < BINS; bin += 1) peak = Math.max(peak, smoothCount(histograms, order, bin) / size);
  });
  return peak || 1;
}

/** @typedef {{places: number[], heights: number[]}} Run heights: shares of the reach */

/** The outline of one layer's histogram, in runs of bins that hold something. Heights go with the square root, as bars
 * do, so that tails stay visible. @param {LayerHistograms} histograms @param {number} order
 * @param {number} peak see peakShare @returns {Run[]} each begins and ends at height 0 */
export function ridgeOf(histograms, order, peak) {
  const size = histograms.sizes[order] || 1;
  /** @type {Run[]} */
  const runs = [];
  let run = null;
  for (let bin = 0; bin < BINS; bin += 1) {
    const count = smoothCount(histograms, order, bin);
    if (count < MIN_COUNT) {
      run?.places.push(bin / BINS);
      run?.heights.push(0);
      run = null;
      continue;
    }
    if (run === null) {
      run = { places: [bin / BINS], heights: [0] };
      runs.push(run);
    }
    run.places.push((bin + 0.5) / BINS);
    run.heights.push(Math.sqrt(count / size / peak));
  }
  run?.places.push(1);
  run?.heights.push(0);
  return runs;
}

/** @typedef {{place: number, share: number}} Needle */

/** @param {LayerHistograms} histograms @param {number} order @returns {Needle | null} of equal values */
export function needleOf({ axis, spikes, spikeBins, sizes }, order) {
  const share = spikes[order] / (sizes[order] || 1);
  const bin = spikeBins[order];
  const holdsZero = axis.edges[bin] <= 0 && axis.edges[bin + 1] >= 0;
  return share > 0 ? { place: holdsZero ? axis.place(0) : (bin + 0.5) / BINS, share } : null;
}

/** @param {number} share above 0 @returns {number} a single NaN is seen */
export function laneOpacity(share) {
  return 0.3 + 0.7 * share;
}

/** @param {LayersPaint} paint @returns {string} of a ridge: its hue on paper, opaque enough to stand before the next */
export function ridgeFill({ paper, hue }) {
  return hex(mix(colourOf(paper), colourOf(hue), 0.28));
}

/** @param {LayersPaint} paint @returns {string} of a needle: as of the greatest count */
export function needleFill({ paper, hue, ink }) {
  return hex(rampStops(paper, hue, ink).at(-1)?.[1] ?? [0, 0, 0]);
}

/** The label of a lane; outer lanes are named by the end of the axis. @param {LaneKind} kind @param {ValueAxis} axis */
export function laneText(kind, { low, high }) {
  if (kind === "above") return `> ${significant(high)}`;
  if (kind === "below") return `< ${significant(low)}`;
  return { nan: "NaN", posinf: "+Inf", neginf: "−Inf" }[kind];
}

/** Labels of layers, as many as fit.
 * @param {LayerHistograms} histograms @param {LayersPlan} plan @param {LayersSection} section */
export function layerLabels({ columns }, { main }, { x: [from, to] }) {
  const pitch = main.w / (to - from);
  const hasInput = columns[0]?.index === 0;
  const shown = new Set(layerTicks(columns.length - (hasInput ? 1 : 0), columns.length * pitch, 28));
  if (hasInput && pitch < CROWDED_PITCH && !shown.has(2)) shown.delete(1);
  const isNamed = pitch >= NAMED_PITCH;
  return columns.flatMap(({ index, name }, column) => {
    if (column < from || column > to || (index > 0 && !shown.has(index))) return [];
    const title = index > 0 ? `layer ${index}` : "input";
    if (isNamed) return [{ column, text: `${title}: ${name}` }];
    return [{ column, text: index > 0 ? String(index) : pitch < 32 ? "in" : "input" }];
  });
}

/** Powers of ten on the ramp: 1, 10, 100, 1k. @param {number} most @returns {{place: number, text: string}[]} */
export function countTicks(most) {
  const ticks = [];
  for (let count = 1; count <= most; count *= 10) {
    ticks.push({ place: depth(count, most),
      text: count < 1000 ? String(count) : count < 1e6 ? `${count / 1000}k` : `${count / 1e6}M` });
  }
  return ticks;
}
