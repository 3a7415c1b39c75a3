/** All steps of a training, in figures: every dump is read once, one after the other, in a worker or, where none can be
 * made, in the page between its other work. No DOM. */

import { begin } from "../activity.js";
import { StepReader } from "./step-figures.js";

/** @typedef {{index: number, figures?: StepFigures, problem?: string}} Answer */

/** ms between two steps that the page reads itself. */
const PAUSE = 20;

export class Series {
  /** By index; null: not there yet, or no dump. @type {(StepFigures | null)[]} */
  steps;
  /** Messages by index of the step. @type {Map<number, string>} */
  problems = new Map();
  /** By structure. @type {Map<string, GraphStructure>} */
  graphs = new Map();
  #sources;
  #tell;
  /** @type {Worker | null} */
  #worker = null;
  #isStopped = false;
  #end = () => {};

  /** @param {readonly DumpSource[]} sources @param {(index: number) => void} tell is called for every step that has
   * been read, whether it is a dump or not */
  constructor(sources, tell) {
    this.#sources = sources;
    this.#tell = tell;
    this.steps = sources.map(() => null);
  }

  start() {
    this.#end = begin();
    try {
      this.#worker = new Worker(new URL("./series-worker.js", import.meta.url), { type: "module" });
    } catch {
      // Not from a file, and not where the page is one file.
      void this.#here(0);
      return;
    }
    this.#worker.addEventListener("message", (/** @type {MessageEvent<Answer>} */ { data }) => {
      this.#take(data);
      this.#ask(data.index + 1);
    });
    this.#worker.addEventListener("error", () => {
      this.#worker?.terminate();
      this.#worker = null;
      void this.#here(0);
    });
    this.#ask(0);
  }

  stop() {
    this.#end();
    this.#isStopped = true;
    this.#worker?.terminate();
    this.#worker = null;
  }

  /** @param {number} index */
  #ask(index) {
    const source = this.#sources[index];
    if (source !== undefined) this.#worker?.postMessage({ index, source });
    else {
      this.#worker?.terminate();
      this.#end();
    }
  }

  /** @param {number} first */
  async #here(first) {
    const reader = new StepReader();
    for (let index = first; index < this.#sources.length && !this.#isStopped; index += 1) {
      const source = this.#sources[index];
      if (source === undefined) continue;
      try {
        this.#take({ index, figures: await reader.read(source) });
      } catch (problem) {
        this.#take({ index, problem: problem instanceof Error ? problem.message : String(problem) });
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.#end();
  }

  /** @param {Answer} answer */
  #take({ index, figures, problem }) {
    if (this.#isStopped) return;
    if (figures === undefined) this.problems.set(index, problem ?? "");
    else {
      this.steps[index] = figures;
      if (figures.graph !== null) this.graphs.set(figures.structure, figures.graph);
    }
    this.#tell(index);
  }
}
