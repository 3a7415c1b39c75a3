/** A large tensor: its histogram and its moments. */

import { code, div, figure, p, span } from "../core/chapter/parts.js";
import { shapeText } from "../core/chapter/tensor-table.js";
import { html, svg } from "../core/dom.js";
import { count, significant } from "../core/format.js";

const WIDTH = 240;
const HEIGHT = 72;

/** @param {TensorMoments} moments @returns {string} "12 NaN, 3 +Inf", "" if all are finite */
export function nonFinite({ nan, posinf, neginf }) {
  const kinds = [[nan, "NaN"], [posinf, "+Inf"], [neginf, "−Inf"]];
  return kinds.flatMap(([many, name]) => many === 0 ? [] : [`${count(Number(many))} ${name}`]).join(", ");
}

/** @param {string} name @param {TensorSummary} summary @param {"forward" | "backward" | "parameter"} hue */
export function tensorHistogram(name, summary, hue) {
  const { shape, mean, std, zeros, n } = summary;
  const odd = nonFinite(summary);
  const caption = html("figcaption", {}, code(name), span("soft", shapeText(shape)));
  const ends = div("ends muted", span("", figure(summary.min)),
    span("", summary.max === summary.min ? "" : figure(summary.max)));
  const facts = p("moments",
    `mean ${figure(mean)} · std ${figure(std)}${zeros > 0 ? ` · ${count(zeros)} of ${count(n)} are 0` : ""}`);
  const made = html("figure", { class: `tensor-histogram ${hue}` }, caption, bars(name, summary), ends, facts);
  if (odd !== "") made.append(p("odd", `${odd} of ${count(n)}, not in the histogram`));
  return made;
}

/** @param {string} name @param {TensorSummary} summary
 * @returns {SVGElement} heights by the root of the count, so that tails stay visible */
function bars(name, { histogram, min, max }) {
  const tallest = Math.sqrt(Math.max(...histogram));
  const box = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  box.setAttribute("aria-label",
    min === null ? `${name}: no finite value`
      : `Histogram of ${name}, from ${figure(min)} to ${figure(max)}; a height is the square root of a count`);
  if (min === null || max === null || tallest === 0) {
    box.append(svg("rect", { class: "none", x: 0, y: 0, width: WIDTH, height: HEIGHT }));
    return box;
  }
  if (min === max) {
    box.append(svg("rect", { class: "bar", x: WIDTH / 2 - 2, y: 0, width: 4, height: HEIGHT }));
    return box;
  }
  if (min < 0 && max > 0) {
    const zero = (-min / (max - min)) * WIDTH;
    box.append(svg("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: HEIGHT }));
  }
  const width = WIDTH / histogram.length;
  for (const [bin, many] of histogram.entries()) {
    if (many === 0) continue;
    const height = Math.max(1, (Math.sqrt(many) / tallest) * HEIGHT);
    const from = min + (bin / histogram.length) * (max - min);
    const to = min + ((bin + 1) / histogram.length) * (max - min);
    const bar = svg("rect", { class: "bar", x: bin * width, y: HEIGHT - height, width: width - 0.5, height });
    bar.append(svg("title", {}, `${count(many)} in [${significant(from)}, ${significant(to)}]`));
    box.append(bar);
  }
  return box;
}
