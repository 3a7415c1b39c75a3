/** Places words and a histogram in a box, measured in the page's font. */

import { numerals } from "../format.js";
import { labelLines } from "../labels.js";

// Estimated widths of text, for a server or a worker, which have no font to measure.

/** Widths in Helvetica and Arial from the space to the tilde, in thousandths of the size. */
const WIDTHS = [
  ...[278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278],
  ...[556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556],
  ...[1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778],
  ...[667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556],
  ...[333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556],
  ...[556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584],
];
const OTHER = 600;
/** The first code point of scripts with square letters, such as Chinese. */
const FIRST_SQUARE = 0x2e80;
const BOLD = 1.08;
/** Fonts differ, so the estimate is a little too wide rather than too narrow. */
const MARGIN = 1.04;

/** @param {string} text @param {number} size px @param {boolean} isBold @returns {number} px */
function estimatedWidth(text, size, isBold) {
  let sum = 0;
  for (const letter of text) {
    const code = letter.codePointAt(0) ?? 0;
    sum += code >= FIRST_SQUARE ? 1000 : (WIDTHS[code - 32] ?? OTHER);
  }
  return (sum / 1000) * size * (isBold ? BOLD : 1) * MARGIN;
}

// Fitting a label into a box, measured in the page's font, or estimated without a page.

/** Room between a box's frame and its text, px. */
export const INSET = 6;
/** A narrower box is a strip of shades without text, px. */
export const STRIP_WIDTH = 16;

/** Room for any figure beside a name. */
const WIDEST_FIGURE = "0.00000";
const SHORT_FIGURE = "0.000";

const measuring = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
/** @type {Map<string, number>} */
const widths = new Map();

/** No box is wide enough for a longer text. */
const MAX_MEASURED = 1000;

/** @param {string} text @param {string} font weight and size; the family is the page's @returns {number} px; of a
 * text longer than `MAX_MEASURED`: Infinity */
