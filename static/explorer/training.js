/** The training's part of the page: its runs, its bar and its view. */

import { during } from "../core/activity.js";
import { getJson } from "../core/api.js";
import { put } from "../core/dom.js";
import { TrainingRun } from "../core/lab/training-run.js";

/** Run A is fetched this far at least. */
const SHORTEST = 100;
/** Steps of a run that are recorded where it is fetched. */
const RECORDED = 200;
/** A step is asked for so many times, as long as the server is on its way to it. */
const MOST_TRIES = 30;

/** @typedef {object} Page @property {Record<string, any>} elements bar, training @property {Signal<View>} view
 * @property {(change: Partial<View>) => void} setView
 * @property {(type: string, listener: (detail: any) => void) => void} on
 * @property {(spec: Spec) => string} queryOf @property {(query: string) => Spec} specOf
 * @property {() => boolean} isMoving whether the slider is dragged, or the training plays */

/** @param {Page} page */
export function connectTraining({ elements, view, setView, on, queryOf, specOf, isMoving }) {
  let run = new TrainingRun("");
  let ghost = /** @type {TrainingRun | null} */ (null);
  /** Whether a control is dragged. */
  let isHeld = false;
  /** The run on the screen when the last change of the net began; all pictures of a drag have this ghost. */
  let before = run;
  let message = /** @type {TrainingMessage | null} */ (null);
  let picture = /** @type {Picture | null} */ (null);
  let triedQuery = "";
  let tries = 0;
  /** By address. @type {Map<string, unknown>} */
  const fetched = new Map();

  /** @param {string} address @param {(answer: any) => void} take called at once if it is known, else when it comes */
  function fetchOnce(address, take) {
    const known = fetched.get(address);
    if (known !== undefined) {
      if (known !== null) take(known);
      return;
    }
    fetched.set(address, null);
    // A refusal leaves the chart without it.
    void during(getJson(address).then((answer) => {
      fetched.set(address, answer);
      take(answer);
      if (picture !== null) tell();
    }, () => fetched.delete(address)));
  }

  /** @param {Spec} spec @returns {string} */
  const runQuery = (spec) => queryOf({ ...spec, step: 0 });

  /** @param {Spec} spec */
  function follow(spec) {
    const query = runQuery(spec);
    if (query === run.query) return;
    if (before.updates.size > 1) ghost = before;
    run = new TrainingRun(query);
    message = null;
  }

  function tell() {
    const spec = picture?.spec ?? null;
    if (picture === null || spec === null) return;
    const step = Number(spec["step"] ?? 0);
    const isSeen = view.value.show === "training";
    /** @type {TrainingShown} */
    const shown = { run, ghost, step, message: message?.step === step ? message : null, other: null, data: null };
    if (isSeen && typeof spec["data"] === "string" && spec["data"] !== "random")
      fetchOnce(`/api/v1/data.json?data=${spec["data"]}&seed=${spec["seed"]}`, (data) => shown.data = data);
    if (isSeen) shown.other = otherRun();
    put(elements["bar"], "hidden", spec["step"] === undefined || !(isSeen || step > 0));
    if (spec["step"] === undefined) return elements["training"].show(null);
    elements["bar"].show(shown, false);
    if (isSeen) elements["training"].show(shown);
  }

  /** @returns {TrainingRun | null} run A's */
  function otherRun() {
    const { a } = view.value;
    if (!a.startsWith("?")) return null;
    const spec = specOf(a.slice(1));
    if (spec["step"] === undefined) return null;
    let last = Math.max(SHORTEST, Number(spec["step"]));
    while (last < run.last) last *= 2;
    let other = /** @type {TrainingRun | null} */ (null);
    fetchOnce(`/api/v1/run.json?${queryOf({ ...spec, step: last })}`, (answer) => {
      other = new TrainingRun("");
      other.takeRun(answer);
    });
    return other;
  }

  /** The layers of steps that no picture has shown, once the pictures rest. */
  function fill() {
    const step = Number(picture?.spec?.["step"] ?? 0);
    if (view.value.show !== "training" || picture?.spec?.["step"] === undefined || elements["bar"].isPlaying) return;
    if (run.layers.size * 2 > Math.min(step, RECORDED)) return;
    const asked = run;
    fetchOnce(`/api/v1/run.json?${queryOf(picture.spec)}`, (answer) => asked.takeRun(answer));
  }

  on("over-change", ({ over }) => setView({ over }));
  on("step-choose", ({ step, moving }) => elements["bar"].goTo(step, moving));
  view.subscribe((value) => {
    elements["training"].statistic = value.over;
    tell();
    fill();
  });

  return {
    /** Before the picture is shown. @param {Picture} next */
    arrived({ spec }) {
      if (spec?.["step"] !== undefined) elements["bar"].arrived(Number(spec["step"]));
    },
    /** @param {Picture} next */
    show(next) {
      if (next.spec === null) return;
      picture = next;
      follow(next.spec);
      if (next.spec["step"] !== undefined) run.takePicture(Number(next.spec["step"]), next);
      tell();
      if (!isMoving()) fill();
    },
    /** @param {TrainingMessage} next @param {Spec} spec */
    take(next, spec) {
      follow(spec);
      message = next;
      run.take(next);
      tell();
    },
    /** Whether to ask again for a step that the server did not reach in time: it goes on from where it was.
     * @param {ErrorBody} error @param {Spec} spec */
    goesOn({ code }, spec) {
      tries = queryOf(spec) === triedQuery ? tries + 1 : 1;
      triedQuery = queryOf(spec);
      return code === "deadline_exceeded" && Number(spec["step"] ?? 0) > 0 && tries < MOST_TRIES;
    },
    refused() {
      if (picture !== null) elements["bar"].show({ run, ghost, step: Number(picture.spec?.["step"] ?? 0) }, true);
    },
    /** The net changes. @param {boolean} moving whether a drag goes on */
    changes(moving) {
      if (!isHeld) before = run;
      isHeld = moving;
    },
    /** A change of the net begins its training anew while it plays. @param {Spec} next @returns {Spec} */
    anew(next) {
      if (!elements["bar"].isPlaying) return next;
      elements["bar"].beginAnew();
      return { ...next, step: 0 };
    },
  };
}
