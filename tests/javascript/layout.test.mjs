/** Graphs and their layouts, without a page around them: groups and folds, places, lines, and what is kept of them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { synthetic } from "../../bench/graph/synthetic.mjs";
import { buildGraph, find, GROUP_KINDS, KINDS, idOf, openGroups } from "../../static/core/graph/graph.js";
import { DrawingRequests } from "../../static/core/layout/client.js";
import { LayoutCache, layoutGraph, layoutSteps } from "../../static/core/layout/layout.js";
import { ROUTE_KINDS } from "../../static/core/layout/sizes.js";
import { LayoutQueue } from "../../static/core/layout/queue.js";
import { GraphFacts } from "../../static/core/view/facts.js";
import { walk } from "../../static/core/view/navigation.js";
import { boxesOf, check, lay } from "./drawing.mjs";
import { dumpOf, holds, isRising, made, near } from "./tools.mjs";

const { chapter, layers50, residual, lstm, gpt_block } = made.topologies;
const ORIENTATIONS = ["horizontal", "vertical"];

/** A drawing and its boxes by id, checked for every known error. */
function layOut(topology, expansion = {}, orientation = "horizontal") {
  const laid = lay(topology, expansion, { orientation });
  assert.deepEqual(check(laid.graph, laid.drawing, orientation === "vertical"), []);
  return { ...laid.drawing, boxes: boxesOf(laid) };
}

test("every box has its place and every line its way", async () => {
  const [fold, rest] = ["layers.0*49/forward", "layers.0*49.rest/forward"];
  const queries = ["style=functions", "style=autograd_function", "style=module&widths=4x65&batch=2",
    "last_activation=true&activation=gelu", "style=module&loss=cross_entropy&widths=100,50,10"];
  const dumps = await Promise.all(queries.map(dumpOf));
  for (const [topology, ...expansions] of [
    [chapter, {}, { level: "all" }],
    [layers50, {}, { fold: "on" }, { fold: "on", toggled: [fold] }, { fold: "on", toggled: [fold, rest] }],
    [residual, {}, { level: "all" }],
    [lstm, {}, { level: "all" }, { level: "1", fold: "on" }],
    [gpt_block, { level: "1" }, {}, { level: "all" }],
    ...dumps.map((dump) => [dump, {}]),
  ]) {
    for (const expansion of expansions) {
      for (const orientation of ORIENTATIONS) {
        const { boxes, isElastic, width } = layOut(topology, expansion, orientation);
        assert.ok(isRising(Object.values(boxes).map(({ half }) => half)));
        assert.ok(isElastic || !dumps.includes(topology));
        if (isElastic && orientation === "horizontal") near(width, 860, 0, 0.01);
      }
    }
  }
});

test("an open group shows what it holds, and a closed one hides it", () => {
  const closed = layOut(chapter).boxes;
  const forward = (kind) =>
    Object.keys(closed).filter((name) => closed[name].kind === kind && closed[name].half === 0).sort();
  assert.deepEqual(forward("group"), ["layers.0/forward", "layers.1/forward", "layers.2/forward", "loss/forward"]);
  assert.deepEqual(forward("tensor"), ["b1", "b2", "l1", "l2", "loss", "out", "w1", "w2", "x", "y"]);
  const { boxes, isElastic } = layOut(chapter, { toggled: ["layers.0/forward"] });
  assert.equal(isElastic, false);
  // Two forward ops and what they pass on; six backward ops, and the transposes they make.
  assert.deepEqual(Object.keys(boxes).filter((name) => !(name in closed)).sort(),
    ["layers.0.matmul", "layers.0.t", "layers.0.t_1", "n0", "n1", "n22", "n23", "n24", "n25", "n26"]);
  const within = Object.keys(boxes).filter((name) => boxes[name].frame === "layers.0/forward");
  assert.deepEqual(within.sort(), ["b1", "layers.0.matmul", "n0", "n1", "w1"]);
  for (const name of ["n23", "w1.g", "b1.g"]) assert.equal(boxes[name].frame, "layers.0/backward");
  // Backward ops stand beneath their twin, in order of execution.
  const backward = ["n22", "n23", "n24", "n25"].map((name) => boxes[name]);
  assert.ok(isRising(backward.map(({ y }) => y)));
  for (const { x, w } of backward) near(x + w / 2, boxes["n0"].x + boxes["n0"].w / 2, 0, 0.01);

  // The result of a closed block is all of it that is seen.
  const block = layOut(gpt_block, { level: "1" }).boxes;
  assert.deepEqual([block["block/forward"].kind, block["block/backward"].kind], ["group", "group"]);
  assert.equal(Object.keys(block).filter((name) => name.startsWith("block.") && block[name].half === 0).length, 1);
});

