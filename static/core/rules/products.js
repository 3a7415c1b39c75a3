/** Gradient rules of matrix products, convolution and attention, in words and in numbers. No DOM. */

import { byRow, filled, indexAt, mapped, placeOf, product, reshaped, sum, summedTo, transposed,
  zipped } from "./ndarray.js";
import { alphaOf, CHAPTER, isOff, numberText } from "./settings.js";

/** @param {NDArray} x @returns {NDArray} all axes but the last as one */
const rows = (x) => reshaped(x, [x.values.length / (x.shape.at(-1) ?? 1), x.shape.at(-1) ?? 1]);

/** @param {NDArray} v @returns {NDArray} a vector as a column */
const upright = (v) => reshaped(v, [v.values.length, 1]);

/** @param {NDArray} dy @returns {NDArray} summed over all axes but the last */
const overBatch = (dy) => summedTo(dy, [dy.shape.at(-1) ?? 1]);

const BIAS = "{b} is added to every row of {y}: {db} = Σ over rows of {dy}";

/** @type {readonly RuleEntry[]} */
export const PRODUCT_RULES = [
  {
    names: ["matmul", "mm", "bmm"],
    title: "Matrix product",
    operands: ["x", "w"],
    forward: "{x} @ {w}",
    gradients: ["{dy} @ {w}ᵀ", "{x}ᵀ @ {dy}"],
    covers: ({ operands }) => operands.length === 2 && operands.every((shape) => shape.length > 1),
    derivation: [
      "{y}ᵢⱼ = Σₖ {x}ᵢₖ · {w}ₖⱼ",
      "{x}ᵢₖ enters only row i of {y}: ∂{y}ᵢⱼ/∂{x}ᵢₖ = {w}ₖⱼ, so {dx}ᵢₖ = Σⱼ {dy}ᵢⱼ · {w}ₖⱼ: row i of {dy} times row k of {w}, which is {dy} @ {w}ᵀ",
      "{w}ₖⱼ enters only column j: ∂{y}ᵢⱼ/∂{w}ₖⱼ = {x}ᵢₖ, so {dw}ₖⱼ = Σᵢ {x}ᵢₖ · {dy}ᵢⱼ: column k of {x} times column j of {dy}, which is {x}ᵀ @ {dy}",
      "if all sizes differ, no other product of these has the right shape; an operand that is used for every matrix of a batch gets the sum over the batch",
    ],
    source: CHAPTER,
    kernel: {
      value: ([x, w]) => product(x, w),
      vjp: (
        [x, w],
        dy,
      ) => [summedTo(product(dy, transposed(w)), x.shape), summedTo(product(transposed(x), dy), w.shape)],
      shapes: [[2, 3, 4], [4, 2]],
    },
  },
  {
    names: ["matmul", "mv"],
    title: "Matrix times vector",
    operands: ["x", "v"],
    forward: "{x} @ {v}",
    gradients: ["{dy} ⊗ {v}", "{x}ᵀ @ {dy}"],
    covers: ({ operands: [x = [], v = []] }) => x.length === 2 && v.length === 1,
    derivation: [
      "{y}ᵢ = Σₖ {x}ᵢₖ · {v}ₖ",
      "{x}ᵢₖ enters only {y}ᵢ: {dx}ᵢₖ = {dy}ᵢ · {v}ₖ, which is the outer product {dy} ⊗ {v}",
      "{v}ₖ enters every {y}ᵢ: {dv}ₖ = Σᵢ {x}ᵢₖ · {dy}ᵢ, which is {x}ᵀ @ {dy}",
    ],
    kernel: {
      value: ([x, v]) => reshaped(product(x, upright(v)), x.shape.slice(0, -1)),
      vjp: (
        [x, v],
        dy,
      ) => [product(upright(dy), reshaped(v, [1, v.values.length])),
        reshaped(product(transposed(x), upright(dy)), v.shape)],
      shapes: [[3, 4], [4]],
    },
  },
  {
    names: ["matmul"],
    title: "Vector times matrix",
    operands: ["v", "w"],
    forward: "{v} @ {w}",
    gradients: ["{dy} @ {w}ᵀ", "{v} ⊗ {dy}"],
    covers: ({ operands: [v = [], w = []] }) => v.length === 1 && w.length === 2,
    derivation: ["{y}ⱼ = Σₖ {v}ₖ · {w}ₖⱼ", "{dv}ₖ = Σⱼ {dy}ⱼ · {w}ₖⱼ, which is {dy} @ {w}ᵀ",
      "{w}ₖⱼ enters only {y}ⱼ: {dw}ₖⱼ = {v}ₖ · {dy}ⱼ, the outer product {v} ⊗ {dy}"],
    kernel: {
      value: ([v, w]) => reshaped(product(transposed(upright(v)), w), w.shape.slice(1)),
      vjp: ([v, w], dy) => [reshaped(product(w, upright(dy)), v.shape), product(upright(v), transposed(upright(dy)))],
      shapes: [[4], [4, 2]],
    },
  },
  {
    names: ["dot", "matmul", "inner", "vdot"],
    title: "Product of two vectors",
    operands: ["a", "b"],
    forward: "{a} · {b}",
    gradients: ["{dy} · {b}", "{dy} · {a}"],
    covers: ({ operands: [a = [], b = []] }) => a.length === 1 && b.length === 1,
    derivation: ["{y} = Σₖ {a}ₖ · {b}ₖ",
      "∂{y}/∂{a}ₖ = {b}ₖ and ∂{y}/∂{b}ₖ = {a}ₖ: each gradient is the other vector times the number {dy}"],
    kernel: {
      value: ([a, b]) => filled([], () => sum(zipped(a, b, (p, q) => p * q).values)),
      vjp: ([a, b], dy) => [zipped(dy, b, (g, q) => g * q), zipped(dy, a, (g, p) => g * p)],
      shapes: [[4], [4]],
    },
  },
  {
    names: ["linear"],
    title: "Linear layer, weight (out, in)",
    operands: ["x", "w", "b"],
    forward: "{x} @ {w}ᵀ + {b}",
    gradients: ["{dy} @ {w}", "({dy})ᵀ @ {x}", "Σ_rows {dy}"],
    covers: ({ operands }) => operands.length === 2 || operands.length === 3,
    derivation: [
      "{y}ᵢⱼ = Σₖ {x}ᵢₖ · {w}ⱼₖ + {b}ⱼ: a matrix product with {w} transposed",
      "{dx}ᵢₖ = Σⱼ {dy}ᵢⱼ · {w}ⱼₖ, which is {dy} @ {w}",
      "{dw}ⱼₖ = Σᵢ {dy}ᵢⱼ · {x}ᵢₖ, which is ({dy})ᵀ @ {x}; with more than two axes, i runs over all axes except the last",
      BIAS,
    ],
    source: "PyTorch tutorial, Extending torch.autograd: LinearFunction",
    kernel: {
      value: ([x, w, b]) => zipped(product(x, transposed(w)), b, (p, c) => p + c),
      vjp: ([x, w], dy) => [product(dy, w), product(transposed(rows(dy)), rows(x)), overBatch(dy)],
      shapes: [[3, 4], [2, 4], [2]],
    },
  },
  {
    names: ["lin"],
    title: "Linear layer, weight (in, out)",
    operands: ["x", "w", "b"],
    forward: "{x} @ {w} + {b}",
    gradients: ["{dy} @ {w}ᵀ", "{x}ᵀ @ {dy}", "Σ_rows {dy}"],
    derivation: [
      "{y}ᵢⱼ = Σₖ {x}ᵢₖ · {w}ₖⱼ + {b}ⱼ",
      "{dx}ᵢₖ = Σⱼ {dy}ᵢⱼ · {w}ₖⱼ, which is {dy} @ {w}ᵀ",
      "{dw}ₖⱼ = Σᵢ {x}ᵢₖ · {dy}ᵢⱼ, which is {x}ᵀ @ {dy}: each row of the batch adds its product",
      BIAS,
    ],
    source: CHAPTER,
    kernel: {
      value: ([x, w, b]) => zipped(product(x, w), b, (p, c) => p + c),
      vjp: ([x, w], dy) => [product(dy, transposed(w)), product(transposed(x), dy), overBatch(dy)],
      shapes: [[3, 4], [4, 2], [2]],
    },
  },
  {
    names: ["addmm"],
    title: "Matrix product plus a matrix",
    operands: ["b", "x", "w"],
    forward: "{b} + {x} @ {w}",
    gradients: ["Σ_rows {dy}", "{dy} @ {w}ᵀ", "{x}ᵀ @ {dy}"],
    covers: ({ attributes, operands: { length, 0: b = [] } }) =>
      length === 3 && b.length === 1 && alphaOf(attributes) === 1 && (attributes["beta"] ?? 1) === 1,
    derivation: ["{y} is a sum, and both terms of a sum get its gradient",
      "the product then has the gradients of a matrix product: {dx} = {dy} @ {w}ᵀ, {dw} = {x}ᵀ @ {dy}", BIAS],
    kernel: {
      value: ([b, x, w]) => zipped(product(x, w), b, (p, c) => p + c),
      vjp: ([b, x, w], dy) => [summedTo(dy, b.shape), product(dy, transposed(w)), product(transposed(x), dy)],
      shapes: [[2], [3, 4], [4, 2]],
    },
  },
  {
    names: ["conv2d"],
    title: "Convolution",
    operands: ["x", "w", "b"],
    forward: "{x} ⋆ {w} + {b}",
    covers: ({ operands }) => operands.length === 2 || operands.length === 3,
    gradients: ["{dy} convolved with {w}, rotated by 180°", "Σ over batch and positions of {dy} · its patch of {x}",
      "Σ over batch and positions of {dy}"],
    derivation: [
      "{y}[n,o,i,j] = Σ_c,u,v {x}[n,c,i+u,j+v] · {w}[o,c,u,v] + {b}[o]: one linear layer, applied to every patch",
      "{x}[n,c,p,q] enters {y}[n,o,p−u,q−v] for every u, v: {dx}[n,c,p,q] = Σ_o,u,v {dy}[n,o,p−u,q−v] · {w}[o,c,u,v], a convolution with the rotated kernel",
      "{w}[o,c,u,v] is used at every position: {dw}[o,c,u,v] = Σ_n,i,j {dy}[n,o,i,j] · {x}[n,c,i+u,j+v]",
      "a stride skips positions, padding adds zeros around {x}, and each of several groups reads only its own channels; the sums run over the positions and channels that exist",
    ],
    source: "Dumoulin and Visin 2016, A guide to convolution arithmetic for deep learning",
    kernel: {
      value: ([x, w, b]) => {
        const shape = convolved(x, w);
        const y = filled(shape, (at) => b.values[indexAt(at, shape)[1]]);
        eachTap(x, w, shape,
          (place, source, tap) => (y.values[place] = y.values[place] + x.values[source] * w.values[tap]));
        return y;
      },
      vjp: ([x, w, b], dy) => {
        const [dx, dw] = [mapped(x, () => 0), mapped(w, () => 0)];
        eachTap(x, w, dy.shape, (place, source, tap) => {
          dx.values[source] = dx.values[source] + dy.values[place] * w.values[tap];
          dw.values[tap] = dw.values[tap] + dy.values[place] * x.values[source];
        });
        return [dx, dw,
          filled(b.shape, (channel) => sum(dy.values.filter((_, at) => indexAt(at, dy.shape)[1] === channel)))];
      },
      shapes: [[2, 2, 4, 3], [3, 2, 2, 2], [3]],
    },
  },
  {
    names: ["scaled_dot_product_attention"],
    title: "Scaled dot-product attention",
    operands: ["q", "k", "v"],
    forward: "softmax({q} @ {k}ᵀ{scale}) @ {v}",
    gradients: ["dS @ {k}{scale}", "dSᵀ @ {q}{scale}", "Pᵀ @ {dy}"],
    // A fourth tensor is a mask; of dropped weights and of heads that share a key the rule says nothing.
    covers: ({ attributes, operands: { length } }) =>
      (length === 3 || length === 4) && isOff(attributes["dropout_p"]) && isOff(attributes["enable_gqa"]),
    symbols: ({ scale }) => ({
      scale: typeof scale === "number" ? ` · ${scale < 0 ? `(${numberText(scale)})` : numberText(scale)}` : " / √d",
    }),
    derivation: [
      "S = {q} @ {k}ᵀ{scale}, P = softmax(S) row by row, {y} = P @ {v}; d is the last axis of {q}",
      "{y} = P @ {v} is a matrix product: {dv} = Pᵀ @ {dy}, dP = {dy} @ {v}ᵀ",
      "through the softmax of each row: dS = P · (dP − Σⱼ dPⱼ · Pⱼ), and Σⱼ dPⱼ · Pⱼ = Σ {dy} · {y}",
      "S is also a matrix product: {dq} = dS @ {k}{scale}, {dk} = dSᵀ @ {q}{scale}; at masked positions P and dS are 0",
    ],
    source: "Vaswani et al. 2017, Attention Is All You Need; Dao et al. 2022, FlashAttention, appendix B.2",
    kernel: {
      value: ([q, k, v]) => product(attended(q, k), v),
      vjp: ([q, k, v], dy) => {
        const p = attended(q, k);
        const dp = product(dy, transposed(v));
        const weighed = zipped(dp, p, (a, b) => a * b);
        const ds = byRow(p, (row, order) => {
          const from = order * row.length;
          const mean = sum(weighed.values.subarray(from, from + row.length));
          return row.map((share, at) => (share * (dp.values[from + at] - mean)) / Math.sqrt(q.shape.at(-1) ?? 1));
        });
        return [product(ds, k), product(transposed(ds), q), product(transposed(p), dy)];
      },
      shapes: [[2, 3, 4], [2, 3, 4], [2, 3, 2]],
    },
  },
];

