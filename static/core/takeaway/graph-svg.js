/** A drawing as a self-contained SVG document. Needs no page, and gives the same text for the same input. */

import { ailmentLook, boxLook, edgeLook, figureLook, HUES, isDark, MIN_BADGED, numbersLook, phaseOf,
  repetitionStrips } from "../view/look.js";
import { shortened } from "../view/box-text.js";
import { DrawingIndex } from "../view/navigation.js";
import { shape, significant } from "../format.js";
import { find } from "../graph/graph.js";
import { GraphFacts } from "../view/facts.js";
import { FRAME, GROUP, OP, REUSE, TENSOR } from "../layout/sizes.js";
import { barsSvg, captionSvg, escaped, LEGEND_HEIGHT, legendSvg, num, SCHEMES, stripSvg, tag } from "./svg-parts.js";

/** @typedef {object} Shown
 * @property {Graph} graph @property {Drawing} drawing
 * @property {Picture | null} [picture] null: only the structure, without figures, histograms and durations
 * @property {Theory | null} [theory] of the picture @property {Statistic} [statistic] the figure in a tensor's box @property {Paintwork | null} [paintwork]
 * @property {string} [selection] id of the selected item @property {"light" | "dark"} [scheme]
 * @property {Region | null} [viewBox] the part of the drawing that is shown; null: all
 * @property {string} [caption] below the picture */

/** @typedef {Required<Shown> & {colours: ColourScheme, facts: GraphFacts, index: DrawingIndex, selected: number,
 * isVertical: boolean}} Scene */

const FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, "Fitted Sans", sans-serif';
/** As in tokens.css: wide fonts are set smaller, so that labels stay in their boxes. */
const FITTED = [
  '@font-face{font-family:"Fitted Sans";src:local("DejaVu Sans");size-adjust:88%}',
  '@font-face{font-family:"Fitted Sans";font-weight:700;src:local("DejaVu Sans Bold");size-adjust:84%}',
].join("");
const MARGIN = 6;
/** Start of a frame's header, from the outer corner, px. */
const HEAD = { x: 8, y: 18 };

/** @param {Shown} shown @returns {string} an SVG document */
export function graphSvg(shown) {
  const { graph, drawing } = shown;
  const index = new DrawingIndex(graph.arrays, drawing);
  const item = shown.selection ? find(graph, shown.selection) : null;
  /** @type {Scene} */
  const scene = {
    picture: null,
    theory: null,
    statistic: "std",
    paintwork: null,
    selection: "",
    scheme: "light",
    viewBox: null,
    caption: "",
    ...shown,
    colours: SCHEMES[shown.scheme ?? "light"],
    facts: new GraphFacts(graph),
    index,
    selected: item === null ? -1 : index.boxOf(item),
    isVertical: isVertical(drawing),
  };
  if (scene.picture !== null) scene.facts.judge(scene.picture, scene.theory);
  const { colours } = scene;
  const type = graph.topology.modules[0]?.type ?? "";
  const view = scene.viewBox ?? { x: 0, y: 0, width: drawing.width, height: drawing.height };
  const legend = scene.paintwork?.legend ?? null;
  const below = view.y + view.height + (legend === null ? 0 : LEGEND_HEIGHT);
  const caption = captionSvg(scene.caption, colours, { x: view.x + MARGIN, y: below }, view.width - 2 * MARGIN);
  const height = below - view.y + caption.height;
  const frames = [];
  const boxes = [];
  for (let box = 0; box < drawing.boxes; box += 1) {
    if (!meets(drawing.rect, box, view)) continue;
    if (drawing.kind[box] === FRAME) frames.push(frameSvg(scene, box));
    else boxes.push(boxSvg(scene, box));
  }
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: [view.x, view.y, view.width, height].map(num).join(" "),
    width: num(view.width),
    height: num(height),
    role: "img",
    "aria-labelledby": "title description",
    "font-family": FONT,
    "font-size": "11",
  };
  const parts = [
    tag("title", { id: "title" }, escaped(`Computation graph${type && ` of ${type}`}`)),
    tag("desc", { id: "description" }, escaped(describe(scene))),
    tag("style", {}, FITTED),
    definitions(colours),
    tag("rect", { x: view.x, y: view.y, width: view.width, height, fill: colours.paper }),
    tag("g", { id: "frames" }, lines(frames)),
    tag("g", { id: "edges", fill: "none" }, lines(edgesSvg(scene, view))),
    tag("g", { id: "boxes", fill: colours.ink }, lines(boxes)),
  ];
  if (legend !== null) parts.push(legendSvg(legend, colours, { x: view.x + MARGIN, y: view.y + view.height }));
  parts.push(...caption.parts);
  return `${tag("svg", attributes, lines(parts))}\n`;
}

/** @param {readonly string[]} parts @returns {string} one per line, for readable diffs */
function lines(parts) {
  return parts.length === 0 ? "" : `\n${parts.join("\n")}\n`;
}

