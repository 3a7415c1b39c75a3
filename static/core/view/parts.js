/** The SVG elements of a box and their contents, and the lines as SVG paths. */

import { svg, write, writeText } from "../dom.js";
import { isComputed } from "../graph/steps.js";
import { healthIcon } from "../health.js";
import { FRAME, GROUP, ROUTE_KINDS, TENSOR } from "../layout/sizes.js";
import { edgeLook, figureLook, HUES, MIN_BADGED, numbersLook } from "./look.js";
import { textWidth } from "./box-text.js";
import { tenth } from "../lab/glyphs.js";

/** In a smaller leaf the mark would cover the box, px. */
const MIN_MARKED = [44, 24];
/** Side of the mark that opens and closes a group, px. */
export const TOGGLE = 13;
const BADGE = { width: 40, height: 14 };
/** In a lower box the words reach down to the badge, px. */
const LOW = 60;

export function makeParts() {
  const root = svg("g", { role: "treeitem", class: "box" });
  const frame = svg("rect", { class: "frame" });
  const name = svg("text", { class: "name" });
  const value = svg("text", { class: "value" });
  const title = svg("title");
  root.append(title, frame, name, value);
  const toggle = /** @type {SVGGElement | null} */ (null);
  const numbers = /** @type {SVGTextElement | null} */ (null);
  const look = /** @type {BoxLook | null} */ (null);
  // id: in addresses; kind: as classes; shape: what it was last shaped for; ground: the colour behind words.
  return { root, frame, name, value, numbers, title, toggle, badge: toggle, box: -1, id: "", kind: "", shape: "", look,
    fill: "", ground: "", isWarning: false, ailment: "" };
}

/** Places words at absolute coordinates, which costs less than a transform per box. @param {BoxParts} parts
 * @param {BoxLook} look */
export function writeLines({ name, value }, { text, rect: { x: left, y: top } }) {
  if (text === null) return;
  const lines = [...text.name, ...text.notes];
  const spans = lines.map(({ text: words, x, y, size }, order) => {
    const span = svg("tspan", { x: (left + x).toFixed(1), y: (top + y).toFixed(1) }, words);
    if (order >= text.name.length) span.setAttribute("class", "note");
    span.style.fontSize = `${size}px`;
    return span;
  });
  // One line needs no spans, and there are hundreds of boxes.
  const [only] = lines;
  if (only !== undefined && lines.length === 1) {
    name.replaceChildren(only.text);
    name.setAttribute("x", (left + only.x).toFixed(1));
    name.setAttribute("y", (top + only.y).toFixed(1));
    name.style.fontSize = `${only.size}px`;
  } else name.replaceChildren(...spans);
  name.setAttribute("text-anchor", text.anchor);
  if (text.isTurned === true && only !== undefined)
    name.setAttribute("transform", `rotate(-90 ${(left + only.x).toFixed(1)} ${(top + only.y).toFixed(1)})`);
  else name.removeAttribute("transform");
  if (text.value !== null) {
    value.setAttribute("text-anchor", text.value.anchor);
    value.setAttribute("x", (left + text.value.x).toFixed(1));
    value.setAttribute("y", (top + text.value.y).toFixed(1));
  }
}

/** The mark that opens and closes a group. @param {BoxParts} parts @param {number} kind @param {number} x of a closed
 * group's mark @param {number} y @param {number} w @param {number} h */
export function shapeToggle(parts, kind, x, y, w, h) {
  if (kind !== GROUP && kind !== FRAME) {
    parts.toggle?.remove();
    parts.toggle = null;
    return;
  }
  parts.toggle ??= svg("g", { class: "toggle", "aria-hidden": "true" },
    svg("rect", { width: TOGGLE, height: TOGGLE, rx: 3 }), svg("path"));
  parts.root.append(parts.toggle);
  const middle = TOGGLE / 2;
  parts.toggle.lastElementChild?.setAttribute("d",
    `M3 ${middle}H${TOGGLE - 3}${kind === GROUP ? `M${middle} 3V${TOGGLE - 3}` : ""}`);
  parts.toggle.setAttribute("visibility", w >= TOGGLE + 8 ? "inherit" : "hidden");
  const [wide, high] = MIN_MARKED;
  parts.toggle.classList.toggle("roomy", w >= wide && h >= high && !isUnderMark(parts.look?.text ?? null, w));
  if (kind === GROUP) parts.toggle.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
}

/** @param {BoxText | null} text @param {number} w @returns {boolean} whether the mark of a closed group covers a
 * word */