test("repetitions are folded, and things have addresses", () => {
  const groups = (topology, ...ids) => {
    const graph = buildGraph(topology);
    const { groupKind, groupRepeats, groupParent } = graph.arrays;
    return ids.map((id) => {
      const { index } = find(graph, id);
      const around = graph.groupId[groupParent[index]];
      return [GROUP_KINDS[groupKind[index]], graph.groupLabel[index], groupRepeats[index], around];
    });
  };
  const [fold, rest] = ["layers.0*49/forward", "layers.0*49.rest/forward"];
  assert.deepEqual(groups(layers50, fold, rest, "layers.0/forward", "layers.2/forward", "layers.98/forward"), [
    ["fold", "Lin → Relu", 49, "model/forward"],
    ["rest", "48 more", 48, fold],
    ["module", "Lin", 0, fold],
    ["module", "Lin", 0, rest],
    ["module", "Lin", 0, "model/forward"],
  ]);
  assert.deepEqual(groups(lstm, "cell*4/forward", "cell/forward.4"),
    [["fold", "getitem → LSTMCell", 4, "model/forward"], ["module", "LSTMCell", 0, "cell*4.rest/forward"]]);

  const graph = buildGraph(chapter);
  // The container of the layers is nothing to look at.
  assert.deepEqual(graph.groupId,
    ["model/forward", "layers.0/forward", "layers.1/forward", "layers.2/forward", "loss/forward"]);
  for (const [expansion, wanted] of [
    [{}, [[1, 0, 0, 0, 0], KINDS.modules]],
    [{ toggled: ["layers.1/forward"] }, [[1, 0, 1, 0, 0], KINDS.modules]],
    [{ level: "0", fold: "on" }, [[1, 0, 0, 0, 0], KINDS.all]],
    [{ level: "all" }, [[1, 1, 1, 1, 1], KINDS.modules]],
  ]) {
    const { open, kinds } = openGroups(graph, { level: "layer", toggled: [], fold: "auto", ...expansion });
    assert.deepEqual([[...open], kinds], wanted);
  }
  for (const id of [...graph.groupId, "l1", "layers.0.matmul", "n3", "layers.1/backward"])
    assert.equal(idOf(graph, find(graph, id)), id);
  assert.equal(idOf(graph, find(graph, "t2")), "layers.0.matmul");
  assert.equal(find(graph, "__proto__"), null);
});

/** A model whose ops run one after the other. @param {Record<string, string>} modules path → type
 * @param {[string, string, number?][]} ops path of the module, name, bytes @returns {Topology} */
function chain(modules, ops) {
  const id = (path) => `m:${path}`;
  const parentOf = (path) => path === "" ? null : id(path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "");
  return {
    ...layers50,
    modules: Object.entries(modules).map(([path, type]) => ({ id: id(path), path, type, parent: parentOf(path) })),
    ops: ops.map(([path, name, bytes = 4], at) => ({ ...layers50.ops[0], id: `n${at}`, name, bytes, phase: "forward",
      module: id(path), inputs: [`t${at}`], outputs: [`t${at + 1}`], saved: [] })),
    tensors: Array.from({ length: ops.length + 1 }, (_, at) => ({ ...layers50.tensors[0], id: `t${at}`, name: `v${at}`,
      role: at === 0 ? "input" : "activation", dtype: "float32", producer: at === 0 ? null : `n${at - 1}`, consumers: at === ops.length ? [] : [`n${at}`] })),
    ...{ saved: [], gradients: [], layers: [], faults: [] },
  };
}

/** @returns {string[]} what is shown at first sight of the forward half, without tensors */
function atSight(topology) {
  const { boxes } = layOut(topology, { level: "auto", fold: "auto" });
  return Object.entries(boxes).filter(([, { kind, half }]) => half === 0 && kind !== "tensor").map(([id]) => id);
}

