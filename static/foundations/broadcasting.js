/** The page of broadcasting: what its JSON twin answers, drawn. */

import { ApiError } from "../core/api.js";
import { startPage } from "../core/chapter/page.js";
import { showNormalized, showWays } from "./broadcasting/added-dimensions.js";
import { showCopies, showStorage } from "./broadcasting/copies.js";
import { findAnswer, markStale } from "./broadcasting/sections.js";
import { showFault, showSteps } from "./broadcasting/steps.js";
import { wireTrap } from "./broadcasting/trap.js";

const PATH = "/foundations/broadcasting.json";

const showTrap = wireTrap();

startPage({
  async load(_, { signal, query, partial }) {
    const found = await findAnswer(PATH, query, signal);
    const [first] = found.errors;
    if (first === undefined) return found;
    partial(found);
    throw new ApiError(first, 422);
  },
  show(/** @type {SectionsAnswer} */ { answer, errors, stale }, values) {
    markStale(stale);
    for (const error of errors) showFault(error);
    if (!stale.has("two-shapes")) {
      showSteps(answer);
      showStorage(answer);
      showCopies(answer);
    }
    if (!stale.has("added-dimensions")) showWays(answer.added_dimensions);
    if (!stale.has("scalars")) showNormalized(answer.normalized, answer.added_dimensions.m);
    if (!stale.has("the-trap")) showTrap(answer.trap, values);
  },
  failed({ code }) {
    // A fault of an input is drawn by then; without any answer nothing is current.
    if (code !== "invalid_input") markStale("all");
  },
});
