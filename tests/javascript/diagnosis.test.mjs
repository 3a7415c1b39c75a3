/** Whether the layers are healthy, what theory expects of them, and the remedy. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { bandText, diagnose, expectedText, figuresOf, hasChange, layersText } from "../../static/core/lab/diagnosis.js";
import { near } from "./tools.mjs";

const COLUMNS = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"];
const LAYERS = [
  { index: 1, preactivation: "l1", activation: "l2", gradient: "l2.g", weight: "w1" },
  { index: 2, preactivation: "out", activation: "out", gradient: "out.g", weight: "w2" },
];

/** A picture of two layers; names of tensors are their ids. */
function pictureOf(tensors) {
  const ids = Object.keys(tensors);
  const column = (name) => Float64Array.from(ids, (id) => tensors[id][name] ?? NaN);
  return {
    seq: 1, key: "k", bins: 64, hidden: null, rows: new Map(ids.map((id, row) => [id, row])),
    topology: { layers: LAYERS, tensors: ids.map((id) => ({ id, name: id })) },
    floats: Object.fromEntries(COLUMNS.map((name) => [name, column(name)])),
    integers: { n: Uint32Array.from(ids, (id) => tensors[id].n ?? 4) },
  };
}

/** A theory of the layers; each as its health and, by quantity, value, low, high. */
function theoryOf(...layers) {
  return { seq: 1, advice: null, layers: layers.map(([health, figures], at) => ({
    index: at + 1, health, weight_std: 0.1,
    expected: Object.fromEntries(Object.entries(figures)
      .map(([name, [value, low, high]]) => [name, { value, band: [low, high] }])),
  })) };
}

test("figures are counted and troubles named with the one that shows it most", () => {
  const picture = pictureOf({
    x: { norm: 2, n: 4 },
    l1: { std: 1 },
    l2: { std: 0.01, mean: 0.2, norm: 0.004, dead_fraction: 0.4, n: 16 },
    "l2.g": { std: 3, norm: 6 },
    out: { std: 2e-4, mean: 0, norm: 2e-4, n: 4 },
    "out.g": { std: 1, norm: 2 },
  });
  const preactivation_std = [1, 0.9, 1.1];
  const theory = theoryOf(
    ["vanishing", { preactivation_std, activation_std: [0.8, 0.7, 0.9], dead_fraction: [0.3, 0.2, 0.4] }],
    ["vanishing", { preactivation_std }],
  );
  const { layers, figures, within, troubles: [trouble, ...others] } = diagnose(picture, theory);
  // In: std of l1, and the dead units, at the edge. Out: std of l2 and of out.
  assert.deepEqual([layers, figures, within, others.length], [2, 4, 2, 0]);
  assert.deepEqual([trouble.health, trouble.layers, trouble.tensor], ["vanishing", [1, 2], "l2"]);
  // RMS 1e-3 of l2, 1e-4 of out, both against 1 of x; gradients do not vanish.
  near(trouble.ratio, 1e-4);
  const { tensor, quantity, measured } = trouble.figure;
  assert.deepEqual([tensor, quantity, measured], ["out", "activation_std", 2e-4]);
});

test("the gradient is named where it is what explodes", () => {
  const plain = { std: 1, norm: 2 };
  const picture = pictureOf({ x: { norm: 2 }, l2: plain, "l2.g": { std: 99, norm: 200 }, out: plain, "out.g": plain });
  const [trouble] = diagnose(picture, theoryOf(["exploding", { gradient_std: [90, 80, 100] }], [null, {}])).troubles;
  assert.deepEqual([trouble.layers, trouble.ratio, trouble.tensor], [[1], 100, "l2.g"]);
  assert.deepEqual(trouble.figure.expected.band, [80, 100]);
});

test("troubles come worst first and without numbers where there are none", () => {
  const picture = pictureOf({ x: { norm: 2 }, l2: { dead_fraction: 1 }, out: {} });
  const { troubles } = diagnose(picture, theoryOf(["dead", {}], ["non-finite", {}]));
  assert.deepEqual(troubles.map(({ health, figure }) => [health, figure?.measured ?? null]),
    [["non-finite", null], ["dead", 1]]);
});

test("a tensor that is two things has each figure once", () => {
  const picture = pictureOf({ l1: { std: 1 }, l2: { std: 2, mean: 1 }, out: { std: 3, mean: 0 } });
  const both = { preactivation_std: [1, 0, 2], activation_std: [2, 0, 3], activation_mean: [0, -1, 1] };
  const theory = theoryOf([null, both], [null, both]);
  const quantities = (tensor) => figuresOf(picture, theory, tensor).map(({ quantity }) => quantity);
  assert.deepEqual(quantities("l1"), ["preactivation_std"]);
  for (const tensor of ["l2", "out"]) assert.deepEqual(quantities(tensor), ["activation_mean", "activation_std"]);
  assert.deepEqual(quantities("x"), []);
});

test("layers, bands and figures have texts", () => {
  assert.deepEqual([[3], [1, 2, 3], [2, 4, 5, 9], [1, 3, 5, 7]].map(layersText),
    ["layer 3", "layers 1–3", "layers 2, 4–5, 9", "4 layers, 1 to 7"]);
  for (const [quantity, band, text] of [
    ["activation_std", [0.966, 1.034], "0.966–1.03"],
    ["activation_mean", [-0.02, 0.02], "−0.0200 to 0.0200"],
    ["activation_std", [0, 0], "exactly"],
    ["dead_fraction", [0.1, 0.391], "10.0–39.1 %"],
    ["dead_fraction", [0.9999999, 1.0000001], "exactly"],
  ]) assert.equal(bandText(quantity, band), text);
  // The rounding error of quadrature is written as zero.
  const expected = (value) => expectedText("activation_mean", { value, band: [-0.01, 0.01] });
  assert.deepEqual([-1.3e-17, 0.001].map(expected), ["0", "0.00100"]);
});

test("a change is in force to three digits", () => {
  const spec = { init: "lecun_normal", scale: 1.414 };
  const changes = [{ scale: 1.4142 }, { scale: 1.42 }, { ...spec }, { ...spec, init: "kaiming_normal" }];
  assert.deepEqual(changes.map((change) => hasChange(spec, change)), [true, false, true, false]);
});
