/** The boxes of a drawing as SVG elements. Elements are reused; a new picture only rewrites numbers that changed. */

import { ailmentLook, boxLook, isDark, rectangle } from "./look.js";
import { makeParts, reused, shapeToggle, TOGGLE, writeAilment, writeFigure, writeLines } from "./parts.js";
import { frameText, TIGHT_SIZE } from "./box-text.js";
import { svg, write } from "../dom.js";
import { attributeOf, fullLabel, layersOf } from "./facts.js";
import { failedBox } from "./navigation.js";
import { FRAME, GROUP, OP, TENSOR } from "../layout/sizes.js";
import { memo } from "../memo.js";
import { MIN_HEADED } from "./viewport.js";

/** If there are more new boxes than this, all elements are sorted. */
const MANY = 200;
const CODES_PER_KIND = 2 ** 25;
/** Room for a frame's header, px of the drawing. */
const HEADER = 30;
/** Distance of a header that stands outside its frame, px of the screen. */
const OUTSIDE = 9;
const HALF_LETTER = 4;
const HEADER_INSET = 6;
/** Most ids in `aria-owns`; browsers are slow with more. */
const MAX_OWNED = 400;
let made = 0;

export class BoxLayer {
  frames = svg("g", { class: "frames" });
  boxes = svg("g", { class: "boxes" });
  /** @type {Map<number, BoxParts>} */
  #parts = new Map();
  /** @type {BoxParts[]} */
  #spare = [];
  /** @type {Graph | null} */
  #graph = null;

  get parts() {
    return this.#parts.values();
  }

  /** @param {Sight} sight @param {number} box @returns {BoxParts | undefined} */
  partsOf(sight, box) {
    return box < 0 ? undefined : this.#parts.get(codeOf(sight, box));
  }

