/** The charts of a training on canvas: curves over the steps, a map of layers and steps, a decision surface. */

import { colourOf, rampPixels, rampStops } from "../colours.js";
import { surface } from "../surface.js";

/** A healthy update, relative to the weight (A. Karpathy, makemore part 3). */
export const HEALTHY_UPDATE = 1e-3;
const FONT_PX = 11;
/** Room for the axis of values, left of a chart, and for the axis of steps, below it. */
export const MARGIN = { left: 52, right: 10, top: 8, bottom: 20 };
/** A value per layer that is this far from the others is drawn in the first or last colour. */
const MOST_DECADES = 12;
const UNDER_AXIS = -0.045;
/** Between two ticks of a logarithmic axis, as a share of its length. */
const LEAST_GAP = 0.1;
const UNITS_IN_ROW = 8;
/** The place of NaN and Inf in the colours of a map; 0 is that of a value that is not known. */
const NON_FINITE = 255;

/** @typedef {{points: readonly [number, number][], colour: string, width: number, dash?: number[]}} Line */
/** @typedef {{low: number, high: number, isLog: boolean}} Scale */
/** The colours of a map. @typedef {{scale: Scale | null, hasNonFinite: boolean}} Shades */
/** A mark on a curve. @typedef {{at: number, value: number, colour: string, isChosen: boolean}} Mark */

/** @param {HTMLCanvasElement} canvas as large as its box on the screen
 * @returns {{context: CanvasRenderingContext2D, width: number, height: number} | null} null while it is hidden */
export function surfaceOf(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const context = width === 0 || height === 0 ? null : surface(canvas, width, height);
  if (context === null) return null;
  context.font = `${FONT_PX}px ${getComputedStyle(canvas).fontFamily}`;
  return { context, width, height };
}

/** @param {number} width of the chart @param {number} last step @returns {(step: number) => number} its x */
export function stepScale(width, last) {
  return (step) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * step) / Math.max(1, last);
}

/** @param {number} width of the chart @param {number} last step @param {number} x @returns {number} the nearest step */
export function stepAt(width, last, x) {
  const share = (x - MARGIN.left) / Math.max(1, width - MARGIN.left - MARGIN.right);
  return Math.round(Math.min(1, Math.max(0, share)) * Math.max(1, last));
}

/** The scale of all values, with round numbers at its ends.
 * @param {Iterable<ArrayLike<number | null>>} arrays @param {boolean} isLog @param {number} [least] high end of a linear scale
 * @param {readonly number[]} [marks] values that lie on the scale, however far they are from the others
 * @returns {Scale} */
export function scaleOf(arrays, isLog, least = 1, marks = []) {
  let [low, high] = [Infinity, -Infinity];
  for (const values of [...arrays, marks]) {
    for (let at = 0; at < values.length; at += 1) {
      const value = /** @type {number} */ (values[at]);
      if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) [low, high] = [isLog ? 0.1 : 0, 1];
  if (!isLog) return { low: Math.min(0, low), high: Math.max(least, high) || 1, isLog };
  const top = round(high, true);
  const bottom = Math.max(round(low, false), Math.min(top / 10 ** MOST_DECADES, ...marks));
  return { low: bottom < top ? bottom : top / 2, high: top, isLog };
}

/** @param {number} value @param {boolean} isUp @returns {number} the next of 1, 2 and 5 times a power of ten */
function round(value, isUp) {
  const unit = 10 ** Math.floor(Math.log10(value) + 1e-9);
  const steps = [1, 2, 5, 10].map((times) => times * unit);
  const found = isUp ? steps.find((step) => step >= value * (1 - 1e-9))
    : steps.reverse().find((step) => step <= value * (1 + 1e-9));
  return found ?? value;
}

/** @param {Scale} scale @param {number} value @returns {number} 0 at its low end, 1 at its high end; beyond it, the end */
export function placeOn({ low, high, isLog }, value) {
  // The quotient of the ends may be beyond the largest number.
  const place = isLog ? (Math.log10(value) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))
    : (value - low) / (high - low);
  return Math.min(1, Math.max(0, place));
}

/** @param {Scale} scale @param {number} value @returns {number} its place on a curve: under the axis if a logarithmic
 * axis does not reach down to it, as to 0, else it would be read as the lowest tick */
