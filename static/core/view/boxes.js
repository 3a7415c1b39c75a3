/** The boxes of a drawing as SVG elements: as many as are worth one, taken from those that others have left. Numbers
 * are written where they change; everything else is touched only when the drawing, or what is seen of it, does. */

import { ailmentLook, boxLook, isDark, rectangle } from "./box-look.js";
import { makeParts, shapeToggle, TOGGLE, writeAilment, writeFigure, writeLines } from "./box-parts.js";
import { frameText } from "./box-text.js";
import { svg, write } from "../dom.js";
import { attributeOf, fullLabel } from "./facts.js";
import { failedBox } from "./navigation.js";
import { FRAME, GROUP, OP, TENSOR } from "../layout/sizes.js";
import { MIN_HEADED } from "./viewport.js";

/** As many boxes may come into sight at once without their order being seen to. */
const MANY = 200;
const CODES_PER_KIND = 2 ** 25;
/** Room for a frame's header, px of the drawing. */
const HEADER = 30;
/** Where it is beside a frame, px of the screen. */
const OUTSIDE = 9;
const HALF_LETTER = 4;
const HEADER_INSET = 6;
/** Owned one by one: with more of them a browser takes longer over their order than a reader over the page. */
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
  /** @type {{drawing: Drawing, place: Int32Array, count: Int32Array} | null} */
  #siblings = null;

  /** @returns {Iterable<BoxParts>} */
  get parts() {
    return this.#parts.values();
  }

  /** @param {Sight} sight @param {number} box @returns {BoxParts | undefined} */
  partsOf(sight, box) {
    return box < 0 ? undefined : this.#parts.get(codeOf(sight, box));
  }

  /** Has an element for each of these boxes, and for no other. @param {Sight} sight @param {readonly number[]} chosen
   * in the drawing's order @param {(sight: Sight, box: number) => string} idOf */
  show(sight, chosen, idOf) {
    /** @type {Map<number, BoxParts>} */
    const kept = new Map();
    /** @type {[number, number][]} */
    const missing = [];
    // In another graph the same number means another thing.
    const isKnown = this.#graph === sight.graph;
    this.#graph = sight.graph;
    for (const box of chosen) {
      const code = codeOf(sight, box);
      const parts = isKnown ? this.#parts.get(code) : undefined;
      if (parts === undefined) missing.push([code, box]);
      else {
        parts.box = box;
        kept.set(code, parts);
        this.#parts.delete(code);
      }
    }
    const left = [...this.#parts.values()].reverse();
    this.#parts = kept;
    for (const [code, box] of missing) {
      const parts = left.pop() ?? this.#spare.pop() ?? makeParts();
      if (parts.root.id === "") parts.root.id = `box-${(made += 1)}`;
      Object.assign(parts, { code, box, id: idOf(sight, box), shape: "", ailment: "", isWarning: false });
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
    // In the drawing's order, so that inner frames are above outer ones and a reader meets boxes as they are run; of
    // boxes that come and go while one pans, those that stay are not moved for it.
    const isOrdered = missing.length > MANY || chosen.length < 2 * MANY;
    /** @type {(Element | null)[]} */
    const ends = [null, null];
    for (const box of chosen) {
      const parts = kept.get(codeOf(sight, box));
      if (parts === undefined) continue;
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

  /** The elements in the order of execution: frames lie beneath the lines and so come before all else in the document.
   * @param {Sight} sight @param {readonly number[]} chosen @returns {string} ids; "" where they are too many, or in
   * order already */
  order(sight, chosen) {
    if (chosen.length > MAX_OWNED || this.frames.firstChild === null) return "";
    return chosen.map((box) => this.partsOf(sight, box)?.root.id ?? "").join(" ");
  }

  /** Where a box is among those that stand in the same frame. @param {Sight} sight @param {BoxParts} parts */
  #placeIn({ drawing, index }, { box, root }) {
    if (this.#siblings?.drawing !== drawing) this.#siblings = { drawing, ...siblingsIn(drawing) };
    const { place, count } = this.#siblings;
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
    const shape = `${kind} ${x} ${y} ${w} ${h} ${kind === FRAME ? scale : ""} ${graph.groupId.length}`;
    if (shape === parts.shape) return;
    parts.shape = shape;
    const look = boxLook(sight, box, "page");
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
    // On the corner, where no words are.
    shapeToggle(parts, kind, x + w - 0.7 * TOGGLE, y - 0.35 * TOGGLE, w, h);
    if (kind === FRAME) this.#head(sight, parts, x, y, w, h);
    else writeLines(parts, look);
  }

  /** The line that a frame is headed with, on its side away from the axis. @param {Sight} sight @param {BoxParts} parts
   * @param {number} x @param {number} y @param {number} w @param {number} h */
  #head({ graph, drawing, scale, isVertical }, { box, name, value, toggle }, x, y, w, h) {
    const unit = 1 / Math.min(1, scale);
    const isBelow = drawing.half[box] === 1 && !isVertical;
    // Where the header is too low for it, the outermost frames have it outside, where there is room.
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

  /** The numbers of the picture, and its colours. @param {Sight} sight */
  write(sight) {
    const { picture, drawing, facts } = sight;
    const isWell = facts.isHealthy && allFinite(picture);
    for (const parts of this.#parts.values()) {
      writeFigure(sight, parts);
      if (drawing.kind[parts.box] !== TENSOR) writeAilment(parts, isWell ? null : ailmentLook(sight, parts.box));
    }
    this.fill(sight);
  }

  /** The colours of the overlay. @param {Sight} sight */
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
      // Words have to be read on whatever colour there is.
      const ground = fill === "" ? "" : isDark(fill) ? "on-dark" : "on-light";
      if (ground === parts.ground) continue;
      if (parts.ground !== "") parts.root.classList.remove(parts.ground);
      if (ground !== "") parts.root.classList.add(ground);
      parts.ground = ground;
    }
  }

  /** Which are selected, linked to that, dimmed. @param {Sight} sight @param {BoxSelection} selection */
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
      // A frame is what others stand in: it is neither.
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

/** @param {Sight} sight @param {number} box @returns {number} the same for a thing in every drawing of it, open or
 * closed */
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

/** @param {Graph} graph @param {number} group @returns {string[]} what its frame may be headed with: a number alone
 * says less than its type, a word more */
function headings(graph, group) {
  const attribute = attributeOf(graph, group);
  const type = graph.groupLabel[group];
  return attribute === "" ? [type] : [fullLabel(graph, group), /^\d+$/.test(attribute) ? type : attribute];
}

/** @param {Drawing} drawing @returns {{place: Int32Array, count: Int32Array}} place: of a box in its frame, from 1;
 * count: by the frame's box + 1 */
function siblingsIn({ boxes, frame }) {
  const place = new Int32Array(boxes);
  const count = new Int32Array(boxes + 1);
  for (let box = 0; box < boxes; box += 1) {
    const around = frame[box] + 1;
    place[box] = count[around] = count[around] + 1;
  }
  return { place, count };
}

/** @param {Picture} picture @returns {boolean} whether no group of it can hold anything else */
function allFinite({ integers }) {
  for (const column of [integers.nan, integers.posinf, integers.neginf])
    for (const found of column) if (found > 0) return false;
  return true;
}
