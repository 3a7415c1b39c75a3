/** The layers view without its page: bins, axes, ticks, colours, columns, ranges, tables. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { rampPixels, rampStops } from "../../static/core/colours.js";
import { csv } from "../../static/core/lab/csv.js";
import { fixedRange, layerColumns } from "../../static/core/lab/layer-histograms.js";
import { BINS, spread, ValueAxis } from "../../static/core/value-axis.js";
import { columnsOf, contrast, dumpOf, isRising, luminance, near, pictureOf, schemeColours } from "./tools.mjs";

const KINDS = ["linear", "log"];
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The counts of `source` over other edges, bin by bin and by area; exact zeros at zero. */
function overlap(source, low, high, zeros, edges) {
  const width = (high - low) / source.length;
  const counts = [...source];
  const into = new Array(edges.length - 1).fill(0);
  if (zeros > 0) {
    counts[Math.min(source.length - 1, Math.trunc(-low / width))] -= zeros;
    into[edges.slice(0, -1).findLastIndex((edge) => edge <= 0)] += zeros;
  }
  counts.forEach((count, at) => {
    const [start, end] = [low + at * width, low + (at + 1) * width];
    into.forEach((_, target) => {
      const shared = Math.min(end, edges[target + 1]) - Math.max(start, edges[target]);
      into[target] += count * Math.max(0, shared) / width;
    });
  });
  return into;
}

function spreadOver(axis, source, low, high, zeros) {
  const into = new Float64Array(BINS);
  return { into, ...spread(Uint32Array.from(source), low, high, zeros, axis, into) };
}

test("counts are spread by overlap and none is lost", () => {
  for (const kind of KINDS) {
    const axis = new ValueAxis(kind, -4, 8, 0.01);
    for (const [low, high, zeros] of [[-3, 5, 0], [0, 7.3, 90], [-2, 0, 25], [0.4, 0.6, 0], [-1e-3, 1e-3, 7],
      [-900, 900, 0]])
    {
      const hasZero = (bin) => low + (high - low) * (bin + 1) / 64 >= 0 && 0 >= low;
      const source = Array.from({ length: 64 }, (_, bin) => (bin * 37) % 101 + (hasZero(bin) ? 100 : 0));
      const { into, below, above } = spreadOver(axis, source, low, high, zeros);
      near(sum([...into]) + below + above, sum(source), 1e-12);
      near([...into], overlap(source, low, high, zeros, [...axis.edges]), 1e-9, 1e-9);
      const outside = [[-1e9, -4], [8, 1e9]].map((edges) => overlap(source, low, high, 0, edges)[0]);
      near([below, above], outside, 1e-9, 1e-9);
    }
  }
});

test("equal values are one bin", () => {
  for (const kind of KINDS) {
    const axis = new ValueAxis(kind, -4, 4, 0.01);
    for (const [value, where] of [[0, null], [0.3, null], [-4, 0], [4, 95], [4.5, "above"], [-9, "below"]]) {
      const source = [500, ...new Array(63).fill(0)];
      const { into, below, above } = spreadOver(axis, source, value, value, value === 0 ? 500 : 0);
      const isOutside = typeof where === "string";
      assert.deepEqual([sum([...into]), { below, above }[where] ?? 500], [isOutside ? 0 : 500, 500]);
      if (isOutside) continue;
      const index = into.indexOf(500);
      assert.ok(index >= 0 && axis.edges[index] <= value && value <= axis.edges[index + 1]);
      if (where !== null) assert.equal(index, where);
    }
  }
});

test("the axis is monotonic and inverts itself", () => {
  for (const kind of KINDS) {
    for (const [low, high, threshold] of [[-4, 4, 1e-3], [-3.4e38, 3.4e38, 1e-45], [-1.7e308, 1.7e308, 1e-320],
      [0.2, 0.7, 0.1], [-1e-44, 1e-44, 1e-45]])
    {
      const axis = new ValueAxis(kind, low, high, threshold);
      const edges = [...axis.edges];
      assert.deepEqual([edges[0], edges.at(-1)], [low, high]);
      assert.ok(isRising(edges) && new Set(edges).size === edges.length);
      const places = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1];
      near(places.map((place) => axis.place(axis.value(place))), places, 0, 1e-9);
      assert.deepEqual([low, high, edges[40]].map((value) => axis.binOf(value)), [0, BINS - 1, 40]);
      if (!Number.isFinite(2 * high - low)) continue;
      assert.deepEqual([2 * low - high, 2 * high - low].map((value) => axis.binOf(value)), [-1, BINS]);
    }
  }
});

