/** The init scale in units of the weights' standard deviation: the values worth hitting, and hitting them. No DOM. */

/**
 * @typedef {object} Tick
 * @property {string} label
 * @property {string} formula of the weights' std
 * @property {number} std
 * @property {number} scale with which the weights have it, four significant digits
 * @property {"start" | "middle" | "end"} anchor which end of the label stands at the tick
 * @property {number} rank which labels to keep where not all fit: small ones first
 */

/** @type {readonly (Pick<Tick, "label" | "formula" | "anchor" | "rank"> & {std: (n: number) => number})[]} */
const WORTH_HITTING = [
  { label: ".01", formula: "0.01", std: () => 0.01, anchor: "end", rank: 3 },
  // Only 0.15 decades apart: their labels hang to either side.
  { label: "1/√n", formula: "1/√n", std: (n) => 1 / Math.sqrt(n), anchor: "end", rank: 1 },
  { label: "√2/√n", formula: "√(2/n)", std: (n) => Math.sqrt(2 / n), anchor: "start", rank: 0 },
  { label: "1", formula: "1", std: () => 1, anchor: "middle", rank: 2 },
];

/** Share of the way to a neighbouring tick that snaps: something is left to be chosen between two that stand close. */
const SHARED = 1 / 3;

/**
 * @param {number} unit std of the weights at scale 1
 * @param {number} n inputs of the layer
 * @param {number} minimum
 * @param {number} maximum
 * @returns {Tick[]} those within reach, by rising scale; none where the weights have no scale
 */
export function snapTicks(unit, n, minimum, maximum) {
  if (!(unit > 0) || !Number.isFinite(unit)) return [];
  return WORTH_HITTING.map(({ std, ...tick }) => ({ ...tick, std: std(n),
    scale: Number((std(n) / unit).toPrecision(4)) })
  ).filter(({ scale }) => scale >= minimum && scale <= maximum).sort((a, b) => a.scale - b.scale);
}

/**
 * Which of some rising places the pointer's place snaps to: one no more than `reach` away, and less than a third of the
 * way from it to its neighbour on that side.
 *
 * @param {number} at
 * @param {readonly number[]} places
 * @param {number} reach
 * @returns {number | null} its index
 */
export function snap(at, places, reach) {
  let nearest = null;
  let least = Infinity;
  places.forEach((place, index) => {
    const away = Math.abs(at - place);
    const neighbour = places[at < place ? index - 1 : index + 1] ?? Infinity;
    if (away > reach || away >= least || away > SHARED * Math.abs(neighbour - place)) return;
    nearest = index;
    least = away;
  });
  return nearest;
}

/**
 * @param {readonly Pick<Tick, "scale">[]} ticks by rising scale
 * @param {number} scale
 * @param {1 | -1} direction
 * @returns {number | null} the scale of the next tick that way
 */
export function nextTick(ticks, scale, direction) {
  // Half a unit of the fourth digit: a tick that one stands on is not the next.
  const ahead = ticks.filter((tick) => direction * (tick.scale / scale - 1) > 5e-4);
  return (direction > 0 ? ahead[0] : ahead.at(-1))?.scale ?? null;
}

/**
 * Which labels of a row can be written: in the order of their rank, each where it overlaps none before it and lies
 * inside.
 *
 * @param {readonly {left: number, width: number, rank: number}[]} labels
 * @param {number} length of the row
 * @param {number} gap
 * @returns {boolean[]}
 */
export function fitLabels(labels, length, gap) {
  const fits = labels.map(() => false);
  /** @type {{left: number, width: number}[]} */
  const placed = [];
  const order = labels.map((_, index) => index).sort((a, b) => labels[a].rank - labels[b].rank);
  for (const index of order) {
    const label = labels[index];
    if (label === undefined || label.left < 0 || label.left + label.width > length) continue;
    if (placed.some(({ left, width }) => label.left < left + width + gap && left < label.left + label.width + gap))
      continue;
    placed.push(label);
    fits[index] = true;
  }
  return fits;
}
