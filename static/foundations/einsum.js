/** The page of einsum. */

import { byId, code, div, elementAt, factsTable, isSame, p, span, strong, td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { cellText, markCells, shapeText, tensorTable } from "../core/chapter/tensor-table.js";
import { html, writeText } from "../core/dom.js";
import { significant } from "../core/format.js";

/** Terms that are written out. */
const MAX_TERMS = 6;
const LIT = ["lit", "lit-2"];
/** How the chapter's rules can be broken, in their order. */
const BREACHES = ["repeated, but also in the output", "in the operands more than twice", "not repeated, but summed"];

new ChapterPage({
  show(answer) {
    hideFailure();
    showAnatomy(answer);
    showIndices(answer);
    showValues(answer);
    showLoops(answer);
    showSublists(answer);
    showChapterRules(answer);
  },
  failed(error) {
    showFailure(error);
  },
});

// The button that sets fitting shapes disappears with the failure: the focus moves to the shapes.
byId("failure").addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("[data-set]") !== null)
    document.getElementById("input-shapes")?.focus();
});

// A typed equation replaces the sublists.
byId("input-equation").addEventListener("input", () => {
  const sublists = byId("input-sublists");
  if (sublists instanceof HTMLInputElement) sublists.value = "";
}, { capture: true });

// An equation that makes no sense

/** @typedef {{text: string, position: number, explanation: string, torch: string | null, shapes: string | null}}
 * Fault */

/** @param {ErrorBody} error errors without a place in the text show beside their control */
function showFailure(error) {
  const fault = /** @type {Partial<Fault> | null | undefined} */ (error.limit);
  if (typeof fault !== "object" || fault === null || typeof fault.text !== "string" || fault.position === undefined)
    return hideFailure();
  const { text, position, explanation = "", torch, shapes } = fault;
  const note = div("remark fault",
    html("pre", { class: "caret", "aria-label": `at character ${position + 1} of ${text}` }, marked(text, position)),
    p("", `${explanation.charAt(0).toUpperCase()}${explanation.slice(1)}.`));
  if (torch) note.append(p("soft", "The error of PyTorch: ", code(torch)));
  if (shapes) {
    const set = new URLSearchParams({ shapes }).toString();
    note.append(
      p("", html("button", { type: "button", class: "button", "data-set": set }, `Use shapes that fit: ${shapes}`)),
    );
  }
  byId("failure").replaceChildren(note);
}

function hideFailure() {
  byId("failure").replaceChildren();
}

/** @param {string} text @param {number} position @returns {string} with a caret under the character at fault */
function marked(text, position) {
  // The server counts code points, JavaScript UTF-16 units.
  const characters = [...text].map((each) => /\s/.test(each) ? " " : each);
  return `${characters.join("")}\n${" ".repeat(position)}^`;
}

// Its indices

/** @param {EinsumAnswer} answer */
function showAnatomy({ operands, output, shape, indices, is_implicit, written_as, equation, explicit_equation }) {
  const roles = new Map(indices.map(({ name, role }) => [name, role]));
  /** @param {string} name @param {readonly string[]} dimensions @param {readonly number[]} sizes
   * @param {string} [note] */
  const tensor = (name, dimensions, sizes, note = "") =>
    div("operand", span("soft", name),
      span("letters",
        ...(dimensions.length === 0
          ? [span("letter none", html("b", {}, "·"), html("small", { class: "muted" }, "scalar"))]
          : dimensions.map((letter, dimension) =>
            span(`letter ${roles.get(letter) ?? ""}`, html("b", {}, letter),
              html("small", { class: "muted" }, String(sizes[dimension])))
          ))), span("soft", shapeText(sizes), note));
  const parts = operands.flatMap((
    operand,
    at,
  ) => [...(at === 0 ? [] : [span("mark", ",")]), tensor(operand.name, operand.dimensions, operand.shape)]);
  const notes = [];
  if (written_as === "sublists") notes.push(p("", "The sublists mean ", code(equation), "."));
  if (is_implicit)
    notes.push(
      p("", "There is no arrow, so the output is implicit: ",
        output.subscripts === "" ? "empty, a scalar" : code(output.subscripts), ". With an arrow the equation is ",
        code(explicit_equation), "."),
    );
  byId("anatomy").replaceChildren(
    div("anatomy", ...parts, span("mark", "→"),
      tensor("out", output.dimensions, shape, is_implicit ? ", implicit" : "")),
    ...notes,
  );
}

/** @param {EinsumAnswer} answer */
function showIndices({ indices, products, products_per_element, operands }) {
  const place = byId("indices");
  const total = `${products.toLocaleString("en-US")} ${operands.length > 1 ? "products" : "elements"} in all, ${
    products_per_element.toLocaleString("en-US")
  } for each element of the result.`;
  if (indices.length === 0)
    return place.replaceChildren(p("", `There is no index, because the operands are scalars. ${total}`));
  const rows = indices.map((index) =>
    html("tr", { "data-name": index.name },
      html("th", { scope: "row" }, span(`letter ${index.role}`, html("b", {}, index.name))),
      td("number", String(index.size)), td("", span(`role strong ${index.role}`, index.role)), td("mono", where(index)),
      td("", index.explanation))
  );
  place.replaceChildren(factsTable(["index", "size", "", "tensor.dimension", "its role"], rows), p("soft", total));
}

