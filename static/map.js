/** The page of a map of nets: a form asks for it, the server sends it a task at a time, and a click leads to one net.
 *
 *   form → sweep → run → elements          address ↔ form; a former map is kept, so that Back shows it at once */

import { begin, oncePerFrame } from "./core/activity.js";
import { API, ApiError, postForFile, postLines } from "./core/api.js";
import { html, write, writeText } from "./core/dom.js";
import { count } from "./core/format.js";
import { csv, saveFile } from "./core/lab/csv.js";
import { axisText, parseAxis, partOf } from "./core/map/axis.js";
import { cellQuery, cellText, commandOf, formOf, foundKey, mapQuery, placeOf, tableOf,
  titleOf } from "./core/map/query.js";
import { MapRun } from "./core/map/run.js";
import "./elements/sweep-form.js";
import "./elements/sweep-map.js";
import "./elements/sweep-slices.js";

/** Former maps that are kept. */
const KEPT = 10;
/** Waits after an answer that broke off, s; after the last the page gives up, unless something came. */
const WAITS = [1, 2, 4, 8, 15];
const COPIED_MS = 1500;
const STORE = "chainrule.map";

/** @param {string} selector @returns {any} */
const find = (selector) => document.querySelector(selector);
/** @type {MapPageData} */
const page = JSON.parse(find("#page-data").textContent);
const [map, slices, fields] = [find("sweep-map"), find("sweep-slices"), find("sweep-form")];
const [toggle, open] = [find("#toggle"), find("#open")];

/** By the address's query. @type {Map<string, MapRun>} */
const known = new Map();
/** The map on the page. @type {MapRun | null} */
let run = null;
/** The form of the last request. @type {MapForm} */
const first = { spec: page.query, x: page.form.x ?? overOf("scale"),
  y: page.form.x === null ? overOf("depth") : page.form.y ?? "", seeds: page.form.seeds,
  measure: page.form.measure ?? page.measures[0]?.name ?? "" };
let form = page.error === null ? first : formOf(location.search.slice(1), first);
/** @type {ErrorBody | null} */
let error = page.error;
/** Ends the request whose answer is arriving. @type {AbortController | null} */
let receiving = null;
/** The cell that is pointed at. @type {number | null} */
let cell = null;
/** @typedef {import("./core/map/axis.js").AxisScale} AxisScale */
/** @type {import("./elements/sweep-map.js").MapLook} */
let look = { field: "median", hasContours: false, mode: "zoom" };

// From the server

/** @param {MapForm} asked @param {MapRun | null} before what is there of it @param {boolean} pushes whether the address
 * gets it as a new entry */
async function receive(asked, before, pushes) {
  receiving?.abort();
  const { signal } = receiving = new AbortController();
  [form, error] = [asked, null];
  let own = before;
  for (let tries = 0; !signal.aborted && own?.state !== "done";) {
    const end = begin();
    let wait = /** @type {number | null} */ (WAITS[tries] ?? null);
    tries += 1;
    try {
      show();
      for await (const line of postLines(`${API}/sweeps`, bodyOf(asked, own?.tasks ?? 0), signal)) {
        error = null;
        if (line.type === "error") throw new ApiError(line.error, 200);
        if (line.type !== "plan") {
          tries = 0;
          own?.take(line);
        } else {
          own ??= adopt(new MapRun(asked, line), pushes);
          own.state = "running";
          own.begin(performance.now());
        }
        show();
      }
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof ApiError)) throw problem;
      error = problem.body;
      if (problem.retryAfter !== null) wait = problem.retryAfter;
      else if (own === null || !problem.isOfNobody) wait = null;
    } finally {
      end();
    }
    if (own?.state === "done") break;
    if (own !== null) own.state = wait === null ? "stopped" : "waiting";
    if (wait === null) break;
    show();
    await new Promise((resolve) => setTimeout(resolve, 1000 * Number(wait)));
  }
  if (!signal.aborted) receiving = null;
  show();
}

/** @param {MapForm} asked @param {number} start first task that is not there yet */
function bodyOf({ spec, x, y, seeds, measure }, start) {
  return { spec: Object.fromEntries(new URLSearchParams(spec)), over: [x, y].filter((axis) => axis !== ""), seeds,
    measure, start };
}

