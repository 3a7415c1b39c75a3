/** Scales and their ticks: the slider's, and the profile's logarithmic axis. */

/** The interface of both scales of the slider. Positions run from −1 to 1. step: the next value by keyboard, `steps` hundredths
 * away. @typedef {{value: (position: number) => number, position: (value: number) => number,
 * step: (value: number, steps: number) => number}} Scale */

/** A slider with equal steps; values are hundredths.
 * @param {number} minimum @param {number} maximum @returns {Scale} */
export function linearScale(minimum, maximum) {
  const clamped = (/** @type {number} */ value) => Math.min(maximum, Math.max(minimum, Number(value.toFixed(2))));
  return {
    value: (position) => clamped(minimum + (maximum - minimum) * (position + 1) / 2),
    position: (value) => 2 * (Math.min(maximum, Math.max(minimum, value)) - minimum) / (maximum - minimum) - 1,
    step: (value, steps) => clamped(value + steps / 100),
  };
}

/** Decades per travel around ×1, against an even spread: slower there, where the experiments happen. */
const CENTRE = 0.45;

/** A slider over the decades from `minimum` to `maximum`, stretched around ×1; positions run from −1 to 1. Values have
 * three significant digits, so that links stay short.
 * @param {number} minimum @param {number} maximum @returns {Scale} */
export function sliderScale(minimum, maximum) {
  const low = Math.log10(minimum);
  const high = Math.log10(maximum);
  const reach = Math.max(Math.abs(low), Math.abs(high));
  const decades = (/** @type {number} */ u) => reach * u * (CENTRE + (1 - CENTRE) * u * u);
  const clamped = (/** @type {number} */ value) => Math.min(maximum, Math.max(minimum, Number(value.toPrecision(3))));
  return {
    value(position) {
      return clamped(10 ** decades(position));
    },
    position(value) {
      const target = Math.min(high, Math.max(low, Math.log10(value)));
      let [left, right] = [-1, 1];
      for (let step = 0; step < 50; step += 1) {
        const middle = (left + right) / 2;
        if (decades(middle) < target) left = middle;
        else right = middle;
      }
      return (left + right) / 2;
    },
    step(value, steps) {
      return clamped(value * (1 + Math.abs(steps) / 100) ** Math.sign(steps));
    },
  };
}

/** Whole decades that hold all finite positive values, at least two.
 * @param {Iterable<number | null>} values @param {[number, number] | null} [kept] decades that it holds at least; it grows
 * only where a value leaves them @returns {[number, number]} exponents */
export function decadeRange(values, kept = null) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || !(value > 0) || !Number.isFinite(value)) continue;
    const exponent = Math.log10(value);
    low = Math.min(low, exponent);
    high = Math.max(high, exponent);
  }
  if (low > high) return kept ?? [-1, 1];
  if (kept !== null) return [Math.min(kept[0], Math.floor(low)), Math.max(kept[1], Math.ceil(high))];
  const first = Math.floor(low - 0.08);
  const last = Math.ceil(high + 0.08);
  return last - first < 2 ? [first, first + 2] : [first, last];
}

/** Exponents to label on an axis of `length` px, at least `spacing` px apart: every 1, 2, 5, 10, 20 … decades.
 * @param {number} low @param {number} high @param {number} length @param {number} spacing */
export function decadeTicks(low, high, length, spacing) {
  const fits = Math.max(1, Math.floor(length / spacing));
  const step = [1, 2, 5, 10, 20, 50, 100, 200].find((factor) => (high - low) / factor <= fits) ?? 500;
  const ticks = [];
  for (let exponent = Math.ceil(low / step) * step; exponent <= high; exponent += step) ticks.push(exponent + 0);
  return ticks;
}

/** The label of a decade: 0.01, 1, 100, and 10⁻⁸ further out. @param {number} exponent @returns {string} */
export function decadeLabel(exponent) {
  if (exponent >= -2 && exponent <= 3) return String(Number(`1e${exponent}`));
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const raised = [...String(Math.abs(exponent))].map((digit) => digits[Number(digit)]).join("");
  return `10${exponent < 0 ? "⁻" : ""}${raised}`;
}

/** Layers from one label to the next. */
const LAYER_STEPS = [1, 5, ...[10, 100, 1000, 10_000, 100_000].flatMap((ten) => [ten, 2 * ten, 5 * ten])];

/** Which of the layers 1…count to label where a number of three digits may take `spacing` px of `length`: always the first
 * and the last.
 * @param {number} count @param {number} length @param {number} spacing */
export function layerTicks(count, length, spacing) {
  const more = Math.max(0, String(count).length - 3) / 3;
  const fits = Math.max(2, Math.floor(length / (spacing * (1 + more))));
  const step = LAYER_STEPS.find((candidate) => count / candidate <= fits) ?? count;
  if (step === 1) return Array.from({ length: count }, (_, index) => index + 1);
  const ticks = [1];
  for (let layer = step; layer <= count; layer += step) if (layer > 1) ticks.push(layer);
  const last = ticks[ticks.length - 1] ?? 1;
  if (last !== count) {
    if (count - last < step / 2) ticks.pop();
    ticks.push(count);
  }
  return ticks;
}