/** @param {EinsumIndex} index @returns {string} t0.1 out.0 */
function where({ occurrences, output }) {
  const places = occurrences.map(({ operand, dimension }) => `t${operand}.${dimension}`);
  return [...places, ...(output === null ? [] : [`out.${output}`])].join(" ");
}

// The operands and the result

/** @param {EinsumAnswer} answer */
function showValues(answer) {
  const { operands, output, result } = answer;
  const line = byId("element");
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
    markCells(out, (index) => isSame(index, position) ? "lit-backward" : "");
    line.replaceChildren(position === null ? "" : sentence(answer, position));
  }
  line.replaceChildren();
  byId("operands").replaceChildren(div("figures", ...tables), div("figures result", out));
}

/** @param {EinsumOperand} operand @param {TensorIndex} index @param {readonly string[]} kept indices of the result
 * @param {TensorIndex} position in the result @returns {boolean} whether the element is a factor at that position */
function takesPart({ dimensions, shape }, index, kept, position) {
  const summed = /** @type {Map<string, number>} */ (new Map());
  return dimensions.every((name, dimension) => {
    const at = index[dimension] ?? 0;
    if (kept.includes(name)) return at === (shape[dimension] === 1 ? 0 : position[kept.indexOf(name)]);
    // A summed index takes any value, but a repeated one the same in both places.
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
  const value = cellText(elementAt(result, position));
  const terms = firstTerms(summed, products_per_element).map((at) => {
    const all = new Map([...fixed, ...at]);
    const factors = operands.map((operand) =>
      Number(
        elementAt(operand, operand.dimensions.map((name, dimension) =>
          operand.shape[dimension] === 1 ? 0 : (all.get(name) ?? 0)
        )),
      )
    );
    return factors.map((factor) => factor < 0 && operands.length > 1 ? `(${significant(factor)})` : significant(factor))
      .join(" · ");
  });
  const more = products_per_element > terms.length ? [`… ${products_per_element - terms.length} more`] : [];
  const written = summed.length === 0 && operands.length === 1 ? "" : ` = ${[...terms, ...more].join(" + ") || "0"}`;
  return `out${place(position)} = ${sigma}${formula.join(" · ")}${written} = ${value}`;
}

/** @param {readonly {name: string, size: number}[]} summed @param {number} count
 * @returns {Map<string, number>[]} first values of the summed indices */
function firstTerms(summed, count) {
  return Array.from({ length: Math.min(count, MAX_TERMS) }, (_, number) => {
    const at = /** @type {Map<string, number>} */ (new Map());
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

// The same as loops and as sublists

/** @param {EinsumAnswer} answer */
function showLoops({ loops, loops_agree, loops_max_difference, products }) {
  const lines = loops.split("\n").map((text) => span("line", span("code", ...highlighted(text), "\n")));
  byId("written-loops").replaceChildren(
    div("listing", html("pre", { tabindex: "0", "aria-label": "The loops" }, code(...lines))),
  );
  const agreement = byId("agreement");
  if (loops_agree === null) {
    writeText(agreement,
      `${
        products.toLocaleString("en-US")
      } products are too many for the loops of this page, which run up to 2,000; PyTorch computed the values.`);
    return;
  }
  const apart = loops_max_difference === 0 ? "no element differs"
    : `they differ by at most ${significant(loops_max_difference)}, because of rounding`;
  writeText(agreement,
    loops_agree ? `Loops and torch.einsum agree: ${apart}.`
      : `Loops and torch.einsum differ by ${significant(loops_max_difference)}, more than rounding explains.`);
}

/** @param {string} line @returns {(Node | string)[]} with the comment, the index's role, in its colour */
function highlighted(line) {
  const at = line.indexOf("#");
  if (at < 0) return [line];
  return [line.slice(0, at), span(`role-comment ${line.slice(at + 1).trim()}`, line.slice(at))];
}

/** @param {EinsumAnswer} answer */
function showSublists({ sublists, sublists_agree }) {
  const call = byId("sublist-call");
  writeText(call, sublists);
  call.parentElement?.querySelector(".agreement")?.remove();
  call.after(span("agreement soft", sublists_agree ? " — gives the same result" : " — gives another result"));
}

/** @param {EinsumAnswer} answer */
function showChapterRules({ chapter_rules }) {
  const items = chapter_rules.map(({ rule, broken_by }, at) =>
    html("li", { class: broken_by.length === 0 ? "" : "broken" }, `“${rule}” `,
      ...(broken_by.length === 0 ? [span("soft", "Followed.")]
        : [strong("odd", "Broken: "), code(broken_by.join(", ")),
          ` ${broken_by.length === 1 ? "is" : "are"} ${BREACHES[at] ?? ""}.`]))
  );
  byId("chapter-rules").replaceChildren(...items);
}
