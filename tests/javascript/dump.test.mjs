/** Dumps in the page: which are refused and where, how many are kept, packed histograms, matched graphs. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { DUMP, Made } from "../../static/core/dump/form.js";
import { checkSize, MAX_BYTES, readDump } from "../../static/core/dump/dump.js";
import { LineReader, linesOf } from "../../static/core/dump/lines.js";
import { beginsLikeDump, bytesOf, DumpShelf, readSource, stepLabels, unitOf } from "../../static/core/dump/sources.js";
import { StepReader } from "../../static/core/dump/step-figures.js";
import { matchedRun, runOfDump } from "../../static/core/lab/dump-run.js";
import { carried, matchGraphs } from "../../static/core/lab/match.js";
import { renderSvg } from "../../static/core/takeaway/headless.js";
import { made, near, pictureOf } from "./tools.mjs";

test("names say whether dumps are of steps, ranks or precisions", () => {
  for (const [names, unit, labels] of [
    [["step0.json", "step200.json"], "step", ["0", "200"]],
    [["s7.rank0.json", "s7.rank1.json"], "rank", ["0", "1"]],
    [["net.py:make in float32", "net.py:make in autocast-bfloat16"], "precision", ["float32", "autocast-bfloat16"]],
    [["a.py:make in bfloat16 and float32", "a.py:make in float64"], "precision", ["bfloat16 and float32", "float64"]],
    [["a.py:make in float32", "b.py:make in float32"], "step", ["1", "2"]],
    [["net in float32.json", "net in float64.json"], "step", ["32", "64"]],
  ]) {
    const sources = names.map((name) => ({ name }));
    assert.deepEqual([unitOf(sources), stepLabels(sources)], [unit, labels]);
  }
});

function problemOf(text) {
  try {
    readDump(text);
  } catch (problem) {
    return problem;
  }
  return null;
}

test("a bad dump is refused with the place that Python names", () => {
  for (const [name, [text, place]] of Object.entries(made.dumps.bad)) {
    const problem = problemOf(text);
    assert.deepEqual([problem?.name, problem?.where], ["DumpProblem", place], name);
    assert.ok(problem.message.startsWith(place), name);
    if (name.startsWith("a dangling")) assert.match(problem.message, /999/);
  }
  const { message } = problemOf(made.dumps.bad["another schema"][0]);
  assert.ok(message.includes('"chainrule.trace/1", but this file has "chainrule.trace/2"'));
});

/** A form as JSON Schema. */
function schemaOf(form) {
  if (typeof form === "string") return KINDS[form];
  if (form instanceof Array) return typeof form[0] === "string" && form.length > 1 ? { enum: form } : { const: form[0] };
  if (form instanceof Made) {
    const inner = schemaOf(form.form);
    if (form.how === "map") return { type: "object", additionalProperties: inner };
    if (form.how === "or null") return { anyOf: [...(inner.anyOf ?? [inner]), { type: "null" }] };
    return { type: "array", items: inner, ...{ pair: { minItems: 2, maxItems: 2 }, filled: { minItems: 1 } }[form.how] };
  }
  const parts = Object.entries(form);
  return { type: "object", additionalProperties: false,
    properties: Object.fromEntries(parts.map(([name, part]) => [name.replace("?", ""), schemaOf(part)])),
    required: parts.map(([name]) => name).filter((name) => !name.endsWith("?")) };
}

const LARGEST = Number(2n ** 63n - 513n);
const KINDS = {
  "text": { type: "string" },
  "text of at most 10000 characters": { type: "string", maxLength: 10000 },
  "a number": { type: "number" },
  "a number of at least 0": { type: "number", minimum: 0 },
  "a number, NaN or Infinity": { anyOf: [{ type: "number" }, { enum: ["NaN", "Infinity", "-Infinity"] }] },
  "a whole number": { type: "integer", minimum: -LARGEST, maximum: LARGEST },
  "a whole number of at least 0": { type: "integer", minimum: 0, maximum: LARGEST },
  "a whole number of at least 1": { type: "integer", minimum: 1, maximum: LARGEST },
  "a count": { type: "integer", minimum: 0, exclusiveMaximum: 2 ** 32 },
  "an object": { type: "object", additionalProperties: true },
};

