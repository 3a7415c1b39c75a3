/** The profile of the layers: its figures against the dump, and the causes of ±Inf and NaN. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { firstNonFinite } from "../../static/core/lab/non-finite.js";
import { ProfileAxis } from "../../static/core/lab/profile-axes.js";
import { expectedOf, figuresOf, magnitudes, pointsOf } from "../../static/core/lab/profile-series.js";
import { count, significant } from "../../static/core/format.js";
import { columnsOf, dumpOf, hiding, near, pictureOf, profileOf } from "./tools.mjs";

const EXPLODING = "preset=deep-exploding";
const FLOAT32 = "float32's largest number, 3.40e38";
const FLOAT16 = "float16's largest number, 65,504";
const causesIn = (dump) => firstNonFinite(pictureOf(dump));
const placeIn = ({ ops, tensors }, name) =>
  ops.findIndex(({ outputs }) => outputs.some((id) => id === tensors.find((tensor) => tensor.name === name).id));
const nameIn = ({ tensors }, id) => tensors.find((tensor) => tensor.id === id).name;
const largest = (of, name) => significant(Math.max(Math.abs(of(name, "min")), Math.abs(of(name, "max"))));

test("the first Inf is a sum past the largest number", async () => {
  for (const [query, limit, [left, right, expression, terms]] of [
    [EXPLODING, FLOAT32, ["l37", "w38", "l37 @ w38", 100]],
    [`${EXPLODING}&dtype=bfloat16`, "bfloat16's largest number, 3.39e38", ["l37", "w38", "l37 @ w38", 100]],
    ["widths=100x51&dtype=float16&scale=3", FLOAT16, ["l16", "w9", "l16 @ w9", 100]],
    ["widths=100x51&init=standard_normal", FLOAT32, ["l88", "w45", "l88 @ w45", 100]],
    ["widths=100x51&init=standard_normal&style=module", FLOAT32, ["l88", "w45", "l88 @ w45ᵀ", 100]],
    ["scale=1e4&dtype=float16", FLOAT16, ["l2", "w2", "l2 @ w2", 50]],
  ]) {
    const dump = await dumpOf(query);
    const of = columnsOf(dump);
    const { inf } = causesIn(dump);
    const first = (await profileOf(query)).first_inf_layer;
    const { preactivation } = dump.layers[first - 1];
    assert.deepEqual([inf.layer, inf.tensor], [first, preactivation]);
    const name = nameIn(dump, preactivation);
    const [positive, negative, n] = ["posinf", "neginf", "n"].map((column) => of(name, column));
    const word = negative === 0 ? "+Inf" : positive === 0 ? "−Inf" : "±Inf";
    const all = positive + negative;
    const share = all === n ? `all ${count(n)} values` : `${count(all)} of ${count(n)} values`;
    const factors = [left, right].map((factor) => `|${factor}| ≤ ${largest(of, factor)}`).join(", ");
    assert.equal(inf.text,
      `layer ${first}, ${name}: ${expression} sums ${terms} products (${factors}) and exceeds ${limit}: ${share} are ${word}.`);
  }
});

test("the first NaN is Inf minus Inf", async () => {
  for (const query of [EXPLODING, "widths=100x51&dtype=float16&scale=3", "widths=100x51&scale=30"]) {
    const dump = await dumpOf(query);
    const of = columnsOf(dump);
    const { nan } = causesIn(dump);
    const first = (await profileOf(query)).first_nan_layer;
    const [before, layer] = dump.layers.slice(first - 2, first);
    const [out, input, weight] = [layer.preactivation, before.activation, layer.weight].map((id) => nameIn(dump, id));
    const negative = of(input, "neginf");
    const held = `${input}'s ${count(of(input, "posinf") + negative)} ${negative === 0 ? "+Inf" : "±Inf"}`;
    assert.equal(nan.layer, first);
    assert.equal(nan.text, `layer ${first}, ${out}: ${input} @ ${weight} sums ${held} times numbers of both signs; `
      + `Inf − Inf is NaN: ${count(of(out, "nan"))} of ${count(of(out, "n"))} values.`);
  }
});

test("a finite pass has no cause, and a figure that waits for a guess tells none", async () => {
  for (const query of ["", "scale=1e4", "preset=deep-vanishing"])
    assert.deepEqual(causesIn(await dumpOf(query)), { inf: null, nan: null });
  assert.deepEqual(firstNonFinite(hiding(pictureOf(await dumpOf(EXPLODING)), "x")), { inf: null, nan: null });
});

test("a loss overflows, and a gradient after it", async () => {
  for (const style of ["layer_function", "autograd_function", "module"]) {
    const dump = await dumpOf(`${EXPLODING}&widths=100x24&style=${style}`);
    const of = columnsOf(dump);
    const { inf, nan } = causesIn(dump);
    assert.deepEqual([inf.layer, nameIn(dump, inf.tensor), inf.isBackward], [null, "loss", false]);
    assert.ok(inf.text.includes(`(out − y)² exceeds ${FLOAT32}, if |out − y| > 1.84e19; here it`));
    assert.ok(inf.text.includes(`reaches ${largest(of, "loss.sub")}`));
    // Where finite products first cancel as Inf − Inf depends on the order in which the processor adds them.
    const first = dump.layers.flatMap(({ weight, activation }) => [weight, activation])
      .map((id) => `${nameIn(dump, id)}.g`).filter((name) => of(name, "nan") > 0)
      .sort((one, other) => placeIn(dump, one) - placeIn(dump, other))[0];
    assert.deepEqual([nameIn(dump, nan.tensor), nan.layer, nan.isBackward], [first, Number(first.slice(1, -2)), true]);
    assert.ok(nan.text.endsWith(`NaN: ${count(of(first, "nan"))} of ${count(of(first, "n"))} values.`));
  }
});

test("other causes of NaN", async () => {
  const nanOf = async (query) => causesIn(await dumpOf(query)).nan.text;
  assert.equal(await nanOf("scale=1e4&dtype=float16"), "layer 2, w2.g: l2ᵀ @ out.g sums out.g's 200 ±Inf times numbers, "
    + "some of them 0; Inf − Inf and 0 · Inf are NaN: all 50 values.");
  const gated = await dumpOf("widths=100x51&activation=silu&init=standard_normal&style=module");
  const held = columnsOf(gated)("l89", "neginf");
  assert.ok(held > 0);
  assert.equal(causesIn(gated).nan.text, `layer 45, l90: l89's ${held} −Inf: silu of −Inf is −Inf · 0, which is NaN: `
    + `${held} of 20,000 values.`);
  assert.match(await nanOf("widths=100,50,10&loss=cross_entropy&scale=1e4&dtype=float16"),
    /^loss: log_softmax\(out, dim=−1\) subtracts the largest value of a row from out's .* Inf − Inf is NaN: all 2,000 values\.$/);
});

/** A dump of float32; ops: [name, phase, inputs, output, attributes], tensors: name → [role, of, figures]. */
function dumpWith(ops, tensors) {
  const floats = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"];
  const rows = Object.values(tensors).map(([, , figures]) => figures);
  const column = (name, otherwise) => [name, rows.map((row) => row[name] ?? otherwise)];
  const counts = ["nan", "posinf", "neginf"].map((name) => column(name, 0));
  const columns = Object.fromEntries([...floats.map((name) => column(name, null)), ...counts, column("n", 20)]);
  return {
    ops: ops.map(([name, phase, inputs, output, attributes = {}], at) =>
      ({ id: `n${at}`, name, phase, inputs, outputs: [output], attributes, twin: null })),
    tensors: Object.entries(tensors).map(([name, [role, of]]) => {
      const maker = ops.findIndex(([, , , output]) => output === name);
      return { id: name, name, role, gradient_of: of, dtype: "float32", shape: [4, 5],
        producer: maker < 0 ? null : `n${maker}` };
    }),
    statistics: { tensor: Object.keys(tensors), ...columns,
      histogram: { bins: 1, low: [], high: [], counts: rows.map(() => [0]) } },
    layers: [], loss: 1, timing: {}, error: null, spec: {},
  };
}

