/** Where ±Inf and NaN begin, in the profile: a rule through the layer, named in the lane where its crosses start. */

import { decadeLabel, decadeTicks, layerTicks } from "../scales.js";
import { svg, write } from "../dom.js";

// The profile's depth axis: places of the points, and the span of each layer.

const LETTER = 6.5;
const SHORTEST = 4;

/** Width of the value axis, px. */
export const LEFT = 46;

/** @param {readonly ProfilePoint[]} points @param {DepthAxis} axis where the graph has their tensors
 * @param {number} width @returns {number[]} x of every point; evenly spread where the graph has none */
export function places(points, { positions }, width) {
  const step = (width - LEFT - 24) / Math.max(1, points.length - 1);
  return points.map(({ at }, order) => positions.get(at) ?? LEFT + 8 + order * step);
}

/** @param {readonly ProfilePoint[]} points @param {readonly number[]} xs @param {number} width */
export function spansOf(points, xs, width) {
  /** @type {{layer: number, title: string, first: number, last: number}[]} */
  const ends = [];
  points.forEach(({ layer, title }, order) => {
    const x = xs[order];
    const end = ends.at(-1);
    if (end?.layer === layer) [end.first, end.last] = [Math.min(end.first, x), Math.max(end.last, x)];
    else ends.push({ layer, title, first: x, last: x });
  });
  return ends.map(({ layer, title, first, last }, order) => {
    const before = ends[order - 1]?.last ?? 2 * first - (ends[order + 1]?.first ?? width);
    const after = ends[order + 1]?.first ?? 2 * last - before;
    return { layer, title, from: Math.max(0, (before + first) / 2), to: Math.min(width, (last + after) / 2),
      middle: (first + last) / 2 };
  });
}

/** @param {readonly LayerSpan[]} spans @param {number} width
 * @returns {{x: number, text: string}[]} the labels there is room for */
function layerLabels(spans, width) {
  const layers = spans.filter(({ layer }) => layer > 0);
  const [first, last] = [layers[0], layers.at(-1)];
  if (first === undefined || last === undefined) return [];
  const ticks = new Set(layerTicks(last.layer, Math.max(Math.abs(last.middle - first.middle), 1), 26));
  const isRoomy = last.layer <= 8;
  return spans.flatMap(({ layer, title, from, to, middle: x }) => {
    if (x < -20 || x > width + 20 || (layer === 0 ? !isRoomy : !ticks.has(layer))) return [];
    const text = layer === 0 ? "input" : isRoomy ? shortened(title, 2 * Math.min(x - from, to - x)) : String(layer);
    const half = (text.length * LETTER) / 2;
    // The first and the last stay within the chart.
    return [{ x: x < LEFT ? x : Math.min(Math.max(x, LEFT + half), width - half), text }];
  });
}

/** A title as far as there is room for it: what tells paths apart is at their ends, types come after them.
 * @param {string} title "layer 3" or "block.mlp.0 (Linear)" @param {number} room px */
function shortened(title, room) {
  if (/^layer \d+$/.test(title)) return title;
  const path = title.replace(/ \([^()]*\)$/, "");
  const letters = Math.max(SHORTEST, Math.floor(room / LETTER));
  return path.length <= letters ? path : `…${path.slice(1 - letters)}`;
}

// The value axis of one half of the profile: decades, or a share of 100 %, between lanes for what has no place on it.

/** @typedef {{text: string, y: number, isLane: boolean}} Tick */

const LANE = 12;
const SHARES = [0, 0.25, 0.5, 0.75, 1];

/** From the bottom upwards: a lane for zero (on a logarithmic axis), the axis, lanes for Inf and for NaN. */
export class ProfileAxis {
  /** @param {number} bottom y of its bottom @param {number} top y of its top
   * @param {readonly [number, number] | null} decades first and last exponent; null: linear, 0 to 1 */
  constructor(bottom, top, decades) {
    this.bottom = bottom;
    this.low = bottom - LANE * (decades === null ? 0.5 : 1.5);
    this.zero = decades === null ? this.low : bottom - LANE * 0.5;
    this.high = top + LANE * 2.4;
    this.inf = top + LANE * 1.4;
    this.nan = top + LANE * 0.5;
    this.decades = decades;
  }

  /** @param {number} value of a logarithmic axis the magnitude counts @returns {number} at most at an end */
  y(value) {
    if (value === 0) return this.zero;
    if (this.decades === null) return this.#between(value);
    const [first, last] = this.decades;
    return this.#between((Math.log10(Math.abs(value)) - first) / (last - first));
  }

