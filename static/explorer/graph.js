/** The graph's part of the page: what is open, searched for, coloured, lit and stepped through. The elements say
 * what is wanted; it becomes view, and view becomes what they show. */

import { cancel, later } from "../core/activity.js";
import { expansionOf, toggle, toggledToShow } from "../core/graph/expansion.js";
import { buildGraph, find, GROUP_KINDS, idOf, openGroups } from "../core/graph/graph.js";
import { OVERLAYS, paintwork, rangeOf, whyNot } from "../core/lab/overlay.js";
import { reach } from "../core/graph/reach.js";
import { litOfFound, parseQuery, search } from "../core/graph/search.js";
import { signal } from "../core/signal.js";
import { litOf } from "../core/graph/steps.js";

/** The figures that a search compares may change with each picture; it is made anew when they rest. */
const SEARCH_AGAIN_MS = 300;

/** @typedef {object} Page what the part needs of the page
 * @property {Record<string, any>} elements graph, toolbar, steps @property {Signal<View>} view
 * @property {(change: Partial<View>) => void} setView
 * @property {(type: string, listener: (detail: any) => void) => void} on
 * @property {(before: Graph, after: Graph) => Partial<View> | null} follow what changes for the same to be looked at
 * in the next graph, where that is of much the same model; null: it is not
 * @property {(change: Partial<View>) => void} replaceView as setView, without an entry in the history */

/** @typedef {{ids: string[], total: number, at: number, problem: string | null, note: string | null}} Finds at: of
 * the one gone to, from 1; note: why there may be more */

/** @param {Page} page
 * @returns {{graph: Signal<Graph | null>, show: (picture: Picture) => void, theory: (theory: Theory | null) => void,
 * compare: (reference: ComparisonReference | null) => void, boxOf: (tensor: string) => string, drawnWith: () =>
 * Paintwork | null, light: (ids: Iterable<string>) => void}} graph: of the picture on the screen · boxOf: from the
 * id of a tensor to its id in addresses · light: points out, until something else is selected */
