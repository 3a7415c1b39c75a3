/** The live page of all runs of a folder. It asks for what is new, as long as the page is visible.
 *
 *   list of runs → steps of each shown run, layers of the chosen run → elements; fragment of the address ↔ choices */

import { oncePerFrame } from "./core/activity.js";
import { ApiError, getJson } from "./core/api.js";
import { isDarkScheme, onSchemeChange } from "./core/colours.js";
import { html } from "./core/dom.js";
import { BoardRun, lineOf } from "./core/lab/board-run.js";
import "./elements/run-curves.js";
import "./elements/run-layers.js";
import "./elements/run-list.js";

/** ms between two requests while a run is written or none is there, and otherwise. */
const [LIVE_MS, CALM_MS] = [1000, 3000];
/** A run without an end that nobody has written for so many seconds is not live. */
const QUIET = 600;
/** Runs that are shown at first: the newest ones. */
const SHOWN = 10;
const CURVES =
  /** @type {[RunCurve, string][]} */ ([["loss", "Loss"], ["gradient_norm", "Norm of all gradients"], ["lr",
    "Learning rate"]]);

/** @param {string} selector @returns {any} */
const find = (selector) => document.querySelector(selector);
const { base } = JSON.parse(find("#page-data").textContent);
const [list, curves, layers] = [find("run-list"), find("run-curves"), find("run-layers")];
const [empty, board, problem] = [find("#empty"), find("#board"), find("#problem")];

/** The choices that the address has. */
const choice = { run: "", part: "", statistic: "", curve: /** @type {RunCurve} */ ("loss"), isLog: true,
  shown: /** @type {Map<string, boolean>} */ (new Map()) };
/** @type {RunEntry[]} */
let entries = [];
/** By name. @type {Map<string, BoardRun>} */
const known = new Map();
/** The step that is pointed at. @type {number | null} */
let step = null;

// Controls of the curves

const curve = html("select", { "aria-label": "Curve" });
curve.append(...CURVES.map(([value, text]) => html("option", { value }, text)));
curve.addEventListener("change", () => choose({ curve: /** @type {RunCurve} */ (curve.value) }));
const scales = [true, false].map((isLog) => {
  const button = html("button", { type: "button" }, isLog ? "log" : "linear");
  button.addEventListener("click", () => choose({ isLog }));
  return { isLog, button };
});
const title = html("span", {}, curve,
  html("span", { class: "segmented small", role: "group", "aria-label": "Scale" },
    ...scales.map(({ button }) => button)));

/** @param {Partial<typeof choice>} change */
function choose(change) {
  Object.assign(choice, change);
  history.replaceState(null, "", `#${fragment()}`);
  show();
  void refresh();
}

function fragment() {
  const parts = new URLSearchParams();
  for (const name of /** @type {const} */ (["run", "part", "statistic"]))
    if (choice[name] !== "") parts.set(name, choice[name]);
  if (choice.curve !== "loss") parts.set("curve", choice.curve);
  if (!choice.isLog) parts.set("scale", "linear");
  for (const [name, isShown] of choice.shown) parts.append(isShown ? "show" : "hide", name);
  return parts;
}

function readFragment() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const name of /** @type {const} */ (["run", "part", "statistic"])) choice[name] = parts.get(name) ?? "";
  choice.curve = CURVES.find(([name]) => name === parts.get("curve"))?.[0] ?? "loss";
  choice.isLog = parts.get("scale") !== "linear";
  choice.shown = new Map(["show", "hide"].flatMap((name) => parts.getAll(name).map((each) => [each, name === "show"])));
}

// From the server

let isAsking = false;
let isStale = false;
let timer = 0;

/** Asks for what is new; while it does, once more afterwards. */
async function refresh() {
  isStale = true;
  if (isAsking) return;
  isAsking = true;
  clearTimeout(timer);
  while (isStale) {
    isStale = false;
    try {
      await ask();
      problem.hidden = true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.textContent = `${error.message} The page tries again.`;
      problem.hidden = false;
    }
  }
  isAsking = false;
  // Not counted as work: nothing may ever come.
  if (document.visibilityState === "visible") timer = setTimeout(refresh, isLive() ? LIVE_MS : CALM_MS);
}

function isLive() {
  const now = Date.now() / 1000;
  return !entries.some(({ error }) => error === null)
    || entries.some(({ error, ended, written }) => error === null && ended === null && now - written < QUIET);
}

