/** Things of a graph: kept after an edit, found by a search, reached from each other, stepped through. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { chainPath, chainText, measured } from "../../static/core/graph/chain-path.js";
import { find, idOf } from "../../static/core/graph/graph.js";
import { align, Counterparts, keepView } from "../../static/core/graph/keep-view.js";
import { reach } from "../../static/core/graph/reach.js";
import { parseQuery } from "../../static/core/graph/query.js";
import { search } from "../../static/core/graph/search.js";
import { aliveAt, litOf, stepAt, stepsOf } from "../../static/core/graph/steps.js";
import { entriesOf, wiring, wiringOf } from "../../static/core/graph/wiring.js";
import { layerColumns } from "../../static/core/lab/layer-histograms.js";
import { pointsOf } from "../../static/core/lab/profile-series.js";
import { groupAt } from "../../static/core/lab/weights.js";
import { parseView } from "../../static/core/url-state.js";
import { layersOf } from "../../static/core/view/facts.js";
import { columnsOf, dumpOf, graphOf, hiding, holds, isRising, made, near, pictureOf } from "./tools.mjs";

// After an edit of the model

const edited = Object.fromEntries(Object.entries(made.edited).map(([name, topology]) => [name, graphOf(topology)]));
const opNamed = ({ topology }, name) => topology.ops.find((op) => op.name === name && op.phase === "forward").id;
const found = (before, after, ids) => {
  const counterparts = new Counterparts(edited[before], edited[after]);
  return ids.map((id) => counterparts.id(id));
};

test("things are found again though every id has shifted", () => {
  const { plain, longer, other } = edited;
  const [relu, tanh] = [opNamed(plain, "relu"), opNamed(plain, "tanh")];
  assert.notEqual(relu, opNamed(longer, "relu"), "with one more op before it");
  const ids = ["second.weight", "second.weight.g", "first/forward", "second/backward", "tanh", "relu.g"];
  assert.deepEqual(found("plain", "longer", [relu, tanh, ...ids]),
    [opNamed(longer, "relu"), opNamed(longer, "tanh"), ...ids]);
  // An op in the place of another is its counterpart.
  assert.deepEqual(found("plain", "other", [tanh, "tanh", "no such thing"]), [opNamed(other, "sigmoid"), "sigmoid", ""]);
  assert.deepEqual(found("plain", "shorter", ["second.weight", "second/forward", relu]), ["", "", ""]);
  // A fold is found however often it repeats.
  assert.deepEqual(found("three", "five", ["body.0*3/forward", "body.0*3.rest/forward", "body.2/forward"]),
    ["body.0*5/forward", "body.0*5.rest/forward", "body.2/forward"]);
});

test("what no id has is left out of the edges, and the empty id is an id", () => {
  const op = (id, inputs, outputs, rest = {}) => ({ id, name: "add", phase: "forward", inputs, outputs, ...rest });
  const tensor = (id, producer, consumers, gradient_of = null) => ({ id, role: "gradient", producer, consumers,
    gradient_of });
  const sum = { name: "accumulate", phase: "backward" };
  const edges = wiring({
    ops: [op("", ["w", "w", "gone"], ["p"]), op("b", ["p", "p2"], ["s"], sum), op("c", ["q"], ["gone", "s"], sum)],
    tensors: [tensor("w", null, ["", "gone"]), tensor("p", "", ["b"]), tensor("p2", "gone", ["b"]),
      tensor("s", "b", [], "w"), tensor("q", null, ["c", "b", "c"])],
    saved: [{ tensor: "w", op: "gone" }, { tensor: "p", op: "" }, { tensor: "gone", op: "b" }],
  });
  const { inputStart, inputs, outputStart, outputs, consumerStart, consumers, ...rest } = edges;
  const listed = (starts, all) => [...starts.slice(1)].map((end, at) => [...all.slice(starts[at], end)]);
  assert.deepEqual(listed(inputStart, inputs), [[0], [1, 2], [4]]);
  assert.deepEqual(listed(outputStart, outputs), [[1], [3], [3]]);
  assert.deepEqual(listed(consumerStart, consumers), [[0], [1], [1], [], [1, 2]]);
  assert.deepEqual([...rest.producer], [-1, 0, -1, 1, -1]);
  assert.deepEqual([...rest.gradientOf], [-1, 0, 0, 0, -1], "the parts of a sum, if its first output is known");
  assert.deepEqual([[...rest.savedTensor], [...rest.savedOp]], [[1], [0]]);
});

test("an op and its group at the level aten are counterparts", () => {
  const { plain, aten } = edited;
  const opOf = ({ topology: { modules, ops } }, path, name) =>
    ops.find((op) => op.name === name && modules.find(({ id }) => id === op.module).path === path).id;
  const linear = opOf(plain, "second", "linear");
  const [first, second] = [opOf(aten, "second.linear", "t"), opOf(aten, "second.linear", "addmm")];
  const shared = ["second.weight", "second.weight.g", "first/forward"];
  const names = ["second.linear.addmm", "relu.relu", "tanh.tanh"];
  assert.deepEqual(found("plain", "aten", [...shared, linear, "second.linear", "relu", "tanh"]),
    [...shared, second, ...names]);
  assert.deepEqual(found("aten", "plain", [...shared, first, second, ...names]),
    [...shared, linear, linear, "second.linear", "relu", "tanh"]);
});

test("an activation that no module makes belongs to the layer before it", () => {
  const groups = (...ids) => ids.map((id) => groupAt(edited.plain, id, ["first", "second"]));
  assert.deepEqual(groups("first.linear", "tanh", "tanh.g"), ["first", "first", "first"]);
  assert.deepEqual(groups("relu", "second.weight.g", "second/backward"), ["second", "second", "second"]);
  assert.deepEqual(groups("input", "sum", ""), [null, null, null]);
});

test("names are aligned from both ends", () => {
  for (const [names, others, places] of [
    ["abc", "abc", [0, 1, 2]],
    ["abc", "xabc", [1, 2, 3]],
    ["abc", "abxc", [0, 1, 3]],
    ["abcd", "ad", [0, -1, -1, 1]],
    ["abc", "axc", [0, 1, 2]],
    ["abab", "ababab", [0, 1, 2, 3]],
    ["abc", "", [-1, -1, -1]],
    ["abcd", "axbyd", [0, 2, -1, 4]],
  ]) assert.deepEqual(align([...names], [...others]), places, `${names} ${others}`);
});

test("a view is kept, and what comes back is as it was", () => {
  const { plain, longer, shorter, leaf, nested } = edited;
  const keep = (view, before, after) => keepView(parseView(view), new Counterparts(before, after));
  const relu = opNamed(plain, "relu");
  const step = plain.topology.ops.findIndex(({ id }) => id === relu);
  const view = `select=${relu}&toggled=second/forward&step=${step}&reach=up2&predict=relu.std&guess=1`;
  const there = opNamed(longer, "relu");
  assert.deepEqual(keep(view, plain, longer),
    { select: there, toggled: "second/forward", step: longer.topology.ops.findIndex(({ id }) => id === there) });
  // The group stays in the address: the next version may have it again.
  const { step: last, ...lost } = keep(view, plain, shorter);
  assert.deepEqual(lost, { select: "", toggled: "second/forward", reach: "", predict: "", guess: "" });
  assert.ok(last < shorter.topology.ops.length);
  // A leaf is closed at the level of layers, and one that holds others is open: what was opened by hand stays open.
  assert.equal(keep("toggled=block/forward", leaf, nested).toggled, "");
  assert.equal(keep("toggled=block/forward", leaf, leaf).toggled, "block/forward");
});

// Search and reach

const searcher = (dump) => {
  const picture = pictureOf(dump);
  const graph = graphOf(picture.topology);
  graph.topology.op_us = picture.topology.op_us;
  return (text, hidden = null) => {
    const query = parseQuery(text);
    return "error" in query ? query : search(graph, hidden === null ? picture : hiding(picture, hidden), query);
  };
};

test("what is found is what the dump says", async () => {
  const dump = await dumpOf("style=module");
  const { ops, tensors, statistics, timing } = dump;
  const std = (id) => statistics.std[statistics.tensor.indexOf(id)] ?? 0;
  const tensorsWhere = (isFound) => tensors.filter(isFound).map(({ name }) => name);
  const opsWhere = (isFound) => ops.filter(isFound).map(({ id }) => id);
  const isGradient = ({ role }) => role === "gradient";
  const run = searcher(dump);
  assert.equal(new Set(tensors.map(({ name }) => name)).size, tensors.length);
  for (const [text, wanted] of Object.entries({
    "op:backward": opsWhere(({ name }) => name.includes("Backward")),
    "role:gradient -squeeze": tensorsWhere((tensor) => isGradient(tensor) && !tensor.name.includes("squeeze")),
    "shape:200×50": tensorsWhere(({ shape }) => shape.join() === "200,50"),
    "shape:200,50": tensorsWhere(({ shape }) => shape.join() === "200,50"),
    "shape:*x50": tensorsWhere(({ shape }) => shape.length === 2 && shape[1] === 50),
    "/^l\\d$/": ["l1", "l2"],
    "std>0.5": tensorsWhere(({ id }) => std(id) > 0.5),
    "std<=1e-2 role:gradient": tensorsWhere((tensor) => isGradient(tensor) && std(tensor.id) <= 1e-2),
    "numel>=10000": tensorsWhere(({ shape }) => shape.reduce((a, b) => a * b, 1) >= 10_000),
    "op:mm std>0.01": opsWhere(({ name, outputs }) => /mm/i.test(name) && outputs.some((id) => std(id) > 0.01)),
    "time>50": ops.filter((_, at) => timing.op_us[at] > 50).map(({ id }) => id),
    "op:mm phase:backward": opsWhere(({ name, phase }) => /mm/i.test(name) && phase === "backward"),
    "nan>0": [],
  })) {
    const { ids, total } = run(text);
    assert.deepEqual([[...ids].sort(), total], [[...wanted].sort(), wanted.length], text);
  }
  const { ids } = run("layers.0");
  const places = ids.map((id) => ops.findIndex((op) => op.id === id)).filter((place) => place >= 0);
  assert.deepEqual([ids[0], places.length, isRising(places)], ["layers.0/forward", 6, true]);
});

test("a mistake is named with what is allowed", async () => {
  const run = searcher(await dumpOf(""));
  for (const [text, part] of Object.entries({
    "foo:x": "op, name, module, role",
    "bogus>3": "std, mean, min, max",
    "std>many": "“many” is not a number",
    "std>": "the value after the sign",
    "role:gradeint": "gradient, saved",
    "shape:2by3": "such as 200×50",
    "op:": "without a space",
    "/(/": "Unterminated group",
    "/l1": "the last slash is missing",
    "__proto__:x": "Unknown key: __proto__",
    "/(a+)+$/": "can run forever",
    "/(l|l)*$/": "can run forever",
    "/a*a*a*a*b/": "at most 3 repeats",
    [`/${"a?".repeat(20)}/`]: "8 optional parts",
    ["x".repeat(1000)]: "300 characters",
  })) assert.ok(run(text).error.includes(part), text);
  // What waits for a guess is not found by its figure.
  assert.deepEqual(run("std>0.7 role:activation").ids, ["l2"]);
  const { ids, note } = run("std>0.7 role:activation", "l2");
  assert.deepEqual([ids.includes("l2"), note.includes("guess")], [false, true]);
});

test("reach goes through what was saved, and stops after so many ops", async () => {
  const dump = await dumpOf("style=module");
  const graph = graphOf(dump);
  const from = (id, hops, direction) => [...reach(graph, find(graph, id), { hops, direction })];
  const opsIn = (ids) => dump.ops.filter(({ id }) => ids.includes(id)).map(({ name }) => name);
  // matmul reads it; ReluBackward0 and MmBackward0 need what was kept of it.
  const down = from("l2", 1, "down");
  assert.deepEqual(opsIn(down), ["matmul", "MmBackward0", "ReluBackward0"]);
  holds(down, ["layers.2.matmul", "l1.g", "layers.2/forward", "layers.2/backward", "layers.1/backward"], ["w2.g"]);
  assert.deepEqual(opsIn(from("l2", 1, "up")), ["relu"]);
  // The gradient of l1 depends on x and w1, through l1 > 0, and on the target; not on the value of the loss.
  holds(from("l1.g", Infinity, "up"), ["x", "w1", "w2", "y", "loss.g"], ["loss", "w1.g", "b2.g"]);
  assert.deepEqual(from("loss", Infinity, "down").filter((id) => !id.includes("/")), ["loss"]);
  // By way of tanh's output, which its backward needs.
  const residual = graphOf(made.residual);
  const through = reach(residual, find(residual, "inner.weight"), { hops: Infinity, direction: "down" });
  holds(through, ["inner/forward", "inner.weight.g", "inner.bias.g"], ["inner.bias"]);
});

// Steps

test("what is kept, and until when", async () => {
  const dump = await dumpOf("style=module");
  const graph = graphOf(dump);
  const steps = stepsOf(graph);
  const name = (tensor) => dump.tensors[tensor].name;
  // w1, b1, w2, b2; w1 transposed is the same memory.
  assert.deepEqual([steps.count, steps.forward, steps.base], [22, 11, 4 * (5000 + 50 + 50 + 1)]);
  // From matmul to its backward, from relu to the last that reads l2, from pow to its backward.
  const kept = [...steps.kept].map((tensor, at) => [name(tensor), steps.from[at], steps.until[at], steps.size[at]]);
  assert.deepEqual(kept, [["x", 1, 20, 80_000], ["l2", 3, 18, 40_000], ["loss.sub", 9, 12, 800]]);
  assert.deepEqual([0, 9, 19, 21].map((step) => steps.alive[step]), [0, 120_800, 80_000, 0]);
  assert.deepEqual([steps.peak, Math.max(...steps.alive)], [9, 120_800]);
  const { reads, writes, saves } = stepAt(graph, 16);
  assert.deepEqual([reads.map(name), writes.map(name), saves],
    [["layers.2.matmul.g", "layers.2.t", "l2"], ["l2.g", "layers.2.t.g"], []]);
  const { shown, more } = aliveAt(steps, 16, 2);
  assert.deepEqual([shown.map(({ tensor, bytes }) => [name(tensor), bytes]), more], [[["x", 80_000], ["l2", 40_000]], 0]);
  holds(litOf(graph, 16), ["n16", "l2", "l2.g", "layers.2/backward"], ["layers.2/forward", "x", "out.g"]);
});

test("as many bytes are kept as autograd keeps", () => {
  for (const [dump, bytes] of made.steps.kept) {
    const { alive, forward } = stepsOf(graphOf(dump));
    assert.equal(alive[forward - 1], bytes);
  }
});

test("what is saved is read by nodes that keep tensors alone", () => {
  for (const [dump, keeping] of made.steps.readers) {
    const { needs } = wiringOf(graphOf(dump));
    const readers = new Set(dump.ops.filter((_, op) => entriesOf(needs, op).length > 0).map(({ name }) => name));
    assert.ok(readers.size > 2);
    holds(keeping, readers);
  }
});

// The chain rule

test("the chain rule along the way to the loss", async () => {
  for (const style of ["layer_function", "autograd_function", "module"]) {
    const dump = await dumpOf(`style=${style}`);
    const picture = pictureOf(dump);
    const graph = graphOf(dump);
    const pathFrom = (name) => chainPath(graph, dump.tensors.findIndex((tensor) => tensor.name === name));
    const path = pathFrom("w1");
    assert.deepEqual(chainText(graph, path),
      { left: "∂loss/∂w1", factors: ["∂loss/∂out", "∂out/∂l2", "∂l2/∂l1", "∂l1/∂w1"] });
    const isTransposed = style !== "layer_function";
    assert.deepEqual(path.factors.slice(1).map(({ rule }) => rule), [
      `∂L/∂l2 = ∂L/∂out @ w2${isTransposed ? "" : "ᵀ"}`,
      "∂L/∂l1 = (l1 > 0) · ∂L/∂l2",
      `∂L/∂w1 = ${isTransposed ? "(xᵀ @ ∂L/∂l1)ᵀ" : "xᵀ @ ∂L/∂l1"}`,
    ]);
    // Factor by factor, the changes are the whole way: from 1 at the loss to the gradient of w1.
    const of = columnsOf(dump);
    const rms = of("w1.g", "norm") / Math.sqrt(of("w1.g", "n"));
    const figures = measured(graph, picture, path);
    near(figures.at(-1).rms, rms, 1e-9);
    near(figures.reduce((product, { ratio }) => product * ratio, 1), rms, 1e-9);
    holds(path.ids, ["w1", "l1", "loss", "w1.g", "l1.g", "out.g"], ["w2.g", "b1.g", "x.g"]);
    assert.equal(path.isOneOfMany, false);
    assert.deepEqual([pathFrom("loss"), pathFrom("w1.g")], [null, null]);
  }
});

test("a layer has one number: in its box, on the axis of the profile and in the layers view", () => {
  for (const topology of [made.topologies.chapter, made.topologies.layers50, made.topologies.residual]) {
    const graph = graphOf(topology);
    const { layers, statistics } = graph.topology;
    const rows = new Map(statistics.tensor.map((id, row) => [id, row]));
    const points = pointsOf(graph.topology, "std");
    const columns = layerColumns({ topology: graph.topology, rows }, "preactivation");
    assert.deepEqual(layers.map(({ index }) => index), Array.from(layers, (_, at) => at + 1));
    for (const { index, preactivation } of layers) {
      const group = graph.arrays.opGroup[graph.arrays.producer[graph.tensorIndex.get(preactivation)]];
      assert.equal(layersOf(graph, group), `layer ${index}`);
      assert.equal(points.find(({ tensor }) => tensor === preactivation).layer, index);
      assert.equal(columns.find(({ tensor }) => tensor === preactivation).index, index);
    }
  }
});

test("boxes of activations carry the name of the activation", async () => {
  const labelsOf = async (query) => {
    const { groupLabel, opLabel } = graphOf(await dumpOf(query));
    return [groupLabel, opLabel];
  };
  for (const [query, group, op] of [
    ["", "Relu", "clamp_min · relu"],
    ["style=functions", "relu", "clamp_min · relu"],
    ["style=classes&activation=tanh", "tanh", "tanh"],
    ["style=autograd_function&activation=gelu", "gelu", "gelu"],
    ["style=module&activation=leaky_relu", "LeakyReLU", "leaky_relu"],
  ]) {
    const [groups, ops] = await labelsOf(query);
    holds(groups, [group]);
    holds(ops, [op]);
  }
  const [folds] = await labelsOf("widths=8x51&activation=tanh");
  holds(folds, ["Lin → tanh"]);
});

test("a tensor's address is its name, where nothing else has it", () => {
  const dump = structuredClone(made.training.step0);
  const [first, second, third, fourth] = dump.tensors;
  [first.name, second.name] = ["twice", "twice"];
  [third.name, fourth.name] = [dump.ops[0].id, "only once"];
  const graph = graphOf(dump);
  assert.deepEqual([0, 1, 2, 3].map((index) => idOf(graph, { kind: "tensor", index, half: "forward" })),
    [first.id, second.id, third.id, "only once"]);
  const places = [first.id, second.id, third.id, fourth.id, "only once"].map((id) => find(graph, id)?.index);
  assert.deepEqual(places, [0, 1, 2, 3, 3]);
  assert.deepEqual([find(graph, "twice"), find(graph, "nothing"), find(graph, dump.ops[0].id)?.kind],
    [null, null, "op"]);
  // Every address leads back to its thing.
  dump.tensors.forEach((_, index) => {
    const half = graph.arrays.tensorHalf[index] === 1 ? "backward" : "forward";
    assert.deepEqual(find(graph, idOf(graph, { kind: "tensor", index, half })), { kind: "tensor", index, half });
  });
  for (const half of ["forward", "backward"]) {
    graph.groupId.forEach((_, index) =>
      assert.deepEqual(find(graph, idOf(graph, { kind: "group", index, half })), { kind: "group", index, half })
    );
  }
});