export function placeOfPoint(scale, value) {
  return scale.isLog && value < scale.low * (1 - 1e-9) ? UNDER_AXIS : placeOn(scale, value);
}

/** @param {Scale} scale @returns {number[]} */
function ticksOf({ low, high, isLog }) {
  if (!isLog) return [low, (low + high) / 2, high];
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.ceil((last - first + 1) / 4);
  const ticks = [];
  for (let decade = first; decade <= last; decade += every) ticks.push(10 ** decade);
  return [...new Set([low, ...ticks, high])].filter((tick, at, all) =>
    at === 0 || at === all.length - 1 || Math.min(tick / low, high / tick) > (high / low) ** LEAST_GAP
  );
}

/** @param {HTMLCanvasElement} canvas
 * @param {{lines: readonly Line[], last: number, step: number | null, isLog: boolean, marks?: readonly [number, string][],
 * events?: readonly Mark[], palette: Palette, percent?: boolean, least?: number}} chart marks: values with a line of
 * their own; least: see `scaleOf`
 * @returns {{x: (step: number) => number, y: (value: number) => number} | null} null while it is hidden */
export function drawCurves(
  canvas,
  { lines, last, step, isLog, marks = [], events = [], palette, percent = false, least = 1 },
) {
  const on = surfaceOf(canvas);
  if (on === null) return null;
  const { context, width, height } = on;
  const scale = scaleOf(lines.map(({ points }) => points.map(([, value]) => value)), isLog, least,
    marks.map(([value]) => value));
  const x = stepScale(width, last);
  const y = (/** @type {number} */ value) =>
    MARGIN.top + (height - MARGIN.top - MARGIN.bottom) * (1 - placeOfPoint(scale, value));
  const text = (/** @type {number} */ value) => percent ? `${Math.round(100 * value)} %` : tickText(value);
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.lineWidth = 1;
  for (const value of ticksOf(scale)) {
    context.strokeStyle = palette.line;
    context.fillStyle = palette.muted;
    stroke(context, [[MARGIN.left, y(value)], [width - MARGIN.right, y(value)]]);
    context.fillText(text(value), MARGIN.left - 6, y(value));
  }
  drawSteps(context, width, height, last, palette);
  for (const [value] of marks) {
    context.strokeStyle = palette.muted;
    context.setLineDash([2, 3]);
    stroke(context, [[MARGIN.left, y(value)], [width - MARGIN.right, y(value)]]);
  }
  for (const { points, colour, width: thick, dash = [] } of lines) {
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.setLineDash(dash);
    let run = /** @type {[number, number][]} */ ([]);
    let isBroken = false;
    for (const [at, value] of points) {
      if (Number.isFinite(value)) {
        run.push([x(at), y(value)]);
        isBroken = false;
      } else if (!isBroken) {
        stroke(context, run);
        // Where it ends.
        cross(context, x(at), run.at(-1)?.[1] ?? MARGIN.top + 4, palette.warning);
        run = [];
        isBroken = true;
      }
    }
    stroke(context, run);
  }
  context.setLineDash([]);
  for (const [value, label] of marks) drawLabel(context, label, width - MARGIN.right - 4, y(value), palette);
  for (const { at, value, colour, isChosen } of events)
    ring(context, x(at), Number.isFinite(value) ? y(value) : MARGIN.top + 4, colour, isChosen ? 7 : 4, palette);
  drawNow(context, step === null ? null : x(step), height, palette);
  return { x, y };
}

/** The name of a line, above it or, at the top of the chart, below it; no curve crosses it.
 * @param {CanvasRenderingContext2D} context @param {string} text @param {number} right @param {number} line its y
 * @param {Palette} palette */
function drawLabel(context, text, right, line, palette) {
  const middle = line < MARGIN.top + FONT_PX ? line + FONT_PX / 2 + 3 : line - FONT_PX / 2 - 3;
  const wide = context.measureText(text).width + 4;
  context.fillStyle = palette.paper;
  context.fillRect(right - wide + 2, middle - FONT_PX / 2 - 1, wide, FONT_PX + 2);
  context.fillStyle = palette.muted;
  context.textAlign = "right";
  context.fillText(text, right, middle);
}

/** An event. @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {string} colour
 * @param {number} radius @param {Palette} palette */
