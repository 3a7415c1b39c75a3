/** <comparison-table>: the run on the screen beside the pinned one: where their specs differ, their losses, and a
 * statistic per layer with a bar for the difference; for two dumps also the tensors that differ most, and those that
 * only one has.
 * Call `show(picture, pinned, statistic)`. Events, bubbling: `tensor-select` {tensor}, `swap-runs`, `unpin`. */

import { compareLayers, compareLoss, differences, isRatio, reach } from "../core/lab/comparison.js";
import { dumpDifferences, greatestDifferences } from "../core/lab/dump-run.js";
import { buttonOf, emit, headings, html, unseen, writeText } from "../core/dom.js";
import { count, significant } from "../core/format.js";

/** @typedef {Pick<ComparedPair, "a" | "b" | "contrast">} Figures */
/** @typedef {import("../core/lab/comparison.js").ComparedLayer} ComparedLayer */
/** @typedef {{a: HTMLElement, b: HTMLElement, contrast: HTMLElement, text: HTMLElement}} Line */

/** @type {Record<ProfileStatistic, {title: string, forward: string}>} */
const TITLES = {
  std: { title: "Std per layer", forward: "activation" },
  mean: { title: "Mean per layer", forward: "activation" },
  dead_fraction: { title: "Dead units per layer", forward: "activation" },
  saturation: { title: "Saturated values per layer", forward: "activation" },
  ratio: { title: "Gradient to weight, std, per layer", forward: "gradient of the weight" },
};

/** Tensors listed that differ, and modules or tensors listed that only one dump has. */
const [MAX_TENSORS, MAX_ALONE] = [12, 20];

class ComparisonTable extends HTMLElement {
  #built = "";
  /** @type {Line[]} */
  #lines = [];
  #loss = /** @type {Line | null} */ (null);
  #specs = html("dl", { class: "specs" });
  /** Filled for two dumps. */
  #tensors = html("div", { class: "tensors" });
  #table = html("div");

