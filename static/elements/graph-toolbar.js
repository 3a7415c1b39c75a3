/** <graph-toolbar>: the search, how deep the graph is open, what fills its boxes and widens its edges.
 * Set `view`, `depth`, `overlays`, `found`, `folds`, `recording`. Events, bubbling: `search-change` {q},
 * `search-step` {by}, `level-change` {level}, `fold-change` {fold}, `colour-change` {colour},
 * `thickness-change` {thickness}, `span-hold` {held}, `bins-change` {bins}, `spec-change` {change, moving}. */

import { cancel, later } from "../core/activity.js";
import { emit, html, put, write, writeText } from "../core/dom.js";

/** @typedef {{name: string, title: string, reason: string | null}} OverlayChoice reason: why it is not available */
/** @typedef {{total: number, at: number, problem: string | null, note: string | null}} Found at: the one in view,
 * from 1; 0 for none */

const SEARCH_AFTER_MS = 120;

/** @type {[string, string][]} the levels of a recording */
const RECORDINGS = [
  ["op", "program: ops"],
  ["aten", "program: ATen ops"],
  ["aot_eager", "compiled: aot_eager"],
  ["inductor", "compiled: inductor"],
];
/** @type {[View["thickness"], string][]} */
const THICKNESS = [["", "edges: same width"], ["size", "edges: tensor size"], ["gradient", "edges: gradient norm"]];

