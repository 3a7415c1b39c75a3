/** <dump-scrubber>: several dumps in order: the steps of a training, the ranks of a step, or precisions. A slider over their
 * losses, which fill as they are read, with a curve for steps, and buttons to play steps and to go on and back.
 * Call `open(sources)`, `tell(index, figures)`; set `index`, `pinned`, `problem`. Event, bubbling: `dump-step` {index}. */

import { oncePerFrame } from "../core/activity.js";
import { emit, html, svg, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";
import { stepLabels, unitOf } from "../core/dump/sources.js";
import { iconButton, Player } from "../core/player.js";

// The losses of all steps as a line, logarithmic where they span more than a decade.

/** @typedef {{loss: number | null, structure: string}} Step */

/** @typedef {{x: number, y: number, isBad: boolean}} Dot isBad: the loss is not finite */

/** The line has no dots if there are more steps than this. */
const MAX_DOTS = 40;
const MARGIN = 5;

/** The line has gaps at steps that are not read yet or have no finite loss; breaks: steps with another graph than the one
 * before. @param {readonly (Step | null)[]} steps null: not read yet @param {(index: number) => number} x of a step, px
 * @param {number} height px */
function lossCurve(steps, x, height) {
  const losses = steps.map((step) => step?.loss ?? null);
  const finite = losses.filter((loss) => loss !== null && Number.isFinite(loss)).map(Number);
  const [low, high] = finite.length === 0 ? [null, null] : [Math.min(...finite), Math.max(...finite)];
  const isLog = low !== null && high !== null && low > 0 && high > 10 * low;
  const place = (/** @type {number} */ loss) => isLog ? Math.log(loss) : loss;
  const [from, to] = [place(low ?? 0), place(high ?? 0)];
  const y = (/** @type {number} */ loss) =>
    height - MARGIN - (to > from ? (place(loss) - from) / (to - from) : 0.5) * (height - 2 * MARGIN);
  const paths = /** @type {string[]} */ ([]);
  const dots = /** @type {Dot[]} */ ([]);
  let run = "";
  const end = () => {
    if (run.includes("L")) paths.push(run);
    run = "";
  };
  losses.forEach((loss, index) => {
    if (loss === null || !Number.isFinite(loss)) {
      end();
      if (loss !== null) dots.push({ x: x(index), y: MARGIN, isBad: true });
      return;
    }
    run += `${run === "" ? "M" : "L"}${x(index).toFixed(1)} ${y(loss).toFixed(1)}`;
    if (steps.length <= MAX_DOTS) dots.push({ x: x(index), y: y(loss), isBad: false });
  });
  end();
  const breaks = steps.flatMap((step, index) => {
    const before = steps[index - 1];
    return step !== null && before != null && step.structure !== before.structure ? [index] : [];
  });
  return { paths, dots, breaks, isLog, low, high, endsHigh: y(finite.at(-1) ?? 0) < height / 2 };
}

const PER_SECOND = 5;
const HEIGHT = 34;
/** Half the slider's thumb: its centre stays this far from the ends of the track, px. */
const THUMB = 12;
/** Width of the text with the range of losses, px. */
const SCALE_WIDTH = 150;

class DumpScrubber extends HTMLElement {
  #sources = /** @type {readonly {name: string}[]} */ ([]);
  #names = /** @type {readonly string[]} */ ([]);
  #figures = /** @type {(Step | null)[]} */ ([]);
  #problems = /** @type {Map<number, string>} */ (new Map());
  /** A problem that is not of one dump. */
  #otherProblem = "";
  #index = 0;
  #pinned = -1;
  #width = 0;
  #drawSoon = oncePerFrame(() => this.#draw());

  #player = new Player({ perSecond: () => PER_SECOND, isHidden: () => this.hidden,
    isAtEnd: () => this.#index >= this.#sources.length - 1, rewind: () => this.#go(0),
    next: () => this.#go(this.#index + 1) });
  #back = iconButton("back", "Dump before (←)", () => this.#step(-1), "Dump before");
  #on = iconButton("on", "Next dump (→)", () => this.#step(1), "Next dump");
  #slider = html("input", { type: "range", min: "0", step: "1", "aria-label": "Dump" });
  #svg = svg("svg", { height: HEIGHT, "aria-hidden": "true" });
  #name = html("strong");
  #place = html("span", { class: "place" });
  #problem = html("p", { class: "problem", role: "alert", hidden: true });

  connectedCallback() {
    this.append(html("div", { class: "controls" }, this.#back, this.#player.button, this.#on),
      html("div", { class: "track" }, this.#svg, this.#slider), html("p", { class: "now" }, this.#name, this.#place),
      this.#problem);
    this.#slider.addEventListener("input", () => {
      this.#player.pause();
      this.#go(Number(this.#slider.value));
    });
    this.#slider.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      this.#player.toggle();
    });
    new ResizeObserver(([entry]) => {
      this.#width = Math.floor(entry?.contentRect.width ?? 0);
      this.#drawSoon();
    }).observe(this.#svg.parentElement ?? this);
  }

  disconnectedCallback() {
    this.#player.pause();
  }

  /** @param {readonly {name: string}[]} sources in order */
  open(sources) {
    this.#player.pause();
    this.#sources = sources;
    // The model's name is the same in every precision.
    this.#names = unitOf(sources) === "precision" ? stepLabels(sources) : sources.map(({ name }) => name);
    this.#figures = sources.map(() => null);
    this.#problems.clear();
    this.#slider.max = String(sources.length - 1);
    this.hidden = sources.length < 2;
    this.#player.button.hidden = unitOf(sources) !== "step";
    this.#write();
  }

  /** @param {number} index of the dump shown or about to be shown */
  set index(index) {
    this.#index = index;
    this.#write();
  }

  /** @param {number} index of the dump to compare to, -1 for none */
  set pinned(index) {
    if (index === this.#pinned) return;
    this.#pinned = index;
    this.#drawSoon();
  }

  /** @param {string} text a problem that is not of one dump, "" for none */
  set problem(text) {
    this.#otherProblem = text;
    this.#tellProblem();
  }

  #tellProblem() {
    const own = this.#problems.get(this.#index);
    const said = own === undefined ? this.#otherProblem : `${this.#sources[this.#index]?.name}: ${own}`;
    this.#problem.hidden = said === "";
    writeText(this.#problem, said);
  }

  /** @param {number} index @param {Step | string} figures or the problem with the dump */
  tell(index, figures) {
    if (typeof figures === "string") this.#problems.set(index, figures);
    else {
      this.#problems.delete(index);
      this.#figures[index] = figures;
    }
    this.#drawSoon();
    if (index === this.#index) this.#write();
  }

  /** @param {number} by */
  #step(by) {
    this.#player.pause();
    this.#go(this.#index + by);
  }

  /** @param {number} index */
  #go(index) {
    const next = Math.max(0, Math.min(this.#sources.length - 1, index));
    if (next === this.#index) return;
    this.index = next;
    emit(this, "dump-step", { index: next });
  }

  #write() {
    const name = this.#names[this.#index] ?? "";
    const figures = this.#figures[this.#index] ?? null;
    const count = this.#sources.length;
    const loss = figures === null ? "" : `, loss ${significant(figures.loss)}`;
    this.#slider.value = String(this.#index);
    write(this.#slider, "aria-valuetext", `${name}, ${this.#index + 1} of ${count}${loss}`);
    this.#back.disabled = this.#index <= 0;
    this.#on.disabled = this.#index >= count - 1;
    writeText(this.#name, name);
    writeText(this.#place, `${this.#index + 1} of ${count}${loss}`);
    this.#tellProblem();
    this.#drawSoon();
  }

  #draw() {
    const [width, count] = [this.#width, this.#sources.length];
    if (width === 0 || count < 2) return;
    const x = (/** @type {number} */ index) => THUMB + (index / (count - 1)) * (width - 2 * THUMB);
    const { paths, dots, breaks, isLog, low, high, endsHigh } = lossCurve(this.#figures, x, HEIGHT);
    const mark = (/** @type {number} */ index, /** @type {string} */ kind, /** @type {string} */ text) =>
      svg("g", { class: kind, transform: `translate(${x(index).toFixed(1)} 0)` }, svg("line", { y1: 0, y2: HEIGHT }),
        svg("text", { x: 0, y: 8, "text-anchor": "middle" }, text));
    // Clear of the slider's thumb.
    const grip = x(this.#index);
    const scaleEnd = grip > width - SCALE_WIDTH ? grip - THUMB - 4 : width - 2;
    write(this.#svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#svg.replaceChildren(
      ...breaks.map((index) =>
        svg("line", { class: "break", x1: (x(index) + x(index - 1)) / 2, x2: (x(index) + x(index - 1)) / 2, y1: 0,
          y2: HEIGHT }, svg("title", {}, "the graph changes here"))
      ),
      ...(this.#player.button.hidden ? [] : paths).map((d) => svg("path", { class: "loss", d })),
      ...dots.map(({ x, y, isBad }) =>
        svg("circle", { class: isBad ? "bad" : "loss", cx: x, cy: y, r: isBad ? 3 : 1.75 })
      ),
      ...[...this.#problems.keys()].map((index) => mark(index, "refused", "✕")),
      ...(this.#pinned >= 0 && this.#pinned < count ? [mark(this.#pinned, "pinned", "A")] : []),
      // On the side that the curve leaves free.
      ...(low === null ? [] : [
        svg("text", { class: "scale", x: scaleEnd, y: endsHigh ? HEIGHT - 2 : 9, "text-anchor": "end" },
          low === high ? `loss ${significant(low)}`
            : `loss ${significant(low)} to ${significant(high)}${isLog ? ", log" : ""}`),
      ]),
    );
    this.dataset["read"] = String(this.#figures.filter((figures) => figures !== null).length);
  }
}

customElements.define("dump-scrubber", DumpScrubber);
