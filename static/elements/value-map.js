/** <value-map>: the values of a tensor, or a window of them, as a heatmap around 0. Asks the server when visible and
 * when the run changes; drops earlier requests.
 * Call `show(picture, graph, tensor)`; set `isOpen` while visible. No events. */

import { cancel, later } from "../core/activity.js";
import { ApiError, apiPath, getJson } from "../core/api.js";
import { buttonOf, html, writeText } from "../core/dom.js";
import { isHidden, significant } from "../core/format.js";
import { aroundZero, isDarkScheme, onSchemeChange, readPalette } from "../core/colours.js";
import { cellsOf, MAX_VALUES, windowAt } from "../core/inspector/value-window.js";

/** ms after which values are requested, so a moving slider does not request intermediate runs. */
const SETTLE_MS = 200;
const [LARGEST_CELL, TALLEST] = [18, 320];

class ValueMap extends HTMLElement {
  #picture = /** @type {Picture | null} */ (null);
  #graph = /** @type {Graph | null} */ (null);
  #tensor = -1;
  #isOpen = false;
  #at = { row: 0, column: 0 };
  /** Path of the values shown or requested. */
  #asked = "";
  #timer = 0;
  #pending = /** @type {AbortController | null} */ (null);
  #cells = /** @type {ValueCells | null} */ (null);
  #cursor = -1;
  #cell = { width: 0, height: 0 };

