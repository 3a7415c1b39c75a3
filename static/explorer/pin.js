/** Run A, the one that is compared to: a dump that is open, or asked for by its address, and again while the server
 * is busy. */

import { ApiError, getJson, profilePath } from "../core/api.js";
import { runOfDump } from "../core/lab/dump-run.js";
import { pinnedOf } from "./dump.js";

const AGAIN_MS = 2000;

/** @param {Signal<PinnedRun | null>} pinned becomes the run
 * @param {Signal<ErrorBody | null>} problem becomes what is wrong with it
 * @param {() => void} release is called where the address is at fault, and no run can be had
 * @param {(index: number) => Promise<OpenedDump>} take a dump that is open
 * @param {(query: string) => Spec} specOf a query
 * @returns {(a: string) => Promise<void>} takes the run as it stands in the address, "" for none */
export function connectPin(pinned, problem, take, release, specOf) {
  /** What is asked for, and may not be there yet. */
  let pinning = "";

  /** @param {string} a
   * @param {boolean} [isAgain] whether it was asked for before: what was said of it stands until there is news */
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
      const run = dump >= 0 ? runOfDump(await take(dump)) : await runOf(query);
      if (pinning !== a) return;
      problem.value = null;
      pinned.value = run;
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      if (pinning !== a) return;
      problem.value = { ...failure.body, message: `Run A: ${failure.body.message}`, field: null };
      // A mistake in the address will not mend; a busy server may.
      if (failure.status >= 400 && failure.status < 500) {
        release();
        return;
      }
      pinning = "";
      setTimeout(() => {
        // Unless something else has been asked for meanwhile.
        if (pinning === "") void pin(a, true);
      }, AGAIN_MS);
    }
  }

  /** @param {string} query @returns {Promise<PinnedRun>} */
  async function runOf(query) {
    /** @type {ProfileDump} */
    const profile = await getJson(profilePath(query));
    // That of a model of one's own has none: it is the what-if that was asked for.
    return { query, profile: { ...profile, spec: profile.spec ?? specOf(query) } };
  }

  return (a) => pin(a);
}
