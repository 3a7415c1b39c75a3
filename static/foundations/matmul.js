/** Matrix multiplication: the terms of an element, and the race of the five rungs, one request each. */

import { byId, counted, div, factor, figure, lightLines, p } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { cellText, markCells, tensorTable } from "../core/chapter/tensor-table.js";
import { html, svg, writeText } from "../core/dom.js";
import { duration, significant } from "../core/format.js";

/** @typedef {{a: TensorValues, b: TensorValues, c: TensorValues}} Window */
/** @typedef {{seconds: number, measured: boolean, printed_seconds: number}} Baseline */
/** @typedef {{names: string[], rungs: MatmulRung[]}} Start before the first rung */
/** @typedef {object} Race @property {number} m @property {number} k @property {number} n @property {number} threads
 * @property {Baseline} baseline of all rungs @property {MatmulRung[]} rungs so far @property {Window} window
 * @property {string[]} names */

const TITLES = ["rung", "time", "speed-up", "", "error", "chapter"];
/** Products written out. */
const TERMS = 4;

/** The chosen element of c; kept when the sizes change. @type {number[]} */
let looked = [0, 0];
/** The window drawn, as JSON: not redrawn for every rung. */
let drawn = "";
/** The last complete race. @type {Race | null} */
let finished = null;

const page = new ChapterPage({ load, show, failed: showFinished });

byId("race-again").addEventListener("click", () => {
  page.set({ seed: String((Number(page.values["seed"]) + 1) % 2 ** 31) });
});

/** Asks rung by rung, to show each as soon as it has run. @param {Record<string, string>} values
 * @param {PageQuery} asking @returns {Promise<Race>} */
async function load(values, { query, ask, partial }) {
  // The loops first: the baseline of the others.
  const names = [...new Set((values["rungs"] ?? "").split(",").map((name) => name.trim()))].sort((x, y) =>
    Number(y === "loops") - Number(x === "loops")
  );
  partial({ names, rungs: [] });
  let race = /** @type {Race | null} */ (null);
  for (const name of names) {
    const asked = new URLSearchParams(query);
    asked.set("rungs", name);
    const answer = await ask(asked.toString());
    race = joined(race, answer, names);
    if (race.rungs.length < names.length) partial(race);
  }
  return /** @type {Race} */ (race);
}

/** Adds a rung. All speed-ups use the first answer's baseline, so that shown ones stay. @param {Race | null} before
 * @param {any} answer @param {string[]} names @returns {Race} */
function joined(before, answer, names) {
  const rungs = [...(before?.rungs ?? []), ...answer.rungs];
  const baseline = before?.baseline ?? answer.baseline;
  for (const rung of rungs) rung.speedup = rung.seconds === null ? null : baseline.seconds / rung.seconds;
  return { ...answer, baseline, rungs, names };
}

/** @param {Race | Start} race */
function show(race) {
  const { names, rungs } = race;
  const progress = /** @type {HTMLProgressElement} */ (document.getElementById("race-progress"));
  progress.max = names.length;
  progress.value = rungs.length;
  const next = names[rungs.length];
  writeText(byId("race-state"),
    next === undefined ? `${names.length} of ${names.length} done` : `${rungs.length + 1} of ${names.length}: ${next}`);
  const hasStarted = "baseline" in race;
  byId("race").replaceChildren(raceTable(rungs, names, hasStarted ? race.baseline.printed_seconds : 1));
  byId("race-notes").classList.toggle("pending", !hasStarted);
  if (!hasStarted) return;
  const key = JSON.stringify([race.m, race.k, race.n, race.window]);
  if (key !== drawn) showWindow(race);
  drawn = key;
  byId("race-notes").textContent = notes(race);
  if (next === undefined) finished = race;
}

/** Shows the last complete race after a refusal, if there is one. */
function showFinished() {
  if (finished !== null) return show(finished);
  byId("race").replaceChildren();
  writeText(byId("race-state"), "");
}

/** @param {Race} race @returns {string} */
function notes({ m, k, n, threads, baseline, rungs }) {
  const bound = rungs[0]?.rounding_bound ?? 0;
  return [
    `Each time is the median of the repeats, on ${counted(threads, "thread")} of the server.`,
    baseline.measured ? "" : "The loops did not run: the speed-ups use their estimated time.",
    `“Error” is the largest difference from the product in float64; rounding explains at most ${
      significant(bound)
    } in sums of ${counted(k, "product")}.`,
    `◇ marks the chapter's speed-up for 5×784 by 784×10 on another machine${
      m === 5 && k === 784 && n === 10 ? "" : ", not for these sizes"
    }, so compare only the order of the five.`,
  ].filter((sentence) => sentence !== "").join(" ");
}

