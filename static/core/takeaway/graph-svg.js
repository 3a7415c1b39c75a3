/** A drawing of a graph as an SVG document that stands by itself: to be saved, printed, put into a paper. It is text,
 * so that it can be made where there is no page; the same input gives the same text. */

import { opText, STRIP_WIDTH, tensorText, textWidth } from "../view/box-text.js";
import { CLOSED, DrawingIndex, OP, OPEN, REUSE, SATELLITE, SAVED, TENSOR } from "../view/drawing-index.js";
import { quantity, shape, significant } from "../format.js";
import { find } from "../graph/graph.js";
import { GraphFacts } from "../view/facts.js";
import { figure } from "../labels.js";
import { hue } from "../colours.js";
import { barsSvg, escaped, legendHeight, legendSvg, num, SCHEMES, shortened, stripSvg, tag } from "./svg-parts.js";

/**
 * @typedef {object} Shown
 * @property {Graph} graph
 * @property {Drawing} drawing
 * @property {Picture | null} [picture] null: the structure alone, without figures, histograms and durations
 * @property {Statistic} [statistic] the figure in a tensor's box
 * @property {Paintwork | null} [paintwork]
 * @property {string} [selection] id of what is pointed out
 * @property {"light" | "dark"} [scheme]
 * @property {{x: number, y: number, width: number, height: number} | null} [viewBox] what of the drawing is shown; all
 *   of it without one
 */

/** @typedef {Required<Shown> & {colours: ColourScheme, facts: GraphFacts, index: DrawingIndex, selected: number,
 * isVertical: boolean}} Scene */

const FONT = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, "Fitted Sans", sans-serif';
/** As in tokens.css: where there are only wide fonts, they are set so much smaller that labels keep within their
 * boxes. */
const FITTED = [
  '@font-face{font-family:"Fitted Sans";src:local("DejaVu Sans");size-adjust:88%}',
  '@font-face{font-family:"Fitted Sans";font-weight:700;src:local("DejaVu Sans Bold");size-adjust:84%}',
].join("");
const HUES = /** @type {const} */ (["forward", "backward", "parameter", "neutral"]);
const RADIUS = { op: 8, tensor: 4, frame: 6 };
const MARGIN = 6;
/** Shorter than this a line has no arrowhead, px. */
const MIN_ARROW = 9;
/** Where the words in a frame's head begin, from its outer corner, px. */
const HEAD = { x: 8, y: 18 };
const DARK = 0.36;

/** @param {Shown} shown @returns {string} an SVG document */
export function graphSvg(shown) {
  const { graph, drawing } = shown;
  const index = new DrawingIndex(graph.arrays, drawing);
  const item = shown.selection ? find(graph, shown.selection) : null;
  /** @type {Scene} */
  const scene = {
    picture: null,
    statistic: "std",
    paintwork: null,
    selection: "",
    scheme: "light",
    viewBox: null,
    ...shown,
    colours: SCHEMES[shown.scheme ?? "light"],
    facts: new GraphFacts(graph),
    index,
    selected: item === null ? -1 : index.boxOf(item),
    isVertical: isVertical(drawing),
  };
  const { colours } = scene;
  const view = scene.viewBox ?? { x: 0, y: 0, width: drawing.width, height: drawing.height };
  const legend = scene.paintwork?.legend ?? null;
  const height = view.height + legendHeight(legend);
  const frames = [];
  const boxes = [];
  for (let box = 0; box < drawing.boxes; box += 1) {
    if (!meets(drawing.rect, box, view)) continue;
    if (drawing.kind[box] === OPEN) frames.push(frameSvg(scene, box));
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
    tag("title", { id: "title" }, escaped(titleOf(graph))),
    tag("desc", { id: "description" }, escaped(describe(scene))),
    tag("style", {}, FITTED),
    definitions(colours),
    tag("rect", { x: view.x, y: view.y, width: view.width, height, fill: colours.paper }),
    tag("g", { id: "frames" }, lines(frames)),
    tag("g", { id: "edges", fill: "none" }, lines(edgesSvg(scene, view))),
    tag("g", { id: "boxes", fill: colours.ink }, lines(boxes)),
  ];
  if (legend !== null) parts.push(legendSvg(legend, colours, { x: view.x + MARGIN, y: view.y + view.height }));
  return `${tag("svg", attributes, lines(parts))}\n`;
}

