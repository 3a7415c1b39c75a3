/** The axis of values that many histograms share, linear or logarithmic to both sides of zero, and its bins. Places on
 * it are shares of its length, 0 to 1. No DOM. */

import { decadeLabel, decadeTicks } from "./scales.js";

export const BINS = 96;

/** Quotients this large are their own 1 + quotient, and larger ones may overflow where their logarithms do not. */
const FAR = 1e15;

const FEWEST_DECADES = 3;

export class ValueAxis {
  #from;
  #to;

  /** @param {"linear" | "log"} kind log: sign(v) · log₁₀(1 + |v|/threshold) @param {number} low
   * @param {number} high above low
   * @param {number} threshold magnitude below which a logarithmic axis turns linear; above zero */
  constructor(kind, low, high, threshold) {
    this.kind = kind;
    this.low = low;
    this.high = high;
    this.threshold = threshold;
    this.#from = this.#stretch(low);
    this.#to = this.#stretch(high);
    /** Where bins begin and end, as values; the ends are low and high to the bit. */
    this.edges = Float64Array.from({ length: BINS + 1 }, (_, edge) => this.value(edge / BINS));
    this.edges[0] = low;
    this.edges[BINS] = high;
  }

  /** @param {number} value @returns {number} */
  #stretch(value) {
    // Halves: the span of float64's extremes would overflow.
    if (this.kind === "linear") return value / 2;
    const magnitude = Math.abs(value);
    const quotient = magnitude / this.threshold;
    return Math.sign(value)
      * (quotient < FAR ? Math.log10(1 + quotient) : Math.log10(magnitude) - Math.log10(this.threshold));
  }

  /** @param {number} value @returns {number} its place, outside 0 to 1 where the axis does not reach */
  place(value) {
    return (this.#stretch(value) - this.#from) / (this.#to - this.#from);
  }

  /** @param {number} place @returns {number} */
  value(place) {
    const stretched = this.#from * (1 - place) + this.#to * place;
    if (this.kind === "linear") return 2 * stretched;
    const decades = Math.abs(stretched);
    const magnitude = decades < 15 ? this.threshold * (10 ** decades - 1)
      : 10 ** (decades + Math.log10(this.threshold));
    return Math.sign(stretched) * magnitude;
  }

  /** @param {number} value @returns {number} its bin; −1 below the axis, BINS above */
  binOf(value) {
    if (value < this.low) return -1;
    if (value > this.high) return BINS;
    let [first, last] = [0, BINS - 1];
    while (first < last) {
      const middle = (first + last + 1) >> 1;
      if (value >= this.edges[middle]) first = middle;
      else last = middle - 1;
    }
    return first;
  }

  /** Labels for the part of the axis between two places. @param {number} from @param {number} to
   * @param {number} length of that part, px @param {number} spacing least distance of two labels, px */
  ticks(from, to, length, spacing) {
    const [low, high] = [this.value(from), this.value(to)];
    const decades = this.kind === "log" ? this.#decades(low, high, length / (to - from), spacing) : [];
    return decades.length >= FEWEST_DECADES ? decades : this.#even(low, high, length / (to - from), spacing);
  }

  /** @param {number} low @param {number} high @param {number} length @param {number} spacing */
  #decades(low, high, length, spacing) {
    const first = Math.floor(Math.log10(this.threshold));
    const last = Math.floor(Math.log10(Math.max(-low, high)));
    const perDecade = length / (this.#to - this.#from);
    const exponents = decadeTicks(first, last, (last - first) * perDecade, spacing);
    const zero = this.place(0);
    const ticks = low <= 0 && high >= 0 ? [{ place: zero, text: "0" }] : [];
    for (const exponent of exponents) {
      for (const sign of [1, -1]) {
        const value = sign * 10 ** exponent;
        const place = this.place(value);
        const isCramped = Math.abs(place - zero) * length < spacing;
        if (value < low || value > high || isCramped) continue;
        ticks.push({ place, text: (sign < 0 ? "−" : "") + decadeLabel(exponent) });
      }
    }
    return ticks;
  }

  /** @param {number} low @param {number} high @param {number} length @param {number} spacing */
  #even(low, high, length, spacing) {
    const fits = Math.max(1, Math.floor((length * (this.place(high) - this.place(low))) / spacing));
    const rough = high / fits - low / fits;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = ([1, 2, 5].find((lead) => lead * power >= rough) ?? 10) * power;
    const ticks = [];
    // Multiples are counted, since a sum would add up rounding errors.
    for (let multiple = Math.ceil(low / step); multiple * step <= high; multiple += 1)
      ticks.push({ place: this.place(multiple * step), text: tickText(multiple * step) });
    return this.kind === "linear" ? ticks : apart(ticks, spacing / length);
  }
}

