/** Reads steps off the main thread: a source comes, its figures go, or what is wrong with it. */

import { buffersOf, StepReader } from "./step-figures.js";

const reader = new StepReader();

addEventListener("message",
  (/** @type {MessageEvent<{index: number, source: DumpSource}>} */ { data }) => void answer(data));

/** @param {{index: number, source: DumpSource}} asked */
async function answer({ index, source }) {
  try {
    const figures = await reader.read(source);
    postMessage({ index, figures }, { transfer: buffersOf(figures) });
  } catch (problem) {
    postMessage({ index, problem: problem instanceof Error ? problem.message : String(problem) });
  }
}
