/** The look of boxes and lines and the words in boxes, decided once for the page's SVG and for the exported one. No
 * DOM. */

import { hue } from "../colours.js";
import { duration, quantity } from "../format.js";
import { GROUP_KINDS } from "../graph/graph.js";
import { isComputed } from "../graph/steps.js";
import { figure } from "../labels.js";
import { FRAME, GROUP, OP, REUSE, SATELLITE, SAVED, TENSOR } from "../layout/sizes.js";
import { cut, INSET, numberGrid, opText, shortened, STRIP_WIDTH, tensorText, textWidth, TIGHT_SIZE,
  tightText } from "./box-text.js";
import { valuesAt } from "../picture.js";
import { activationsIn, attributeOf, layersOf } from "./facts.js";

/** The page wraps, turns and at last cuts a name, and calls a group by its attribute; the file cuts a name in one line.
 * @typedef {"page" | "file"} Medium */

/** A Sight, or a picture to be exported, whose figures may be missing. @typedef {{graph: Graph, drawing: Drawing,
 * facts: GraphFacts, picture: Picture | null}} BoxScene */

/** By kind: an op, a tensor, a closed group, a frame; px. */
const RADIUS = [8, 4, 8, 6];
const NAME_FONT = "600 12px";
const NOTE_FONT = "10px";
/** Size of a name that the file cuts, and the least height of its box, px. */
const CUT_SIZE = 10;
const MIN_CUT_HEIGHT = 12;
const SCALAR_SIZES = [14, 11];
/** Between a frame and numbers, px. */
const FRAME_ROOM = 2;
/** A narrower closed group has no room for a badge on its border, px. */
export const MIN_BADGED = 44;
/** Types of containers; the name of the attribute describes them better. */
const CONTAINERS = new Set(["Sequential", "ModuleList", "ModuleDict"]);
/** A darker ground has white words on it: luminance, 0 to 1. */
const DARK = 0.36;
export const HUES = /** @type {const} */ (["forward", "backward", "parameter", "neutral"]);
/** A shorter line has no arrowhead, px. */
const MIN_ARROW = 9;

/** All but the figures, which change with every picture. @param {BoxScene} scene @param {number} box
 * @param {Medium} medium @param {number} [least] size of words, px of the drawing; smaller ones are left out */
export function boxLook(scene, box, medium, least = 0) {
  const { drawing, graph } = scene;
  const [kind, index, half] = [drawing.kind[box], drawing.ref[box], phaseOf(drawing, box)];
  const { x, y, w, h } = rectangle(drawing, box);
  const tensor = kind === TENSOR ? graph.topology.tensors[index] : null;
  return {
    kind, // position in BOX_KINDS
    index, // of the op, tensor or group
    half,
    hue: tensor === null ? half : hue(half, tensor.role),
    rect: { x, y, w, h },
    radius: Math.min(RADIUS[kind], w / 3),
    tensor, // null: no tensor's box
    least,
    // null: a frame, whose header depends on the scale
    text: kind === FRAME ? null
      : kind === TENSOR ? tensorWords(scene, index, w, h, medium, least)
      : opWords(scene, kind, index, half, w, h, medium, least),
  };
}

/** @param {Drawing} drawing @param {number} box @returns {Phase} */
export function phaseOf({ half }, box) {
  return half[box] === 1 ? "backward" : "forward";
}

/** @param {Drawing} drawing @param {number} box @returns {Rectangle} */
export function rectangle({ rect }, box) {
  return { x: rect[4 * box], y: rect[4 * box + 1], w: rect[4 * box + 2], h: rect[4 * box + 3] };
}

/** @param {BoxScene} scene @param {number} index @param {number} w @param {number} h @param {Medium} medium
 * @param {number} least @returns {BoxText} */
function tensorWords({ graph, picture }, index, w, h, medium, least) {
  const label = graph.tensorLabel[index];
  // Without a figure beside it and a histogram beneath it, the name is all there is.
  const text = picture === null ? opText([label], [], w, h, false, least)
    : tensorText(label, w, h, graph.arrays.elements[index] === 1, least);
  if (text.name.length > 0 || text.level === "strip") return text;
  if (medium === "file") return withCutName(text, label, w, h, picture === null ? h / 2 + 3.5 : 13);
  const part = text.level === "narrow" && text.anchor === "middle" && !text.isScalar && least <= TIGHT_SIZE
    ? cut(label, w - 2) : "";
  return part === "" ? text : { ...text, name: [{ text: part, x: w / 2, y: 12, size: TIGHT_SIZE }] };
}

/** @param {BoxScene} scene @param {number} kind OP or GROUP @param {number} index @param {Phase} half @param {number} w
 * @param {number} h @param {Medium} medium @param {number} least @returns {BoxText} */
