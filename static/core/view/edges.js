/** The lines of a drawing as SVG paths, kept while they stay in view. */

import { svg, write } from "../dom.js";
import { tenth } from "../lab/glyphs.js";
import { REUSE, SATELLITE, SAVED, TENSOR } from "../layout/sizes.js";
import { hue } from "../colours.js";
import { STRIP_WIDTH } from "./box-text.js";

/** @typedef {{path: SVGPathElement, width: number, classes: string}} Line */

/** By position in ROUTE_KINDS of layout.js. */
const CLASSES = ["data", "satellite", "saved", "fold", "reuse"];
const HUES = /** @type {const} */ (["forward", "backward", "parameter", "neutral"]);
/** A shorter line has no arrowhead, px. */
const MIN_ARROW = 9;

/** @param {string} hueName @returns {SVGMarkerElement} an arrowhead */
function arrowhead(hueName) {
  const attributes = { id: `arrow-${hueName}`, class: hueName, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7.5,
    markerHeight: 7.5, markerUnits: "userSpaceOnUse", orient: "auto" };
  return svg("marker", attributes, svg("path", { d: "M0.5 1 7 4 0.5 7z" }));
}

export class EdgeLayer {
  root = svg("g", { class: "edges" });
  definitions = svg("defs", {}, ...HUES.map(arrowhead));
  /** @type {Map<number, Line>} */
  #lines = new Map();
  /** @type {Drawing | null} */
  #drawing = null;

  /** Makes exactly one path for each of these routes. @param {Sight} sight @param {readonly number[]} chosen */
  show(sight, chosen) {
    const { drawing } = sight;
    const before = this.#lines;
    // The numbers of another drawing mean other lines.
    const isSame = this.#drawing === drawing;
    this.#drawing = drawing;
    /** @type {Map<number, Line>} */
    const kept = new Map();
    const missing = [];
    for (const route of chosen) {
      const line = isSame ? before.get(route) : undefined;
      if (line === undefined) missing.push(route);
      else {
        kept.set(route, line);
        before.delete(route);
      }
    }
    const left = [...before.values()];
    this.#lines = kept;
    for (const route of missing) {
      const line = left.pop() ?? { path: svg("path"), width: 0, classes: "" };
      draw(sight, route, line);
      if (line.path.parentNode === null) this.root.append(line.path);
      kept.set(route, line);
    }
    for (const { path } of left) path.remove();
    this.widen(sight);
  }

  /** Sets the widths of the overlay. @param {Sight} sight */
  widen({ paintwork, drawing }) {
    for (const [route, line] of this.#lines) {
      const width = paintwork?.width(drawing.routeTensor[route]) ?? 0;
      if (width === line.width) continue;
      line.width = width;
      line.path.style.strokeWidth = width > 0 ? `${width.toFixed(2)}px` : "";
    }
  }

  /** Lights the lines of these boxes, and dims the lines between boxes that are not lit. @param {Sight} sight
   * @param {readonly number[]} boxes */
  mark({ drawing, lit }, boxes) {
    const { source, target } = drawing;
    for (const [route, { path, classes }] of this.#lines) {
      const [from, to] = [source[route], target[route]];
      const isLit = boxes.includes(from) || boxes.includes(to);
      const isDimmed = lit !== null && !isLit && (lit[from] === 0 || lit[to] === 0);
      write(path, "class", `${classes}${isLit ? " lit" : ""}${isDimmed ? " dimmed" : ""}`);
    }
  }
}

/** @param {Sight} sight @param {number} route @param {Line} line */
function draw({ drawing, graph }, route, line) {
  const { routeKind, routeHalf, routeTensor, source, target, rect, kind } = drawing;
  const [from, to] = [source[route], target[route]];
  const half = routeHalf[route] === 1 ? "backward" : "forward";
  const passes = routeKind[route] === SATELLITE && half === "forward" && kind[from] === TENSOR;
  const role = passes ? graph.topology.tensors[routeTensor[route]].role : "";
  const colour = routeKind[route] === SAVED || routeKind[route] === REUSE ? "saved" : hue(half, role);
  const name = CLASSES[routeKind[route]];
  // No arrow can point to a strip a few pixels wide.
  const isCramped = Math.min(rect[4 * from + 2], rect[4 * to + 2]) < STRIP_WIDTH;
  line.classes = `edge ${name} ${colour}${isCramped ? " cramped" : ""}`;
  const { text, reach } = pathOf(drawing, route);
  line.path.setAttribute("class", line.classes);
  line.path.setAttribute("d", text);
  const hasArrow = name !== "saved" && name !== "reuse" && reach >= MIN_ARROW && !isCramped;
  if (hasArrow) line.path.setAttribute("marker-end", `url(#arrow-${colour})`);
  else line.path.removeAttribute("marker-end");
}

/** @param {Drawing} drawing @param {number} route @returns {{text: string, reach: number}} the path's d, and the
 * distance between its ends */
function pathOf({ points, pointStart }, route) {
  // Positions count points, of two numbers each.
  const [from, to] = [2 * pointStart[route], 2 * pointStart[route + 1]];
  const at = (/** @type {number} */ index) => tenth(points[index]);
  let text = `M${at(from)} ${at(from + 1)}`;
  for (let index = from + 2; index + 5 < to; index += 6) {
    text += `C${at(index)} ${at(index + 1)} ${at(index + 2)} ${at(index + 3)} ${at(index + 4)} ${at(index + 5)}`;
  }
  return { text, reach: Math.hypot(points[to - 2] - points[from], points[to - 1] - points[from + 1]) };
}
