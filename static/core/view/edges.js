/** The lines of a drawing as SVG paths, kept while they stay in view. */

import { svg, write } from "../dom.js";
import { tenth } from "../lab/glyphs.js";
import { ROUTE_KINDS } from "../layout/sizes.js";
import { edgeLook, HUES } from "./look.js";

/** @typedef {{path: SVGPathElement, width: number, classes: string}} Line */

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
function draw(sight, route, line) {
  const { isAside, hue, isCramped, hasArrow, path } = edgeLook(sight, route, tenth);
  const name = ROUTE_KINDS[sight.drawing.routeKind[route]];
  line.classes = `edge ${name} ${isAside ? "saved" : hue}${isCramped ? " cramped" : ""}`;
  line.path.setAttribute("class", line.classes);
  line.path.setAttribute("d", path);
  if (hasArrow) line.path.setAttribute("marker-end", `url(#arrow-${hue})`);
  else line.path.removeAttribute("marker-end");
}
