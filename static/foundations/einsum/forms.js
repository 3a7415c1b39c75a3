/** The same einsum in other forms: as loops, and as sublists. */

import { html, writeText } from "../../core/dom.js";
import { significant } from "../../core/format.js";

/** @param {EinsumAnswer} answer */
export function showLoops({ loops, loops_agree, loops_max_difference, products }) {
  const lines = loops.split("\n").map((text) =>
    html("span", { class: "line" }, html("span", { class: "code" }, ...highlighted(text), "\n"))
  );
  document.querySelector("#written-loops")?.replaceChildren(
    html("div", { class: "listing" },
      html("pre", { tabindex: "0", "aria-label": "The loops" }, html("code", {}, ...lines))),
  );
  const agreement = document.querySelector("#agreement");
  if (agreement === null) return;
  if (loops_agree === null) {
    writeText(agreement,
      `${
        products.toLocaleString("en-US")
      } products are too many for loops in Python on this page, which runs up to 2,000; PyTorch computed the values.`);
    return;
  }
  const apart = loops_max_difference === 0 ? "no element differs"
    : `they differ by ${significant(loops_max_difference)} at most, by rounding`;
  writeText(agreement,
    loops_agree ? `Loops and torch.einsum agree: ${apart}.`
      : `Loops and torch.einsum differ by ${significant(loops_max_difference)}, more than rounding explains.`);
}

/** @param {string} line @returns {(Node | string)[]} the comment, which is the index's role, in its colour */
function highlighted(line) {
  const at = line.indexOf("#");
  if (at < 0) return [line];
  return [line.slice(0, at), html("span", { class: `role-comment ${line.slice(at + 1).trim()}` }, line.slice(at))];
}

/** @param {EinsumAnswer} answer */
export function showSublists({ sublists, sublists_agree }) {
  const call = document.querySelector("#sublist-call");
  if (call !== null) writeText(call, sublists);
  call?.parentElement?.querySelector(".agreement")?.remove();
  call?.after(
    html("span", { class: "agreement soft" },
      sublists_agree ? " — computed too, with the same result" : " — computed too, with another result"),
  );
}

/** What breaks a rule of the chapter's, in their order. */
const BREACHES = ["repeated, and yet kept in the output", "in the operands more than twice",
  "not repeated, and yet summed"];

/** @param {EinsumAnswer} answer */
export function showChapterRules({ chapter_rules }) {
  const items = chapter_rules.map(({ rule, broken_by }, at) =>
    html("li", { class: broken_by.length === 0 ? "" : "broken" }, `“${rule}” `,
      ...(broken_by.length === 0 ? [html("span", { class: "soft" }, "Followed.")]
        : [html("strong", {}, "Broken: "), html("code", {}, broken_by.join(", ")),
          ` ${broken_by.length === 1 ? "is" : "are"} ${BREACHES[at] ?? ""}.`]))
  );
  document.querySelector("#chapter-rules")?.replaceChildren(...items);
}
