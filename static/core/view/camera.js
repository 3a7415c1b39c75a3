/** Zoom and pan for elastic drawings, which are laid out anew, and for others, which are magnified. No DOM. */

import { FRAME, TENSOR } from "../layout/sizes.js";
import { memo } from "../memo.js";
import { LEGIBLE } from "./stage.js";
import { splitZoom, TRAIL } from "./viewport.js";

// The positions of tensors along the depth, for panels that line up with them.

/** In a drawing of more boxes, only the tensors of layers have positions. */
const MAX_BOXES = 2000;

/** @param {Sight} sight @param {Viewport} viewport @returns {Map<string, number>} tensor id → x, px of the panel */
function positionsIn(sight, { x, scale }) {
  const { rect } = sight.drawing;
  return new Map(
    measuredIn(sight).map(([tensor, box]) => [tensor, x + (rect[4 * box] + rect[4 * box + 2] / 2) * scale]),
  );
}

// Each drawing has its own sight.
const measuredIn = memo(boxesOf);

/** @param {Sight} sight @returns {[string, number][]} tensor id and box */
function boxesOf({ drawing, graph, index }) {
  /** @type {[string, number][]} */
  const boxes = [];
  const { tensors, layers } = graph.topology;
  if (drawing.boxes <= MAX_BOXES) {
    for (let box = 0; box < drawing.boxes; box += 1) {
      const tensor = drawing.kind[box] === TENSOR ? tensors[drawing.ref[box]] : undefined;
      if (tensor !== undefined) boxes.push([tensor.id, box]);
    }
    return boxes;
  }
  for (const { preactivation, activation, gradient, weight } of layers) {
    for (const id of [preactivation, activation, gradient, weight]) {
      const tensor = id === null ? undefined : graph.tensorIndex.get(id);
      const box = tensor === undefined ? -1 : index.boxOf({ kind: "tensor", index: tensor, half: "forward" });
      if (id !== null && box >= 0) boxes.push([id, box]);
    }
  }
  return boxes;
}

// Events for the page.

export class GraphNews {
  /** The camera that the page knows. @type {Camera} */
  #known = { zoom: 1, at: 0, across: 0.5 };

  /** @param {TellNews} tell */
  constructor(tell) {
    this.tell = tell;
  }

  /** @param {Viewport} viewport */
  camera({ camera }) {
    this.#known = camera;
    this.tell("camera-change", { ...camera });
  }

  /** @param {Camera} camera @returns {boolean} whether the page asks for another camera than it knows */
  hears({ zoom, at, across }) {
    const known = this.#known;
    this.#known = { zoom, at, across };
    return zoom !== known.zoom || at !== known.at || across !== known.across;
  }

  /** @param {Sight} sight @param {Viewport} viewport @param {number} width of the stage; 0: it is not shown */
  axis(sight, viewport, width) {
    // Nothing lines up with a hidden stage.
    if (width === 0 && !sight.isVertical) return;
    this.tell("axis-change", { positions: sight.isVertical ? new Map() : positionsIn(sight, viewport), width });
  }
}

/** @typedef {{item: Item, shareX: number, shareY: number, x: number, y: number}} Held an item, and the point of its box
 * that stays at x, y on the screen until the next drawing */

/** Room between an open group and the border of the view, px. */
const EDGE = 6;
/** Room around a frame that is zoomed to, px. */
const AROUND = 48;
/** Scale at which a box is legible when the view moves to it. */
const READ = 0.8;

export class GraphCamera {
  /** @type {Held | null} */
  held = null;
  /** In the last request. */
  #askedLength = 0;

  /** @param {Viewport} viewport @param {{ask: () => void, draw: () => void, turned: () => void, isWaiting: () =>
   * boolean}} does isWaiting: whether a requested drawing has not arrived yet */
  constructor(viewport, does) {
    this.viewport = viewport;
    this.does = does;
  }

