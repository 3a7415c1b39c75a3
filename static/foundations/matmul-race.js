/** The race as a table: a row per rung, with its time, its speed-up on a logarithmic axis, and its error. */

import { figure } from "../core/chapter/parts.js";
import { html, svg } from "../core/dom.js";
import { duration, significant } from "../core/format.js";

const TITLES = ["rung", "time", "speed-up", "", "off by", "chapter"];

/** @param {readonly MatmulRung[]} rungs run or refused @param {readonly string[]} names of all rungs
 * @param {number} printedLoops seconds @returns {HTMLElement} */
export function raceTable(rungs, names, printedLoops) {
  /** @param {MatmulRung} rung */
  const printedSpeedup = (rung) => printedLoops / rung.printed_seconds;
  const exponents = [1, ...rungs.flatMap((rung) => [rung.speedup ?? 1, printedSpeedup(rung)])].map(Math.log10);
  const low = Math.floor(Math.min(...exponents)); // 0 unless a rung is slower than the loops
  const high = Math.max(low + 2, Math.ceil(Math.max(...exponents)));
  /** @param {number} speedup @returns {number} percent of the width */
  const x = (speedup) => ((Math.log10(speedup) - low) / (high - low)) * 100;
  const titles = TITLES.map((title, at) => {
    const kind = ["", "time", "speedup", "bar", "check", "printed"][at] ?? "";
    return html("span", { role: "columnheader", class: kind }, ...(kind === "bar" ? [ticks(low, high, x)] : [title]));
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
    line.append(html("span", { role: "cell", class: "waiting" }, isNext ? "runs now …" : "waits"));
  } else if (rung.refused !== null) {
    line.append(html("span", { role: "cell", class: "refused" }, refusal(rung.refused)),
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
  const said = `Largest absolute difference to the product in float64. Rounding alone can make ${
    significant(rung.rounding_bound)
  }.`;
  return [
    html("span", { role: "cell", class: "time" }, secondsText(seconds ?? 0),
      html("small", {}, repeats === 1 ? "one run" : `${repeats} runs`)),
    html("span", { role: "cell", class: "speedup" }, `${grouped(speedup ?? 1)}×`),
    html("span", { role: "cell", class: "bar" }, bar(rung, x, printed)),
    html("span", { role: "cell", class: equal ? "check" : "check wrong", title: said }, check),
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
