/** What the tests share: answers of the server, what test_javascript.py computed, and comparisons of numbers. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { buildGraph } from "../../static/core/graph/graph.js";
import { pictureOfDump } from "../../static/core/picture.js";

export const made = JSON.parse(readFileSync(process.env.MADE, "utf8"));

/** The text at a path of the server. */
export async function answer(path) {
  const response = await fetch(process.env.SERVER + path);
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.text();
}

export const dumpOf = async (query) => JSON.parse(await answer(`/api/v1/trace.json?${query}`));
export const profileOf = async (query) => JSON.parse(await answer(`/api/v1/profile.json?${query}`));

/** The data in the page of a query, as text. */
export async function pageData(query) {
  return /<script type="application\/json" id="page-data">(.*?)<\/script>/s.exec(await answer(`/?${query}`))[1];
}

export const pictureOf = (dump) => pictureOfDump(dump, 1, "k");
export const graphOf = (dump) => buildGraph({ ...dump, op_us: null });

/** The statistics of a dump by tensor name and column. */
export function columnsOf({ tensors, statistics }) {
  const ids = new Map(tensors.map(({ id, name }) => [name, id]));
  return (name, column) => statistics[column][statistics.tensor.indexOf(ids.get(name))];
}

/** A picture in which the std of a tensor waits for a guess. */
export function hiding(picture, name) {
  const row = picture.rows.get(picture.topology.tensors.find((tensor) => tensor.name === name).id);
  return { ...picture, hidden: { row, rows: new Set([row]), loss: false, tensor: name, statistic: "std" } };
}

/** Compares a number, or lists of them. */
export function near(found, wanted, relative = 1e-6, absolute = 1e-12) {
  if (typeof wanted !== "number") {
    assert.equal(found.length, wanted.length);
    for (let at = 0; at < wanted.length; at += 1) near(found[at], wanted[at], relative, absolute);
  } else if (!Object.is(found, wanted)) {
    const within = Math.max(absolute, relative * Math.abs(wanted));
    assert.ok(Math.abs(found - wanted) <= within, `${found} is not ${wanted} ± ${within}`);
  }
}

export const isRising = (values) => values.every((value, at) => at === 0 || values[at - 1] <= value);

/** Asserts that a list or a set holds all of some values, and none of others. */
export function holds(values, wanted, unwanted = []) {
  const found = new Set(values);
  for (const value of wanted) assert.ok(found.has(value), `${value} is missing`);
  for (const value of unwanted) assert.ok(!found.has(value), `${value} is there`);
}

/** Relative luminance of a colour, WCAG 2.2. */
export function luminance(colour) {
  const parts = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255);
  const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}

/** The colours of the style sheet, by name, in the light and in the dark scheme. */
export function schemeColours() {
  const text = readFileSync(new URL("../../static/css/tokens.css", import.meta.url), "utf8");
  return text.split("@media (prefers-color-scheme: dark)")
    .map((part) => Object.fromEntries([...part.matchAll(/--([\w-]+): (#\w{6})/g)].map(([, name, hex]) => [name, hex])));
}
