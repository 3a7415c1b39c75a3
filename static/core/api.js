/** HTTP: paths, and the one error shape. */

/** @typedef {import("./types.js").ErrorBody} ErrorBody */

export const API = "/api/v1";

/** What the server, or the way to it, says is wrong. */
export class ApiError extends Error {
  /**
   * @param {ErrorBody} body
   * @param {number} status 0 when no answer came
   */
  constructor(body, status) {
    super(body.message);
    this.body = body;
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} the JSON body
 * @throws {ApiError}
 */
export async function getJson(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal: signal ?? null, headers: { accept: "application/json" } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError({ code: "unreachable", message: "The server cannot be reached." }, 0);
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  /** @type {ErrorBody} */
  const fallback = { code: "unreadable", message: `The server answered ${response.status} without saying why.` };
  throw new ApiError(body?.error ?? fallback, response.status);
}

/**
 * @param {string} kind json, dot or model-explorer.json
 * @param {string} query
 * @returns {string}
 */
export function tracePath(kind, query) {
  return `${API}/trace.${kind}${query && `?${query}`}`;
}

/** @returns {string} */
export function liveUrl() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${API}/live`;
}
