/** As much arithmetic of arrays as it takes to work out an op and its gradient on a small example. No DOM. */

/** @param {readonly number[]} shape @returns {number} */
export function sizeOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/** @param {readonly number[]} shape @param {(at: number) => number} value of the element at a position in memory */
export function filled(shape, value) {
  return { shape, values: Float64Array.from({ length: sizeOf(shape) }, (_, at) => value(at)) };
}

/** @param {NDArray} array @param {(value: number, at: number) => number} f @returns {NDArray} */
export function mapped({ shape, values }, f) {
  return { shape, values: values.map(f) };
}

/** @param {NDArray} array @param {readonly number[]} shape of as many elements @returns {NDArray} */
export function reshaped({ values }, shape) {
  return { shape, values };
}

/** @param {number} at @param {readonly number[]} shape @returns {number[]} */
export function indexAt(at, shape) {
  const index = new Array(shape.length).fill(0);
  let rest = at;
  for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
    const size = shape[axis] ?? 1;
    index[axis] = rest % size;
    rest = Math.floor(rest / size);
  }
  return index;
}

/** @param {readonly number[]} index @param {readonly number[]} shape @returns {number} position in memory; axes of size
 * 1, and those in front, count for nothing */
export function placeOf(index, shape) {
  let at = 0;
  const skipped = index.length - shape.length;
  for (let axis = 0; axis < shape.length; axis += 1) {
    const size = shape[axis] ?? 1;
    at = at * size + (size === 1 ? 0 : (index[axis + skipped] ?? 0));
  }
  return at;
}

/** @param {readonly number[]} a @param {readonly number[]} b @returns {number[]} of both, stretched to each other */
function broadcastShape(a, b) {
  const length = Math.max(a.length, b.length);
  return Array.from({ length },
    (_, axis) => Math.max(a[axis - length + a.length] ?? 1, b[axis - length + b.length] ?? 1));
}

/** @param {NDArray} a @param {NDArray} b @param {(a: number, b: number) => number} f @returns {NDArray} element by
 * element, broadcast */
export function zipped(a, b, f) {
  const shape = broadcastShape(a.shape, b.shape);
  return filled(shape, (at) => {
    const index = indexAt(at, shape);
    return f(a.values[placeOf(index, a.shape)], b.values[placeOf(index, b.shape)]);
  });
}

/** @param {NDArray} array @param {readonly number[]} shape that it was broadcast from @returns {NDArray} summed over
 * what was repeated */
export function summedTo(array, shape) {
  const sums = filled(shape, () => 0);
  array.values.forEach((value, at) => {
    const place = placeOf(indexAt(at, array.shape), shape);
    sums.values[place] = sums.values[place] + value;
  });
  return sums;
}

/** @param {NDArray} array @param {number} [first] @param {number} [second] axes to swap @returns {NDArray} */
export function transposed({ shape, values }, first = -2, second = -1) {
  const order = shape.map((_, axis) => axis);
  const [i, j] = [first, second].map((axis) => axis < 0 ? axis + shape.length : axis);
  if (i === undefined || j === undefined) return { shape, values };
  [order[i], order[j]] = [j, i];
  const swapped = order.map((axis) => shape[axis] ?? 1);
  return filled(swapped, (at) => {
    const index = indexAt(at, swapped);
    const source = new Array(shape.length).fill(0);
    order.forEach((axis, place) => (source[axis] = index[place] ?? 0));
    return values[placeOf(source, shape)];
  });
}

/** @param {NDArray} a (…, m, k) @param {NDArray} b (…, k, n) @returns {NDArray} (…, m, n), axes in front broadcast */
export function product(a, b) {
  const [m, k, n] = [a.shape.at(-2) ?? 1, a.shape.at(-1) ?? 1, b.shape.at(-1) ?? 1];
  const front = broadcastShape(a.shape.slice(0, -2), b.shape.slice(0, -2));
  const shape = [...front, m, n];
  return filled(shape, (at) => {
    const index = indexAt(at, shape);
    const [batch, row, column] = [index.slice(0, -2), index.at(-2) ?? 0, index.at(-1) ?? 0];
    let sum = 0;
    for (let inner = 0; inner < k; inner += 1)
      sum += a.values[placeOf([...batch, row, inner], a.shape)] * b.values[placeOf([...batch, inner, column], b.shape)];
    return sum;
  });
}

/** Rows along the last axis, each handed to a function that answers with a row. @param {NDArray} array
 * @param {(row: Float64Array, order: number) => ArrayLike<number>} f @returns {NDArray} of the same shape */
export function byRow(array, f) {
  const width = array.shape.at(-1) ?? 1;
  const values = new Float64Array(array.values.length);
  for (let at = 0; at < values.length; at += width)
    values.set(f(array.values.subarray(at, at + width), at / width), at);
  return { shape: array.shape, values };
}

/** @param {ArrayLike<number>} values @returns {number} */
export function sum(values) {
  let total = 0;
  for (let at = 0; at < values.length; at += 1) total += values[at] ?? 0;
  return total;
}
