/** <layer-table>: the profile in numbers, one row per preactivation and activation. Each layer of a user's own model
 * has a heading: its module's path, and its type or the reason for no theory. A long table holds only the rows near
 * the visible part. While pictures come quickly, a canvas shows the figures.
 * Set `picture`, `theory`. Event, bubbling: `tensor-select` {tensor}. */

import { cancel, later } from "../core/activity.js";
import { buttonOf, emit, headings, html, unseen, writeText } from "../core/dom.js";
import { figureAt, percent } from "../core/format.js";
import { inputOf, isNumbered, labelOf, pathOf } from "../core/lab/profile-series.js";
import { MovingTexts } from "../core/moving-texts.js";
import { nonFinite } from "../core/picture.js";

/** @typedef {{index: number, name: string, type: string}} Heading of a layer that is named, not numbered */
/** @typedef {{label: string, name: string, short: string, tensor: string, gradient: string | null}} Line */
/** @typedef {{tensor: string, gradient: string | null, cells: [Element, Element, Element]}} Row */

/** @typedef {object} Run of rows; only visible runs follow every picture @property {HTMLTableSectionElement} body
 * @property {(Heading | Line)[]} entries @property {number} lines rows with figures
 * @property {number} first place of its first row in the table @property {Row[]} rows
 * @property {{layer: number, type: string, note: HTMLElement}[]} notes @property {boolean} isFilled its rows exist
 * @property {boolean} isInSight */

const RUN_ROWS = 10;
const REST_MS = 250;
/** The elements are never older than this, for those who print, copy or listen to the page. */
const STALE_MS = 5000;
/** In longer tables only rows in or near the visible part are elements. */
const MAX_ROWS = 600;
const NEAR = "600px 0px";
/** px, until a row has been measured */
const USUAL_ROW = 26;

