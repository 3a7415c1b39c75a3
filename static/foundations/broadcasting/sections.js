/** The page's sections, each of which lives on its own inputs. The twin answers all of them or, where inputs are at
 * fault, none; the page then asks again with those at their defaults, so that only the sections that use them stand
 * still. */

import { ApiError } from "../../core/api.js";
import { answerOf } from "../../core/chapter/page.js";

/** Inputs that each section uses, by the id of its heading. @type {Readonly<Record<string, readonly string[]>>} */
const USED = {
  "two-shapes": ["a", "b", "operator"],
  "added-dimensions": ["c", "m"],
  scalars: ["m", "mean", "std"],
  "the-trap": ["n", "noise", "seed"],
};

/** Inputs that do not fit each other: neither has a default that fits whatever the other is. */
const PAIR = ["a", "b"];

/** @param {string} path of the twin @param {string} query @param {AbortSignal} signal
 * @returns {Promise<SectionsAnswer>} @throws {ApiError} an error that is not of an input */
export async function findAnswer(path, query, signal) {
  const asked = new URLSearchParams(query);
  /** @type {ErrorBody[]} */
  const errors = [];
  const stale = new Set();
  for (;;) {
    try {
      return { answer: await answerOf(path, asked.toString(), signal), errors, stale };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const field = error.body.field ?? "";
      const reset = PAIR.includes(field) ? PAIR : [field];
      // With all of them at their defaults it would have been answered: something else is wrong.
      if (!reset.some((name) => asked.has(name))) throw error;
      errors.push(error.body);
      for (const name of reset) asked.delete(name);
      for (const [section, used] of Object.entries(USED))
        if (used.some((name) => reset.includes(name))) stale.add(section);
    }
  }
}

/** Dims the figures of some sections, those of the others are current. @param {ReadonlySet<string> | "all"} stale */
export function markStale(stale) {
  for (const section of Object.keys(USED)) {
    document.getElementById(section)?.closest("section")?.toggleAttribute("data-stale",
      stale === "all" || stale.has(section));
  }
}
