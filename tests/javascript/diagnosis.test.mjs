/** Whether a pass is healthy, what theory expects of its layers, and the remedy. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { buildGraph } from "../../static/core/graph/graph.js";
import { bandText, CAUSES_FIRST, diagnose, expectedText, figuresOf, gradientLine, hasChange,
  layersText } from "../../static/core/lab/diagnosis.js";
import { experiment } from "../../static/core/lab/experiment.js";
import { faultsOf, faultWord, firstBad, headline, judged } from "../../static/core/lab/faults.js";
import { dumpOf, hiding, made, pageData, pictureOf as pictureOfDump, profileOf } from "./tools.mjs";

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

test("figures in their bands and unhealthy layers are counted", () => {
  const picture = pictureOf({
    l1: { std: 1 },
    l2: { std: 0.01, dead_fraction: 0.4 },
    out: { std: 2e-4 },
  });
  const preactivation_std = [1, 0.9, 1.1];
  const theory = theoryOf(
    ["vanishing", { preactivation_std, activation_std: [0.8, 0.7, 0.9], dead_fraction: [0.3, 0.2, 0.4] }],
    [null, { preactivation_std }],
  );
  // In: std of l1, and the dead units, at the edge. Out: std of l2 and of out.
  assert.deepEqual(diagnose(picture, theory), { layers: 2, unhealthy: 1, figures: 4, within: 2 });
});

const fault = (level, more = {}) => ({ kind: "vanishing", level, tensor: null, layers: [], ...more });

test("the header says healthy only of a pass without faults whose checks were all made", () => {
  const found = { layers: 50, unhealthy: 0, figures: 9, within: 8 };
  const [wrong, note, unchecked] = ["fault", "note", "unchecked"].map((level) => fault(level));
  for (const [faults, change, isHealthy, text] of [
    [[], {}, true, "8 of 9 in band"],
    [[], { figures: 0 }, true, "no theory for this pass"],
    [[note], {}, true, "8 of 9 in band, 1 note"],
    [[unchecked, note, note], {}, false, "1 check not made, 8 of 9 in band, 2 notes"],
    [[unchecked, unchecked], {}, false, "2 checks not made, 8 of 9 in band"],
    [[wrong], {}, false, "1 fault"],
    [[wrong, wrong, unchecked, note], { unhealthy: 7 }, false,
      "2 faults, 7 of 50 layers unhealthy, 1 check not made, 1 note"],
  ]) assert.deepEqual(headline(faults, { ...found, ...change }), { isHealthy, text });
  assert.deepEqual(headline([], ""), { isHealthy: false, text: "" });
  assert.deepEqual(headline([wrong], "No layers."), { isHealthy: false, text: "1 fault, No layers." });
});

test("header, list and layers say what the server says", async () => {
  for (const query of ["", "scale=7", "preset=deep-vanishing", "preset=deep-exploding", "activation=tanh&scale=9"]) {
    const [dump, theory] = await Promise.all([dumpOf(query), profileOf(query)]);
    const picture = pictureOfDump(dump);
    const { isHealthy, text } = headline(faultsOf(picture, theory), judged(picture, theory));
    const unhealthy = new Set(dump.faults.flatMap(({ layers }) => layers));
    assert.deepEqual(theory.layers.flatMap(({ health, index }) => health === null ? [] : [index]),
      [...unhealthy].sort((a, b) => a - b));
    assert.deepEqual([isHealthy, theory.layers.every(({ health }) => health === null)],
      [dump.faults.length === 0, dump.faults.length === 0]);
    const said = /^(\d+) faults?, (\d+) of (\d+) layers unhealthy$/.exec(text)?.slice(1).map(Number);
    assert.deepEqual(said, isHealthy ? undefined : [dump.faults.length, unhealthy.size, dump.layers.length]);
    const bad = firstBad(buildGraph(picture.topology), picture, dump.faults);
    assert.equal(dump.tensors[bad?.tensor]?.id, dump.faults[0]?.tensor);
  }
});

test("the first bad tensor is that of the first fault", async () => {
  const dump = await dumpOf("preset=deep-exploding");
  const picture = pictureOfDump(dump);
  const graph = buildGraph(picture.topology);
  const [first] = dump.faults;
  // As the server's message writes it.
  const { why } = firstBad(graph, picture, dump.faults);
  assert.ok(/^[\d.]+ % Inf$/.test(why) && first.message.includes(why), why);
  const { id } = dump.tensors.find(({ name }) => name === "out");
  assert.deepEqual(firstBad(graph, picture, [{ ...first, tensor: id }]), { tensor: graph.tensorIndex.get(id),
    why: "all NaN" });
  // One without a tensor, and one that is no fault, are passed over.
  const faults = [fault("fault"), fault("note", { tensor: first.tensor }),
    fault("fault", { kind: "dead", tensor: id, layers: [2, 3] })];
  assert.deepEqual(firstBad(graph, picture, faults),
    { tensor: graph.tensorIndex.get(id), why: "dead in layers 2–3" });
  assert.equal(firstBad(graph, picture, faults.slice(0, 2)), null);
});

test("nothing gives a figure away that waits for a guess", async () => {
  const [dump, theory] = await Promise.all([dumpOf("scale=7"), profileOf("scale=7")]);
  const picture = hiding(pictureOfDump(dump), "l2");
  assert.deepEqual(headline(faultsOf(picture, theory), judged(picture, theory)),
    { isHealthy: false, text: "The verdict follows after your guess." });
  assert.equal(gradientLine(picture), "");
});

test("the gradient's way back is one figure, where it is a number", async () => {
  const { layers } = await profileOf("preset=deep-kaiming");
  const text = gradientLine(pictureOfDump(await dumpOf("preset=deep-kaiming")));
  const [, said] = /^Gradient std, layer 1 over 50: ×(.+)$/.exec(text);
  const ratio = layers[0].gradient.std / layers.at(-1).gradient.std;
  assert.ok(Math.abs(Number(said) / ratio - 1) < 5e-3, text);
  assert.equal(gradientLine(pictureOfDump(await dumpOf("preset=deep-exploding"))), "");
});

test("an experiment's band is the inspector's", async () => {
  const { presets } = JSON.parse(await pageData(""));
  const preset = presets.find(({ name }) => name === "randn");
  // In the second draw std is 10.33: one in twenty lies outside.
  for (const [seed, isIn] of [[1, true], [13, false]]) {
    const query = `${preset.query}&seed=${seed}`;
    const [dump, theory] = await Promise.all([dumpOf(query), profileOf(query)]);
    const picture = pictureOfDump(dump);
    const [figure, ...others] = experiment(picture, preset, theory).figures;
    const { value, band } = theory.layers[0].expected.preactivation_std;
    const { std } = theory.layers[0].preactivation;
    assert.deepEqual([others, figure.theory, figure.band],
      [[], expectedText("preactivation_std", { value, band }), bandText("preactivation_std", band)]);
    assert.deepEqual([figure.isIn, band[0] <= std && std <= band[1]], [isIn, isIn]);
  }
  // Without theory there is no band; what theory does not know has its own.
  const [own, exploding] = await Promise.all([dumpOf("preset=randn"), dumpOf("preset=deep-exploding")]);
  assert.deepEqual(experiment(pictureOfDump(own), preset, null).figures.map(({ band, isIn }) => [band, isIn]),
    [[null, null]]);
  const deep = presets.find(({ name }) => name === "deep-exploding");
  const { figures: [inf] } = experiment(pictureOfDump(exploding), deep, null);
  assert.deepEqual([inf.measured, inf.band, inf.isIn], ["38", "37–39", true]);
});

test("words and the order of causes are the server's", () => {
  assert.deepEqual(Object.fromEntries(Object.keys(made.words).map((kind) => [kind, faultWord(kind)])), made.words);
  assert.deepEqual(CAUSES_FIRST, made.causes);
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