  #canvas = html("canvas", { tabindex: "0", role: "img" });
  #readout = html("output", { class: "readout" });
  #legend = html("p", { class: "legend" });
  #message = html("p", { class: "hint" });
  #pager = html("div", { class: "pager" });
  #body = html("tbody");
  #twin = html("details", { class: "twin" }, html("summary", {}, "As a table"),
    html("div", { class: "scroll" }, html("table", {}, this.#body)));

  connectedCallback() {
    this.append(this.#pager, this.#canvas, this.#readout, this.#legend, this.#message, this.#twin);
    this.#canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.#canvas.addEventListener("pointerleave", () => this.#move(-1));
    this.#canvas.addEventListener("keydown", (event) => this.#key(event));
    this.#canvas.addEventListener("focus", () => this.#move(Math.max(0, this.#cursor)));
    this.#twin.addEventListener("toggle", () => this.#fillTable());
    new ResizeObserver(() => this.#draw()).observe(this);
    onSchemeChange(() => this.#draw());
    this.#say("");
  }

  disconnectedCallback() {
    this.#drop();
  }

  /** @param {boolean} isOpen */
  set isOpen(isOpen) {
    this.#isOpen = isOpen;
    if (isOpen) this.#ask(0);
    else this.#drop();
  }

  /** @param {Picture} picture @param {Graph} graph @param {number} tensor */
  show(picture, graph, tensor) {
    const isOther = tensor !== this.#tensor || graph !== this.#graph;
    this.#picture = picture;
    this.#graph = graph;
    this.#tensor = tensor;
    if (isOther) this.#at = { row: 0, column: 0 };
    if (this.#isOpen) this.#ask(isOther || this.#cells === null ? 0 : SETTLE_MS);
  }

  #drop() {
    cancel(this.#timer);
    this.#pending?.abort();
    this.#pending = null;
    if (this.#cells === null) this.#asked = "";
  }

  /** @param {number} delay ms */
  #ask(delay) {
    const [picture, graph] = [this.#picture, this.#graph];
    const tensor = graph?.topology.tensors[this.#tensor];
    if (picture === null || graph === null || tensor === undefined) return;
    if (isHidden(picture, picture.rows.get(tensor.id))) return this.#refuse("You see its values after your guess.");
    // A dump may be of a model that no spec describes.
    const spec = /** @type {Picture["spec"] | null} */ (picture.spec);
    if (spec === null || Object.keys(spec).length === 0) return this.#refuse("A dump contains statistics, not values.");
    if (graph.tensorId[this.#tensor] !== tensor.name)
      return this.#refuse("Several tensors have this name, so the page cannot request its values.");
    const part = windowAt(tensor.shape, this.#at.row, this.#at.column);
    if (part === null) return this.#refuse("Its rows have too many values to show.");
    const query = new URLSearchParams(Object.entries(spec).map(([key, value]) => [key, String(value)]));
    query.set("name", tensor.name);
    query.set("rows", part.rows.join(":"));
    query.set("cols", part.cols.join(":"));
    const path = apiPath("tensor.json", query.toString());
    if (path === this.#asked) return;
    this.#drop();
    this.#asked = path;
    this.#timer = later(() => void this.#fetch(path, tensor.shape, part), delay);
  }

  /** @param {string} path @param {readonly number[]} shape @param {ValueWindow} part */
  async #fetch(path, shape, part) {
    const pending = new AbortController();
    this.#pending = pending;
    this.classList.add("is-waiting");
    try {
      const answer = await getJson(path, pending.signal);
      if (pending.signal.aborted) return;
      this.#cells = cellsOf(answer.values, shape, part);
      this.#page(shape, part);
      this.#say("");
      this.#draw();
      this.#fillTable();
    } catch (problem) {
      if (pending.signal.aborted) return;
      if (!(problem instanceof ApiError)) throw problem;
      this.#refuse(problem.body.message);
    } finally {
      if (this.#pending === pending) {
        this.#pending = null;
        this.classList.remove("is-waiting");
      }
    }
  }

  /** @param {string} why */
  #refuse(why) {
    this.#drop();
    this.#asked = "";
    this.#cells = null;
    this.#pager.replaceChildren();
    this.#say(why);
  }

  /** @param {string} message */
  #say(message) {
    writeText(this.#message, message === "" && this.#cells === null ? "…" : message);
    const isShown = this.#cells !== null;
    this.#message.hidden = isShown;
    for (const part of [this.#canvas, this.#readout, this.#legend, this.#twin, this.#pager]) part.hidden = !isShown;
  }

  /** Buttons to further rows and columns. @param {readonly number[]} shape @param {ValueWindow} part */
  #page(shape, { rows, cols }) {
    /** @param {string} word @param {[number, number]} range @param {number} size @param {(from: number) => void} go */
    const pages = (word, [from, to], size, go) => {
      if (from === 0 && to >= size) return [];
      /** @param {string} text @param {string} label @param {number} next @param {boolean} isOff */
      const button = (text, label, next, isOff) =>
        buttonOf({ class: "icon-button", "aria-label": label, disabled: isOff }, () => {
          go(next);
          this.#ask(0);
        }, text);
      const step = to - from;
      return [
        html("span", {}, button("‹", `${word} before`, Math.max(0, from - step), from === 0),
          `${word} ${from}–${to - 1} of ${size}`, button("›", `${word} after`, to, to >= size)),
      ];
    };
    const nodes = [
      ...pages("rows", rows, shape[0] ?? 1, (row) => (this.#at.row = row)),
      ...pages("columns", cols, shape[1] ?? 1, (column) => (this.#at.column = column)),
    ];
    this.#pager.replaceChildren(...nodes);
  }

  #draw() {
    const cells = this.#cells;
    const width = this.clientWidth;
    if (cells === null || width === 0 || cells.columns === 0) return;
    const side = Math.max(1, Math.min(LARGEST_CELL, width / cells.columns));
    const height = Math.max(Math.min(side, TALLEST / cells.rows), 1);
    this.#cell = { width: side, height: Math.max(height, cells.rows === 1 ? LARGEST_CELL : 0) };
    const scale = devicePixelRatio;
    this.#canvas.width = Math.round(this.#cell.width * cells.columns * scale);
    this.#canvas.height = Math.round(this.#cell.height * cells.rows * scale);
    this.#canvas.style.width = `${this.#canvas.width / scale}px`;
    this.#canvas.style.height = `${this.#canvas.height / scale}px`;
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    const palette = readPalette();
    const isDark = isDarkScheme();
    let most = 0;
    for (const value of cells.values) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
    const [across, down] = [this.#cell.width * scale, this.#cell.height * scale];
    const edge = (/** @type {number} */ at) => Math.round(at);
    let bad = 0;
    cells.values.forEach((value, cell) => {
      const [column, row] = [cell % cells.columns, Math.floor(cell / cells.columns)];
      const [x, y] = [edge(column * across), edge(row * down)];
      const [w, h] = [edge((column + 1) * across) - x, edge((row + 1) * down) - y];
      if (Number.isFinite(value)) {
        context.fillStyle = aroundZero(most === 0 ? 0 : value / most, isDark);
        context.fillRect(x, y, w, h);
        return;
      }
      bad += 1;
      context.strokeStyle = palette.warning;
      context.lineWidth = Math.max(1, scale / 2);
      context.beginPath();
      for (let offset = 0; offset < w + h; offset += 3 * scale) {
        context.moveTo(x + Math.min(offset, w), y + Math.max(0, offset - w));
        context.lineTo(x + Math.max(0, offset - h), y + Math.min(offset, h));
      }
      context.stroke();
    });
    if (this.#cursor >= 0) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 1.5 * scale;
      context.strokeRect((this.#cursor % cells.columns) * across, Math.floor(this.#cursor / cells.columns) * down,
        across, down);
    }
    const swatch = (/** @type {number} */ share, /** @type {string} */ text) => {
      const colour = html("i");
      colour.style.background = aroundZero(share, isDark);
      return html("span", {}, colour, text);
    };
    this.#legend.replaceChildren(swatch(-1, significant(-most)), swatch(0, "0"), swatch(1, significant(most)),
      ...(bad > 0 ? [html("span", { class: "bad" }, html("i"), "NaN, ±Inf")] : []));
    const name = this.#graph?.topology.tensors[this.#tensor]?.name ?? "";
    this.#canvas.setAttribute("aria-label",
      `Values of ${name}, ${cells.rows} by ${cells.columns}, up to ${significant(most)} away from 0${
        bad > 0 ? `, ${bad} of them not finite` : ""
      }. Arrow keys read them.`);
    const isAt = this.#cursor >= 0 && this.#cursor < cells.values.length;
    writeText(this.#readout,
      isAt ? `${cells.index(this.#cursor)} = ${valueText(cells.values[this.#cursor])}`
        : `${cells.rows} × ${cells.columns} values`);
  }

  /** @param {PointerEvent} event */
  #point({ offsetX, offsetY }) {
    const cells = this.#cells;
    if (cells === null) return;
    const [column, row] = [Math.floor(offsetX / this.#cell.width), Math.floor(offsetY / this.#cell.height)];
    const isInside = column >= 0 && row >= 0 && column < cells.columns && row < cells.rows;
    this.#move(isInside ? row * cells.columns + column : -1);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const cells = this.#cells;
    const step =
      { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -(cells?.columns ?? 0), ArrowDown: cells?.columns ?? 0 }[event.key];
    if (cells === null || step === undefined) return;
    event.preventDefault();
    const next = this.#cursor < 0 ? 0 : this.#cursor + step;
    const isSameRow = Math.abs(step) > 1 || cells.columns === 1
      || Math.floor(next / cells.columns) === Math.floor(this.#cursor / cells.columns);
    if (next >= 0 && next < cells.values.length && isSameRow) this.#move(next);
  }

  /** @param {number} cell −1 for none */
  #move(cell) {
    if (cell === this.#cursor) return;
    this.#cursor = cell;
    this.#draw();
  }

  #fillTable() {
    const cells = this.#cells;
    if (!this.#twin.open || cells === null) return;
    const rows = Array.from({ length: Math.min(cells.rows, MAX_VALUES) },
      (_, row) =>
        html("tr", {}, html("th", { scope: "row" }, cells.index(row * cells.columns)),
          ...Array.from(cells.values.subarray(row * cells.columns, (row + 1) * cells.columns), (value) =>
            html("td", {}, valueText(value)))));
    this.#body.replaceChildren(...rows);
  }
}

/** @param {number | undefined} value @returns {string} */
function valueText(value) {
  return value === Infinity ? "+Inf" : value === -Infinity ? "−Inf" : significant(value);
}

customElements.define("value-map", ValueMap);
