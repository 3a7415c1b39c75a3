/** Gradient rules of sums, extremes, normalizations and losses, in words and in numbers. No DOM. */

import { byRow, filled, indexAt, mapped, sizeOf, sum, summedTo, zipped } from "./ndarray.js";
import { CHAPTER, isOff } from "./settings.js";

const EPS = 1e-5;

/** @param {ArrayLike<number>} row @returns {Float64Array} */
function softmax(row) {
  const values = Float64Array.from(row);
  const top = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - top));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

/** @param {NDArray} array @param {number} order @returns {Float64Array} a row along the last axis */
const rowOf = (array, order) =>
  array.values.subarray(order * (array.shape.at(-1) ?? 1), (order + 1) * (array.shape.at(-1) ?? 1));

/** @param {ArrayLike<number>} values @returns {{mean: number, scale: number}} scale: 1/√(variance + ε) */
function moments(values) {
  const mean = sum(values) / values.length;
  const variance = sum(Float64Array.from(values, (value) => (value - mean) ** 2)) / values.length;
  return { mean, scale: 1 / Math.sqrt(variance + EPS) };
}

/** The gradient of n numbers that were normalized, given that of the results. @param {Float64Array} values
 * @param {Float64Array} g @returns {Float64Array} */
function normalizedBack(values, g) {
  const { mean, scale } = moments(values);
  const hat = values.map((value) => (value - mean) * scale);
  const average = sum(g) / g.length;
  const along = sum(g.map((each, at) => each * hat[at])) / g.length;
  return g.map((each, at) => scale * (each - average - hat[at] * along));
}

/** @param {NDArray} x (batch, features) @returns {NDArray} the other way round */
const flipped = ({ shape: [rows = 1, columns = 1], values }) =>
  filled([columns, rows], (at) => values[(at % rows) * columns + Math.floor(at / rows)]);

/** @param {NDArray} x @returns {NDArray} each row normalized */
const normalized = (x) =>
  byRow(x, (row) => {
    const { mean, scale } = moments(row);
    return row.map((value) => (value - mean) * scale);
  });

/** @param {NDArray} x @param {NDArray} g @returns {NDArray} */
const normalizedGradient = (x, g) => byRow(x, (row, order) => normalizedBack(row, rowOf(g, order)));

/** @param {NDArray} x @param {NDArray} m @param {NDArray} v @returns {NDArray} by means and variances that are given */
const standardized = (x, m, v) =>
  zipped(zipped(x, m, (value, mean) => value - mean), v, (value, variance) => value / Math.sqrt(variance + EPS));

/** @param {OpAttributes} attributes @returns {boolean} whether a loss is one number */
const isReduced = ({ reduction = "mean" }) => reduction === "mean" || reduction === "sum";

/** Rows of scores with one class each: no weights, no smoothing, no class that is left out, no probabilities.
 * @param {OpCall} call */
function isOfClasses({ attributes, operands: [x = [], t = [], more] }) {
  return more === undefined && x.length === 2 && t.length === 1 && isReduced(attributes)
    && isOff(attributes["label_smoothing"]) && (attributes["ignore_index"] ?? -100) === -100;
}

/** @param {OpAttributes} attributes of a loss @returns {Record<string, string>} */
function reduced({ reduction }) {
  return reduction === "sum" ? { mean: "Σ", batch: "" } : { mean: "mean", batch: " / batch" };
}

const MOMENTS =
  "x̂ = ({x} − mean) / s with s = √(variance + ε); {y} = {w} · x̂ + {b}, so {db} = Σ {dy} and {dw} = Σ {dy} · x̂";
const THROUGH = "g = {w} · {dy} goes back to x̂; {x} enters x̂ three times: directly, through the mean, and through s";

