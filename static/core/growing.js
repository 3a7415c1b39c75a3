/** Arrays of numbers that grow, and a store from which to take them again. */

export class Numbers {
  #type;
  /** @type {Float64Array | Float32Array | Int32Array} */
  #values;
  length = 0;

  /** @param {typeof Float64Array | typeof Float32Array | typeof Int32Array} [type] */
  constructor(type = Float64Array) {
    this.#type = type;
    this.#values = new type(256);
  }

  /** @param {number} value */
  push(value) {
    if (this.length === this.#values.length) this.#grow();
    this.#values[this.length] = value;
    this.length += 1;
  }

  /** @param {number} index @returns {number} */
  at(index) {
    return this.#values[index] ?? 0;
  }

  /** @param {number} index @param {number} value */
  set(index, value) {
    this.#values[index] = value;
  }

  /** The values there are; good until the next push. @returns {Float64Array | Float32Array | Int32Array} */
  get all() {
    return this.#values.subarray(0, this.length);
  }

  #grow() {
    const larger = new this.#type(2 * this.#values.length);
    larger.set(this.#values);
    this.#values = larger;
  }
}

/** Arrays that one layout leaves to the next, so that it need not let them grow again. */
export class NumbersStore {
  /** @type {Map<string, Numbers>} */
  #kept = new Map();

  /** @param {string} name @param {typeof Float64Array | typeof Float32Array | typeof Int32Array} [type] @returns {Numbers} empty */
  take(name, type) {
    const numbers = this.#kept.get(name) ?? new Numbers(type);
    this.#kept.set(name, numbers);
    numbers.length = 0;
    return numbers;
  }
}