/** @param {readonly string[]} parts @returns {string} one a line, so that two versions can be compared */
function lines(parts) {
  return parts.length === 0 ? "" : `\n${parts.join("\n")}\n`;
}

/** @param {Float32Array} rect @param {number} at @param {{x: number, y: number, width: number, height: number}} view
 * @returns {boolean} */
function meets(rect, at, view) {
  const [x, y, w, h] = [rect[4 * at], rect[4 * at + 1], rect[4 * at + 2], rect[4 * at + 3]];
  return x <= view.x + view.width && y <= view.y + view.height && x + w >= view.x && y + h >= view.y;
}

/** @param {Drawing} drawing @returns {boolean} whether depth runs downward: gradients then stand beside their
 * tensors */
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

/** @param {Graph} graph @returns {string} */
function titleOf({ topology }) {
  const type = topology.modules[0]?.type ?? "";
  return type === "" ? "Computation graph" : `Computation graph of ${type}`;
}

/** @param {Scene} scene @returns {string} */
function describe({ graph, facts, drawing, picture }) {
  const { opsForward, opsBackward, tensors } = facts.extents;
  const loss = picture === null || picture.loss === null ? "" : ` Loss ${significant(picture.loss)}.`;
  return (`Forward pass on top with ${opsForward} ops, backward pass beneath with ${opsBackward}, ${tensors} tensors in `
    + `${graph.topology.modules.length} modules; ${drawing.boxes} boxes are drawn.${loss}`);
}

/** @param {Scene} scene @param {number} box @returns {string} all that is known of a box without its figures */
function nameOf({ graph, drawing }, box) {
  const index = drawing.ref[box];
  const { topology } = graph;
  if (drawing.kind[box] === TENSOR) {
    const tensor = topology.tensors[index];
    return tensor === undefined ? "" : `${tensor.name}: ${tensor.role}, ${tensor.dtype} ${shape(tensor.shape)}`;
  }
  const half = drawing.half[box] === 1 ? "backward" : "forward";
  if (drawing.kind[box] === OP) return `${graph.opLabel[index]}: ${half}`;
  const path = topology.modules[graph.groupModule[index]]?.path ?? "";
  const repeats = graph.arrays.groupRepeats[index];
  return `${graph.groupLabel[index]}${path === "" ? "" : ` ${path}`}${repeats > 0 ? ` × ${repeats}` : ""}: ${half}`;
}

// Boxes

/** @param {Scene} scene @param {number} box @returns {Rectangle} */
function rectOf({ drawing: { rect } }, box) {
  return { x: rect[4 * box], y: rect[4 * box + 1], w: rect[4 * box + 2], h: rect[4 * box + 3] };
}

/** @param {Scene} scene @param {number} box @returns {Phase} */
function halfOf({ drawing }, box) {
  return drawing.half[box] === 1 ? "backward" : "forward";
}

/** @param {Scene} scene @param {number} box @returns {string} an open group */
function frameSvg(scene, box) {
  const { x, y, w, h } = rectOf(scene, box);
  const colour = scene.colours[halfOf(scene, box)];
  const label = shortened(scene.graph.groupLabel[scene.drawing.ref[box]], "600 11px", w - 2 * HEAD.x);
  const isSelected = box === scene.selected;
  const outline = { x, y, width: w, height: h, rx: Math.min(RADIUS.frame, w / 3), fill: colour, "fill-opacity": 0.05,
    stroke: colour };
  const frame = tag("rect", { ...outline, "stroke-opacity": isSelected ? 1 : 0.45,
    "stroke-width": isSelected ? 2.5 : 1 });
  // At the outer side, where the layout leaves room: the halves are mirror images.
  const line = scene.drawing.half[box] === 1 && !scene.isVertical ? y + h - HEAD.y + 8 : y + HEAD.y;
  const head = label === "" ? ""
    : tag("text", { x: x + HEAD.x, y: line, fill: colour, "font-weight": 600 }, escaped(label));
  return tag("g", { class: "frame" }, tag("title", {}, escaped(nameOf(scene, box))) + frame + head);
}

