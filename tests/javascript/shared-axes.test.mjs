/** The axes that histograms share: which tensors share one, how far it reaches, and when it stays. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { barsOf } from "../../static/core/histogram.js";
import { AxisKeeper, sharedAxes } from "../../static/core/shared-axes.js";

const ROLES = ["input", "activation", "activation", "parameter", "gradient", "target", "intermediate"];
const BINS = 64;

/** One tensor per role with these standard deviations; its 64 bins hold 100 values each over ±3 std. */
function pictureOf(stds, spec = { scale: 1, seed: 1, widths: "2" }, key = "k") {
  const tensors = ROLES.map((role, at) => ({ id: `t${at}`, role, gradient_of: role === "gradient" ? "t1" : null }));
  const column = (of) => Float64Array.from(stds, of);
  return {
    key, spec, bins: BINS, hidden: null, axes: null, before: null,
    topology: { tensors, statistics: { tensor: tensors.map(({ id }) => id) } },
    floats: { std: column((std) => std), min: column((std) => -3 * std), max: column((std) => 3 * std), zero_fraction: column(() => 0) },
    integers: { n: Uint32Array.from(stds, () => 100 * BINS) },
    counts: new Uint32Array(BINS * stds.length).fill(100),
  };
}

test("all signals share an axis that reaches five standard deviations of the widest; gradients and weights have others", () => {
  const axes = sharedAxes(pictureOf([1, 2, 0.5, 0.1, 1e-3, 7, 1000]));
  assert.equal(axes[0], axes[1]);
  assert.equal(axes[1], axes[6]);
  assert.deepEqual([axes[1].kind, axes[1].low, axes[1].high], ["linear", -10, 10]);
  assert.deepEqual([axes[3].high, axes[4].high], [0.5, 5e-3]);
  assert.equal(axes[5], null);
});

test("an axis is logarithmic where signals differ by more than a hundredfold", () => {
  const [axis] = sharedAxes(pictureOf([1, 1e-20, 1e-10, 0.1, 1, 1, 1]));
  assert.equal(axis.kind, "log");
  assert.ok(axis.place(1e-10) > 0.7 && axis.place(1e-10) < 0.8);
});

test("tensors without a finite spread leave the axis alone", () => {
  const [axis] = sharedAxes(pictureOf([1, NaN, Infinity, 0, NaN, 1, 1]));
  assert.equal(axis.high, 5);
  assert.equal(sharedAxes(pictureOf([1, 1, 1, 0, 1, 1, 1]))[3], null);
});

test("the axes stay while scale and seed change, and only then", () => {
  const keeper = new AxisKeeper();
  const first = keeper.of(pictureOf([1, 1, 1, 1, 1, 1, 1]));
  assert.equal(keeper.of(pictureOf([9, 9, 9, 9, 9, 9, 9], { scale: 9, seed: 2, widths: "2" })), first);
  assert.notEqual(keeper.of(pictureOf([9, 9, 9, 9, 9, 9, 9], { scale: 9, seed: 2, widths: "3" })), first);
  const other = keeper.of(pictureOf([1, 1, 1, 1, 1, 1, 1], undefined, "another graph"));
  assert.equal(keeper.of(pictureOf([5, 5, 5, 5, 5, 5, 5], undefined, "another graph")), other);
  keeper.forget();
  assert.notEqual(keeper.of(pictureOf([5, 5, 5, 5, 5, 5, 5], undefined, "another graph")), other);
});

test("bars hold all values; those beyond the axis stand at its ends", () => {
  const axes = sharedAxes(pictureOf([1, 1, 1, 1, 1, 1, 1]));
  for (const [std, isBeyond] of [[1, false], [10, true]]) {
    const bars = barsOf({ ...pictureOf([1, std, 1, 1, 1, 1, 1]), axes }, 1, 32);
    const inside = bars.sums.reduce((sum, found) => sum + found, 0);
    assert.ok(Math.abs(inside + bars.below + bars.above - 100 * BINS) < 1e-6);
    assert.equal(bars.sums.length, 32);
    assert.ok(Math.abs(bars.below - bars.above) < 1e-6);
    // Of a uniform histogram over ±30, five sixths lie beyond ±5.
    assert.ok(Math.abs(bars.below - (isBeyond ? (100 * BINS * 5) / 12 : 0)) < 1e-6);
    assert.equal(bars.zero, 0.5);
  }
});

test("a tensor with an axis of its own fills it", () => {
  const bars = barsOf(pictureOf([1, 1e-20, 1, 1, 1, 1, 1]), 1, 16);
  assert.deepEqual([...bars.sums], Array(16).fill(400));
  assert.deepEqual([bars.below, bars.above, bars.isNeedle], [0, 0, false]);
});

test("where no value is negative, the bars may leave out the half of the axis below zero", () => {
  const axes = sharedAxes(pictureOf([1, 1, 1, 1, 1, 1, 1]));
  const picture = { ...pictureOf([1, 1, 1, 1, 1, 1, 1]), axes };
  picture.floats.min[1] = 0;
  const [whole, upper] = [barsOf(picture, 1, 96), barsOf(picture, 1, 48, true)];
  assert.deepEqual([...upper.sums], [...whole.sums.slice(48)]);
});
