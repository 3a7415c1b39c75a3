/** The controls of the init: ticks in units of the weights' std, snapping, labels, widths; and reading a guess. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { hide, parsePrediction, readGuess } from "../../static/core/lab/prediction.js";
import { fitLabels, nextTick, snap, snapTicks } from "../../static/core/lab/scale-slider.js";
import { nextWidth, parseWidths, widthsText, withDepth, withWidth } from "../../static/core/lab/widths.js";
import { dumpOf, holds, made, pictureOf } from "./tools.mjs";

test("ticks stand where the weights have that std", () => {
  const ticks = (unit, n) => snapTicks(unit, n, 1e-4, 1e4).map(({ label, scale }) => [label, scale]);
  assert.deepEqual(ticks(Math.sqrt(2 / 100), 100), [[".01", 0.07071], ["1/√n", 0.7071], ["√2/√n", 1], ["1", 7.071]]);
  // With many inputs 1/√n lies below .01.
  assert.deepEqual(ticks(1, 40_000), [["1/√n", 0.005], ["√2/√n", 0.007071], [".01", 0.01], ["1", 1]]);
  assert.deepEqual(ticks(0, 100), []);
  assert.deepEqual(ticks(5e-6, 100).map(([label]) => label), [".01"]);
});

test("the nearest tick catches and leaves room between two", () => {
  // The reach is 6; between two ticks 9 apart a third belongs to each.
  const caught = { 94: 0, 93.9: null, 100: 0, 102.9: 0, 104: null, 106.1: 1, 109: 1, 115: 1, 115.1: null };
  for (const [at, tick] of Object.entries(caught)) assert.equal(snap(Number(at), [100, 109], 6), tick, at);
});

test("the next tick is never the present one", () => {
  const next = (scale, direction) => nextTick(snapTicks(1, 100, 1e-4, 1e4), scale, direction);
  // √2/√n in short, and with all its digits.
  for (const scale of [0.1414, 0.14142135]) assert.deepEqual([next(scale, 1), next(scale, -1)], [1, 0.1]);
  assert.deepEqual([next(1, 1), next(1e-4, -1)], [null, null]);
});

test("labels never overlap and the first in rank stay", () => {
  const labels = [[0, 20, 4], [15, 10, 0], [24, 30, 1], [27, 30, 2], [95, 10, 3], [60, 10, 5]]
    .map(([left, width, rank]) => ({ left, width, rank }));
  assert.deepEqual(fitLabels(labels, 100, 2), [false, true, false, true, false, true]);
});

test("widths are read and written as the server does", () => {
  for (const [text, server] of Object.entries(made.widths)) {
    const widths = parseWidths(text);
    assert.deepEqual(widths === null ? null : [widths, widthsText(widths)], server, text);
  }
});

test("depth and width edit the widths", () => {
  for (const [step, widths, value, result] of [
    [withDepth, [100, 50, 1], 3, [100, 50, 50, 1]],
    [withDepth, [100, 50, 30, 1], 2, [100, 50, 1]],
    [withDepth, [100, 50, 1], 1, [100, 1]],
    [withDepth, [100, 1], 2, [100, 100, 1]],
    [withDepth, [100, 100, 100], 4, [100, 100, 100, 100, 100]],
    [withWidth, [100, 50, 30, 1], 20, [100, 20, 20, 1]],
    [withWidth, [100, 100, 100], 20, [20, 20, 20]],
    [withWidth, [100, 1], 20, [100, 1]],
  ]) assert.deepEqual(step(widths, value), result);
  // By tens, below ten by ones.
  const [up, down] = [{ 1: 2, 9: 10, 10: 20, 15: 20, 100: 110 }, { 100: 90, 95: 90, 20: 10, 11: 10, 10: 9, 2: 1 }];
  for (const [from, to] of Object.entries(up)) assert.equal(nextWidth(Number(from), 1), to);
  for (const [from, to] of Object.entries(down)) assert.equal(nextWidth(Number(from), -1), to);
});

test("guesses are read", () => {
  const read = { "0.8": 0.8, " 1e-3 ": 1e-3, "−2": -2, "50%": 0.5 };
  for (const [text, guess] of Object.entries(read)) assert.equal(readGuess(text), guess, text);
  for (const text of ["", "%", "NaN", "1e999", "2.5.1", "0x"]) assert.equal(readGuess(text), null, text);
});

test("copies of a tensor are hidden with it", async () => {
  const dump = await dumpOf("");
  const hidden = (figure) => {
    const { rows } = hide(pictureOf(dump), parsePrediction(figure, "")).hidden;
    return [...rows].map((row) => dump.tensors.find(({ id }) => id === dump.statistics.tensor[row]).name).sort();
  };
  // Its transpose in the backward pass; the product before zero biases; the prediction as the loss sees it.
  assert.deepEqual(hidden("l2.std"), ["l2", "layers.2.t_1"]);
  assert.deepEqual(hidden("l1.std"), ["l1", "layers.0.matmul"]);
  holds(hidden("out.std"), ["out", "loss.squeeze"]);
  // relu leaves the largest preactivation as it is.
  holds(hidden("l2.max"), ["l1", "l2"]);
  // Nothing follows from a share of nothing.
  assert.deepEqual(hidden("b1.std"), ["b1"]);
});
