/** A model of the user's own in the place of specs. A what-if is what may be set; when the code is read again, or
 * takes another way, what was looked at is looked at still; and where the code fails, the page says so over what
 * there is. */

import { html, writeText } from "../core/dom.js";
import { toggledToShow } from "../core/graph/expansion.js";
import { find } from "../core/graph/graph.js";
import { Counterparts, keepView } from "../core/graph/keep-view.js";
import { groupAt } from "../core/lab/weights.js";

/** @typedef {object} Page what the part needs of the page @property {OwnModel} model
 * @property {Record<string, any>} elements controls, graph, codeNote @property {Signal<View>} view
 * @property {(change: Partial<View>) => void} replaceView changes the view without an entry in the history
 * @property {() => void} again asks for the picture of what is set once more */

/** @typedef {ReturnType<typeof connectModel>} Own */

/** @param {PageData} page @returns {SpecTable} what the query string may say */
export function specTable(page) {
  if (page.model == null) return page;
  const defaults = Object.fromEntries(page.keys.map(({ name, default: value }) => [name, value]));
  return { keys: page.keys, programs: [{ name: "what-if", doc: "", defaults, page: null }] };
}

/** @param {Page} page */
export function connectModel({ model, elements, view, replaceView, again }) {
  const { controls, codeNote } = elements;
  let { groups, error, version } = model;
  /** @type {Graph | null} */
  let graph = null;
  /** What was looked at before the run broke off, and in which graph.
   * @type {{graph: Graph, view: Partial<View>, failedAt: string} | null} */
  let left = null;
  /** Of the failure that has been gone to. */
  let wentTo = "";
  /** Whether there is newer code than that of the picture, and why what is set cannot be shown of it. */
  let isBehind = false;
  /** @type {ErrorBody | null} */
  let refusal = null;
  let wasLost = false;
  /** Whether a picture has been shown. */
  let isFirst = true;
  document.title = `${model.name} · Chainrule`;

  const title = html("strong");
  const text = html("span");
  const show = html("button", { type: "button", class: "link" }, "Show where");
  show.addEventListener("click", () => goToFailure());
  codeNote.append(title, text, show);
  note();
  view.subscribe(() => (controls.here = graph === null ? null : groupAt(graph, view.value.select, groups)));

  /** What is wrong with the code, if anything: that it cannot be read goes before where it breaks. */
  function note() {
    const failure = graph?.topology.error ?? null;
    const op = graph === null || failure === null ? undefined : opOf(graph, failure.op);
    const behind = error ?? refusal;
    codeNote.hidden = behind === null && failure === null;
    show.hidden = behind !== null || op === undefined;
    if (behind !== null) {
      writeText(title,
        `The new code ${
          behind.field === "group" ? "has no such group" : "cannot be run"
        }; the picture is of the code before.`);
      writeText(text, behind.message);
    } else if (graph !== null && failure !== null) {
      writeText(title, `The ${passOf(graph, op)} broke off.`);
      writeText(text, op === undefined ? failure.message : `${placeOf(graph, op)}: ${failure.message}`);
    }
  }

  /** Selects the op that raised, opens what hides it and lights it with what it reads. */
  function goToFailure() {
    const of = graph;
    const op = of === null ? undefined : opOf(of, of.topology.error?.op ?? null);
    const item = of === null || op === undefined ? null : find(of, op.id);
    if (of === null || op === undefined || item === null) return;
    replaceView({ select: op.id, toggled: toggledToShow(view.value, of, item), show: "graph", tab: "graph" });
    elements["graph"].reveal(op.id);
    elements["light"]([op.id, ...op.inputs]);
    if (left !== null) left.failedAt = op.id;
  }

  return {
    /** Another graph of the model is about to be shown. @param {Graph} before @param {Graph} after
     * @returns {Partial<View>} what changes for the same to be looked at */
    follow(before, after) {
      const hasFailed = after.topology.error != null;
      const { select, toggled, step, reach, show: shown, tab, zoom, at, across } = view.value;
      if (hasFailed)
        left ??= { graph: before, view: { select, toggled, step, reach, show: shown, tab, zoom, at, across },
          failedAt: "" };
      else if (left !== null) {
        const { graph: whole, view: was, failedAt } = left;
        left = null;
        // Mended: as if nothing had happened, unless something else has been looked at since.
        if (select === failedAt)
          return { ...was, ...keepView({ ...view.value, ...was }, new Counterparts(whole, after)) };
      }
      const counterparts = new Counterparts(before, after);
      elements["graph"].follow((/** @type {Item} */ item) => counterparts.of(item));
      return keepView(view.value, counterparts);
    },

    /** A picture is shown. @param {Graph | null} next its graph */
    show(next) {
      isBehind = false;
      if (next === graph) return;
      graph = next;
      controls.here = graph === null ? null : groupAt(graph, view.value.select, groups);
      note();
      const failure = graph?.topology.error ?? null;
      const failed = failure === null ? "" : `${failure.op} ${failure.message}`;
      // A link to something else has the say.
      if (failed !== "" && failed !== wentTo && (!isFirst || view.value.select === "")) goToFailure();
      wentTo = failed;
      isFirst = false;
    },

    /** The code was read again. @param {ModelNews} news */
    told(news) {
      isBehind ||= news.version !== version;
      ({ error, groups, version } = news);
      refusal = null;
      controls.offer(groups, news.tied);
      note();
      if (error === null) again();
    },

    /** What is set is refused, or null: it is not. @param {ErrorBody | null} body */
    refused(body) {
      // A mistake is told where it was made.
      refusal = isBehind ? body : null;
      note();
    },

    /** @returns {boolean} whether the note says what is wrong with what is set */
    get saysWhy() {
      return refusal !== null;
    },

    /** How the server is reached. @param {ConnectionState} state */
    reached(state) {
      // Another server may have better code: whether it has not, it says at once.
      if (state === "live" && wasLost) error = null;
      wasLost = !["live", "connecting"].includes(state);
      note();
    },
  };
}

/** @param {Graph} graph @param {string | null} id @returns {Op | undefined} */
function opOf({ topology, opIndex }, id) {
  return id === null ? undefined : topology.ops[opIndex.get(id) ?? -1];
}

/** @param {Graph} graph @param {Op | undefined} op that raised, if it is known @returns {string} */
function passOf({ topology }, op) {
  // What has gone forward and is at fault has broken off on its way back.
  if (op !== undefined) return `${op.outputs.length > 0 ? "backward" : op.phase} pass`;
  // With the loss the forward pass ends.
  return topology.tensors.some(({ role }) => role === "loss") ? "backward pass" : "forward pass";
}

/** @param {Graph} graph @param {Op} op @returns {string} matmul in layers.1 */
function placeOf({ topology }, { name, module }) {
  const path = topology.modules.find(({ id }) => id === module)?.path ?? "";
  return path === "" ? name : `${name} in ${path}`;
}
