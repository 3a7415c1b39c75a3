/** The page's modules without a page: formats, addresses, frames, formulas. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { count, numerals, percent, quantity, setting, shape, significant } from "../../static/core/format.js";
import { decodeFrame, frameHeader, rowIndex, valuesAt } from "../../static/core/picture.js";
import { shortName, termOf } from "../../static/core/rules/terms.js";
import { decadeLabel, decadeRange, decadeTicks, layerTicks, linearScale, sliderScale } from "../../static/core/scales.js";
import { parseSpec, parseView, specQuery, viewFragment, withProgram } from "../../static/core/url-state.js";
import { numberGrid } from "../../static/core/view/box-text.js";
import { opText, tensorText, textWidth } from "../../static/core/view/box-text.js";
import { contrast, dumpOf, hiding, isRising, made, near, pageData, pictureOf, schemeColours } from "./tools.mjs";

test("numbers have three significant digits", () => {
  for (const [value, text] of [
    [1.0231, "1.02"], [2.4612e-8, "2.46e-8"], [0.14142, "0.141"], [-0.5, "−0.500"], [0, "0"], [999.9, "1000"],
    [9876, "9880"], [12345, "1.23e4"], [0.001, "0.00100"], [0.0009996, "0.00100"], [3.4e38, "3.40e38"], [null, "–"],
    [NaN, "NaN"], [Infinity, "∞"], [-Infinity, "−∞"],
  ]) assert.equal(significant(value), text);
});

test("the values of a tensor are written alike, whole numbers without a point", () => {
  const values = [1.0231, -0.05, 0, 123.4, 2.4612e-8, NaN];
  assert.deepEqual(numerals(values, 3), ["1.02", "−0.0500", "0", "123", "2.46e-8", "NaN"]);
  assert.deepEqual(numerals(values, 1), ["1", "−0.05", "0", "100", "2e-8", "NaN"]);
  assert.deepEqual(numerals([1 / 3, 12345.678], 6), ["0.333333", "1.23457e4"]);
  assert.deepEqual(numerals([1, -2, 0, -0, 9999], 3), ["1", "−2", "0", "0", "9999"]);
});

test("values stand in the rows and columns of their tensor, with as many digits as fit", () => {
  const grid = (values, sizes, w, h, least = 0) => numberGrid(values, sizes, { x: 10, y: 20, w, h }, least);
  const places = (lines) => lines.map(({ x, y }) => [new Set(lines.map((each) => each.x)), new Set(lines.map((each) => each.y))]
    .map((known, axis) => [...known].indexOf(axis === 0 ? x : y)));
  const matrix = [0.1234, -1.234, 12.34, 0, 5.5, 6.6];
  const lines = grid(matrix, [2, 3], 150, 50);
  assert.deepEqual(lines.map(({ text }) => text), numerals(matrix, 3));
  assert.deepEqual(places(lines), [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]);
  assert.ok(lines.every(({ x, y, size }) => x <= 160 && y <= 70 && y - size >= 20 && size === 11));
  assert.deepEqual(grid(matrix, [2, 3], 80, 50).map(({ text }) => text), numerals(matrix, 1));
  assert.deepEqual([grid(matrix, [2, 3], 40, 50), grid(matrix, [2, 3], 150, 12), grid(matrix, [2, 3], 150, 50, 14)], [[], [], []]);
  // A vector runs over several lines, of equal length if possible.
  assert.deepEqual(places(grid([1.5, 2.5, 3.5], [3], 90, 50)), [[0, 0], [0, 1], [0, 2]]);
  assert.deepEqual(places(grid([1.5, 2.5, 3.5], [1, 3], 90, 26)), [[0, 0], [1, 0], [0, 1]]);
});

test("other formats", () => {
  assert.deepEqual([0, 0.0004, 0.5, 0.99999, 1].map(percent), ["0 %", "< 0.1 %", "50.0 %", "> 99.9 %", "100 %"]);
  assert.deepEqual([shape([200, 50]), shape([]), count(12345)], ["200 × 50", "scalar", "12,345"]);
  assert.deepEqual([999, 2.02e6, 1e9].map((n) => quantity(n, "FLOP")), ["999 FLOP", "2.02 MFLOP", "1.00 GFLOP"]);
  assert.deepEqual([0.1, 1e9, 0.0001, 316].map(setting), ["0.1", "1e9", "0.0001", "316"]);
});

test("a name gives way to the figure and the histogram of its box, and none is smaller than asked for", () => {
  for (const label of ["l1", "linear", "linear.g share 2", "encoder.layers.3.weight"]) {
    for (const [w, h] of [[104, 76], [88, 50], [58, 92], [104, 40], [200, 76]]) {
      for (const least of [0, 9, 11.25, 13, 15.75, 18]) {
        const { name, value, plot } = tensorText(label, w, h, false, least);
        assert.ok(value.size >= least && name.every(({ size }) => size >= least));
        assert.ok(plot.h >= 9 && plot.y >= 0 && plot.y + plot.h <= h, `${label} ${w} ${h} ${least}: ${plot.h}`);
        // Beside the name a figure of three digits has room.
        assert.ok((value.alone ?? value.room) >= Math.min(w - 2, textWidth("0.12345", `${value.size}px`)));
        if (name.length > 0 && least > 0) assert.ok(value.room >= textWidth("0.123", `${value.size}px`));
      }
    }
  }
});

test("the words of a fold stand above its histograms, the first note in any case", () => {
  const labels = ["Block × 12"];
  for (const [w, h] of [[120, 76], [240, 104], [600, 250]]) {
    const { name, notes, plot } = opText(labels, ["blocks.0 also: skip", "layers 1–12", "3.2 M params"], w, h, true);
    assert.deepEqual(name.map(({ text }) => text), labels);
    assert.ok(notes[0].text.startsWith("blocks.0 also: skip"));
    assert.ok(plot.h >= 0.35 * h && [...name, ...notes].every(({ y }) => y <= plot.y));
  }
});

test("the slider's scale is monotone and invertible", () => {
  const scale = sliderScale(1e-4, 1e4);
  const values = Array.from({ length: 401 }, (_, step) => scale.value(step / 200 - 1));
  assert.deepEqual([values[0], values[200], values[400]], [1e-4, 1, 1e4]);
  assert.ok(isRising(values));
  near(values.map((value) => scale.value(scale.position(value))), values, 1e-9);
  assert.deepEqual([scale.step(1, 1), scale.step(1.01, -1), scale.step(100, 10), scale.step(1e4, 10)], [1.01, 1, 110, 1e4]);
});

test("near ×1 the slider has equal steps of hundredths", () => {
  const scale = linearScale(0.5, 2);
  const places = [-1, -1 / 3, 0, 1];
  assert.deepEqual(places.map(scale.value), [0.5, 1, 1.25, 2]);
  near([0.5, 1, 1.25, 2].map(scale.position), places, 1e-12);
  assert.deepEqual([scale.value(-0.334), scale.step(0.7071, 1), scale.step(1, -10), scale.step(1.95, 10)], [1, 0.72, 0.9, 2]);
  // A value beyond an end stands at it.
  assert.deepEqual([30, 0.1].map(scale.position), [1, -1]);
});

test("decades hold their values", () => {
  for (const values of [[0.7, 1.4], [1e-30, 1e38], [5], []]) {
    const [low, high] = decadeRange(values);
    assert.ok(high - low >= 2 && values.every((value) => low <= Math.log10(value) && Math.log10(value) <= high));
    const { length } = decadeTicks(low, high, 70, 14);
    assert.ok(length >= 1 && length <= 6);
  }
  // Kept decades grow where a value leaves them, and nowhere else.
  const kept = [[1.01, 99], [], [0.5, 2], [100, 1001]].map((values) => decadeRange(values, [0, 2]));
  assert.deepEqual(kept, [[0, 2], [0, 2], [-1, 2], [0, 4]]);
  assert.deepEqual([-8, -2, 0, 3, 20].map(decadeLabel), ["10⁻⁸", "0.01", "1", "1000", "10²⁰"]);
  assert.deepEqual(layerTicks(50, 800, 26), [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50]);
  // No two labels touch, however many layers there are.
  for (const count of [100, 1000, 9999, 10_000, 123_456]) {
    const ticks = layerTicks(count, 800, 26);
    const room = ticks.slice(1).map((tick, at) => (tick - (ticks[at] ?? 0)) * 800 / count);
    assert.ok(ticks.length >= 5 && Math.min(...room.slice(1)) >= 20, `${count}: ${ticks}`);
    assert.deepEqual([ticks[0], ticks.at(-1)], [1, count]);
  }
});

test("the view goes into the fragment and back", () => {
  const initial = parseView("");
  const view = { ...initial, select: "layers.0/forward", statistic: "mean", show: "layers", tab: "profile",
    predict: "l2.std", guess: "0.8", a: "?widths=100x51&scale=0.5", zoom: 2.5, at: 0.25 };
  const text = viewFragment(view);
  assert.equal(text, "select=layers.0/forward&statistic=mean&show=layers&tab=profile&predict=l2.std&guess=0.8"
    + "&a=?widths=100x51%26scale=0.5&zoom=2.5&at=0.25");
  assert.deepEqual(parseView(`#${text}`), view);
  assert.equal(viewFragment(initial), "");
  assert.deepEqual(parseView("#statistic=bogus&zoom=-1&x=1"), initial);
});

/** A live frame, with the columns that are in it. */
function frame(rows, { loss = 2.5, flags = 0, extra = 0 } = {}) {
  const column = (length, value) => Array.from({ length: rows }, (_, row) => value(row, length));
  const floats = Array.from({ length: 8 + extra }, (_, at) => column(at, (row) => row + 0.5 * at));
  if (rows > 0) floats[1][0] = NaN;
  const integers = Array.from({ length: 4 }, (_, at) => column(at, (row) => 10 * at + row));
  const counts = Array.from({ length: rows * 64 }, (_, place) => place % 97);
  const header = new DataView(new ArrayBuffer(48));
  [..."CRF1"].forEach((letter, at) => header.setUint8(at, letter.charCodeAt(0)));
  [7, 3, rows, 64, floats.length].forEach((value, at) => header.setUint32(4 + 4 * at, value, true));
  [loss, 1.25].forEach((value, at) => header.setFloat64(24 + 8 * at, value, true));
  [flags, 4].forEach((value, at) => header.setUint32(40 + 4 * at, value, true));
  const parts = [header, ...floats.map((each) => Float64Array.from(each)), Uint32Array.from([...integers.flat(), ...counts])];
  const bytes = Buffer.concat(parts.map(({ buffer }) => new Uint8Array(buffer)));
  return { buffer: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length), floats, integers, counts };
}

