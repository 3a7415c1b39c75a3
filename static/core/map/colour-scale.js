/** The colours of a map: its range of values, its shades, and one pixel per cell. No DOM. */

import { aroundZero, colourOf, oklch } from "../colours.js";
import { FAILED, KNOWN } from "./grid.js";

/** The best value of a measure, at which its two colours meet. @type {Record<string, number>} */
const CENTRES = { gradient_ratio: 1 };
/** Share of the values below the range, and above it. */
const BEYOND = 0.01;
/** Values that the range is read from, at most. */
const SAMPLE = 20_000;

/** @typedef {{low: number, high: number, isLog: boolean, isCentred: boolean}} ColourScale */
/** @typedef {{nan: number, infinite: number, missing: number}} SpecialPixels */

/** @param {Float64Array} field a value per cell @param {Uint8Array} states @param {boolean} isLog
 * @param {string} [measure] its name @param {number} [beyond] share of the values below the range, and above it
 * @returns {ColourScale | null} null: no finite value is known */
export function scaleOf(field, states, isLog, measure = "", beyond = BEYOND) {
  const centre = CENTRES[measure];
  const known = field.filter((value, cell) =>
    states[cell] === KNOWN && Number.isFinite(value) && (!isLog || value > 0)
  );
  if (known.length === 0) return null;
  const every = Math.ceil(known.length / SAMPLE);
  const values = known.filter((_, order) => order % every === 0).sort();
  const at = (/** @type {number} */ share) => values[Math.round(share * (values.length - 1))] ?? NaN;
  let [low, high] = [at(beyond), at(1 - beyond)];
  if (centre !== undefined) {
    const reach = isLog ? Math.max(high / centre, centre / low, 1.01) : Math.max(high - centre, centre - low, 1e-9);
    [low, high] = isLog ? [centre / reach, centre * reach] : [centre - reach, centre + reach];
  } else if (low === high) {
    [low, high] = isLog ? [low / 2, high * 2] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
  }
  return { low, high, isLog, isCentred: centre !== undefined };
}

/** @param {ColourScale} scale @param {number} value finite @returns {number} 0 to 1 */
export function share({ low, high, isLog }, value) {
  const place = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  // The logarithm of 0 or less is the low end.
  return place > 0 ? Math.min(1, place) : 0;
}

/** @param {boolean} isCentred @param {boolean} isDark @returns {RgbColour[]} 256 of them: from dark blue to yellow, apart by
 * lightness; of a centred scale brown above and teal below */
export function shades(isCentred, isDark) {
  return Array.from({ length: 256 }, (_, at) => {
    const place = at / 255;
    return isCentred ? colourOf(aroundZero(2 * place - 1, isDark))
      : oklch(0.33 + 0.55 * place, 0.13, 275 - 175 * place);
  });
}

/** @param {RgbColour} colour @returns {number} a pixel as ImageData holds it, little endian */
export function pixelOf([red, green, blue]) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

/** One pixel per cell, the last row of cells on top.
 * @param {Float64Array} field @param {{nx: number, ny: number, states: Uint8Array}} grid
 * @param {Int32Array | null} nearest known cell of each; null: itself @param {ColourScale | null} scale
 * @param {Uint32Array} pixels of the shades @param {SpecialPixels} special
 * @returns {{pixels: Uint32Array, mask: Uint32Array | null, hasNan: boolean, hasMissing: boolean}} mask: the infinite
 * values */
export function paint(field, { nx, ny, states }, nearest, scale, pixels, special) {
  const painted = new Uint32Array(nx * ny);
  const mask = new Uint32Array(nx * ny);
  let [hasInfinite, hasNan, hasMissing] = [false, false, false];
  for (let y = 0; y < ny; y += 1) {
    for (let x = 0; x < nx; x += 1) {
      const cell = nearest === null ? y * nx + x : nearest[y * nx + x];
      const to = (ny - 1 - y) * nx + x;
      const value = field[cell];
      if (cell < 0) continue;
      if (states[cell] === FAILED) {
        painted[to] = special.missing;
        hasMissing = true;
      } else if (Number.isNaN(value)) {
        painted[to] = special.nan;
        hasNan = true;
      } else if (!Number.isFinite(value)) {
        painted[to] = special.infinite;
        mask[to] = 0xffffffff;
        hasInfinite = true;
      } else if (scale !== null) painted[to] = pixels[Math.round(255 * share(scale, value))];
    }
  }
  return { pixels: painted, mask: hasInfinite ? mask : null, hasNan, hasMissing };
}