export function connectGraph({ elements, view, setView, on, follow, replaceView }) {
  const graph = signal(/** @type {Graph | null} */ (null));
  /** @type {Picture | null} */
  let picture = null;
  /** @type {Theory | null} */
  let theory = null;
  /** A dump that the picture is compared to. @type {ComparisonReference | null} */
  let reference = null;
  /** @type {Finds | null} */
  let found = null;
  /** What the inspector has asked to see, a path say; gone with the selection it starts from.
   * @type {{select: string, ids: ReadonlySet<string>} | null} */
  let path = null;
  /** @type {Paintwork | null} */
  let paints = null;
  let key = "";
  let searchedAs = "";
  let searching = 0;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** @param {Picture} next */
  function show(next) {
    picture = next;
    /** @type {Partial<View> | null} */
    let change = null;
    if (next.key !== key) {
      key = next.key;
      const before = graph.value;
      const after = buildGraph(next.topology);
      if (before !== null) change = follow(before, after);
      graph.value = after;
      searchedAs = "";
      offer(after);
    }
    const drawn = graph.value;
    if (drawn === null) return;
    elements["graph"].show(next, drawn);
    if (change !== null) replaceView(change);
    paint();
    if (view.value.show === "steps") elements["steps"].show(next, drawn);
    if (view.value.q === "") return;
    cancel(searching);
    searching = later(() => {
      searchedAs = "";
      look();
    }, SEARCH_AGAIN_MS);
  }

  /** What there is to choose from. @param {Graph} of */
  function offer(of) {
    let deepest = 0;
    for (const depth of of.arrays.groupDepth) deepest = Math.max(deepest, depth);
    elements["toolbar"].depth = deepest;
    // Without anything to compare to there is no such choice.
    const overlays = OVERLAYS.filter(({ name }) => name !== "difference" || reference !== null);
    elements["toolbar"].overlays = overlays.map(({ name, title }) => ({ name, title,
      reason: whyNot(name, of, reference) })
    );
    spread();
  }

  function spread() {
    const of = graph.value;
    if (of === null) return;
    const expansion = expansionOf(view.value);
    const can = of.arrays.groupKind.some((kind) => GROUP_KINDS[kind] === "fold");
    elements["toolbar"].folds = { can, on: can && openGroups(of, expansion).foldOn };
    elements["graph"].expansion = expansion;
  }

  function paint() {
    const { colour, thickness, span } = view.value;
    const isWanted = colour !== "" || thickness !== "";
    if (!isWanted && paints === null) return;
    const scheme = dark.matches ? "dark" : "light";
    paints = !isWanted || picture === null || graph.value === null ? null
      : paintwork({ kind: colour, edges: thickness, graph: graph.value, picture, theory, reference, range: spanOf(span),
        scheme });
    elements["graph"].paintwork = paints;
  }

  dark.addEventListener("change", paint);

  // Searching

  function look() {
    const { q } = view.value;
    const asked = `${key} ${q}`;
    if (asked === searchedAs) return;
    searchedAs = asked;
    const before = found;
    found = null;
    if (q !== "" && picture !== null && graph.value !== null) {
      const query = parseQuery(q);
      if ("error" in query) found = { ids: [], total: 0, at: 0, problem: query.error, note: null };
      else {
        const { ids, total, note } = search(graph.value, picture, query);
        const went = before === null || before.at === 0 ? -1 : ids.indexOf(before.ids[before.at - 1] ?? "");
        found = { ids, total, at: went + 1, problem: null, note: note ?? null };
      }
    }
    elements["toolbar"].found = found;
    light();
  }

  /** @param {number} by */
  function goToFound(by) {
    if (found === null || found.ids.length === 0) return;
    const count = found.ids.length;
    found.at = found.at === 0 && by < 0 ? count : ((found.at - 1 + by + count) % count) + 1;
    elements["toolbar"].found = found;
    goTo(found.ids[found.at - 1] ?? "");
  }

  /** Selects, opens what hides it, and brings it into view. @param {string} id */
  function goTo(id) {
    const of = graph.value;
    const item = of === null ? null : find(of, id);
    if (of === null || item === null) return;
    setView({ select: id, toggled: toggledToShow(view.value, of, item) });
    elements["graph"].reveal(id);
  }

  // What is lit

  function light() {
    elements["graph"].lit = litNow();
  }

  /** @param {Iterable<string>} ids of what is lit until something else is selected */
  function pointOut(ids) {
    const set = new Set(ids);
    path = set.size === 0 ? null : { select: view.value.select, ids: set };
    light();
  }

  /** @returns {ReadonlySet<string> | null} null: nothing stands out */
  function litNow() {
    const of = graph.value;
    if (of === null) return null;
    const { show, select, reach: reached, step } = view.value;
    if (show === "steps") return litOf(of, step);
    if (path !== null && path.select === select) return path.ids;
    const limits = reachOf(reached);
    const item = limits === null ? null : find(of, select);
    if (item !== null && limits !== null) return reach(of, item, limits);
    return found === null || found.problem !== null ? null : litOfFound(of, found.ids);
  }

  view.subscribe((value) => {
    elements["toolbar"].view = value;
    elements["graph"].camera = value;
    elements["graph"].selection = value.select;
    elements["graph"].statistic = value.statistic === "mean" ? "mean" : "std";
    elements["steps"].hidden = value.show !== "steps";
    elements["steps"].step = value.step;
    if (path !== null && path.select !== value.select) path = null;
    if (value.show === "steps" && picture !== null && graph.value !== null)
      elements["steps"].show(picture, graph.value);
    spread();
    paint();
    look();
    light();
  });
  graph.subscribe(light);

  /** Of which graph the step in the address has been brought into view. */
  let steppedInto = "";
  on("drawing-change", () => {
    const { show, step, zoom } = view.value;
    if (show !== "steps" || zoom !== 1 || steppedInto === key) return;
    steppedInto = key;
    elements["graph"].reveal(graph.value?.topology.ops[step]?.id ?? "");
  });
  on("group-toggle", ({ id }) => setView({ toggled: toggle(view.value, id) }));
  // From a level on everything is as the level says.
  on("level-change", ({ level }) => setView({ level, toggled: "" }));
  on("fold-change", ({ fold }) => setView({ fold }));
  on("colour-change", ({ colour }) => setView({ colour, span: "" }));
  on("thickness-change", ({ thickness }) => setView({ thickness }));
  on("span-hold", ({ held }) => {
    const range = held && paints !== null ? rangeOf(paints) : null;
    setView({ span: range === null ? "" : range.map((value) => Number(value.toPrecision(4))).join(":") });
  });
  on("search-change", ({ q }) => setView({ q }));
  on("search-step", ({ by }) => goToFound(by));
  on("box-open", ({ id }) => goTo(id));
  on("reach-change",
    ({ direction, hops }) =>
      setView({ reach: direction === "" ? "" : `${direction}${Number.isFinite(hops) ? hops : ""}` }));
  on("path-light", ({ ids }) => pointOut(ids));
  on("step-change", ({ step }) => {
    setView({ step });
    const op = graph.value?.topology.ops[step]?.id;
    if (op !== undefined) elements["graph"].reveal(op);
  });

  return {
    graph,
    show,
    theory(next) {
      theory = next;
      elements["graph"].theory = next;
      if (view.value.colour === "health") paint();
    },
    compare(next) {
      if (next?.picture === reference?.picture && next?.match === reference?.match) return;
      const isChoice = (next === null) !== (reference === null);
      reference = next;
      if (isChoice && graph.value !== null) offer(graph.value);
      if (view.value.colour === "difference") paint();
    },
    boxOf(tensor) {
      const of = graph.value;
      const index = of?.tensorIndex.get(tensor);
      return of === null || index === undefined ? tensor : idOf(of, { kind: "tensor", index, half: "forward" });
    },
    drawnWith: () => paints,
    light: pointOut,
  };
}

/** @param {string} span as in the address @returns {[number, number] | null} */
function spanOf(span) {
  const [low = NaN, high = NaN] = span === "" ? [] : span.split(":").map(Number);
  return Number.isFinite(low) && Number.isFinite(high) && low <= high ? [low, high] : null;
}

/** @param {string} text as in the address @returns {{hops: number, direction: "up" | "down" | "both"} | null} */
export function reachOf(text) {
  const [, direction, hops] = /^(up|down|both)(\d{0,4})$/.exec(text) ?? [];
  if (direction === undefined) return null;
  return { direction: /** @type {"up" | "down" | "both"} */ (direction), hops: hops === "" ? Infinity : Number(hops) };
}
