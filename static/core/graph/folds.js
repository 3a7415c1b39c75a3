/** Repeated blocks, folded: the first repetition stands for all, the others are put away together. No DOM. */

const LONGEST_PERIOD = 8;
/** How often a run of leaves has to repeat to be folded, and a run that holds groups of groups. */
const FEWEST = { leaves: 4, blocks: 2 };

/**
 * @param {GroupNode} group
 * @param {readonly number[]} shapes of its items; equal numbers, equal structure
 * @returns {(number | GroupNode)[]} its items, every periodic run of them replaced by one fold
 */
export function foldSiblings({ items, module }, shapes) {
  const matches = matchLengths(shapes);
  /** @type {(number | GroupNode)[]} */
  const folded = [];
  for (let at = 0; at < items.length;) {
    const { period, repeats } = longestRun(items, matches, at);
    if (repeats === 0) {
      folded.push(items[at]);
      at += 1;
      continue;
    }
    const end = at + period * repeats;
    /** @type {GroupNode} */
    const rest = { kind: "rest", module, items: items.slice(at + period, end), repeats: repeats - 1 };
    folded.push({ kind: "fold", module, items: [...items.slice(at, at + period), rest], repeats });
    at = end;
  }
  return folded;
}

/** @param {readonly number[]} shapes @returns {Int32Array[]} [period][at]: how many items from there on equal the one a
 * period later */
function matchLengths(shapes) {
  const lengths = [];
  for (let period = 0; period <= LONGEST_PERIOD; period += 1) {
    const run = new Int32Array(shapes.length + 1);
    for (let at = shapes.length - 1 - period; at >= 0 && period > 0; at -= 1) {
      run[at] = shapes[at] === shapes[at + period] ? run[at + 1] + 1 : 0;
    }
    lengths.push(run);
  }
  return lengths;
}

/**
 * @param {readonly (number | GroupNode)[]} items
 * @param {readonly Int32Array[]} matches
 * @param {number} at
 * @returns {{period: number, repeats: number}} of the run that covers most; of equal ones that with the shortest period
 */
function longestRun(items, matches, at) {
  let best = { period: 0, repeats: 0 };
  for (let period = 1; period <= LONGEST_PERIOD; period += 1) {
    const repeats = Math.floor(matches[period][at] / period) + 1;
    if (repeats < FEWEST.blocks || repeats * period <= best.repeats * best.period) continue;
    const holdsGroups = items.slice(at, at + period).some((item) => typeof item !== "number" && holdsGroup(item));
    if (repeats >= (holdsGroups ? FEWEST.blocks : FEWEST.leaves)) best = { period, repeats };
  }
  return best;
}

/** @param {GroupNode} group @returns {boolean} */
function holdsGroup({ items }) {
  const isModule = (/** @type {number | GroupNode} */ item) => typeof item !== "number" && item.kind === "module";
  return items.some((item) => isModule(item) || (typeof item !== "number" && item.items.some(isModule)));
}
