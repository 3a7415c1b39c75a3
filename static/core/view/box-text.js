/** Where in a box its words and its histogram go. Measured in the page's own font. */

import { labelLines } from "../labels.js";
import { INSET, levelOf, STRIP_WIDTH, textWidth } from "./text-fit.js";

const HEADER = 17;
const LINE = 1.1;
/** Least height of the strips of a fold, px. */
const LEAST_PLOT = 10;
const NOTE_SIZE = 10;
/** Type that a name shrinks to before it is cut, px. */
const TIGHT_SIZES = [11, 10, 9, 8];
export const TIGHT_SIZE = 8;
const MOST_LINES = 3;
/** In the smallest box that says anything at all, px. */
const LEAST_NAMED = 14;

/**
 * @param {string} label
 * @param {number} w
 * @param {number} h
 * @param {boolean} isScalar
 * @returns {BoxText}
 */
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

/**
 * An op, or a closed group: its name in the middle, beneath it what there is room for.
 *
 * @param {string} label
 * @param {readonly string[]} notes the most important first
 * @param {number} w
 * @param {number} h
 * @param {boolean} hasPlot whether histograms are to stand beneath
 * @returns {BoxText}
 */
export function opText(label, notes, w, h, hasPlot) {
  const isStrip = w < STRIP_WIDTH;
  /** @type {BoxText} */
  const empty = { level: isStrip ? "strip" : "narrow", anchor: "middle", name: [], notes: [], value: null,
    isScalar: false, plot: null };
  if (isStrip) return { ...empty, plot: hasPlot ? { x: 0, y: 0, w, h } : null };
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
  const plotHeight = hasPlot && room >= LEAST_PLOT ? room - 2 : 0;
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

/**
 * A name where it does not fit as it is: in smaller type, in more lines, turned, and at last cut.
 *
 * @param {string} label
 * @param {number} w
 * @param {number} h
 * @returns {{lines: TextLine[], isTurned: boolean}} no lines in a box that is too small for any of it
 */
export function tightText(label, w, h) {
  if (label === "" || w < LEAST_NAMED || h < TIGHT_SIZE * LINE) return { lines: [], isTurned: false };
  const words = label.split(/(?<=[\s_·])|(?<=[a-z])(?=[A-Z])/);
  for (const size of TIGHT_SIZES) {
    const lines = wrapped(words, size, w - 2);
    if (lines.length > 0 && lines.length * size * LINE <= h)
      return { lines: stacked(lines, size, w, h), isTurned: false };
  }
  for (const size of TIGHT_SIZES) {
    if (size * LINE <= w && textWidth(label, `600 ${size}px`) + 4 <= h)
      return { lines: [turned(label, size, w, h)], isTurned: true };
  }
  const [across, up] = [cut(label, w - 2), cut(label, h - 4)];
  if (up.length > across.length) return { lines: [turned(up, TIGHT_SIZE, w, h)], isTurned: true };
  return { lines: across === "" ? [] : stacked([across], TIGHT_SIZE, w, h), isTurned: false };
}

/** @param {readonly string[]} words @param {number} size @param {number} room px @returns {string[]} as few lines as
 * hold them; none where a word or a fourth line does not fit */
function wrapped(words, size, room) {
  const fits = (/** @type {string} */ text) => textWidth(text.trim(), `600 ${size}px`) <= room;
  /** @type {string[]} */
  const lines = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && fits(last + word)) lines[lines.length - 1] = last + word;
    else if (lines.length < MOST_LINES && fits(word)) lines.push(word);
    else return [];
  }
  return lines.map((line) => line.trim());
}

/** @param {readonly string[]} lines @param {number} size @param {number} w @param {number} h @returns {TextLine[]} in
 * the middle of a box */
function stacked(lines, size, w, h) {
  const top = (h - lines.length * size * LINE) / 2;
  return lines.map((text, order) => ({ text, x: w / 2, y: top + (order + 1) * size * LINE - size * 0.22, size }));
}

/** @param {string} text @param {number} size @param {number} w @param {number} h @returns {TextLine} upward, in the
 * middle of a box */
function turned(text, size, w, h) {
  return { text, x: w / 2 + size * 0.34, y: h / 2, size };
}

/** @param {string} label @param {number} room px @returns {string} what there is room for in the smallest type, a
 * letter at least */
export function cut(label, room) {
  const font = `600 ${TIGHT_SIZE}px`;
  for (let letters = label.length - 1; letters >= 1; letters -= 1) {
    const text = `${label.slice(0, letters).trimEnd()}…`;
    if (textWidth(text, font) <= room) return text;
  }
  const letter = label.slice(0, 1);
  return textWidth(letter, font) <= room ? letter : "";
}

/**
 * The label of an open group, as large on the screen as it may be without leaving its frame.
 *
 * @param {readonly string[]} labels the first is the one to be had, as far as it fits; the others say less
 * @param {number} w of the frame
 * @param {number} scale px of the screen per px of the drawing
 * @param {number} before room that is taken at its left, px of the drawing
 * @returns {{text: string, size: number} | null} null: there is no room for any of it
 */
export function frameText(labels, w, scale, before) {
  const size = 11 / Math.min(1, scale);
  const room = (w - before) * (11 / size);
  const whole = labels.find((candidate) => textWidth(candidate, "600 11px") <= room);
  if (whole !== undefined) return { text: whole, size };
  const label = labels[0] ?? "";
  for (let letters = label.length - 1; letters >= 3; letters -= 1) {
    const text = `${label.slice(0, letters)}…`;
    if (textWidth(text, "600 11px") <= room) return { text, size };
  }
  return null;
}
