/** Run A, the pinned one: an open dump, or a run that the server computes, asked again while the server is busy. */

import { ApiError, apiPath, getJson } from "../core/api.js";
import { runOfDump } from "../core/lab/dump-run.js";
import { pinnedOf } from "./dump.js";

const AGAIN_MS = 2000;

/** @param {Signal<PinnedRun | null>} pinned @param {Signal<ErrorBody | null>} problem
 * @param {() => void} release called when the address is at fault
 * @param {(index: number) => Promise<OpenedDump>} take an open dump @param {(query: string) => Spec} specOf
 * @returns {(a: string) => Promise<void>} the run in the address, "" for none */
export function connectPin(pinned, problem, take, release, specOf) {
  /** The run asked for last. */
  let pinning = "";

  /** @param {string} a @param {boolean} [isAgain] a retry: its message stays until there is news */
  async function pin(a, isAgain = false) {
    if (a === pinning) return;
    pinning = a;
    document.querySelector("#pin")?.setAttribute("aria-pressed", String(a !== ""));
    if (a === "") {
      pinned.value = null;
      return;
    }
    if (!isAgain) problem.value = null;
    const query = a.replace(/^\?/, "");
    try {
      const dump = pinnedOf(a);
      /** @type {ProfileDump | null} */
      const profile = dump >= 0 ? null : await getJson(apiPath("profile.json", query));
      // A user's own model answers no spec: the query is its what-if.
      const run = profile === null ? runOfDump(await take(dump))
        : { query, profile: { ...profile, spec: profile.spec ?? specOf(query) } };
      if (pinning !== a) return;
      problem.value = null;
      pinned.value = run;
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      if (pinning !== a) return;
      problem.value = { ...failure.body, message: `Run A: ${failure.body.message}`, field: null };
      // A mistake in the address stays; a busy server recovers.
      if (failure.status >= 400 && failure.status < 500) {
        release();
        return;
      }
      pinning = "";
      setTimeout(() => {
        if (pinning === "") void pin(a, true);
      }, AGAIN_MS);
    }
  }

  return (a) => pin(a);
}