/** @param {Float32Array} rect @param {number} at @param {Region} view */
function meets(rect, at, view) {
  const [x, y, w, h] = [rect[4 * at], rect[4 * at + 1], rect[4 * at + 2], rect[4 * at + 3]];
  return x <= view.x + view.width && y <= view.y + view.height && x + w >= view.x && y + h >= view.y;
}

/** @param {Drawing} drawing @returns {boolean} whether depth runs downward */
function isVertical({ rect, twin, half, boxes }) {
  for (let box = 0; box < boxes; box += 1) {
    const other = twin[box];
    if (other < 0 || half[box] === half[other]) continue;
    const apart = (/** @type {number} */ side) => Math.abs(rect[4 * box + side] - rect[4 * other + side]);
    return apart(0) > apart(1);
  }
  return false;
}

// Words

/** @param {Scene} scene @returns {string} */
function describe({ graph, facts, drawing, picture }) {
  const { opsForward, opsBackward, tensors } = facts.extents;
  const loss = picture === null || picture.loss === null ? "" : ` Loss ${significant(picture.loss)}.`;
  return (`Forward pass on top with ${opsForward} ops, backward pass below with ${opsBackward}, ${tensors} tensors in `
    + `${graph.topology.modules.length} modules; ${drawing.boxes} boxes are drawn.${loss}`);
}

/** @param {Scene} scene @param {number} box @returns {string} for the tooltip */
function nameOf({ graph, drawing }, box) {
  const index = drawing.ref[box];
  const { topology } = graph;
  if (drawing.kind[box] === TENSOR) {
    const tensor = topology.tensors[index];
    return tensor === undefined ? "" : `${tensor.name}: ${tensor.role}, ${tensor.dtype} ${shape(tensor.shape)}`;
  }
  const half = phaseOf(drawing, box);
  if (drawing.kind[box] === OP) return `${graph.opLabel[index]}: ${half}`;
  const path = topology.modules[graph.groupModule[index]]?.path ?? "";
  const repeats = graph.arrays.groupRepeats[index];
  return `${graph.groupLabel[index]}${path === "" ? "" : ` ${path}`}${repeats > 0 ? ` × ${repeats}` : ""}: ${half}`;
}

// Boxes

/** @param {Scene} scene @param {number} box @returns {string} */
function frameSvg(scene, box) {
  const { rect: { x, y, w, h }, half, index, radius } = boxLook(scene, box, "file");
  const colour = scene.colours[half];
  const label = shortened(scene.graph.groupLabel[index], "600 11px", w - 2 * HEAD.x);
  const isSelected = box === scene.selected;
  const outline = { x, y, width: w, height: h, rx: radius, fill: colour, "fill-opacity": 0.05, stroke: colour };
  const frame = tag("rect", { ...outline, "stroke-opacity": isSelected ? 1 : 0.45,
    "stroke-width": isSelected ? 2.5 : 1 });
  // The layout leaves room at the outer side.
  const line = half === "backward" && !scene.isVertical ? y + h - HEAD.y + 8 : y + HEAD.y;
  const head = label === "" ? ""
    : tag("text", { x: x + HEAD.x, y: line, fill: colour, "font-weight": 600 }, escaped(label));
  return tag("g", { class: "frame" }, tag("title", {}, escaped(nameOf(scene, box))) + frame + head);
}

/** @param {Scene} scene @param {number} box @returns {string} */
function boxSvg(scene, box) {
  const { colours, paintwork, picture, facts } = scene;
  const look = boxLook(scene, box, "file");
  const { kind, index, half, rect: { x, y, w, h }, text } = look;
  if (text === null) return "";
  const isTensor = kind === TENSOR;
  const colour = colours[look.hue];
  const item = scene.index.itemOf(box);
  const painted = paintwork?.fill(item.kind, item.index, item.half) ?? null;
  const isStrip = text.level === "strip";
  const own = isTensor ? colours.raised : isStrip ? colour : colours[`${half}-soft`];
  const isSelected = box === scene.selected;
  const frame = tag("rect", {
    ...{ x, y, width: w, height: h, rx: look.radius, fill: painted ?? own },
    "fill-opacity": isStrip && !isTensor && painted === null ? 0.35 : null,
    stroke: isStrip && !isSelected ? null : colour,
    "stroke-width": isSelected ? 3 : isTensor ? 1.25 : 1.5,
  });
  const ink = painted === null ? null : isDark(painted) ? "#ffffff" : "#1c2126";
  const paint = { ink: colour, muted: colours["ink-muted"], warning: colours.warning };
  const { plot } = text;
  let inside = tag("title", {}, escaped(nameOf(scene, box))) + frame;
  if (plot !== null && picture !== null) {
    const at = { x: x + plot.x, y: y + plot.y, w: plot.w, h: plot.h };
    const row = isTensor ? facts.rows[index] : -1;
    if (!isTensor) {
      for (const strip of repetitionStrips(picture, facts, index, half, at))
        inside += stripSvg(picture, strip.row, strip.at, paint, strip.isPositive);
    }
    const numbers = numbersLook(picture, look);
    if (numbers.length > 0) inside += numbersSvg(look, numbers, ink);
    else if (row >= 0) inside += isStrip ? stripSvg(picture, row, at, paint) : barsSvg(picture, row, at, paint);
  }
  const isAlone = picture !== null && figureLook(picture, scene.statistic, look)?.isAlone === true;
  inside += (isAlone ? "" : linesSvg(scene, look, text, ink)) + figureSvg(scene, look, ink)
    + ailmentSvg(scene, box, look);
  return tag("g", { class: isTensor ? "tensor" : kind === GROUP ? "group" : "op" }, inside);
}