/** @param {{place: number, text: string}[]} ticks ascending @param {number} least distance of two */
function apart(ticks, least) {
  let last = -Infinity;
  return ticks.filter(({ place }) => {
    if (place - last < least) return false;
    last = place;
    return true;
  });
}

/** @param {number} value a round one @returns {string} 0.5, −20, 2e38 */
function tickText(value) {
  const magnitude = Number(Math.abs(value).toPrecision(6));
  const isPlain = magnitude === 0 || (magnitude >= 1e-3 && magnitude < 1e5);
  const text = isPlain ? String(magnitude) : magnitude.toExponential().replace("e+", "e");
  return (value < 0 && magnitude > 0 ? "−" : "") + text;
}

/** Spreads one histogram over the bins of an axis. Exact zeros, whose number is known, stay at zero: after relu they
 * are half of all values, and a bin that reaches from zero to the hundredth part of the maximum would smear them.
 * @param {Uint32Array} source counts of equally wide bins over [low, high] @param {number} low
 * @param {number} high equal to low: all values are @param {number} zeros among the counted values
 * @param {ValueAxis} axis @param {Float64Array} into counts per bin of the axis, added to
 * @returns {{below: number, above: number, spike: number, spikeBin: number}} what lies outside the axis; how many
 * values are exactly the same, and the bin they are in: −1 below the axis, BINS above */
export function spread(source, low, high, zeros, axis, into) {
  const result = { below: 0, above: 0, spike: 0, spikeBin: axis.binOf(low === high ? low : 0) };
  const putSpike = () => {
    if (result.spikeBin < 0) result.below += result.spike;
    else if (result.spikeBin >= BINS) result.above += result.spike;
    else into[result.spikeBin] = into[result.spikeBin] + result.spike;
  };
  const bins = source.length;
  let total = 0;
  for (let bin = 0; bin < bins; bin += 1) total += source[bin];
  if (low === high) {
    result.spike = total;
    putSpike();
    return result;
  }
  let zeroBin = -1;
  if (zeros > 0 && low <= 0 && high >= 0) {
    zeroBin = Math.min(bins - 1, Math.floor((-low / 2 / (high / 2 - low / 2)) * bins));
    result.spike = Math.min(zeros, source[zeroBin]);
  }
  // How many values lie below each edge of the axis: what a bin holds is the difference of two.
  let bin = 0;
  let passed = 0;
  let before = 0;
  let inside = source[0] - (zeroBin === 0 ? result.spike : 0);
  let start = low;
  let end = binEdge(low, high, 1 / bins);
  for (let edge = 0; edge <= BINS; edge += 1) {
    const value = axis.edges[edge];
    while (bin < bins && end <= value) {
      bin += 1;
      passed += inside;
      inside = (source[bin] ?? 0) - (zeroBin === bin ? result.spike : 0);
      start = end;
      end = binEdge(low, high, (bin + 1) / bins);
    }
    const lower = bin < bins && value > start ? passed + (inside * (value - start)) / (end - start) : passed;
    if (edge === 0) result.below += lower;
    else into[edge - 1] = into[edge - 1] + lower - before;
    before = lower;
  }
  result.above += total - result.spike - before;
  putSpike();
  return result;
}

/** @param {number} low @param {number} high @param {number} share 0 to 1
 * @returns {number} the value that far between the two: low and high themselves at the ends */
export function binEdge(low, high, share) {
  return low * (1 - share) + high * share;
}