/** The server has accepted it. @param {MapRun} next @param {boolean} pushes @returns {MapRun} */
function adopt(next, pushes) {
  if (pushes) history.pushState(null, "", `/map?${mapQuery(next.form)}`);
  known.set(location.search, next);
  for (const oldest of [...known.keys()].slice(0, -KEPT)) known.delete(oldest);
  [run, cell] = [next, null];
  fields.form = next.form;
  return next;
}

function stop() {
  receiving?.abort();
  receiving = null;
  if (run !== null && run.state !== "done") run.state = "stopped";
  show();
}

addEventListener("popstate", () => {
  const asked = formOf(location.search.slice(1), first);
  const former = known.get(location.search) ?? null;
  fields.form = asked;
  if (former === null) return void receive(asked, null, false);
  receiving?.abort();
  [run, cell, form, error, receiving] = [former, null, asked, null, null];
  show();
  if (former.state === "running" || former.state === "waiting") void receive(asked, former, false);
});

// From net to net: a map that was left for one of its nets is there again

addEventListener("pagehide", () => {
  if (run === null) return;
  const kept = { version: page.version, search: location.search, lines: run.lines };
  // There may be no room, or no storage.
  try {
    sessionStorage.setItem(STORE, JSON.stringify(kept));
  } catch {}
});

/** @returns {MapRun | null} */
function keptRun() {
  try {
    const { version, search, lines } = JSON.parse(sessionStorage.getItem(STORE) ?? "{}");
    if (version !== page.version || search !== location.search || page.error !== null) return null;
    const kept = MapRun.of(form, lines);
    if (kept !== null) known.set(search, kept);
    return kept;
  } catch {
    return null;
  }
}

/** @param {string} key of an axis @returns {string} */
function overOf(key) {
  return page.axes.find(({ name }) => name === key)?.over ?? "";
}

// To the page

/** @returns {string} of the net of a cell whose value is the median */
function netOf(/** @type {MapRun} */ { plan, grid }, /** @type {number} */ at) {
  const keys = [...placeOf(plan.axes, at, grid.nx), ...foundKey(plan.measure.name, grid.median[at] ?? NaN)];
  return `/?${cellQuery(plan.query, String(plan.spec["widths"]), keys, plan.seeds[grid.medianSeed(at)] ?? 0)}`;
}

function progressText() {
  if (receiving !== null && (run === null || run.form !== form)) return "Waiting for the server…";
  if (run === null) return "";
  const { nets, all, rate, left } = run.progress(performance.now());
  const share = `${count(nets)} of ${count(all)} nets`;
  if (run.state === "done") return `${count(all)} nets`;
  if (run.state === "stopped") return `Stopped: ${share}`;
  if (run.state === "waiting") return `${share}, waiting for the server`;
  return rate > 0 ? `${share}, ${count(Math.round(rate))}/s, ${count(Math.ceil(left))} s left` : share;
}

/** @param {string} title @returns {string} within a sentence */
function lowered(title) {
  return title.charAt(0).toLowerCase() + title.slice(1);
}

const show = oncePerFrame(() => {
  map.show(run, look);
  map.toggleAttribute("data-row", run?.ys === null);
  fields.error = error;
  const isReceiving = receiving !== null;
  toggle.hidden = !isReceiving && (run?.state === "done" && run.form === form);
  writeText(toggle, isReceiving ? "Stop" : "Start");
  writeText(find("#progress"), progressText());
  find("#share").value = run === null ? 0 : run.grid.nets / run.grid.values.length;
  for (const button of document.querySelectorAll("[data-mode], [data-field]")) {
    if (!(button instanceof HTMLButtonElement)) continue;
    const { mode, field } = button.dataset;
    write(button, "aria-pressed", String(mode === look.mode || field === look.field));
    if (field === "spread") button.disabled = run?.plan.seeds.length === 1;
  }
  writeText(find("#curves"), run?.plan.curves.map(({ name, doc }) => `${name}: ${doc}`).join("\n") ?? "");
  // A form that the server refuses has no command.
  writeText(find("#command"), run === null && error !== null ? "" : commandOf(run?.form ?? form));
  showCell();
  if (run === null) return;
  const { measure, seeds } = run.plan;
  const of = look.field === "median" ? `median of ${seeds.length} seeds` : `spread over ${seeds.length} seeds`;
  writeText(find("#sentence"),
    `Each cell is one net. Colour: ${lowered(titleOf(measure))}${
      seeds.length > 1 ? `, ${of}` : ""
    }. Click a cell to open its net; ` + "drag a rectangle to compute that part anew.");
});