function opWords(scene, kind, index, half, w, h, medium, least) {
  const { graph, picture } = scene;
  const hasPlot = kind === GROUP && graph.arrays.groupRepeats[index] > 0 && picture !== null;
  const { labels, notes } = kind === OP
    ? { labels: [graph.opLabel[index], ...activationOf(graph.opLabel[index])], notes: [] }
    : groupWords(scene, index, half, w, medium);
  const text = opText(labels, notes, w, h, hasPlot, least);
  if (text.name.length > 0) return text;
  if (medium === "file") return text.level === "strip" ? text : withCutName(text, labels[0] ?? "", w, h, h / 2 + 3.5);
  // Strips of shades stand beneath the words.
  const high = hasPlot ? h / 2 : h;
  const { lines, isTurned } = tightText(labels, w, high, least);
  if (lines.length === 0) return text;
  return { ...text, name: lines, isTurned,
    plot: text.plot === null ? null : { ...text.plot, y: high, h: h - high - text.plot.y } };
}

/** @param {BoxScene} scene @param {number} index @param {Phase} half @param {number} w @param {Medium} medium
 * @returns {{labels: string[], notes: string[]}} each: the most important first */
function groupWords({ graph, facts, picture }, index, half, w, medium) {
  const { groupIsLeaf, groupRepeats, groupKind } = graph.arrays;
  const repeats = groupRepeats[index];
  const type = graph.groupLabel[index];
  const attribute = medium === "file" ? "" : attributeOf(graph, index);
  const layers = layersOf(graph, index);
  let label = type;
  /** @type {string[]} */
  const labels = [];
  const notes = layers === "" ? [] : [layers];
  if (medium === "file" && repeats > 0) notes.unshift(`× ${repeats}`);
  else if (GROUP_KINDS[groupKind[index]] === "fold") label += ` × ${repeats}`;
  if (attribute !== "") {
    const full = `${attribute} · ${type}`;
    const isContainer = CONTAINERS.has(type);
    const other = isContainer ? type : attribute;
    const joined = [...notes, other].join(" · ");
    if (isContainer) label = attribute;
    if (textWidth(full, NAME_FONT) + 2 * INSET <= w) labels.push(full);
    else {
      if (textWidth(joined, NOTE_FONT) + 4 <= w) notes.splice(0, 1, joined);
      else notes.push(other);
    }
  }
  labels.push(label, ...activationOf(type));
  notes.unshift(...graph.differences[index].map((text) => shortened(text, NOTE_FONT, w - 2 * INSET)));
  const activations = activationsIn(graph, index).filter((name) => !label.toLowerCase().includes(name));
  if (activations.length > 0) notes.push(activations.join(", "));
  if (groupIsLeaf[index] === 1 && repeats === 0) return { labels, notes };
  const parameters = facts.parameters(index);
  if (parameters > 0) notes.push(`${quantity(parameters, "").trim()} params`);
  const time = picture === null ? null : facts.time(index, half);
  if (time !== null) notes.push(duration(time));
  return { labels, notes };
}

/** @param {string} label "clamp_min · relu" @returns {string[]} the activation in it; none of other labels */
function activationOf(label) {
  return label.split(" · ").slice(1);
}

/** @param {BoxText} text @param {string} label @param {number} w @param {number} h @param {number} y of the line
 * @returns {BoxText} */
function withCutName(text, label, w, h, y) {
  const part = h < MIN_CUT_HEIGHT ? "" : shortened(label, `600 ${CUT_SIZE}px`, w - 4);
  return part === "" ? text : { ...text, anchor: "middle", name: [{ text: part, x: w / 2, y, size: CUT_SIZE }] };
}

/** The figure in a tensor's box: its long form, its short form, or "" where neither fits. @param {Picture} picture
 * @param {Statistic} statistic @param {BoxLook} look
 * @returns {{words: string, size: number, isWarning: boolean, isAlone: boolean} | null} isAlone: the name is left out;
 * null: the box has no place for a figure */
export function figureLook(picture, statistic, { tensor, text, rect }) {
  if (tensor === null || text === null || text.value === null) return null;
  const { text: long, short, isWarning } = figure(picture, tensor, statistic);
  const { size, room, alone = room } = text.value;
  if (text.isScalar) {
    const sizes = [...SCALAR_SIZES.filter((candidate) => candidate > size), size];
    const found = sizes.find((candidate) => textWidth(long, `600 ${candidate}px`) + 4 <= rect.w);
    return { words: found === undefined ? "" : long, size: found ?? size, isWarning, isAlone: false };
  }
  const fitting = (/** @type {number} */ most) =>
    [long, short].find((candidate) => textWidth(candidate, `${size}px`) + 2 <= most);
  const words = fitting(room);
  return { words: words ?? fitting(alone) ?? "", size, isWarning, isAlone: words === undefined && alone > room };
}

