/** The value axis of one half of the profile: decades, or a share of 100 %, between lanes for what has no place on
 * it. */

import { decadeLabel, decadeTicks } from "../scales.js";

/** @typedef {{text: string, y: number, isLane: boolean}} Tick */

const LANE = 12;
const SHARES = [0, 0.25, 0.5, 0.75, 1];

/** From the middle outwards: a lane for zero (on a logarithmic axis), the axis, lanes for Inf and for NaN. */
export class ProfileAxis {
  /**
   * @param {number} inner y of its side next to the layers' numbers
   * @param {number} outer y of its far side
   * @param {readonly [number, number] | null} decades first and last exponent; null: linear, 0 to 1
   */
  constructor(inner, outer, decades) {
    const away = Math.sign(outer - inner);
    this.inner = inner;
    this.low = inner + away * LANE * (decades === null ? 0.5 : 1.5);
    this.zero = decades === null ? this.low : inner + away * LANE * 0.5;
    this.high = outer - away * LANE * 2.4;
    this.inf = outer - away * LANE * 1.4;
    this.nan = outer - away * LANE * 0.5;
    this.decades = decades;
  }

  /** @param {number} value of a logarithmic axis the magnitude counts @returns {number} where it stands; beyond an end,
   * at that end */
  y(value) {
    if (value === 0) return this.zero;
    if (this.decades === null) return this.#between(value);
    const [first, last] = this.decades;
    return this.#between((Math.log10(Math.abs(value)) - first) / (last - first));
  }

  /** @param {number} share */
  #between(share) {
    return this.low + Math.min(1, Math.max(0, share)) * (this.high - this.low);
  }

  /** @returns {Tick[]} */
  get ticks() {
    const lanes = [
      { text: "Inf", y: this.inf, isLane: true },
      { text: "NaN", y: this.nan, isLane: true },
    ];
    if (this.decades === null) {
      const shares = Math.abs(this.high - this.low) < 90 ? SHARES.filter((share) => share % 0.5 === 0) : SHARES;
      return [...shares.map((share) => ({ text: `${share * 100} %`, y: this.#between(share), isLane: false })),
        ...lanes];
    }
    const [first, last] = this.decades;
    const exponents = decadeTicks(first, last, Math.abs(this.high - this.low), 13);
    const decades = exponents.map((exponent) => ({ text: decadeLabel(exponent),
      y: this.#between((exponent - first) / (last - first)), isLane: false })
    );
    return [...decades, { text: "0", y: this.zero, isLane: true }, ...lanes];
  }
}
