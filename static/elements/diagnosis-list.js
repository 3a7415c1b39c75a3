/** <diagnosis-list>: whether a pass is healthy, the change of the spec that keeps the variance, and the faults: each
 * with its layers, source, remedy and rule.
 * Set `rules`, `picture`, `theory`. Figures and verdicts belong to the last picture with a theory, so that measured
 * and expected match; they pale while theory lags. Events, bubbling: `spec-change` {change, moving}, `tensor-select`
 * {tensor}, `box-open` {id}. */

import { gradientLine, hasChange, layersText } from "../core/lab/diagnosis.js";
import { buttonOf, emit, html, write, writeText } from "../core/dom.js";
import { count, significant } from "../core/format.js";
import { healthIcon } from "../core/health.js";
import { faultIcon, faultsOf, faultWord, headline, judged, placeOf } from "../core/lab/faults.js";
import { parseWidths } from "../core/lab/widths.js";

/** Theory normally arrives within two frames, or when the slider rests. */
const PALE_AFTER_MS = 250;

/** The list ends with the number of the other faults. */
const MAX_FAULTS = 100;

/** key: equal for two faults that differ in figures alone; show: writes these @typedef {{key: string, root: HTMLElement,
 * show: (fault: Fault) => void}} FaultItem */

class DiagnosisList extends HTMLElement {
  rules = /** @type {Rules | null} */ (null);
  #picture = /** @type {Picture | null} */ (null);
  #theory = /** @type {Theory | null} */ (null);
  /** The diagnosis of the last picture with a theory. @type {Diagnosis | string} */
  #judged = "";
  /** The faults of the last picture that had some. @type {readonly Fault[]} */
  #told = [];
  #pale = 0;
  #state = html("p", { class: "state" });
  #gradient = html("p", { class: "gradient" });
  /** A fault whose figures alone change keeps its element, and with it an open fold and the focus.
   * @type {FaultItem[]} */
  #items = [];
  #more = html("li", { class: "more", hidden: true });
  #faults = html("ul", { class: "faults", hidden: true }, this.#more);
  #remedy = html("button", { type: "button", class: "remedy" });
  #remedyNote = html("p", { class: "remedy-note", "data-term": "gain", tabindex: "0" });
  #preserve = html("div", { class: "preserve" }, this.#remedy, this.#remedyNote);
  /** The remedy's change; null if there is nothing left to change. @type {Spec | null} */
  #change = null;

