/** Colours of boxes: text legible on every shade, colours in the order of the figures, one held range. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { buildGraph, find } from "../../static/core/graph/graph.js";
import { GraphFacts } from "../../static/core/view/facts.js";
import { NON_FINITE, paintwork, rangeOf, shadesOf, whyNot } from "../../static/core/lab/overlay.js";
import { columnsOf, contrast, dumpOf, hiding, isRising, made, pictureOf, profileOf, schemeColours } from "./tools.mjs";

function painter(dump, theory = null) {
  const original = pictureOf(dump);
  const graph = buildGraph(original.topology);
  return (kind, asked, { range = null, scheme = "light", hidden = null, edges = "" } = {}) => {
    const picture = hidden === null ? original : hiding(original, hidden);
    const paint = paintwork({ kind, edges, graph, picture, theory, range, scheme });
    const items = asked.map((id) => find(graph, id));
    return { legend: paint.legend, range: rangeOf(paint), why: whyNot(kind, graph),
      fills: items.map((item) => paint.fill(item.kind, item.index, item.half)),
      widths: items.map(({ kind: of, index }) => of === "tensor" ? paint.width(index) : null) };
  };
}

test("text is legible on every shade and lightness runs one way", () => {
  schemeColours().forEach(({ ink, paper }, at) => {
    const scheme = ["light", "dark"][at];
    const shades = shadesOf(scheme);
    // WCAG 2.2, 1.4.3: normal text.
    assert.ok(Math.min(...[...shades, NON_FINITE[scheme]].map((shade) => contrast(shade, ink))) >= 4.5);
    // Away from the paper, so that greater figures stand out, and told apart without hues.
    const distance = shades.map((shade) => contrast(shade, paper));
    assert.ok(isRising(distance) && distance.at(-1) / distance[0] > 1.8);
  });
});

test("colours follow the figures", async () => {
  const dump = await dumpOf("");
  const paint = painter(dump);
  const shades = shadesOf("light");
  const names = ["x", "w1", "l1", "l2", "out", "l1.g", "w1.g", "x.g"];
  const of = columnsOf(dump);
  const rising = [...names].sort((a, b) => of(a, "std") - of(b, "std"));
  const { fills, legend, range: [low, high] } = paint("std", rising);
  assert.ok(isRising(fills.map((fill) => shades.indexOf(fill))) && fills.every((fill) => shades.includes(fill)));
  assert.ok(legend.isLog && low <= of(rising[0], "std") && high >= of(rising.at(-1), "std"));

  // A closed box has what it puts out: Relu l2, its backward half l1.g; the op within the same.
  const boxes = paint("std", ["l2", "layers.1/forward", "n2", "l1.g", "layers.1/backward"]).fills;
  assert.deepEqual([new Set(boxes.slice(0, 3)).size, new Set(boxes.slice(3)).size], [1, 1]);
  // A group has the largest of its norms and the sum of its times.
  const norms = paint("gradient_norm", ["w1.g", "layers.0/backward", "w1", "x.g"]).fills;
  assert.deepEqual([new Set(norms.slice(0, 3)).size, new Set(norms).size], [1, 2]);

  // With a held range, a figure beyond it has the last colour; a box without a figure has none.
  const held = paint("std", names, { range: [1e-6, 1e-3] });
  assert.deepEqual([new Set(held.fills), held.range], [new Set([shades.at(-1)]), [1e-6, 1e-3]]);
  assert.equal(paint("std", ["l2"], { hidden: "l2" }).fills[0], null);
  assert.notDeepEqual(paint("std", rising, { scheme: "dark" }).fills, fills);
  const [x, w1, l1, l2] = paint("", names, { edges: "size" }).widths;
  assert.ok(x > l1 && l1 > w1 && w1 > 0 && l1 === l2);
});

test("what is not finite has a colour beside the ramp, and absent times a reason", async () => {
  const dump = await dumpOf("preset=deep-exploding");
  const paint = painter(dump);
  const { fills, legend } = paint("std", ["l1", "out", "l1.g"]);
  const [[bad, word]] = legend.words;
  assert.deepEqual([word, fills.slice(1), shadesOf("light").includes(fills[0])], ["NaN or Inf", [bad, bad], true]);
  const health = paint("health", ["l1", "out", "loss/forward"]);
  const [colour] = health.legend.words.find(([, title]) => title === "non-finite");
  assert.deepEqual([health.fills, health.range], [[null, colour, colour], null]);
  // A mask of -Inf that a softmax absorbs is no fault.
  for (const [at, fills] of [[null], [null, colour]].entries()) {
    const ids = made.masked[at].tensors.map(({ id }) => id);
    const masked = painter(made.masked[at]);
    assert.ok(masked("std", ids).fills.includes(NON_FINITE.light));
    assert.deepEqual(new Set(masked("health", ids).fills), new Set(fills));
    const picture = pictureOf(made.masked[at]);
    const graph = buildGraph(picture.topology);
    const facts = new GraphFacts(graph);
    facts.judge(picture, null);
    const ailment = facts.ailment(picture, find(graph, "model/forward").index, "forward");
    assert.deepEqual([facts.isHealthy, ailment?.word], at === 0 ? [true, undefined] : [false, "NaN"]);
  }
  const timeless = painter({ ...dump, timing: {} })("time", ["l1", "out", "l1.g"]);
  assert.match(timeless.why, /has no times/);
  assert.deepEqual([timeless.fills, timeless.legend], [[null, null, null], null]);
});

test("a tensor has the verdict on its layer, a box the first cause in it", async () => {
  const [dump, theory] = await Promise.all([dumpOf("scale=7"), profileOf("scale=7")]);
  const paint = painter(dump, theory);
  const { legend, fills } = paint("health", ["l1", "l2", "l2.g", "w1", "out", "layers.1/forward"]);
  const of = (word) => legend.words.find(([, title]) => title === word)[0];
  assert.deepEqual(theory.layers.map(({ health }) => health), ["exploding", null]);
  const exploding = of("exploding");
  assert.deepEqual(fills, [exploding, exploding, exploding, null, null, exploding]);
  const layers = theory.layers.map((layer, at) => ({ ...layer, health: ["vanishing", "dead"][at] }));
  const [whole] = painter(dump, { ...theory, layers })("health", ["model/forward"]).fills;
  assert.equal(whole, of("dead"));
});