test("a closed fold grows with its repetitions, up to fifty", () => {
  const sizeOf = (repeats) => {
    const steps = Array.from({ length: repeats }, (_, at) => [`steps.${at}`, "Step"]);
    const topology = chain(Object.fromEntries([["", "Net"], ["steps", "ModuleList"], ...steps]), steps.map(([path]) => [path, "relu"]));
    // With an open group beside it every box has its natural size.
    const { w, h } = layOut(topology, { fold: "on", toggled: ["steps/forward"] }).boxes[`steps.0*${repeats}/forward`];
    return [w, h];
  };
  assert.deepEqual(sizeOf(80), sizeOf(50));
  for (const side of [0, 1]) assert.ok(isRising([5, 20, 50].map((repeats) => sizeOf(repeats)[side])));
  assert.ok(sizeOf(50)[0] >= 50 * 10);
});

test("blocks that differ in little fold together, and the fold says what is different", () => {
  const foldsOf = (blocks) => {
    const ops = blocks.flatMap((of, at) => {
      const path = `blocks.${at}`;
      return of(path, [[path, "norm"], [`${path}.body`, "linear"], [`${path}.body`, "tanh"], [path, "add"]]);
    });
    const types = { "": "Net", blocks: "ModuleList", body: "Body", skip: "Linear", tail: "Tail" };
    const paths = ["", "blocks", ...blocks.map((_, at) => `blocks.${at}`), ...ops.map(([path]) => path)];
    const modules = Object.fromEntries(paths.map((path) => [path, types[path.replace(/.*\./, "")] ?? "Block"]));
    const graph = buildGraph(chain(modules, ops));
    const facts = new GraphFacts(graph);
    return graph.groupLabel.flatMap((label, group) =>
      GROUP_KINDS[graph.arrays.groupKind[group]] !== "fold" ? []
        : [[label, graph.arrays.groupRepeats[group], graph.differences[group], facts.repetitions(group, "forward").length]]);
  };
  const plain = (path, ops) => ops;
  const skip = (path, ops) => [[`${path}.skip`, "linear"], ...ops];
  const bare = (path, ops) => ops.slice(0, -1);
  const linear = (path, ops) => ops.filter(([, name]) => name !== "tanh");
  const other = (path, ops) => [...ops, [`${path}.tail`, "a"], [`${path}.tail`, "b"], [`${path}.tail`, "c"]];
  // As ever, equal blocks.
  assert.deepEqual(foldsOf([plain, plain, plain]), [["Block", 3, [], 3]]);
  assert.deepEqual(foldsOf([skip, plain, plain, plain]), [["Block", 4, ["blocks.0 also: skip"], 4]]);
  assert.deepEqual(foldsOf([skip, plain]), [["Block", 2, ["blocks.0 also: skip"], 2]]);
  assert.deepEqual(foldsOf([plain, plain, plain, bare, plain, plain]), [["Block", 6, ["blocks.3 without: add"], 6]]);
  assert.deepEqual(foldsOf([plain, plain, linear]), [["Block", 3, ["blocks.2.body without: tanh"], 3]]);
  // Too much is different, or in too many of them.
  assert.deepEqual(foldsOf([other, plain, plain]), [["Block", 2, [], 2]]);
  assert.deepEqual(foldsOf([skip, bare, plain, plain]), [["Block", 3, ["blocks.1 without: add"], 3]]);
});

