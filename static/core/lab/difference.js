/** How far two pictures are apart, tensor by tensor. No DOM. */

/**
 * @param {Picture} picture B
 * @param {ComparisonReference} reference A
 * @returns {Float64Array} by tensor of B, see `relativeDifference`; NaN where there is no partner, or no statistics
 */
export function differences(picture, { picture: other, match }) {
  return Float64Array.from(picture.topology.tensors, ({ id }, tensor) => {
    const [row, there] = [picture.rows.get(id),
      other.rows.get(other.topology.tensors[match.tensors[tensor]]?.id ?? "")];
    if (row === undefined || there === undefined || picture.hidden?.rows.has(row) === true) return NaN;
    return relativeDifference(other, there, picture, row);
  });
}

/**
 * The largest of three relative differences: of std as a share of the greater one, of the least and of the greatest
 * value as shares of the greatest magnitude in both.
 *
 * @param {Picture} a
 * @param {number} rowA
 * @param {Picture} b
 * @param {number} rowB
 * @returns {number} 0: alike, up to 2; Infinity where one has more NaN or Inf than the other
 */
export function relativeDifference(a, rowA, b, rowB) {
  if (badShare(a, rowA) !== badShare(b, rowB)) return Infinity;
  const of = (/** @type {"std" | "min" | "max"} */ name) => [a.floats[name][rowA] ?? NaN, b.floats[name][rowB] ?? NaN];
  const [[stdA, stdB], [minA, minB], [maxA, maxB]] = [of("std"), of("min"), of("max")];
  // Nothing finite in either of them.
  if (Number.isNaN(minA) || Number.isNaN(minB)) return Number.isNaN(minA) && Number.isNaN(minB) ? 0 : Infinity;
  const reach = Math.max(Math.abs(minA), Math.abs(maxA), Math.abs(minB), Math.abs(maxB));
  return Math.max(share(stdA - stdB, Math.max(stdA, stdB)), share(minA - minB, reach), share(maxA - maxB, reach));
}

/** @param {Picture} picture @param {number} row @returns {number} of values that are not finite */
function badShare({ integers }, row) {
  return (integers.nan[row] + integers.posinf[row] + integers.neginf[row]) / (integers.n[row] || 1);
}

/** @param {number} difference @param {number} of @returns {number} */
function share(difference, of) {
  return difference === 0 ? 0 : Math.abs(difference) / of;
}
