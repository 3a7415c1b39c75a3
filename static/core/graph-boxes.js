/**
 * The boxes of a drawing as SVG elements: as many as are worth one, taken from those that others have left. Numbers are
 * written where they change; everything else is touched only when the drawing, or what is seen of it, does.
 */

import { TOGGLE, groundOf, makeParts, shapeToggle, writeAilment, writeFigure, writeLines } from "./box-parts.js";
import { frameText, opText, tensorText } from "./box-text.js";
import { svg, write } from "./dom.js";
import { duration, quantity } from "./format.js";
import { GROUP_KINDS } from "./graph.js";
import { FRAME, GROUP, OP, TENSOR } from "./layout-sizes.js";
import { hue } from "./palette.js";

/** @typedef {import("./graph-sight.js").Sight} Sight */
/** @typedef {import("./graph-sight.js").Selection} Selection */
/** @typedef {import("./box-text.js").BoxText} BoxText */
/** @typedef {import("./types.js").Tensor} Tensor */

/** @typedef {import("./box-parts.js").BoxParts} BoxParts */

/** As many boxes may come into sight at once without their order being seen to. */
const MANY = 200;
const CODES_PER_KIND = 2 ** 25;
const RADIUS = { op: 8, tensor: 4, frame: 6 };
/** Room for a frame's header, px of the drawing. */
const HEADER = 30;
/** Where it is beside a frame, px of the screen. */
const OUTSIDE = 9;
const HALF_LETTER = 4;
/** px of the screen per px of the drawing from which on a header has room for its words. */
const LEAST_HEADED = 0.46;
const HEADER_INSET = 6;

export class BoxLayer {
  frames = svg("g", { class: "frames" });
  boxes = svg("g", { class: "boxes" });
  /** @type {Map<number, BoxParts>} */
  #parts = new Map();
  /** @type {BoxParts[]} */
  #spare = [];
  /** @type {import("./types.js").Graph | null} */
  #graph = null;

  /** @returns {Iterable<BoxParts>} */
  get parts() {
    return this.#parts.values();
  }

  /** @param {Sight} sight @param {number} box @returns {BoxParts | undefined} */
  partsOf(sight, box) {
    return box < 0 ? undefined : this.#parts.get(codeOf(sight, box));
  }

  /**
   * Has an element for each of these boxes, and for no other.
   *
   * @param {Sight} sight
   * @param {readonly number[]} chosen in the drawing's order
   * @param {(sight: Sight, box: number) => string} idOf
   */
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
      Object.assign(parts, { code, box, id: idOf(sight, box), shape: "", ailment: "", isWarning: false });
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
    // In the drawing's order, so that inner frames are above outer ones and a reader meets boxes as they are run; of boxes
    // that come and go while one pans, those that stay are not moved for it.
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

