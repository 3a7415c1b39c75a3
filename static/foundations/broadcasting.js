/** The page of broadcasting: what its JSON twin answers, drawn. */

import { startPage } from "../core/chapter/page.js";
import { showWays, showNormalized } from "./broadcasting/added-dimensions.js";
import { showCopies, showStorage } from "./broadcasting/copies.js";
import { showFault, showSteps } from "./broadcasting/steps.js";
import { wireTrap } from "./broadcasting/trap.js";

const showTrap = wireTrap();

startPage({
  show(answer) {
    showSteps(answer);
    showStorage(answer);
    showCopies(answer);
    showWays(answer.added_dimensions);
    showNormalized(answer.normalized, answer.added_dimensions.m);
    showTrap(answer.trap);
  },
  failed(error) {
    showFault(error);
  },
});
