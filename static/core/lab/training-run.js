/** A training as the page knows it: the updates and scores that the server has told, and what its pictures have shown of
 * the layers. No DOM. */

import { valueAt } from "../format.js";
import { nonFinite } from "../picture.js";

/** Statistics of a layer over the steps: of every update, from the norms of its weight, or of the pictures seen.
 * @type {Record<TrainingStatistic, {title: string, read: "update" | "picture"}>} */
export const STATISTICS = {
  activation_std: { title: "Std of the activation", read: "picture" },
  gradient_std: { title: "Std of the activation's gradient", read: "picture" },
  update_ratio: { title: "Update : weight", read: "update" },
  gradient_norms: { title: "Norm of the weight's gradient", read: "update" },
  weight_norms: { title: "Norm of the weight", read: "update" },
  dead_fraction: { title: "Dead units", read: "picture" },
  saturation: { title: "Saturated units", read: "picture" },
};

/** @param {number | string | null} value a number of the server's JSON @returns {number} */
export function numberOf(value) {
  return value === null ? NaN : Number(value);
}

/** @param {number | string | null} value a number of the server's JSON @returns {number | null} null: not known */
export function figureOf(value) {
  return value === null ? null : Number(value);
}

export class TrainingRun {
  /** By step. @type {Map<number, TrainingUpdate>} */
  updates = new Map();
  /** By step. @type {Map<number, TrainingScores>} */
  scores = new Map();
  /** By step: a value per layer. The std of a tensor with NaN or Inf is NaN or Inf here; the server's counts the finite elements alone.
   * @type {Map<number, Partial<Record<TrainingStatistic, LayerValues>>>} */
  layers = new Map();
  /** In the order of steps. @type {TrainingEvent[]} */
  events = [];
  layerCount = 0;

  /** @param {string} query of its spec, without the step */
  constructor(query) {
    this.query = query;
  }

  /** The last step that is known. */
  get last() {
    let last = 0;
    for (const known of [this.updates, this.scores]) for (const step of known.keys()) last = Math.max(last, step);
    return last;
  }

  /** @param {TrainingMessage} message */
  take({ step, rows, events, batch, held_out: heldOut }) {
    this.#takeRows(rows);
    this.#takeEvents(events);
    this.#takeScores(step, batch, heldOut);
  }

  /** @param {RunDump} run the whole of it, from `run.json` */
  takeRun({ rows, events, steps, batch, held_out: heldOut, layers }) {
    this.#takeRows(rows);
    this.#takeEvents(events);
    steps.forEach((step, at) => {
      this.#takeScores(step, batch[at] ?? null, heldOut[at] ?? null);
      const column = (/** @type {"activation" | "gradient"} */ part, /** @type {string} */ statistic) =>
        (layers[part][statistic]?.[at] ?? []).map(figureOf);
      const std = (/** @type {"activation" | "gradient"} */ part) => {
        const [nan, posinf, neginf] = [column(part, "nan"), column(part, "posinf"), column(part, "neginf")];
        return column(part, "std").map((value, layer) =>
          nan[layer] ? NaN : posinf[layer] || neginf[layer] ? Infinity : value
        );
      };
      this.layers.set(step, { activation_std: std("activation"), gradient_std: std("gradient"),
        dead_fraction: column("activation", "dead_fraction"), saturation: column("activation", "saturation") });
    });
  }

  /** @param {TrainingRows} rows */
  #takeRows(rows) {
    rows.steps.forEach((step, at) => {
      const norms = (/** @type {"weight_norms" | "gradient_norms" | "update_norms"} */ name) =>
        Float64Array.from((rows[name][at] ?? []).map(numberOf));
      const weight = norms("weight_norms");
      const update = norms("update_norms");
      this.layerCount = weight.length;
      this.updates.set(step, { loss: numberOf(rows.loss[at] ?? null), gradient_norms: norms("gradient_norms"),
        weight_norms: weight, update_ratio: update.map((value, layer) => value / (weight[layer] ?? NaN)) });
    });
  }

  /** @param {readonly TrainingEvent[]} events those of some updates, of which it may know some */
  #takeEvents(events) {
    const isKnown = (/** @type {TrainingEvent} */ { step, kind }) =>
      this.events.some((event) => event.step === step && event.kind === kind);
    this.events.push(...events.filter((event) => !isKnown(event)));
    this.events.sort((one, other) => one.step - other.step);
  }

  /** @param {number} step @param {TrainingScore | null} batch @param {TrainingScore | null} heldOut */
  #takeScores(step, batch, heldOut) {
    this.scores.set(step, { loss: numberOf(batch?.loss ?? null), accuracy: numberOf(batch?.accuracy ?? null),
      heldOutLoss: numberOf(heldOut?.loss ?? null), heldOutAccuracy: numberOf(heldOut?.accuracy ?? null) });
  }

  /** @param {number} step @param {Picture} picture */
  takePicture(step, picture) {
    const { topology: { layers }, rows, floats, loss } = picture;
    const of = (/** @type {"activation" | "gradient"} */ part, /** @type {FloatColumn} */ column) =>
      layers.map((layer) => valueAt(floats[column], rows.get(layer[part] ?? "")));
    const std = (/** @type {"activation" | "gradient"} */ part) =>
      of(part, "std").map((value, layer) => {
        const bad = nonFinite(picture, rows.get(layers[layer]?.[part] ?? "") ?? -1);
        return bad === null ? value : bad.word === "NaN" ? NaN : Infinity;
      });
    this.layerCount = layers.length;
    this.layers.set(step, { activation_std: std("activation"), gradient_std: std("gradient"),
      dead_fraction: of("activation", "dead_fraction"), saturation: of("activation", "saturation") });
    if (!this.scores.has(step))
      this.scores.set(step, { loss: loss ?? NaN, accuracy: NaN, heldOutLoss: NaN, heldOutAccuracy: NaN });
  }

  /** @param {TrainingStatistic} statistic @returns {number[]} the steps that have a column, in their order */
  knownSteps(statistic) {
    const known = STATISTICS[statistic].read === "picture" ? this.layers : this.updates;
    return [...known.keys()].sort((one, other) => one - other);
  }

  /** @param {TrainingStatistic} statistic @param {number} step
   * @returns {LayerValues | undefined} a value per layer; undefined where the step is not known */
  column(statistic, step) {
    return STATISTICS[statistic].read === "picture" ? this.layers.get(step)?.[statistic]
      : this.updates.get(step)?.[/** @type {"update_ratio"} */ (statistic)];
  }

  /** @param {TrainingStatistic} statistic @returns {StepColumn[]} in the order of steps */
  columns(statistic) {
    return this.knownSteps(statistic).map((step) => [step, this.column(statistic, step) ?? new Float64Array()]);
  }

  /** @param {TrainingCurve} name @returns {[step: number, value: number][]} in the order of steps */
  curve(name) {
    /** @type {Map<number, number>} */
    const points = new Map();
    if (name === "loss") { for (const [step, { loss }] of this.updates) points.set(step, loss); }
    for (const [step, scores] of this.scores) {
      const value = scores[name];
      // Scores without samples are NaN, and a loss that diverged is too: that one is shown.
      if (!Number.isNaN(value) || name === "loss") points.set(step, value);
    }
    return [...points].sort(([one], [other]) => one - other);
  }
}
