/** Shades of one hue for counts: from the paper over the hue to the ink, so that lightness runs one way in either
 * colour scheme, and for eyes that see no hue. Shades go with the logarithm of the count. No DOM. */

// The colours of the style sheet, for canvas.

const DARK = "(prefers-color-scheme: dark)";
/** The system sets the colours. */
const FORCED = "(forced-colors: active)";

/** @returns {Palette} as the current colour scheme has them */
export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const canvas = document.createElement("canvas").getContext("2d");
  // A canvas gives any colour as #rrggbb, those of the system too.
  const token = (/** @type {string} */ name) => {
    const value = style.getPropertyValue(name).trim();
    if (canvas === null) return value;
    canvas.fillStyle = value;
    return canvas.fillStyle;
  };
  const names = ["forward", "backward", "parameter", "neutral", "ink", "line", "warning", "paper"];
  const colours = Object.fromEntries(names.map((name) => [name, token(`--${name}`)]));
  return /** @type {Palette} */ ({ ...colours, muted: token("--ink-muted") });
}

/** Calls back when the colour scheme changes. @param {() => void} listener */
export function onSchemeChange(listener) {
  for (const query of [DARK, FORCED]) matchMedia(query).addEventListener("change", listener);
}

export function isDarkScheme() {
  return matchMedia(DARK).matches;
}

/** The colour of borders, edges and bars.
 * @param {Phase} half @param {string} role @returns {Phase | "parameter" | "neutral"} */
export function hue(half, role) {
  if (half === "backward") return "backward";
  if (role === "parameter") return "parameter";
  return role === "target" || role === "buffer" || role === "constant" ? "neutral" : "forward";
}

// Colours by lightness, chroma and hue, so that equal steps look equal (B. Ottosson, Oklab, 2020).

/** @param {number} linear @returns {number} 0 to 255 */
function encoded(linear) {
  const clipped = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
}

/** @param {number} lightness 0 to 1 @param {number} chroma 0 for grey; what the screen cannot show is cut off
 * @param {number} hue degrees @returns {RgbColour} */
export function oklch(lightness, chroma, hue) {
  const [a, b] = [chroma * Math.cos((hue * Math.PI) / 180), chroma * Math.sin((hue * Math.PI) / 180)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    encoded(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    encoded(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    encoded(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

/** @param {RgbColour} colour @returns {string} #rrggbb */
export function hex([red, green, blue]) {
  return `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {number} share −1 to 1 @param {boolean} isDark
 * @returns {string} brown above 0, teal below: apart by lightness from 0, by hue from each other */
export function aroundZero(share, isDark) {
  const size = Math.min(1, Math.abs(share));
  const hue = share < 0 ? 195 : 60;
  return hex(isDark ? oklch(0.25 + 0.55 * size, 0.12 * size, hue) : oklch(0.97 - 0.45 * size, 0.12 * size, hue));
}

/** Smaller counts are rests of bins that were spread over others, and are not shown. */
export const MIN_COUNT = 0.05;

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

/** @param {number} count @param {number} most @returns {number} 0 to 1 */
export function depth(count, most) {
  return Math.log1p(count) / Math.log1p(most);
}

/** @param {string} paper @param {string} hue @param {string} ink
 * @returns {[number, RgbColour][]} where on the ramp, 0 to 1, and the colour there; even in between */
export function rampStops(paper, hue, ink) {
  const [from, middle, to] = [colourOf(paper), colourOf(hue), colourOf(ink)];
  return [
    [0, mix(from, middle, LIGHTEST)],
    [HUE_AT, middle],
    [1, mix(middle, to, DEEPEST)],
  ];
}

/** @param {readonly [number, RgbColour][]} stops
 * @returns {Uint32Array} 256 pixels as ImageData holds them; the first is transparent */
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
