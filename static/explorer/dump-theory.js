/** Theory of a server's dump, asked for once the dump is shown. */

import { API, ApiError, getJson } from "../core/api.js";

/** @param {number} index of the dump @returns {Promise<Omit<Theory, "seq"> | null>} null: the dump shows without it */
export async function theoryOfDump(index) {
  try {
    return await getJson(`${API}/dump.json?index=${index}&what=theory`);
  } catch (problem) {
    if (problem instanceof ApiError) return null;
    throw problem;
  }
}
