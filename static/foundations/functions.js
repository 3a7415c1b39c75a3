/** One call of a custom Function: what goes in, what ctx keeps, what backward gets and gives back. */

import { byId, code, counted, div, factsTable, figure, p, row, span, td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { cellText, shapeText, tensorTable } from "../core/chapter/tensor-table.js";
import { html } from "../core/dom.js";

/** @typedef {{name: string, value?: CellValue, requires_grad: boolean, shape?: number[], values?: any}} Argument */
/** @typedef {{name: string, shape: number[], values: any, requires_grad: boolean, used: boolean}} Output */
/** @typedef {{is: string | null, shape: number[], dtype: string, bytes: number}} Saved */
/** @typedef {object} Backward @property {{name: string, tensor: TensorValues | null}[]} received
 * @property {{name: string | null, needed: boolean, is_tensor: boolean, tensor: TensorValues | null}[]} returned
 * @property {CellValue} max_difference @property {boolean} same_places */
/** @typedef {object} Answer @property {string} function @property {string} class @property {string} formula
 * @property {string} call @property {Argument[]} inputs @property {Output[]} outputs
 * @property {boolean[]} needs_input_grad
 * @property {{node: string, saved: Saved[], bytes: number, attributes: Record<string, CellValue>} | null} context
 * @property {Backward | null} backward
 * @property {{torch: string, keyword_call: string, keyword_error: string | null, max_difference: CellValue, wrapper:
 * {call: string, max_difference: CellValue} | null}} calls */

new ChapterPage({ show });

/** @param {Answer} answer @param {Record<string, string>} values */
function show(answer, values) {
  byId("call").textContent = answer.call;
  byId("formula").textContent = answer.formula;
  byId("forward").replaceChildren(forward(answer));
  byId("context").replaceChildren(...context(answer));
  byId("count").textContent = countText(answer);
  byId("backward").replaceChildren(...backward(answer));
  byId("calls").replaceChildren(calls(answer));
  for (const each of document.querySelectorAll("[data-only]"))
    each.toggleAttribute("hidden", each.getAttribute("data-only") !== answer.function);
  for (const each of document.querySelectorAll("[data-function]")) {
    const name = each.getAttribute("data-function");
    each.toggleAttribute("hidden",
      name === "sin_cos_sparing" ? answer.class !== "SinCosSparing" : name !== answer.function);
  }
  byId("check-link").setAttribute("href",
    `/foundations/gradcheck?function=${encodeURIComponent(values["function"] ?? "")}`);
}

/** @param {Answer} answer @returns {HTMLElement} */
function forward({ inputs, outputs }) {
  const into = inputs.map((each) =>
    value(each.name, tensorOf(each), each.value, flag("requires_grad", each.requires_grad, each.shape !== undefined))
  );
  const out = outputs.map((each) => value(each.name, each, undefined, flag("requires_grad", each.requires_grad, true)));
  return div("flow", ...into, html("span", { class: "arrow", "aria-label": "forward" }, "→"), ...out);
}

/** @param {Argument} argument @returns {TensorValues | null} */
function tensorOf({ shape, values }) {
  return shape === undefined ? null : { shape, values };
}

/** @param {string} title @param {TensorValues | null} tensor @param {CellValue | undefined} plain if it is no tensor
 * @param {HTMLElement | string} [note] @returns {HTMLElement} */
function value(title, tensor, plain, note = "") {
  const body = tensor !== null ? tensorTable(tensor, { label: title })
    : html("span", { class: plain === null || plain === undefined ? "none" : "plain" },
      plain === undefined ? "None" : cellText(plain));
  const head = tensor === null ? [span("title", title)] : [];
  return html("div", { class: "value", "data-name": title }, ...head, body, note === "" ? "" : span("soft", note));
}

/** @param {string} name @param {boolean} isOn @param {boolean} isTensor @returns {HTMLElement | string} */
function flag(name, isOn, isTensor) {
  if (!isTensor) return "not a tensor";
  return span(isOn ? "good" : "muted", `${name}=${isOn ? "True" : "False"}`);
}

/** @param {Answer} answer @returns {HTMLElement[]} */
function context({ context: kept, needs_input_grad: needs, inputs, class: name }) {
  const tuple = p("tuple",
    code(
      `ctx.needs_input_grad == (${needs.map((each) => each ? "True" : "False").join(", ")}${
        needs.length === 1 ? "," : ""
      })`,
    ), `, one value for each of ${inputs.map((each) => each.name).join(", ")}`);
  if (kept === null)
    return [
      p("",
        "Nothing: no input requires grad, so autograd adds no node to the graph, and ctx is deleted when forward returns."),
      tuple,
    ];
  const rows = kept.saved.map((each, at) =>
    row(code(`ctx.saved_tensors[${at}]`),
      td("", each.is === null ? "a new tensor" : code(each.is), each.is === null ? "" : " itself, not a copy"),
      td("", shapeText(each.shape)), td("", each.dtype), td("number", `${each.bytes} B`))
  );
  for (const [attribute, held] of Object.entries(kept.attributes)) {
    rows.push(
      row(code(`ctx.${attribute}`), td("", code(cellText(held)), ", a plain attribute"), td(""), td(""), td("")),
    );
  }
  if (rows.length === 0) rows.push(html("tr", {}, td("", "nothing")));
  return [
    p("",
      `The node ${kept.node} of the graph holds them: ${name} keeps ${kept.bytes} bytes of tensors in memory until backward has run.`),
    div("scroll", factsTable(["", "is", "shape", "dtype", "memory"], rows)),
    tuple,
  ];
}

/** @param {Answer} answer @returns {string} */
function countText({ outputs, inputs, backward: found }) {
  const [into, out] = [inputs.length, outputs.length];
  const head = `forward took ${counted(into, "argument")} and returned ${counted(out, "output")}`;
  if (found === null) return `${head}; backward was never called.`;
  const surplus = found.returned.length - into;
  const extra = surplus > 0
    ? ` (${surplus === 1 ? "one None" : `${surplus} None`} more than forward has arguments: autograd ignores this)`
    : "";
  return `${head}, so backward got ${
    counted(found.received.length, "gradient")
  } and returned ${found.returned.length}${extra}.`;
}

/** @param {Answer} answer @returns {HTMLElement[]} */
function backward({ backward: found, outputs }) {
  if (found === null)
    return [p("", "No input requires grad, so autograd does not call backward.")];
  const received = found.received.map((each, at) => {
    const isUsed = outputs[at]?.used ?? true;
    const note = isUsed ? ""
      : each.tensor === null ? "not used: None, because of set_materialize_grads(False)"
      : "not used: autograd made zeros for it";
    return value(each.name, each.tensor, undefined, note);
  });
  const returned = found.returned.map((each) => {
    const note = each.tensor !== null ? (each.needed ? "" : "not needed: autograd drops it")
      : each.name === null ? "for a missing argument"
      : each.is_tensor ? "not needed: not computed" : "not a tensor: no gradient";
    return value(each.name === null ? "(surplus)" : `for ${each.name}`, each.tensor, undefined, note);
  });
  const same = found.same_places ? "" : " Different inputs have a gradient.";
  return [
    group("got", received),
    group("returned", returned),
    html("p", { id: "agreement" },
      `Largest difference from autograd's gradients of the plain expression: ${figure(found.max_difference)}.${same}`),
  ];
}

/** @param {string} name @param {HTMLElement[]} members @returns {HTMLElement} */
function group(name, members) {
  return html("div", { class: "group", "data-group": name }, p("name soft", name), div("flow", ...members));
}

/** @param {Answer} answer @returns {HTMLElement} */
function calls({ call, calls: ways }) {
  const keyword = ways.keyword_error === null
    ? `accepted by torch ${ways.torch}, largest difference ${
      figure(ways.max_difference)
    }; older versions raise a TypeError` : ways.keyword_error;
  const rows = [
    [call, "as above"],
    [ways.keyword_call, keyword],
    ...(ways.wrapper === null ? []
      : [[ways.wrapper.call, `the wrapper, largest difference ${figure(ways.wrapper.max_difference)}`]]),
  ];
  return factsTable([], rows.map(([way = "", said = ""]) => row(code(way), td("", said))));
}
