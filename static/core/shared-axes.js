/** One axis of values for all tensors of a kind, so that histograms can be compared from box to box, and from one scale
 * of the weights to the next. No DOM. */

import { valueAt } from "./format.js";
import { ValueAxis } from "./value-axis.js";

/** An axis ends at this many standard deviations of its widest tensor. */
const REACH = 5;
/** Standard deviations that differ by more share a logarithmic axis. */
const MOST_LINEAR = 100;

/** Roles whose tensors are compared with each other; any other tensor keeps an axis of its own.
 * @type {Record<string, string>} */
const KINDS = { input: "signal", preactivation: "signal", activation: "signal", intermediate: "signal",
  parameter: "parameter" };

/** @param {Topology} topology @returns {(string | null)[]} by row: signal, parameter, or the gradient of one of them */
function kinds({ tensors, statistics }) {
  const byId = new Map(tensors.map((tensor) => [tensor.id, tensor]));
  return statistics.tensor.map((id) => {
    const tensor = byId.get(id);
    if (tensor?.role !== "gradient") return KINDS[tensor?.role ?? ""] ?? null;
    const kind = KINDS[byId.get(tensor.gradient_of ?? "")?.role ?? ""];
    return kind === undefined ? null : `${kind} gradient`;
  });
}

/** @param {Picture} picture @returns {readonly (ValueAxis | null)[]} by row; null: the tensor has an axis of its own */
export function sharedAxes({ topology, floats }) {
  const kindOf = kinds(topology);
  /** @type {Map<string, {least: number, most: number, low: number}>} */
  const extents = new Map();
  const roles = new Map(topology.tensors.map(({ id, role }) => [id, role]));
  const hasActivations = topology.tensors.some(({ role }) => role === "activation");
  kindOf.forEach((kind, row) => {
    // Parts of a layer or of the loss have magnitudes of their own.
    if (hasActivations && roles.get(topology.statistics.tensor[row]) === "intermediate") return;
    const [std, min] = [valueAt(floats.std, row), valueAt(floats.min, row)];
    if (kind === null || std === null || min === null || !(std > 0) || std === Infinity) return;
    const { least, most, low } = extents.get(kind) ?? { least: Infinity, most: 0, low: 0 };
    extents.set(kind, { least: Math.min(least, std), most: Math.max(most, std), low: Math.min(low, min) });
  });
  /** @type {Map<string | null, ValueAxis>} */
  const axes = new Map();
  for (const [kind, { least, most, low }] of extents) {
    const high = Math.min(Number.MAX_VALUE / 4, REACH * most);
    // Signals that are never negative, such as a chain of relu alone, need no negative half.
    axes.set(kind, new ValueAxis(most > MOST_LINEAR * least ? "log" : "linear", low < 0 ? -high : 0, high, least));
  }
  return kindOf.map((kind) => axes.get(kind) ?? null);
}

/** Keeps the axes of a model while its scale and its seed change. */
export class AxisKeeper {
  #key = "";
  /** @type {readonly (ValueAxis | null)[]} */
  #axes = [];

  /** @param {Picture} picture @returns {readonly (ValueAxis | null)[]} */
  of(picture) {
    const key = JSON.stringify([picture.key, { ...picture.spec, scale: 0, seed: 0 }]);
    if (key !== this.#key) {
      this.#key = key;
      this.#axes = sharedAxes(picture);
    }
    return this.#axes;
  }

  /** The next picture gets axes of its own. */
  forget() {
    this.#key = "";
  }
}
