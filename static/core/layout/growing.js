/** Arrays of numbers that grow, and a store from which to take them again. */

/** @typedef {Float64Array | Float32Array | Int32Array | Uint8Array} Values */

/** What is longer is copied as a whole: before that, a view of it would cost more. */
const LONG = 256;

export class Numbers {
  #type;
  /** @type {Values} */
  #values;
  length = 0;

  /** @param {ValuesType} [type] */
  constructor(type = Float64Array) {
    this.#type = type;
    this.#values = new type(256);
  }

  /** @param {number} value */
  push(value) {
    if (this.length === this.#values.length) this.#grow(2 * this.length);
    this.#values[this.length] = value;
    this.length += 1;
  }

  /** @param {number} index @returns {number} */
  at(index) {
    return this.#values[index];
  }

  /** @param {number} index @param {number} value */
  set(index, value) {
    this.#values[index] = value;
  }

  /** The values there are; good until the next push. @returns {Values} */
  get all() {
    return this.#values.subarray(0, this.length);
  }

  /** The values there are and room for more; good until the next push. @returns {Values} */
  get room() {
    return this.#values;
  }

  /** Makes room for so many in all, and no more. @param {number} length */
  reserve(length) {
    if (length > this.#values.length) this.#grow(length);
  }

  /**
   * A stretch of others, all of them shifted.
   *
   * @param {Numbers} others
   * @param {number} from
   * @param {number} to
   * @param {number} [by]
   */
  append(others, from, to, by = 0) {
    const begin = this.extend(to - from);
    const values = this.#values;
    const old = others.#values;
    if (by === 0 && to - from > LONG) values.set(old.subarray(from, to), begin);
    else for (let at = from; at < to; at += 1) values[at - from + begin] = old[at] + by;
  }

  /** Room for so many more, with whatever stands there. @param {number} count @returns {number} where it begins */
  extend(count) {
    const begin = this.length;
    const length = begin + count;
    if (length > this.#values.length) this.#grow(Math.max(length, 2 * begin));
    this.length = length;
    return begin;
  }

  /** @param {number} length */
  #grow(length) {
    const larger = new this.#type(length);
    larger.set(this.#values.subarray(0, this.length));
    this.#values = larger;
  }
}

/** Arrays that one layout leaves to a later one, so that it need not let them grow again. */
export class NumbersStore {
  /** @type {Map<string, Numbers>} */
  #kept = new Map();

  /** @param {string} name @param {ValuesType} [type] @returns {Numbers} empty */
  take(name, type) {
    const numbers = this.#kept.get(name) ?? new Numbers(type);
    this.#kept.set(name, numbers);
    numbers.length = 0;
    return numbers;
  }
}
