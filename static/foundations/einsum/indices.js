/** What each index of an equation is: coloured where it is written, and in words. */

import { html } from "../../core/dom.js";
import { shapeText } from "../../core/chapter/tensor-table.js";

/** @param {EinsumAnswer} answer */
export function showAnatomy({ operands, output, shape, indices, is_implicit, written_as, equation,
  explicit_equation })
{
  const roles = new Map(indices.map(({ name, role }) => [name, role]));
  /** @param {string} name @param {readonly string[]} dimensions @param {readonly number[]} sizes
   * @param {string} [note] */
  const tensor = (name, dimensions, sizes, note = "") =>
    html("div", { class: "operand" }, html("span", { class: "soft" }, name),
      html("span", { class: "letters" },
        ...(dimensions.length === 0
          ? [html("span", { class: "letter none" }, html("b", {}, "·"), html("small", {}, "scalar"))]
          : dimensions.map((letter, dimension) =>
            html("span", { class: `letter ${roles.get(letter) ?? ""}` }, html("b", {}, letter),
              html("small", {}, String(sizes[dimension])))
          ))), html("span", { class: "soft" }, shapeText(sizes), note));
  const parts = operands.flatMap((
    operand,
    at,
  ) => [...(at === 0 ? [] : [html("span", { class: "mark" }, ",")]),
    tensor(operand.name, operand.dimensions, operand.shape)]
  );
  const notes = [];
  if (written_as === "sublists") notes.push(html("p", {}, "The sublists say ", html("code", {}, equation), "."));
  if (is_implicit)
    notes.push(
      html("p", {}, "There is no arrow, so the output is implicit: ",
        output.subscripts === "" ? "nothing, a scalar" : html("code", {}, output.subscripts), ". With an arrow it is ",
        html("code", {}, explicit_equation), "."),
    );
  document.querySelector("#anatomy")?.replaceChildren(
    html("div", { class: "anatomy" }, ...parts, html("span", { class: "mark" }, "→"),
      tensor("out", output.dimensions, shape, is_implicit ? ", implicit" : "")),
    ...notes,
  );
}

/** @param {EinsumAnswer} answer */
export function showIndices({ indices, products, products_per_element, operands }) {
  const place = document.querySelector("#indices");
  const total = `${products.toLocaleString("en-US")} ${operands.length > 1 ? "products" : "elements"} in all, ${
    products_per_element.toLocaleString("en-US")
  } for each element of the result.`;
  if (indices.length === 0)
    return place?.replaceChildren(html("p", {}, `No index: the operands are scalars. ${total}`));
  const head = ["index", "size", "", "tensor.dimension", "what becomes of it"];
  const rows = indices.map((index) =>
    html("tr", { "data-name": index.name },
      html("th", { scope: "row" }, html("span", { class: `letter ${index.role}` }, html("b", {}, index.name))),
      html("td", { class: "number" }, String(index.size)),
      html("td", {}, html("span", { class: `role ${index.role}` }, index.role)),
      html("td", { class: "mono" }, where(index)), html("td", {}, index.explanation))
  );
  place?.replaceChildren(
    html("table", { class: "facts" }, html("thead", {}, html("tr", {}, ...head.map((text) =>
      html("th", { scope: "col" }, text)
    ))), html("tbody", {}, ...rows)),
    html("p", { class: "soft" }, total),
  );
}

/** @param {EinsumIndex} index @returns {string} t0.1 out.0 */
function where({ occurrences, output }) {
  const places = occurrences.map(({ operand, dimension }) => `t${operand}.${dimension}`);
  return [...places, ...(output === null ? [] : [`out.${output}`])].join(" ");
}