/** @param {Scene} scene @param {number} box @returns {string} an op, a tensor or a closed group */
function boxSvg(scene, box) {
  const { drawing, graph, colours, paintwork } = scene;
  const { x, y, w, h } = rectOf(scene, box);
  const half = halfOf(scene, box);
  const index = drawing.ref[box];
  const kind = drawing.kind[box];
  const isTensor = kind === TENSOR;
  const colour = colours[isTensor ? hue(half, graph.topology.tensors[index].role) : half];
  const item = scene.index.itemOf(box);
  const painted = paintwork?.fill(item.kind, item.index, item.half) ?? null;
  const isStrip = w < STRIP_WIDTH;
  const own = isTensor ? colours.raised : isStrip ? colour : colours[`${half}-soft`];
  const isSelected = box === scene.selected;
  const frame = tag("rect", {
    ...{ x, y, width: w, height: h, rx: Math.min(isTensor ? RADIUS.tensor : RADIUS.op, w / 3), fill: painted ?? own },
    "fill-opacity": isStrip && !isTensor && painted === null ? 0.35 : null,
    stroke: isStrip && !isSelected ? null : colour,
    "stroke-width": isSelected ? 3 : isTensor ? 1.25 : 1.5,
  });
  const text = isTensor ? nameText(scene, index, w, h) : groupText(scene, box, w, h, half);
  const ink = painted === null ? null : luminance(painted) < DARK ? "#ffffff" : "#1c2126";
  const paint = { ink: colour, muted: colours["ink-muted"], warning: colours.warning };
  const plot = text.plot === null ? null : { x: x + text.plot.x, y: y + text.plot.y, w: text.plot.w, h: text.plot.h };
  let inside = tag("title", {}, escaped(nameOf(scene, box))) + frame;
  if (plot !== null && scene.picture !== null) {
    if (isTensor) {
      const row = scene.facts.rows[index];
      if (row >= 0)
        inside += text.level === "strip" ? stripSvg(scene.picture, row, plot, paint)
          : barsSvg(scene.picture, row, plot, paint);
    } else inside += repetitionsSvg(scene, index, half, plot, paint);
  }
  inside += words(scene, box, text, ink);
  if (isTensor) inside += figureSvg(scene, index, text, { x, y, w, h }, ink);
  else if (kind === CLOSED) inside += ailmentSvg(scene, index, half, { x, y, w, h });
  return tag("g", { class: isTensor ? "tensor" : kind === CLOSED ? "group" : "op" }, inside);
}

/** @param {Scene} scene @param {number} tensor @param {number} w @param {number} h @returns {BoxText} */
function nameText({ graph, picture }, tensor, w, h) {
  const label = graph.tensorLabel[tensor];
  // Without a figure beside it and a histogram beneath it, the name is all there is.
  return picture === null ? opText(label, [], w, h, false)
    : tensorText(label, w, h, graph.arrays.elements[tensor] === 1);
}

/** @param {Scene} scene @param {number} box @param {number} w @param {number} h @param {Phase} half
 * @returns {BoxText} */
function groupText({ graph, drawing, facts, picture }, box, w, h, half) {
  const index = drawing.ref[box];
  if (drawing.kind[box] === OP) return opText(graph.opLabel[index], [], w, h, false);
  const repeats = graph.arrays.groupRepeats[index];
  const notes = repeats > 0 ? [`× ${repeats}`] : [];
  if (graph.arrays.groupIsLeaf[index] !== 1 || repeats > 0) {
    const parameters = facts.parameters(index);
    if (parameters > 0) notes.push(`${quantity(parameters, "").trim()} params`);
    const time = picture === null ? null : facts.time(index, half);
    if (time !== null) notes.push(time >= 1000 ? `${(time / 1000).toPrecision(3)} ms` : `${time.toPrecision(3)} µs`);
  }
  return opText(graph.groupLabel[index], notes, w, h, repeats > 0);
}

