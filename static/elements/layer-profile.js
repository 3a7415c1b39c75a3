/** <layer-profile>: one statistic per layer, each dot under its tensor in the graph: measured, expected by theory,
 * and of the pinned run. Std and mean have a logarithmic axis, and the gradients' own beneath. If theory has no
 * value, the read-out gives the reason. Zero, ±Inf and NaN have their own lanes; where they begin, a line explains
 * the arithmetic.
 * Set `picture`, `theory`, `pinned`, `axis`, `statistic`, `selection`; `isHeld` while the slider is held. Events, bubbling: `tensor-select` {tensor},
 * `statistic-change` {statistic}. */

import { cancel, later } from "../core/activity.js";
import { CauseMarks, grid, ground, LEFT, places, ProfileAxis, scale, spansOf } from "../core/lab/profile-axes.js";
import { buttonOf, emit, html, put, svg, write } from "../core/dom.js";
import { isNonFinite } from "../core/lab/faults.js";
import { firstNonFinite } from "../core/lab/non-finite.js";
import { ProfileHalf } from "../core/lab/profile-half.js";
import { decadesOf, figuresOf, FORMS, isOutside, pointsOf, USUAL_RATIO } from "../core/lab/profile-series.js";
import { causeText, readout, runLabel, silence, summary, whyEmpty, whyNoLayers } from "../core/lab/profile-text.js";
import { surface } from "../core/surface.js";

const SIDES = /** @type {const} */ (["forward", "backward"]);
/** Half the height of the strip for the layers' numbers. */
const STRIP_HALF = 10;
const EDGE = 4;
const NEAR = 40;
const REST_MS = 400;
/** The elements are never older than this, for those who print the page. */
const STALE_MS = 5000;
/** @type {ProfileFigures} */
const NOTHING = { measured: [], expected: [], run: [], reason: [] };

class LayerProfile extends HTMLElement {
  #picture = /** @type {Picture | null} */ (null);
  #theory = /** @type {Theory | null} */ (null);
  #pinned = /** @type {PinnedRun | null} */ (null);
  /** @type {DepthAxis} */
  #axis = { positions: new Map(), width: 0 };
  /** @type {ProfileStatistic} */
  #statistic = "std";
  #selection = "";
  #size = { width: 0, height: 0 };

  #points = /** @type {ProfilePoint[]} */ ([]);
  #xs = /** @type {number[]} */ ([]);
  /** @type {Record<ProfileSide, ProfileFigures>} */
  #figures = { forward: NOTHING, backward: NOTHING };
  #causes = /** @type {NonFiniteCause[]} */ ([]);
  #toldCauses = "";
  /** Decades shown; while the slider is held or moves, they grow only where a value leaves them. @type {Record<ProfileSide, [number, number]> | null} */
  #decades = null;
  /** @type {Record<ProfileSide, ProfileAxis | null>} */
  #axes = { forward: null, backward: null };
  #ruledFor = "";
  #hovered = -1;
  /** The last two pictures are of one graph: the slider moves. */
  #isMoving = false;
  #isHeld = false;
  #rest = 0;
  #writtenAt = 0;

  #title = html("h2");
  #readout = html("p", { class: "readout" });
  #buttons = html("div", { class: "segmented small", role: "group", "aria-label": "Statistic" });
  #select = html("select", { "aria-label": "Statistic" });
  #causeLines = html("div", { class: "causes", hidden: true });
  #frame = html("div", { class: "frame" });
  /** Shows the marks while pictures come quickly. */
  #canvas = html("canvas", { "aria-hidden": "true", hidden: true });
  #svg = svg("svg", { class: "profile-svg", role: "img", tabindex: "0" });
  #ground = svg("g");
  #grid = svg("g");
  #halves = { forward: new ProfileHalf("forward"), backward: new ProfileHalf("backward") };
  #reference = svg("g", { class: "reference" });
  #marks = new CauseMarks();
  #cursor = svg("line", { class: "cursor", y1: 0 });
  #scale = svg("g");
  #empty = svg("text", { class: "empty", "text-anchor": "middle" });

