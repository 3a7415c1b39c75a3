/** Circles in what should have none. Iterative: graphs may be as deep as they are large. */

/**
 * A circle among things of which each follows others.
 *
 * @param {number} count
 * @param {(thing: number) => Iterable<number>} before what a thing follows; numbers below 0 stand for nothing
 * @returns {number[]} the things of one circle, each followed by the next and the last by the first; empty without one
 */
export function findCircle(count, before) {
  /** How many of the things that it follows are not sorted yet. */
  const waitsFor = new Int32Array(count);
  const start = new Int32Array(count + 1);
  for (let thing = 0; thing < count; thing += 1) {
    for (const earlier of before(thing)) if (earlier >= 0) start[earlier + 1] = start[earlier + 1] + 1;
  }
  for (let thing = 0; thing < count; thing += 1) start[thing + 1] = start[thing + 1] + start[thing];
  const after = new Int32Array(start[count]);
  const filled = start.slice();
  for (let thing = 0; thing < count; thing += 1) {
    for (const earlier of before(thing)) {
      if (earlier < 0) continue;
      const slot = filled[earlier];
      after[slot] = thing;
      filled[earlier] = slot + 1;
      waitsFor[thing] = waitsFor[thing] + 1;
    }
  }
  /** @type {number[]} */
  const ready = [];
  for (let thing = 0; thing < count; thing += 1) if (waitsFor[thing] === 0) ready.push(thing);
  let sorted = 0;
  while (ready.length > 0) {
    const thing = ready.pop() ?? 0;
    sorted += 1;
    for (let slot = start[thing]; slot < start[thing + 1]; slot += 1) {
      const next = after[slot];
      waitsFor[next] = waitsFor[next] - 1;
      if (waitsFor[next] === 0) ready.push(next);
    }
  }
  if (sorted === count) return [];
  // Everything that still waits follows something that still waits: going back long enough comes round.
  const stuck = (/** @type {number} */ thing) => waitsFor[thing] > 0;
  let thing = waitsFor.findIndex((waiting) => waiting > 0);
  /** @type {Map<number, number>} */
  const visited = new Map();
  /** @type {number[]} */
  const path = [];
  while (!visited.has(thing)) {
    visited.set(thing, path.length);
    path.push(thing);
    for (const earlier of before(thing)) {
      if (earlier < 0 || !stuck(earlier)) continue;
      thing = earlier;
      break;
    }
  }
  const circle = path.slice(visited.get(thing)).reverse();
  // From its first member on, so that one circle has one name.
  const first = circle.indexOf(circle.reduce((least, member) => Math.min(least, member)));
  return [...circle.slice(first), ...circle.slice(0, first)];
}
