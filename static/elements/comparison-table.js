/**
 * <comparison-table>: the run on the screen beside the one that is pinned: in what their specs differ, their losses, and
 * a statistic layer by layer, with a bar that shows where they part.
 *
 * Call `show(picture, pinned, statistic)`. Events, bubbling: `tensor-select` {tensor}, `swap-runs`, `unpin`.
 */

import { compareLayers, compareLoss, differences, isRatio, reach } from "../core/lab/comparison.js";
import { emit, html } from "../core/dom.js";

/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").PinnedRun} PinnedRun */
/** @typedef {import("../core/types.js").ProfileStatistic} ProfileStatistic */
/** @typedef {import("../core/lab/comparison.js").Figure} Figure */
/** @typedef {import("../core/lab/comparison.js").Pair} Pair */

/** @typedef {{a: HTMLElement, b: HTMLElement, contrast: HTMLElement, text: HTMLElement}} Line */

/** @type {Record<ProfileStatistic, {title: string, forward: string}>} */
const TITLES = {
  std: { title: "Std per layer", forward: "activation" },
  mean: { title: "Mean per layer", forward: "activation" },
  dead_fraction: { title: "Dead units per layer", forward: "activation" },
  saturation: { title: "Saturated values per layer", forward: "activation" },
  ratio: { title: "Gradient to weight, std, per layer", forward: "gradient of the weight" },
};

class ComparisonTable extends HTMLElement {
  #built = "";
  /** In the order of the rows. @type {Line[]} */
  #lines = [];
  /** @type {Line | null} */
  #loss = null;
  #specs = html("dl", { class: "specs" });
  #table = html("div");

  connectedCallback() {
    if (this.firstChild !== null) return;
    const swap = html("button", { type: "button", class: "link", title: "What is pinned becomes the run on the screen, and the other way about" }, "Swap");
    const unpin = html("button", { type: "button", class: "link" }, "Unpin");
    swap.addEventListener("click", () => emit(this, "swap-runs", {}));
    unpin.addEventListener("click", () => emit(this, "unpin", {}));
    this.append(html("header", {}, html("h2", {}, "A and B"), swap, unpin), this.#specs, this.#table);
  }

  /**
   * @param {Picture} picture B
   * @param {PinnedRun} pinned A
   * @param {ProfileStatistic} statistic
   */
  show(picture, pinned, statistic) {
    this.#describe(picture, pinned);
    const what = `${picture.key} ${pinned.profile.layers.length} ${pinned.query} ${statistic}`;
    if (what !== this.#built) {
      this.#built = what;
      this.#build(picture, pinned, statistic);
    }
    this.#update(picture, pinned, statistic);
  }

  /** In what the two differ. @param {Picture} picture @param {PinnedRun} pinned */
  #describe(picture, { query, profile }) {
    const changed = differences(profile.spec, picture.spec ?? {});
    const text = JSON.stringify([query, changed]);
    if (this.#specs.dataset["shown"] === text) return;
    this.#specs.dataset["shown"] = text;
    // What another program does not use has no value there.
    const values = (/** @type {"a" | "b"} */ run) =>
      changed.flatMap((difference) => (difference[run] === "" ? [] : `${difference.key} ${difference[run]}`)).join(", ");
    const open = html("a", { href: location.pathname + (query && `?${query}`), title: "Only this run" }, "open A");
    const same = changed.length === 0 ? "the same run as A: change anything, and it shows here" : "";
    this.#specs.replaceChildren(
      html("div", {}, html("dt", { class: "run a" }, "A"), html("dd", {}, values("a"), " ", open)),
      html("div", {}, html("dt", { class: "run b" }, "B"), html("dd", {}, values("b") || same)),
    );
  }

  /** @param {Picture} picture @param {PinnedRun} pinned @param {ProfileStatistic} statistic */
  #build(picture, pinned, statistic) {
    const layers = compareLayers(picture, pinned.profile, statistic);
    const contrast = isRatio(statistic) ? "B ÷ A" : "B − A";
    const { title, forward } = TITLES[statistic];
    const head = html("tr", {}, ...["", "", "A", "B", contrast].map((name) => html("th", { scope: "col" }, name)));
    const loss = html("tbody", { class: "loss" });
    this.#loss = this.#line(loss, null, "", "loss");
    /** @param {"forward" | "backward"} phase @param {string} name @returns {HTMLTableSectionElement[]} */
    const section = (phase, name) => {
      const body = html("tbody", { class: phase }, html("tr", { class: "section" }, html("th", { scope: "rowgroup", colspan: "5" }, name)));
      let isEmpty = true;
      for (const layer of layers) {
        const pair = layer[phase];
        if (pair === null) continue;
        isEmpty = false;
        this.#lines.push(this.#line(body, pair.tensor, String(layer.index), pair.name));
      }
      return isEmpty ? [] : [body];
    };
    this.#lines = [];
    const sections = [...section("forward", forward), ...section("backward", "gradient")];
    // Of what has no layers there is the loss alone.
    const caption = layers.length === 0 ? "Loss" : title;
    this.#table.replaceChildren(html("table", {}, html("caption", {}, caption), html("thead", {}, head), loss, ...sections));
  }

  /** @param {HTMLTableSectionElement} body @param {string | null} tensor @param {string} layer @param {string} name @returns {Line} */
  #line(body, tensor, layer, name) {
    const line = body.insertRow();
    line.append(html("th", { scope: "row" }, layer));
    const label = line.insertCell();
    label.className = "name";
    if (tensor === null) {
      label.append(name);
    } else {
      const link = html("button", { type: "button", class: "link" }, name);
      link.addEventListener("click", () => emit(this, "tensor-select", { tensor }));
      label.append(link);
    }
    const [a, b, contrast] = [line.insertCell(), line.insertCell(), line.insertCell()];
    const text = html("span");
    contrast.className = "contrast";
    contrast.append(html("i"), text);
    if (name !== "") line.dataset["tensor"] = name;
    return { a, b, contrast, text };
  }

  /** @param {Picture} picture @param {PinnedRun} pinned @param {ProfileStatistic} statistic */
  #update(picture, { profile }, statistic) {
    const layers = compareLayers(picture, profile, statistic);
    let order = 0;
    for (const phase of /** @type {const} */ (["forward", "backward"])) {
      const pairs = layers.flatMap((layer) => layer[phase] ?? []);
      const full = reach(pairs, statistic);
      for (const pair of pairs) {
        const line = this.#lines[order];
        if (line !== undefined) write(line, pair, full);
        order += 1;
      }
    }
    // One figure has nothing to be longer or shorter than.
    if (this.#loss !== null) write(this.#loss, compareLoss(picture, profile), Infinity);
  }
}

/** @param {Line} line @param {Pick<Pair, "a" | "b" | "contrast">} pair @param {number} full size of a whole bar */
function write({ a, b, contrast, text }, pair, full) {
  setFigure(a, pair.a);
  setFigure(b, pair.b);
  setText(text, pair.contrast.text);
  const share = Math.max(-1, Math.min(1, (pair.contrast.size ?? 0) / full));
  contrast.classList.toggle("less", share < 0);
  contrast.style.setProperty("--share", Math.abs(share).toFixed(3));
}

/** @param {HTMLElement} cell @param {Figure} figure */
function setFigure(cell, { text, isWarning }) {
  setText(cell, text);
  cell.classList.toggle("warning", isWarning);
}

/** @param {HTMLElement} element @param {string} text */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

customElements.define("comparison-table", ComparisonTable);