  connectedCallback() {
    const title = "Swap A and B: the pinned run becomes the current run";
    const swap = buttonOf({ class: "link", title }, () => emit(this, "swap-runs", {}), "Swap");
    const unpin = buttonOf({ class: "link" }, () => emit(this, "unpin", {}), "Unpin");
    this.append(html("header", {}, html("h2", {}, "A and B"), swap, unpin), this.#specs, this.#tensors, this.#table);
  }

  /** @param {Picture} picture B @param {PinnedRun} pinned A @param {ProfileStatistic} statistic */
  show(picture, pinned, statistic) {
    this.#describe(picture, pinned);
    const what = `${picture.key} ${pinned.profile.layers.length} ${pinned.query} ${pinned.dump?.index} ${statistic}`;
    const layers = compareLayers(picture, pinned.profile, statistic);
    if (what !== this.#built) {
      this.#built = what;
      this.#build(layers, statistic);
    }
    this.#update(layers, compareLoss(picture, pinned.profile), statistic);
    this.#tensors.hidden = pinned.dump === undefined;
    if (pinned.dump !== undefined) this.#compareDumps(picture, pinned, pinned.dump);
  }

  /** @param {Picture} picture @param {PinnedRun} pinned @param {PinnedDump} dump */
  #compareDumps(picture, pinned, { match, picture: a, shown }) {
    const { pairs, alike, compared } = greatestDifferences(picture, pinned, MAX_TENSORS);
    const full = pairs.reduce((most, { difference }) => difference < Infinity ? Math.max(most, difference) : most,
      Number.MIN_VALUE);
    const rows = pairs.map(({ tensor, name, a, b, difference }) => {
      const link = buttonOf({ class: "link" }, () => emit(this, "tensor-select", { tensor }), name);
      const bar = html("i");
      bar.style.setProperty("--share", Math.min(1, difference / full).toFixed(3));
      const text = difference < Infinity ? significant(difference) : "NaN, Inf";
      return html("tr", { "data-tensor": name }, html("td", { class: "name", title: name }, link), html("td", {}, a),
        html("td", {}, b),
        html("td", { class: difference < Infinity ? "apart" : "apart warning" }, bar, html("span", {}, text)));
    });
    const head = headings([unseen("tensor"), "A", "B", "difference"]);
    const caption = compared === 0 ? "The two graphs have no tensor in common."
      : pairs.length === 0 ? `All ${compared} tensors are equal.`
      : "The tensors that differ most: std, and the largest relative difference of std, minimum and maximum";
    const rest = pairs.length === 0 ? [] : [
      html("p", { class: "hint" },
        `${count(compared)} compared, ${alike === 0 ? "none" : count(alike)} of them equal${
          match?.isSame === true ? "" : "; matched by module path, op and name"
        }`),
    ];
    const isSelf = shown !== null && shown.dump === pinned.dump?.dump;
    this.#tensors.replaceChildren(
      html("table", {}, html("caption", {}, isSelf ? "A and B are the same dump. Go to another dump." : caption),
        ...(rows.length === 0 ? [] : [html("thead", {}, head), html("tbody", {}, ...rows)])),
      ...rest,
      ...(match === null || match.isSame ? []
        : [alone("Only in A", match.onlyA, a), alone("Only in B", match.onlyB, picture)].flat()),
    );
  }

  /** @param {Picture} picture @param {PinnedRun} pinned */
  #describe(picture, { query, profile, dump }) {
    const other = dump?.shown ?? null;
    const changed = dump === undefined || other === null ? differences(profile.spec, picture.spec ?? {})
      : dumpDifferences(dump.dump, other.dump);
    const text = JSON.stringify([query, dump?.name, other?.name, changed]);
    if (this.#specs.dataset["shown"] === text) return;
    this.#specs.dataset["shown"] = text;
    const line = (/** @type {"a" | "b"} */ run, /** @type {(Node | string)[]} */ ...told) =>
      html("div", {}, html("dt", { class: `run ${run}` }, run.toUpperCase()), html("dd", {}, ...told));
    if (dump !== undefined && other !== null) {
      const told = (/** @type {"a" | "b"} */ run) =>
        changed.flatMap((difference) => [html("br"), `${difference.key} ${difference[run]}`]);
      this.#specs.replaceChildren(line("a", html("strong", {}, dump.name), ...told("a")),
        line("b", html("strong", {}, other.name), ...told("b")));
      return;
    }
    // A key that the program does not use has no value.
    const values = (/** @type {"a" | "b"} */ run) =>
      changed.flatMap((difference) => difference[run] === "" ? [] : `${difference.key} ${difference[run]}`).join(", ");
    const open = html("a", { href: location.pathname + (query && `?${query}`), title: "Only this run" }, "open A");
    const same = changed.length === 0 ? "the same run as A; change a setting to compare" : "";
    this.#specs.replaceChildren(line("a", values("a"), " ", open), line("b", values("b") || same));
  }

  /** @param {ComparedLayer[]} layers @param {ProfileStatistic} statistic */
  #build(layers, statistic) {
    const contrast = isRatio(statistic) ? "B ÷ A" : "B − A";
    const { title, forward } = TITLES[statistic];
    const head = headings([unseen("layer"), unseen("tensor"), "A", "B", contrast]);
    const loss = html("tbody", { class: "loss" });
    this.#loss = this.#line(loss, null, "", "loss");
    const section = (/** @type {"forward" | "backward"} */ phase, /** @type {string} */ name) => {
      const body = html("tbody", { class: phase },
        html("tr", { class: "section" }, html("th", { scope: "rowgroup", colspan: "5" }, name)));
      for (const { index, [phase]: pair } of layers)
        if (pair !== null) this.#lines.push(this.#line(body, pair.tensor, String(index), pair.name));
      return body.rows.length === 1 ? [] : [body];
    };
    this.#lines = [];
    const sections = [...section("forward", forward), ...section("backward", "gradient")];
    // Without layers the table holds the loss alone.
    const caption = layers.length === 0 ? "Loss" : title;
    this.#table.replaceChildren(
      html("table", {}, html("caption", {}, caption), html("thead", {}, head), loss, ...sections),
    );
  }

  /** @param {HTMLTableSectionElement} body @param {string | null} tensor @param {string} layer @param {string} name */
  #line(body, tensor, layer, name) {
    const line = body.insertRow();
    line.append(layer === "" ? html("td") : html("th", { scope: "row" }, layer));
    const label = line.insertCell();
    label.className = "name";
    label.append(
      tensor === null ? name : buttonOf({ class: "link" }, () => emit(this, "tensor-select", { tensor }), name),
    );
    const [a, b, contrast] = [line.insertCell(), line.insertCell(), line.insertCell()];
    const text = html("span");
    contrast.className = "contrast";
    contrast.append(html("i"), text);
    if (name !== "") line.dataset["tensor"] = name;
    label.title = name;
    return { a, b, contrast, text };
  }

  /** @param {ComparedLayer[]} layers @param {Figures} loss @param {ProfileStatistic} statistic */
  #update(layers, loss, statistic) {
    let order = 0;
    for (const phase of /** @type {const} */ (["forward", "backward"])) {
      const pairs = layers.flatMap((layer) => layer[phase] ?? []);
      const full = reach(pairs, statistic);
      for (const pair of pairs) write(this.#lines[order++], pair, full);
    }
    // A single figure gets no bar.
    if (this.#loss !== null) write(this.#loss, loss, Infinity);
  }
}

/** @param {string} title @param {UnmatchedThings} things @param {Picture} picture @returns {HTMLElement[]} */
function alone(title, { modules, tensors }, { topology }) {
  const names = tensors.map((tensor) => topology.tensors[tensor]?.name ?? "");
  const all = [...modules, ...names];
  if (all.length === 0) return [];
  const more = all.length - MAX_ALONE;
  return [
    html("h3", {}, `${title}: ${count(all.length)}`),
    html("ul", { class: "alone" }, ...all.slice(0, MAX_ALONE).map((text) => html("li", {}, text)),
      ...(more > 0 ? [html("li", { class: "hint" }, `and ${count(more)} more`)] : [])),
  ];
}

/** @param {Line} line @param {Figures} pair @param {number} full size of a whole bar */
function write({ a, b, contrast, text }, pair, full) {
  setFigure(a, pair.a);
  setFigure(b, pair.b);
  writeText(text, pair.contrast.text);
  const share = Math.max(-1, Math.min(1, (pair.contrast.size ?? 0) / full));
  contrast.classList.toggle("less", share < 0);
  contrast.style.setProperty("--share", Math.abs(share).toFixed(3));
}

/** @param {HTMLElement} cell @param {ComparedFigure} figure */
function setFigure(cell, { text, isWarning }) {
  writeText(cell, text);
  cell.classList.toggle("warning", isWarning);
}

customElements.define("comparison-table", ComparisonTable);