function decoded(buffer, rows) {
  const topology = { statistics: { tensor: Array.from({ length: rows }, (_, row) => `t${row}`) } };
  return decodeFrame(buffer, { key: "k", topology, rows: rowIndex(topology) }, {});
}

test("a frame is decoded", () => {
  for (const rows of [1, 5, 300]) {
    for (const extra of [0, 2]) {
      const { buffer, floats, integers, counts } = frame(rows, { extra });
      const picture = decoded(buffer, rows);
      assert.deepEqual(frameHeader(buffer), { seq: 7, topology: 3 });
      assert.deepEqual([picture.loss, picture.computeMs, picture.failed, picture.rows.get(`t${rows - 1}`)],
        [2.5, 1.25, false, rows - 1]);
      const names = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"];
      names.forEach((name, at) => assert.deepEqual([...picture.floats[name]], floats[at], name));
      ["n", "nan", "posinf", "neginf"].forEach((name, at) =>
        assert.deepEqual([...picture.integers[name]], integers[at], name));
      assert.deepEqual([...picture.counts], counts);
      assert.deepEqual(picture.values.map((column) => [...column]), floats.slice(8));
    }
  }
  const { loss, failed } = decoded(frame(2, { loss: NaN, flags: 1 | 2 }).buffer, 2);
  assert.deepEqual([loss, failed], [null, true]);
});

