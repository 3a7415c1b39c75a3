/** A map while it is received: its form, the server's plan, and the values so far. No DOM. */

import { AxisScale } from "./axis.js";
import { MapGrid } from "./grid.js";

/** @typedef {"running" | "waiting" | "stopped" | "done"} RunState */

/** Nets of a map whose lines are kept, at most. */
const MOST_KEPT = 100_000;

export class MapRun {
  /** @type {RunState} */
  state = "running";
  /** Tasks received, in order. */
  tasks = 0;
  /** All lines that have arrived. @type {SweepLine[]} */
  lines = [];
  /** When its part that is being received began, ms, and how many nets were known then. */
  since = 0;
  netsBefore = 0;

  /** @param {MapForm} form @param {SweepPlan} plan */
  constructor(form, plan) {
    this.form = form;
    this.plan = plan;
    this.lines.push(plan);
    const [x, y] = plan.axes;
    if (x === undefined) throw new RangeError("a map without axes");
    this.xs = new AxisScale(x);
    this.ys = y === undefined ? null : new AxisScale(y);
    this.grid = new MapGrid(x.values.length, y?.values.length ?? 1, plan.seeds.length, plan.measure.log);
    this.curves = plan.curves.map(({ name, points }) => ({ name, places: points.map((point) => this.#place(point)) }));
  }

  /** @param {MapForm} form @param {readonly SweepLine[]} lines that were kept @returns {MapRun | null} */
  static of(form, [plan, ...lines]) {
    if (plan?.type !== "plan") return null;
    const run = new MapRun(form, plan);
    for (const line of lines) run.take(line);
    return run;
  }

  /** @param {readonly [number, number] | null} point @returns {[number, number] | null} */
  #place(point) {
    const [x, y] = [point && this.xs.place(point[0]), point && this.ys?.place(point[1])];
    return x === null || y === null || y === undefined ? null : [x, y];
  }

  /** @param {SweepLine} line */
  take(line) {
    if (line.type === "done") this.state = "done";
    else if (line.type === "cells") this.grid.take(line.cells, line.values);
    else if (line.type === "failed") this.grid.fail(line.cells, line.message);
    if (line.type === "cells" || line.type === "failed") this.tasks = line.task + 1;
    if (this.grid.values.length <= MOST_KEPT) this.lines.push(line);
  }

  /** @param {number} now ms */
  begin(now) {
    this.since = now;
    this.netsBefore = this.grid.nets;
  }

  /** @param {number} now ms @returns {{nets: number, all: number, rate: number, left: number}} nets per second, and
   * seconds left */
  progress(now) {
    const { nets, values: { length: all } } = this.grid;
    const rate = (1000 * (nets - this.netsBefore)) / Math.max(1, now - this.since);
    return { nets, all, rate, left: rate > 0 ? (all - nets) / rate : Infinity };
  }
}
