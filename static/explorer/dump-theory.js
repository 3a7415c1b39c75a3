/** What theory says of a dump that the server was opened with: the server is asked for it once the dump is on the
 * screen. */

import { API, ApiError, getJson } from "../core/api.js";

/** @param {number} index of the dump
 * @returns {Promise<Omit<Theory, "seq"> | null>} null where it cannot be had: the dump shows without it */
export async function theoryOfDump(index) {
  try {
    return await getJson(`${API}/dump.json?index=${index}&what=theory`);
  } catch (problem) {
    if (problem instanceof ApiError) return null;
    throw problem;
  }
}
