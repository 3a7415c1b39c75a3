/** The page of einsum: what its JSON twin answers, drawn. */

import { startPage } from "../core/chapter/page.js";
import { hideFailure, showFailure } from "./einsum/failure.js";
import { showAnatomy, showIndices } from "./einsum/indices.js";
import { showChapterRules, showLoops, showSublists } from "./einsum/forms.js";
import { showValues } from "./einsum/values.js";

startPage({
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

// The button that sets shapes that fit goes with the failure: whoever pressed it goes on at the shapes.
document.querySelector("#failure")?.addEventListener("click", (event) => {
  if (event.target instanceof Element && event.target.closest("[data-set]") !== null)
    document.getElementById("input-shapes")?.focus();
});

// Who types an equation means it, not the sublists that would stand for it.
document.querySelector("#input-equation")?.addEventListener("input", () => {
  const sublists = document.querySelector("#input-sublists");
  if (sublists instanceof HTMLInputElement) sublists.value = "";
}, { capture: true });