test("ticks are decades on both sides, or round numbers", () => {
  const ticks = (kind, low, high, threshold, from = 0, to = 1) =>
    new ValueAxis(kind, low, high, threshold).ticks(from, to, 400, 26).map(({ text }) => text);
  const has = (found, ...texts) => assert.ok(texts.every((text) => found.includes(text)), found.join());
  assert.deepEqual(new Set(ticks("linear", -4, 4, 1)), new Set("−4 −3 −2 −1 0 1 2 3 4".split(" ")));
  has(ticks("linear", -3e38, 3e38, 1), "−2e38", "0", "2e38");
  has(ticks("linear", 0, 0.05, 1), "0", "0.01", "0.05");
  has(ticks("linear", -4, 4, 1, 0.5, 0.75), "0", "0.2", "1", "2");
  const log = ticks("log", -4, 4, 1e-3);
  has(log, "0", "1", "−1", "0.1", "−0.1", "0.01", "−0.01");
  const signed = (isNegative) => log.filter((text) => text !== "0" && text.startsWith("−") === isNegative);
  assert.deepEqual(new Set(signed(true)), new Set(signed(false).map((text) => `−${text}`)));
  has(ticks("log", -3e38, 3e38, 1), "10³⁰", "−10³⁰", "0");
  // A range without a decade has round numbers.
  assert.ok(ticks("log", 0.31, 0.69, 0.1).length >= 3);
});

test("columns run in depth, and begin with the input where there is one", async () => {
  const picture = pictureOf(await dumpOf(""));
  for (const [of, columns] of Object.entries({
    activation: [[0, "x"], [1, "l2"], [2, "out"]],
    preactivation: [[1, "l1"], [2, "out"]],
    gradient: [[0, "x.g"], [1, "l2.g"], [2, "out.g"]],
    weight: [[1, "w1"], [2, "w2"]],
    weight_gradient: [[1, "w1.g"], [2, "w2.g"]],
  })) assert.deepEqual(layerColumns(picture, of).map(({ index, name }) => [index, name]), columns);
});

test("a fixed range is four healthy stds", async () => {
  for (const style of ["layer_function", "module"]) {
    const fixed = async (query, of) => {
      const picture = pictureOf(await dumpOf(`style=${style}&${query}`));
      return fixedRange(picture, layerColumns(picture, of), of);
    };
    for (const scale of [1, 30]) {
      assert.equal((await fixed(`scale=${scale}`, "activation")).high, 4);
      // The narrower of the two layers, 50 → 1, has the larger weights, √(2/50) = 0.2.
      const { low, high, rule } = await fixed(`scale=${scale}`, "weight");
      near([low, high], [-0.8, 0.8]);
      assert.ok(rule.includes("√(2/50)"));
    }
    const dump = await dumpOf(`style=${style}&widths=100x6`);
    const last = dump.layers.at(-1);
    for (const of of ["gradient", "weight_gradient"]) {
      const { name } = dump.tensors.find(({ id }) => id === last[of]);
      near((await fixed("widths=100x6", of)).high, 4 * columnsOf(dump)(name, "std"));
    }
    assert.equal(await fixed("preset=deep-exploding", "gradient"), null);
  }
});

test("cells of a table are quoted where they must be", () => {
  const table = [["a", 'say "x"', "b,c", "d\ne"], [0.1, 1e-45, 3.4028234663852886e38, -0.5]];
  assert.equal(csv(table), 'a,"say ""x""","b,c","d\ne"\r\n0.1,1e-45,3.4028234663852886e+38,-0.5\r\n');
  // A spreadsheet would run these.
  assert.equal(csv([["=1+1", "+a", "-a", "@a", "a=b", -1]]), "'=1+1,'+a,'-a,'@a,a=b,-1\r\n");
});

test("more is always darker, or always lighter", () => {
  schemeColours().forEach((colours, at) => {
    const { paper, ink } = colours;
    for (const hue of ["forward", "backward", "parameter"]) {
      const bytes = new Uint8Array(rampPixels(rampStops(paper, colours[hue], ink)).buffer);
      assert.deepEqual([bytes[3], bytes[7]], [0, 255]);
      const hex = (byte) => byte.toString(16).padStart(2, "0");
      const shades = Array.from({ length: 255 }, (_, shade) =>
        `#${[...bytes.subarray(4 * shade + 4, 4 * shade + 7)].map(hex).join("")}`);
      // Bytes are rounded: neighbours may be the same shade.
      const lightness = shades.map(luminance).filter((_, shade) => shade % 8 === 0);
      assert.ok(isRising(at === 0 ? lightness.reverse() : lightness));
      // One value differs from none, and the most from a few.
      assert.ok(contrast(paper, shades.at(-1)) > 5 && !shades.includes(paper));
    }
  });
});
