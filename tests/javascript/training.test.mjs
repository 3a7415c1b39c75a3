import assert from "node:assert/strict";
import { test } from "node:test";

import { placeOfPoint, placeOn, scaleOf, stepAt, stepScale, tickText } from "../../static/core/lab/training-charts.js";
import { TrainingRun } from "../../static/core/lab/training-run.js";

const rows = (steps) => ({ steps, loss: steps.map((step) => 1 / (1 + step)), gradient_norm: steps.map(() => 1),
  weight_norms: steps.map(() => [2, 4]), gradient_norms: steps.map(() => [1, 1]),
  update_norms: steps.map((step) => [step, "NaN"]) });

test("a run keeps every update that it was told, whatever the order", () => {
  const run = new TrainingRun("");
  const [early, late] = [{ step: 1, kind: "loss_spike", text: "high" }, { step: 4, kind: "nonfinite", text: "NaN" }];
  run.take({ seq: 1, step: 6, rows: rows([3, 4, 5]), events: [late], batch: { loss: 0.1, accuracy: 0.5 },
    held_out: null });
  run.take({ seq: 2, step: 3, rows: rows([0, 1, 2]), events: [early, late], batch: { loss: "Infinity", accuracy: null },
    held_out: { loss: 0.2, accuracy: 1 } });
  assert.deepEqual(run.events, [early, late]);
  assert.deepEqual(run.curve("loss").map(([step]) => step), [0, 1, 2, 3, 4, 5, 6]);
  assert.equal(run.curve("loss")[6][1], 0.1);
  assert.equal(run.curve("loss")[3][1], Infinity, "the score of the picture replaces the update's");
  assert.deepEqual(run.curve("heldOutLoss"), [[3, 0.2]]);
  assert.deepEqual(run.curve("accuracy"), [[6, 0.5]]);
  assert.equal(run.last, 6);
  assert.deepEqual(run.knownSteps("update_ratio"), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual([...run.column("update_ratio", 4)], [2, NaN]);
});

test("the std of a tensor with NaN or Inf is that, and a missing one is not known", () => {
  const run = new TrainingRun("");
  const told = { std: [[1, 2, null, null]], nan: [[0, 1, 0, 0]], posinf: [[0, 1, 0, 0]], neginf: [[0, 0, 3, 0]],
    dead_fraction: [[0.5, 0.5, null, null]], saturation: [[null, null, null, null]] };
  run.takeRun({ rows: rows([]), events: [], steps: [7], batch: [], held_out: [], layers: { activation: told, gradient: told } });
  const expected = [1, NaN, Infinity, null];
  assert.deepEqual(run.column("activation_std", 7), expected);
  assert.deepEqual(run.column("gradient_std", 7), expected);
  assert.deepEqual(run.column("dead_fraction", 7), [0.5, 0.5, null, null]);
  const names = ["a", "b", "c", "d"];
  const column = (values) => Float64Array.from(values, (value) => value ?? NaN);
  run.takePicture(8, { topology: { layers: names.map((activation) => ({ activation, gradient: null })) },
    rows: new Map(names.map((name, row) => [name, row])), loss: 1,
    floats: { std: column(told.std[0]), dead_fraction: column(told.dead_fraction[0]),
      saturation: column(told.saturation[0]) },
    integers: { n: [9, 9, 9, 9], nan: told.nan[0], posinf: told.posinf[0], neginf: told.neginf[0] } });
  assert.deepEqual(run.column("activation_std", 8), expected);
  assert.deepEqual(run.column("gradient_std", 8), [null, null, null, null]);
});

test("a scale has round ends, and holds what is finite", () => {
  assert.deepEqual(scaleOf([[0.3, 7, Infinity, NaN]], true), { low: 0.2, high: 10, isLog: true });
  assert.deepEqual(scaleOf([[0.001, 0]], true), { low: 0.0005, high: 0.001, isLog: true });
  assert.deepEqual(scaleOf([], true), { low: 0.1, high: 1, isLog: true });
  assert.deepEqual(scaleOf([[0.4, 0.9]], false), { low: 0, high: 1, isLog: false });
  const { low, high } = scaleOf([Float64Array.of(1e-30, 1)], true);
  assert.equal(high, 1);
  assert.ok(low >= 1e-12 * (1 - 1e-9));
  assert.equal(placeOn({ low: 0.01, high: 100, isLog: true }, 1), 0.5);
  assert.equal(placeOn({ low: 0.01, high: 100, isLog: true }, 0), 0);
});

test("a mark lies on the scale, however far the values are from it", () => {
  for (const value of [1e-30, 1e-3, 1e9, 1e12, 1e38, 1e307]) {
    const scale = scaleOf([[value]], true, 1, [1e-3]);
    assert.ok(scale.low <= 1e-3 && scale.high >= 1e-3, `${value}`);
    assert.ok(placeOfPoint(scale, 1e-3) >= 0);
    if (value > 1e-3) assert.ok(placeOn(scale, value) > 0.9);
  }
});

test("a point that a logarithmic axis does not reach lies under it", () => {
  const scale = { low: 0.01, high: 100, isLog: true };
  assert.equal(placeOfPoint(scale, 0.01), 0);
  assert.equal(placeOfPoint(scale, 1), 0.5);
  for (const value of [0, 0.001, -1]) assert.ok(placeOfPoint(scale, value) < 0);
  assert.equal(placeOfPoint({ ...scale, isLog: false }, 0), 0);
});

test("a place on a chart is the step that is drawn there", () => {
  for (const step of [0, 1, 57, 100]) assert.equal(stepAt(400, 100, stepScale(400, 100)(step)), step);
  assert.equal(stepAt(400, 100, -50), 0);
  assert.equal(stepAt(400, 100, 1000), 100);
});

test("a tick is short enough for the margin", () => {
  for (const [value, text] of [[0, "0"], [0.5, "0.5"], [200, "200"], [1e-3, "1e-3"], [2e-6, "2e-6"], [1000, "1e3"],
    [5e9, "5e9"], [0.0123, "0.012"], [3.4e38, "3.4e38"]]) assert.equal(tickText(value), text);
});