test("other arithmetic", () => {
  const [unit, share] = [{ min: -1, max: 1 }, { min: 0, max: 1 }];
  for (const [kind, text, ops, tensors] of [
    ["nan", "h.g: (h > 0) · a.g multiplies a.g's 3 +Inf by the zeros of (h > 0); 0 · Inf is NaN: "
      + "2 of 20 values.",
    [["clamp_min", "forward", ["h"], "a", { min: 0 }], ["gt", "backward", ["h"], "mask", { other: 0 }],
      ["to", "backward", ["mask"], "factor"], ["mul", "backward", ["factor", "a.g"], "h.g"]],
    { h: ["preactivation", null, unit], a: ["activation", null, share], mask: ["intermediate", null, share],
      "a.g": ["gradient", "a", { ...unit, posinf: 3 }], factor: ["intermediate", null, { ...share, zero_fraction: 0.5 }],
      "h.g": ["gradient", "h", { ...unit, nan: 2, posinf: 1 }] }],
    ["inf", `a: exp(h) exceeds ${FLOAT32}, if |h| > 88.7; here it reaches 90.0: 1 of 20 values is +Inf.`,
      [["exp", "forward", ["h"], "a"]],
      { h: ["preactivation", null, { min: -1, max: 90 }], a: ["activation", null, { min: 0, max: 1e38, posinf: 1 }] }],
    ["inf", `b.g: sum(a.g, dim=0) sums 1 values (|a.g| ≤ 3.00e38) and exceeds ${FLOAT32}: 2 of 20 values are −Inf.`,
      [["sum", "backward", ["a.g"], "b.g", { dim: 0 }]],
      { b: ["parameter", null, { min: 0, max: 0 }], "a.g": ["gradient", "a", { min: -3e38, max: 3e38 }],
        "b.g": ["gradient", "b", { ...share, neginf: 2 }] }],
    ["nan", "w.g: xᵀ @ h.g sums 5 products (|x| ≤ 1.00, |h.g| ≤ 3.00e38); partial sums exceed ±3.40e38, and Inf − Inf is "
      + "NaN: 6 of 20 values.",
      [["matmul", "forward", ["x", "w"], "h"], ["t", "backward", ["x"], "xt"],
        ["matmul", "backward", ["xt", "h.g"], "w.g"]],
      { x: ["input", null, unit], w: ["parameter", null, unit], h: ["preactivation", null, unit],
        xt: ["intermediate", null, unit], "h.g": ["gradient", "h", { min: -3e38, max: 3e38 }],
        "w.g": ["gradient", "w", { ...unit, nan: 6, posinf: 7 }] }],
    ["inf", "w: w had these values before the pass; its numbers do not fit float32: 1 of 20 values is +Inf.",
      [["matmul", "forward", ["x", "w"], "h"]],
      { x: ["input", null, unit], w: ["parameter", null, { ...unit, posinf: 1 }],
        h: ["preactivation", null, { ...share, posinf: 4, neginf: 4 }] }],
    ["nan", "c: a + b combines a's 1 +Inf and b's 1 −Inf; Inf − Inf is NaN: 1 of 20 values.",
      [["add", "forward", ["a", "b"], "c"]],
      { a: ["activation", null, { ...share, posinf: 1 }], b: ["activation", null, { ...share, neginf: 1 }],
        c: ["activation", null, { ...share, nan: 1 }] }],
  ]) assert.equal(causesIn(dumpWith(ops, tensors))[kind].text, text);
});

