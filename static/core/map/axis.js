/** Axes of a map: their texts, `scale=0.5:2:33`, `depth=log:2:64:6` and `activation=relu,tanh`, and places along them.
 * A place counts cells: cell i reaches from i to i + 1. No DOM. */

import { ticks, tickText } from "./ticks.js";

/** @typedef {{key: string, from: number, to: number, count: number, isLog: boolean}} AxisRange */
/** @typedef {AxisRange | {key: string, list: string[]}} AxisSpec */

const RANGE = /^(log:)?([^:,]+):([^:,]+):(\d+)$/;
/** An axis of at most so many values has a tick at each. */
const FEW = 8;
/** The ends of a region are as precise as this share of a cell. */
const PRECISION = 0.1;
/** A cell of a region is at least so many steps of a float64. */
const FINEST = 4;

/** @param {string} text @returns {AxisSpec | null} null for a text that is no axis; the server gives the reason */
export function parseAxis(text) {
  const [, key = "", over = ""] = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(text) ?? [];
  if (over === "") return null;
  const range = RANGE.exec(over);
  if (range === null) return over.includes(":") ? null : { key, list: over.split(",").map((value) => value.trim()) };
  const [from = NaN, to = NaN, count = 0] = range.slice(2).map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && count > 0
    ? { key, from, to, count, isLog: range[1] !== undefined } : null;
}

/** @param {AxisSpec} axis @returns {string} */
export function axisText(axis) {
  if ("list" in axis) return `${axis.key}=${axis.list.join(",")}`;
  const { key, from, to, count, isLog } = axis;
  return `${key}=${isLog ? "log:" : ""}${from}:${to}:${count}`;
}

/** The part of an axis between two of its places, with as many values; of whole numbers at most those inside.
 * @param {AxisSpec} axis @param {AxisScale} scale @param {number} low @param {number} high above low
 * @param {boolean} isWhole whether its values are whole numbers @returns {AxisSpec | null} null: floats end there */
export function partOf(axis, scale, low, high, isWhole) {
  const { key } = axis;
  const { values } = scale;
  const inside = values.slice(Math.max(0, Math.floor(low)), Math.max(1, Math.ceil(high))).map(String);
  if ("list" in axis) return { key, list: inside };
  const last = values.length - 1;
  const ends = [low, high].map((place) => Number(scale.value(Math.min(last + 0.5, Math.max(0.5, place)))));
  const [from, to] = [Math.min(...ends), Math.max(...ends)];
  if (isWhole) {
    const [first, end] = [Math.ceil(from), Math.floor(to)];
    if (end <= first) return { key, list: first === end ? [String(first)] : inside };
    return { ...axis, from: first, to: end, count: Math.min(axis.count, end - first + 1) };
  }
  const cell = axis.isLog ? from * Math.log(to / from) : to - from;
  if (!(cell > FINEST * axis.count * Number.EPSILON * Math.max(Math.abs(from), Math.abs(to)))) return null;
  const unit = 10 ** Math.floor(Math.log10((PRECISION * cell) / axis.count));
  const [first = 0, end = 0] = [from, to].map((value) => Number((Math.round(value / unit) * unit).toPrecision(17)));
  return { ...axis, from: first, to: end };
}

export class AxisScale {
  /** @param {SweepAxis} axis */
  constructor({ key, values, log }) {
    this.key = key;
    this.values = values;
    const numbers = values.map(Number);
    const direction = Math.sign((numbers.at(-1) ?? 0) - (numbers[0] ?? 0));
    /** Whether values in between have a place. */
    this.isContinuous = values.length > 1 && values.every((value) => typeof value === "number")
      && numbers.every((value, at) => at === 0 || direction * (value - (numbers[at - 1] ?? NaN)) > 0);
    this.isLog = log && numbers.every((value) => value > 0);
    this.isWhole = numbers.every(Number.isInteger);
    this.#stretched = this.isLog ? numbers.map(Math.log) : numbers;
    this.#direction = direction;
  }

  /** @type {number[]} */
  #stretched;
  #direction;

  /** @param {number} at @returns {[number, number, number]} of the two values around: the index of the first, both */
  #pair(at) {
    const first = Math.min(this.values.length - 2, Math.max(0, at));
    return [first, this.#stretched[first] ?? NaN, this.#stretched[first + 1] ?? NaN];
  }

  /** @param {number | string} value @returns {number | null} null: it has none */
  place(value) {
    if (!this.isContinuous) {
      const at = this.values.findIndex((each) => String(each) === String(value));
      return at < 0 ? null : at + 0.5;
    }
    const stretched = this.isLog ? Math.log(Number(value)) : Number(value);
    if (!Number.isFinite(stretched)) return null;
    let [low, high] = [0, this.values.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#direction * (stretched - (this.#stretched[middle] ?? NaN)) >= 0) low = middle;
      else high = middle;
    }
    const [first, from, to] = this.#pair(low);
    return first + 0.5 + (stretched - from) / (to - from);
  }

  /** @param {number} place @returns {number | string} the value there; where none is in between, that of the cell */
  value(place) {
    const cell = Math.min(this.values.length - 1, Math.max(0, Math.floor(place)));
    if (!this.isContinuous) return this.values[cell] ?? NaN;
    const [first, from, to] = this.#pair(Math.floor(place - 0.5));
    const stretched = from + (place - 0.5 - first) * (to - from);
    return this.isLog ? Math.exp(stretched) : stretched;
  }

  /** @param {number} low place @param {number} high place @param {number} fits at most so many
   * @returns {{place: number, text: string}[]} */
  ticks(low, high, fits) {
    const last = this.values.length - 0.5;
    const isInside = (/** @type {number} */ place) =>
      place >= Math.max(0.5, low) - 1e-9 && place <= Math.min(last, high) + 1e-9;
    const count = this.values.length;
    if (!this.isContinuous || count <= Math.min(FEW, fits)) {
      const every = Math.max(1, Math.ceil(Math.min(count, high - low) / Math.max(1, fits)));
      return this.values.map((value, at) => ({ place: at + 0.5,
        text: typeof value === "number" ? tickText(value) : String(value) })
      ).filter(({ place }, at) => at % every === 0 && isInside(place));
    }
    const ends = [low, high].map((place) => Number(this.value(place)));
    return ticks(Math.min(...ends), Math.max(...ends), this.isLog, fits).filter(({ value }) =>
      !this.isWhole || Number.isInteger(Number(value.toPrecision(10)))
    ).map(({ value, text }) => ({ place: this.place(value) ?? NaN, text })).filter(({ place }) => isInside(place));
  }
}
