/** Gradient rules of ops that move elements without changing them, in words and in numbers. No DOM. */

import { filled, indexAt, placeOf, reshaped, summedTo, transposed, zipped } from "./ndarray.js";
import { swappedAxes } from "./settings.js";

/** Every output element is a copy of an input element, which gets its gradient. */
const BACK = "each element of {y} is one element of {x}, with slope 1: its gradient goes back to this element";

/** @param {NDArray} x @param {readonly number[]} shape @param {readonly number[]} picks y's element at → x's */
const picked = (x, shape, picks) => filled(shape, (at) => x.values[picks[at]]);

/** @param {NDArray} x @param {NDArray} dy @param {readonly number[]} picks @returns {NDArray} each gradient added where
 * its element came from */
function scattered(x, dy, picks) {
  const dx = filled(x.shape, () => 0);
  picks.forEach((place, at) => (dx.values[place] = dx.values[place] + dy.values[at]));
  return dx;
}

/** @param {readonly string[]} names @param {string} title @param {string} forward @param {string} gradient
 * @param {readonly string[]} derivation @param {readonly number[]} from @param {readonly number[]} to
 * @param {readonly number[]} picks @returns {RuleEntry} */
function choosing(names, title, forward, gradient, derivation, from, to, picks) {
  return {
    names,
    title,
    operands: ["x"],
    forward,
    gradients: [gradient],
    derivation,
    covers: isOfFirst,
    kernel: { value: ([x]) => picked(x, to, picks), vjp: ([x], dy) => [scattered(x, dy, picks)], shapes: [from] },
  };
}

/** Further arguments, a shape or an index, have no gradient. @param {OpCall} call @returns {boolean} */
function isOfFirst({ operands }) {
  return operands.length > 0;
}

/** Whether a transposition swaps the last two axes, as ᵀ says. @param {OpCall} call @returns {boolean} */
function areLastTwo({ attributes, operands: [shape = []] }) {
  const [first, second] = swappedAxes(attributes);
  if (first === null || second === null) return true;
  const axes = [first, second].map((axis) => axis < 0 ? axis + shape.length : axis).sort((a, b) => a - b);
  return axes[0] === shape.length - 2 && axes[1] === shape.length - 1;
}

/** @param {NDArray} x of three axes @returns {NDArray} the first of them last */
const turned = (x) => transposed(transposed(x, 0, 1), 1, 2);

/** @param {NDArray} index @returns {number[]} of a gather along the last axis of four */
const gathered = (index) =>
  [...index.values].map((column, at) =>
    placeOf([...indexAt(at, index.shape).slice(0, -1), column], [...index.shape.slice(0, -1), 4])
  );