class GraphToolbar extends HTMLElement {
  #search = html("input", { type: "search", placeholder: "Search", "aria-label": "Search the graph",
    autocomplete: "off", spellcheck: "false", "aria-describedby": "search-found" });
  #found = html("span", { class: "found", id: "search-found", role: "status" });
  #level = html("select", { "aria-label": "Depth of the graph", title: "Depth of the open groups" });
  #fold = html("button", { type: "button", class: "toggle small", title: "Fold repeated blocks into one" },
    "Fold repeats");
  #recording = html("select", { class: "recording", "aria-label": "Level of the recording",
    title:
      "What is recorded: your program op by op, the ops of PyTorch's dispatcher inside each op, or what torch.compile runs" });
  #colour = html("select", { "aria-label": "Colour of the boxes", title: "Colour of the boxes" });
  #hold = html("button", { type: "button", class: "toggle small",
    title: "Keep the range of the colours, so you can compare runs" }, "Hold range");
  #thickness = html("select", { "aria-label": "Width of the edges", title: "Width of the edges" });
  #fitEach = html("button", { type: "button", class: "toggle small",
    title:
      "Fit each histogram to its own values. Off: all tensors of a kind share one axis, so you can compare them." },
    "Fit each");
  #typing = 0;
  /** The choices to apply once the options exist. @type {View | null} */
  #view = null;

  connectedCallback() {
    this.#search.title =
      "Words match names, ops, roles and modules. op:matmul  role:gradient  shape:200x50  std>10  nan>0  numel>=1000  /regex/  -not. Enter: next, Shift+Enter: previous";
    this.#thickness.append(...THICKNESS.map(([value, text]) => html("option", { value }, text)));
    this.append(html("div", { class: "search" }, this.#search, this.#found), this.#level, this.#recording, this.#fold,
      this.#colour, this.#hold, this.#thickness, this.#fitEach);
    this.#search.addEventListener("input", () => {
      cancel(this.#typing);
      this.#typing = later(() => this.#ask(), SEARCH_AFTER_MS);
    });
    this.#search.addEventListener("keydown", (event) => this.#key(event));
    for (const [select, name]
      of /** @type {const} */ ([[this.#level, "level"], [this.#colour, "colour"], [this.#thickness, "thickness"]]))
      select.addEventListener("change", () => emit(this, `${name}-change`, { [name]: select.value }));
    this.#fold.addEventListener("click",
      () => emit(this, "fold-change", { fold: this.#fold.ariaPressed === "true" ? "off" : "on" }));
    this.#recording.append(...RECORDINGS.map(([value, text]) => html("option", { value }, text)));
    this.#recording.addEventListener("change",
      () => emit(this, "spec-change", { change: { recording: this.#recording.value }, moving: false }));
    this.#fitEach.addEventListener("click",
      () => emit(this, "bins-change", { bins: this.#fitEach.ariaPressed === "true" ? "shared" : "own" }));
    this.#hold.addEventListener("click", () => emit(this, "span-hold", { held: this.#hold.ariaPressed !== "true" }));
  }

  /** @override */
  focus() {
    this.#search.focus();
    this.#search.select();
  }

  /** @param {View} view */
  set view(view) {
    this.#view = view;
    const { q, level, colour, span, thickness, bins } = view;
    // Unsent input stays.
    if (this.#typing === 0 && this.#search.value !== q) this.#search.value = q;
    this.#level.value = level;
    this.#colour.value = colour;
    this.#thickness.value = thickness;
    this.#hold.hidden = colour === "" || colour === "health";
    write(this.#hold, "aria-pressed", String(span !== ""));
    write(this.#fitEach, "aria-pressed", String(bins === "own"));
  }

  /** @param {number} depth */
  set depth(depth) {
    const options = [["auto", "overview"], ["layer", "layers"],
      ...Array.from({ length: depth }, (_, index) => [String(index + 1), `depth ${index + 1}`]), ["all", "every op"]];
    fill(this.#level, /** @type {[string, string][]} */ (options), this.#view?.level ?? "");
  }

  /** @param {{can: boolean, on: boolean}} folds can: something can be folded */
  set folds({ can, on }) {
    this.#fold.hidden = !can;
    write(this.#fold, "aria-pressed", String(on));
  }

  /** @param {{asked: unknown, isBusy: boolean}} recording the level of the recording, undefined where there is one
   * only; isBusy: its picture is to come */
  set recording({ asked, isBusy }) {
    put(this.#recording, "hidden", asked === undefined);
    if (asked === undefined) return;
    this.#recording.value = String(asked);
    write(this.#recording, "aria-busy", String(isBusy));
    for (const [at, [value, text]] of RECORDINGS.entries()) {
      const option = /** @type {HTMLOptionElement} */ (this.#recording.options[at]);
      writeText(option, isBusy && value === asked ? "Recording…" : text);
    }
  }

  /** @param {readonly OverlayChoice[]} overlays */
  set overlays(overlays) {
    fill(this.#colour, [["", "colour: phase"],
      ...overlays.map(({ name, title }) => /** @type {[string, string]} */ ([name, `colour: ${title}`]))],
      this.#view?.colour ?? "");
    for (const option of this.#colour.options) {
      const reason = overlays.find(({ name }) => name === option.value)?.reason ?? null;
      option.disabled = reason !== null;
      option.title = reason ?? "";
    }
  }

  /** @param {Found | null} found null: nothing is searched for */
  set found(found) {
    const at = found !== null && found.at > 0 ? `${found.at} of ` : "";
    writeText(this.#found,
      found === null ? ""
        : (found.problem ?? (found.total === 0 ? "nothing" : `${at}${found.total}${found.note === null ? "" : "+"}`)));
    this.#search.setAttribute("aria-invalid", String(found?.problem != null));
    this.#found.title = found?.problem ?? found?.note ?? "";
  }

  #ask() {
    cancel(this.#typing);
    this.#typing = 0;
    emit(this, "search-change", { q: this.#search.value.trim() });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    // Keys that the page listens to are text here.
    event.stopPropagation();
    if (event.key === "Enter") {
      if (this.#typing !== 0) this.#ask();
      emit(this, "search-step", { by: event.shiftKey ? -1 : 1 });
    } else if (event.key === "Escape") {
      this.#search.value = "";
      this.#ask();
    } else return;
    event.preventDefault();
  }
}

/** @param {HTMLSelectElement} select @param {readonly [string, string][]} options @param {string} value chosen */
function fill(select, options, value) {
  const key = JSON.stringify(options);
  if (select.dataset["options"] === key) return;
  select.dataset["options"] = key;
  select.replaceChildren(...options.map(([value, text]) => html("option", { value }, text)));
  select.value = value;
}

customElements.define("graph-toolbar", GraphToolbar);
