/**
 * <layer-profile>: std (or mean) per layer on a logarithmic axis, activations upward and gradients mirrored beneath,
 * each dot under its tensor in the graph. Zero, ±Inf and NaN have lanes of their own, so that nothing disappears.
 *
 * Set `picture`, `axis`, `statistic`, `selection`. Events, bubbling: `tensor-select` {tensor}, `statistic-change`
 * {statistic}.
 */

import { emit, html, svg } from "../core/dom.js";
import { significant, valueAt } from "../core/format.js";
import { SYMBOL } from "../core/labels.js";
import { nonFinite } from "../core/picture.js";
import { decadeLabel, decadeRange, decadeTicks, layerTicks } from "../core/scales.js";

/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").DepthAxis} DepthAxis */
/** @typedef {import("../core/types.js").Statistic} Statistic */

/** @typedef {"preactivation" | "activation"} Series */
/** @typedef {{layer: number, name: string, series: Series, tensor: string | null, gradient: string | null, x: number}} Point */
/** @typedef {{x: number, y: number, isNegative: boolean, lane: "" | "zero" | "inf" | "nan"}} Mark */

const LANE = 12;
const AXIS_HALF = 10;
const EDGE = 4;
const LEFT = 46;
const REST_MS = 400;

class LayerProfile extends HTMLElement {
  /** @type {Picture | null} */
  #picture = null;
  /** @type {DepthAxis} */
  #axis = { positions: new Map(), width: 0 };
  /** @type {Statistic} */
  #statistic = "std";
  #selection = "";
  /** Decades shown above and below; while the slider moves they only grow. @type {[[number, number], [number, number]] | null} */
  #decades = null;
  #rest = 0;
  /** @type {Point[]} */
  #points = [];
  #hovered = -1;

  #title = html("h2");
  #readout = html("p", { class: "readout" });
  #switch = html("div", { class: "segmented small", role: "group", "aria-label": "Statistic" });
  #frame = html("div", { class: "frame" });
  #svg = svg("svg", { class: "profile-svg", role: "img" });

  connectedCallback() {
    for (const [statistic, text] of /** @type {const} */ ([["std", "σ std"], ["mean", "μ mean"]])) {
      const button = html("button", { type: "button", "data-statistic": statistic }, text);
      button.addEventListener("click", () => emit(this, "statistic-change", { statistic }));
      this.#switch.append(button);
    }
    this.#frame.append(this.#svg);
    this.append(html("header", {}, this.#title, this.#readout, this.#switch), this.#frame);
    new ResizeObserver(() => this.#draw()).observe(this.#frame);
    this.#svg.addEventListener("pointermove", (event) => this.#hover(event));
    this.#svg.addEventListener("pointerleave", () => this.#unhover());
    this.#svg.addEventListener("click", () => {
      const tensor = this.#points[this.#hovered]?.tensor;
      if (tensor != null) emit(this, "tensor-select", { tensor });
    });
    this.statistic = this.#statistic;
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    if (picture?.key !== this.#picture?.key) this.#decades = null;
    this.#picture = picture;
    this.#draw();
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => {
      this.#decades = null;
      this.#draw();
    }, REST_MS);
  }

  /** @param {DepthAxis} axis */
  set axis(axis) {
    this.#axis = axis;
    this.#draw();
  }

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    this.#statistic = statistic;
    this.#decades = null;
    this.#title.textContent = statistic === "std" ? "Std per layer" : "Mean per layer";
    for (const button of this.#switch.children) {
      button.setAttribute("aria-pressed", String(button instanceof HTMLElement && button.dataset["statistic"] === statistic));
    }
    this.#draw();
  }

  /** @param {string} tensor id of the selected tensor, "" for none */
  set selection(tensor) {
    this.#selection = tensor;
    this.#draw();
  }