class LayerTable extends HTMLElement {
  #key = "";
  #runs = /** @type {Run[]} */ ([]);
  #runOf = /** @type {Map<Element, Run>} */ (new Map());
  #isLong = false;
  #rowHeight = USUAL_ROW;
  #picture = /** @type {Picture | null} */ (null);
  #theory = /** @type {Theory | null} */ (null);
  #rest = 0;
  /** The last picture came within REST_MS. */
  #isFollowing = false;
  #writtenAt = 0;
  #moving = new MovingTexts(this, () => this.#settle());
  // The panel around it scrolls: browsers without scrollMargin show rows one frame late.
  #sight = new IntersectionObserver((entries) => entries.forEach((entry) => this.#seen(entry)),
    /** @type {any} */ ({ rootMargin: NEAR, scrollMargin: NEAR }));

  disconnectedCallback() {
    cancel(this.#rest);
    this.#settle();
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    if (picture === null) return;
    const [isNew, isQuick] = [picture.key !== this.#key, this.#isFollowing];
    this.#picture = picture;
    cancel(this.#rest);
    this.#isFollowing = !isNew;
    if (isNew) {
      this.#build(picture);
      this.#settle();
      return;
    }
    this.#rest = later(() => this.#settle(), REST_MS);
    const seen = this.#runs.filter(({ isInSight }) => isInSight);
    if (this.#moving.isMoving && performance.now() - this.#writtenAt > STALE_MS) this.#settle();
    else if (isQuick && !this.#moving.isMoving)
      this.#moving.begin(seen.flatMap(({ rows }) => rows.flatMap(({ cells }) => cells)));
    if (this.#moving.isMoving) this.#moving.paint(seen.flatMap((run) => this.#texts(run)));
    else {
      this.#writtenAt = performance.now();
      seen.forEach((run) => this.#update(run));
    }
  }

  /** Writes all figures, once the pictures rest. */
  #settle() {
    this.#isFollowing = false;
    this.#writtenAt = performance.now();
    this.#runs.forEach((run) => this.#update(run));
    this.#moving.end();
  }

  /** @param {Theory | null} theory may be of an earlier picture */
  set theory(theory) {
    if (theory === this.#theory) return;
    this.#theory = theory;
    this.#runs.forEach((run) => this.#note(run));
  }

  /** @param {IntersectionObserverEntry} entry */
  #seen({ target, isIntersecting, boundingClientRect: { height } }) {
    const run = this.#runOf.get(target);
    if (run === undefined) return;
    run.isInSight = isIntersecting;
    if (isIntersecting) {
      this.#fill(run);
      this.#settle();
    } else if (this.#isLong && run.isFilled && !run.body.contains(document.activeElement)) this.#empty(run, height);
  }

  /** @param {Picture} picture */
  #build({ key, topology }) {
    this.#key = key;
    this.#runs = [];
    this.#sight.disconnect();
    const names = new Map(topology.tensors.map(({ id, name }) => [id, name]));
    const gradientOf = new Map(
      topology.tensors.flatMap(({ id, gradient_of }) => gradient_of === null ? [] : [[gradient_of, id]]),
    );
    let rows = 0;
    /** @param {Heading | Line} entry */
    const add = (entry) => {
      let run = this.#runs.at(-1);
      if (run === undefined || run.lines >= RUN_ROWS) {
        run = { body: html("tbody"), entries: [], lines: 0, first: rows, rows: [], notes: [], isFilled: false,
          isInSight: false };
        this.#runs.push(run);
      }
      run.entries.push(entry);
      if ("tensor" in entry) run.lines += 1;
      rows += 1;
    };
    let path = "";
    /** @param {string} label @param {string | null} tensor @param {string | null} [gradient] */
    const addLine = (label, tensor, gradient) => {
      if (tensor === null) return;
      const name = names.get(tensor) ?? tensor;
      add({ label, name, short: labelOf(name, path), tensor, gradient: gradient ?? gradientOf.get(tensor) ?? null });
    };
    addLine("", inputOf(topology.tensors)?.id ?? null);
    const types = new Map(topology.modules.map(({ id, type }) => [id, type]));
    const places = new Map(topology.tensors.map(({ id, module }) => [id, module]));
    for (const { index, name, preactivation, activation, gradient } of topology.layers) {
      let number = String(index);
      if (!isNumbered(index, name)) {
        path = pathOf(name);
        add({ index, name, type: types.get(places.get(preactivation ?? activation ?? "") ?? "") ?? "" });
        number = "";
      }
      if (preactivation !== activation) addLine(number, preactivation);
      addLine(preactivation === activation || preactivation === null ? number : "", activation, gradient);
    }
    this.#isLong = rows > MAX_ROWS;
    this.#runOf = new Map(this.#runs.map((run) => [run.body, run]));
    for (const run of this.#runs) {
      if (this.#isLong) this.#empty(run, run.entries.length * this.#rowHeight);
      else this.#fill(run);
    }
    const titles = headings([unseen("layer"), "tensor", "mean", "std", "std of gradient"]);
    const caption = html("caption", {}, "Per layer, over all elements of the batch");
    const bodies = this.#runs.map(({ body }) => body);
    // A screen reader learns the full number of rows.
    const attributes = { class: path === "" ? "" : "named",
      ...(this.#isLong ? { "aria-rowcount": String(rows + 1) } : {}) };
    this.replaceChildren(html("table", attributes, caption, html("thead", {}, titles), ...bodies));
    for (const body of bodies) this.#sight.observe(body);
  }

  /** @param {Run} run */
  #fill(run) {
    if (run.isFilled) return;
    run.isFilled = true;
    const lines = run.entries.map((entry, order) => {
      const line = html("tr", this.#isLong ? { "aria-rowindex": String(run.first + order + 2) } : {});
      if ("tensor" in entry) this.#write(run, line, entry);
      else {
        const { index, name, type } = entry;
        const note = html("small", { class: "note" });
        run.notes.push({ layer: index, type, note });
        line.append(
          html("th", { scope: "rowgroup", colspan: "5", title: name }, `${index} `, html("b", {}, name), " ", note),
        );
      }
      return line;
    });
    run.body.replaceChildren(...lines);
    this.#note(run);
  }

  /** @param {Run} run @param {HTMLTableRowElement} line @param {Line} entry */
  #write(run, line, { label, name, short, tensor, gradient }) {
    line.append(html("th", { scope: "row" }, label || unseen(short)));
    const link = buttonOf({ class: "link", title: name }, () => emit(this, "tensor-select", { tensor }), short);
    line.insertCell().append(link);
    const cells = /** @type {Row["cells"]} */ ([line.insertCell(), line.insertCell(), line.insertCell()]);
    line.dataset["tensor"] = name;
    run.rows.push({ tensor, gradient, cells });
  }

  /** Replaces a run's rows by an empty one of their height. @param {Run} run @param {number} height px */
  #empty(run, height) {
    if (run.isFilled && height > 0) this.#rowHeight = height / run.entries.length;
    Object.assign(run, { rows: [], notes: [], isFilled: false });
    const room = html("td", { colspan: "5" });
    room.style.height = `${height}px`;
    run.body.replaceChildren(html("tr", { class: "room", "aria-hidden": "true" }, room));
  }

  /** @param {Run} run */
  #note({ notes }) {
    for (const { layer, type, note } of notes) writeText(note, this.#theory?.layers[layer - 1]?.reason ?? type);
  }

  /** @param {Run} run */
  #update(run) {
    for (const { element, text, isWarning } of this.#texts(run)) {
      writeText(element, text);
      element.classList.toggle("warning", isWarning);
    }
  }

  /** @param {Run} run */
  #texts({ rows }) {
    const picture = this.#picture;
    if (picture === null) return [];
    const { mean, std } = picture.floats;
    return rows.flatMap(({ tensor, gradient, cells: [first, second, third] }) => {
      const row = picture.rows.get(tensor);
      const gradientRow = gradient === null ? undefined : picture.rows.get(gradient);
      return [{ element: first, ...written(picture, row, mean) }, { element: second, ...written(picture, row, std) }, {
        element: third,
        ...written(picture, gradientRow, std),
      }];
    });
  }
}

/** @param {Picture} picture @param {number | undefined} row @param {Float64Array} column */
function written(picture, row, column) {
  if (row === undefined) return { text: "–", isWarning: false };
  const bad = nonFinite(picture, row);
  if (bad !== null) return { text: bad.share === 1 ? bad.word : `${bad.word} ${percent(bad.share)}`, isWarning: true };
  return { text: figureAt(picture, column, row), isWarning: false };
}

customElements.define("layer-table", LayerTable);
