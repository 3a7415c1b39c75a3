/** Where ±Inf and NaN begin, in the profile: a rule through the layer, named in the lane where its crosses start. */

import { svg, write } from "../dom.js";
import { LEFT } from "./profile-depth.js";

/** Room that a label takes. */
const LABEL = 58;
const GAP = 6;
const LINE = 12;
const BENEATH = 8;

export class CauseMarks {
  root = svg("g");
  /** @type {Record<NonFiniteKind, {group: SVGGElement, rule: SVGLineElement, label: SVGTextElement}>} */
  #marks = { Inf: mark("Inf"), NaN: mark("NaN") };

  constructor() {
    this.root.append(this.#marks.Inf.group, this.#marks.NaN.group);
  }

  /**
   * @param {readonly NonFiniteCause[]} causes those that have a place in the chart
   * @param {(cause: NonFiniteCause) => number} xOf
   * @param {Record<ProfileSide, ProfileAxis | null>} axes
   * @param {(kind: NonFiniteKind, side: ProfileSide, from: number, to: number) => boolean} isFree whether a stretch of
   *   a lane has no crosses
   * @param {number} width of the chart
   */
  draw(causes, xOf, axes, isFree, width) {
    for (const kind of /** @type {const} */ (["Inf", "NaN"])) {
      const cause = causes.find((each) => each.kind === kind);
      const { group, rule, label } = this.#marks[kind];
      const x = cause === undefined ? -1 : xOf(cause);
      /** @type {ProfileSide} */
      const side = cause?.isBackward === true && axes.backward !== null ? "backward" : "forward";
      const axis = axes[side];
      const isShown = axis !== null && x >= LEFT && x <= width;
      write(group, "visibility", isShown ? "visible" : "hidden");
      if (!isShown) continue;

      // Before it in the order of execution its lane is empty, as a rule; else the label goes beneath the lanes.
      const lane = kind === "Inf" ? axis.inf : axis.nan;
      const [hasLeft, hasRight] = [x - LABEL > LEFT, x + LABEL < width];
      const isLeftFree = hasLeft && isFree(kind, side, x - LABEL, x - 1);
      const isRightFree = hasRight && isFree(kind, side, x + 1, x + LABEL);
      const isLeft = cause?.isBackward === true ? !isRightFree && hasLeft : isLeftFree || (!isRightFree && !hasRight);
      const inwards = Math.sign(axis.low - axis.high) * (kind === "Inf" ? BENEATH : BENEATH + LINE);
      write(label, "text-anchor", isLeft ? "end" : "start");
      write(label, "x", (x + (isLeft ? -GAP : GAP)).toFixed(1));
      write(label, "y", ((isLeft ? isLeftFree : isRightFree) ? lane + 3.5 : axis.high + inwards + 3.5).toFixed(1));
      write(rule, "x1", x.toFixed(1));
      write(rule, "x2", x.toFixed(1));
      write(rule, "y1", axis.inner.toFixed(1));
      write(rule, "y2", lane.toFixed(1));
    }
  }
}

/** @param {NonFiniteKind} kind */
function mark(kind) {
  const rule = svg("line", { class: "cause-rule" });
  const label = svg("text", { class: "cause-label" }, `first ${kind}`);
  return { group: svg("g", { class: "cause-mark", "data-kind": kind, visibility: "hidden" }, rule, label), rule,
    label };
}