/** The values of a small tensor, in place of its histogram. @param {Picture} picture @param {BoxLook} look
 * @returns {TextLine[]} none where it has no values, or they do not fit; x: of the right end */
export function numbersLook(picture, { tensor, text, least }) {
  const values = tensor === null ? null : valuesAt(picture, picture.rows.get(tensor.id));
  if (tensor === null || values === null || text === null || text.plot === null || text.level === "strip") return [];
  const { plot } = text;
  return numberGrid(values, tensor.shape, { ...plot, x: FRAME_ROOM, w: plot.w + 2 * (plot.x - FRAME_ROOM) }, least);
}

/** The fault of the tensors in a closed group. @param {BoxScene} scene @param {number} box
 * @returns {Ailment | null} */
export function ailmentLook({ drawing, facts, picture }, box) {
  if (picture === null || drawing.kind[box] !== GROUP) return null;
  return facts.ailment(picture, drawing.ref[box], phaseOf(drawing, box));
}

/** A strip for each repetition of a fold, or for as many as fit. @param {Picture} picture @param {GraphFacts} facts
 * @param {number} group @param {Phase} half @param {Rectangle} at @param {number | null} [until] the step that the steps
 * view shows @returns {{row: number, at: Rectangle, isPositive: boolean}[]} row: of the statistics; isPositive: none of
 * the repetitions has a negative value */
export function repetitionStrips(picture, facts, group, half, at, until = null) {
  const tensors = facts.repetitions(group, half);
  const isPositive = !tensors.some((tensor) => tensor >= 0 && picture.floats.min[facts.rows[tensor]] < 0);
  const shown = Math.min(tensors.length, Math.max(1, Math.floor(at.w / 2)));
  const step = at.w / shown;
  const strips = [];
  for (let strip = 0; strip < shown; strip += 1) {
    // The last repetition to run backward is the leftmost, like its tensors.
    const tensor = tensors[Math.floor((strip * tensors.length) / shown)];
    const row = tensor < 0 ? -1 : facts.rows[tensor];
    if (row >= 0 && isComputed(facts.graph, tensor, until))
      strips.push({ row, at: { x: at.x + strip * step, y: at.y, w: step - (step >= 5 ? 1 : 0), h: at.h }, isPositive });
  }
  return strips;
}

/** @param {string} colour #rrggbb or rgb(…) @returns {boolean} whether words on it are white: luminance as in WCAG */
export function isDark(colour) {
  const parts = colour.startsWith("#") ? [1, 3, 5].map((start) => Number.parseInt(colour.slice(start, start + 2), 16))
    : (colour.match(/[\d.]+/g) ?? []).map(Number);
  const [r, g, b] = parts.map((part) =>
    part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < DARK;
}

/** @param {{drawing: Drawing, graph: Graph}} scene @param {number} route @param {(value: number) => string | number} written of
 * a coordinate @returns {{isAside: boolean, hue: typeof HUES[number], isCramped: boolean, hasArrow: boolean, path:
 * string}} isAside: saved or read again; isCramped: ends at a strip, to which no arrow can point */
export function edgeLook({ drawing, graph }, route, written) {
  const { routeKind, routeHalf, routeTensor, source, target, rect, kind, points, pointStart } = drawing;
  const [from, to] = [source[route], target[route]];
  const isAside = routeKind[route] === SAVED || routeKind[route] === REUSE;
  const isLeaf = routeKind[route] === SATELLITE && kind[from] === TENSOR;
  const isCramped = Math.min(rect[4 * from + 2], rect[4 * to + 2]) < STRIP_WIDTH;
  // Positions count points, of two numbers each.
  const [begin, end] = [2 * pointStart[route], 2 * pointStart[route + 1]];
  const at = (/** @type {number} */ position) => written(points[position]);
  let path = `M${at(begin)} ${at(begin + 1)}`;
  for (let next = begin + 2; next + 5 < end; next += 6)
    path += `C${at(next)} ${at(next + 1)} ${at(next + 2)} ${at(next + 3)} ${at(next + 4)} ${at(next + 5)}`;
  const reach = Math.hypot(points[end - 2] - points[begin], points[end - 1] - points[begin + 1]);
  return {
    isAside,
    hue: isAside ? "neutral"
      : hue(routeHalf[route] === 1 ? "backward" : "forward",
        isLeaf ? graph.topology.tensors[routeTensor[route]].role : ""),
    isCramped,
    hasArrow: !isAside && !isCramped && reach >= MIN_ARROW,
    path,
  };
}
