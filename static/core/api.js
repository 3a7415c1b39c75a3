/** HTTP: paths, and the one error shape. */

import { during } from "./activity.js";

export const API = "/api/v1";

/** The path before traces, profiles, values and the live socket; it differs for a user's model. */
let base = API;

/** @param {string} path that these addresses begin with, from here on */
export function useBase(path) {
  base = path;
}

/** ms that a server which can be reached needs at most for saying so */
const REACHED_WITHIN = 2000;

const UNREADABLE = "unreadable";

/** An error from the server or from the connection. */
export class ApiError extends Error {
  /** @param {ErrorBody} body @param {number} status 0 when no answer came
   * @param {number | null} [retryAfter] seconds after which to ask again, where the answer says */
  constructor(body, status, retryAfter = null) {
    super(body.message);
    this.body = body;
    this.status = status;
    this.retryAfter = retryAfter;
  }

  /** Whether no server of ours has answered: the connection broke, or a proxy finds none behind it. */
  get isOfNobody() {
    return this.status === 0 || (this.body.code === UNREADABLE && [200, 502, 503, 504].includes(this.status));
  }
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} the JSON body @throws {ApiError} */
export function getJson(path, signal) {
  return during(json(path, signal));
}

/** @param {string} path @returns {Promise<string>} the body as text @throws {ApiError} */
export function getText(path) {
  return during(get(path, "*/*").then((response) => response.text()));
}

/** @param {string} path @returns {Promise<Response>} whose body may still arrive @throws {ApiError} */
export function getStreamed(path) {
  return during(get(path, "*/*"));
}

/** @param {string} path @param {unknown} body as JSON @param {AbortSignal} [signal]
 * @returns {Promise<any>} the JSON body of the answer @throws {ApiError} */
export function postJson(path, body, signal) {
  return during(json(path, signal, posting(body)));
}

/** @param {string} path @param {unknown} body as JSON @returns {Promise<Blob>} the answer as a file
 * @throws {ApiError} */
export function postForFile(path, body) {
  return during(get(path, "*/*", undefined, posting(body)).then((response) => response.blob()));
}

/** A long answer, a line at a time. @param {string} path @param {unknown} body as JSON @param {AbortSignal} signal
 * @returns {AsyncGenerator<any>} what each line of JSON says @throws {ApiError} also where the answer breaks off */
export async function* postLines(path, body, signal) {
  const response = await get(path, "application/x-ndjson", signal, posting(body));
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", isOver = reader === undefined; !isOver;) {
    const read = await reader?.read().catch((error) => {
      if (signal.aborted) throw error;
      throw unreachable();
    });
    isOver = read?.done ?? true;
    const lines = (rest + (read?.value ?? "")).split("\n");
    // A line without its end has been cut off.
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line);
  }
}

/** @param {unknown} body @returns {RequestInit} */
function posting(body) {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

function unreachable() {
  return new ApiError({ code: "unreachable", message: "The server cannot be reached." }, 0);
}

/** @param {string} path @param {AbortSignal} [signal] @param {RequestInit} [more]
 * @returns {Promise<any>} the JSON body */
async function json(path, signal, more) {
  const response = await get(path, "application/json", signal, more);
  const body = await response.json().catch(() => null);
  // Given up on while the body was on its way.
  signal?.throwIfAborted();
  if (body === null) throw errorOf(response, null);
  return body;
}

/** @param {string} path @param {string} accept @param {AbortSignal} [signal]
 * @param {RequestInit} [more] of a request that is more than a path @returns {Promise<Response>} one that went well */
async function get(path, accept, signal, more = {}) {
  let response;
  try {
    response = await fetch(path, { ...more, signal: signal ?? null, headers: { accept, ...more.headers } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  signal?.throwIfAborted();
  throw errorOf(response, body);
}

/** @param {Response} response @param {{error?: ErrorBody} | null} body null: no JSON @returns {ApiError} */
function errorOf({ status, headers }, body) {
  const unreadable = { code: UNREADABLE, message: `The server answered with status ${status} and gave no reason.` };
  // A proxy may write a date in place of seconds.
  const seconds = /^\d+$/.exec(headers.get("retry-after") ?? "");
  return new ApiError(body?.error ?? unreadable, status, seconds && Number(seconds[0]));
}

/** @returns {Promise<boolean>} whether there is a server, however busy its devices are */
export async function isReachable() {
  try {
    return (await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(REACHED_WITHIN) })).ok;
  } catch {
    return false;
  }
}

/** @param {string} name trace.json, profile.json, tensor.json … @param {string} query @returns {string} */
export function apiPath(name, query) {
  return `${base}/${name}${query && `?${query}`}`;
}

export function liveUrl() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${base}/live`;
}
