/** The C++ extension: whether it is built, what is missing, its gradient check, and the race of four linear layers. */

import { byId, code, counted, div, factsTable, figure, p, row as headedRow, span, strong,
  td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { html } from "../core/dom.js";
import { count, duration } from "../core/format.js";

/** @typedef {{name: string, purpose: string, found: boolean, remedy: string}} Requirement */
/** @typedef {{name: string, code: string, available: boolean, forward_seconds: number | null, backward_seconds:
 * number | null, max_difference: CellValue, equal: boolean | null}} Style */
/** @typedef {{passed: boolean, max_difference: CellValue, torch: {passed: boolean}, shapes: number[][]}} Check */
/** @typedef {{batch: number, fan_in: number, fan_out: number, multiplications: number, threads: number, styles:
 * Style[]}} Race */
/** @typedef {object} Answer
 * @property {{built: boolean, broken: boolean, with_cuda: boolean, file: string | null, reason: string | null,
 * torch: string}} state @property {Requirement[]} requirements @property {Requirement[]} cuda_requirements
 * @property {Check | null} check @property {Race} race
 * @property {{name: string, check: Check, race: Race} | null} gpu where the CUDA kernels can run */

new ChapterPage({ show });

/** @param {Answer} answer */
function show(answer) {
  byId("state").replaceChildren(...state(answer));
  const { gpu } = answer;
  const onGpu = gpu === null ? []
    : [p("", `On the server's GPU, ${gpu.name}; the time includes all kernels:`),
      race(gpu.race, "Time of each style on the GPU")];
  byId("race").replaceChildren(race(answer.race, "Time of each style"), ...onGpu);
  const { multiplications, threads } = answer.race;
  byId("race-note").textContent = `The times are medians, on ${counted(threads, "thread")}. Forward takes ${
    count(multiplications)
  } multiplications, backward twice as many. “Error” is the largest difference of the output and the gradients from float64.`;
  const checks = answer.check === null ? "After the extension is built, the gradient check appears here."
    : checked(answer.check, "On the CPU");
  byId("check").textContent = gpu === null ? checks
    : `${checks} ${checked(gpu.check, "On the GPU, with its own kernels")}`;
}

/** @param {Answer} answer @returns {HTMLElement[]} */
function state({ state: found, requirements, cuda_requirements: cuda }) {
  const missing = requirements.filter((each) => !each.found);
  const line = p("state-line");
  if (found.built) {
    line.append(strong("", "The extension is built"),
      ` for torch ${found.torch}, ${found.with_cuda ? "with" : "without"} CUDA kernels: `, code(found.file ?? ""));
  } else if (found.broken) {
    line.append(strong("", "The extension does not load"), ": run ", code("chainrule build-extension"),
      " to build it again, then reload the page.");
  } else if (missing.length === 0) {
    line.append(strong("", "The extension is not built"), ", but all requirements are met: run ",
      code("chainrule build-extension"), " and reload the page. Until then its row in the race stays empty.");
  } else {
    line.append(strong("", "The extension is not built"), `, and ${
      missing.map((each) => each.name).join(", ")
    } ${
      missing.length === 1 ? "is" : "are"
    } missing on this machine.`);
  }
  return [line, ...(found.built ? [] : [table("Requirements of a build", requirements)]),
    table("More requirements for the CUDA kernels", cuda)];
}

/** @param {string} title @param {readonly Requirement[]} requirements @returns {HTMLElement} */
function table(title, requirements) {
  const rows = requirements.map((each) =>
    headedRow(each.name, td("", each.purpose),
      html("td", { class: each.found ? "good" : "bad" }, each.found ? "✓ found" : "✗ missing"),
      td("", each.found ? "" : each.remedy))
  );
  return div("scroll", factsTable([title, "purpose", "", "remedy"], rows));
}

/** @param {Race} race @param {string} label @returns {HTMLElement} */
function race({ styles }, label) {
  const most = Math.max(...styles.flatMap((each) => [each.forward_seconds ?? 0, each.backward_seconds ?? 0]));
  const titles = ["", "forward, backward", "together", "error"].map((title) =>
    html("span", { role: title === "" ? "cell" : "columnheader" }, title)
  );
  return html("div", { class: "layer-race", role: "table", "aria-label": label },
    html("div", { role: "row", class: "titles" }, ...titles), ...styles.map((each) => row(each, most)));
}

/** @param {Style} style @param {number} most @returns {HTMLElement} */
function row(
  { name, code, available, forward_seconds: forward, backward_seconds: backward, max_difference: difference, equal },
  most,
) {
  const header = html("span", { role: "rowheader", title: code }, name);
  if (!available || forward === null || backward === null) {
    return html("div", { role: "row", "data-style": name }, header,
      html("span", { role: "cell", class: "bars" }, "not built: chainrule build-extension"),
      html("span", { role: "cell" }), html("span", { role: "cell" }));
  }
  return html("div", { role: "row", "data-style": name }, header,
    html("span", { role: "cell", class: "bars" }, bar("forward", forward, most), bar("backward", backward, most)),
    html("span", { role: "cell", class: "times" }, duration((forward + backward) * 1e6)),
    html("span", { role: "cell", class: equal ? "" : "bad",
      title: equal ? "rounding explains this error" : "rounding does not explain this error" },
      `${figure(difference)}${equal ? " ✓" : ": not equal"}`));
}

/** @param {string} pass @param {number} seconds @param {number} most @returns {HTMLElement} */
function bar(pass, seconds, most) {
  const mark = html("i", { "aria-hidden": "true" });
  mark.style.width = `${(seconds / most) * 70}%`;
  return span(`bar ${pass}`, mark, duration(seconds * 1e6));
}

/** @param {Check} check @param {string} where @returns {string} */
function checked(check, where) {
  const agree = check.passed === check.torch.passed ? "torch.autograd.gradcheck agrees"
    : "torch.autograd.gradcheck does not agree";
  return `${where}, in float64, for tensors of ${
    check.shapes.map((shape) => `(${shape.join(", ")})`).join(", ")
  }, the gradient check ${
    check.passed ? "passes" : "fails"
  }. The largest difference between backward and finite differences of forward is ${
    figure(check.max_difference)
  }; ${agree}.`;
}