test("a broken frame is refused", () => {
  const { buffer } = frame(3);
  const foreign = buffer.slice(0);
  new Uint8Array(foreign).fill(88, 0, 4);
  assert.throws(() => decoded(buffer.slice(0, -4), 3), /its header says/);
  for (const bad of [foreign, buffer.slice(0, 20)]) assert.throws(() => decoded(bad, 3), /not a live frame/);
});

test("a dump gives the same picture as its columns", async () => {
  const dump = await dumpOf("preset=deep-exploding");
  const { floats, integers, counts, bins, loss, seq } = pictureOf(dump);
  const { std, nan, histogram } = dump.statistics;
  near([...floats.std], std.map((value) => value ?? NaN), 1e-15);
  assert.deepEqual([[...integers.nan], [...counts.subarray(0, bins)], loss, seq], [nan, histogram.counts[0], NaN, 1]);
});

test("the values of small tensors are known, with those that are not finite", async () => {
  const dump = await dumpOf("widths=4,3,1&batch=2");
  const picture = pictureOf(dump);
  const x = dump.tensors.find(({ name }) => name === "x").id;
  assert.deepEqual(valuesAt(picture, picture.rows.get(x)), dump.values[x]);
  assert.equal(dump.values[x].length, 8);
  const special = pictureOf({ ...dump, values: { [x]: ["NaN", "Infinity", "-Infinity", 0, 1, 2, 3, 4] } });
  const row = special.rows.get(x);
  special.integers.nan[row] = 1;
  assert.deepEqual(valuesAt(special, row), [NaN, Infinity, -Infinity, 0, 1, 2, 3, 4]);
  // Of a tensor without values, of one with more elements than any has values, and of one that waits for a guess.
  const w = dump.tensors.find(({ name }) => name === "w1").id;
  assert.equal(valuesAt(special, special.rows.get(w)), null);
  assert.equal(valuesAt(pictureOf({ ...dump, values: {} }), row), null);
  assert.equal(valuesAt(hiding(picture, "x"), row), null);
});