/** The name of a box and the notes beneath it; a name that does not fit, as far as it does. @param {Scene} scene
 * @param {number} box @param {BoxText} text @param {string | null} ink @returns {string} */
function words({ drawing, graph, picture, colours }, box, text, ink) {
  const [x, y, w, h] = [drawing.rect[4 * box], drawing.rect[4 * box + 1], drawing.rect[4 * box + 2],
    drawing.rect[4 * box + 3]];
  if (text.level === "strip") return "";
  if (text.name.length === 0) {
    const index = drawing.ref[box];
    const isTensor = drawing.kind[box] === TENSOR;
    const labels = isTensor ? graph.tensorLabel : drawing.kind[box] === OP ? graph.opLabel : graph.groupLabel;
    const label = h < 12 ? "" : shortened(labels[index], "600 10px", w - 4);
    const at = { x: x + w / 2, y: isTensor && picture !== null ? y + 13 : y + h / 2 + 3.5, "text-anchor": "middle",
      "font-size": 10, "font-weight": 600, fill: ink };
    return label === "" ? "" : tag("text", at, escaped(label));
  }
  const anchor = text.anchor === "middle" ? "middle" : null;
  const line = (/** @type {TextLine} */ each, /** @type {boolean} */ isName) =>
    tag("text", {
      ...{ x: x + each.x, y: y + each.y, "text-anchor": anchor, "font-size": each.size === 11 ? null : each.size },
      ...{ "font-weight": isName ? 600 : null, fill: ink ?? (isName ? null : colours["ink-soft"]) },
    }, escaped(each.text));
  return text.name.map((each) => line(each, true)).join("") + text.notes.map((each) => line(each, false)).join("");
}

/** @param {Scene} scene @param {number} tensor @param {BoxText} text @param {Rectangle} at @param {string | null} ink
 * @returns {string} */
function figureSvg({ graph, picture, statistic, colours }, tensor, text, at, ink) {
  const shown = graph.topology.tensors[tensor];
  if (picture === null || shown === undefined || text.value === null) return "";
  const { text: long, short, isWarning } = figure(picture, shown, statistic);
  let size = 11;
  /** @type {string | undefined} */
  let fitting;
  if (text.isScalar) {
    size = [14, 11, 9].find((candidate) => textWidth(long, `600 ${candidate}px`) + 4 <= at.w) ?? 0;
    fitting = size === 0 ? undefined : long;
  } else {
    const { room } = text.value;
    fitting = [long, short].find((candidate) => textWidth(candidate, "11px") + 2 <= room);
  }
  if (fitting === undefined) return "";
  const fill = ink ?? (isWarning ? colours.warning : text.isScalar ? null : colours["ink-soft"]);
  const weight = isWarning || text.isScalar ? 600 : null;
  const place = { x: at.x + text.value.x, y: at.y + text.value.y, "text-anchor": text.value.anchor };
  return tag("text", { ...place, "font-size": size === 11 ? null : size, "font-weight": weight, fill },
    escaped(fitting));
}

/** @param {Scene} scene @param {number} group @param {Phase} half @param {Rectangle} at @param {HistogramPaint} paint
 * @returns {string} what each repetition of a fold puts out */
function repetitionsSvg({ facts, picture }, group, half, at, paint) {
  const tensors = facts.repetitions(group, half);
  if (picture === null || tensors.length === 0) return "";
  const shown = Math.min(tensors.length, Math.max(1, Math.floor(at.w / 2)));
  const step = at.w / shown;
  let strips = "";
  for (let strip = 0; strip < shown; strip += 1) {
    const tensor = tensors[Math.floor((strip * tensors.length) / shown)];
    const row = tensor < 0 ? -1 : facts.rows[tensor];
    if (row >= 0)
      strips += stripSvg(picture, row, { x: at.x + strip * step, y: at.y, w: step - (step >= 5 ? 1 : 0), h: at.h },
        paint);
  }
  return strips;
}