test("at first sight a large graph says what the model is", () => {
  assert.deepEqual(atSight(layers50), ["layers.0*49/forward", "layers.98/forward", "loss/forward"]);

  const range = (count, of) => Array.from({ length: count }, (_, at) => of(at)).flat();
  const block = (path) =>
    [[`${path}.attn.q`, "linear"], [`${path}.attn`, "softmax"], [`${path}.attn.out`, "linear"], [path, "add"],
      [`${path}.mlp.up`, "linear"], [`${path}.mlp`, "gelu"], [`${path}.mlp.down`, "linear"], [path, "add"]];
  const named = (path, type) => Object.fromEntries([[path, type], [`${path}.attn`, "Attention"],
    ...["attn.q", "attn.out", "mlp.up", "mlp.down"].map((name) => [`${path}.${name}`, "Linear"]), [`${path}.mlp`, "MLP"]]);
  const gpt = chain(
    Object.assign({ "": "LM", trunk: "Trunk", "trunk.wte": "Embedding", "trunk.drop": "Dropout", "trunk.h": "ModuleList", "trunk.ln": "LayerNorm",
      head: "Linear" }, ...range(12, (at) => [named(`trunk.h.${at}`, "Block")])),
    [["trunk", "view", 0], ["trunk.wte", "embedding"], ["trunk.drop", "dropout"], ...range(12, (at) => block(`trunk.h.${at}`)),
      ["trunk.ln", "layer_norm"], ["trunk", "view", 0], ["", "getitem"], ["head", "linear"], ["", "cross_entropy"]],
  );
  const [front, trunk, back] = ["trunk.wte+2/forward", "trunk.h.0*12/forward", "trunk.ln+2/forward"];
  assert.deepEqual(atSight(gpt), [front, trunk, back, "n103"]);
  const { groupId, groupLabel } = buildGraph(gpt);
  assert.deepEqual([front, trunk, back].map((id) => groupLabel[groupId.indexOf(id)]),
    ["Embedding → Dropout", "Block", "LayerNorm → Linear"]);
  // At another level, or in a small graph, the layers stand by themselves.
  for (const expansion of [{ level: "layer", fold: "off" }, { level: "auto", fold: "off", toggled: [front] }])
    holds(Object.keys(layOut(gpt, expansion).boxes), ["trunk.wte/forward", "trunk.drop/forward"]);

  // Few stages stand side by side, though all of them are alike.
  const stages = [1, 2, 3, 4].map((at) => `layer${at}`);
  const blocks = stages.flatMap((path) => range(6, (at) => [`${path}.${at}`]));
  const resnet = chain(
    Object.assign({ "": "ResNet", stem: "Conv2d", norm: "BatchNorm2d", relu: "ReLU", fc: "Linear" },
      ...stages.map((path) => ({ [path]: "Sequential" })), ...blocks.map((path) => named(path, "Block"))),
    [["stem", "conv2d"], ["norm", "batch_norm"], ["relu", "relu"], ...blocks.flatMap(block), ["fc", "linear"]],
  );
  assert.deepEqual(atSight(resnet),
    ["stem+2/forward", ...stages.map((path) => `${path}/forward`), "fc/forward"]);
});

test("opening a group moves nothing within others", () => {
  const cache = new LayoutCache();
  const { graph, drawing: before } = lay(lstm, {}, {}, cache);
  const toggled = ["cell.hidden/forward.2"];
  const after = lay(graph, { toggled }, {}, cache).drawing;
  const fresh = lay(graph, { toggled }).drawing;
  const back = lay(graph, {}, {}, cache).drawing;
  for (const name of ["rect", "points", "source"])
    assert.deepEqual([after[name], back[name]], [fresh[name], before[name]], name);
  /** Places relative to the frame, to a fiftieth of a pixel. */
  const inFrames = (drawing) => {
    const boxes = boxesOf({ graph, drawing });
    return Object.entries(boxes).filter(([, { frame }]) => frame !== null).map(([id, { x, y, w, h, frame }]) =>
      [id, frame, [x - boxes[frame].x, y - boxes[frame].y, w, h].map((value) => Math.round(value * 50) / 50).join()]);
  };
  const now = new Set(inFrames(after).map(String));
  const places = inFrames(before);
  const moved = places.filter((place) => !now.has(String(place)));
  holds(["cell/forward.2", "cell/backward.2"], moved.map(([, frame]) => frame));
  assert.ok(places.length > moved.length + 50);
});

