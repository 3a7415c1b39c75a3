/** A run of a folder as the page knows it: what the server has told so far of its steps and layers. No DOM. */

import { hex, oklch } from "../colours.js";
import { figureOf, numberOf } from "./training-run.js";

/** More points than this are fetched anew, since the server thins them. */
const MOST_POINTS = 4000;
const MOST_COLUMNS = 1000;

const HUES = [250, 30, 145, 310, 90, 200, 350, 60];
const DASHES = [[], [6, 3], [2, 2]];

/** @param {number} place of the run @param {boolean} isDark @returns {{colour: string, dash: number[]}} of its curve */
export function lineOf(place, isDark) {
  const hue = HUES[place % HUES.length] ?? 0;
  const dash = DASHES[Math.floor(place / HUES.length) % DASHES.length] ?? [];
  return { colour: hex(isDark ? oklch(0.76, 0.14, hue) : oklch(0.53, 0.16, hue)), dash };
}

/** A statistic of a part: a value per step and layer. */
export class LayerTable {
  /** @type {string[]} */
  layers = [];
  /** @type {StepColumn[]} */
  columns = [];
  /** The state of the run to which the table belongs. */
  state = "";

  /** The step to ask from, -1 for all. */
  get after() {
    return this.columns.length > MOST_COLUMNS ? -1 : this.columns.at(-1)?.[0] ?? -1;
  }

  /** @param {RunRowsDump} rows after a step */
  take({ after, layers, steps, values }) {
    if (after < 0) this.columns = [];
    this.layers = layers;
    this.columns.push(...steps.map((step, at) => /** @type {StepColumn} */ ([step, (values[at] ?? []).map(figureOf)])));
  }

  /** @param {number} step @returns {StepColumn | undefined} the last one that is not later */
  at(step) {
    return this.columns[placeAt(this.columns, step)];
  }
}

export class BoardRun {
  /** By column, in the order of steps. @type {Record<RunCurve, [step: number, value: number][]>} */
  curves = { loss: [], gradient_norm: [], lr: [] };
  last = -1;
  /** @type {RunEvent[]} */
  events = [];
  moreEvents = 0;
  /** Steps with a graph dump. @type {number[]} */
  traces = [];
  /** @type {string[]} */
  parts = [];
  /** @type {string[]} */
  statistics = [];
  /** The state of the file that was read last. */
  state = "";
  problem = "";
  /** By part and statistic. @type {Map<string, LayerTable>} */
  #tables = new Map();

  /** @param {string} name @param {number} started */
  constructor(name, started) {
    this.name = name;
    this.started = started;
  }

  /** The step to ask from, -1 for all. */
  get after() {
    return this.curves.loss.length > MOST_POINTS ? -1 : this.last;
  }

  /** @param {RunStepsDump} told after a step @param {number} after */
  take({ steps, events, more_events: moreEvents, traces, parts, statistics }, after) {
    for (const [name, curve] of Object.entries(this.curves)) {
      if (after < 0) curve.length = 0;
      steps[/** @type {RunCurve} */ (name)].forEach((value, at) => {
        if (value !== null) curve.push([steps.step[at] ?? 0, numberOf(value)]);
      });
    }
    this.last = steps.step.at(-1) ?? this.last;
    this.events = events.step.map((step, at) => ({ run: this.name, step, kind: events.kind[at] ?? "",
      text: events.text[at] ?? "", op: events.node[at] ?? events.op[at] ?? null, batch: events.batch[at] ?? null })
    );
    Object.assign(this, { moreEvents, traces, parts, statistics });
  }

  /** @param {string} part @param {string} statistic @returns {LayerTable} */
  table(part, statistic) {
    const key = `${part} ${statistic}`;
    const table = this.#tables.get(key) ?? new LayerTable();
    this.#tables.set(key, table);
    return table;
  }

  /** @param {RunCurve} name @param {number} step @returns {number | null} the value at the last step that is not later */
  valueAt(name, step) {
    return this.curves[name][placeAt(this.curves[name], step)]?.[1] ?? null;
  }

  /** @param {RunCurve} name @param {number} step @returns {number} the last finite value that is not later; NaN: none */
  finiteAt(name, step) {
    const curve = this.curves[name];
    let place = placeAt(curve, step);
    while (place >= 0 && !Number.isFinite(curve[place]?.[1])) place -= 1;
    return curve[place]?.[1] ?? NaN;
  }

  /** @param {RunEvent} event @returns {{step: number, before: number | null, address: string} | null} the graph of its
   * step, beside the last one before it, if possible of a step without events; null: the run has none */
  graphOf({ step, op }) {
    const place = this.traces.indexOf(step);
    if (place < 0) return null;
    const earlier = this.traces.slice(0, place);
    const good = earlier.findLastIndex((each) => !this.events.some((event) => event.step === each));
    const other = good < 0 ? place - 1 : good;
    const before = earlier[other] ?? null;
    const compared = before === null ? "" : `&a=dump:${other}&colour=difference`;
    const view = `dump=${place}${compared}${op === null ? "" : `&select=${encodeURIComponent(op)}`}`;
    return { step, before, address: `/runs/graph/${encodeURIComponent(this.name)}#${view}` };
  }
}

/** @param {readonly (readonly [step: number, ...unknown[]])[]} points @param {number} step
 * @returns {number} place of the last one that is not later, −1 for none */
function placeAt(points, step) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((points[middle]?.[0] ?? 0) <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