  #draw() {
    const picture = this.#picture;
    const { clientWidth: width, clientHeight: height } = this.#frame;
    if (picture === null || width === 0 || height === 0) return;
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.#points = this.#place(picture, width);
    if (this.#points.length === 0) {
      const note = svg("text", { class: "empty", x: width / 2, y: height / 2, "text-anchor": "middle" }, "This graph is not a chain of layers.");
      this.#svg.replaceChildren(note);
      return;
    }
    const tensors = this.#points.map(({ tensor }) => tensor);
    const gradients = this.#points.map(({ gradient }) => gradient);
    const needed = [this.#range(picture, tensors), this.#range(picture, gradients)];
    const [up = [-1, 1], down = [-1, 1]] = needed;
    this.#decades =
      this.#decades === null
        ? [up, down]
        : [
            [Math.min(this.#decades[0][0], up[0]), Math.max(this.#decades[0][1], up[1])],
            [Math.min(this.#decades[1][0], down[0]), Math.max(this.#decades[1][1], down[1])],
          ];

    const middle = height / 2;
    const upper = new Half(middle - AXIS_HALF, EDGE, this.#decades[0]);
    const lower = new Half(middle + AXIS_HALF, height - EDGE, this.#decades[1]);
    this.#svg.replaceChildren(
      ...this.#layerBands(height, width),
      ...upper.grid(width),
      ...lower.grid(width),
      ...this.#layerLabels(middle, width),
      ...this.#series(picture, upper, "forward", (point) => point.tensor),
      ...this.#series(picture, lower, "backward", (point) => point.gradient),
      ...this.#cursor(height),
      // What is panned out to the left goes beneath the scale.
      svg("rect", { class: "margin", x: 0, y: 0, width: LEFT - 5, height }),
      ...upper.labels("activations"),
      ...lower.labels("gradients"),
    );
    this.#svg.setAttribute("aria-label", this.#summary(picture));
    this.#say();
  }

  /**
   * One point per preactivation and activation, and the input before them.
   *
   * @param {Picture} picture
   * @param {number} width
   * @returns {Point[]}
   */
  #place({ topology }, width) {
    const gradientOf = new Map(topology.tensors.flatMap(({ id, gradient_of }) => (gradient_of === null ? [] : [[gradient_of, id]])));
    const names = new Map(topology.tensors.map(({ id, name }) => [id, name]));
    /** @type {Omit<Point, "x">[]} */
    const points = [];
    /** @param {number} layer @param {Series} series @param {string | null} tensor @param {string | null} [gradient] */
    const add = (layer, series, tensor, gradient) => {
      if (tensor === null) return;
      points.push({ layer, series, tensor, gradient: gradient ?? gradientOf.get(tensor) ?? null, name: names.get(tensor) ?? tensor });
    };
    if (topology.layers.length === 0) return [];
    add(0, "activation", topology.tensors.find(({ role }) => role === "input")?.id ?? null);
    for (const { index, preactivation, activation, gradient } of topology.layers) {
      if (preactivation !== activation) add(index, "preactivation", preactivation);
      add(index, "activation", activation, gradient);
    }
    const step = (width - LEFT - 24) / Math.max(1, points.length - 1);
    return points.map((point, order) => ({ ...point, x: this.#axis.positions.get(point.tensor ?? "") ?? LEFT + 8 + order * step }));
  }

  /** @param {Picture} picture @param {readonly (string | null)[]} tensors @returns {[number, number]} */
  #range(picture, tensors) {
    const column = picture.floats[this.#statistic];
    return decadeRange(
      tensors.map((tensor) => {
        const value = valueAt(column, picture.rows.get(tensor ?? ""));
        return value === null ? null : Math.abs(value);
      }),
    );
  }

  /**
   * Where a tensor's figure goes: on the axis, and into a lane for what the axis cannot show.
   *
   * @param {Picture} picture
   * @param {Half} half
   * @param {string} tensor
   * @param {number} x
   * @returns {Mark[]}
   */
  #marks(picture, half, tensor, x) {
    const row = picture.rows.get(tensor);
    if (row === undefined) return [];
    const value = valueAt(picture.floats[this.#statistic], row);
    /** @type {Mark[]} */
    const marks = [];
    if (value !== null) {
      marks.push({ x, y: value === 0 ? half.zero : half.y(Math.abs(value)), isNegative: value < 0, lane: value === 0 ? "zero" : "" });
    }
    const bad = nonFinite(picture, row);
    if (bad?.word === "NaN") marks.push({ x, y: half.nan, isNegative: false, lane: "nan" });
    const infinite = (picture.integers.posinf[row] ?? 0) + (picture.integers.neginf[row] ?? 0);
    if (infinite > 0) marks.push({ x, y: half.inf, isNegative: false, lane: "inf" });
    return marks;
  }

  /**
   * @param {Picture} picture
   * @param {Half} half
   * @param {"forward" | "backward"} phase
   * @param {(point: Point) => string | null} pick
   * @returns {SVGElement[]}
   */
  #series(picture, half, phase, pick) {
    const dense = this.#points.length > 40;
    const radius = dense ? 2 : 3.5;
    const drawn = [];
    for (const series of /** @type {const} */ (["preactivation", "activation"])) {
      let path = "";
      let isBroken = true;
      let dots = "";
      let warnings = "";
      for (const point of this.#points) {
        // The input is where the line starts; it is nobody's preactivation.
        if (point.series !== series) continue;
        const tensor = pick(point);
        const marks = tensor === null ? [] : this.#marks(picture, half, tensor, point.x);
        const onAxis = marks.find(({ lane }) => lane === "");
        if (onAxis !== undefined) path += `${isBroken ? "M" : "L"}${onAxis.x.toFixed(1)} ${onAxis.y.toFixed(1)}`;
        isBroken = onAxis === undefined;
        for (const mark of marks) {
          if (mark.lane === "inf" || mark.lane === "nan") warnings += cross(mark.x, mark.y, 3);
          else dots += mark.isNegative ? triangle(mark.x, mark.y, radius + 0.5) : disc(mark.x, mark.y, radius);
        }
      }
      drawn.push(
        svg("path", { class: `line ${phase} ${series}`, d: path || "M0 0" }),
        svg("path", { class: `dots ${phase} ${series}`, d: dots || "M0 0" }),
        svg("path", { class: "crosses", d: warnings || "M0 0" }),
      );
    }
    return drawn;
  }

  /** @param {number} height @param {number} width @returns {SVGElement[]} every other layer shaded, as wide as in the graph */
  #layerBands(height, width) {
    return this.#layerSpans(width)
      .filter(({ layer }) => layer % 2 === 1)
      .map(({ from, to }) => svg("rect", { class: "band", x: from, y: 0, width: Math.max(0, to - from), height }));
  }

  /** @param {number} width @returns {{layer: number, from: number, to: number, middle: number}[]} */
  #layerSpans(width) {
    /** @type {Map<number, number[]>} */
    const positions = new Map();
    for (const { layer, x } of this.#points) positions.set(layer, [...(positions.get(layer) ?? []), x]);
    const ends = [...positions].map(([layer, xs]) => ({ layer, first: Math.min(...xs), last: Math.max(...xs) }));
    return ends.map(({ layer, first, last }, order) => {
      const before = ends[order - 1]?.last ?? 2 * first - (ends[order + 1]?.first ?? width);
      const after = ends[order + 1]?.first ?? 2 * last - before;
      return { layer, from: Math.max(0, (before + first) / 2), to: Math.min(width, (last + after) / 2), middle: (first + last) / 2 };
    });
  }

  /** @param {number} middle @param {number} width @returns {SVGElement[]} */
  #layerLabels(middle, width) {
    const spans = this.#layerSpans(width);
    const count = spans.at(-1)?.layer ?? 0;
    const pitch = count > 0 ? Math.abs((spans.at(-1)?.middle ?? 0) - (spans[1]?.middle ?? 0)) : width;
    const ticks = new Set(layerTicks(count, Math.max(pitch, 1), 26));
    const roomy = count <= 8;
    return spans.flatMap(({ layer, middle: x }) => {
      if (x < -20 || x > width + 20 || (layer !== 0 && !ticks.has(layer))) return [];
      if (layer === 0 && !roomy) return [];
      const text = layer === 0 ? "input" : roomy ? `layer ${layer}` : String(layer);
      return [svg("text", { class: "layer-label", x, y: middle + 4, "text-anchor": "middle" }, text)];
    });
  }

  /** @param {number} height @returns {SVGElement[]} */
  #cursor(height) {
    const at = this.#points[this.#hovered] ?? this.#points.find(({ tensor, gradient }) => this.#selection !== "" && (tensor === this.#selection || gradient === this.#selection));
    return at === undefined ? [] : [svg("line", { class: "cursor", x1: at.x, x2: at.x, y1: 0, y2: height })];
  }

  /** @param {PointerEvent} event */
  #hover(event) {
    const x = event.clientX - this.#frame.getBoundingClientRect().left;
    let nearest = -1;
    let least = 40;
    this.#points.forEach((point, order) => {
      if (Math.abs(point.x - x) < least) [nearest, least] = [order, Math.abs(point.x - x)];
    });
    if (nearest === this.#hovered) return;
    this.#hovered = nearest;
    this.#draw();
  }

  #unhover() {
    this.#hovered = -1;
    this.#draw();
  }

  /** The figures under the pointer, in words; without one, what the marks mean. */
  #say() {
    const picture = this.#picture;
    const point = this.#points[this.#hovered];
    if (picture === null || point === undefined) {
      const key = html("span", { class: "key" });
      const hasPreactivations = this.#points.some(({ series }) => series === "preactivation");
      if (hasPreactivations) key.append(html("i", { class: "dot hollow" }), "preactivation ");
      key.append(html("i", { class: "dot" }), "activation ", html("i", { class: "dot backward" }), "gradient, mirrored");
      if (this.#statistic === "mean") key.append(html("i", { class: "tri" }), "negative");
      this.#readout.replaceChildren(key);
      return;
    }
    const column = picture.floats[this.#statistic];
    const symbol = SYMBOL[this.#statistic];
    const value = significant(valueAt(column, picture.rows.get(point.tensor ?? "")));
    const gradient = significant(valueAt(column, picture.rows.get(point.gradient ?? "")));
    const layer = point.layer === 0 ? "input" : `layer ${point.layer}`;
    this.#readout.textContent = `${layer}: ${point.name} ${symbol} ${value}${point.gradient === null ? "" : ` · gradient ${symbol} ${gradient}`}`;
  }

  /** @param {Picture} picture @returns {string} */
  #summary(picture) {
    const column = picture.floats[this.#statistic];
    const [first, last] = [this.#points[0], this.#points.at(-1)];
    const of = (/** @type {Point | undefined} */ point) => `${point?.name} ${significant(valueAt(column, picture.rows.get(point?.tensor ?? "")))}`;
    return `${this.#title.textContent}: from ${of(first)} to ${of(last)}. Every figure stands in the inspector's table of layers.`;
  }
}

/** One half of the chart: a logarithmic axis between a lane for zero, next to the middle, and lanes for Inf and NaN outside. */
class Half {
  /**
   * @param {number} inner y of its side next to the middle
   * @param {number} outer y of its far side
   * @param {[number, number]} decades
   */
  constructor(inner, outer, decades) {
    this.away = Math.sign(outer - inner);
    this.zero = inner + this.away * LANE * 0.5;
    this.low = inner + this.away * LANE * 1.5;
    this.high = outer - this.away * LANE * 2.4;
    this.inf = outer - this.away * LANE * 1.4;
    this.nan = outer - this.away * LANE * 0.5;
    this.decades = decades;
  }

  /** @param {number} value above zero @returns {number} */
  y(value) {
    return this.#at(Math.log10(value));
  }

  /** @param {number} exponent @returns {number} */
  #at(exponent) {
    const [first, last] = this.decades;
    const share = Math.min(1, Math.max(0, (exponent - first) / (last - first)));
    return this.low + share * (this.high - this.low);
  }

  /** @returns {{text: string, y: number, kind: string}[]} */
  get #ticks() {
    const [first, last] = this.decades;
    const exponents = decadeTicks(first, last, Math.abs(this.high - this.low), 13);
    return [
      ...exponents.map((exponent) => ({ text: decadeLabel(exponent), y: this.#at(exponent), kind: "" })),
      { text: "0", y: this.zero, kind: "lane" },
      { text: "Inf", y: this.inf, kind: "lane" },
      { text: "NaN", y: this.nan, kind: "lane" },
    ];
  }

  /** @param {number} width @returns {SVGElement[]} */
  grid(width) {
    return this.#ticks.map(({ y, kind }) => svg("line", { class: `grid ${kind}`, x1: LEFT - 4, x2: width, y1: y, y2: y }));
  }

  /** @param {string} title @returns {SVGElement[]} */
  labels(title) {
    const ticks = this.#ticks.map(({ text, y, kind }) =>
      svg("text", { class: `tick ${kind}`, x: LEFT - 8, y: y + 3.5, "text-anchor": "end" }, text),
    );
    const level = (this.low + this.high) / 2;
    return [...ticks, svg("text", { class: `side ${title}`, transform: `translate(11 ${level}) rotate(-90)`, "text-anchor": "middle" }, title)];
  }
}

/** @param {number} x @param {number} y @param {number} r @returns {string} */
function disc(x, y, r) {
  return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
}

/** @param {number} x @param {number} y @param {number} r @returns {string} pointing down: a negative value */
function triangle(x, y, r) {
  return `M${(x - r).toFixed(1)} ${(y - r * 0.8).toFixed(1)}h${2 * r}l${-r} ${r * 1.8}z`;
}

/** @param {number} x @param {number} y @param {number} r @returns {string} */
function cross(x, y, r) {
  return `M${(x - r).toFixed(1)} ${(y - r).toFixed(1)}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
}

customElements.define("layer-profile", LayerProfile);