/** The published schema in the same words. */
function plain(schema, all) {
  if (Array.isArray(schema)) return schema.map((part) => plain(part, all));
  if (typeof schema !== "object" || schema === null) return schema;
  if (schema.$ref !== undefined) return plain(all.$defs[schema.$ref.split("/").at(-1)], all);
  const { title: _, description: __, default: ___, $defs, $schema, $id, ...rest } = schema;
  if (rest.enum !== undefined || rest.const !== undefined) delete rest.type;
  const parts = Object.entries(rest).map(([name, part]) =>
    name === "properties"
      ? [name, Object.fromEntries(Object.entries(part).map(([field, each]) => [field, plain(each, all)]))]
      : [name, plain(part, all)]
  );
  return Object.fromEntries(parts);
}

test("the page's form of a dump is the published schema", () => {
  const { schema } = made.dumps;
  assert.deepEqual(plain(schema, schema), schemaOf(DUMP));
});

test("a text that is not JSON, and a file too large, are refused", () => {
  const problems = made.dumps.none.map(problemOf);
  assert.ok(problems.every(({ name }) => name === "DumpProblem"));
  assert.ok(problems[0].message.startsWith("this is not JSON: "));
  assert.equal(MAX_BYTES, made.dumps.maxBytes);
  checkSize(0);
  checkSize(MAX_BYTES);
  assert.throws(() => checkSize(MAX_BYTES + 1),
    { message: "the dump has more than 1024 MiB; larger dumps cannot be opened" });
});

test("good dumps are read whatever their names", () => {
  const { good, ops, evil, evilNames } = made.dumps;
  for (const text of good) assert.equal(readDump(text).ops.length, ops);
  const dump = readDump(evil);
  const { rows, topology } = pictureOf(dump);
  assert.deepEqual([...rows.keys()].slice(0, evilNames.length), dump.statistics.tensor.slice(0, evilNames.length));
  assert.deepEqual(Object.keys(topology.sources).sort(), [...evilNames].sort());
  assert.deepEqual(dump.sources["__proto__"], [{ line: 1, text: "__proto__" }]);
  assert.deepEqual([dump.sources["toString"], topology.op_us.length, "line" in {}], [undefined, ops, false]);
});

/** @param {string} text @returns {unknown} its value, read line by line */
function readLines(text) {
  const reader = new LineReader();
  for (const line of text.split("\n")) reader.read(line);
  return reader.end();
}

const LINES = ["{", '"a":1,', '"b":[', "1,2,", "3", "],", '"c":{', '"__proto__":[', "],", '"":{', "}", "},", '"d":"]"', "}"];

test("lines are read as JSON is", () => {
  const text = LINES.join("\n");
  const value = readLines(text);
  assert.deepEqual(value, JSON.parse(text));
  assert.deepEqual(Object.keys(value["c"]), ["__proto__", ""]);
  // Whatever is left out, doubled, exchanged or cut: it is read as JSON is, or not at all.
  let [read, refused] = [0, 0];
  for (let at = 0; at < LINES.length; at += 1) {
    for (let other = 0; other < LINES.length; other += 1) {
      const [here, there] = [LINES[at], LINES[other]];
      for (const lines of [LINES.with(at, there), LINES.toSpliced(at, 1), LINES.toSpliced(at, 0, there),
        LINES.with(at, there).with(other, here), LINES.with(at, here.slice(0, other)), LINES.with(at, `${here},`)])
      {
        const changed = lines.join("\n");
        let value;
        try {
          value = readLines(changed);
        } catch (error) {
          assert.equal(error.name, "SyntaxError");
          refused += 1;
          continue;
        }
        assert.deepEqual(value, JSON.parse(changed), changed);
        read += 1;
      }
    }
  }
  assert.ok(read > 100 && refused > 300, `${read} read, ${refused} refused`);
});

