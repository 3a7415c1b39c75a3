/** Dumps instead of the server's answers: opened with the page, from files, or dropped on it. One is shown; several
 * have a scrubber, and the selected tensor shows at every step. */

import { during, later } from "../core/activity.js";
import { ApiError, getJson } from "../core/api.js";
import { DumpProblem } from "../core/dump/checks.js";
import { Series } from "../core/dump/series.js";
import { DumpShelf, stepLabels, unitOf } from "../core/dump/sources.js";
import { carried } from "../core/lab/match.js";
import { tensorSteps } from "../core/lab/tensor-steps.js";
import { hue } from "../core/colours.js";

/** While steps are read, the histograms of all steps are redrawn at most this often, ms. */
const DRAW_EVERY = 250;
/** A dump of more bytes takes so long that the page says how much it has read. */
const MANY_BYTES = 4e6;

/** @typedef {object} Page @property {PageData} page @property {Signal<ShownDump | null>} opened
 * @property {Record<string, any>} elements opener, note, scrubber, series @property {Signal<View>} view
 * @property {(change: Partial<View>) => void} setView
 * @property {(type: string, listener: (detail: any) => void) => void} on */

/** @param {Page} page */
export function connectDumps({ page, opened, elements, view, setView, on }) {
  let shelf = /** @type {DumpShelf | null} */ (null);
  let series = /** @type {Series | null} */ (null);
  /** The dump to show, and the one shown. */
  let [wanted, shown] = [-1, -1];
  let isLoading = false;
  let labels = /** @type {string[]} */ ([]);
  /** Whether the server has the open dumps, so that an address leads back to them. */
  let isServed = page.dump?.url !== undefined;
  /** @type {{graph: Graph | null, tensor: string}} */
  let inspected = { graph: null, tensor: "" };
  let [drawing, drawnAt] = [0, -Infinity];

  document.querySelector("#open-dump")?.addEventListener("click", () => elements["opener"].choose());
  on("dumps-open", (/** @type {{sources: DumpSource[]}} */ { sources }) => void during(open(sources, 0, true)));
  on("dump-close", () => location.assign("/"));
  on("dump-step", (/** @type {{index: number}} */ { index }) => setView({ dump: index }));
  view.subscribe(({ dump, a, axis }) => {
    elements["scrubber"].pinned = pinnedOf(a);
    elements["series"].axis = axis;
    drawSeries();
    if (shelf === null || placeOf(dump) === wanted) return;
    wanted = placeOf(dump);
    elements["scrubber"].index = wanted;
    elements["scrubber"].problem = "";
    if (!isLoading) void during(load());
  });
  opened.subscribe((value) => {
    const isDump = value !== null || page.dump !== null;
    document.body.dataset["source"] = isDump ? "dump" : "live";
    document.body.dataset["dumps"] = value !== null && value.count > 1 ? "several" : "one";
    // Dumps of the server have an address; dropped files have none.
    document.body.dataset["opened"] = isServed ? "server" : "here";
    note();
    if (value === null) return;
    drawSeries();
    document.title = `${value.name} · Chainrule`;
  });
  if (page.dump !== null) {
    const { name, url, content } = page.dump;
    const one = content != null ? { name, text: JSON.stringify(content) } : { name, url: url ?? "" };
    const all = page.dumps !== undefined && page.dumps.length > 1
      ? page.dumps.map(({ name, url = "" }) => ({ name, url })) : [one];
    void during(open(all, view.value.dump, false));
  }

  function note() {
    const shown = opened.value;
    elements["note"].hidden = shown === null;
    if (shown === null) return;
    const { name, dump, index, count } = shown;
    // A page opened with a dump has no live run to go back to.
    elements["note"].show(name, dump, page.dump === null, count > 1 ? `${index + 1} of ${count}` : "");
  }

  /** @param {number} dump as in the address @returns {number} */
  function placeOf(dump) {
    return Math.max(0, Math.min((shelf?.sources.length ?? 1) - 1, Math.floor(dump)));
  }

  /** Opens dumps and shows the first that can be read. @param {readonly DumpSource[]} sources
   * @param {number} first to try @param {boolean} isOther dropped or chosen later */
  async function open(sources, first, isOther) {
    const next = new DumpShelf(sources, (name, bytes) => {
      if (shelf === next || bytes < MANY_BYTES) return;
      elements["note"].hidden = false;
      elements["note"].tell(name, bytes);
    });
    const order = sources.map((_, at) => (Math.min(first, sources.length - 1) + at) % sources.length);
    const problems = [];
    for (const index of order) {
      try {
        const taken = await next.get(index);
        use(next, taken, isOther);
        for (const { index, message } of problems) elements["scrubber"].tell(index, message);
        return;
      } catch (problem) {
        problems.push({ index, name: sources[index]?.name ?? "", ...saidOf(problem) });
      }
    }
    note();
    elements["opener"].refuse(problems);
  }

  /** @param {DumpShelf} next @param {OpenedDump} taken @param {boolean} isOther */
  function use(next, taken, isOther) {
    const { sources } = next;
    series?.stop();
    series = null;
    shelf = next;
    labels = stepLabels(sources);
    [wanted, shown] = [taken.index, taken.index];
    if (isOther) isServed = false;
    elements["scrubber"].open(sources);
    elements["scrubber"].index = taken.index;
    const theory = !isOther && sources.length === 1 ? (page.dump?.theory ?? null) : null;
    opened.value = { ...taken, count: sources.length, isOther, theory };
    // The dump that the address names may be unreadable.
    setView({ dump: taken.index });
    if (sources.length > 1) read(sources);
  }

  /** @param {readonly DumpSource[]} sources */
  function read(sources) {
    const own = new Series(sources, (index) => {
      const figures = own.steps[index];
      elements["scrubber"].tell(index, figures ?? own.problems.get(index) ?? "");
      drawSeries(DRAW_EVERY);
    });
    series = own;
    own.start();
  }

  // From one step to another

  /** Shows the last wanted dump; dumps passed over meanwhile are not read. */
  async function load() {
    isLoading = true;
    while (shelf !== null && shown !== wanted) {
      const [from, index] = [shelf, wanted];
      try {
        const taken = await from.get(index);
        if (shelf === from) showStep(taken);
      } catch (problem) {
        if (shelf !== from) continue;
        elements["scrubber"].tell(index, saidOf(problem).message);
        shown = index;
      }
    }
    isLoading = false;
    ahead();
  }

  /** @param {OpenedDump} taken */
  function showStep(taken) {
    const before = opened.value;
    shown = taken.index;
    if (before !== null && before.picture.key !== taken.picture.key) {
      const select = carried(view.value.select, before.picture.topology, taken.picture.topology);
      if (select !== view.value.select) setView({ select });
    }
    opened.value = { ...taken, count: shelf?.sources.length ?? 1, isOther: false, theory: null };
  }

  /** Reads the neighbours ahead. */
  function ahead() {
    for (const index of [shown + 1, shown - 1])
      if (shelf?.sources[index] !== undefined) shelf.get(index).catch(() => null);
  }

  // The selected tensor at every step

  /** @param {number} [every] minimum between two drawings, ms */
  function drawSeries(every = 0) {
    if (drawing !== 0) return;
    drawing = later(() => {
      drawing = 0;
      drawnAt = performance.now();
      showSeries();
    }, Math.max(0, drawnAt + every - performance.now()));
  }

  function showSeries() {
    const { graph, tensor } = inspected;
    const at = graph?.tensorIndex.get(tensor);
    const now = opened.value;
    const isShown = series !== null && graph !== null && at !== undefined && now !== null
      && now.picture.rows.has(tensor);
    elements["series"].hidden = !isShown;
    if (!isShown) return;
    const { axis, a } = view.value;
    const steps = tensorSteps(series?.steps ?? [], series?.graphs ?? new Map(), graph.topology, now.structure, at,
      axis);
    const colour = hue(graph.arrays.tensorHalf[at] === 1 ? "backward" : "forward",
      graph.topology.tensors[at]?.role ?? "");
    elements["series"].show(steps, labels, now.index, pinnedOf(a), colour, unitOf(shelf?.sources ?? []));
  }

  return {
    /** An open dump, to compare to. @param {number} index @returns {Promise<OpenedDump>} */
    async take(index) {
      if (shelf === null && page.dump !== null)
        await new Promise((resolve) => opened.subscribe((value) => value !== null && resolve(value)));
      if (shelf === null || shelf.sources[index] === undefined)
        throw new ApiError({ code: "not_found", message: `unknown dump ${index}` }, 404);
      try {
        return await shelf.get(index);
      } catch (problem) {
        if (!(problem instanceof DumpProblem)) throw problem;
        throw new ApiError({ code: "invalid_dump", message: `${shelf.sources[index]?.name}: ${problem.message}` }, 422);
      }
    },
    inspect(/** @type {Graph | null} */ graph, /** @type {string} id */ tensor) {
      inspected = { graph, tensor };
      drawSeries();
    },
    /** A problem that is not of one dump. @param {string} problem */
    tell(problem) {
      elements["scrubber"].problem = problem;
    },
  };
}

/** @param {string} a as in the address @returns {number} place of the dump, -1 for none */
export function pinnedOf(a) {
  const [, index] = /^dump:(\d{1,6})$/.exec(a) ?? [];
  return index === undefined ? -1 : Number(index);
}

/** @param {unknown} problem @returns {{message: string, where?: string}} */
function saidOf(problem) {
  if (problem instanceof DumpProblem) return { message: problem.message, where: problem.where };
  if (problem instanceof ApiError) return { message: problem.message };
  if (problem instanceof DOMException) return { message: "The file cannot be read." };
  throw problem;
}

/** Asks for the theory of a dump that the server holds. @param {string} url of the dump
 * @returns {Promise<Omit<Theory, "seq"> | null>} null: the dump shows without it */
export async function theoryOfDump(url) {
  try {
    return await getJson(`${url}${url.includes("?") ? "&" : "?"}what=theory`);
  } catch (problem) {
    if (problem instanceof ApiError) return null;
    throw problem;
  }
}
