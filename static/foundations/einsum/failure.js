/** An equation that makes no sense: where, why, and what PyTorch says. */

import { html } from "../../core/dom.js";

/** @typedef {{text: string, position: number, explanation: string, torch: string | null, shapes: string | null}}
 * Fault */

/** @param {ErrorBody} error with a place in the text, or another one, which stands beside its control */
export function showFailure(error) {
  const fault = /** @type {Partial<Fault> | null | undefined} */ (error.limit);
  if (typeof fault !== "object" || fault === null || typeof fault.text !== "string" || fault.position === undefined)
    return hideFailure();
  const { text, position, explanation = "", torch, shapes } = fault;
  const note = html("div", { class: "remark fault" },
    html("pre", { class: "caret", "aria-label": `at character ${position + 1} of ${text}` }, marked(text, position)),
    html("p", {}, `${explanation.charAt(0).toUpperCase()}${explanation.slice(1)}.`));
  if (torch) note.append(html("p", { class: "soft" }, "PyTorch stops at this: ", html("code", {}, torch)));
  if (shapes) {
    const set = new URLSearchParams({ shapes }).toString();
    note.append(
      html("p", {},
        html("button", { type: "button", class: "button", "data-set": set }, `Take shapes that fit: ${shapes}`)),
    );
  }
  document.querySelector("#failure")?.replaceChildren(note);
}

export function hideFailure() {
  document.querySelector("#failure")?.replaceChildren();
}

/** @param {string} text @param {number} position
 * @returns {string} the text, with a caret under the character at fault */
function marked(text, position) {
  // The server counts characters, JavaScript counts the halves of those outside the basic plane.
  const characters = [...text].map((each) => /\s/.test(each) ? " " : each);
  return `${characters.join("")}\n${" ".repeat(position)}^`;
}
