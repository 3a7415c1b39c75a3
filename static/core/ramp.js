/**
 * Shades of one hue for counts: from the paper over the hue to the ink, so that lightness runs one way in either colour
 * scheme, and for eyes that see no hue. Shades go with the logarithm of the count. No DOM.
 */

/** Counts below this are nothing: what is left of a bin that was spread over others. */
export const LEAST_COUNT = 0.05;

const LIGHTEST = 0.1;
const HUE_AT = 0.68;
const DEEPEST = 0.62;

/** @param {string} hex #rrggbb @returns {RgbColour} */
export function colourOf(hex) {
  const number = Number.parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/** @param {RgbColour} from @param {RgbColour} to @param {number} share @returns {RgbColour} */
export function mix(from, to, share) {
  const [r, g, b] = from.map((part, index) => Math.round(part + (to[index] - part) * share));
  return [r, g, b];
}

/** @param {RgbColour} colour @returns {string} */
export function css([r, g, b]) {
  return `rgb(${r},${g},${b})`;
}

/** @param {number} count @param {number} most @returns {number} 0 to 1 */
export function depth(count, most) {
  return Math.log1p(count) / Math.log1p(most);
}

/**
 * @param {string} paper
 * @param {string} hue
 * @param {string} ink
 * @returns {[number, RgbColour][]} where on the ramp, 0 to 1, and the colour there; even in between
 */
export function rampStops(paper, hue, ink) {
  const [from, middle, to] = [colourOf(paper), colourOf(hue), colourOf(ink)];
  return [
    [0, mix(from, middle, LIGHTEST)],
    [HUE_AT, middle],
    [1, mix(middle, to, DEEPEST)],
  ];
}

/**
 * @param {readonly [number, RgbColour][]} stops
 * @returns {Uint32Array} 256 pixels as ImageData holds them; the first is transparent
 */
export function rampPixels(stops) {
  const bytes = new Uint8ClampedArray(4 * 256);
  for (let shade = 1; shade < 256; shade += 1) {
    const place = (shade - 1) / 254;
    const next = Math.max(1, stops.findIndex(([at]) => at >= place));
    const [[low, from], [high, to]] = [stops[next - 1] ?? [0, [0, 0, 0]], stops[next] ?? [1, [0, 0, 0]]];
    bytes.set([...mix(from, to, (place - low) / (high - low)), 255], 4 * shade);
  }
  return new Uint32Array(bytes.buffer);
}
