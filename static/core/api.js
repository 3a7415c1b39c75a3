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
  const response = await get(path, "application/json", signal);
  const body = await response.json().catch(() => null);
  if (body === null) throw unreadable(response);
  return body;
}

/**
 * @param {string} path
 * @returns {Promise<string>} the body as text
 * @throws {ApiError}
 */
export async function getText(path) {
  return (await get(path, "*/*")).text();
}

/**
 * @param {string} path
 * @param {string} accept
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>} one that went well
 */
async function get(path, accept, signal) {
  let response;
  try {
    response = await fetch(path, { signal: signal ?? null, headers: { accept } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError({ code: "unreachable", message: "The server cannot be reached." }, 0);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw body?.error === undefined ? unreadable(response) : new ApiError(body.error, response.status);
}

/** @param {Response} response @returns {ApiError} */
function unreadable({ status }) {
  return new ApiError({ code: "unreadable", message: `The server answered ${status} without saying why.` }, status);
}

/**
 * @param {string} kind json, dot, model-explorer.json or py
 * @param {string} query
 * @returns {string}
 */
export function tracePath(kind, query) {
  return `${API}/trace.${kind}${query && `?${query}`}`;
}

/**
 * @param {string} statistic
 * @param {string} query
 * @returns {string}
 */
export function nodeDataPath(statistic, query) {
  return `${API}/node-data.json?statistic=${statistic}${query && `&${query}`}`;
}

/**
 * @param {string} query
 * @returns {string}
 */
export function profilePath(query) {
  return `${API}/profile.json${query && `?${query}`}`;
}

/** @returns {string} */
export function liveUrl() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${API}/live`;
}