  /** @param {Sight} sight @param {BoxParts} parts */
  #shape(sight, parts) {
    const { drawing, graph, scale } = sight;
    const { box, root, frame } = parts;
    const kind = drawing.kind[box] ?? OP;
    const [x, y, w, h] = [drawing.rect[4 * box] ?? 0, drawing.rect[4 * box + 1] ?? 0, drawing.rect[4 * box + 2] ?? 0, drawing.rect[4 * box + 3] ?? 0];
    const shape = `${kind} ${x} ${y} ${w} ${h} ${kind === FRAME ? scale : ""} ${graph.groupId.length}`;
    if (shape === parts.shape) return;
    parts.shape = shape;
    const index = drawing.ref[box] ?? 0;
    const half = drawing.half[box] === 1 ? "backward" : "forward";
    parts.tensor = kind === TENSOR ? (graph.topology.tensors[index] ?? null) : null;
    parts.kind = kindOf(sight, kind, index, half, parts.tensor);
    frame.setAttribute("x", x.toFixed(2));
    frame.setAttribute("y", y.toFixed(2));
    frame.setAttribute("width", w.toFixed(2));
    frame.setAttribute("height", h.toFixed(2));
    frame.setAttribute("rx", String(Math.min(kind === FRAME ? RADIUS.frame : kind === TENSOR ? RADIUS.tensor : RADIUS.op, w / 3)));
    parts.text = kind === FRAME ? null : textOf(sight, kind, index, w, h, half);
    root.dataset["level"] = parts.text?.level ?? "wide";
    root.dataset["scalar"] = String(parts.text?.isScalar ?? false);
    write(root, "aria-level", String((kind === TENSOR || kind === OP ? sight.index.framesAround(box).length : (graph.arrays.groupDepth[index] ?? 0)) + 1));
    if (kind === GROUP || kind === FRAME) write(root, "aria-expanded", String(kind === FRAME));
    else root.removeAttribute("aria-expanded");
    // On the corner, where no words are.
    shapeToggle(parts, kind, x + w - 0.7 * TOGGLE, y - 0.35 * TOGGLE, w);
    if (kind === FRAME) this.#head(sight, parts, x, y, w, h);
    else writeLines(parts, x, y);
  }

  /** The line that a frame is headed with, on its side away from the axis. @param {Sight} sight @param {BoxParts} parts @param {number} x @param {number} y @param {number} w @param {number} h */
  #head({ graph, drawing, scale, isVertical }, { box, name, value, toggle }, x, y, w, h) {
    const unit = 1 / Math.min(1, scale);
    const isBelow = drawing.half[box] === 1 && !isVertical;
    // Where the header is too low for it, the outermost frames have it outside, where there is room.
    const isOutside = scale < LEAST_HEADED;
    const middle = isOutside ? -OUTSIDE * unit : HEADER / 2;
    const line = y + (isBelow ? h - middle : middle) + HALF_LETTER * unit;
    const before = (TOGGLE + 2 * HEADER_INSET) * unit;
    const isNamed = !isOutside || (drawing.frame[box] ?? -1) < 0;
    const text = isNamed ? frameText(graph.groupLabel[drawing.ref[box] ?? 0] ?? "", w, scale, before + HEADER_INSET * unit) : null;
    name.replaceChildren(text === null ? "" : text.text);
    name.style.fontSize = `${(text?.size ?? 11).toFixed(2)}px`;
    name.setAttribute("text-anchor", "start");
    name.setAttribute("x", (x + before).toFixed(1));
    name.setAttribute("y", line.toFixed(1));
    value.textContent = "";
    toggle?.setAttribute("visibility", isNamed ? "inherit" : "hidden");
    toggle?.setAttribute("transform", `translate(${(x + HEADER_INSET * unit).toFixed(1)} ${(line - (HALF_LETTER + TOGGLE / 2) * unit).toFixed(1)}) scale(${unit.toFixed(3)})`);
  }

  /** The numbers of the picture, and its colours. @param {Sight} sight */
  write(sight) {
    const { picture, drawing, facts } = sight;
    const isWell = facts.isHealthy && allFinite(picture);
    for (const parts of this.#parts.values()) {
      const kind = drawing.kind[parts.box];
      if (kind === TENSOR) writeFigure(sight, parts);
      else {
        if (parts.value.firstChild !== null) parts.value.textContent = "";
        if (kind === GROUP) {
          const half = drawing.half[parts.box] === 1 ? "backward" : "forward";
          writeAilment(parts, isWell ? null : facts.ailment(picture, drawing.ref[parts.box] ?? 0, half), sight.index.rectOf(parts.box));
        } else if (parts.ailment !== "") writeAilment(parts, null, sight.index.rectOf(parts.box));
      }
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
      const ground = fill === "" ? "" : groundOf(fill);
      if (ground === parts.ground) continue;
      if (parts.ground !== "") parts.root.classList.remove(parts.ground);
      if (ground !== "") parts.root.classList.add(ground);
      parts.ground = ground;
    }
  }

  /** Which are selected, linked to that, dimmed. @param {Sight} sight @param {Selection} selection */
  mark({ lit, drawing }, { selected, twin, holder, focused }) {
    for (const parts of this.#parts.values()) {
      const { root, box } = parts;
      const marks = [];
      if (box === selected) marks.push("selected");
      if (box === twin) marks.push("twin");
      if (box === holder) marks.push("holds-selection");
      // A frame is what others stand in: it is neither.
      if (lit !== null && drawing.kind[box] !== FRAME) marks.push(lit[box] === 1 || box === selected ? "lit" : "dimmed");
      if (parts.isWarning) marks.push("warning");
      if (parts.ground !== "") marks.push(parts.ground);
      write(root, "class", ["box", parts.kind, ...marks].join(" "));
      write(root, "aria-selected", String(box === selected));
      write(root, "tabindex", box === focused ? "0" : "-1");
    }
  }
}

/** @param {Sight} sight @param {number} box @returns {number} the same for a thing in every drawing of it, open or closed */
function codeOf({ drawing }, box) {
  const kind = Math.min(drawing.kind[box] ?? 0, GROUP);
  return (kind * 2 + (drawing.half[box] ?? 0)) * CODES_PER_KIND + (drawing.ref[box] ?? 0);
}

/** @param {Sight} sight @param {number} kind @param {number} index @param {"forward" | "backward"} half @param {Tensor | null} tensor @returns {string} */
function kindOf({ graph }, kind, index, half, tensor) {
  if (tensor !== null) return `tensor ${hue(half, tensor.role)}`;
  if (kind === OP) return `op ${half}`;
  if (kind === FRAME) return `open ${half}`;
  return `op group ${graph.arrays.groupIsLeaf[index] === 1 ? "leaf" : "branch"} ${half}`;
}

/** @param {Sight} sight @param {number} kind @param {number} index @param {number} w @param {number} h @param {"forward" | "backward"} half @returns {BoxText} */
function textOf({ graph, facts }, kind, index, w, h, half) {
  const { arrays } = graph;
  if (kind === TENSOR) return tensorText(graph.tensorLabel[index] ?? "", w, h, arrays.elements[index] === 1);
  if (kind === OP) return opText(graph.opLabel[index] ?? "", [], w, h, false);
  const repeats = arrays.groupRepeats[index] ?? 0;
  if (arrays.groupIsLeaf[index] === 1 && repeats === 0) return opText(graph.groupLabel[index] ?? "", [], w, h, false);
  const label = `${graph.groupLabel[index] ?? ""}${GROUP_KINDS[arrays.groupKind[index] ?? 0] === "fold" ? ` × ${repeats}` : ""}`;
  const notes = [];
  const parameters = facts.parameters(index);
  if (parameters > 0) notes.push(`${quantity(parameters, "")} params`.replace("  ", " "));
  const time = facts.time(index, half);
  if (time !== null) notes.push(duration(time));
  return opText(label, notes, w, h, repeats > 0);
}

/** @param {import("./types.js").Picture} picture @returns {boolean} whether no group of it can hold anything else */
function allFinite({ integers }) {
  for (const column of [integers.nan, integers.posinf, integers.neginf]) for (const found of column) if (found > 0) return false;
  return true;
}
