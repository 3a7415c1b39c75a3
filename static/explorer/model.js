/** A user's own model: the controls set a what-if; the view survives new code; a failure shows above the picture. */

import { buttonOf, html, writeText } from "../core/dom.js";
import { toggledToShow } from "../core/graph/expansion.js";
import { find } from "../core/graph/graph.js";
import { Counterparts, keepView } from "../core/graph/keep-view.js";
import { groupAt } from "../core/lab/weights.js";

/** @typedef {object} Page @property {OwnModel} model
 * @property {Record<string, any>} elements controls, graph, codeNote @property {Signal<View>} view
 * @property {(change: Partial<View>) => void} replaceView without a history entry
 * @property {() => void} again asks for the picture again
 * @property {() => boolean} isAsking whether an answer to a later request is to come */

/** @typedef {ReturnType<typeof connectModel>} Own */

/** @param {Page} page */
export function connectModel({ model, elements, view, replaceView, again, isAsking }) {
  const { controls, codeNote } = elements;
  let { groups, error, version } = model;
  let graph = /** @type {Graph | null} */ (null);
  /** The view before the run failed, and its graph.
   * @type {{graph: Graph, view: Partial<View>, failedAt: string} | null} */
  let left = null;
  /** The failure already shown. */
  let wentTo = "";
  /** Whether the picture is of older code, and why the new code refuses the what-if. */
  let isBehind = false;
  let refusal = /** @type {ErrorBody | null} */ (null);
  let wasLost = false;
  let isFirst = true;
  document.title = `${model.name} · Chainrule`;

  const title = html("strong");
  const text = html("span");
  const show = buttonOf({ class: "link" }, () => goToFailure(), "Show where");
  codeNote.append(title, text, show);
  note();
  view.subscribe(() => (controls.here = graph === null ? null : groupAt(graph, view.value.select, groups)));

  /** Shows an error of the code: first that it cannot be read, else where it breaks. */
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
        }; the picture shows the old code.`);
      writeText(text, behind.message);
    } else if (graph !== null && failure !== null) {
      writeText(title, `The ${passOf(graph, op)} failed.`);
      const path = graph.topology.modules.find(({ id }) => id === op?.module)?.path ?? "";
      const place = op === undefined ? "" : `${op.name}${path && ` in ${path}`}: `;
      writeText(text, place + failure.message);
    }
  }

  /** Selects the op that raised, opens its groups and lights it and its inputs. */
  function goToFailure() {
    const of = graph;
    const op = of === null ? undefined : opOf(of, of.topology.error?.op ?? null);
    const item = of === null || op === undefined ? null : find(of, op.id);
    if (of === null || op === undefined || item === null) return;
    replaceView({ select: op.id, toggled: toggledToShow(view.value, of, item), show: "graph", tab: "graph" });
    elements["graph"].screen.reveal(op.id);
    elements["light"]([op.id, ...op.inputs]);
    if (left !== null) left.failedAt = op.id;
  }

  return {
    /** Called before another graph of the model is shown. @param {Graph} before @param {Graph} after */
    follow(before, after) {
      const hasFailed = after.topology.error != null;
      const { select, toggled, step, reach, show: shown, tab, zoom, at, across } = view.value;
      if (hasFailed)
        left ??= { graph: before, view: { select, toggled, step, reach, show: shown, tab, zoom, at, across },
          failedAt: "" };
      else if (left !== null) {
        const { graph: whole, view: was, failedAt } = left;
        left = null;
        // Fixed: restores the view, unless the selection has changed since.
        if (select === failedAt)
          return { ...was, ...keepView({ ...view.value, ...was }, new Counterparts(whole, after)) };
      }
      const counterparts = new Counterparts(before, after);
      elements["graph"].screen.follow((/** @type {Item} */ item) => counterparts.of(item));
      return keepView(view.value, counterparts);
    },

    /** @param {Graph | null} next its graph */
    show(next) {
      // The answer to a request from before the news is a picture of the older code.
      isBehind &&= isAsking();
      if (next === graph) return;
      graph = next;
      controls.here = graph === null ? null : groupAt(graph, view.value.select, groups);
      note();
      const failure = graph?.topology.error ?? null;
      const failed = failure === null ? "" : `${failure.op} ${failure.message}`;
      // A link to another item takes precedence.
      if (failed !== "" && failed !== wentTo && (!isFirst || view.value.select === "")) goToFailure();
      wentTo = failed;
      isFirst = false;
    },

    /** @param {ModelNews} news */
    told(news) {
      isBehind ||= news.version !== version;
      ({ error, groups, version } = news);
      refusal = null;
      controls.offer(groups, news.tied);
      note();
      if (error === null) again();
    },

    /** @param {ErrorBody | null} body */
    refused(body) {
      // A mistake in the what-if shows at its control.
      refusal = isBehind ? body : null;
      note();
    },

    /** @returns {boolean} whether the note shows the error of the what-if */
    get saysWhy() {
      return refusal !== null;
    },

    /** @param {ConnectionState} state */
    reached(state) {
      // A restarted server may have other code; it reports an error at once.
      if (state === "live" && wasLost) error = null;
      wasLost = !["live", "computing", "connecting"].includes(state);
      note();
    },
  };
}

/** @param {Graph} graph @param {string | null} id @returns {Op | undefined} */
function opOf({ topology, opIndex }, id) {
  return id === null ? undefined : topology.ops[opIndex.get(id) ?? -1];
}

/** @param {Graph} graph @param {Op | undefined} op that raised @returns {string} */
function passOf({ topology }, op) {
  // An op that has outputs failed on its way back.
  if (op !== undefined) return `${op.outputs.length > 0 ? "backward" : op.phase} pass`;
  // The loss ends the forward pass.
  return topology.tensors.some(({ role }) => role === "loss") ? "backward pass" : "forward pass";
}
