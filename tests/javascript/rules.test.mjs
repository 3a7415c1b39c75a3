/** Gradient rules: each agrees with finite differences, and stands only where it is true of the call. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { compositeRule } from "../../static/core/inspector/op-facts.js";
import { checkRule, ruleOf, RULES, writtenOut } from "../../static/core/rules/gradient-rules.js";

const RULED = ("add sub mul div neg matmul mm bmm addmm linear t transpose view reshape squeeze unsqueeze expand sum mean "
  + "pow sqrt rsqrt exp log tanh sigmoid relu clamp_min leaky_relu elu selu gelu silu softmax log_softmax cross_entropy "
  + "nll_loss mse_loss layer_norm batch_norm conv2d max_pool2d dropout embedding scaled_dot_product_attention cat split "
  + "stack gather index getitem max min abs where").split(" ");

test("every rule agrees with finite differences", () => {
  assert.deepEqual(RULED.filter((name) => ruleOf(name) === null), []);
  for (const rule of RULES) {
    const { title, operands, gradients, derivation, source, forward, kernel } = rule;
    for (const seed of [1, 2, 3]) {
      const { error, elements } = checkRule(rule, seed);
      assert.ok(elements > 0 && error < 1e-7, `${title}: ${error}`);
    }
    assert.deepEqual([gradients.length, kernel.shapes.length], [operands.length, operands.length], title);
    assert.ok(derivation.length >= 2 && derivation.length <= 5 && source !== "", title);
    for (const text of [forward, ...gradients, ...derivation])
      assert.doesNotMatch(writtenOut(rule, text ?? "", {}), /[{}]/, title);
  }
});

test("no rule stands where none is true", () => {
  const [x, c] = [[3, 4], [4]];
  for (const [name, attributes, operands, title] of [
    ["cross_entropy", { reduction: "mean", label_smoothing: 0.1 }, [x, [3]], null],
    ["cross_entropy", { ignore_index: 0 }, [x, [3]], null],
    ["cross_entropy", {}, [x, x], null],
    ["cross_entropy", {}, [x, [3], c], null],
    ["cross_entropy", { reduction: "sum", ignore_index: -100 }, [x, [3]], "Cross entropy with the true class"],
    ["nll_loss", { reduction: "none" }, [x, [3]], null],
    ["mse_loss", { reduction: "none" }, [x, x], null],
    ["mse_loss", {}, [[3, 1], [3]], null],
    ["div", { other: 3, rounding_mode: "floor" }, [x], null],
    ["div", { other: 3, rounding_mode: null }, [x], "Quotient"],
    ["sub", { input: 1 }, [x], null],
    ["batch_norm", { training: false }, [x, c, c, c, c], "Batch normalization, in evaluation"],
    ["batch_norm", { training: true }, [x, c, c, c, c], "Batch normalization, in training"],
    ["batch_norm", { training: true, weight: null, bias: null }, [x, c, c], null],
    ["dropout", { p: 0.1, training: false }, [x], "Dropout, in evaluation"],
    ["gelu", { approximate: "tanh" }, [x], "Gaussian error linear unit, by tanh"],
    ["max", {}, [x, x], "The larger of two"],
    ["max", { dim: 0 }, [x], "Largest or smallest element"],
    ["pow", {}, [x, x], "Power with a tensor as exponent"],
    ["where", { 2: 0 }, [x, x], null],
    ["scaled_dot_product_attention", { dropout_p: 0.1 }, [x, x, x], null],
    ["addmm", { beta: 2 }, [[4], [3, 2], [2, 4]], null],
    ["permute", { 1: 0, 2: 2, 3: 3, 4: 1 }, [[1, 2, 3, 4]], "Axes in another order"],
    ["transpose", { dim0: 1, dim1: 2 }, [[2, 3, 4, 5]], "Axes in another order"],
    ["transpose", { dim0: -1, dim1: 2 }, [[2, 3, 4, 5]], "Transposition"],
  ]) {
    const found = ruleOf(name, { attributes, operands, output: operands[0] })?.title ?? null;
    assert.equal(found, title, `${name} ${JSON.stringify(attributes)}`);
  }
});

test("several ops are one function only where they compute it", () => {
  const title = (ops, shapes) => {
    const recorded = ops.map(([name, inputs, output, attributes = {}]) =>
      ({ name, inputs, outputs: [output], attributes }));
    return compositeRule(recorded, false, (id) => shapes[id] ?? [])?.rule.title ?? null;
  };
  const [product, sum] = [["matmul", ["x", "w"], "p"], ["add", ["p", "b"], "y"]];
  const shapes = { x: [3, 4], w: [4, 2], b: [2], p: [3, 2], y: [3, 2] };
  assert.equal(title([product, sum], shapes), "Linear layer, weight (in, out)");
  // A residual is no bias: its gradient is no sum over rows.
  assert.equal(title([product, sum], { ...shapes, b: [3, 2] }), null);
  assert.equal(title([product, ["add", ["p"], "y", { other: 1 }]], shapes), null);
  const error = (exponent, y) => title(
    [["sub", ["x", "t"], "d"], ["pow", ["d"], "s", { exponent }], ["mean", ["s"], "y"]],
    { x: [3, 4], t: [3, 4], y },
  );
  assert.deepEqual([error(2, []), error(3, []), error(2, [3])], ["Mean squared error", null, null]);
  const squeezed = (out, used, target) => title(
    [["view", ["out"], "x"], ["sub", ["x", "t"], "d"], ["pow", ["d"], "s", { exponent: 2 }], ["mean", ["s"], "y"]],
    { out, x: used, t: target, y: [] },
  );
  assert.equal(squeezed([3, 4], [3, 4], [3, 4]), "Mean squared error");
  assert.equal(squeezed([3, 1], [3], [3]), "Mean squared error of one output");
  // Other shapes have no name of their own, and a difference that is broadcast is of every pair.
  assert.deepEqual([squeezed([3, 4], [12], [12]), squeezed([3, 1], [3, 1], [3])], [null, null]);
});