test("a picture and its profile say the same", async () => {
  for (const query of ["", EXPLODING, "widths=100x11&activation=tanh&init=lecun_normal&scale=1.6667"]) {
    const [dump, profile] = [await dumpOf(query), await profileOf(query)];
    const picture = pictureOf(dump);
    const { layers } = profile;
    for (const statistic of ["std", "mean", "dead_fraction", "saturation", "ratio"]) {
      const isShare = statistic === "dead_fraction" || statistic === "saturation";
      const points = pointsOf(picture.topology, statistic);
      const seen = new Set();
      let both = 0;
      for (const side of ["forward", "backward"]) {
        const { measured, run } =
          figuresOf(points, statistic, side, { picture, theory: null, pinned: { query: "", profile } });
        points.forEach(({ layer, series }, at) => {
          seen.add(layer);
          const other = run[at] ?? null;
          if (other === null) {
            assert.ok(layer === 0 || series === "preactivation" || isShare);
            return;
          }
          both += measured[at] === null ? 0 : 1;
          assert.deepEqual({ ...measured[at] }, { ...other }, `${layer} ${series} ${side}`);
          const { gradient_to_weight_ratio: ratio, [statistic]: figure } = layers[layer - 1] ?? {};
          if (statistic === "ratio") assert.equal(other.value, ratio);
          else if (isShare && side === "forward") assert.equal(other.value, figure);
        });
      }
      seen.delete(0);
      assert.deepEqual([...seen].sort((a, b) => a - b), layers.map((_, at) => at + 1));
      if (statistic === "std" || statistic === "mean") assert.ok(both >= 2 * layers.length);
    }
  }
});

