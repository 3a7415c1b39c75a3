/** <diagnosis-list>: whether the layers are healthy, which are not and by which rule, the change of the spec that
 * keeps the variance, and the faults of the pass.
 * Set `rules`, `picture`, `theory`. Figures and verdicts belong to the last picture with a theory, so that measured
 * and expected match; they pale while theory lags. Events, bubbling: `spec-change` {change, moving}, `tensor-select`
 * {tensor}, `box-open` {id}. */

import { bandText, diagnose, expectedText, figureText, hasChange, layersText, MEASURES,
  WORST_FIRST } from "../core/lab/diagnosis.js";
import { buttonOf, emit, html, write, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";
import { healthIcon } from "../core/health.js";
import { faultIcon, faultsOf, faultsText, faultWord, isNote, placeOf } from "../core/lab/faults.js";
import { verdict } from "../core/lab/verdict.js";
import { whyNoLayers } from "../core/lab/profile-text.js";
import { parseWidths } from "../core/lab/widths.js";

/** Theory normally arrives within two frames, or when the slider rests. */
const PALE_AFTER_MS = 250;

class DiagnosisList extends HTMLElement {
  rules = /** @type {Rules | null} */ (null);
  #picture = /** @type {Picture | null} */ (null);
  #theory = /** @type {Theory | null} */ (null);
  #judged = { isHealthy: false, isUnhealthy: false, text: "" };
  /** Faults of the pass in the last picture that carried them. @type {readonly Fault[]} */
  #told = [];
  #pale = 0;
  #state = html("p", { class: "state" });
  #verdict = html("p", { class: "verdict" });
  #faults = html("ul", { class: "faults", hidden: true });
  /** The faults drawn, as JSON: unchanged ones keep their elements, and with them open folds. */
  #faultsDrawn = "[]";
  #remedy = html("button", { type: "button", class: "remedy" });
  #remedyNote = html("p", { class: "remedy-note" });
  #preserve = html("div", { class: "preserve" }, this.#remedy, this.#remedyNote);
  #views = new Map(
    WORST_FIRST.map((health) => [health, troubleView(health, (tensor) => emit(this, "tensor-select", { tensor }))]),
  );
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
    const troubles = html("div", { class: "troubles" }, ...[...this.#views.values()].map(({ root }) => root));
    this.replaceChildren(this.#state, this.#preserve, this.#verdict, this.#faults, troubles);
    this.#draw();
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    this.#picture = picture;
    if (picture === null) return;
    const { text, isWarning } = verdict(picture);
    writeText(this.#verdict, text);
    this.#verdict.classList.toggle("warning", isWarning);
    this.#draw();
  }

  /** @param {Theory | null} theory */
  set theory(theory) {
    this.#theory = theory;
    this.#draw();
  }

  #draw() {
    this.#judge();
    this.#find();
    this.#summarize();
  }

  /** Shows the faults of the pass; a picture without news of them leaves the last ones. */
  #find() {
    const picture = this.#picture;
    const faults = faultsOf(picture, this.#theory);
    if (picture === null || faults === null) return;
    const drawn = JSON.stringify(faults);
    if (drawn !== this.#faultsDrawn) {
      this.#faultsDrawn = drawn;
      this.#faults.replaceChildren(...faults.map((fault) => this.#fault(fault, placeOf(fault, picture.topology))));
    }
    this.#told = faults;
    this.#faults.hidden = faults.length === 0;
    this.classList.toggle("has-faults", faults.length > 0);
  }

  /** The verdict of the figures and the faults, in one line. */
  #summarize() {
    const { isHealthy, isUnhealthy, text } = this.#judged;
    const faults = faultsText(this.#told);
    const isAtFault = this.#told.some((fault) => !isNote(fault));
    this.classList.toggle("healthy", isHealthy && !isAtFault);
    this.classList.toggle("unhealthy", isUnhealthy || isAtFault);
    const figures = isHealthy && isAtFault ? "" : text;
    const parts = isHealthy ? [figures, faults] : [faults, figures];
    this.#writeState(isHealthy && !isAtFault ? "healthy" : "", parts.filter((part) => part !== "").join(", "));
  }

  /** @param {Fault} fault @param {string} place @returns {HTMLElement} */
  #fault(fault, place) {
    const { kind, message, source, remedy } = fault;
    const head = html("span", { class: "kind" }, faultIcon(kind), html("b", {}, faultWord(kind)));
    const said = place === "" ? html("span", { class: "said" }, message)
      : html("button", { type: "button", class: "link said", title: "Show where" }, message);
    if (place !== "") said.addEventListener("click", () => emit(this, "box-open", { id: place }));
    // The message of a broken run begins with the place already.
    const line = source === null || message.startsWith(`${source.file}:${source.line}: `) ? []
      : [html("code", { class: "place", title: source.text }, `${source.file}:${source.line}`)];
    const mend = remedy === null ? [] : [html("p", { class: "mend" }, remedy)];
    return html("li", { class: isNote(fault) ? "fault note" : "fault", "data-kind": kind }, head, said, ...line,
      ...mend);
  }

  #judge() {
    clearTimeout(this.#pale);
    const [picture, theory] = [this.#picture, this.#theory];
    const layers = picture?.topology.layers.length ?? 0;
    if (layers > 0 && theory !== null && (theory.seq !== picture?.seq || theory.layers.length !== layers)) {
      this.#pale = setTimeout(() => this.classList.add("pale"), PALE_AFTER_MS);
      return;
    }
    this.classList.remove("pale");
    if (picture !== null && layers === 0) this.#show(null, whyNoLayers(picture.spec));
    else if (picture === null || theory === null)
      this.#show(null, picture?.hidden ? "Judged once the guess is made." : "");
    else {
      this.#show(diagnose(picture, theory), "");
      this.#advise(theory, picture.spec ?? {});
    }
  }

  /** @param {Diagnosis | null} diagnosis @param {string} otherwise */
  #show(diagnosis, otherwise) {
    const troubles = diagnosis?.troubles ?? [];
    const isHealthy = diagnosis !== null && troubles.length === 0;
    let text = otherwise;
    if (diagnosis === null) this.#advise(null, {});
    else if (isHealthy) {
      text = diagnosis.figures === 0 ? "no theory of it" : `${diagnosis.within} of ${diagnosis.figures} in band`;
      const { rule, source } = this.rules?.band ?? { rule: "", source: "" };
      const figures =
        `${diagnosis.within} of the ${diagnosis.figures} figures that theory speaks of lie in their bands`;
      write(this.#state, "title",
        `${diagnosis.layers} layers, all healthy by the rules; ${figures}: ${rule} (${source}).`);
    } else {
      const unhealthy = troubles.reduce((sum, { layers }) => sum + layers.length, 0);
      text = `${unhealthy} of ${diagnosis.layers} ${diagnosis.layers === 1 ? "layer" : "layers"} unhealthy`;
      write(this.#state, "title", "");
    }
    this.#judged = { isHealthy, isUnhealthy: troubles.length > 0, text };
    const shown = new Set(troubles.map(({ health }) => health));
    for (const [health, view] of this.#views) view.root.hidden = !shown.has(health);
    const tensors = this.#picture?.topology.tensors ?? [];
    for (const trouble of troubles) {
      const name = tensors.find(({ id }) => id === trouble.figure?.tensor)?.name ?? "";
      this.#views.get(trouble.health)?.show(trouble, name, this.rules);
    }
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
      `With √n·σ(w) = ${wanted} the variance of preactivations stays as it is from layer to layer (${advice.source}).`;
    write(this.#remedy, "title", source);
    write(this.#remedyNote, "title", source);
  }
}

/** @param {Health} health @param {(tensor: string) => void} select */
function troubleView(health, select) {
  let tensor = /** @type {string | null} */ (null);
  const range = buttonOf({ class: "link" }, () => {
    if (tensor !== null) select(tensor);
  });
  const why = html("summary");
  const [criterion, origin] = [html("p", { class: "rule" }), html("p", { class: "rule" })];
  const fold = html("details", {}, why, criterion, origin);
  const measured = html("b");
  const where = html("span");
  const expected = html("b");
  const band = html("span");
  const figures = html("dl", {}, html("div", {}, html("dt", {}, "measured"), html("dd", {}, measured, " ", where)),
    html("div", {}, html("dt", {}, "expected"), html("dd", {}, expected, " ", band)));
  const root = html("section", { class: "trouble", "data-health": health, hidden: true },
    html("h3", {}, healthIcon(health), html("b", {}, health), " ", range), fold, figures);
  return {
    root,
    /** @param {Trouble} trouble @param {string} name of the tensor @param {Rules | null} rules */
    show(trouble, name, rules) {
      ({ tensor } = trouble);
      const { rule, source } = rules?.health?.[health] ?? { rule: "", source: "" };
      writeText(criterion, `Rule: ${rule} (${source}).`);
      root.hidden = false;
      writeText(range, layersText(trouble.layers));
      write(range, "title", `Inspect layer ${trouble.layers[0]}`);
      writeText(why, reason(trouble));
      const { figure } = trouble;
      figures.hidden = figure === null;
      if (figure === null) return;
      const { quantity } = figure;
      const { label, isShare } = MEASURES[quantity];
      writeText(measured, figureText(quantity, figure.measured));
      writeText(where, `${label} ${isShare ? "in" : "of"} ${name}`);
      writeText(expected, figure.expected === null ? "–" : expectedText(quantity, figure.expected));
      writeText(band, figure.expected === null ? "theory does not say" : bandText(quantity, figure.expected.band));
      const { rule: equation, source: author } = rules?.expected?.[quantity] ?? { rule: "", source: "" };
      writeText(origin, `Expected: ${equation} (${author}).`);
      write(figures, "title", origin.textContent ?? "");
    },
  };
}

/** @param {Trouble} trouble @returns {string} the reason by the rule, in this net */
function reason({ health, figure, ratio }) {
  if (health === "non-finite") return "NaN or ±Inf among the numbers";
  if (health === "dead") return "dead units pass no gradient";
  if (health === "saturated") return "its flat ends pass no gradient";
  const times = ratio === null ? "" : `${significant(ratio)} × `;
  return figure?.quantity === "gradient_std" ? `gradient ${times}the last layer's` : `activation ${times}the input`;
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