async function ask() {
  entries = (await getJson(`${base}.json`)).runs;
  for (const { name, started, error } of entries) {
    const run = known.get(name);
    if (error !== null || (run !== undefined && run.started !== started)) known.delete(name);
  }
  show();
  const wanted = entries.filter((entry) => entry.error === null && (isShown(entry) || entry.name === chosen()));
  await Promise.all(wanted.map(askRun));
  show();
}

/** @param {RunEntry} entry */
async function askRun({ name, started, state }) {
  const run = known.get(name) ?? new BoardRun(name, started ?? 0);
  known.set(name, run);
  try {
    if (run.state !== state) {
      const { after } = run;
      run.take(await getJson(`${base}/steps.json?${new URLSearchParams({ run: name, after: `${after}` })}`), after);
      run.state = state;
      show();
    }
    if (name === chosen()) await Promise.all(tablesOf(run).map((table) => askTable(run, state, ...table)));
    run.problem = "";
  } catch (error) {
    if (!(error instanceof ApiError) || error.isOfNobody) throw error;
    run.problem = error.message;
  }
}

/** @param {BoardRun} run @returns {[part: string, statistic: string][]} what is shown of its layers */
function tablesOf(run) {
  const [part, statistic] = [partOf(run), statisticOf(run)];
  return [...(run.parts.includes("update") ? [["update", "ratio"]] : []),
    ...(part === "" || (part === "update" && statistic === "ratio") ? [] : [[part, statistic]])].map(
      ([one = "", other = ""]) => [one, other]
    );
}

/** @param {BoardRun} run @param {string} state @param {string} part @param {string} statistic */
async function askTable(run, state, part, statistic) {
  const table = run.table(part, statistic);
  if (table.state === state) return;
  const after = `${table.after}`;
  table.take(await getJson(`${base}/rows.json?${new URLSearchParams({ run: run.name, part, statistic, after })}`));
  table.state = state;
}

// To the elements

/** @param {RunEntry} entry @returns {boolean} */
function isShown({ name, error }) {
  const good = entries.filter((entry) => entry.error === null);
  return error === null && (choice.shown.get(name) ?? good.slice(-SHOWN).some((entry) => entry.name === name));
}

/** The run whose layers are shown: the chosen one, else the newest. */
function chosen() {
  const good = entries.filter(({ error }) => error === null);
  return good.find(({ name }) => name === choice.run)?.name ?? good.at(-1)?.name ?? "";
}

/** @param {BoardRun} run @returns {string} "" before it has any */
function partOf({ parts }) {
  return [choice.part, "activation"].find((part) => parts.includes(part)) ?? parts[0] ?? "";
}

/** @param {BoardRun} run @returns {string} */
function statisticOf(run) {
  const known = [...run.statistics, ...(partOf(run) === "update" ? ["ratio"] : [])];
  return [choice.statistic, "std"].find((name) => known.includes(name)) ?? known[0] ?? "";
}

const show = oncePerFrame(() => {
  const isDark = isDarkScheme();
  const runs = entries.map((entry, place) => ({ entry, run: known.get(entry.name) ?? null, isShown: isShown(entry),
    line: lineOf(place, isDark) })
  );
  empty.hidden = entries.length > 0;
  board.hidden = entries.length === 0;
  curve.value = choice.curve;
  for (const { isLog, button } of scales) button.setAttribute("aria-pressed", String(isLog === choice.isLog));
  list.show(runs, choice.curve, step);
  curves.show({ runs, curve: choice.curve, isLog: choice.isLog, step, title });
  const run = known.get(chosen()) ?? null;
  layers.show({ runs: entries.filter(({ error }) => error === null).map(({ name }) => name), run,
    part: run === null ? "" : partOf(run), statistic: run === null ? "" : statisticOf(run), step,
    last: run?.last ?? 1 });
});

/** @template T @param {string} type @param {(detail: T) => void} listener */
function on(type, listener) {
  document.addEventListener(type, (event) => listener(/** @type {CustomEvent<T>} */ (event).detail));
}

on("run-toggle",
  (/** @type {{name: string, isShown: boolean}} */ { name, isShown }) =>
    choose({ shown: new Map([...choice.shown, [name, isShown]]) }));
on("layers-change", (/** @type {Partial<typeof choice>} */ change) => choose(change));
on("cursor-change", (/** @type {{step: number | null}} */ { step: next }) => {
  if (step === next) return;
  step = next;
  show();
});
addEventListener("hashchange", () => {
  readFragment();
  void refresh();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (document.visibilityState === "visible") void refresh();
});
onSchemeChange(show);

readFragment();
void refresh();
