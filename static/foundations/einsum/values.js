/** The operands and the result; an element of the result lights the elements that make it. */

import { cellText, markCells, tensorTable } from "../../core/chapter/tensor-table.js";
import { html } from "../../core/dom.js";
import { significant } from "../../core/format.js";

/** Terms that are written out. */
const MAX_TERMS = 6;
const LIT = ["lit", "lit-2"];

/** @param {EinsumAnswer} answer */
export function showValues(answer) {
  const { operands, output, result } = answer;
  const line = document.querySelector("#element");
  const tables = operands.map((operand) =>
    tensorTable(operand, { label: `${operand.name} · ${operand.dimensions.join(" ")}` })
  );
  const out = tensorTable(result, { label: `out · ${output.dimensions.join(" ")}`, onhover: light });
  /** @param {TensorIndex | null} position of the result */
  function light(position) {
    for (const [at, table] of tables.entries()) {
      const operand = operands[at];
      if (operand !== undefined)
        markCells(table, (index) =>
          position !== null && takesPart(operand, index, output.dimensions, position) ? (LIT[at % 2] ?? "lit") : "");
    }
    markCells(out, (index) => position !== null && String(index) === String(position) ? "lit-backward" : "");
    line?.replaceChildren(position === null ? "" : sentence(answer, position));
  }
  line?.replaceChildren();
  document.querySelector("#operands")?.replaceChildren(html("div", { class: "figures" }, ...tables),
    html("div", { class: "figures result" }, out));
}

/** @param {EinsumOperand} operand @param {TensorIndex} index of one of its elements
 * @param {readonly string[]} kept the result's indices @param {TensorIndex} position in the result
 * @returns {boolean} whether the element is a factor of a product there */
function takesPart({ dimensions, shape }, index, kept, position) {
  /** @type {Map<string, number>} */
  const summed = new Map();
  return dimensions.every((name, dimension) => {
    const at = index[dimension] ?? 0;
    if (kept.includes(name)) return at === (shape[dimension] === 1 ? 0 : position[kept.indexOf(name)]);
    // A summed index runs freely, but a repeated one takes the same value in both places.
    if (!summed.has(name)) summed.set(name, at);
    return summed.get(name) === at;
  });
}

/** @param {EinsumAnswer} answer @param {TensorIndex} position
 * @returns {string} out[0, 1] = Σj t0[0, j] · t1[j, 1] = 0.3 · 1.2 + … = 1.97 */
function sentence({ indices, operands, output, result, products_per_element }, position) {
  const summed = indices.filter((index) => index.output === null);
  const fixed = new Map(output.dimensions.map((name, at) => [name, position[at] ?? 0]));
  const formula = operands.map(({ name, dimensions, shape }) =>
    `${name}${place(dimensions.map((each, at) => shape[at] === 1 ? 0 : (fixed.get(each) ?? each)))}`
  );
  const sigma = summed.length === 0 ? "" : `Σ ${summed.map(({ name }) => name).join(", ")}  `;
  const value = cellText(elementAt(result.values, position));
  const terms = firstTerms(summed, products_per_element).map((at) => {
    const all = new Map([...fixed, ...at]);
    const factors = operands.map(({ dimensions, shape, values }) =>
      Number(elementAt(values, dimensions.map((name, dimension) => shape[dimension] === 1 ? 0 : (all.get(name) ?? 0))))
    );
    return factors.map((factor) => factor < 0 && operands.length > 1 ? `(${significant(factor)})` : significant(factor))
      .join(" · ");
  });
  const more = products_per_element > terms.length ? [`… ${products_per_element - terms.length} more`] : [];
  const written = summed.length === 0 && operands.length === 1 ? "" : ` = ${[...terms, ...more].join(" + ") || "0"}`;
  return `out${place(position)} = ${sigma}${formula.join(" · ")}${written} = ${value}`;
}

/** @param {readonly {name: string, size: number}[]} summed @param {number} count of all terms
 * @returns {Map<string, number>[]} the first values that the summed indices run through */
function firstTerms(summed, count) {
  return Array.from({ length: Math.min(count, MAX_TERMS) }, (_, number) => {
    /** @type {Map<string, number>} */
    const at = new Map();
    let rest = number;
    for (const { name, size } of summed.toReversed()) {
      at.set(name, rest % size);
      rest = Math.floor(rest / size);
    }
    return at;
  });
}

/** @param {readonly (number | string)[]} at @returns {string} */
function place(at) {
  return at.length === 0 ? "" : `[${at.join(", ")}]`;
}

/** @param {any} values nested @param {TensorIndex} position @returns {any} */
function elementAt(values, position) {
  return position.reduce((each, at) => each?.[at], values);
}
