/** The graph's part of the page: expansion, search, colours, lighting and steps. */

import { cancel, later } from "../core/activity.js";
import { isDarkScheme, onSchemeChange } from "../core/colours.js";
import { expansionOf, toggle, toggledToShow } from "../core/graph/expansion.js";
import { buildGraph, find, GROUP_KINDS, idOf, KINDS, openGroups } from "../core/graph/graph.js";
import { OVERLAYS, paintwork, rangeOf, whyNot } from "../core/lab/overlay.js";
import { reach } from "../core/graph/reach.js";
import { parseQuery } from "../core/graph/query.js";
import { litOfFound, search } from "../core/graph/search.js";
import { signal } from "../core/signal.js";
import { litOf } from "../core/graph/steps.js";

/** Each picture may change the figures that a search compares; it runs again when they rest. */
const SEARCH_AGAIN_MS = 300;

/** @typedef {object} Page @property {Record<string, any>} elements graph, toolbar, steps
 * @property {Signal<View>} view @property {(change: Partial<View>) => void} setView
 * @property {(type: string, listener: (detail: any) => void) => void} on
 * @property {(before: Graph, after: Graph) => Partial<View> | null} follow the change that keeps the view in the
 * next graph; null: another model @property {(change: Partial<View>) => void} replaceView without a history entry */

/** @typedef {{ids: string[], total: number, at: number, problem: string | null, note: string | null}} Finds at: the
 * one in view, from 1; note: why there may be more */

