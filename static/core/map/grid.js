/** The values of a map's nets: per cell the median and the spread over seeds, and for a cell that is not known yet its
 * nearest known neighbour. No DOM. */

export const UNKNOWN = 0;
export const KNOWN = 1;
/** The server could not compute it. */
export const FAILED = 2;

export class MapGrid {
  /** @param {number} nx @param {number} ny @param {number} seeds per cell @param {boolean} isLog: the spread is a ratio */
  constructor(nx, ny, seeds, isLog) {
    this.nx = nx;
    this.ny = ny;
    this.seeds = seeds;
    this.isLog = isLog;
    /** By net. */
    this.values = new Float64Array(nx * ny * seeds);
    this.netStates = new Uint8Array(nx * ny * seeds);
    /** By cell. */
    this.states = new Uint8Array(nx * ny);
    this.median = new Float64Array(nx * ny);
    this.spread = new Float64Array(nx * ny);
    /** How many nets and cells are known or failed. */
    this.nets = 0;
    this.cells = 0;
    /** Why, by net. @type {Map<number, string>} */
    this.reasons = new Map();
  }

  /** @param {readonly number[]} nets @param {readonly JsonNumber[]} values of them; null: could not be computed */
  take(nets, values) {
    nets.forEach((net, at) => {
      const value = values[at] ?? null;
      this.#set(net, value === null ? FAILED : KNOWN, value === null ? NaN : Number(value));
    });
    for (const cell of new Set(nets.map((net) => Math.floor(net / this.seeds)))) this.#summarize(cell);
  }

  /** @param {readonly number[]} nets @param {string} message */
  fail(nets, message) {
    for (const net of nets) this.reasons.set(net, message);
    this.take(nets, []);
  }

  /** @param {number} net @param {number} state @param {number} value */
  #set(net, state, value) {
    if (this.netStates[net] === UNKNOWN) this.nets += 1;
    this.netStates[net] = state;
    this.values[net] = value;
  }

  /** @param {number} cell */
  #summarize(cell) {
    const sorted = this.valuesOf(cell).filter((value) => typeof value === "number").sort(ascending);
    const [low = NaN, high = NaN] = [sorted[0], sorted.at(-1)];
    if (this.states[cell] === UNKNOWN) this.cells += 1;
    this.states[cell] = sorted.length > 0 ? KNOWN : FAILED;
    this.median[cell] = sorted[(sorted.length - 1) >> 1] ?? NaN;
    this.spread[cell] = this.isLog ? (low === high ? 1 : low > 0 ? high / low : Infinity) : high - low;
    if (!Number.isFinite(high) || !Number.isFinite(low)) this.spread[cell] = Number.isNaN(high) ? NaN : Infinity;
  }

  /** @param {number} cell @returns {(number | null | undefined)[]} by seed; null: failed, undefined: not known yet */
  valuesOf(cell) {
    return Array.from({ length: this.seeds }, (_, seed) => {
      const net = cell * this.seeds + seed;
      return [undefined, this.values[net], null][this.netStates[net] ?? UNKNOWN];
    });
  }

  /** @param {number} cell @returns {number} the index of the seed that has the (lower) median; 0 where none is known */
  medianSeed(cell) {
    const at = this.valuesOf(cell).findIndex((value) => Object.is(value, this.median[cell]));
    return Math.max(0, at);
  }
}

/** @param {number} one @param {number} other @returns {number} NaN comes last */
export function ascending(one, other) {
  if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
  return one < other ? -1 : Number(one > other);
}

/** Per cell the index of the nearest known one: two passes over the eight neighbours (P.-E. Danielsson, Euclidean
 * distance mapping, 1980). @param {MapGrid} grid
 * @returns {Int32Array | null} −1 where nothing is known; null: every cell is known */
export function nearestKnown({ nx, ny, states, cells }) {
  if (cells === nx * ny) return null;
  const [right, up] = [new Int32Array(nx * ny), new Int32Array(nx * ny)];
  const far = nx + ny;
  for (let cell = 0; cell < nx * ny; cell += 1) if (states[cell] === UNKNOWN) right[cell] = up[cell] = far;
  /** @param {number} cell @param {number} other @param {number} dx @param {number} dy from the cell to the other */
  const look = (cell, other, dx, dy) => {
    if (right[other] === far) return;
    const toRight = right[other] + dx;
    const toUp = up[other] + dy;
    if (right[cell] !== far && toRight * toRight + toUp * toUp >= right[cell] * right[cell] + up[cell] * up[cell])
      return;
    right[cell] = toRight;
    up[cell] = toUp;
  };
  for (const step of [1, -1]) {
    for (let row = 0; row < ny; row += 1) {
      const y = step > 0 ? row : ny - 1 - row;
      for (let column = 0; column < nx; column += 1) {
        const x = step > 0 ? column : nx - 1 - column;
        const cell = y * nx + x;
        if (states[cell] !== UNKNOWN) continue;
        if (column > 0) look(cell, cell - step, -step, 0);
        if (row === 0) continue;
        const before = cell - step * nx;
        look(cell, before, 0, -step);
        if (x > 0) look(cell, before - 1, -1, -step);
        if (x + 1 < nx) look(cell, before + 1, 1, -step);
      }
      for (let column = nx - 2; column >= 0; column -= 1) {
        const cell = y * nx + (step > 0 ? column : nx - 1 - column);
        if (states[cell] === UNKNOWN) look(cell, cell + step, step, 0);
      }
    }
  }
  return right.map((dx, cell) => dx === far ? -1 : cell + dx + up[cell] * nx);
}
