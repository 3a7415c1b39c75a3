/** Positions in lists, by a number that stands at each. */

/**
 * @param {Int32Array} keys
 * @param {number} count of different keys
 * @param {number} [used] so many of the keys
 * @returns {[Int32Array, Int32Array]} where each key's list starts, with one entry more than there are keys, and all
 *   lists one after the other
 */
export function byKey(keys, count, used = keys.length) {
  const starts = new Int32Array(count + 1);
  for (let at = 0; at < used; at += 1) starts[keys[at] + 1] = starts[keys[at] + 1] + 1;
  for (let key = 0; key < count; key += 1) starts[key + 1] = starts[key + 1] + starts[key];
  const next = starts.slice();
  const all = new Int32Array(used);
  for (let at = 0; at < used; at += 1) {
    const key = keys[at];
    all[next[key]] = at;
    next[key] = next[key] + 1;
  }
  return [starts, all];
}
