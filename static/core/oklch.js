/** Colours by lightness, chroma and hue, so that equal steps look equal (B. Ottosson 2020, OKLab). No DOM. */

/** @typedef {[number, number, number]} Triple */

/** @param {number} linear @returns {number} 0 to 255 */
function encoded(linear) {
  const clipped = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
}

/**
 * @param {number} lightness 0 to 1
 * @param {number} chroma 0 for grey; what the screen cannot show is cut off
 * @param {number} hue degrees
 * @returns {Triple} red, green, blue, 0 to 255
 */
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

/** @param {Triple} colour @returns {string} #rrggbb */
export function hex([red, green, blue]) {
  return `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