  /** Makes exactly one element for each of these boxes. @param {Sight} sight @param {readonly number[]} chosen in the
   * drawing's order @param {(sight: Sight, box: number) => string} idOf */
  show(sight, chosen, idOf) {
    // The codes of another graph mean other things.
    const isKnown = this.#graph === sight.graph;
    this.#graph = sight.graph;
    const { kept, missing, left } = reused(this.#parts, isKnown, chosen, (box) => codeOf(sight, box));
    this.#parts = kept;
    left.reverse();
    for (const box of missing) {
      const code = codeOf(sight, box);
      const parts = left.pop() ?? this.#spare.pop() ?? makeParts();
      if (parts.root.id === "") parts.root.id = `box-${(made += 1)}`;
      Object.assign(parts, { box, id: idOf(sight, box), shape: "", ailment: "", isWarning: false });
      parts.badge?.remove();
      parts.badge = null;
      parts.root.dataset["id"] = parts.id;
      parts.root.setAttribute("tabindex", "-1");
      parts.root.removeAttribute("aria-label");
      parts.title.textContent = "";
      kept.set(code, parts);
    }
    for (const parts of left) {
      parts.root.remove();
      if (this.#spare.length < 200) this.#spare.push(parts);
    }
    // In the drawing's order, so that inner frames lie above outer ones and screen readers follow the execution. While
    // the user pans, boxes that stay are not moved.
    const isOrdered = missing.length > MANY || chosen.length < 2 * MANY;
    /** @type {(Element | null)[]} */
    const ends = [null, null];
    for (const box of chosen) {
      const parts = kept.get(codeOf(sight, box));
      if (parts === undefined) continue;
      parts.box = box;
      this.#shape(sight, parts);
      const isFrame = sight.drawing.kind[box] === FRAME;
      const home = isFrame ? this.frames : this.boxes;
      const { root } = parts;
      if (isFrame || isOrdered) {
        const end = ends[isFrame ? 1 : 0] ?? null;
        const place = end === null ? home.firstChild : end.nextSibling;
        if (place !== root) home.insertBefore(root, place);
        ends[isFrame ? 1 : 0] = root;
      } else if (root.parentNode !== home) home.append(root);
    }
    this.write(sight);
  }

  /** Ids in the order of execution, because in the document all frames come first, to lie beneath the lines.
   * @param {Sight} sight @param {readonly number[]} chosen @returns {string} "" where they are too many, or in order
   * already */
  order(sight, chosen) {
    if (chosen.length > MAX_OWNED || this.frames.firstChild === null) return "";
    return chosen.map((box) => this.partsOf(sight, box)?.root.id ?? "").join(" ");
  }

  /** @param {Sight} sight @param {BoxParts} parts */
  #placeIn({ drawing, index }, { box, root }) {
    const { place, count } = siblingsIn(drawing);
    write(root, "aria-level", String(index.framesAround(box).length + 1));
    write(root, "aria-posinset", String(place[box]));
    write(root, "aria-setsize", String(count[drawing.frame[box] + 1]));
  }

  /** @param {Sight} sight @param {BoxParts} parts */
  #shape(sight, parts) {
    const { drawing, graph, scale } = sight;
    const { box, root, frame } = parts;
    this.#placeIn(sight, parts);
    const kind = drawing.kind[box];
    const { x, y, w, h } = rectangle(drawing, box);
    // No word is smaller than TIGHT_SIZE on the screen.
    const least = Math.ceil((4 * TIGHT_SIZE) / Math.min(1, scale)) / 4;
    const shape = `${kind} ${x} ${y} ${w} ${h} ${kind === FRAME ? scale : least} ${graph.groupId.length}`;
    if (shape === parts.shape) return;
    parts.shape = shape;
    const look = boxLook(sight, box, "page", least);
    parts.look = look;
    parts.kind = classesOf(look, graph);
    frame.setAttribute("x", x.toFixed(2));
    frame.setAttribute("y", y.toFixed(2));
    frame.setAttribute("width", w.toFixed(2));
    frame.setAttribute("height", h.toFixed(2));
    frame.setAttribute("rx", String(look.radius));
    root.dataset["level"] = look.text?.level ?? "wide";
    root.dataset["scalar"] = String(look.text?.isScalar ?? false);
    if (kind === GROUP || kind === FRAME) write(root, "aria-expanded", String(kind === FRAME));
    else root.removeAttribute("aria-expanded");
    // On the corner, beside the words.
    shapeToggle(parts, kind, x + w - 0.7 * TOGGLE, y - 0.35 * TOGGLE, w, h);
    if (kind === FRAME) this.#head(sight, parts, x, y, w, h);
    else writeLines(parts, look);
  }

