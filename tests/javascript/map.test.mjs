/** Maps of nets without a page: axes, filling, colours, contours, queries, tables, and the lines of an answer. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { postLines } from "../../static/core/api.js";
import { csv } from "../../static/core/lab/csv.js";
import { axisText, AxisScale, parseAxis, partOf } from "../../static/core/map/axis.js";
import { paint, pixelOf, scaleOf, shades, share } from "../../static/core/map/colour-scale.js";
import { contours } from "../../static/core/map/contours.js";
import { FAILED, KNOWN, MapGrid, nearestKnown } from "../../static/core/map/grid.js";
import { svgPen } from "../../static/core/map/pens.js";
import { cellQuery, cellText, commandOf, formOf, foundKey, mapQuery, tableOf, titleOf, widthsAt } from "../../static/core/map/query.js";
import { MapRun } from "../../static/core/map/run.js";
import { ticks } from "../../static/core/map/ticks.js";
import { isRising, near } from "./tools.mjs";

const scaleFor = (over, values, log = false) => new AxisScale({ key: over.split("=")[0], over, log, values });
const linear = scaleFor("scale=0:2:5", [0, 0.5, 1, 1.5, 2]);
const decades = scaleFor("lr=log:0.01:100:5", [0.01, 0.1, 1, 10, 100], true);

const PLAN = {
  type: "plan", query: "widths=100x51&scale=2", spec: { widths: "100x51" },
  axes: [{ key: "scale", over: "scale=1:2:2", log: false, values: [1, 2] },
    { key: "depth", over: "depth=5,10", log: false, values: [5, 10] }],
  seeds: [42, 43, 44], measure: { name: "gradient_ratio", title: "G", doc: "", log: true, trains: false }, cells: 4,
  tasks: 2, curves: [{ name: "c", doc: "", points: [[1.5, 5], null, [3, 10]] }],
};
const FORM = { spec: "widths=100x51", x: "scale=1:2:2", y: "depth=5,10", seeds: 3, measure: "gradient_ratio" };

test("an axis is read and written alike", () => {
  for (const text of ["scale=0.5:2:33", "depth=log:2:64:6", "activation=relu,tanh", "lr=1e-05:0.1:3"])
    assert.equal(axisText(parseAxis(text)).replace("0.00001", "1e-05"), text);
  assert.deepEqual(parseAxis(" depth = log:2:64:6 "), { key: "depth", from: 2, to: 64, count: 6, isLog: true });
  for (const text of ["", "scale", "scale=", "=1:2:3", "scale=1:2", "scale=a:2:3", "scale=1:2:0", "scale=1:2:x"])
    assert.equal(parseAxis(text), null, text);
});

test("the middle of a cell is the place of its value, and places lie evenly between", () => {
  for (const scale of [linear, decades, scaleFor("d=3,2,-1", [3, 2, -1])])
    scale.values.forEach((value, at) => {
      near(scale.place(value), at + 0.5);
      near(scale.value(at + 0.5), value);
    });
  near(linear.place(0.75), 2);
  near(linear.value(0), -0.25);
  near(decades.place(Math.sqrt(10)), 3);
  assert.equal(decades.place(-1), null);
  const words = scaleFor("activation=relu,tanh", ["relu", "tanh"]);
  assert.deepEqual([words.place("tanh"), words.place("elu"), words.value(1.9), words.value(5)], [1.5, null, "tanh", "tanh"]);
  const mixed = scaleFor("a=1,5,2", [1, 5, 2]);
  assert.deepEqual([mixed.place(5), mixed.place(3), mixed.value(1.2)], [1.5, null, 5]);
});

test("ticks are round, inside, and not too many", () => {
  assert.deepEqual(ticks(0.13, 0.98, false, 5).map(({ text }) => text), ["0.2", "0.4", "0.6", "0.8"]);
  assert.deepEqual(ticks(-1, 1, false, 4).map(({ text }) => text), ["−1", "−0.5", "0", "0.5", "1"]);
  assert.deepEqual(ticks(0.5, 2, true, 5).map(({ text }) => text), ["0.5", "1", "2"]);
  assert.deepEqual(ticks(1e-20, 1e20, true, 5).map(({ text }) => text), ["10⁻²⁰", "10⁻¹⁰", "1", "10¹⁰", "10²⁰"]);
  for (const [low, high] of [[1e-9, 3], [0.3, 0.31], [1, 1e300], [5, 5]])
    for (const fits of [1, 3, 8]) {
      const found = ticks(low, high, true, fits).map(({ value }) => value);
      assert.ok(isRising([low * 0.999999, ...found, high * 1.000001]) && found.length <= 2 * fits + 1, `${low} ${high}`);
    }
  const whole = scaleFor("depth=2:4:3", Array.from({ length: 20 }, (_, at) => at + 2));
  assert.deepEqual(whole.ticks(0, 4, 9).map(({ text }) => text), ["2", "3", "4", "5"]);
  assert.deepEqual(scaleFor("a=x,y,z", ["x", "y", "z"]).ticks(0, 3, 2).map(({ text }) => text), ["x", "z"]);
  assert.deepEqual(scaleFor("bias=true,false", [true, false]).ticks(0, 2, 9).map(({ text }) => text), ["true", "false"]);
});

test("a region becomes an axis of as many values, of whole numbers of those inside", () => {
  const part = (scale, low, high, isWhole = false) => {
    const found = partOf(parseAxis(scale.over ?? scale.text), scale, low, high, isWhole);
    return found && axisText(found);
  };
  const of = (text, values, log) => Object.assign(scaleFor(text, values, log), { text });
  const scale = of("scale=0:2:5", [0, 0.5, 1, 1.5, 2]);
  assert.equal(part(scale, 1.5, 2.5), "scale=0.5:1:5");
  assert.equal(part(scale, -3, 9), "scale=0:2:5");
  assert.equal(part(of("lr=log:0.01:100:5", decades.values, true), 1.5, 2.5), "lr=log:0.1:1:5");
  assert.equal(part(of("depth=2:50:25", Array.from({ length: 25 }, (_, at) => 2 + 2 * at)), 2.3, 5.7, true), "depth=6:12:7");
  assert.equal(part(of("depth=2:4:3", [2, 3, 4]), 1.2, 1.8, true), "depth=3");
  assert.equal(part(of("activation=relu,tanh,elu", ["relu", "tanh", "elu"]), 0.2, 1.7), "activation=relu,tanh");
  assert.equal(part(of("scale=1:1.0000000001:2", [1, 1.0000000001]), 0.5, 1.5), "scale=1:1.0000000001:2");
  assert.equal(part(of("scale=1:1.0000000000000004:2", [1, 1.0000000000000004]), 0.5, 1.5), null);
});

test("cells have the lower median, the spread, and what failed", () => {
  const grid = new MapGrid(2, 1, 4, true);
  grid.take([0, 1, 2], [8, 2, null]);
  assert.deepEqual([grid.median[0], grid.spread[0], grid.nets, grid.cells], [2, 4, 3, 1]);
  assert.deepEqual(grid.valuesOf(0), [8, 2, null, undefined]);
  assert.equal(grid.medianSeed(0), 1);
  grid.take([4, 5, 6, 7], ["NaN", "Infinity", 1, "NaN"]);
  assert.deepEqual([grid.median[1], grid.spread[1], grid.medianSeed(1)], [Infinity, NaN, 1]);
  const other = new MapGrid(1, 1, 2, false);
  other.take([0, 1], [-1, 3]);
  assert.deepEqual([other.median[0], other.spread[0]], [-1, 4]);
  other.fail([0, 1], "no memory");
  assert.deepEqual([other.states[0], other.nets, other.reasons.get(0)], [FAILED, 2, "no memory"]);
});

test("an unknown cell has its nearest known neighbour", () => {
  const [nx, ny] = [17, 9];
  const grid = new MapGrid(nx, ny, 1, false);
  assert.ok(nearestKnown(grid).every((cell) => cell === -1));
  const known = [[0, 0], [8, 0], [16, 0], [0, 8], [8, 8], [3, 4], [4, 4], [16, 7]];
  grid.take(known.map(([x, y]) => y * nx + x), known.map(() => 1));
  const distance = (cell, other) => Math.hypot(cell % nx - other % nx, Math.floor(cell / nx) - Math.floor(other / nx));
  nearestKnown(grid).forEach((found, cell) => {
    assert.equal(grid.states[found], KNOWN);
    // Two passes are off by less than a cell.
    const least = Math.min(...known.map(([x, y]) => distance(cell, y * nx + x)));
    assert.ok(distance(cell, found) < least + 0.5, `${cell}: ${found}`);
  });
  grid.take(Array.from({ length: nx * ny }, (_, at) => at), Array(nx * ny).fill(1));
  assert.equal(nearestKnown(grid), null);
});

test("colours go from the first hundredth to the last, and part at 1 where that is best", () => {
  const field = Float64Array.from({ length: 1000 }, (_, at) => at === 999 ? 1e30 : at);
  const states = new Uint8Array(1000).fill(KNOWN);
  const plain = scaleOf(field, states, false);
  near([plain.low, plain.high], [10, 989]);
  const centred = scaleOf(Float64Array.of(1e-3, 0.1, 10, NaN, Infinity, 0), states, true, "gradient_ratio");
  near([centred.low, centred.high, share(centred, 1)], [1e-3, 1e3, 0.5]);
  assert.deepEqual([share(centred, 0), share(centred, -1), share(centred, 1e9)], [0, 0, 1]);
  assert.equal(scaleOf(Float64Array.of(NaN), states, false), null);
  const same = scaleOf(Float64Array.of(7, 7), states, false);
  assert.ok(same.low < 7 && same.high > 7);
  // Apart by lightness, for eyes that see no hue.
  const light = ([r, g, b]) => 0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2;
  assert.ok(isRising(shades(false, false).filter((_, at) => at % 16 === 0).map(light)));
});

test("each cell is a pixel, the first row below, with colours of its own for what is no number", () => {
  const grid = new MapGrid(3, 2, 1, false);
  grid.take([0, 1, 2, 3, 4], [0, 1, "NaN", "-Infinity", null]);
  const special = { nan: 11, infinite: 22, missing: 33 };
  const colours = Uint32Array.from({ length: 256 }, (_, at) => 1000 + at);
  const scale = { low: 0, high: 1, isLog: false, isCentred: false };
  const painted = paint(grid.median, grid, null, scale, colours, special);
  assert.deepEqual([...painted.pixels], [22, 33, 1000, 1000, 1255, 11]);
  assert.deepEqual([...painted.mask].map(Boolean), [true, false, false, false, false, false]);
  assert.ok(painted.hasNan && painted.hasMissing);
  assert.equal(pixelOf([1, 2, 3]), 0xff030201);
});

test("contours lie where a plane has the level, and spare what is not finite", () => {
  const [nx, ny] = [6, 5];
  const plane = Float64Array.from({ length: nx * ny }, (_, at) => at % nx + 2 * Math.floor(at / nx));
  const lines = contours(plane, nx, ny, [3.3], false);
  assert.ok(lines.length >= 4);
  for (const [x, y] of lines.flat()) near(x - 0.5 + 2 * (y - 0.5), 3.3);
  plane[2 * nx + 2] = NaN;
  assert.ok(contours(plane, nx, ny, [6.5], false).flat().every(([x, y]) => Math.hypot(x - 2.5, y - 2.5) >= 0.99));
  const powers = contours(Float64Array.of(1, 100, 1, 100), 2, 2, [10], true);
  assert.deepEqual(powers.map((line) => line.map(([x]) => x)), [[1, 1]]);
});

test("a cell's query is the base's with its keys, its seed, and its widths for depth and width", () => {
  assert.equal(cellQuery("widths=100x51&scale=2&seed=7", "100x51", [["scale", 0.1], ["depth", 5]], 43),
    "widths=100x6&scale=0.1&seed=43");
  assert.equal(cellQuery("", "64,32x3,10", [["width", 8], ["depth", 3]], 1), "widths=64,8x2,10&seed=1");
  assert.equal(cellQuery("", "64,32x3,10", [["width", 8]], 1), "widths=64,8x3,10&seed=1");
  assert.equal(cellQuery("data=a,b", "1,1", [["activation", "relu"], ["lr", 1e-7]], 0), "data=a,b&activation=relu&lr=1e-7&seed=0");
  assert.deepEqual([foundKey("steps_to_loss:0.1", 7), foundKey("first_nonfinite", Infinity), foundKey("loss", 1)],
    [[["step", 7]], [], []]);
  assert.equal(cellQuery("step=50&lr=1", "1,1", [["scale", 2], ...foundKey("largest_lr", 0.25)], 3), "step=50&lr=0.25&scale=2&seed=3");
  assert.equal(Number(cellQuery("", "", [["scale", 0.1 + 0.2]], 0).match(/scale=([^&]*)/)[1]), 0.1 + 0.2);
  assert.deepEqual([widthsAt("100x51", 1, null), widthsAt("64,32x3,10", 2, null), widthsAt("no", 2, 3)], ["100x2", "64,32,10", "no"]);
});

test("the page's query holds the form, and so does the command", () => {
  const query = mapQuery(FORM);
  assert.equal(query, "widths=100x51&x=scale=1:2:2&y=depth=5,10&seeds=3&measure=gradient_ratio");
  assert.deepEqual(formOf(query, { ...FORM, spec: "lr=1" }), FORM);
  assert.deepEqual(formOf("a=b", FORM), { ...FORM, spec: "a=b" });
  const row = { ...FORM, spec: "", y: "" };
  assert.deepEqual(formOf(mapQuery(row), FORM), row);
  assert.match(commandOf({ ...FORM, measure: "loss;touch x" }), / --measure 'loss;touch x' /);
  assert.equal(commandOf(FORM),
    "chainrule sweep 'widths=100x51' --over scale=1:2:2 --over depth=5,10 --seeds 3 --measure gradient_ratio -o map.csv");
});

test("the title of a measure says of which layer it is", () => {
  const titles = ["s", "s:3", "s:output"].map((name) => titleOf({ name, title: "Std" }));
  assert.deepEqual(titles, ["Std", "Std, layer 3", "Std, output"]);
});

test("a run places curves, takes tasks, and says what a cell is", () => {
  const run = new MapRun(FORM, PLAN);
  assert.deepEqual(run.curves[0].places, [[1, 0.5], null, [2.5, 1.5]]);
  run.begin(1000);
  run.take({ type: "cells", task: 0, cells: [0, 1, 2], values: [1, 4, 2], seconds: 1 });
  run.take({ type: "failed", task: 1, cells: [9, 10, 11], message: "no memory" });
  assert.deepEqual([run.tasks, run.progress(3000)], [2, { nets: 6, all: 12, rate: 3, left: 2 }]);
  assert.equal(cellText(PLAN, run.grid, 0), "scale 1, depth 5: median 2.00, from 1.00 to 4.00; seed 42: 1.00, 43: 4.00, 44: 2.00");
  assert.equal(cellText(PLAN, run.grid, 1), "scale 2, depth 5: not known yet");
  assert.equal(cellText(PLAN, run.grid, 3), "scale 2, depth 10: not computed, no memory");
  assert.deepEqual(MapRun.of(FORM, run.lines).grid, run.grid);
  assert.equal(csv(tableOf(PLAN, run.grid)), "scale,depth,seed,gradient_ratio\r\n1,5,42,1\r\n1,5,43,4\r\n1,5,44,2\r\n");
});

test("an answer is read a line at a time, and a line that was cut off is not read", async () => {
  const parts = ['{"a":1}\n{"a"', ':"é', '"}\n', '{"a":3}\n{"cut'];
  const { fetch } = globalThis;
  globalThis.fetch = async () => new Response(ReadableStream.from(parts.map((part) => new TextEncoder().encode(part))));
  const found = [];
  for await (const { a } of postLines("/", {}, new AbortController().signal)) found.push(a);
  globalThis.fetch = async () => Response.json({ error: { code: "busy", message: "later" } }, { status: 503, headers: { "retry-after": "2" } });
  const refused = await postLines("/", {}, new AbortController().signal).next().catch((error) => error);
  globalThis.fetch = fetch;
  assert.deepEqual(found, [1, "é", 3]);
  assert.deepEqual([refused.message, refused.retryAfter], ["later", 2]);
});

test("an SVG has shapes and escaped text", () => {
  const { pen, document } = svgPen((text) => 6 * text.length, "sans");
  pen.within({ x: 1, y: 2, w: 3, h: 4 }, () => pen.lines([[[0, 0], [1.234, 2]]], { colour: "#000", width: 1, dash: [1, 2] }));
  pen.text("a < b", 5, 6, { colour: "#111", align: "right" });
  const text = document(10, 20, "A & B", "#fff");
  assert.match(text, /^<svg xmlns.*<title>A &#38; B<\/title>.*<svg x="1".*<path d="M0.00 0.00L1.23 2.00".*stroke-dasharray="1 2".*<\/svg>.*a &#60; b<\/text><\/svg>$/);
});