/** @param {NDArray} q @param {NDArray} k @returns {NDArray} */
function attended(q, k) {
  const scores = mapped(product(q, transposed(k)), (score) => score / Math.sqrt(q.shape.at(-1) ?? 1));
  return byRow(scores, (row) => {
    const powers = row.map((score) => Math.exp(score - Math.max(...row)));
    return powers.map((power) => power / sum(powers));
  });
}

/** @param {NDArray} x @param {NDArray} w @returns {number[]} the shape of their convolution, stride 1, no padding */
function convolved(x, w) {
  const [batch, , height, width] = x.shape;
  const [channels, , rowsOfKernel, columns] = w.shape;
  return [batch, channels, height - rowsOfKernel + 1, width - columns + 1];
}

/** @param {NDArray} x @param {NDArray} w @param {readonly number[]} shape
 * @param {(place: number, source: number, tap: number) => void} visit positions in y, x and w of every product */
function eachTap(x, w, shape, visit) {
  const taps = w.values.length / w.shape[0];
  const kernel = w.shape.slice(1);
  for (let place = 0; place < shape.reduce((a, b) => a * b, 1); place += 1) {
    const [n, o, i, j] = indexAt(place, shape);
    for (let tap = 0; tap < taps; tap += 1) {
      const [c, u, v] = indexAt(tap, kernel);
      visit(place, placeOf([n, c, i + u, j + v], x.shape), o * taps + tap);
    }
  }
}