  constructor() {
    super();
    this.#remedy.addEventListener("click", () => {
      if (this.#change !== null) emit(this, "spec-change", { change: this.#change, moving: false });
    });
  }

  connectedCallback() {
    // Permanent parts above temporary ones: nothing jumps while the slider moves.
    this.replaceChildren(this.#state, this.#preserve, this.#gradient, this.#faults);
    this.#draw();
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    this.#picture = picture;
    if (picture === null) return;
    writeText(this.#gradient, gradientLine(picture));
    this.#draw();
  }

  /** @param {Theory | null} theory */
  set theory(theory) {
    this.#theory = theory;
    this.#draw();
  }

  #draw() {
    const [picture, theory] = [this.#picture, this.#theory];
    if (picture === null) return;
    // The faults of another graph do not fit.
    this.#list(picture, faultsOf(picture, theory) ?? (theory === null ? [] : this.#told));
    clearTimeout(this.#pale);
    const layers = picture.topology.layers.length;
    if (layers > 0 && theory !== null && (theory.seq !== picture.seq || theory.layers.length !== layers))
      this.#pale = setTimeout(() => this.classList.add("pale"), PALE_AFTER_MS);
    else {
      this.classList.remove("pale");
      this.#judged = judged(picture, theory);
      this.#advise(typeof this.#judged === "string" ? null : theory, picture.spec ?? {});
    }
    this.#summarize();
  }

  /** @param {Picture} picture @param {readonly Fault[]} faults */
  #list({ topology }, faults) {
    const items = faults.slice(0, MAX_FAULTS).map((fault, order) => {
      const place = placeOf(fault, topology);
      const key = keyOf(fault, place);
      const last = this.#items[order];
      const item = last?.key === key ? last : this.#item(fault, place, key);
      item.show(fault);
      if (last === undefined) this.#more.before(item.root);
      else if (item !== last) last.root.replaceWith(item.root);
      return item;
    });
    for (const { root } of this.#items.slice(items.length)) root.remove();
    this.#items = items;
    this.#more.hidden = faults.length === items.length;
    writeText(this.#more, `${count(faults.length - items.length)} more findings are in the dump.`);
    this.#told = faults;
    this.#faults.hidden = faults.length === 0;
    this.classList.toggle("has-faults", faults.length > 0);
  }

  /** The verdict in one line. */
  #summarize() {
    const { isHealthy, text } = headline(this.#told, this.#judged);
    this.classList.toggle("healthy", isHealthy);
    this.#writeState(isHealthy ? "healthy" : "", text);
    const { rule, source } = this.rules?.band ?? { rule: "", source: "" };
    const title = typeof this.#judged === "string" || this.#judged.figures === 0 ? ""
      : `${this.#judged.within} of ${this.#judged.figures} values lie in the bands of theory. The rule of a band: ${rule} (${source}).`;
    write(this.#state, "title", title);
  }

  /** @param {Fault} fault @param {string} place @param {string} key @returns {FaultItem} */
  #item(fault, place, key) {
    const { kind, source, level, rule } = fault;
    let { layers } = fault;
    const head = html("p", { class: "kind" }, faultIcon(kind), html("b", {}, faultWord(kind)));
    if (level !== "fault") head.append(html("small", {}, level === "note" ? "note" : "not checked"));
    const inspect = buttonOf({ class: "link" }, () => {
      const layer = this.#picture?.topology.layers.find(({ index }) => index === layers[0]);
      emit(this, "tensor-select", { tensor: layer?.activation ?? layer?.preactivation ?? "" });
    });
    if (layers.length > 0) head.append(inspect);
    const said = place === "" ? html("span", { class: "said" })
      : buttonOf({ class: "link said", title: "Show where" }, () => emit(this, "box-open", { id: place }));
    const root = html("li", { class: level === "fault" ? "fault" : `fault ${level}`, "data-kind": kind }, head, said);
    if (source !== null && !beginsWithPlace(fault)) {
      const path = source.file.split(/(?<=[/\\])/).flatMap((part) => [part, html("wbr")]);
      root.append(html("code", { class: "place", title: source.text }, ...path, `:${source.line}`));
    }
    const mend = html("p", { class: "mend" });
    if (fault.remedy !== null) root.append(mend);
    if (rule !== null)
      root.append(html("details", {}, html("summary", {}, "Rule"), html("p", { class: "rule" }, rule)));
    const show = (/** @type {Fault} */ now) => {
      ({ layers } = now);
      writeText(inspect, layersText(layers));
      write(inspect, "title", `Inspect layer ${layers[0]}`);
      writeText(said, now.message);
      writeText(mend, now.remedy ?? "");
    };
    return { key, root, show };
  }

  /** @param {"" | "healthy"} word @param {string} text */
  #writeState(word, text) {
    if (this.#state.dataset["word"] !== word) {
      this.#state.dataset["word"] = word;
      this.#state.replaceChildren(...(word === "" ? [] : [healthIcon(word), html("b", {}, word)]), html("span"));
    }
    writeText(/** @type {HTMLElement} */ (this.#state.lastElementChild), text);
  }

  /** @param {Theory | null} theory @param {Spec} spec of the theory */
  #advise(theory, spec) {
    const advice = theory?.advice ?? null;
    this.#remedy.hidden = advice === null;
    // Without advice no scale helps, wherever the slider stands.
    this.#preserve.hidden = theory !== null && advice === null;
    this.#change = null;
    if (theory === null || advice === null) {
      writeText(this.#remedyNote, "");
      return;
    }
    const isDone = hasChange(spec, advice.change);
    if (!isDone) this.#change = advice.change;
    // It keeps its place, and its focus, when there is nothing to do.
    write(this.#remedy, "aria-disabled", String(isDone));
    writeText(this.#remedy,
      isDone ? (advice.note === null ? "Variance preserved" : "Gain applied")
        : `Preserve variance: ${changeText(advice.change)}`);
    const wanted = significant(advice.gain);
    const gains = isDone ? `√n·σ(w) = ${wanted}` : `√n·σ(w) = ${gainsText(theory, spec)}; should be ${wanted}`;
    writeText(this.#remedyNote, advice.note === null ? gains : `${gains}; ${advice.note}`);
    const source =
      `With √n·σ(w) = ${wanted}, the preactivations keep their variance from layer to layer (${advice.source}).`;
    write(this.#remedy, "title", source);
  }
}

/** @param {Fault} fault @param {string} place @returns {string} */
function keyOf(fault, place) {
  const { message: _, remedy, layers, ...rest } = fault;
  return JSON.stringify([rest, place, beginsWithPlace(fault), remedy === null, layers.length === 0]);
}

/** Whether the message names the place itself, as that of a broken run does. @param {Fault} fault */
function beginsWithPlace({ message, source }) {
  return source !== null && message.startsWith(`${source.file}:${source.line}: `);
}

/** @param {Spec} change @returns {string} ×1.41, or lecun_normal ×1.59 */
function changeText(change) {
  const parts = Object.entries(change).map(([name, value]) => {
    if (name === "scale") return "init" in change && value === 1 ? "" : `×${significant(Number(value))}`;
    return name === "init" ? String(value) : `${name} ${value}`;
  });
  return parts.filter((part) => part !== "").join(" ");
}

/** @param {Theory} theory @param {Spec} spec
 * @returns {string} √n σ(w) of the layers before the last: 1.00, or 0.866–1.22 */
function gainsText({ layers }, spec) {
  const widths = parseWidths(String(spec["widths"])) ?? [];
  const gains = layers.map(({ weight_std }, index) => weight_std * Math.sqrt(widths[index]));
  const hidden = gains.length > 1 ? gains.slice(0, -1) : gains;
  const [low, high] = [significant(Math.min(...hidden)), significant(Math.max(...hidden))];
  return low === high ? low : `${low}–${high}`;
}

customElements.define("diagnosis-list", DiagnosisList);
