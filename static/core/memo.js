/** Keeps a value per object, computed once, for as long as the object lives. */

/** @template {object} K @template V @param {(key: K) => V} compute @returns {(key: K) => V} */
export function memo(compute) {
  /** @type {WeakMap<K, V>} */
  const kept = new WeakMap();
  return (key) => {
    let value = kept.get(key);
    if (value === undefined) kept.set(key, value = compute(key));
    return value;
  };
}