/** @type {readonly RuleEntry[]} */
export const SHAPE_RULES = [
  {
    names: ["t", "T", "mT", "transpose", "swapaxes"],
    covers: (call) => call.operands.length === 1 && areLastTwo(call),
    title: "Transposition",
    operands: ["x"],
    forward: "{x}ᵀ",
    gradients: ["({dy})ᵀ"],
    derivation: ["{y}ᵢⱼ = {x}ⱼᵢ, slope 1", "so {dx}ⱼᵢ = {dy}ᵢⱼ: the gradient is transposed too"],
    kernel: { value: ([x]) => transposed(x), vjp: (_, dy) => [transposed(dy)], shapes: [[3, 4]] },
  },
  {
    names: ["permute", "movedim", "transpose", "swapaxes", "T"],
    title: "Axes in another order",
    operands: ["x"],
    forward: "{x}, its axes in another order",
    gradients: ["{dy}, its axes in the order of {x}"],
    derivation: [BACK,
      "axis k of {y} is axis p(k) of {x}: the inverse of p puts the gradient's axes back; if p swaps two axes, it is its own inverse"],
    kernel: { value: ([x]) => turned(x), vjp: (_, dy) => [turned(turned(dy))], shapes: [[2, 3, 4]] },
  },
  {
    names: ["view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "contiguous",
      "to", "clone", "ravel", "float", "double", "type_as"],
    title: "Same elements, another shape",
    operands: ["x"],
    covers: isOfFirst,
    forward: "{x} in the shape of {y}",
    gradients: ["{dy} in the shape of {x}"],
    derivation: ["the elements do not change: slope 1", "the gradient gets the shape of {x}"],
    kernel: { value: ([x]) => reshaped(x, [2, 6]), vjp: ([x], dy) => [reshaped(dy, x.shape)], shapes: [[3, 4]] },
  },
  {
    names: ["expand", "expand_as", "broadcast_to"],
    title: "Repetition along an axis",
    operands: ["x"],
    covers: isOfFirst,
    forward: "{x}, repeated to the shape of {y}",
    gradients: ["Σ over the repeated axes of {dy}"],
    derivation: ["{x}ᵢ appears in several places of {y}, each with slope 1",
      "the chain rule sums over all of them: {dx}ᵢ = Σ of {dy} over the places of {x}ᵢ"],
    kernel: { value: ([x]) => zipped(x, filled([3, 4], () => 0), (a, b) => a + b),
      vjp: ([x], dy) => [summedTo(dy, x.shape)], shapes: [[4]] },
  },
  choosing(["getitem", "index", "select", "narrow", "index_select", "__getitem__"], "A part of a tensor",
    "the selected part of {x}", "{dy} at that part, 0 elsewhere", [BACK,
    "elements outside the part do not enter {y}: gradient 0",
    "an element that was selected twice gets the sum of both gradients"], [3, 4], [2, 4], [4, 5, 6, 7, 0, 1, 2, 3]),
  choosing(["split", "chunk", "unbind"], "Split into parts", "the parts of {x} along an axis",
    "the gradients of the parts, joined along that axis", [BACK,
    "every element of {x} is in one part, so the parts' gradients together give {dx}"], [3, 4], [3, 2], [2, 3, 6, 7, 10,
    11]),
  {
    names: ["cat", "concat", "stack", "hstack", "vstack"],
    title: "Joining",
    operands: ["a", "b"],
    isVariadic: true,
    covers: ({ operands }) => operands.length > 0,
    forward: "{a}, {b} and any further operands, joined along an axis",
    gradients: ["the part of {dy} that came from {a}", "the part of {dy} that came from {b}"],
    derivation: ["each element of {y} is one element of one operand, with slope 1", "{dy} is split at the same places"],
    kernel: {
      value: ([a, b]) => filled([5, 2], (at) => (at < 4 ? a.values[at] : b.values[at - 4])),
      vjp: ([a, b], dy) => [filled(a.shape, (at) => dy.values[at]), filled(b.shape, (at) => dy.values[at + 4])],
      shapes: [[2, 2], [3, 2]],
    },
  },
  {
    names: ["gather"],
    title: "One element per row, by index",
    operands: ["x", "i"],
    forward: "{x} at the indices {i}",
    gradients: ["{dy} at the indices {i}, 0 elsewhere", null],
    derivation: [BACK, "an element that was selected twice gets the sum of both gradients",
      "an index is an integer: it has no gradient"],
    kernel: {
      value: ([x, i]) => picked(x, i.shape, gathered(i)),
      vjp: ([x, i], dy) => [scattered(x, dy, gathered(i)), null],
      shapes: [[3, 4], [3, 1]],
      fixed: { 1: [2, 0, 2] },
    },
  },
  {
    names: ["embedding"],
    title: "Rows of a table",
    operands: ["i", "w"],
    forward: "the rows of {w} with the indices {i}",
    gradients: [null, "Σ of {dy} over the places of each row"],
    derivation: ["{y}ₙ = {w}[{i}ₙ], the same as a one-hot matrix times {w}",
      "row r of {w} enters every {y}ₙ with {i}ₙ = r: {dw}ᵣ = Σ of {dy}ₙ over those n",
      "rows without an index in {i} get gradient 0; an index has no gradient"],
    source: "Mikolov et al. 2013, Efficient Estimation of Word Representations in Vector Space",
    kernel: {
      value: ([i, w]) =>
        filled([i.values.length, w.shape[1]], (at) =>
          w.values[i.values[Math.floor(at / w.shape[1])] * w.shape[1] + (at % w.shape[1])]),
      vjp: ([i, w], dy) => {
        const width = w.shape[1];
        return [null,
          scattered(w, dy, [...dy.values].map((_, at) => i.values[Math.floor(at / width)] * width + (at % width)))];
      },
      shapes: [[4], [3, 2]],
      fixed: { 0: [2, 0, 2, 1] },
    },
  },
];