function isUnderMark(text, w) {
  const [line] = text?.name ?? [];
  if (line === undefined || line.y - 0.8 * line.size > 0.65 * TOGGLE) return false;
  return (w + textWidth(line.text, `600 ${line.size}px`)) / 2 > w - 0.7 * TOGGLE;
}

/** @param {Sight} sight @param {BoxParts} parts */
export function writeFigure({ graph, picture, statistic, step }, parts) {
  const { name, value, look } = parts;
  const isEmpty = look === null || (look.kind === TENSOR && !isComputed(graph, look.index, step));
  const found = isEmpty ? null : figureLook(picture, statistic, look);
  if (look?.kind === TENSOR) warn(parts, found?.isWarning ?? false);
  name.style.visibility = found?.isAlone === true ? "hidden" : "";
  if (found !== null) {
    value.style.fontSize = `${found.size}px`;
    writeText(value, found.words);
  } else if (value.firstChild !== null) value.textContent = "";
  writeNumbers(parts, isEmpty ? [] : numbersLook(picture, look));
}

/** @param {BoxParts} parts @param {readonly TextLine[]} lines */
function writeNumbers(parts, lines) {
  if (lines.length === 0) {
    parts.numbers?.remove();
    parts.numbers = null;
    return;
  }
  const numbers = parts.numbers ??= parts.root.appendChild(svg("text", { class: "numbers" }));
  numbers.style.fontSize = `${lines[0].size}px`;
  while (numbers.children.length > lines.length) numbers.lastElementChild?.remove();
  const { x: left = 0, y: top = 0 } = parts.look?.rect ?? {};
  lines.forEach(({ text, x, y }, at) => {
    const span = numbers.children[at] ?? numbers.appendChild(svg("tspan"));
    write(span, "x", (left + x).toFixed(1));
    write(span, "y", (top + y).toFixed(1));
    writeText(span, text);
  });
}

/** @param {BoxParts} parts @param {Ailment | null} ailment */
export function writeAilment(parts, ailment) {
  const now = ailment === null ? "" : `${ailment.word} ${parts.shape}`;
  if (now === parts.ailment) return;
  parts.ailment = now;
  warn(parts, ailment !== null);
  parts.badge?.remove();
  parts.badge = null;
  if (ailment === null || parts.look === null || parts.look.rect.w < MIN_BADGED) return;
  const { x, y, w, h } = parts.look.rect;
  const icon = healthIcon(ailment.health);
  icon.setAttribute("width", "10");
  icon.setAttribute("height", "10");
  icon.setAttribute("x", "4");
  icon.setAttribute("y", "2");
  // Across the border; of a low box just at it, where it covers no word.
  const into = h < LOW ? 3 : BADGE.height / 2;
  const wide = Math.max(BADGE.width, 23 + textWidth(ailment.word, "600 10px"));
  const ground = svg("rect", { width: wide, height: BADGE.height, rx: BADGE.height / 2 });
  parts.badge = svg("g", { class: "badge",
    transform: `translate(${(x + (w - wide) / 2).toFixed(1)} ${(y + h - into).toFixed(1)})` }, ground, icon,
    svg("text", { x: 17, y: 10.5 }, ailment.word));
  parts.root.append(parts.badge);
}

/** @param {BoxParts} parts @param {boolean} isWarning */
function warn(parts, isWarning) {
  if (parts.isWarning === isWarning) return;
  parts.isWarning = isWarning;
  parts.root.classList.toggle("warning", isWarning);
}

/** Divides elements into those that stay and those left over. @template T @param {Map<number, T>} before
 * @param {boolean} isSame whether the codes still mean the same @param {readonly number[]} chosen
 * @param {(item: number) => number} codeOf
 * @returns {{kept: Map<number, T>, missing: number[], left: T[]}} missing: the chosen that need an element */
export function reused(before, isSame, chosen, codeOf) {
  /** @type {Map<number, T>} */
  const kept = new Map();
  const missing = [];
  for (const item of chosen) {
    const code = codeOf(item);
    const element = isSame ? before.get(code) : undefined;
    if (element === undefined) missing.push(item);
    else {
      kept.set(code, element);
      before.delete(code);
    }
  }
  return { kept, missing, left: [...before.values()] };
}

// The lines of a drawing, kept while they stay in view.

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
    // The numbers of another drawing mean other lines.
    const isSame = this.#drawing === sight.drawing;
    this.#drawing = sight.drawing;
    const { kept, missing, left } = reused(this.#lines, isSame, chosen, (route) => route);
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
