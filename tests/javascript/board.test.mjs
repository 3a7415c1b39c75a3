import assert from "node:assert/strict";
import { test } from "node:test";

import { BoardRun, LayerTable, lineOf } from "../../static/core/lab/board-run.js";

const told = (step, loss, more = {}) => ({
  steps: { step, loss, lr: step.map(() => 0.1), gradient_norm: step.map(() => null) },
  events: { step: [], kind: [], text: [], op: [], node: [], batch: [] }, more_events: 0, traces: [], parts: ["weight"],
  statistics: ["std"], ...more,
});

test("a run takes what is new, and values are those of the last step that is not later", () => {
  const run = new BoardRun("first", 0);
  assert.equal(run.after, -1);
  run.take(told([0, 1, 4], [3, 2, "NaN"]), run.after);
  assert.equal(run.after, 4);
  run.take(told([5, 9], ["Infinity", null]), run.after);
  assert.deepEqual(run.curves.loss, [[0, 3], [1, 2], [4, NaN], [5, Infinity]]);
  assert.deepEqual(run.curves.gradient_norm, []);
  assert.equal(run.last, 9);
  assert.equal(run.valueAt("loss", 3), 2);
  assert.equal(run.valueAt("gradient_norm", 3), null);
  assert.equal(run.finiteAt("loss", 9), 2);
  assert.equal(run.finiteAt("loss", -1), NaN);
});

test("a run with too many points is asked for as a whole", () => {
  const run = new BoardRun("first", 0);
  const steps = Array.from({ length: 5000 }, (_, step) => step);
  run.take(told(steps, steps), -1);
  assert.equal(run.after, -1);
  run.take(told([0, 4999], [0, 1]), -1);
  assert.deepEqual(run.curves.loss, [[0, 0], [4999, 1]]);
  assert.equal(run.after, 4999);
});

test("the graph of an event is compared with the last one before it, at its op or its module", () => {
  const run = new BoardRun("a b/c", 0);
  const events = { step: [2, 7, 7, 8], kind: ["x", "y", "z", "z"], text: ["", "", "", ""], op: [null, "0", "0", null],
    node: [null, "n8", null, null], batch: [null, 3, null, null] };
  run.take(told([0], [1], { events, traces: [2, 7] }), -1);
  const [first, node, module, none] = run.events.map((event) => run.graphOf(event));
  assert.deepEqual(first, { step: 2, before: null, address: "/runs/graph/a%20b%2Fc#dump=0" });
  assert.deepEqual(node,
    { step: 7, before: 2, address: "/runs/graph/a%20b%2Fc#dump=1&a=dump:0&colour=difference&select=n8" });
  assert.equal(module.address.endsWith("&select=0"), true);
  assert.equal(none, null);
  run.take(told([1], [1], { events, traces: [0, 2, 7] }), 0);
  assert.match(run.graphOf(run.events[1]).address, /#dump=2&a=dump:0&/, "step 2 has an event, step 0 has none");
});

test("a table of layers grows by steps, and by layers", () => {
  const table = new LayerTable();
  table.take({ after: -1, layers: ["0"], steps: [0, 5], values: [[1], ["NaN"]] });
  assert.equal(table.after, 5);
  table.take({ after: 5, layers: ["0", "2"], steps: [10], values: [[null, 2]] });
  assert.deepEqual(table.layers, ["0", "2"]);
  assert.deepEqual(table.at(9), [5, [NaN]]);
  assert.deepEqual(table.at(Infinity), [10, [null, 2]]);
  assert.equal(table.at(-1), undefined);
});

test("24 runs have 24 lines", () => {
  const lines = Array.from({ length: 24 }, (_, place) => JSON.stringify(lineOf(place, false)));
  assert.equal(new Set(lines).size, 24);
});