test("lines arrive in pieces of any size", async () => {
  const text = LINES.join("\n");
  for (let size = 1; size < text.length + 1; size += 1) {
    const pieces = Array.from({ length: Math.ceil(text.length / size) }, (_, at) =>
      text.slice(at * size, (at + 1) * size)
    );
    const lines = [];
    for await (const line of linesOf(pieces)) lines.push(line);
    assert.deepEqual(lines, LINES);
  }
});

test("a file is read by lines, in one piece, or decompressed", async () => {
  const { step0 } = made.training;
  const own = made.dumps.lines;
  assert.ok(own.startsWith('{\n"schema":'));
  const told = [];
  for (const text of [own, `\ufeff${own}`, JSON.stringify(step0), JSON.stringify(step0, null, 2)]) {
    const plain = new File([text], "x.json");
    const packed = new File([await new Response(plain.stream().pipeThrough(new CompressionStream("gzip"))).blob()], "x.gz");
    for (const file of [plain, packed]) {
      const dump = await readSource({ name: "x", file }, (bytes) => told.push(bytes));
      const { statistics, values, ...facts } = JSON.parse(text.replace("\ufeff", ""));
      assert.deepEqual([dump.ops, dump.statistics, dump.values], [facts.ops, statistics, values]);
      assert.ok(await beginsLikeDump(file));
      assert.equal(await bytesOf({ name: "x", file }), file);
    }
    assert.equal(told.at(-1), plain.size);
  }
  const whole = await new Response(new Blob([own]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  for (const [content, message] of [
    [whole.slice(0, 200), "the compressed data are damaged"],
    [own.slice(0, -20), /^this is not JSON: /],
    [own.replace('"ops":[', '"ops":{'), /^this is not JSON: /],
    ["{}", /^schema: this page reads graph dumps of schema/],
  ]) await assert.rejects(readSource({ name: "x", file: new File([content], "x") }), { name: "DumpProblem", message });
});

test("of two hundred dumps the last sixteen are kept", async () => {
  let reads = 0;
  const text = JSON.stringify(made.training.step0);
  const source = (step) => ({ name: `step${step}.json`, get text() { reads += 1; return text; } });
  const shelf = new DumpShelf(Array.from({ length: 200 }, (_, step) => source(step)));
  const first = await shelf.get(0);
  // Looked at twice: whether there is a text, and the text. None but the first was read.
  assert.ok(reads <= 2);
  for (let step = 0; step < 200; step += 1) await shelf.get(step);
  const last = await shelf.get(199);
  const before = reads;
  await shelf.get(185);
  assert.equal(reads, before);
  await shelf.get(100);
  assert.ok(reads > before);
  assert.equal(shelf.kept, 16);
  assert.equal(last.picture.key, first.picture.key);
  assert.equal((await shelf.get(198)).picture.topology, last.picture.topology);
});

test("counts of histograms survive being packed", async () => {
  const dump = structuredClone(made.training.step0);
  const { counts } = dump.statistics.histogram;
  counts[0].splice(0, 3, 4_000_000, 61, 1);
  const figures = await new StepReader().read({ name: "x", text: JSON.stringify(dump) });
  const again = (row) =>
    [...figures.counts.slice(64 * row, 64 * row + 64)].map((count) => count * figures.units[row]);
  assert.deepEqual([figures.units.length, figures.loss], [dump.statistics.tensor.length, dump.loss]);
  assert.deepEqual(again(1), counts[1]);
  near(again(0), counts[0], 0, 4_000_000 / 65535);
});

test("the first of repeated calls is matched with the first", () => {
  const [a, b] = made.repeated;
  const { ops, tensors, onlyB } = matchGraphs(a, b);
  const named = new Map(b.ops.map(({ id }, at) => [id, a.ops[ops[at]]?.id ?? null]));
  const forward = b.ops.filter(({ phase }) => phase === "forward").map(({ id, name }) => [name, named.get(id)]);
  assert.deepEqual(forward, [["linear", "n0"], ["tanh", "n1"], ["linear", "n2"], ["tanh", "n3"], ["linear", null],
    ["tanh", null], ["square", "n4"], ["mean", "n5"]]);
  // A backward op belongs to its forward op, though the last call goes back first.
  for (const { id, name, twin } of b.ops) {
    if (name !== "TanhBackward0" && name !== "AddmmBackward0") continue;
    assert.equal(a.ops.find((op) => op.id === named.get(id))?.twin ?? null, named.get(twin), id);
  }
  const names = new Map(b.tensors.map(({ name }, at) => [name, a.tensors[tensors[at]]?.name]));
  for (const name of ["tanh", "tanh_1", "tanh.g", "tanh_1.g", "lin.weight.g", "lin.bias.g", "square.g"])
    assert.equal(names.get(name), name);
  assert.deepEqual([names.get("tanh_2"), names.get("tanh_2.g")], [undefined, undefined]);
  assert.deepEqual(onlyB.tensors.map((at) => b.tensors[at].name), ["lin.linear_2", "tanh_2"]);
});

test("layers that share a weight are matched by their modules", () => {
  const { dumps, outputs } = made.tied;
  for (const [one, other] of [[0, 1], [1, 0], [2, 0], [0, 2]]) {
    const [a, b] = [dumps[one], dumps[other]].map((dump, index) =>
      ({ index, name: `${index}`, dump, picture: pictureOf(dump) })
    );
    const { layers } = matchedRun(runOfDump(a), b, b.picture).profile;
    assert.deepEqual(layers.map(({ name }) => name), ["wte", "head"]);
    near(layers.map(({ activation }) => activation.std), outputs[one]);
  }
  // A third call of a layer is none of the first two.
  const [two, three] = made.repeated.map((dump) => ({ index: 0, name: "", dump, picture: pictureOf(dump) }));
  const { layers } = matchedRun(runOfDump(two), three, three.picture).profile;
  assert.deepEqual(layers.map(({ name, activation }) => [name, activation !== null]),
    [["lin", true], ["lin (2)", true], ["lin (3)", false]]);
});

test("graphs are matched by what things are", () => {
  const { step0: a, deeper: b } = made.training;
  const same = matchGraphs(a, structuredClone(a));
  assert.ok(same.isSame);
  assert.deepEqual([...same.tensors], a.tensors.map((_, at) => at));
  const { isSame, tensors, ops, onlyA, onlyB } = matchGraphs(a, b);
  assert.ok(!isSame);
  const partners = [...tensors].filter((there) => there >= 0);
  assert.deepEqual([new Set(partners).size, partners.length], [a.tensors.length, a.tensors.length]);
  // A parameter, what a module puts out, and the gradients of both answer to their namesakes.
  const names = b.tensors.filter((_, at) => tensors[at] >= 0).map(({ name }) => name);
  assert.deepEqual(names, [...tensors].filter((there) => there >= 0).map((there) => a.tensors[there].name));
  for (const name of ["body.0.weight", "body.3.relu", "body.4.linear.g", "body.2.bias.g", "mse_loss"])
    assert.ok(names.includes(name), name);
  assert.ok(!names.some((name) => /^body\.[56]/.test(name)));
  assert.deepEqual(onlyA, { modules: [], tensors: [] });
  assert.deepEqual(onlyB.modules, ["body.5 ReLU", "body.6 Linear"]);
  const kind = ({ name, phase }) => `${name} ${phase}`;
  b.ops.forEach((op, at) => assert.ok(ops[at] < 0 || kind(op) === kind(a.ops[ops[at]])));
  const nameOf = (graph, id) => graph.ops.find((op) => op.id === id).name;
  assert.equal(nameOf(b, carried("n3", a, b)), nameOf(a, "n3"));
  for (const id of ["body.4.bias", "body.0/forward"]) assert.equal(carried(id, a, b), id);
});