/** @param {Scene} scene @param {number} group @param {Phase} half @param {Rectangle} at @returns {string} what is not
 * finite in a closed group */
function ailmentSvg({ facts, picture, colours }, group, half, { x, y, w, h }) {
  const ailment = picture === null || w < 44 ? null : facts.ailment(picture, group, half);
  if (ailment === null) return "";
  const ground = tag("rect", { x: x + w / 2 - 17, y: y + h - 7, width: 34, height: 14, rx: 7, fill: colours.warning });
  const word = { x: x + w / 2, y: y + h + 3.5, "text-anchor": "middle", "font-size": 10, "font-weight": 600,
    fill: colours.paper };
  return ground + tag("text", word, ailment.word);
}

// Edges

/** @param {Scene} scene @param {{x: number, y: number, width: number, height: number}} view @returns {string[]} */
function edgesSvg(scene, view) {
  const { drawing, colours, paintwork } = scene;
  /** Saved lines lie beneath the others. @type {[string[], string[]]} */
  const layers = [[], []];
  for (let route = 0; route < drawing.routes; route += 1) {
    const kind = drawing.routeKind[route];
    const [from, to] = [drawing.source[route], drawing.target[route]];
    const isLit = scene.selected >= 0 && (from === scene.selected || to === scene.selected);
    if ((kind === REUSE && !isLit) || !meets(drawing.bounds, route, view)) continue;
    const isAside = kind === SAVED || kind === REUSE;
    const name = isAside ? "neutral" : hueOf(scene, route, from);
    const { path, reach } = pathOf(drawing, route);
    const isCramped = Math.min(drawing.rect[4 * from + 2], drawing.rect[4 * to + 2]) < STRIP_WIDTH;
    const painted = paintwork?.width(drawing.routeTensor[route]) ?? 0;
    layers[isAside ? 0 : 1].push(tag("path", {
      d: path,
      stroke: isAside ? colours["ink-muted"] : colours[name],
      "stroke-width": painted > 0 ? painted : isLit ? 2.25 : isAside || isCramped ? 1 : 1.25,
      "stroke-opacity": isLit ? 1 : isAside ? 0.6 : isCramped ? 0.35 : 0.75,
      "stroke-dasharray": isAside ? "2 4" : null,
      "marker-end": isAside || isCramped || reach < MIN_ARROW ? null : `url(#arrow-${name})`,
    }));
  }
  return layers.flat();
}

/** @param {Scene} scene @param {number} route @param {number} from @returns {typeof HUES[number]} */
function hueOf({ drawing, graph }, route, from) {
  const half = drawing.routeHalf[route] === 1 ? "backward" : "forward";
  const isLeaf = drawing.routeKind[route] === SATELLITE && half === "forward" && drawing.kind[from] === TENSOR;
  return hue(half, isLeaf ? graph.topology.tensors[drawing.routeTensor[route]].role : "");
}

/** @param {Drawing} drawing @param {number} route @returns {{path: string, reach: number}} */
function pathOf({ points, pointStart }, route) {
  // Positions count points, of two numbers each.
  const [from, to] = [2 * pointStart[route], 2 * pointStart[route + 1]];
  const at = (/** @type {number} */ position) => num(points[position]);
  let path = `M${at(from)} ${at(from + 1)}`;
  for (let position = from + 2; position + 5 < to; position += 6) {
    path += `C${[0, 1, 2, 3, 4, 5].map((offset) => at(position + offset)).join(" ")}`;
  }
  const reach = Math.hypot(points[to - 2] - points[from], points[to - 1] - points[from + 1]);
  return { path, reach };
}

/** @param {ColourScheme} colours @returns {string} arrowheads, and the hatching of what has no finite value */
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

/** @param {string} colour #rrggbb or rgb(…) @returns {number} 0 to 1, as WCAG has it */
function luminance(colour) {
  const parts = colour.startsWith("#") ? [1, 3, 5].map((start) => Number.parseInt(colour.slice(start, start + 2), 16))
    : (colour.match(/[\d.]+/g) ?? []).map(Number);
  const [r, g, b] = parts.map((part) =>
    part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
