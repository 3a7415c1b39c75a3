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

/** How much text a box holds: name and figure side by side, smaller, one above the other, or nothing.
 * @param {string} label @param {number} width @returns {"wide" | "small" | "narrow" | "strip"} */
function levelOf(label, width) {
  if (width < STRIP_WIDTH) return "strip";
  for (const [level, size] of /** @type {const} */ ([["wide", 11], ["small", 10]])) {
    if (textWidth(label, `600 ${size}px`) + textWidth(WIDEST_FIGURE, `${size}px`) + 2 * INSET + 2 <= width)
      return level;
  }
  return "narrow";
}

const measuring = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
/** @type {Map<string, number>} */
const widths = new Map();

/** @param {string} text @param {string} font weight and size; the family is the page's @returns {number} px */
export function textWidth(text, font) {
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
const HEADER = 17;
const LINE = 1.1;
/** Least height of the strips of a fold, px. */
const MIN_PLOT = 10;
const NOTE_SIZE = 10;
/** Type that a name shrinks to before it is cut, px. */
const TIGHT_SIZES = [11, 10, 9];
export const TIGHT_SIZE = 9;
const MAX_LINES = 3;
/** A narrower box has no name, px. */
const MIN_NAMED = 14;

/** @param {string} label @param {number} w @param {number} h @param {boolean} isScalar @returns {BoxText} */
export function tensorText(label, w, h, isScalar) {
  const level = levelOf(label, w);
  const size = level === "wide" ? 11 : 10;
  const fits = level !== "strip" && textWidth(label, `600 ${size}px`) + 2 <= w && size < h;
  const isCentred = level === "narrow" || isScalar;
  /** @type {TextLine} */
  const line = { text: label, x: isCentred ? w / 2 : INSET, y: isScalar ? h / 2 - 5 : 13, size };
  const inset = level === "narrow" ? 3 : INSET;
  const bottom = level === "narrow" ? 15 : 4;
  const isBeside = level !== "narrow" && !isScalar;
  return {
    level,
    anchor: isCentred ? "middle" : "start",
    name: fits ? [line] : [],
    notes: [],
    value: level === "strip" ? null : {
      x: isCentred ? w / 2 : w - INSET,
      y: isScalar ? h / 2 + 13 : level === "narrow" ? h - 5 : 13,
      anchor: isCentred ? "middle" : "end",
      room: w - (isBeside ? textWidth(label, "600 11px") + 2 * INSET : 0),
    },
    isScalar,
    plot: level === "strip" ? { x: 0, y: 0, w, h }
      : isScalar ? null : { x: inset, y: HEADER, w: w - 2 * inset, h: Math.max(4, h - HEADER - bottom) },
  };
}

/** The name of an op or a closed group in the middle, and the notes that fit beneath it. @param {string} label
 * @param {readonly string[]} notes the most important first @param {number} w @param {number} h
 * @param {boolean} hasPlot whether histograms stand beneath @returns {BoxText} */
export function opText(label, notes, w, h, hasPlot) {
  const isStrip = w < STRIP_WIDTH;
  /** @type {BoxText} */
  const empty = { level: isStrip ? "strip" : "narrow", anchor: "middle", name: [], notes: [], value: null,
    isScalar: false, plot: null };
  if (isStrip) return { ...empty, plot: hasPlot ? { x: 0, y: 0, w, h } : null };
  // In one line where there is room, to leave the height to the histograms.
  const joined = notes.join(" · ");
  const [nameWidth, noteWidth] = [textWidth(label, "600 12px"), textWidth(joined, `${NOTE_SIZE}px`)];
  const total = nameWidth + 2 * INSET + noteWidth;
  if (hasPlot && total + 2 * INSET <= w && h >= HEADER + MIN_PLOT) {
    const line = (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ size) => ({ text, x, y: 15,
      size });
    return {
      ...empty,
      name: [line(label, (w - total + nameWidth) / 2, 12)],
      notes: joined === "" ? [] : [line(joined, (w + total - noteWidth) / 2, NOTE_SIZE)],
      plot: { x: INSET, y: HEADER + 4, w: w - 2 * INSET, h: h - HEADER - 8 },
    };
  }
  const lines = labelLines(label);
  const size = lines.length > 1 ? 11 : 12;
  const fits = lines.every((line) => textWidth(line, `600 ${size}px`) + 2 <= w) && lines.length * size < h;
  if (!fits) return { ...empty, plot: hasPlot ? { x: 2, y: 2, w: w - 4, h: h - 4 } : null };
  const nameHeight = lines.length * size * LINE;
  let room = h - nameHeight - 6;
  const kept = [];
  for (const note of notes) {
    if (room < NOTE_SIZE * LINE || textWidth(note, `${NOTE_SIZE}px`) + 4 > w) break;
    kept.push(note);
    room -= NOTE_SIZE * LINE;
  }
  const textHeight = nameHeight + kept.length * NOTE_SIZE * LINE;
  const plotHeight = hasPlot && room >= MIN_PLOT ? room - 2 : 0;
  let y = plotHeight > 0 ? 4 : (h - textHeight) / 2;
  /** @param {string} text @param {number} size @returns {TextLine} */
  const put = (text, size) => {
    y += size * LINE;
    return { text, x: w / 2, y: y - size * 0.22, size };
  };
  return {
    ...empty,
    name: lines.map((line) => put(line, size)),
    notes: kept.map((note) => put(note, NOTE_SIZE)),
    plot: plotHeight > 0 ? { x: INSET, y: h - plotHeight - 4, w: w - 2 * INSET, h: plotHeight } : null,
  };
}

/** A name that does not fit in its normal size: smaller, in more lines, turned, or at last cut. @param {string} label
 * @param {number} w @param {number} h @param {number} [least] size; the name is not cut where that is more than usual
 * @returns {{lines: TextLine[], isTurned: boolean}} no lines where it does not fit */
export function tightText(label, w, h, least = TIGHT_SIZE) {
  if (label === "" || w < MIN_NAMED || h < least * LINE) return { lines: [], isTurned: false };
  const sizes = least > TIGHT_SIZE ? [least] : TIGHT_SIZES;
  const words = label.split(/(?<=[\s_·])|(?<=[a-z])(?=[A-Z])/);
  for (const size of sizes) {
    const lines = wrapped(words, size, w - 2);
    if (lines.length > 0 && lines.length * size * LINE <= h)
      return { lines: stacked(lines, size, w, h), isTurned: false };
  }
  for (const size of sizes) {
    if (size * LINE <= w && textWidth(label, `600 ${size}px`) + 4 <= h)
      return { lines: [turned(label, size, w, h)], isTurned: true };
  }
  if (least > TIGHT_SIZE) return { lines: [], isTurned: false };
  const [across, up] = [cut(label, w - 2), cut(label, h - 4)];
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
  return lines.map((line) => line.trim());
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
  for (let letters = label.length - 1; letters >= 1; letters -= 1) {
    const text = `${label.slice(0, letters).trimEnd()}…`;
    if (textWidth(text, font) <= room) return text;
  }
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
