/** Sizes in px. depth: along the columns; height: away from the axis between the halves. */

export const BOX_KINDS = /** @type {const} */ (["op", "tensor", "group", "frame"]);
export const ROUTE_KINDS = /** @type {const} */ (["data", "satellite", "saved", "fold", "reuse"]);

export const OP = 0;
export const TENSOR = 1;
export const GROUP = 2;
export const FRAME = 3;

export const DATA = 0;
export const SATELLITE = 1;
export const SAVED = 2;
export const FOLD = 3;
export const REUSE = 4;

export const SIZES = {
  horizontal: {
    tensor: [104, 76], // depth, height
    op: [72, 34],
    satellite: [88, 50],
    scalar: [84, 44],
    block: [120, 76], // a closed group that holds groups
    series: [680, 250], // a closed fold of SERIES repetitions or more, with a histogram of each
    gap: 22, // between columns
    rowGap: 12, // between boxes of one column
    stackGap: 8, // between the backward ops of one forward op
    fold: 40, // from the axis to the nearest box
    stackOutward: true, // satellites stand one beyond the other; else side by side along the depth
    least: 2.5, // of a tensor's depth
    leastLoss: 34,
    leastOp: 1.5, // of an op's without a name
    leastPlot: 16, // of a tensor's where groups keep their names
    leastShades: 8, // of a tensor's beside a fold where groups keep their names
    letter: 5.5, // of the smallest name
    leastLetters: [5, 8], // of the names of a container and of a layer or fold
    leastGap: 0.5, // between columns
    heights: [0.62, 1.5], // least and greatest factor on heights
    ends: [44, 16], // room before the first and after the last column
    frame: { start: 18, end: 18, inner: 12, outer: 30 }, // from a frame to what it holds; its label is in the widest
  },
  vertical: {
    tensor: [58, 92],
    op: [34, 54],
    satellite: [40, 74],
    scalar: [44, 80],
    block: [76, 110],
    series: [200, 150],
    gap: 18,
    rowGap: 10,
    stackGap: 8,
    fold: 16,
    stackOutward: false,
    least: 38,
    leastLoss: 38,
    leastOp: 26,
    leastPlot: 0,
    leastShades: 0,
    letter: 0,
    leastLetters: [0, 0],
    leastGap: 10,
    heights: [0.8, 1.5],
    ends: [12, 12],
    frame: { start: 34, end: 18, inner: 10, outer: 10 },
  },
};

/** A closed fold with fewer repetitions than this is smaller, down to the size of a block. */
const SERIES = 50;

/** A narrower op is a line, to leave the room to tensors. */
export const HAIRLINE_BELOW = 6;
export const MARGIN = 16;
/** Half the room around a passing line. */
export const LINE_ROOM = 4;
/** Most boxes of a drawing whose columns shrink to fit. */
export const MAX_ELASTIC = 2000;

const LETTER = 7;
const LINE = 14;
const LABEL_MARGIN = 14;
const TENSOR_LETTER = 6.6;
/** Includes room for the number beside a tensor's name. */
const TENSOR_MARGIN = 24;
const WIDEST_TENSOR = 200;
const MAX_STRETCH = 1.25;
const MAX_GAP = 56;
/** How much wider a gap gets where lines cross it steeply. */
const STEEPNESS = 0.12;
const WIDEST_GAP = 64;

/** @param {LayoutSizes} sizes @param {number[]} least @param {number} letters of its label
 * @returns {number[]} of an op or a closed group */
export function labelled({ stackOutward }, [depth, height], letters) {
  const width = LETTER * letters + LABEL_MARGIN;
  return stackOutward ? [Math.max(depth, width), height] : [depth, Math.max(height, width)];
}

/** @param {LayoutSizes} sizes @param {number} repeats 0: the group is no fold @param {number} lines beneath its name that
 * say what is different @returns {number[]} least size of a closed group that holds groups or repetitions */
export function blockSize({ block, series, stackOutward }, repeats, lines) {
  const share = Math.min(1, repeats / SERIES);
  const [depth, height] = [Math.max(block[0], share * series[0]), Math.max(block[1], Math.sqrt(share) * series[1])];
  return stackOutward ? [depth, height + LINE * lines] : [depth + LINE * lines, height];
}

/** @param {LayoutSizes} sizes @param {number[]} least @param {number} letters of its name
 * @returns {number[]} of a tensor */
export function named({ stackOutward }, [depth, height], letters) {
  const width = Math.min(WIDEST_TENSOR, TENSOR_LETTER * letters + TENSOR_MARGIN);
  return stackOutward ? [Math.max(depth, width), height] : [depth, Math.max(height, width)];
}

/** @param {number} gap @param {number} rise the steepest climb of a line across it @returns {number} */
export function widened(gap, rise) {
  return Math.min(Math.max(gap, WIDEST_GAP), gap + STEEPNESS * rise);
}

/** Column depths and gaps that fill a length: one factor for all, by bisection, within legible limits.
 * @param {readonly {natural: number, least: number}[]} columns @param {LayoutSizes} sizes @param {number} length */
export function spread(columns, { gap, ends, leastGap }, length) {
  const gaps = Math.max(0, columns.length - 1);
  const room = length - ends[0] - ends[1];
  /** @param {number} factor */
  const total = (factor) =>
    columns.reduce((sum, column) => sum + Math.max(column.least, column.natural * factor), 0)
    + gaps * Math.max(leastGap, gap * factor);
  let [low, high] = [0, MAX_STRETCH];
  for (let step = 0; step < 40; step += 1) {
    const middle = (low + high) / 2;
    if (total(middle) > room) high = middle;
    else low = middle;
  }
  const stretch = low;
  const spare = Math.max(0, room - total(stretch));
  const between = Math.max(leastGap,
    Math.min(gap * stretch + (gaps > 0 ? spare / gaps : 0), Math.max(MAX_GAP, gap * stretch)));
  const sizes = Float64Array.from(columns, (column) => Math.max(column.least, column.natural * stretch));
  const used = sizes.reduce((sum, size) => sum + size, 0) + gaps * between;
  let start = ends[0] + Math.max(0, room - used) / 2;
  const starts = sizes.map((size) => {
    const here = start;
    start += size + between;
    return here;
  });
  return { starts, sizes, stretch, length: ends[0] + Math.max(room, used) + ends[1] };
}