  /** @returns {number} along the depth, px, for a drawing to be asked for */
  length() {
    this.#askedLength = this.viewport.length * this.viewport.spread;
    return this.#askedLength;
  }

  /** Takes a drawing. @param {Sight} sight @param {boolean} isLast whether none is to come that was asked for already
   * @param {boolean} isNew whether it is of another graph @returns {boolean} whether it was put where something is
   * held */
  show({ drawing, index }, isLast, isNew) {
    const held = isNew ? null : this.held;
    const box = held === null ? -1 : index.boxOf(held.item);
    this.viewport.isHeaded = drawing.kind.includes(FRAME);
    this.viewport.show(drawing, held === null || box < 0 ? null : { ...held, box: index.rectOf(box) });
    if (isLast || isNew) this.held = null;
    return held !== null;
  }

  /** Keeps the middle of the view in the drawing of another graph. If all of this drawing is in view, so is all of the
   * next. @param {Sight} sight @param {(item: Item) => Item | null} find its counterpart in the other graph; null: it
   * has none */
  follow(sight, find) {
    const { width, height } = this.viewport.room;
    this.held = this.viewport.camera.zoom === 1 ? null : this.#nearest(sight, width / 2, height / 2, find);
  }

  /** @returns {boolean} whether the present drawing is not as wide as requested */
  isTooNarrow() {
    const { extent, length, spread } = this.viewport;
    return extent?.isElastic === true && Math.abs(length * spread - this.#askedLength) >= 1;
  }

  /** @param {Camera} camera */
  look(camera) {
    this.held = null;
    this.viewport.look(camera);
    if (this.isTooNarrow()) this.does.ask();
    else this.does.draw();
  }

  /** @param {Sight} sight @param {number} factor @param {number} [x] the fixed point; without it the middle
   * @param {number} [y] */
  zoomBy(sight, factor, x = this.viewport.room.width / 2, y = this.viewport.room.height / 2) {
    const { viewport } = this;
    if (sight.drawing.isElastic) {
      const { zoom } = splitZoom(viewport.camera.zoom * factor, sight.drawing.natural, viewport.length);
      this.#spread(sight, zoom, this.#nearest(sight, x, y));
      return;
    }
    this.held = null;
    viewport.magnifyAt(viewport.scale * factor, x, y);
    this.does.turned();
  }

  /** Centres a box at a legible size. @param {Sight} sight @param {number} box */
  zoomTo(sight, box) {
    const { viewport } = this;
    const { width, height } = viewport.room;
    const rect = sight.index.rectOf(box);
    const { natural, isElastic, kind } = sight.drawing;
    if (isElastic) {
      // To the natural size of each box, in both directions.
      const wanted = Math.max(natural, viewport.length) / (viewport.isVertical ? height : width);
      const { zoom } = splitZoom(Math.max(viewport.camera.zoom, wanted), natural, viewport.length);
      this.#spread(sight, zoom, { item: sight.index.itemOf(box), shareX: 0.5, shareY: 0.5, x: width / 2,
        y: height / 2 });
      return;
    }
    const whole = Math.min(width / (rect.width + AROUND), height / (rect.height + AROUND));
    this.held = null;
    viewport.centre(rect, kind[box] === FRAME ? Math.min(1, whole) : Math.min(whole, Math.max(viewport.scale, 1)));
    this.does.turned();
  }

  /** Pans until a box is in view, and magnifies it if it is illegible. @param {Sight} sight @param {number} box
   * @returns {boolean} whether the view moved */
  bring(sight, box) {
    const { viewport } = this;
    const { seen } = viewport;
    const rect = sight.index.rectOf(box);
    // A frame is legible on any scale.
    if (!sight.drawing.isElastic && sight.drawing.kind[box] !== FRAME && viewport.scale < LEGIBLE) {
      this.held = null;
      viewport.centre(rect, Math.min(READ, viewport.room.width / rect.width, viewport.room.height / rect.height));
      return true;
    }
    const across = isIn(rect.x, rect.width, seen.x, seen.width);
    const down = isIn(rect.y, rect.height, seen.y, seen.height);
    if (across && down) return false;
    this.held = null;
    // The shortest way; of a box larger than the view, its beginning.
    viewport.centre({
      x: across ? seen.x : rect.x,
      y: down ? seen.y : rect.y,
      width: across ? seen.width : Math.min(rect.width, seen.width),
      height: down ? seen.height : Math.min(rect.height, seen.height),
    });
    return true;
  }

  /** Moves the shortest way until all of a part is in view, and zooms out where it does not fit. A part too long for
   * legible words shows its beginning. @param {Region} part px of the drawing */
  enclose({ x, y, width, height }) {
    const { viewport } = this;
    const { room, isVertical } = viewport;
    const [across, down] = [(room.width - 2 * EDGE) / width, (room.height - TRAIL - EDGE) / height];
    const [along, aside] = isVertical ? [down, across] : [across, down];
    const scale = Math.min(viewport.scale, aside, Math.max(along, LEGIBLE));
    if (scale < viewport.scale)
      viewport.magnifyAt(scale, viewport.x + x * viewport.scale, viewport.y + y * viewport.scale);
    const [left, top] = [viewport.x + x * viewport.scale, viewport.y + y * viewport.scale];
    viewport.moveTo(viewport.x + inward(left, width * viewport.scale, EDGE, room.width - EDGE),
      viewport.y + inward(top, height * viewport.scale, TRAIL, room.height - EDGE));
  }

  /** Keeps a box's corner where it is on the screen. @param {Sight} sight @param {number} box */
  holdCorner({ index }, box) {
    const { x, y, scale } = this.viewport;
    const rect = index.rectOf(box);
    this.held = { item: index.itemOf(box), shareX: 0, shareY: 0, x: x + rect.x * scale, y: y + rect.y * scale };
  }

  /** Spreads the columns by requesting another drawing, or magnifies columns that are spread already.
   * @param {Sight} sight @param {number} zoom @param {Held} held */
  #spread(sight, zoom, held) {
    const { viewport } = this;
    viewport.camera = { ...viewport.camera, zoom };
    this.held = held;
    if (this.isTooNarrow() || this.does.isWaiting()) {
      this.does.ask();
      return;
    }
    viewport.show(sight.drawing, { ...held, box: sight.index.rectOf(sight.index.boxOf(held.item)) });
    this.held = null;
    this.does.turned();
  }

  /** @param {Sight} sight @param {number} x on the stage @param {number} y @param {(item: Item) => Item | null} [find]
   * an item's counterpart that is held; null: it has none @returns {Held} */
  #nearest({ index, drawing }, x, y, find = (item) => item) {
    const { viewport } = this;
    const [dx, dy] = [(x - viewport.x) / viewport.scale, (y - viewport.y) / viewport.scale];
    const box = Math.max(0,
      index.nearest(dx, dy,
        (candidate) => drawing.kind[candidate] !== FRAME && find(index.itemOf(candidate)) !== null));
    const rect = index.rectOf(box);
    const own = index.itemOf(box);
    return { item: find(own) ?? own, shareX: (dx - rect.x) / rect.width, shareY: (dy - rect.y) / rect.height, x, y };
  }
}

/** @param {number} start @param {number} size @param {number} from of the view @param {number} room @returns {boolean}
 * whether all of it is in view, or as much as fits */
function isIn(start, size, from, room) {
  if (size > room) return start < from + room && start + size > from;
  return start >= from - 0.5 && start + size <= from + room + 0.5;
}

/** @param {number} start on the screen, px @param {number} size @param {number} from @param {number} to of the view
 * @returns {number} the shortest way into view; if it is larger than the view, the way to its start */
function inward(start, size, from, to) {
  if (start < from) return from - start;
  return start + size > to ? Math.max(from - start, to - start - size) : 0;
}