test("brackets stand where they are needed", () => {
  const binds = { "+": 2, "−": 2, "·": 3, "@": 3 };
  const plain = { ignore_index: -100, reduction: "mean", label_smoothing: 0 };
  for (const [name, attributes, inputs, text] of [
    ["matmul", {}, ["a + b", "c"], "(a + b) @ c"],
    ["sub", {}, ["a", "b + c"], "a − (b + c)"],
    ["add", {}, ["a", "b · c"], "a + b · c"],
    ["mul", { other: 2 }, ["a − b"], "2 · (a − b)"],
    ["rsub", { other: 1 }, ["a"], "1 − a"],
    ["div", {}, ["a", "b · c"], "a / (b · c)"],
    ["pow", { exponent: 2 }, ["a − b"], "(a − b)²"],
    ["clamp_min", { min: 0 }, ["a + b"], "max(a + b, 0)"],
    ["t", {}, ["a @ b"], "(a @ b)ᵀ"],
    ["linear", {}, ["x", "w", "b"], "x @ wᵀ + b"],
    ["softmax", { dim: -1, dtype: null }, ["a"], "softmax(a, dim=−1)"],
    ["softmax", { dim: 0, _stacklevel: 3, dtype: null }, ["a"], "softmax(a, dim=0)"],
    ["add", { alpha: 2 }, ["a", "b + c"], "a + 2 · (b + c)"],
    ["sub", { alpha: 3 }, ["a", "b"], "a − 3 · b"],
    ["mul_", { 1: 2 }, ["a"], "2 · a"],
    ["rpow", { 1: 2 }, ["a"], "2^a"],
    ["pow", { input: 2 }, ["a"], "2^a"],
    ["getitem", { index: [":", null] }, ["a"], "a[:, None]"],
    ["getitem", { index: 0 }, ["a + b"], "(a + b)[0]"],
    ["div", { other: 3, rounding_mode: "floor" }, ["a"], "div(a, other=3, rounding_mode=floor)"],
    ["transpose", { dim0: 1, dim1: 2 }, ["a"], "transpose(a, 1, 2)"],
    ["transpose", { dim0: -2, dim1: -1 }, ["a"], "aᵀ"],
    ["cross_entropy", plain, ["a", "b"], "cross_entropy(a, b)"],
    ["conv2d", { stride: [2, 2], padding: [0, 0], dilation: [1, 1], groups: 1 }, ["a", "b"], "conv2d(a, b, stride=(2, 2))"],
  ]) {
    const terms = inputs.map((each) => ({ text: each, binds: binds[/[+−·@]/.exec(each)?.[0]] ?? 6 }));
    assert.equal(termOf({ name, attributes, inputs, outputs: ["o"] }, terms).text, text);
  }
  const long = `encoder.${"very_long_module_name_".repeat(6)}.0.weight`;
  assert.deepEqual(["layers.0.linear", long].map(shortName), ["layers.0.linear", "encoder.very…odule_name_.0.weight"]);
});