// --- the window

/** @param {Race} race */
function showWindow({ m, k, n, window: { a, b, c } }) {
  looked = [Math.min(looked[0] ?? 0, (c.shape[0] ?? 1) - 1), Math.min(looked[1] ?? 0, (c.shape[1] ?? 1) - 1)];
  const tables = {
    a: tensorTable(a, { label: labelOf("a", a, [m, k]) }),
    b: tensorTable(b, { label: labelOf("b", b, [k, n]) }),
    c: tensorTable(c, { label: labelOf("c", c, [m, n]), onhover: look }),
  };

  /** @param {TensorIndex | null} index */
  function look(index) {
    if (index !== null) looked = [...index];
    const [row = 0, column = 0] = looked;
    markCells(tables.a, ([i]) => i === row ? "lit" : "");
    markCells(tables.b, ([, j]) => j === column ? "lit-2" : "");
    markCells(tables.c, ([i, j]) => i === row && j === column ? "lit" : "");
    byId("element").textContent = sumText(row, column);
    lightLines("loops", (text) => index !== null && text.includes("c[i, j] += "));
  }

  /** @param {number} row @param {number} column @returns {string} */
  function sumText(row, column) {
    const shown = a.values[row].slice(0, TERMS);
    const terms = shown.map((/** @type {number} */ value, /** @type {number} */ at) =>
      `${factor(value)}·${factor(b.values[at][column])}`
    );
    const rest = k > TERMS ? ` + … (${counted(k, "product")})` : "";
    return `c[${row}, ${column}] = Σₖ a[${row}, k] · b[k, ${column}] = ${terms.join(" + ")}${rest} = ${
      cellText(c.values[row][column])
    }`;
  }

  byId("window").replaceChildren(
    p("soft",
      `a is ${m} × ${k}, b is ${k} × ${n}, c is ${m} × ${n}: ${
        counted(m * k * n, "multiplication")
      }. Point at an element of c.`),
    div("product", tables.a, tables.b, tables.c),
  );
  look(null);
}

/** @param {string} name @param {TensorValues} shown @param {readonly number[]} shape @returns {string} */
function labelOf(name, shown, shape) {
  const isCut = shape.some((size, dim) => size !== shown.shape[dim]);
  return isCut ? `${name}[:${shown.shape[0]}, :${shown.shape[1]}]` : name;
}

// --- the race: a row per rung, with its time, its speed-up on a logarithmic axis, and its error

/** @param {readonly MatmulRung[]} rungs run or refused @param {readonly string[]} names of all rungs
 * @param {number} printedLoops seconds @returns {HTMLElement} */
function raceTable(rungs, names, printedLoops) {
  /** @param {MatmulRung} rung */
  const printedSpeedup = (rung) => printedLoops / rung.printed_seconds;
  const exponents = [1, ...rungs.flatMap((rung) => [rung.speedup ?? 1, printedSpeedup(rung)])].map(Math.log10);
  const low = Math.floor(Math.min(...exponents)); // 0 unless a rung is slower than the loops
  const high = Math.max(low + 2, Math.ceil(Math.max(...exponents)));
  /** @param {number} speedup @returns {number} percent of the width */
  const x = (speedup) => ((Math.log10(speedup) - low) / (high - low)) * 100;
  const titles = TITLES.map((title, at) => {
    const kind = ["", "time", "speedup", "bar", "check", "printed"][at] ?? "";
    return html("span", { role: title === "" ? "cell" : "columnheader", class: kind },
      ...(kind === "bar" ? [ticks(low, high, x)] : [title]));
  });
  const rows = names.map((name, at) => row(name, rungs[at], at === rungs.length, x, printedSpeedup));
  return html("div", { class: "race", role: "table", "aria-label": "The race of the five rungs" },
    html("div", { role: "row", class: "titles" }, ...titles), ...rows);
}

/** @param {string} name @param {MatmulRung | undefined} rung @param {boolean} isNext
 * @param {(speedup: number) => number} x @param {(rung: MatmulRung) => number} printedSpeedup @returns {HTMLElement} */