test("an overtaken request is never answered", async () => {
  const options = { orientation: "horizontal", length: 860, breadth: 480 };
  const graphs = [chapter, lstm].map(buildGraph);
  // One after the other, in the page, as there is no worker: the last is laid out.
  const expansion = { level: "all", toggled: [], fold: "off" };
  const asked = [0, 1, 0, 1].map((which) => ({ key: `k${which}`, graph: graphs[which], expansion, options }));
  const answers = [];
  await new Promise((resolve) => {
    const requests = new DrawingRequests(() => asked.shift(), (key, drawing) => {
      answers.push([key, drawing.boxes > 10]);
      if (!requests.isWaiting) resolve();
    });
    const askAll = () => {
      requests.ask();
      if (asked.length > 1) queueMicrotask(askAll);
    };
    askAll();
  });
  assert.deepEqual([answers, asked], [[["k1", true]], []]);
  // While one is under way, and time seems to fly: the newer one is looked for between groups.
  const { arrays } = graphs[1];
  const open = new Uint8Array(arrays.groups).fill(1);
  const request = (number) =>
    ({ request: number, key: "k", arrays: number === 1 ? arrays : null, open, kinds: KINDS.modules, options });
  const { now } = performance;
  let clock = 0;
  performance.now = () => (clock += 1000);
  const answered = await new Promise((resolve) => {
    let pauses = 0;
    const queue = new LayoutQueue((answer) => resolve(answer.request), async () => {
      pauses += 1;
      if (pauses === 3) queue.ask(request(2));
    });
    queue.ask(request(1));
  });
  performance.now = now;
  assert.equal(answered, 2);
});

test("the arrow keys walk along lines", () => {
  const opened = { toggled: ["layers.0/forward"] };
  for (const [expansion, orientation, way, arrows] of [
    [{}, "horizontal", "x layers.0/forward l1 layers.1/forward l1 l1.g layers.0/backward layers.0/forward", "RRRLDLU"],
    [{}, "horizontal", "layers.0/forward w1 b1 w1 layers.0/forward layers.0/backward w1.g", "UUDDDD"],
    [{}, "horizontal", "loss/forward loss loss/forward", "RL"],
    [{}, "vertical", "x layers.0/forward l1 l1.g layers.0/backward", "DDRU"],
    [opened, "horizontal", "x n0 layers.0.matmul n1 l1", "RRRR"],
    [opened, "horizontal", "n22 layers.0.t n23 layers.0.t n22 n0", "DDUUU"],
    [opened, "horizontal", "n0 w1 layers.0/forward n0 n22", "UUDD"],
    [opened, "horizontal", "n0 layers.0/forward n0 layers.0/forward x", "LRLL"],
    [opened, "horizontal", "l1.g n26 layers.0/backward", "LR"],
    [opened, "horizontal", "n26 layers.0/backward l1.g", "RR"],
    [opened, "vertical", "layers.0/forward n0 layers.0/forward x", "DUU"],
  ]) {
    const laid = lay(chapter, expansion, { orientation });
    const ids = Object.keys(boxesOf(laid));
    const [from, ...wanted] = way.split(" ");
    let box = ids.indexOf(from);
    [...arrows].forEach((arrow, at) => {
      box = walk(laid.drawing, box, `Arrow${{ U: "Up", D: "Down", L: "Left", R: "Right" }[arrow]}`, orientation);
      assert.equal(ids[box], wanted[at], `${way}: ${at}`);
    });
  }
});

/** A topology; ops: [id, phase, module, inputs, outputs, twin], tensors: [id, role, gradient_of]. */
function graphWith(modules, ops, tensors, saved = []) {
  return {
    modules: modules.map(([id, path, type, parent]) => ({ id, path, type, parent })),
    ops: ops.map(([id, phase, module, inputs, outputs, twin = null]) =>
      ({ id, phase, module, inputs, outputs, twin, name: "f", attributes: {}, flops: 0, bytes: 0, source: null })),
    tensors: tensors.map(([id, role, of = null]) => ({ id, name: id, role, gradient_of: of, shape: [8, 8],
      dtype: "float32", module: "m0", note: null, producer: ops.find(([, , , , outputs]) => outputs.includes(id))?.[0] ?? null,
      consumers: ops.filter(([, , , inputs]) => inputs.includes(id)).map(([op]) => op) })),
    saved: saved.map(([tensor, op]) => ({ tensor, op })),
    layers: [], statistics: { tensor: [] }, sources: {}, op_us: null,
  };
}

const as = (role, ...names) => names.map((name) => [name, role]);
const gradients = (...names) => names.map((name) => [`${name}.g`, "gradient", name]);