test("the next spec is sent before the picture is drawn, and the last one wins", async () => {
  // The server computes while the page draws: what waits goes out first, and what was overtaken is never sent.
  const log = [];
  const sockets = [];
  class Socket extends EventTarget {
    constructor() {
      super();
      sockets.push(this);
    }

    send(text) {
      log.push(`sent ${JSON.parse(text).seq} ×${JSON.parse(text).spec.scale}`);
    }

    close() {}
  }
  const document = Object.assign(new EventTarget(), { body: null });
  const page = { WebSocket: Socket, document, location: { protocol: "http:", host: "localhost" } };
  Object.assign(globalThis, page, { addEventListener() {} });
  const { Live } = await import("../../static/core/live.js");
  const picture = ({ seq, spec }) => log.push(`picture ${seq} ×${spec.scale}`);
  const live = new Live({ picture, theory() {}, error() {}, state() {} }, () => "");
  live.start();
  const [socket] = sockets;
  const receive = (data) => socket.dispatchEvent(new MessageEvent("message", { data }));
  const answerTo = (seq) => {
    const { buffer } = frame(0);
    new DataView(buffer).setUint32(4, seq, true);
    new DataView(buffer).setUint32(8, 1, true);
    return buffer;
  };
  socket.dispatchEvent(new Event("open"));
  const parts = { modules: [], ops: [], tensors: [], saved: [], layers: [], sources: {} };
  receive(JSON.stringify({ type: "topology", topology: 1, trace: { ...parts, statistics: { tensor: [] } } }));
  for (const scale of [1, 2, 3]) live.request({ scale });
  receive(answerTo(1));
  receive(answerTo(2));
  assert.deepEqual(log, ["sent 1 ×1", "sent 2 ×3", "picture 1 ×1", "picture 2 ×3"]);
  for (const name of Object.keys(page)) delete globalThis[name];
  live.stop?.();
});

test("the page and the server write one address", async () => {
  for (const query of [
    "",
    "widths=100x51&activation=linear&init=standard_normal&scale=0.1",
    "last_activation=true&bias=false&seed=7",
    "init=lecun_normal&scale=1.6667&bias_std=0.25&dtype=float64",
    "seed=9223372036854775807",
    ...made.programs.filter((name) => name !== "mlp" && name !== "linear_cpp").map((name) => `program=${name}`),
    ...["loops", "einsum", "@"].map((rung) => `program=matmul&rung=${rung}&widths=4,3`),
    "program=mul_constant&constant=-0.000001&seed=1",
    "program=linear_function&bias=false&dtype=float64",
  ]) {
    const page = JSON.parse(await pageData(query));
    assert.deepEqual([page.query, specQuery(page, parseSpec(page, page.query))], [query, query]);
  }
});

test("the page and the server go to another program alike", async () => {
  const page = JSON.parse(await pageData(""));
  for (const [spec, program, query] of made.addresses)
    assert.equal(specQuery(page, withProgram(page, spec, program)), query);
  // A mistaken query goes to the server as it is, which names the mistake.
  for (const query of ["program=exp&scale=2", "program=perceptron&seed=1", "rung=loops"])
    assert.equal(specQuery(page, parseSpec(page, query)), query);
});

test("the colours of the passes are legible as text", () => {
  for (const colours of schemeColours()) {
    for (const name of ["forward", "backward", "parameter", "warning", "ink-muted"])
      for (const ground of ["paper", "surface", "raised", `${name}-soft`].filter((each) => each in colours)) {
        const ratio = contrast(colours[name], colours[ground]);
        assert.ok(ratio >= 4.5, `${name} on ${ground}: ${ratio.toFixed(2)}`);
      }
  }
});