  connectedCallback() {
    for (const [statistic, { button, term }] of Object.entries(FORMS)) {
      const choice = buttonOf({ "data-statistic": statistic, "data-term": term }, () =>
        emit(this, "statistic-change", { statistic }), button);
      this.#buttons.append(choice);
      this.#select.append(html("option", { value: statistic }, button));
    }
    this.#select.addEventListener("change", () => emit(this, "statistic-change", { statistic: this.#select.value }));
    const { forward, backward } = this.#halves;
    this.#svg.append(this.#ground, this.#grid, this.#reference, forward.root, backward.root, this.#marks.root,
      this.#cursor, this.#scale, this.#empty);
    this.#frame.append(this.#svg, this.#canvas);
    this.append(html("header", {}, this.#title, this.#readout, this.#buttons, this.#select), this.#causeLines,
      this.#frame);
    new ResizeObserver(([entry]) => {
      this.#size = { width: entry?.contentRect.width ?? 0, height: entry?.contentRect.height ?? 0 };
      this.#arrange();
    }).observe(this.#frame);
    this.#listen();
    this.statistic = this.#statistic;
  }

  disconnectedCallback() {
    cancel(this.#rest);
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    const isOfAnotherGraph = picture?.key !== this.#picture?.key;
    this.#picture = picture;
    this.#setPainted(this.#isMoving && !isOfAnotherGraph);
    this.#isMoving = !isOfAnotherGraph;
    if (isOfAnotherGraph) {
      this.#decades = null;
      this.#hovered = -1;
      this.#arrange();
    } else this.#draw();
    cancel(this.#rest);
    if (!this.#isMoving) return;
    this.#rest = later(() => {
      this.#isMoving = false;
      this.#setPainted(false);
      this.#draw();
    }, REST_MS);
  }

  /** @param {boolean} isPainted whether the canvas shows the marks */
  #setPainted(isPainted) {
    put(this.#canvas, "hidden", !isPainted);
    this.#svg.classList.toggle("moving", isPainted);
  }

  /** @param {boolean} isHeld */
  set isHeld(isHeld) {
    if (isHeld === this.#isHeld) return;
    this.#isHeld = isHeld;
    if (!isHeld && !this.#isMoving) this.#draw();
  }

  /** @param {Theory | null} theory may be of an earlier picture */
  set theory(theory) {
    if (theory === this.#theory) return;
    this.#theory = theory;
    this.#draw();
  }

  /** @param {PinnedRun | null} pinned */
  set pinned(pinned) {
    if (pinned === this.#pinned) return;
    this.#pinned = pinned;
    this.#decades = null;
    this.#draw();
  }

  /** @param {DepthAxis} axis */
  set axis(axis) {
    // Panning a graph that shares no axis changes nothing.
    const isNews = axis.positions.size > 0 || this.#axis.positions.size > 0;
    this.#axis = axis;
    if (isNews) this.#arrange();
  }

  /** @param {ProfileStatistic} statistic */
  set statistic(statistic) {
    // Set with every change of the view, even each step of a pan.
    if (statistic === this.#statistic && this.#title.textContent !== "") return;
    this.#decades = null;
    this.#hovered = -1;
    this.#statistic = statistic;
    this.#title.textContent = FORMS[statistic].title;
    for (const button of this.#buttons.children)
      write(button, "aria-pressed", String(button.getAttribute("data-statistic") === statistic));
    this.#select.value = statistic;
    this.#arrange();
  }

  /** @param {string} tensor id of the selected tensor, "" for none */
  set selection(tensor) {
    if (tensor === this.#selection) return;
    this.#selection = tensor;
    this.#point();
  }

  // Changes with the graph, the panel or the statistic

  #arrange() {
    const { width, height } = this.#size;
    if (this.#picture === null || width === 0 || height === 0) return;
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.#points = pointsOf(this.#picture.topology, this.#statistic);
    this.#xs = places(this.#points, this.#axis, width);
    const isEmpty = this.#points.length === 0;
    this.#ground.replaceChildren(
      ...(isEmpty ? [] : ground(spansOf(this.#points, this.#xs, width), this.#size, this.#stripAt)),
    );
    this.#ruledFor = "";
    this.#draw();
  }

  /** Middle of the strip for the layers' numbers, px. */
  get #stripAt() {
    const { height } = this.#size;
    return FORMS[this.#statistic].hasGradients ? height / 2 : height - EDGE - STRIP_HALF;
  }

  /** Draws scales and grid if the decades have changed. */
  #rule() {
    const decades = JSON.stringify(this.#decades);
    if (decades === this.#ruledFor) return;
    this.#ruledFor = decades;
    const { width, height } = this.#size;
    const { axis: kind, hasGradients, label } = FORMS[this.#statistic];
    const stripAt = this.#stripAt;
    const isLog = kind === "log";
    const forward = new ProfileAxis(stripAt - STRIP_HALF, EDGE, (isLog && this.#decades?.forward) || null);
    const backward = hasGradients
      ? new ProfileAxis(height - EDGE, stripAt + STRIP_HALF, this.#decades?.backward ?? null) : null;
    this.#axes = { forward, backward };
    const isEmpty = this.#points.length === 0;
    this.#grid.replaceChildren(...(isEmpty ? [] : grid(backward === null ? [forward] : [forward, backward], width)));
    const halves = [{ axis: forward, side: "forward", label },
      ...(backward === null ? [] : [{ axis: backward, side: "backward", label: "gradients" }])];
    this.#scale.replaceChildren(...(isEmpty ? [] : scale(halves, height)));

    const usual = forward.y(USUAL_RATIO);
    this.#reference.replaceChildren(svg("line", { x1: LEFT - 4, x2: width, y1: usual, y2: usual }),
      svg("text", { "text-anchor": "end", x: width - 6, y: usual - 5 }, "usual: 0.001 at learning rate 1 (Karpathy)"));
    write(this.#reference, "visibility", this.#statistic === "ratio" ? "visible" : "hidden");
    this.#cursor.setAttribute("y2", String(height));
    this.#empty.setAttribute("x", String((LEFT + width) / 2));
    this.#empty.setAttribute("y", String(height / 2 - 4));
  }

  // Changes with every picture

  #draw() {
    const picture = this.#picture;
    if (picture === null || this.#size.width === 0 || this.#size.height === 0) return;
    const [statistic, sources] = [this.#statistic, { picture, theory: this.#theory, pinned: this.#pinned }];
    for (const side of SIDES) {
      const isShown = side === "forward" || FORMS[statistic].hasGradients;
      this.#figures[side] = isShown ? figuresOf(this.#points, statistic, side, sources) : NOTHING;
    }
    this.#widen();
    this.#rule();
    if (this.#canvas.hidden || performance.now() - this.#writtenAt > STALE_MS) {
      this.#writtenAt = performance.now();
      for (const side of SIDES) this.#halves[side].write(this.#drawn(side));
    }
    if (!this.#canvas.hidden) this.#paint();

    const { inf, nan } = isNonFinite(picture, this.#theory) ? firstNonFinite(picture) : { inf: null, nan: null };
    this.#causes = [inf, nan].filter((cause) => cause !== null);
    this.#mark();
    const { measured } = this.#figures.forward;
    const why = measured.length === 0 ? whyNoLayers(picture.spec)
      : whyEmpty(statistic, measured, String(picture.spec?.["activation"] ?? ""));
    if (this.#empty.textContent !== why) this.#empty.textContent = why;
    if (this.#isMoving)
      this.#causeLines.classList.toggle("stale", this.#causes.map(causeText).join() !== this.#toldCauses);
    else this.#tell(why);
    this.#point();
    this.#explain();
  }

  #paint() {
    const context = surface(this.#canvas, this.#size.width, this.#size.height);
    if (context === null) return;
    context.lineJoin = "round";
    for (const side of SIDES) this.#halves[side].paint(context, this.#drawn(side));
  }

  /** @param {ProfileSide} side */
  #drawn(side) {
    return { axis: this.#axes[side], points: this.#points, xs: this.#xs, figures: this.#figures[side] };
  }

  /** The summary in words, once the slider rests: meanwhile the chart beneath the lines must not jump.
   * @param {string} why reason for an empty chart */
  #tell(why) {
    const texts = this.#causes.map(causeText);
    this.#toldCauses = texts.join();
    this.#causeLines.replaceChildren(...texts.map((text) => html("p", { class: "cause" }, text)));
    this.#causeLines.hidden = texts.length === 0;
    this.#causeLines.classList.remove("stale");
    const words = why === "" ? summary(this.#statistic, this.#points, this.#figures.forward, this.#causes)
      : `${FORMS[this.#statistic].title}: ${why}`;
    write(this.#svg, "aria-label", words);
  }

  #widen() {
    const before = this.#isHeld || this.#isMoving ? this.#decades : null;
    const decades = (/** @type {ProfileSide} */ side) =>
      decadesOf(this.#figures[side], this.#statistic, before?.[side]);
    this.#decades = { forward: decades("forward"), backward: decades("backward") };
  }

  /** Marks the causes that belong on this chart: a chart of weights has no place for activations. */
  #mark() {
    const isHere = (/** @type {NonFiniteCause} */ { tensor }) =>
      this.#points.some((point) => point.tensor === tensor || point.gradient === tensor);
    const shown = this.#causes.filter((cause) =>
      this.#statistic === "ratio" ? isHere(cause) : !cause.isBackward || FORMS[this.#statistic].hasGradients
    );
    this.#marks.draw(shown, (cause) => this.#placeOf(cause), this.#axes,
      (kind, side, from, to) =>
        !this.#xs.some((x, order) =>
          x >= from && x <= to && this.#figures[side].measured[order]?.[kind === "Inf" ? "hasInf" : "hasNan"]
        ), this.#size.width);
  }

  /** @param {NonFiniteCause} cause @returns {number} its tensor's x, beyond the last layer if it comes after it */
  #placeOf({ tensor, layer }) {
    const own = this.#points.findIndex((point) => point.tensor === tensor || point.gradient === tensor);
    const order = own >= 0 ? own : this.#points.findIndex((point) => point.layer === layer);
    if (order >= 0) return this.#xs[order];
    return Math.min(this.#axis.positions.get(tensor) ?? Infinity, (this.#xs.at(-1) ?? 0) + 16, this.#size.width - 4);
  }

  #point() {
    const at = this.#selection;
    const selected = at === "" ? -1
      : this.#points.findIndex(({ tensor, gradient }) => tensor === at || gradient === at);
    const x = this.#xs[this.#hovered >= 0 ? this.#hovered : selected];
    write(this.#cursor, "visibility", x === undefined ? "hidden" : "visible");
    if (x === undefined) return;
    write(this.#cursor, "x1", x.toFixed(1));
    write(this.#cursor, "x2", x.toFixed(1));
  }

  // In words

  /** Shows the figures of the point, or without one the key. */
  #explain() {
    const point = this.#points[this.#hovered];
    this.#causes.forEach(({ layer }, order) =>
      this.#causeLines.children[order]?.classList.toggle("current", layer === point?.layer)
    );
    if (point === undefined) {
      this.#explainMarks();
      return;
    }
    const [tensor = "", gradient] = readout(this.#statistic, point, this.#hovered, this.#figures);
    const apart = html("span", { class: "visually-hidden" }, " · ");
    this.#readout.replaceChildren(html("span", {}, tensor),
      ...(gradient === undefined ? [] : [apart, html("span", {}, gradient)]));
  }

  /** The key: what is drawn here, and why theory is silent. */
  #explainMarks() {
    const { measured, expected } = this.#figures.forward;
    const hasPreactivations = this.#points.some(({ series }) => series === "preactivation");
    const hasTheory = expected.some((each) => each !== null);
    const isAnyOutside = SIDES.some((side) =>
      this.#figures[side].expected.some((theory, order) => isOutside(theory, this.#figures[side].measured[order]))
    );
    const { text, why } = silence(this.#points, this.#figures.forward);
    const isNegative = this.#statistic === "mean" && measured.some((reading) => (reading?.value ?? 0) < 0);
    /** Mark, words, whether it is drawn, title, term. @type {[string, string, boolean, string?, string?][]} */
    const parts = [
      ["dot hollow", "preactivation", hasPreactivations, , "preactivation"],
      ["dot", hasPreactivations ? "activation" : "measured", true, , hasPreactivations ? "activation" : ""],
      ["tri", "negative", isNegative],
      ["rule", "theory", hasTheory, , "theory"],
      ["area", "19 of 20 draws", hasTheory, , "band"],
      ["dot ring", "outside", isAnyOutside],
      ["none", text, text !== "", why],
      ["box", runLabel(this.#pinned, this.#points.at(-1)?.layer ?? 0), this.#pinned !== null],
    ];
    const drawn = JSON.stringify(parts);
    if (this.#readout.firstElementChild?.getAttribute("data-drawn") === drawn) return;
    const marks = parts.filter(([, , isShown]) => isShown).map(([mark, said, , title = false, term = ""]) =>
      html("span", { title, ...(term && { "data-term": term, tabindex: "0" }) }, html("i", { class: mark }), said)
    );
    this.#readout.replaceChildren(html("span", { class: "key", "data-drawn": drawn }, ...marks));
  }

  // Pointer and keyboard

  #listen() {
    this.#svg.addEventListener("pointermove",
      ({ clientX }) => this.#hover(this.#nearest(clientX - this.#frame.getBoundingClientRect().left)));
    this.#svg.addEventListener("pointerleave", () => this.#hover(-1));
    this.#svg.addEventListener("click", () => this.#choose());
    this.#svg.addEventListener("keydown", (event) => this.#pressed(event));
    // Screen readers announce points reached by arrow keys, not those under the pointer.
    this.#svg.addEventListener("focus", () => this.#readout.setAttribute("aria-live", "polite"));
    this.#svg.addEventListener("blur", () => {
      this.#readout.removeAttribute("aria-live");
      this.#hover(-1);
    });
  }

  /** @param {number} x @returns {number} */
  #nearest(x) {
    let [nearest, least] = [-1, NEAR];
    this.#xs.forEach((place, order) => {
      if (Math.abs(place - x) < least) [nearest, least] = [order, Math.abs(place - x)];
    });
    return nearest;
  }

  /** @param {number} order of the point, −1 for none */
  #hover(order) {
    if (order === this.#hovered) return;
    this.#hovered = order;
    this.#point();
    this.#explain();
  }

  #choose() {
    const point = this.#points[this.#hovered];
    if (point !== undefined)
      emit(this, "tensor-select", { tensor: (this.#statistic === "ratio" ? point.gradient : null) ?? point.tensor });
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const ends = { Home: 0, End: this.#points.length - 1 };
    if (event.key === "ArrowLeft") this.#hover(this.#step(-1));
    else if (event.key === "ArrowRight") this.#hover(this.#step(1));
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.#hover(this.#step(0));
    else if (event.key === "Home" || event.key === "End") this.#hover(ends[event.key]);
    else if (event.key === "Enter") this.#choose();
    else if (event.key === "Escape" && this.#hovered >= 0) this.#hover(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} by −1 or 1 layer; 0: the layer's other tensor
   * @returns {number} the point there, of the same kind if possible */
  #step(by) {
    const here = this.#points[this.#hovered];
    if (here === undefined) return by < 0 ? this.#points.length - 1 : 0;
    const there = this.#points.flatMap(({ layer, series }, order) =>
      layer === here.layer + by && order !== this.#hovered ? [{ order, series }] : []
    );
    return (there.find(({ series }) => series === here.series) ?? there.at(-1))?.order ?? this.#hovered;
  }
}

customElements.define("layer-profile", LayerProfile);