/** @type {readonly RuleEntry[]} */
export const REDUCTION_RULES = [
  {
    names: ["sum"],
    title: "Sum",
    operands: ["x"],
    forward: "Σ {x}",
    gradients: ["{dy}, repeated to the shape of {x}"],
    derivation: ["{y} = Σᵢ {x}ᵢ: ∂{y}/∂{x}ᵢ = 1 for every i",
      "so each {x}ᵢ gets the whole of {dy}; a sum over one axis repeats it along that axis"],
    kernel: { value: ([x]) => summedTo(x, [4]), vjp: ([x], dy) => [filled(x.shape, (at) => dy.values[at % 4])],
      shapes: [[3, 4]] },
  },
  {
    names: ["mean"],
    title: "Mean",
    operands: ["x"],
    forward: "Σ {x} / n",
    gradients: ["{dy} / {n}, repeated to the shape of {x}"],
    symbols: (_, call) => ({
      n: call === undefined ? "n" : String(sizeOf(call.operands[0] ?? []) / sizeOf(call.output)),
    }),
    derivation: ["{y} = (1/n) Σᵢ {x}ᵢ: ∂{y}/∂{x}ᵢ = 1/n for each of the n elements",
      "each {x}ᵢ gets the same share, {dy} / n"],
    kernel: { value: ([x]) => mapped(summedTo(x, []), (total) => total / 12),
      vjp: ([x], dy) => [filled(x.shape, () => dy.values[0] / 12)], shapes: [[3, 4]] },
  },
  {
    names: ["max", "amax", "min", "amin"],
    title: "Largest or smallest element",
    operands: ["x"],
    forward: "the largest or smallest element of {x}",
    gradients: ["{dy} at this element, 0 elsewhere"],
    derivation: ["a small change of any other element does not change {y}: slope 0",
      "{y} is a copy of this element: slope 1"],
    kernel: {
      value: ([x]) => filled([], () => Math.max(...x.values)),
      vjp: ([x], dy) => [mapped(x, (value) => value === Math.max(...x.values) ? dy.values[0] : 0)],
      shapes: [[3, 4]],
    },
  },
  {
    names: ["max_pool2d"],
    title: "Largest of each window",
    operands: ["x"],
    forward: "the largest element of each window of {x}",
    gradients: ["{dy} at the largest element of each window, 0 elsewhere"],
    derivation: [
      "in each window {y} is a copy of the largest element, with slope 1, and does not depend on the others, with slope 0",
      "so autograd saves the index of the largest element for the backward pass",
      "an element that is the largest in several windows gets the sum of their gradients",
    ],
    source: "LeCun et al. 1998, Gradient-based learning applied to document recognition",
    kernel: {
      value: ([x]) => filled([2, 2], (at) => Math.max(...windowAt(at).map((place) => x.values[place]))),
      vjp: ([x], dy) => {
        const dx = filled(x.shape, () => 0);
        dy.values.forEach((g, at) => {
          const places = windowAt(at);
          const top = places.reduce((best, place) => x.values[place] > x.values[best] ? place : best);
          dx.values[top] = dx.values[top] + g;
        });
        return [dx];
      },
      shapes: [[4, 4]],
    },
  },
  {
    names: ["softmax"],
    title: "Softmax",
    operands: ["x"],
    forward: "exp({x}) / Σ exp({x})",
    gradients: ["{y} · ({dy} − Σ {dy} · {y})"],
    derivation: [
      "in each row {y}ᵢ = exp {x}ᵢ / Σₖ exp {x}ₖ: every output depends on every input of its row",
      "by the quotient rule ∂{y}ⱼ/∂{x}ᵢ = {y}ⱼ · (1[i = j] − {y}ᵢ)",
      "{dx}ᵢ = Σⱼ {dy}ⱼ · {y}ⱼ · (1[i = j] − {y}ᵢ) = {y}ᵢ · ({dy}ᵢ − Σⱼ {dy}ⱼ · {y}ⱼ)",
      "the outputs sum to 1, so the gradient sums to 0 along the row",
    ],
    source: "Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs",
    kernel: {
      value: ([x]) => byRow(x, softmax),
      vjp: (_, dy, y) => [byRow(y, (row, order) => {
        const g = rowOf(dy, order);
        const along = sum(g.map((each, at) => each * row[at]));
        return row.map((share, at) => share * (g[at] - along));
      })],
      shapes: [[3, 4]],
    },
  },
  {
    names: ["log_softmax"],
    title: "Logarithm of the softmax",
    operands: ["x"],
    forward: "{x} − log Σ exp({x})",
    gradients: ["{dy} − exp({y}) · Σ {dy}"],
    derivation: ["in each row {y}ⱼ = {x}ⱼ − log Σₖ exp {x}ₖ",
      "∂{y}ⱼ/∂{x}ᵢ = 1[i = j] − softmax({x})ᵢ, and softmax({x}) = exp({y})",
      "{dx}ᵢ = Σⱼ {dy}ⱼ · (1[i = j] − exp {y}ᵢ) = {dy}ᵢ − exp({y}ᵢ) · Σⱼ {dy}ⱼ"],
    kernel: {
      value: ([x]) => byRow(x, (row) => softmax(row).map(Math.log)),
      vjp: (_, dy, y) => [byRow(y, (row, order) => {
        const total = sum(rowOf(dy, order));
        return row.map((value, at) => rowOf(dy, order)[at] - Math.exp(value) * total);
      })],
      shapes: [[3, 4]],
    },
  },
  {
    names: ["layer_norm"],
    covers: ({ attributes, operands: { length } }) => length === 3 || (length === 2 && !("weight" in attributes)),
    title: "Layer normalization",
    operands: ["x", "w", "b"],
    forward: "{w} · ({x} − mean) / √(variance + ε) + {b}",
    gradients: ["(g − mean(g) − x̂ · mean(g · x̂)) / s, g = {w} · {dy}", "Σ_rows {dy} · x̂", "Σ_rows {dy}"],
    derivation: [MOMENTS, THROUGH,
      "the mean subtracts mean(g), the variance subtracts x̂ · mean(g · x̂): the rest is orthogonal to a shift and to a scaling of {x}, because these do not change {y}",
      "all means run over the normalized axes of one row; autograd saves the mean and 1/s"],
    source: "Ba et al. 2016, Layer Normalization",
    kernel: {
      value: ([x, w, b]) => zipped(zipped(normalized(x), w, (a, c) => a * c), b, (a, c) => a + c),
      vjp: ([x, w, b], dy) => [
        normalizedGradient(x, zipped(dy, w, (g, c) => g * c)),
        summedTo(zipped(dy, normalized(x), (g, hat) => g * hat), w.shape),
        summedTo(dy, b.shape),
      ],
      shapes: [[3, 4], [4], [4]],
    },
  },
  {
    names: ["batch_norm"],
    title: "Batch normalization, in training",
    operands: ["x", "m", "v", "w", "b"],
    optional: ["m", "v"],
    covers: ({ attributes, operands: { length } }) =>
      attributes["training"] === true && (length === 5 || (length === 3 && !("weight" in attributes))),
    forward: "{w} · ({x} − mean) / √(variance + ε) + {b}",
    gradients: ["(g − mean(g) − x̂ · mean(g · x̂)) / s, g = {w} · {dy}", null, null, "Σ over the batch of {dy} · x̂",
      "Σ over the batch of {dy}"],
    derivation: [MOMENTS, THROUGH, "the mean subtracts mean(g), the variance subtracts x̂ · mean(g · x̂)",
      "all means run per channel over the batch and all positions, so the outputs of a batch depend on all its inputs; the running averages play no role"],
    source: "Ioffe and Szegedy 2015, Batch Normalization",
    kernel: {
      value: ([x, , , w, b]) => zipped(zipped(flipped(normalized(flipped(x))), w, (a, c) => a * c), b, (a, c) => a + c),
      vjp: ([x, , , w, b], dy) => [
        flipped(normalizedGradient(flipped(x), flipped(zipped(dy, w, (g, c) => g * c)))),
        null,
        null,
        summedTo(zipped(dy, flipped(normalized(flipped(x))), (g, hat) => g * hat), w.shape),
        summedTo(dy, b.shape),
      ],
      shapes: [[5, 3], [3], [3], [3], [3]],
    },
  },
  {
    names: ["batch_norm"],
    title: "Batch normalization, in evaluation",
    operands: ["x", "m", "v", "w", "b"],
    forward: "{w} · ({x} − {m}) / √({v} + ε) + {b}",
    gradients: ["{w} · {dy} / √({v} + ε)", null, null, "Σ over the batch of {dy} · x̂", "Σ over the batch of {dy}"],
    covers: ({ attributes, operands: { length } }) => attributes["training"] === false && length === 5,
    derivation: [
      "x̂ = ({x} − {m}) / √({v} + ε), with the running averages, which are constants and do not depend on {x}",
      "so each {y}ᵢ is a linear function of {x}ᵢ, with slope {w} / √({v} + ε)",
      "{w} and {b} act on all elements of their channel: {dw} = Σ {dy} · x̂, {db} = Σ {dy}",
    ],
    source: "Ioffe and Szegedy 2015, Batch Normalization",
    kernel: {
      value: ([x, m, v, w, b]) => zipped(zipped(standardized(x, m, v), w, (a, c) => a * c), b, (a, c) => a + c),
      vjp: ([x, m, v, w, b], dy) => [
        zipped(zipped(dy, w, (g, c) => g * c), v, (g, variance) => g / Math.sqrt(variance + EPS)),
        null,
        null,
        summedTo(zipped(dy, standardized(x, m, v), (g, hat) => g * hat), w.shape),
        summedTo(dy, b.shape),
      ],
      shapes: [[5, 3], [3], [3], [3], [3]],
      fixed: { 1: [0.2, -0.4, 1], 2: [0.5, 1.5, 2] },
    },
  },
  {
    names: ["mse_loss"],
    title: "Mean squared error",
    operands: ["x", "t"],
    forward: "{mean}(({x} − {t})²)",
    gradients: ["2 · ({x} − {t}){n} · {dy}", "−2 · ({x} − {t}){n} · {dy}"],
    covers: ({ attributes, operands: [x = [], t, more] }) =>
      more === undefined && t !== undefined && x.join() === t.join() && isReduced(attributes),
    symbols: (attributes, call) =>
      attributes["reduction"] === "sum" ? { mean: "Σ", n: "" }
        : { mean: "mean", n: ` / ${call === undefined ? "n" : sizeOf(call.operands[0] ?? [])}` },
    derivation: ["{y} = {mean} of ({x}ᵢ − {t}ᵢ)²; for a mean, n is the number of elements; a sum is not divided",
      "the slopes along the chain are 2 · ({x}ᵢ − {t}ᵢ) for the square, 1 for the difference, 1/n for the mean; multiply them",
      "if {y} is the loss itself, {dy} = 1; a given target gets no gradient"],
    source: CHAPTER,
    kernel: {
      value: ([x, t]) => filled([], () => sum(zipped(x, t, (a, b) => (a - b) ** 2).values) / x.values.length),
      vjp: ([x, t], dy) =>
        [2, -2].map((factor) =>
          zipped(zipped(x, t, (a, b) => (factor * (a - b)) / x.values.length), dy, (a, g) => a * g)
        ),
      shapes: [[3, 2], [3, 2]],
    },
  },
  {
    names: ["mse_of_column"],
    title: "Mean squared error of one output",
    operands: ["x", "t"],
    forward: "mean((squeeze({x}, dim=−1) − {t})²)",
    gradients: ["unsqueeze(2 · (squeeze({x}, dim=−1) − {t}) / {n} · {dy}, dim=−1)",
      "−2 · (squeeze({x}, dim=−1) − {t}) / {n} · {dy}"],
    symbols: (_, call) => ({ n: call === undefined ? "n" : String(sizeOf(call.operands[0] ?? [])) }),
    derivation: ["{y} = mean of ({x}ᵢ − {t}ᵢ)² over the n rows of {x}, after its last axis is removed",
      "otherwise (n, 1) − (n) would broadcast to n · n differences",
      "the slopes are 2 · ({x}ᵢ − {t}ᵢ) for the square and 1/n for the mean; the gradient gets the axis back"],
    source: CHAPTER,
    kernel: {
      value: ([x, t]) => filled([], () => sum(x.values.map((a, at) => (a - t.values[at]) ** 2)) / x.values.length),
      vjp: ([x, t], dy) =>
        [x, t].map(({ shape }, operand) =>
          filled(shape, (at) => ((2 - 4 * operand) * (x.values[at] - t.values[at]) * dy.values[0]) / x.values.length)
        ),
      shapes: [[3, 1], [3]],
    },
  },
  {
    names: ["cross_entropy"],
    title: "Cross entropy with the true class",
    operands: ["x", "t"],
    forward: "−{mean}(log softmax({x})[{t}])",
    gradients: ["(softmax({x}) − onehot({t})){batch} · {dy}", null],
    covers: isOfClasses,
    symbols: reduced,
    derivation: [
      "per row −log softmax({x})ₜ = log Σₖ exp {x}ₖ − {x}ₜ, t the true class",
      "its slope for {x}ᵢ: softmax({x})ᵢ from the logarithm, and −1 from the second term if i = t",
      "a mean over the batch divides by its size, a sum does not; a class index has no gradient",
      "the logarithm cancels the exponential, so this gradient does not vanish if softmax saturates",
    ],
    source: "Bishop 2006, Pattern Recognition and Machine Learning, equation 4.109",
    kernel: {
      value: ([x, t]) =>
        filled([], () =>
          -sum(t.values.map((chosen, row) => Math.log(softmax(rowOf(x, row))[chosen]))) / t.values.length),
      vjp: ([x, t], dy) => [
        byRow(x,
          (row, order) =>
            softmax(row).map((share, at) =>
              ((share - Number(at === t.values[order])) / t.values.length) * dy.values[0]
            )),
        null,
      ],
      shapes: [[3, 4], [3]],
      fixed: { 1: [2, 0, 3] },
    },
  },
  {
    names: ["nll_loss"],
    title: "Negative log likelihood of the true class",
    operands: ["x", "t"],
    forward: "−{mean}({x}[{t}])",
    gradients: ["−onehot({t}){batch} · {dy}", null],
    covers: isOfClasses,
    symbols: reduced,
    derivation: ["{y} = −{mean} of {x}ₙ,ₜ: one element of each row enters, with slope −1{batch}",
      "the other elements do not enter: gradient 0; a class index has no gradient"],
    source: "Bishop 2006, Pattern Recognition and Machine Learning, 4.3.4",
    kernel: {
      value: ([x, t]) => filled([], () => -sum(t.values.map((chosen, row) => rowOf(x, row)[chosen])) / t.values.length),
      vjp: ([x, t], dy) => [filled(x.shape, (at) => {
        const [row, column] = indexAt(at, x.shape);
        return (-Number(t.values[row] === column) / t.values.length) * dy.values[0];
      }), null],
      shapes: [[3, 4], [3]],
      fixed: { 1: [2, 0, 3] },
    },
  },
];

/** @param {number} at of 2 × 2 windows over 4 × 4 @returns {number[]} places */
function windowAt(at) {
  const corner = Math.floor(at / 2) * 8 + (at % 2) * 2;
  return [corner, corner + 1, corner + 4, corner + 5];
}
