/** The page of einsum: what its JSON twin answers, drawn. */

import { startPage } from "../core/chapter/page.js";
import { hideFailure, showFailure } from "./einsum/failure.js";
import { showAnatomy, showIndices } from "./einsum/indices.js";
import { showLoops, showSublists } from "./einsum/forms.js";
import { showValues } from "./einsum/values.js";

startPage({
  show(answer) {
    hideFailure();
    showAnatomy(answer);
    showIndices(answer);
    showValues(answer);
    showLoops(answer);
    showSublists(answer);
  },
  failed(error) {
    showFailure(error);
  },
});

// Who types an equation means it, not the sublists that would stand for it.
document.querySelector("#input-equation")?.addEventListener(
  "input",
  () => {
    const sublists = document.querySelector("#input-sublists");
    if (sublists instanceof HTMLInputElement) sublists.value = "";
  },
  { capture: true },
);