function showCell() {
  const text = run === null || cell === null ? "Point at a cell to see its values."
    : cellText(run.plan, run.grid, cell);
  writeText(find("#readout"), text);
  open.hidden = run === null || cell === null;
  if (run !== null && cell !== null) open.href = netOf(run, cell);
  slices.show(run, cell);
}

// From the page

/** @template T @param {string} type @param {(detail: T) => void} listener */
function on(type, listener) {
  document.addEventListener(type, (event) => listener(/** @type {CustomEvent<T>} */ (event).detail));
}

on("form-change", (/** @type {{form: MapForm}} */ { form: asked }) => void receive(asked, null, true));
on("cell-point", (/** @type {{cell: number}} */ { cell: next }) => {
  cell = next;
  showCell();
});
on("cell-open", (/** @type {{cell: number, isAside: boolean}} */ { cell: at, isAside }) => {
  if (run === null) return;
  if (isAside) window.open(netOf(run, at));
  else location.assign(netOf(run, at));
});
on("region-choose", (/** @type {Record<"x" | "y", [number, number]>} */ region) => {
  if (run === null) return;
  const { xs, ys, form: old } = run;
  const part = (/** @type {"x" | "y"} */ name, /** @type {AxisScale | null} */ scale) => {
    const axis = parseAxis(old[name]);
    if (axis === null || scale === null) return old[name];
    const isWhole = page.axes.find((each) => each.name === axis.key)?.kind === "int";
    const inside = partOf(axis, scale, ...region[name], isWhole);
    return inside === null ? old[name] : axisText(inside);
  };
  const [x, y] = [part("x", xs), part("y", ys)];
  if (x === old.x && y === old.y) writeText(find("#readout"), "Numbers have no finer steps here.");
  else void receive({ ...old, x, y }, null, true);
});

for (const button of document.querySelectorAll("button[data-mode], button[data-field]")) {
  button.addEventListener("click", () => {
    look = { ...look, .../** @type {HTMLElement} */ (button).dataset };
    show();
  });
}
find("#contours").addEventListener("change", (/** @type {Event} */ { target }) => {
  look = { ...look, hasContours: /** @type {HTMLInputElement} */ (target).checked };
  show();
});
find("#reset").addEventListener("click", () => map.reset());
toggle.addEventListener("click", () => {
  if (receiving !== null) stop();
  else void receive(form, run?.form === form ? run : null, run?.form !== form);
});

/** @type {Record<string, () => string | Blob | Promise<Blob>>} */
const files = { png: () => map.png(), svg: () => map.svg(),
  csv: () => run === null ? "" : csv(tableOf(run.plan, run.grid)) };
const TYPES = { png: "image/png", svg: "image/svg+xml", csv: "text/csv" };
for (const [name, make] of Object.entries(files)) {
  find(`[data-save=${name}]`).addEventListener("click", async () => {
    if (run !== null) saveFile(`map.${name}`, await make(), TYPES[/** @type {keyof TYPES} */ (name)]);
  });
}
// The server computes the table again: a browser cannot write this format.
find("[data-save=parquet]").addEventListener("click", async () => {
  if (run === null) return;
  try {
    saveFile("map.parquet", await postForFile(`${API}/sweeps.parquet`, bodyOf(run.form, 0)), "");
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
    writeText(find("#readout"), problem.message);
  }
});
find("#copy").addEventListener("click", async (/** @type {Event} */ { target }) => {
  const button = /** @type {HTMLButtonElement} */ (target);
  const isCopied = await navigator.clipboard.writeText(commandOf(run?.form ?? form)).then(() => true, () => false);
  button.textContent = isCopied ? "Copied" : "The browser does not allow this page to copy";
  setTimeout(() => button.textContent = "Copy the command", COPIED_MS);
});

fields.page = page;
fields.form = form;
find("#presets").hidden = page.presets.length === 0;
find("#presets ul").append(
  ...page.presets.map(({ title, text, query }) =>
    html("li", {}, html("a", { href: `/map?${query}` }, title), html("span", { class: "more" }, text))
  ),
);
run = keptRun();
if (page.error === null && run?.state !== "done") void receive(form, run, false);
else show();