/** @param {Scene} scene @param {BoxLook} look @param {BoxText} text @param {string | null} ink */
function linesSvg({ colours }, { rect: { x, y } }, { name, notes, anchor }, ink) {
  const line = (/** @type {TextLine} */ each, /** @type {boolean} */ isName) =>
    tag("text", {
      ...{ x: x + each.x, y: y + each.y, "text-anchor": anchor === "middle" ? "middle" : null },
      ...{ "font-size": each.size === 11 ? null : each.size, "font-weight": isName ? 600 : null },
      fill: ink ?? (isName ? null : colours["ink-soft"]),
    }, escaped(each.text));
  return name.map((each) => line(each, true)).join("") + notes.map((each) => line(each, false)).join("");
}

/** @param {BoxLook} look @param {readonly TextLine[]} numbers @param {string | null} ink */
function numbersSvg({ rect }, numbers, ink) {
  const spans = numbers.map(({ text, x, y }) => tag("tspan", { x: rect.x + x, y: rect.y + y }, text));
  return tag("text", { "text-anchor": "end", "font-size": numbers[0].size, fill: ink }, spans.join(""));
}

/** @param {Scene} scene @param {BoxLook} look @param {string | null} ink @returns {string} */
function figureSvg({ picture, statistic, colours }, look, ink) {
  const found = picture === null ? null : figureLook(picture, statistic, look);
  const value = look.text?.value;
  if (found === null || found.words === "" || value == null) return "";
  const { words, size, isWarning } = found;
  const isScalar = look.text?.isScalar === true;
  const fill = ink ?? (isWarning ? colours.warning : isScalar ? null : colours["ink-soft"]);
  const place = { x: look.rect.x + value.x, y: look.rect.y + value.y, "text-anchor": value.anchor };
  return tag("text", { ...place, "font-size": size === 11 ? null : size,
    "font-weight": isWarning || isScalar ? 600 : null, fill }, escaped(words));
}

/** @param {Scene} scene @param {number} box @param {BoxLook} look @returns {string} */
function ailmentSvg(scene, box, { rect: { x, y, w, h } }) {
  const { colours } = scene;
  const ailment = w < MIN_BADGED ? null : ailmentLook(scene, box);
  if (ailment === null) return "";
  const ground = tag("rect", { x: x + w / 2 - 17, y: y + h - 7, width: 34, height: 14, rx: 7, fill: colours.warning });
  const word = { x: x + w / 2, y: y + h + 3.5, "text-anchor": "middle", "font-size": 10, "font-weight": 600,
    fill: colours.paper };
  return ground + tag("text", word, ailment.word);
}

// Edges

/** @param {Scene} scene @param {Region} view @returns {string[]} */
function edgesSvg(scene, view) {
  const { drawing, colours, paintwork } = scene;
  /** The first layer, saved lines, lies beneath the second. @type {[string[], string[]]} */
  const layers = [[], []];
  for (let route = 0; route < drawing.routes; route += 1) {
    const kind = drawing.routeKind[route];
    const [from, to] = [drawing.source[route], drawing.target[route]];
    const isLit = scene.selected >= 0 && (from === scene.selected || to === scene.selected);
    if ((kind === REUSE && !isLit) || !meets(drawing.bounds, route, view)) continue;
    const { isAside, hue, isCramped, hasArrow, path } = edgeLook(scene, route, num);
    const painted = paintwork?.width(drawing.routeTensor[route]) ?? 0;
    layers[isAside ? 0 : 1].push(tag("path", {
      d: path,
      stroke: isAside ? colours["ink-muted"] : colours[hue],
      "stroke-width": painted > 0 ? painted : isLit ? 2.25 : isAside || isCramped ? 1 : 1.25,
      "stroke-opacity": isLit ? 1 : isAside ? 0.6 : isCramped ? 0.35 : 0.75,
      "stroke-dasharray": isAside ? "2 4" : null,
      "marker-end": hasArrow ? `url(#arrow-${hue})` : null,
    }));
  }
  return layers.flat();
}

/** @param {ColourScheme} colours @returns {string} arrowheads, and the hatching of tensors without a finite value */
function definitions(colours) {
  const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7.5, markerHeight: 7.5,
    markerUnits: "userSpaceOnUse", orient: "auto" };
  const arrows = HUES.map((name) =>
    tag("marker", { id: `arrow-${name}`, ...size, fill: colours[name] }, tag("path", { d: "M0.5 1 7 4 0.5 7z" }))
  );
  const hatch = tag("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    tag("path", { d: "M0 6 6 0", stroke: colours.warning, "stroke-opacity": 0.55 }));
  return tag("defs", {}, [...arrows, hatch].join(""));
}