export function textWidth(text, font) {
  if (text.length > MAX_MEASURED) return Infinity;
  const key = `${font} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (measuring === null)
      return estimatedWidth(text, Number.parseFloat(/[\d.]+(?=px)/.exec(font)?.[0] ?? "11"), font.startsWith("6"));
    measuring.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
    width = measuring.measureText(text).width;
    if (widths.size > 5000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

const FRAME_FONT = "600 11px";
/** Size of an op's name, and of a tensor's name and figure, px. */
const NAME_SIZE = 12;
const FIGURE_SIZE = 11;
/** From the words above a histogram to the histogram, px. */
const HEADROOM = 6;
const LINE = 1.1;
/** Least height of the strips of a fold, px. */
const MIN_PLOT = 10;
/** Notes leave at least this share of a box's height to its histograms. */
const PLOT_SHARE = 0.4;
const NOTE_SIZE = 10;
/** @type {BoxText} */
const NO_TEXT = { level: "narrow", anchor: "middle", name: [], notes: [], value: null, isScalar: false, plot: null };
/** Type that a name shrinks to before it is cut, px. */
const TIGHT_SIZES = [11, 10, 9];
export const TIGHT_SIZE = 9;
const MAX_LINES = 3;
/** A narrower box has no name, px. */
const MIN_NAMED = 14;
/** The minimum number of letters of a large name that is cut. */
const MIN_LETTERS = 3;

/** A tensor's name and figure: side by side, one above the other, or with a shortened name.
 * @param {string} label @param {number} w @param {number} h @param {boolean} isScalar @param {number} [least] size of
 * words, px of the drawing @returns {BoxText} */
export function tensorText(label, w, h, isScalar, least = 0) {
  if (w < STRIP_WIDTH) return { ...NO_TEXT, level: "strip", anchor: "start", isScalar, plot: { x: 0, y: 0, w, h } };
  const figureWidth = (/** @type {number} */ size) => textWidth(WIDEST_FIGURE, `${size}px`);
  /** @param {string} text @param {number} size */
  const nameWidth = (text, size) => textWidth(text, `600 ${size}px`);
  const [wide, small] = [Math.max(FIGURE_SIZE, least), Math.max(FIGURE_SIZE - 1, least)];
  const beside = [wide, small].find((size) => nameWidth(label, size) + figureWidth(size) + 2 * INSET + 2 <= w);
  const level = beside === wide ? "wide" : beside === small ? "small" : "narrow";
  const size = beside ?? small;
  const fits = nameWidth(label, size) + 2 <= w && size < h;
  if (isScalar) {
    // The figure needs its own line.
    const isNamed = fits && 2 * size * LINE <= h;
    const name = { text: label, x: w / 2, y: Math.max(h / 2 - 5, size), size };
    const y = isNamed ? Math.min(h / 2 + Math.max(13, size), h - 4) : h / 2 + 5;
    return { ...NO_TEXT, level, isScalar, name: isNamed ? [name] : [],
      value: { x: w / 2, y, anchor: "middle", size, room: w } };
  }
  const header = size + HEADROOM;
  /** @param {TextLine[]} name @param {number} taken of the line */
  const aside = (name, taken) => /** @type {BoxText} */ ({ ...NO_TEXT, level, name, anchor: "start",
    value: { x: w - INSET, y: size + 2, anchor: "end", size, room: w - taken },
    plot: { x: INSET, y: header, w: w - 2 * INSET, h: Math.max(4, h - header - 4) } });
  if (beside !== undefined)
    return aside([{ text: label, x: INSET, y: size + 2, size }], nameWidth(label, size) + 2 * INSET);
  const bottom = size + 5;
  if (h - header - bottom >= Math.max(MIN_PLOT, h / 4) && (fits || size < FIGURE_SIZE)) {
    return { ...NO_TEXT, level, name: fits ? [{ text: label, x: w / 2, y: size + 3, size }] : [],
      value: { x: w / 2, y: h - 5, anchor: "middle", size, room: w },
      plot: { x: 3, y: header, w: w - 6, h: h - header - bottom } };
  }
  // A name gives way to the figure and the histogram: beside a short figure it is shortened, beside a long one left out.
  const part = shortened(label, `600 ${size}px`, w - textWidth(SHORT_FIGURE, `${size}px`) - 2 * INSET - 2);
  const text = aside(part === "" ? [] : [{ text: part, x: INSET, y: size + 2, size }],
    nameWidth(part, size) + 2 * INSET);
  return { ...text, value: text.value === null ? null : { ...text.value, alone: w - 2 } };
}

/** The name of an op or a closed group, and the notes that there is room for: beneath it in the middle, or in one line
 * with it, above histograms. @param {readonly string[]} labels the best first; later ones are shorter
 * @param {readonly string[]} notes the most important first @param {number} w @param {number} h
 * @param {boolean} hasPlot whether histograms stand beneath @param {number} [least] size of words, px of the drawing
 * @returns {BoxText} */
export function opText(labels, notes, w, h, hasPlot, least = 0) {
  if (w < STRIP_WIDTH) return { ...NO_TEXT, level: "strip", plot: hasPlot ? { x: 0, y: 0, w, h } : null };
  const size = Math.max(NAME_SIZE, least);
  const noteSize = Math.max(NOTE_SIZE, least);
  const noteWidth = (/** @type {string} */ note) => textWidth(note, `${noteSize}px`);
  const nameWidth = (/** @type {string} */ label) => textWidth(label, `600 ${size}px`);
  const inline = labels.find((label) => nameWidth(label) + 2 * INSET <= w);
  const header = size + HEADROOM + 2;
  const rows = notes.map((_, at) => notes.slice(0, at + 1).join(" · ")).reverse();
  const row = inline === undefined ? undefined
    : [...rows, ""].find((each) => nameWidth(inline) + noteWidth(each) + 4 * INSET <= w);
  // The most important note has a line of its own where it needs one.
  const isInline = row !== "" || notes.length === 0;
  if (hasPlot && inline !== undefined && row !== undefined && isInline && h >= header + MIN_PLOT) {
    const total = nameWidth(inline) + (row === "" ? 0 : 2 * INSET + noteWidth(row));
    const y = size + 3;
    return { ...NO_TEXT, name: [{ text: inline, x: (w - total + nameWidth(inline)) / 2, y, size }],
      notes: row === "" ? [] : [{ text: row, x: (w + total - noteWidth(row)) / 2, y, size: noteSize }],
      plot: { x: INSET, y: header, w: w - 2 * INSET, h: h - header - 4 } };
  }
  for (const label of labels) {
    const lines = label === inline ? [label] : labelLines(label);
    const high = lines.length > 1 ? Math.max(NAME_SIZE - 1, least) : size;
    if (lines.every((line) => textWidth(line, `600 ${high}px`) + 2 <= w) && lines.length * high < h)
      return stackedText(lines, high, notes, noteSize, w, h, hasPlot);
  }
  return { ...NO_TEXT, plot: hasPlot ? { x: 2, y: 2, w: w - 4, h: h - 4 } : null };
}

/** @param {readonly string[]} lines @param {number} size @param {readonly string[]} notes @param {number} noteSize
 * @param {number} w @param {number} h @param {boolean} hasPlot @returns {BoxText} */
function stackedText(lines, size, notes, noteSize, w, h, hasPlot) {
  const nameHeight = lines.length * size * LINE;
  let room = h - nameHeight - 6;
  const kept = [];
  for (const note of notes) {
    const left = room - noteSize * LINE;
    if (left < (hasPlot ? PLOT_SHARE * h : 0) || textWidth(note, `${noteSize}px`) + 4 > w) break;
    kept.push(note);
    room = left;
  }
  const textHeight = nameHeight + kept.length * noteSize * LINE;
  const plotHeight = hasPlot && room >= MIN_PLOT ? room - 2 : 0;
  let y = plotHeight > 0 ? 4 : (h - textHeight) / 2;
  /** @param {string} text @param {number} high @returns {TextLine} */
  const put = (text, high) => {
    y += high * LINE;
    return { text, x: w / 2, y: y - high * 0.22, size: high };
  };
  return {
    ...NO_TEXT,
    name: lines.map((line) => put(line, size)),
    notes: kept.map((note) => put(note, noteSize)),
    plot: plotHeight > 0 ? { x: INSET, y: h - plotHeight - 4, w: w - 2 * INSET, h: plotHeight } : null,
  };
}

/** A name that does not fit in its normal size: smaller, in more lines, turned, or at last cut.
 * @param {readonly string[]} labels the best first; later ones are shorter @param {number} w @param {number} h
 * @param {number} [least] size
 * @returns {{lines: TextLine[], isTurned: boolean}} no lines where it does not fit */
export function tightText(labels, w, h, least = TIGHT_SIZE) {
  const last = labels.at(-1) ?? "";
  if (last === "" || w < MIN_NAMED || h < least * LINE) return { lines: [], isTurned: false };
  const sizes = least > TIGHT_SIZE ? [least] : TIGHT_SIZES;
  for (const label of labels) {
    const words = label.split(/(?<=[\s_·])|(?<=[a-z])(?=[A-Z])/);
    for (const size of sizes) {
      const lines = wrapped(words, size, w - 2);
      if (lines.length > 0 && lines.length * size * LINE <= h)
        return { lines: stacked(lines, size, w, h), isTurned: false };
    }
  }
  for (const size of sizes) {
    const label = labels.find((each) => textWidth(each, `600 ${size}px`) + 4 <= h);
    if (size * LINE <= w && label !== undefined) return { lines: [turned(label, size, w, h)], isTurned: true };
  }
  if (least > TIGHT_SIZE) {
    const part = shortened(last, `600 ${least}px`, w - 4, MIN_LETTERS);
    return { lines: part === "" ? [] : stacked([part], least, w, h), isTurned: false };
  }
  const [across, up] = [cut(last, w - 2), cut(last, h - 4)];
  if (up.length > across.length) return { lines: [turned(up, TIGHT_SIZE, w, h)], isTurned: true };
  return { lines: across === "" ? [] : stacked([across], TIGHT_SIZE, w, h), isTurned: false };
}

/** @param {readonly string[]} words @param {number} size @param {number} room px @returns {string[]} the fewest lines
 * that hold them; none if a word is too wide or a fourth line is needed */
function wrapped(words, size, room) {
  const fits = (/** @type {string} */ text) => textWidth(text.trim(), `600 ${size}px`) <= room;
  /** @type {string[]} */
  const lines = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && fits(last + word)) lines[lines.length - 1] = last + word;
    else if (lines.length < MAX_LINES && fits(word)) lines.push(word);
    else return [];
  }
  return lines.map((line) => line.replace(/[\s·]+$/, ""));
}

/** @param {readonly string[]} lines @param {number} size @param {number} w @param {number} h @returns {TextLine[]} */
function stacked(lines, size, w, h) {
  const top = (h - lines.length * size * LINE) / 2;
  return lines.map((text, order) => ({ text, x: w / 2, y: top + (order + 1) * size * LINE - size * 0.22, size }));
}

/** @param {string} text @param {number} size @param {number} w @param {number} h @returns {TextLine} running upward */
function turned(text, size, w, h) {
  return { text, x: w / 2 + size * 0.34, y: h / 2, size };
}

/** @param {string} label @param {number} room px @returns {string} the start of the label that fits in the smallest
 * type; "" where one letter does not */
export function cut(label, room) {
  const font = `600 ${TIGHT_SIZE}px`;
  const text = shortened(label, font, room, 1).replace(/\s+…$/, "…");
  if (text !== "") return text;
  const letter = label.slice(0, 1);
  return textWidth(letter, font) <= room ? letter : "";
}

/** As much of a text as fits, with … where some is missing. @param {string} text @param {string} font weight and size
 * @param {number} room px @param {number} [least] letters before the … @returns {string} "" where those do not fit */
export function shortened(text, font, room, least = 2) {
  if (textWidth(text, font) <= room) return text;
  const letters = [...text];
  let [low, high] = [0, letters.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (textWidth(`${letters.slice(0, middle).join("")}…`, font) <= room) low = middle;
    else high = middle - 1;
  }
  return low < least ? "" : `${letters.slice(0, low).join("")}…`;
}

// The values of a small tensor.

const MOST_DIGITS = 3;
/** Between numbers, px. */
const NUMBER_GAP = 4;
/** Greatest distance of lines, in units of the size. */
const NUMBER_LINE = 1.5;
/** Larger numbers do not stand in a box, px. */
const MAX_NUMBER = 13;

/** The values of a tensor in rows and columns, with as many digits as fit; a vector may run over several lines.
 * @param {readonly number[]} values @param {readonly number[]} shape @param {Rectangle} plot @param {number} least size
 * @returns {TextLine[]} x: of the right end; none where not even one digit of each fits */
export function numberGrid(values, shape, plot, least) {
  const sizes = least <= TIGHT_SIZES[0] ? TIGHT_SIZES.filter((size) => size >= least) : [least];
  if (least > MAX_NUMBER) return [];
  const isVector = Math.max(1, ...shape) === values.length;
  const lengths = values.map((_, line) => Math.ceil(values.length / (line + 1)));
  const isFull = (/** @type {number} */ length) => values.length % length === 0;
  // Lines of equal length are read more easily.
  const grids = isVector ? [...lengths.filter(isFull), ...lengths] : [shape.at(-1) ?? 1];
  for (let digits = MOST_DIGITS; digits > 0; digits -= 1) {
    const texts = numerals(values, digits);
    // Common numbers have room in any case, so that the grid stays while they change.
    const common = texts.some((text) => text.includes(".")) ? [`−0.${"0".repeat(digits)}`] : [];
    const widest = Math.max(...[...common, ...texts].map(relativeWidth));
    for (const size of sizes) {
      const columns = grids.find((each) =>
        widest * size + NUMBER_GAP <= plot.w / each && size <= plot.h / Math.ceil(values.length / each)
      );
      if (columns === undefined) continue;
      const rows = Math.ceil(values.length / columns);
      const cell = plot.w / columns;
      const pitch = Math.min(plot.h / rows, size * NUMBER_LINE);
      const first = plot.y + (plot.h - pitch * (rows - 1)) / 2 + size * 0.35;
      return texts.map((text, at) => ({ text, size, x: plot.x + (at % columns) * cell + (cell + widest * size) / 2,
        y: first + Math.floor(at / columns) * pitch })
      );
    }
  }
  return [];
}

/** @param {string} text a number @returns {number} its width, in units of the size; digits are equally wide */
function relativeWidth(text) {
  return textWidth(text.replaceAll(/\d/g, "0"), "10px") / 10;
}

/** The header of an open group, as large as its frame allows. @param {readonly string[]} labels the best first; later
 * ones are shorter @param {number} w of the frame @param {number} scale px of the screen per px of the drawing
 * @param {number} before room taken at its left, px of the drawing @returns {{text: string, size: number} | null} null:
 * not even the start of a label fits */
export function frameText(labels, w, scale, before) {
  const size = 11 / Math.min(1, scale);
  const room = (w - before) * (11 / size);
  const whole = labels.find((candidate) => textWidth(candidate, FRAME_FONT) <= room);
  if (whole !== undefined) return { text: whole, size };
  const text = shortened(labels[0] ?? "", FRAME_FONT, room, 3);
  return text === "" ? null : { text, size };
}
