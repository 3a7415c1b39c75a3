/** What the profile's marks are read against: layers in stripes, lines across, the scale at the left. */

import { svg } from "../dom.js";
import { layerLabels, LEFT } from "./profile-depth.js";

/** Of more layers than these, stripes as wide as one would flicker: they are ten layers wide. */
const CROWD = 80;
const TEN = 10;

/**
 * @param {readonly LayerSpan[]} spans
 * @param {readonly ProfileAxis[]} axes
 * @param {{width: number, height: number}} size
 * @param {number} stripAt where the layers' numbers stand
 * @returns {SVGElement[]} what goes beneath the marks: every other layer is shaded, as wide as in the graph
 */
export function ground(spans, axes, { width, height }, stripAt) {
  return [
    ...stripes(spans).map(({ from, to }) =>
      svg("rect", { class: "band", x: from, y: 0, width: Math.max(0, to - from), height })
    ),
    ...axes.flatMap(({ ticks }) =>
      ticks.map(({ y, isLane }) =>
        svg("line", { class: `grid${isLane ? " lane" : ""}`, x1: LEFT - 4, x2: width, y1: y, y2: y })
      )
    ),
    ...layerLabels(spans, width).map(({ x, text }) =>
      svg("text", { class: "layer-label", x, y: stripAt + 4, "text-anchor": "middle" }, text)
    ),
  ];
}

/** @param {readonly LayerSpan[]} spans @returns {{from: number, to: number}[]} every other layer, or ten of them */
function stripes(spans) {
  if (spans.length <= CROWD) return spans.filter(({ layer }) => layer % 2 === 1);
  return spans.flatMap(({ layer, from }, order) =>
    layer % (2 * TEN) === 1 ? [{ from, to: spans[Math.min(spans.length, order + TEN) - 1]?.to ?? from }] : []
  );
}

/**
 * @param {readonly {axis: ProfileAxis, side: string, label: string}[]} halves
 * @param {number} height
 * @returns {SVGElement[]} what goes above them: marks that are panned out to the left disappear beneath it
 */
export function scale(halves, height) {
  return [
    svg("rect", { class: "margin", x: 0, y: 0, width: LEFT - 5, height }),
    ...halves.flatMap(({ axis, side, label }) => [
      ...axis.ticks.map(({ text, y, isLane }) =>
        svg("text", { class: `tick${isLane ? " lane" : ""}`, x: LEFT - 8, y: y + 3.5, "text-anchor": "end" }, text)
      ),
      svg("text", { class: `side ${side}`, transform: `translate(10 ${(axis.low + axis.high) / 2}) rotate(-90)`,
        "text-anchor": "middle" }, label),
    ]),
  ];
}