function row(name, rung, isNext, x, printedSpeedup) {
  const line = html("div", { role: "row", "data-rung": name }, html("span", { role: "rowheader" }, name));
  if (rung === undefined) {
    line.append(html("span", { role: "cell", class: "waiting muted" }, isNext ? "runs now …" : "waits"));
  } else if (rung.refused !== null) {
    line.append(html("span", { role: "cell", class: "refused odd" }, refusal(rung.refused)),
      html("span", { role: "cell", class: "printed" }, secondsText(rung.printed_seconds)));
  } else {
    line.append(...measured(rung, x, printedSpeedup(rung)));
  }
  return line;
}

/** @param {MatmulRung} rung @param {(speedup: number) => number} x @param {number} printed speed-up */
function measured(rung, x, printed) {
  const { seconds, speedup, repeats, equal, max_difference: difference } = rung;
  const check = equal ? `${figure(difference)} ✓` : `${figure(difference)}: not equal`;
  const said = `Largest absolute difference from the product in float64. Rounding explains at most ${
    significant(rung.rounding_bound)
  }.`;
  return [
    html("span", { role: "cell", class: "time" }, secondsText(seconds ?? 0),
      html("small", { class: "muted" }, repeats === 1 ? "one run" : `${repeats} runs`)),
    html("span", { role: "cell", class: "speedup" }, `${grouped(speedup ?? 1)}×`),
    html("span", { role: "cell", class: "bar" }, bar(rung, x, printed)),
    html("span", { role: "cell", class: equal ? "check" : "check bad", title: said }, check),
    html("span", { role: "cell", class: "printed" }, secondsText(rung.printed_seconds)),
  ];
}

/** @param {MatmulRung} rung @param {(speedup: number) => number} x @param {number} printed speed-up */
function bar(rung, x, printed) {
  const speedup = rung.speedup ?? 1;
  const start = x(1);
  const picture = svg("svg", { "aria-hidden": "true" });
  const [left, right] = [Math.min(start, x(speedup)), Math.max(start, x(speedup))];
  picture.append(svg("line", { class: "track", x1: "0%", x2: "100%", y1: 14, y2: 14 }),
    svg("rect", { class: "run", x: `${left}%`, width: `${Math.max(0.4, right - left)}%`, y: 8, height: 12, rx: 1 }));
  const mark = svg("svg", { x: `${x(printed)}%`, overflow: "visible" });
  mark.append(svg("path", { class: "printed-mark", d: "M0 9l5 5l-5 5l-5 -5z" }));
  picture.append(mark);
  return picture;
}

/** @param {number} low @param {number} high @param {(speedup: number) => number} x @returns {SVGElement} */
function ticks(low, high, x) {
  const axis = svg("svg", { "aria-hidden": "true" });
  for (let decade = low; decade <= high; decade += 1) {
    const at = `${x(10 ** decade)}%`;
    axis.append(svg("line", { class: "track", x1: at, x2: at, y1: 20, y2: 28 }),
      svg("text", { x: at, y: 16, "text-anchor": decade === high ? "end" : "middle" }, tick(decade)));
  }
  return axis;
}

/** @param {number} decade @returns {string} */
function tick(decade) {
  return decade >= 0 && decade < 4 ? `${(10 ** decade).toLocaleString("en-US")}×` : `1e${decade}×`;
}

/** @param {number} speedup @returns {string} 1, 3.40, 868, 23,900 */
function grouped(speedup) {
  const rounded = Number(speedup.toPrecision(3));
  return rounded >= 1000 ? rounded.toLocaleString("en-US") : rounded === 1 ? "1" : rounded.toPrecision(3);
}

/** @param {{estimate_seconds: number, limit_seconds: number}} refused @returns {string} */
function refusal({ estimate_seconds: estimate, limit_seconds: limit }) {
  return `did not run: it would take about ${longText(estimate)}, and ${significant(limit)} s are allowed`;
}

/** @param {number} seconds @returns {string} */
function longText(seconds) {
  if (seconds < 120) return secondsText(seconds);
  return seconds < 7200 ? `${significant(seconds / 60)} minutes` : `${significant(seconds / 3600)} hours`;
}

/** @param {number} seconds @returns {string} */
function secondsText(seconds) {
  return duration(seconds * 1e6);
}
