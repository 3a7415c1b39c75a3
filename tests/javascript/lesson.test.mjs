/** Conditions that end the steps of a lesson, and the place of a step in the address. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { holds, stepOf, unknownName } from "../../static/core/lab/lesson.js";

const picture = {
  spec: { activation: "tanh" },
  rows: new Map([["t1", 0], ["t2", 1]]),
  topology: {
    tensors: [{ id: "t1", name: "l1" }, { id: "t2", name: "l2.g" }],
    layers: [{ activation: "t1", gradient: "t2" }],
  },
  floats: { std: Float64Array.of(2, 1e-9), mean: Float64Array.of(NaN, 0) },
  integers: { nan: Uint32Array.of(3, 0), posinf: Uint32Array.of(0, 1), neginf: Uint32Array.of(0, 1) },
};
const view = { show: "steps", step: 4 };

test("a condition holds or does not", () => {
  for (const [condition, expected] of [
    ["std of activation 1 between 0.1 and 10", true],
    ["std of l1 < 2", false],
    ["std of l1 > 1.9", true],
    ["std of l2.g < 1e-8", true],
    ["std of gradient 1 < 1e-8", true],
    ["std of gradient 2 < 1", false],
    ["std of nothing < 1", false],
    ["mean of l1 < 1", false],
    ["nan of l1 > 0", true],
    ["inf of l2.g > 1", true],
    ["inf of l1 > 0", false],
    ["spec activation is tanh", true],
    ["spec activation is relu", false],
    ["view show is steps", true],
    ["view step is 4", true],
  ]) assert.equal(holds(condition, picture, view), expected, condition);
});

test("a name that the page does not know is told", () => {
  for (const [view, until, expected] of [
    ["?widths=2,1#show=layers&level=layer&at=0.5", "std of l1 > 1", ""],
    ["#", "spec activation is tanh", ""],
    ["", "std of l99 > 1", "This net has no tensor l99."],
    ["", "std of gradient 2 < 1", ""],
    ["#show=layers", "view sho is steps", "The lesson names an unknown part of the view: sho=steps"],
    ["#show=layer", "", "The lesson names an unknown part of the view: show=layer"],
    ["?seed=1#color=std", "", "The lesson names an unknown part of the view: color=std"],
  ]) assert.equal(unknownName({ view, until }, picture), expected);
});

test("a step is found by the lesson's name and its number", () => {
  const lessons = [{ name: "signal", title: "", steps: [{ title: "one" }, { title: "two" }] }];
  assert.equal(stepOf(lessons, "signal.2").step.title, "two");
  for (const text of ["", "signal", "signal.0", "signal.3", "other.1", "signal.1x"]) assert.equal(stepOf(lessons, text), null);
});