test("the parts of a gradient stand beneath it", () => {
  const topology = graphWith(
    [["m0", "", "Net", null], ["m1", "a", "Linear", "m0"], ["m2", "b", "Linear", "m0"], ["m3", "loss", "Mse", "m0"]],
    [
      ["n0", "forward", "m1", ["x", "wa"], ["h"]],
      ["n1", "forward", "m2", ["h", "wb"], ["f"]],
      ["n2", "forward", "m0", ["f", "h"], ["s"]],
      ["n3", "forward", "m3", ["s"], ["loss"]],
      ["n4", "backward", "m3", ["s"], ["s.g"], "n3"],
      ["n5", "backward", "m0", ["s.g"], ["f.g", "h.g1"], "n2"],
      ["n6", "backward", "m2", ["f.g", "wb"], ["h.g2", "wb.g"], "n1"],
      ["n7", "backward", "m0", ["h.g1", "h.g2"], ["h.g"]],
      ["n8", "backward", "m1", ["h.g"], ["x.g", "wa.g"], "n0"],
    ],
    [...as("input", "x"), ...as("parameter", "wa", "wb"), ...as("activation", "h", "f", "s"), ...as("loss", "loss"),
      ...gradients("s", "f", "wb", "x", "wa"), ...["h.g1", "h.g2", "h.g"].map((name) => [name, "gradient", "h"])],
    [["x", "n0"], ["wa", "n0"], ["h", "n1"]],
  );
  for (const level of ["layer", "all"]) {
    for (const orientation of ORIENTATIONS) {
      const { boxes } = layOut(topology, { level }, orientation);
      const [along, depth, across] = orientation === "horizontal" ? ["x", "w", "y"] : ["y", "h", "x"];
      // The last gradient is the whole one; the op that adds the parts up, and the parts, stand beyond it.
      for (const side of [along, depth]) near(boxes["h.g"][side], boxes["h"][side], 0, 0.01);
      assert.ok(isRising(["h.g", "n7", "h.g2", "h.g1"].map((name) => boxes[name][across])));
    }
    const laid = lay(topology, { level });
    const ids = Object.keys(boxesOf(laid));
    const { routes, source, target, routeKind } = laid.drawing;
    const lines = Array.from({ length: routes }, (_, route) =>
      `${ids[source[route]]} → ${ids[target[route]]}, ${ROUTE_KINDS[routeKind[route]]}`);
    const [a, b, loss] = level === "all" ? ["n8", "n6", "n4"] : ["a/backward", "b/backward", "loss/backward"];
    const saved = [["x", a], ["wa", a], ["h", b], ["wb", b], ["s", loss]];
    assert.deepEqual(new Set(lines.filter((line) => line.endsWith("saved"))),
      new Set(saved.map(([from, to]) => `${from} → ${to}, saved`)));
    const passed = [["n5", "h.g1"], [b, "h.g2"], ["h.g1", "n7"], ["n7", "h.g"]];
    holds(lines, [...passed.map(([from, to]) => `${from} → ${to}, data`), `loss → ${loss}, fold`]);
  }
});

test("backward ops of no forward op are drawn beneath", () => {
  // As in a second derivative: the gradient's own gradient, by ops that mirror nothing.
  const { boxes, isElastic } = layOut(graphWith(
    [["m0", "", "Net", null]],
    [
      ["n0", "forward", "m0", ["x"], ["h"]],
      ["n1", "forward", "m0", ["h"], ["loss"]],
      ["n2", "backward", "m0", ["loss.g"], ["h.g"], "n1"],
      ["n3", "backward", "m0", ["h.g"], ["x.g"], "n0"],
      ["n4", "backward", "m0", ["x.g"], ["u"]],
      ["n5", "backward", "m0", ["u", "h.g"], ["v"]],
      ["n6", "backward", "m0", ["v"], ["x.gg"], "n3"],
    ],
    [...as("input", "x"), ...as("activation", "h"), ...as("loss", "loss"), ...gradients("loss", "h", "x"),
      ...as("gradient", "u", "v", "x.gg")],
  ));
  const unpaired = ["n4", "u", "n5", "v", "n6"];
  const floor = Math.max(...Object.keys(boxes).filter((name) => !unpaired.includes(name))
    .map((name) => boxes[name].y + boxes[name].h));
  assert.ok(unpaired.every((name) => boxes[name].y >= floor));
  // All of the backward half runs against the depth.
  assert.ok(isRising(unpaired.map((name) => -boxes[name].x)));
  assert.equal(isElastic, false);
});