function ring(context, x, y, colour, radius, palette) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = palette.paper;
  context.fill();
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {readonly [number, number][]} points */
function stroke(context, points) {
  const [first, ...rest] = points;
  if (first === undefined) return;
  context.beginPath();
  context.moveTo(...first);
  for (const point of rest) context.lineTo(...point);
  // A single point is a dot.
  if (rest.length === 0) context.arc(...first, 0.75, 0, 2 * Math.PI);
  context.stroke();
}

/** A value that is not finite. @param {CanvasRenderingContext2D} context @param {number} x @param {number} y
 * @param {string} colour */
function cross(context, x, y, colour) {
  context.save();
  context.setLineDash([]);
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  stroke(context, [[x - 3, y - 3], [x + 3, y + 3]]);
  stroke(context, [[x - 3, y + 3], [x + 3, y - 3]]);
  context.restore();
}

/** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height @param {number} last
 * @param {Palette} palette */
function drawSteps(context, width, height, last, palette) {
  const x = stepScale(width, last);
  context.fillStyle = palette.muted;
  context.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    const step = Math.round(Math.max(1, last) * share);
    context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
    context.fillText(share === 0 ? `step ${step}` : String(step), x(step), height - MARGIN.bottom / 2 + 2);
  }
}

/** The step that is shown. @param {CanvasRenderingContext2D} context @param {number | null} x @param {number} height
 * @param {Palette} palette */
function drawNow(context, x, height, palette) {
  if (x === null) return;
  context.strokeStyle = palette.ink;
  context.lineWidth = 1;
  stroke(context, [[x, MARGIN.top - 4], [x, height - MARGIN.bottom + 3]]);
}

/** @param {number} value @returns {string} short enough for the margin: 0.5, 200, 1e-3, 5e9 */
export function tickText(value) {
  const rounded = Number(value.toPrecision(2));
  const isShort = rounded === 0 || (Math.abs(rounded) > 1e-3 && Math.abs(rounded) < 1e3);
  return isShort ? String(rounded) : rounded.toExponential().replace("e+", "e");
}

/** @param {Scale} scale @param {number | null} value @returns {number} its place in the colours of a map */
function shadeAt(scale, value) {
  if (value === null) return 0;
  return Number.isFinite(value) ? 1 + Math.floor((NON_FINITE - 2) * placeOn(scale, value)) : NON_FINITE;
}

/** A map of layers (rows, the first on top) and steps (columns).
 * @param {HTMLCanvasElement} canvas
 * @param {{columns: readonly StepColumn[], layerCount: number, last: number, step: number | null, isLog: boolean,
 * palette: Palette}} map
 * @returns {Shades | null} null while it is hidden */
export function drawStepMap(canvas, { columns, layerCount, last, step, isLog, palette }) {
  const on = surfaceOf(canvas);
  if (on === null) return null;
  const { context, width, height } = on;
  const scale = scaleOf(columns.map(([, column]) => column), isLog);
  const x = stepScale(width, last);
  const inner = height - MARGIN.top - MARGIN.bottom;
  const tall = inner / Math.max(1, layerCount);
  const across = Math.max(1, Math.round((width - MARGIN.left - MARGIN.right) * devicePixelRatio));
  const pixelAt = (/** @type {number} */ step) => Math.round((x(step) - MARGIN.left) * devicePixelRatio);
  const places = new Uint8Array(across * layerCount);
  columns.forEach(([at, column], order) => {
    const from = Math.min(across - 1, pixelAt(at));
    const to = Math.max(from + 1, Math.min(across, pixelAt(columns[order + 1]?.[0] ?? at + 1)));
    column.forEach((value, layer) => places.fill(shadeAt(scale, value), layer * across + from, layer * across + to));
  });
  const ramp = rampPixels(rampStops(palette.paper, palette.forward, palette.ink));
  new Uint8ClampedArray(ramp.buffer).set([...colourOf(palette.warning), 255], 4 * NON_FINITE);
  context.imageSmoothingEnabled = false;
  if (layerCount > 0)
    context.drawImage(imageOf(places, layerCount, across, ramp), MARGIN.left, MARGIN.top, across / devicePixelRatio,
      inner);
  context.fillStyle = palette.muted;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil((FONT_PX + 3) / tall));
  for (let layer = 0; layer < layerCount; layer += every)
    context.fillText(String(layer + 1), MARGIN.left - 6, MARGIN.top + (layer + 0.5) * tall);
  drawSteps(context, width, height, last, palette);
  drawNow(context, step === null ? null : x(step), height, palette);
  const hasFinite = places.some((place) => place > 0 && place < NON_FINITE);
  return { scale: hasFinite ? scale : null, hasNonFinite: places.includes(NON_FINITE) };
}

