/** @template T @param {T} initial @returns {Signal<T>} */
export function signal(initial) {
  let current = initial;
  /** @type {Set<(value: T) => void>} */
  const listeners = new Set();
  return {
    get value() {
      return current;
    },
    set value(next) {
      if (Object.is(next, current)) return;
      current = next;
      for (const listener of [...listeners]) listener(next);
    },
    subscribe(listener) {
      listeners.add(listener);
      listener(current);
      return () => listeners.delete(listener);
    },
  };
}