test("theory has a figure for some points", async () => {
  const { layers } = await profileOf("widths=100x11&activation=tanh&init=lecun_normal&scale=1.6667");
  const layer = layers[4];
  const of = (statistic, series, side) => expectedOf(layer, statistic, { series }, side);
  const { activation_std, preactivation_std, gradient_std, saturation, activation_mean } = layer.expected;
  assert.deepEqual(of("std", "activation", "forward"), activation_std);
  assert.deepEqual(of("std", "preactivation", "forward"), preactivation_std);
  assert.deepEqual(of("std", "activation", "backward"), gradient_std);
  assert.deepEqual(of("saturation", "activation", "forward"), saturation);
  for (const point of [["std", "preactivation", "backward"], ["mean", "preactivation", "forward"],
    ["dead_fraction", "activation", "forward"], ["ratio", "activation", "forward"]]) assert.equal(of(...point), null);
  // Zero by symmetry, but for the last digits of an integral: an axis of decades must not reach down to them.
  assert.ok(Math.abs(activation_mean.value) < 1e-15);
  assert.deepEqual(of("mean", "activation", "forward"), { value: 0, band: activation_mean.band });
  assert.deepEqual([[-0.01, 0.02], [-3, -1]].map((band) => magnitudes({ band })), [[0, 0.02], [1, 3]]);
});

test("the axis has a place for everything", () => {
  const VALUES = [0, 0.01, 0.1, 1, -1, 100, 1e30];
  const up = new ProfileAxis(100, 4, [-2, 0]);
  const { zero, inf, nan, low, high } = up;
  assert.ok(100 > zero && zero > low && low > high && high > inf && inf > nan && nan > 4);
  const places = VALUES.map((value) => up.y(value));
  near(places, [zero, low, (low + high) / 2, high, high, high, high]);
  assert.deepEqual(up.ticks.map(({ text }) => text).slice(-3), ["0", "Inf", "NaN"]);
  const share = new ProfileAxis(300, 4, null);
  assert.deepEqual(share.ticks.map(({ text }) => text), ["0 %", "25 %", "50 %", "75 %", "100 %", "Inf", "NaN"]);
  near([share.y(0), share.y(1)], [share.low, share.high]);
});