/** @param {number} height of a map @param {number} layerCount @param {number} y @returns {number} index of the layer */
export function layerAt(height, layerCount, y) {
  const share = (y - MARGIN.top) / Math.max(1, height - MARGIN.top - MARGIN.bottom);
  return Math.min(layerCount - 1, Math.max(0, Math.floor(share * layerCount)));
}

/** @param {string} base64 @returns {Uint8Array} */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Shares from one colour over the paper to another, at 256 places: for class 0, neither, class 1.
 * @param {string} first @param {string} paper @param {string} second
 * @returns {Uint32Array} pixels as ImageData holds them */
export function twoSided(first, paper, second) {
  const [a, middle, b] = [first, paper, second].map(colourOf);
  const shades = new Uint8ClampedArray(4 * 256);
  for (let place = 0; place < 256; place += 1) {
    const share = Math.abs(place - 127.5) / 127.5;
    const end = place < 127.5 ? a : b;
    for (let channel = 0; channel < 3; channel += 1) {
      const [from, to] = [middle?.[channel] ?? 0, end?.[channel] ?? 0];
      shades[4 * place + channel] = from + (to - from) * 0.75 * share;
    }
    shades[4 * place + 3] = 255;
  }
  return new Uint32Array(shades.buffer);
}

/** @param {Uint8Array} values @param {number} rows @param {number} columns @param {Uint32Array} shades 256
 * @returns {HTMLCanvasElement} one pixel per value */
export function imageOf(values, rows, columns, shades) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  values.forEach((value, at) => pixels[at] = /** @type {number} */ (shades[value]));
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** Draws the outputs of a net of two features over the square of its data, with samples on it.
 * @param {HTMLCanvasElement} canvas @param {TrainingSurface} surface @param {DataSample[]} samples
 * @param {Palette} palette */
export function drawSurface(canvas, { extent, output }, samples, palette) {
  const on = surfaceOf(canvas);
  if (on === null) return;
  const { context, width, height } = on;
  const [rows = 0, columns = 0] = output.shape;
  const shades = twoSided(palette.backward, palette.paper, palette.forward);
  const size = Math.min(width, height);
  context.imageSmoothingEnabled = true;
  context.drawImage(imageOf(bytesOf(output.base64), rows, columns, shades), 0, 0, size, size);
  for (const { x, y, label } of samples) {
    context.beginPath();
    context.arc(size * (x + extent) / (2 * extent), size * (extent - y) / (2 * extent), 2.5, 0, 2 * Math.PI);
    context.fillStyle = label === 1 ? palette.forward : palette.backward;
    context.fill();
    context.strokeStyle = palette.paper;
    context.lineWidth = 0.75;
    context.stroke();
  }
}

/** The maps of a layer's units, in rows; sets the height of the canvas. @param {HTMLCanvasElement} canvas @param {TrainingPixels} units
 * @param {Palette} palette */
export function drawUnits(canvas, { shape: [count = 0, rows = 0, columns = 0], base64 }, palette) {
  const size = canvas.clientWidth / UNITS_IN_ROW - 2;
  canvas.style.height = `${Math.ceil(count / UNITS_IN_ROW) * (size + 2)}px`;
  const on = surfaceOf(canvas);
  if (on === null) return;
  const { context } = on;
  const shades = twoSided(palette.backward, palette.paper, palette.forward);
  const bytes = bytesOf(base64);
  for (let unit = 0; unit < count; unit += 1) {
    const one = bytes.subarray(unit * rows * columns, (unit + 1) * rows * columns);
    const [x, y] = [unit % UNITS_IN_ROW, Math.floor(unit / UNITS_IN_ROW)];
    context.drawImage(imageOf(one, rows, columns, shades), x * (size + 2), y * (size + 2), size, size);
  }
}
