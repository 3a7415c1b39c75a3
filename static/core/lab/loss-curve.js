/** The losses of all steps as a line, logarithmic where they span more than a decade. No DOM. */

/** @typedef {{loss: number | null, structure: string}} Step */

/** @typedef {{x: number, y: number, isBad: boolean}} Dot isBad: the loss is not finite */

/** @typedef {{paths: string[], dots: Dot[], breaks: number[], isLog: boolean, low: number | null, high: number | null,
 * endsHigh: boolean}} LossCurve breaks: steps of another graph than the one before; low, high: of the finite losses;
 * endsHigh: the last of them in the upper half */

/** More dots than this are none. */
const MOST_DOTS = 40;
const MARGIN = 5;

/**
 * @param {readonly (Step | null)[]} steps null: not read yet
 * @param {(index: number) => number} x of a step, px
 * @param {number} height px
 * @returns {LossCurve} a line breaks off where a step has no finite loss, or is not there yet
 */
export function lossCurve(steps, x, height) {
  const losses = steps.map((step) => step?.loss ?? null);
  const finite = losses.filter((loss) => loss !== null && Number.isFinite(loss)).map(Number);
  const [low, high] = finite.length === 0 ? [null, null]
    : [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))];
  const isLog = low !== null && high !== null && low > 0 && high > 10 * low;
  const place = (/** @type {number} */ loss) => isLog ? Math.log(loss) : loss;
  const [from, to] = [place(low ?? 0), place(high ?? 0)];
  const y = (/** @type {number} */ loss) =>
    height - MARGIN - (to > from ? (place(loss) - from) / (to - from) : 0.5) * (height - 2 * MARGIN);
  /** @type {string[]} */
  const paths = [];
  /** @type {Dot[]} */
  const dots = [];
  let run = "";
  const end = () => {
    if (run.includes("L")) paths.push(run);
    run = "";
  };
  losses.forEach((loss, index) => {
    if (loss === null || !Number.isFinite(loss)) {
      end();
      if (loss !== null) dots.push({ x: x(index), y: MARGIN, isBad: true });
      return;
    }
    run += `${run === "" ? "M" : "L"}${x(index).toFixed(1)} ${y(loss).toFixed(1)}`;
    if (steps.length <= MOST_DOTS) dots.push({ x: x(index), y: y(loss), isBad: false });
  });
  end();
  const breaks = steps.flatMap((step, index) => {
    const before = steps[index - 1];
    return step !== null && before != null && step.structure !== before.structure ? [index] : [];
  });
  return { paths, dots, breaks, isLog, low, high, endsHigh: y(finite.at(-1) ?? 0) < height / 2 };
}
