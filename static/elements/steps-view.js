/** <steps-view>: the two passes one op at a time: a slider over the order of execution, what the op reads, writes
 * and saves, the saved tensors in memory, and the curve of their size.
 * Set `step` (from 0); call `show(picture, graph)`. Events, bubbling: `step-change` {step}, `tensor-select`
 * {tensor}, `box-select` {id}. */

import { buttonOf, emit, html, svg, write, writeText } from "../core/dom.js";
import { quantity } from "../core/format.js";
import { definitions } from "../core/rules/formula.js";
import { iconButton, Player } from "../core/player.js";
import { figure } from "../core/labels.js";
import { aliveAt, memoryCurve, stepAt, stepsOf } from "../core/graph/steps.js";
import { sizeText } from "../core/inspector/op-facts.js";

const SPEEDS = [1, 2, 5, 10, 30];
const MAX_ALIVE = 8;
/** Tensors listed of what one op reads or writes. */
const MAX_LISTED = 6;
/** Tensors named in a sentence. */
const MAX_SPOKEN = 3;
const CURVE_HEIGHT = 64;

class StepsView extends HTMLElement {
  #picture = /** @type {Picture | null} */ (null);
  #graph = /** @type {Graph | null} */ (null);
  #steps = /** @type {ExecutionSteps | null} */ (null);
  #tensors = /** @type {ReadonlyMap<string, Tensor>} */ (new Map());
  #ops = /** @type {ReadonlyMap<string, Op>} */ (new Map());
  #step = 0;
  #shown = -1;
  /** Update the figures of the listed tensors. @type {((picture: Picture) => void)[]} */
  #updates = [];