/** @param {Page} page */
export function connectGraph({ elements, view, setView, on, follow, replaceView }) {
  const graph = signal(/** @type {Graph | null} */ (null));
  let picture = /** @type {Picture | null} */ (null);
  let theory = /** @type {Theory | null} */ (null);
  /** The pinned dump. @type {ComparisonReference | null} */
  let reference = null;
  let found = /** @type {Finds | null} */ (null);
  /** Items that the inspector lights, such as a path; cleared with the selection.
   * @type {{select: string, ids: ReadonlySet<string>} | null} */
  let path = null;
  let paints = /** @type {Paintwork | null} */ (null);
  /** The range of the colours, kept as long as the axes of the histograms are. */
  let kept = { axes: /** @type {Picture["axes"]} */ (null), colour: "",
    range: /** @type {[number, number] | null} */ (null) };
  let key = "";
  let searchedAs = "";
  let searching = 0;

  const screen = elements["graph"].screen;

  /** @param {Picture} next */
  function show(next) {
    const isOther = (picture?.precision ?? null) === null !== (next.precision === null);
    picture = next;
    let change = /** @type {Partial<View> | null} */ (null);
    if (next.key !== key) {
      key = next.key;
      const before = graph.value;
      const after = buildGraph(next.topology);
      if (before !== null) change = follow(before, after);
      graph.value = after;
      searchedAs = "";
      offer(after);
    } else if (isOther && graph.value !== null) offer(graph.value);
    const drawn = graph.value;
    if (drawn === null) return;
    screen.show(next, drawn);
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

  /** Offers the choices that this graph has. @param {Graph} of */
  function offer(of) {
    let deepest = 0;
    for (const depth of of.arrays.groupDepth) deepest = Math.max(deepest, depth);
    elements["toolbar"].depth = deepest;
    // The difference needs a reference, and the rounding a run in another precision; a chosen one stays at run A.
    const overlays = OVERLAYS.filter(({ name }) =>
      (name !== "difference" || reference !== null)
      && (name !== "precision" || (picture?.precision ?? null) !== null || view.value.colour === name)
    );
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
    elements["toolbar"].folds = { can, on: can && openGroups(of, expansion).kinds === KINDS.all };
    screen.expansion = expansion;
  }

  function paint() {
    const { colour, thickness, span } = view.value;
    const isWanted = colour !== "" || thickness !== "";
    if (!isWanted && paints === null) return;
    const scheme = isDarkScheme() ? "dark" : "light";
    const axes = picture?.axes ?? null;
    const isKept = axes !== null && axes === kept.axes && colour === kept.colour;
    const range = spanOf(span) ?? (isKept ? kept.range : null);
    paints = !isWanted || picture === null || graph.value === null ? null
      : paintwork({ kind: colour, edges: thickness, graph: graph.value, picture, theory, reference, range, scheme });
    kept = { axes, colour, range: paints === null ? null : rangeOf(paints) };
    elements["graph"].paintwork = paints;
  }

  onSchemeChange(paint);

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

  /** Selects an item, opens its groups and brings it into view. @param {string} id */
  function goTo(id) {
    const of = graph.value;
    const item = of === null ? null : find(of, id);
    if (of === null || item === null) return;
    setView({ select: id, toggled: toggledToShow(view.value, of, item) });
    screen.reveal(id);
  }

  // Lighting

  function light() {
    const { show, step } = view.value;
    screen.step = show === "steps" ? step : null;
    screen.lit = litNow();
  }

  /** @param {Iterable<string>} ids lit until the selection changes */
  function pointOut(ids) {
    const set = new Set(ids);
    path = set.size === 0 ? null : { select: view.value.select, ids: set };
    light();
  }

  /** @returns {ReadonlySet<string> | null} null: none are dimmed */
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
    screen.camera = value;
    screen.selection = value.select;
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

  /** Key of the graph in which the step of the address is in view. */
  let steppedInto = "";
  on("drawing-change", () => {
    const { show, step, zoom } = view.value;
    if (show !== "steps" || zoom !== 1 || steppedInto === key) return;
    steppedInto = key;
    screen.reveal(graph.value?.topology.ops[step]?.id ?? "");
  });
  on("group-toggle", ({ id }) => setView({ toggled: toggle(view.value, id) }));
  // A new level closes and opens all groups.
  on("level-change", ({ level }) => setView({ level, toggled: "" }));
  on("fold-change", ({ fold }) => setView({ fold }));
  on("colour-change", ({ colour }) => setView({ colour, span: "" }));
  on("thickness-change", ({ thickness }) => setView({ thickness }));
  on("span-hold", ({ held }) => {
    const range = held && paints !== null ? rangeOf(paints) : null;
    setView({ span: range === null ? "" : range.map((value) => Number(value.toPrecision(4))).join(":") });
  });
  on("search-change", ({ q }) => setView({ q }));
  on("search-step", ({ by }) => {
    if (found === null || found.ids.length === 0) return;
    const count = found.ids.length;
    found.at = found.at === 0 && by < 0 ? count : ((found.at - 1 + by + count) % count) + 1;
    elements["toolbar"].found = found;
    goTo(found.ids[found.at - 1] ?? "");
  });
  on("box-open", ({ id }) => goTo(id));
  on("reach-change",
    ({ direction, hops }) =>
      setView({ reach: direction === "" ? "" : `${direction}${Number.isFinite(hops) ? hops : ""}` }));
  on("path-light", ({ ids }) => pointOut(ids));
  on("step-change", ({ step }) => {
    setView({ step });
    const op = graph.value?.topology.ops[step]?.id;
    if (op !== undefined) screen.reveal(op);
  });

  return {
    graph,
    show,
    theory(/** @type {Theory | null} */ next) {
      theory = next;
      screen.theory = next;
      if (view.value.colour === "health") paint();
    },
    compare(/** @type {ComparisonReference | null} */ next) {
      if (next?.picture === reference?.picture && next?.match === reference?.match) return;
      const isChoice = (next === null) !== (reference === null);
      reference = next;
      if (isChoice && graph.value !== null) offer(graph.value);
      if (view.value.colour === "difference") paint();
    },
    /** A tensor's id in addresses. @param {string} tensor */
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
function reachOf(text) {
  const [, direction, hops] = /^(up|down|both)(\d{0,4})$/.exec(text) ?? [];
  if (direction === undefined) return null;
  return { direction: /** @type {"up" | "down" | "both"} */ (direction), hops: hops === "" ? Infinity : Number(hops) };
}