  /** The header of a frame, on the side away from the axis. @param {Sight} sight @param {BoxParts} parts
   * @param {number} x @param {number} y @param {number} w @param {number} h */
  #head({ graph, drawing, scale, isVertical }, { box, name, value, toggle }, x, y, w, h) {
    const unit = 1 / Math.min(1, scale);
    const isBelow = drawing.half[box] === 1 && !isVertical;
    // At a small scale the text is higher than the header, so the outermost frames show it outside.
    const isOutside = scale < MIN_HEADED;
    const middle = isOutside ? -OUTSIDE * unit : HEADER / 2;
    const line = y + (isBelow ? h - middle : middle) + HALF_LETTER * unit;
    const before = (TOGGLE + 2 * HEADER_INSET) * unit;
    const isNamed = !isOutside || drawing.frame[box] < 0;
    const text = isNamed ? frameText(headings(graph, drawing.ref[box]), w, scale, before + HEADER_INSET * unit) : null;
    name.replaceChildren(text === null ? "" : text.text);
    name.style.fontSize = `${(text?.size ?? 11).toFixed(2)}px`;
    name.removeAttribute("transform");
    name.setAttribute("text-anchor", "start");
    name.setAttribute("x", (x + before).toFixed(1));
    name.setAttribute("y", line.toFixed(1));
    value.textContent = "";
    toggle?.setAttribute("visibility", isNamed ? "inherit" : "hidden");
    toggle?.setAttribute("transform",
      `translate(${(x + HEADER_INSET * unit).toFixed(1)} ${
        (line - (HALF_LETTER + TOGGLE / 2) * unit).toFixed(1)
      }) scale(${unit.toFixed(3)})`);
  }

  /** Writes the figures and colours of the picture. @param {Sight} sight */
  write(sight) {
    const { drawing, facts } = sight;
    for (const parts of this.#parts.values()) {
      writeFigure(sight, parts);
      if (drawing.kind[parts.box] !== TENSOR)
        writeAilment(parts, facts.isHealthy ? null : ailmentLook(sight, parts.box));
    }
    this.fill(sight);
  }

  /** Colours boxes as the overlay says. @param {Sight} sight */
  fill({ paintwork, drawing, index }) {
    for (const parts of this.#parts.values()) {
      let fill = "";
      if (paintwork !== null && drawing.kind[parts.box] !== FRAME) {
        const item = index.itemOf(parts.box);
        fill = paintwork.fill(item.kind, item.index, item.half) ?? "";
      }
      if (fill === parts.fill) continue;
      parts.fill = fill;
      parts.frame.style.fill = fill;
      const ground = fill === "" ? "" : isDark(fill) ? "on-dark" : "on-light";
      if (ground === parts.ground) continue;
      if (parts.ground !== "") parts.root.classList.remove(parts.ground);
      if (ground !== "") parts.root.classList.add(ground);
      parts.ground = ground;
    }
  }

  /** Marks boxes as selected, linked, lit or dimmed. @param {Sight} sight @param {BoxSelection} selection */
  mark(sight, { selected, twin, holder, focused }) {
    const { lit, drawing } = sight;
    const failed = failedBox(sight);
    for (const parts of this.#parts.values()) {
      const { root, box } = parts;
      const marks = [];
      if (box === selected) marks.push("selected");
      if (box === twin) marks.push("twin");
      if (box === holder) marks.push("holds-selection");
      if (box === failed) marks.push("failed");
      // Frames are neither lit nor dimmed.
      if (lit !== null && drawing.kind[box] !== FRAME)
        marks.push(lit[box] === 1 || box === selected ? "lit" : "dimmed");
      if (parts.isWarning) marks.push("warning");
      if (parts.ground !== "") marks.push(parts.ground);
      write(root, "class", ["box", parts.kind, ...marks].join(" "));
      write(root, "aria-selected", String(box === selected));
      write(root, "tabindex", box === focused ? "0" : "-1");
    }
  }
}

/** @param {Sight} sight @param {number} box @returns {number} the same for the same op, tensor or group in each drawing
 * of a graph */
function codeOf({ drawing }, box) {
  const kind = Math.min(drawing.kind[box], GROUP);
  return (kind * 2 + drawing.half[box]) * CODES_PER_KIND + drawing.ref[box];
}

/** @param {BoxLook} look @param {Graph} graph @returns {string} for the style sheet */
function classesOf({ kind, half, hue, index }, { arrays }) {
  if (kind === TENSOR) return `tensor ${hue}`;
  if (kind === OP) return `op ${half}`;
  if (kind === FRAME) return `open ${half}`;
  return `op group ${arrays.groupIsLeaf[index] === 1 ? "leaf" : "branch"} ${half}`;
}

/** @param {Graph} graph @param {number} group @returns {string[]} headers for its frame, the best first: a type says
 * more than a number, an attribute more than a type */
function headings(graph, group) {
  const attribute = attributeOf(graph, group);
  const type = graph.groupLabel[group];
  const full = fullLabel(graph, group);
  const layers = layersOf(graph, group);
  const shorter = attribute === "" || /\d$/.test(attribute) ? type : attribute;
  return layers === "" || layers === attribute ? [full, shorter] : [`${full} · ${layers}`, full, shorter];
}

const siblingsIn = memo(countSiblings);

/** @param {Drawing} drawing @returns {{place: Int32Array, count: Int32Array}} place: box → place in its frame, from 1;
 * count: frame's box + 1 → boxes in it */
function countSiblings({ boxes, frame }) {
  const place = new Int32Array(boxes);
  const count = new Int32Array(boxes + 1);
  for (let box = 0; box < boxes; box += 1) {
    const around = frame[box] + 1;
    place[box] = count[around] = count[around] + 1;
  }
  return { place, count };
}