  /** @param {number} share */
  #between(share) {
    return this.low + Math.min(1, Math.max(0, share)) * (this.high - this.low);
  }

  /** @returns {Tick[]} */
  get ticks() {
    const lanes = [
      { text: "Inf", y: this.inf, isLane: true },
      { text: "NaN", y: this.nan, isLane: true },
    ];
    if (this.decades === null) {
      const shares = Math.abs(this.high - this.low) < 90 ? SHARES.filter((share) => share % 0.5 === 0) : SHARES;
      return [...shares.map((share) => ({ text: `${share * 100} %`, y: this.#between(share), isLane: false })),
        ...lanes];
    }
    const [first, last] = this.decades;
    const exponents = decadeTicks(first, last, Math.abs(this.high - this.low), 13);
    const decades = exponents.map((exponent) => ({ text: decadeLabel(exponent),
      y: this.#between((exponent - first) / (last - first)), isLane: false })
    );
    return [...decades, { text: "0", y: this.zero, isLane: true }, ...lanes];
  }
}

// The profile's background: stripes for layers, grid lines, the scale at the left.

/** With more layers, stripes of one layer would flicker: they are ten layers wide. */
const CROWD = 80;
const TEN = 10;

/** @param {readonly LayerSpan[]} spans @param {{width: number, height: number}} size @param {number} stripAt where the
 * layers' numbers stand
 * @returns {SVGElement[]} what goes beneath the marks: every other layer is shaded, as wide as in the graph */
export function ground(spans, { width, height }, stripAt) {
  return [
    ...stripes(spans).map(({ from, to }) =>
      svg("rect", { class: "band", x: from, y: 0, width: Math.max(0, to - from), height })
    ),
    ...layerLabels(spans, width).map(({ x, text }) =>
      svg("text", { class: "layer-label", x, y: stripAt + 4, "text-anchor": "middle" }, text)
    ),
  ];
}

/** @param {readonly ProfileAxis[]} axes @param {number} width @returns {SVGElement[]} */
export function grid(axes, width) {
  return axes.flatMap(({ ticks }) =>
    ticks.map(({ y, isLane }) =>
      svg("line", { class: `grid${isLane ? " lane" : ""}`, x1: LEFT - 4, x2: width, y1: y, y2: y })
    )
  );
}

/** @param {readonly LayerSpan[]} spans @returns {{from: number, to: number}[]} every other layer, or ten of them */
function stripes(spans) {
  if (spans.length <= CROWD) return spans.filter(({ layer }) => layer % 2 === 1);
  return spans.flatMap(({ layer, from }, order) =>
    layer % (2 * TEN) === 1 ? [{ from, to: spans[Math.min(spans.length, order + TEN) - 1]?.to ?? from }] : []
  );
}

/** @param {readonly {axis: ProfileAxis, side: string, label: string}[]} halves @param {number} height
 * @returns {SVGElement[]} what goes above them: marks that are panned out to the left disappear beneath it */
export function scale(halves, height) {
  return [
    svg("rect", { class: "margin", x: 0, y: 0, width: LEFT - 5, height }),
    ...halves.flatMap(({ axis, side, label }) => [
      ...axis.ticks.map(({ text, y, isLane }) =>
        svg("text", { class: `tick${isLane ? " lane" : ""}`, x: LEFT - 8, y: y + 3.5, "text-anchor": "end" }, text)
      ),
      svg("text", { class: `side ${side}`, transform: `translate(10 ${(axis.low + axis.high) / 2}) rotate(-90)`,
        "text-anchor": "middle" }, label),
    ]),
  ];
}

/** Room that a label takes. */
const LABEL = 58;
const GAP = 6;
const LINE = 12;
const BENEATH = 8;

export class CauseMarks {
  root = svg("g");
  /** @type {Record<NonFiniteKind, {group: SVGGElement, rule: SVGLineElement, label: SVGTextElement}>} */
  #marks = { Inf: mark("Inf"), NaN: mark("NaN") };

  constructor() {
    this.root.append(this.#marks.Inf.group, this.#marks.NaN.group);
  }

  /** @param {readonly NonFiniteCause[]} causes those that have a place in the chart
   * @param {(cause: NonFiniteCause) => number} xOf @param {Record<ProfileSide, ProfileAxis | null>} axes @param {(kind:
   * NonFiniteKind, side: ProfileSide, from: number, to: number) => boolean} isFree whether a stretch of a lane has no
   * crosses @param {number} width of the chart */
  draw(causes, xOf, axes, isFree, width) {
    for (const kind of /** @type {const} */ (["Inf", "NaN"])) {
      const cause = causes.find((each) => each.kind === kind);
      const { group, rule, label } = this.#marks[kind];
      const x = cause === undefined ? -1 : xOf(cause);
      /** @type {ProfileSide} */
      const side = cause?.isBackward === true && axes.backward !== null ? "backward" : "forward";
      const axis = axes[side];
      const isShown = axis !== null && x >= LEFT && x <= width;
      write(group, "visibility", isShown ? "visible" : "hidden");
      if (!isShown) continue;

      // Before it in the order of execution its lane is empty, as a rule; else the label goes beneath the lanes.
      const lane = kind === "Inf" ? axis.inf : axis.nan;
      const [hasLeft, hasRight] = [x - LABEL > LEFT, x + LABEL < width];
      const isLeftFree = hasLeft && isFree(kind, side, x - LABEL, x - 1);
      const isRightFree = hasRight && isFree(kind, side, x + 1, x + LABEL);
      const isLeft = cause?.isBackward === true ? !isRightFree && hasLeft : isLeftFree || (!isRightFree && !hasRight);
      const beneath = kind === "Inf" ? BENEATH : BENEATH + LINE;
      write(label, "text-anchor", isLeft ? "end" : "start");
      write(label, "x", (x + (isLeft ? -GAP : GAP)).toFixed(1));
      write(label, "y", ((isLeft ? isLeftFree : isRightFree) ? lane + 3.5 : axis.high + beneath + 3.5).toFixed(1));
      write(rule, "x1", x.toFixed(1));
      write(rule, "x2", x.toFixed(1));
      write(rule, "y1", axis.bottom.toFixed(1));
      write(rule, "y2", lane.toFixed(1));
    }
  }
}

/** @param {NonFiniteKind} kind */
function mark(kind) {
  const rule = svg("line", { class: "cause-rule" });
  const label = svg("text", { class: "cause-label" }, `first ${kind}`);
  return { group: svg("g", { class: "cause-mark", "data-kind": kind, visibility: "hidden" }, rule, label), rule,
    label };
}