  #scrubber = html("input", { type: "range", min: "0", step: "1", "aria-label": "Step" });
  #speed = html("select", { "aria-label": "Speed" },
    ...SPEEDS.map((speed) => html("option", { value: String(speed) }, `${speed}/s`)));
  #player = new Player({ perSecond: () => Number(this.#speed.value), isHidden: () => this.hidden,
    isAtEnd: () => this.#step >= (this.#steps?.count ?? 1) - 1, rewind: () => this.#go(0),
    next: () => this.#go(this.#step + 1) });
  #where = html("span", { class: "where" });
  #phase = html("span", { class: "chip" });
  #name = html("button", { type: "button", class: "link mono" });
  #sentence = html("p", { class: "sentence" });
  #formula = html("div", { class: "formulas" });
  #lists = html("div", { class: "lists" });
  #alive = html("section", { class: "alive", "aria-label": "Saved tensors in memory" });
  #curve = svg("svg", { class: "curve", height: CURVE_HEIGHT, role: "img" });
  #caption = html("p", { class: "caption" });
  #size = 0;

  connectedCallback() {
    this.#speed.value = "2";
    const move = (/** @type {string} */ name, /** @type {string} */ title, /** @type {() => number} */ to) =>
      iconButton(name, title, () => {
        this.#player.pause();
        this.#go(to());
      });
    this.#name.addEventListener("click",
      () => emit(this, "box-select", { id: this.#graph?.topology.ops[this.#step]?.id ?? "" }));
    this.#scrubber.addEventListener("input", () => {
      this.#player.pause();
      this.#go(Number(this.#scrubber.value));
    });
    this.#speed.addEventListener("change", () => {
      if (this.#player.isPlaying) this.#player.start();
    });
    this.#curve.addEventListener("pointerdown", (event) => this.#point(event));
    this.#curve.addEventListener("pointermove", (event) => event.buttons === 1 && this.#point(event));
    this.addEventListener("keydown", (event) => this.#key(event));
    const controls = html("div", { class: "controls" }, move("first", "First step (Home)", () => 0),
      move("back", "Step back (←)", () => this.#step - 1), this.#player.button,
      move("on", "Step (→)", () => this.#step + 1), move("last", "Last step (End)", () => Infinity), this.#scrubber,
      this.#where, this.#speed);
    const now = html("section", { class: "now", "aria-label": "This step" }, html("h2", {}, this.#name, this.#phase),
      this.#sentence, this.#formula, this.#lists);
    this.append(controls, html("div", { class: "memory" }, this.#caption, this.#curve),
      html("div", { class: "columns" }, now, this.#alive));
    this.#draw();
    new ResizeObserver(() => this.#drawCurve()).observe(this);
  }

  disconnectedCallback() {
    this.#player.pause();
  }

  /** From 0; clamped to the last step. @param {number} step */
  set step(step) {
    if (step === this.#step) return;
    this.#step = step;
    this.#draw();
  }

  get step() {
    return this.#step;
  }

  /** @param {Picture} picture @param {Graph} graph of that picture */
  show(picture, graph) {
    this.#picture = picture;
    if (graph !== this.#graph) {
      this.#graph = graph;
      this.#steps = stepsOf(graph);
      this.#tensors = new Map(graph.topology.tensors.map((tensor) => [tensor.id, tensor]));
      this.#ops = new Map(graph.topology.ops.map((op) => [op.id, op]));
      this.#shown = -1;
      this.#size = 0;
      this.#player.pause();
      this.#drawCurve();
    }
    this.#draw();
    for (const update of this.#updates) update(picture);
  }

  /** @param {number} step */
  #go(step) {
    const last = (this.#steps?.count ?? 1) - 1;
    const next = Math.max(0, Math.min(last, step));
    if (next === this.#step) return;
    this.#step = next;
    this.#draw();
    emit(this, "step-change", { step: next });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
    const isButton = event.target instanceof HTMLButtonElement;
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowLeft: () => this.#go(this.#step - 1),
      ArrowRight: () => this.#go(this.#step + 1),
      Home: () => this.#go(0),
      End: () => this.#go(Infinity),
      // On a button the space bar presses it.
      ...(isButton ? {} : { " ": () => this.#player.toggle() }),
    };
    const act = acts[event.key];
    if (act === undefined) return;
    event.preventDefault();
    if (event.key !== " ") this.#player.pause();
    act();
  }

  /** @param {PointerEvent} event */
  #point({ clientX }) {
    const { left, width } = this.#curve.getBoundingClientRect();
    if (this.#steps === null || width === 0) return;
    this.#player.pause();
    this.#go(Math.floor(((clientX - left) / width) * this.#steps.count));
  }

  // Drawing

  #draw() {
    const [graph, steps] = [this.#graph, this.#steps];
    if (graph === null || steps === null || this.childElementCount === 0) return;
    // The address may name a step of a longer graph.
    const place = Math.max(0, Math.min(steps.count - 1, this.#step));
    const now = stepAt(graph, place);
    if (now === null) return;
    this.#scrubber.max = String(steps.count - 1);
    this.#scrubber.value = String(place);
    write(this.#scrubber, "aria-valuetext", `step ${place + 1} of ${steps.count}: ${now.op.name}`);
    this.#scrubber.style.setProperty("--forward-share", `${(100 * steps.forward) / Math.max(1, steps.count)}%`);
    writeText(this.#where, `step ${place + 1} of ${steps.count}`);
    this.#moveCursor(place);
    if (place === this.#shown) return;
    this.#shown = place;
    this.#updates = [];
    writeText(this.#name, now.op.name);
    writeText(this.#phase, now.op.phase);
    writeText(this.#sentence, this.#words(now));
    this.#phase.className = `chip ${now.op.phase}`;
    this.#formula.replaceChildren(...this.#formulas(now.op));
    const saves = now.op.phase === "forward" ? [this.#list("saves", now.saves, "nothing for the backward pass")] : [];
    this.#lists.replaceChildren(this.#list("reads", now.reads, "nothing", now.fetches),
      this.#list("writes", now.writes, "nothing"), ...saves);
    this.#drawAlive(steps, place);
    if (this.#picture !== null) { for (const update of this.#updates) update(this.#picture); }
  }

  /** The sentence about a step. @param {{op: Op, reads: number[], writes: number[], saves: number[]}} step
   * @returns {string} */
  #words({ op, reads, writes, saves }) {
    const named = (/** @type {readonly number[]} */ tensors) => {
      const names = tensors.map((tensor) => this.#graph?.topology.tensors[tensor]?.name ?? "");
      return names.length > MAX_SPOKEN ? `${names.length} tensors`
        : [names.slice(0, -1).join(", "), names.at(-1)].filter((part) => part !== "").join(" and ");
    };
    const parts = [...(reads.length > 0 ? [`reads ${named(reads)}`] : []),
      ...(writes.length > 0 ? [`writes ${named(writes)}`] : [])];
    const does = `${op.name} ${parts.length > 0 ? parts.join(" and ") : "runs"}.`;
    return op.phase === "backward" || saves.length === 0 ? does
      : `${does} It saves ${named(saves)} for the backward pass.`;
  }

  /** @param {Op} op @returns {Node[]} */
  #formulas(op) {
    const name = (/** @type {string} */ id) => this.#tensors.get(id)?.name ?? id;
    const lines = definitions([op], this.#ops, this.#tensors, name, () => true).filter(({ tensor }) =>
      this.#tensors.get(tensor)?.role !== "saved"
    );
    return lines.map(({ tensor, text }) => html("code", {}, `${name(tensor)} = ${text}`));
  }

  /** @param {string} title @param {readonly number[]} tensors @param {string} none
   * @param {readonly number[]} [fetched] tensors saved by the forward pass @returns {HTMLElement} */
  #list(title, tensors, none, fetched = []) {
    const items = tensors.slice(0, MAX_LISTED).map((tensor) =>
      this.#tensorLine(tensor, fetched.includes(tensor) ? "saved" : "")
    );
    return html("div", {}, html("h3", {}, title), listOf(items, tensors.length - items.length, none));
  }

  /** @param {number} index @param {string} mark @returns {HTMLLIElement} */
  #tensorLine(index, mark) {
    const tensor = this.#graph?.topology.tensors[index];
    if (tensor === undefined) return html("li");
    const value = html("span", { class: "figure", title: "std" });
    this.#updates.push((picture) => writeText(value, figure(picture, tensor, "std").text));
    return html("li", {}, this.#link(tensor), html("small", {}, sizeText(tensor.shape)),
      ...(mark === "" ? [] : [html("small", { class: "mark" }, mark)]), value);
  }

  /** @param {Tensor} tensor @returns {HTMLElement} */
  #link({ id, name }) {
    return buttonOf({ class: "link mono", title: name }, () => emit(this, "tensor-select", { tensor: id }), name);
  }

  /** @param {ExecutionSteps} steps @param {number} place */
  #drawAlive(steps, place) {
    const { shown, more } = aliveAt(steps, place, MAX_ALIVE);
    const total = steps.alive[place];
    const lines = shown.flatMap(({ tensor, bytes, until }) => {
      const made = this.#graph?.topology.tensors[tensor];
      return made === undefined ? [] : [
        html("li", {}, this.#link(made), html("small", {}, `until step ${until + 1}`),
          html("span", { class: "figure" }, quantity(bytes, "B"))),
      ];
    });
    this.#alive.replaceChildren(
      html("h3", {}, "saved for the backward pass", html("span", { class: "figure" }, quantity(total, "B"))),
      listOf(lines, more, "nothing"),
    );
  }

  #drawCurve() {
    const steps = this.#steps;
    const width = Math.floor(this.#curve.parentElement?.clientWidth ?? 0);
    if (steps === null || width === 0 || width === this.#size) return;
    this.#size = width;
    const { area, base, x, y } = memoryCurve(steps, width, CURVE_HEIGHT);
    const turn = x(steps.forward);
    const most = steps.alive[steps.peak];
    const [peakX, peakY] = [(x(steps.peak) + x(steps.peak + 1)) / 2, y(steps.base + most)];
    this.#curve.setAttribute("viewBox", `0 0 ${width} ${CURVE_HEIGHT}`);
    this.#curve.setAttribute("aria-label",
      `Memory: parameters ${quantity(steps.base, "B")}, and up to ${
        quantity(most, "B")
      } saved for the backward pass, at step ${steps.peak + 1}.`);
    this.#curve.replaceChildren(svg("rect", { class: "ground forward", x: 0, y: 0, width: turn, height: CURVE_HEIGHT }),
      svg("rect", { class: "ground backward", x: turn, y: 0, width: Math.max(0, width - turn), height: CURVE_HEIGHT }),
      svg("path", { class: "base", d: base }), svg("path", { class: "area", d: area }),
      svg("circle", { class: "peak", cx: peakX, cy: Math.max(3, peakY), r: 3 }),
      svg("rect", { class: "cursor", y: 0, height: CURVE_HEIGHT, width: Math.max(2, x(1)) }));
    this.#caption.replaceChildren(html("span", {}, `memory: parameters ${quantity(steps.base, "B")}`),
      html("span", {}, `saved for backward: at most ${quantity(most, "B")}, at step ${steps.peak + 1}`));
    this.#moveCursor(Math.max(0, Math.min(steps.count - 1, this.#step)));
  }

  /** @param {number} place */
  #moveCursor(place) {
    const cursor = this.#curve.querySelector(".cursor");
    if (cursor === null || this.#steps === null) return;
    write(cursor, "x", String((place / Math.max(1, this.#steps.count)) * this.#size));
  }
}

/** @param {HTMLElement[]} items @param {number} more that are not listed @param {string} none */
function listOf(items, more, none) {
  const hint = more > 0 ? `and ${more} more` : items.length === 0 ? none : "";
  return html("ul", {}, ...items, ...(hint === "" ? [] : [html("li", { class: "hint" }, hint)]));
}

customElements.define("steps-view", StepsView);