test("backward ops of no forward op need not depend on one another", () => {
  // As FSDP reduces gradients: three ops that read gradients of pairs, and no op reads what they make.
  const alone = ["n4", "n5", "n6", "n7"];
  const { boxes } = layOut(graphWith(
    [["m0", "", "Net", null]],
    [
      ["n0", "forward", "m0", ["x"], ["h"]],
      ["n1", "forward", "m0", ["h"], ["loss"]],
      ["n2", "backward", "m0", ["loss.g"], ["h.g"], "n1"],
      ["n3", "backward", "m0", ["h.g"], ["x.g"], "n0"],
      ...alone.slice(0, 3).map((op) => [op, "backward", "m0", ["x.g"], []]),
      ["n7", "backward", "m0", ["x.g"], ["u"]],
      ["n8", "backward", "m0", ["u"], ["v"]],
    ],
    [...as("input", "x"), ...as("activation", "h"), ...as("loss", "loss"), ...gradients("loss", "h", "x"),
      ...as("gradient", "u", "v")],
  ));
  assert.ok([...alone, "n8"].every((name) => boxes[name].x >= 0));
});

test("a thousand layers deep and a thousand modules nested need no recursion", () => {
  const n = 1000;
  const layers = Array.from({ length: n }, (_, i) => i);
  const ops = layers.map((i) => [`n${i}`, "forward", `m${i + 1}`, [`h${i}`], [`h${i + 1}`]]);
  const tensors = [...as("input", "h0"), ...layers.map((i) => [`h${i + 1}`, "activation"])];
  const net = ["m0", "", "Net", null];
  const flat = graphWith([net, ...layers.map((i) => [`m${i + 1}`, `l${i}`, "Linear", "m0"])], ops, tensors);
  const path = (i) => "b".repeat(i + 1).split("").join(".");
  const nested = graphWith([net, ...layers.map((i) => [`m${i + 1}`, path(i), "Block", `m${i}`])], ops, tensors);
  const starts = Object.values(boxesOf(lay(flat, {}))).filter(({ kind }) => kind === "tensor").map(({ x }) => x);
  assert.ok(starts.length === n + 1 && isRising(starts) && new Set(starts).size === starts.length);
  assert.equal(lay(flat, { level: "all" }).drawing.boxes, 3 * n + 1);
  assert.ok(lay(nested, { level: "all" }).drawing.boxes > 2 * n);
});

/** The columns in which a drawing differs from another. */
function differences(found, wanted) {
  return Object.keys(wanted).filter((name) => {
    const [a, b] = [found[name], wanted[name]].map((value) => ArrayBuffer.isView(value) ? value : [value]);
    const slack = b instanceof Float32Array || b instanceof Array ? 1e-3 : 0;
    return a.length !== b.length || b.some((value, at) => !(value === a[at] || Math.abs(a[at] - value) <= slack));
  });
}

test("whatever was opened and closed before, the drawing is the same", () => {
  // Lines that only moved are taken over from the last drawing: every column equals a fresh layout's.
  for (const [name, topology] of Object.entries({ ...made.topologies, synthetic: synthetic(4, 2) })) {
    const { arrays } = buildGraph(topology);
    for (const fold of ["on", "off"]) {
      for (const orientation of ORIENTATIONS) {
        const { open, kinds } = openGroups({ arrays, groupId: [] }, { level: "all", toggled: [], fold });
        const options = { orientation, length: 1400, breadth: 560 };
        const cache = new LayoutCache();
        let seed = 7;
        const random = (below) => {
          seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
          return Math.floor((seed / 2 ** 32) * below);
        };
        for (let round = 0; round < 25; round += 1) {
          const opened = { open: open.slice(), kinds };
          // Now and then one layout is given up half-way.
          const steps = layoutSteps(arrays, opened, options, cache);
          for (let step = random(4) === 0 ? random(8) : 0; step > 0; step -= 1) if (steps.next().done) break;
          const drawing = layoutGraph(arrays, opened, options, cache);
          const wrong = differences(drawing, layoutGraph(arrays, opened, options));
          assert.deepEqual(wrong, [], `${name}, fold ${fold}, ${orientation}, round ${round}`);
          for (let times = random(5) === 0 ? 4 : 1; times > 0; times -= 1) open[random(open.length)] ^= 1;
        }
      }
    }
  }
});
