/** The explorer page: its state and its subscribers. Elements do not know each other: their bubbling events change spec
 * or view here, and spec and view update the elements.
 *
 *   event → spec → live → picture → elements          event → view → elements, address */

import { cancel, later } from "./core/activity.js";
import { parseSpec, parseView, specQuery, viewFragment, withProgram } from "./core/url-state.js";
import { apiPath, postJson, useBase } from "./core/api.js";
import { find as findItem } from "./core/graph/graph.js";
import { Live } from "./core/live.js";
import { matchedRun } from "./core/lab/dump-run.js";
import { hide, hideInRun, parsePrediction } from "./core/lab/prediction.js";
import { put } from "./core/dom.js";
import { AxisKeeper } from "./core/shared-axes.js";
import { signal } from "./core/signal.js";
import "./elements/comparison-table.js";
import "./elements/diagnosis-list.js";
import "./elements/dump-note.js";
import "./elements/dump-opener.js";
import "./elements/dump-scrubber.js";
import "./elements/experiment-note.js";
import "./elements/graph-toolbar.js";
import "./elements/graph-view.js";
import "./elements/histogram-chart.js";
import "./elements/inspector-panel.js";
import "./elements/layer-profile.js";
import "./elements/layer-table.js";
import "./elements/layers-view.js";
import "./elements/lesson-column.js";
import "./elements/prediction-prompt.js";
import "./elements/run-status.js";
import "./elements/spec-controls.js";
import "./elements/spec-presets.js";
import "./elements/steps-view.js";
import "./elements/tensor-over-steps.js";
import "./elements/training-bar.js";
import "./elements/training-view.js";
import "./elements/value-map.js";
import "./elements/what-if-controls.js";
import { connectAddress } from "./explorer/address.js";
import { connectAnnouncer } from "./explorer/announcer.js";
import { connectDumps, pinnedOf, theoryOfDump } from "./explorer/dump.js";
import { connectExplanations } from "./explorer/explanations.js";
import { connectGraph } from "./explorer/graph.js";
import { connectHeader, connectKeys } from "./explorer/header.js";
import { connectLesson, landing } from "./explorer/lesson.js";
import { connectLinks, NET } from "./explorer/links.js";
import { connectModel } from "./explorer/model.js";
import { connectPictures } from "./explorer/pictures.js";
import { connectPin } from "./explorer/pin.js";
import { connectTakeaway } from "./explorer/takeaway.js";
import { connectTraining } from "./explorer/training.js";

/** ms from the end of a drag until the page hides its start. */
const FORGET_BEFORE_MS = 400;
/** ms that the slider over dumps must rest before the page requests theory. */
const ASK_THEORY_AFTER_MS = 120;

/** @param {string} selector @returns {any} */
function find(selector) {
  const element = document.querySelector(selector);
  if (element === null) throw new Error(`the page has no ${selector}`);
  return element;
}

/** @type {PageData} */
const page = JSON.parse(find("#page-data").textContent);
const elements = {
  // A user's own model has a what-if in place of the spec.
  controls: find("spec-controls, what-if-controls"),
  presets: find("spec-presets"),
  graph: find("graph-view"),
  toolbar: find("graph-toolbar"),
  steps: find("steps-view"),
  layers: find("layers-view"),
  bar: find("training-bar"),
  training: find("training-view"),
  lesson: find("lesson-column"),
  profile: find("layer-profile"),
  inspector: find("inspector-panel"),
  comparison: find("comparison-table"),
  status: find("run-status"),
  diagnosis: find("diagnosis-list"),
  experiment: find("experiment-note"),
  prediction: find("prediction-prompt"),
  opener: find("dump-opener"),
  note: find("dump-note"),
  scrubber: find("dump-scrubber"),
  series: find("tensor-over-steps"),
  codeNote: find("#code-note"),
  announcer: find("#announcer"),
};
if (page.model != null) useBase(page.model.base);

/** The keys of the query string: those of a spec, or of a user's model's what-if. @type {SpecTable} */
const table = page.model == null ? page
  : { keys: page.keys,
    programs: [{ name: "what-if", doc: "", page: null,
      defaults: Object.fromEntries(page.keys.map(({ name, default: value }) => [name, value])) }] };
/** @param {Spec} spec @returns {string} */
const queryOf = (spec) => specQuery(table, spec);
/** @param {string} address from its ? on @returns {string} */
const queryIn = (address) => address.slice(1).split("#")[0] ?? "";
/** @param {string} address @returns {string} */
const fragmentIn = (address) => address.split("#")[1] ?? "";
/** @param {string} query @returns {Spec} */
const specOf = (query) => parseSpec(table, query);

// The query of the address may hold a preset's name or a mistake; page.query is the server's reading.
const greeting = landing(page.lessons);
const spec = signal(specOf(greeting === "" ? page.query : queryIn(greeting)));
const view = signal(parseView(fragmentIn(greeting) || location.hash || (page.view ?? "")));
const picture = signal(/** @type {Picture | null} */ (null));
const theory = signal(/** @type {Theory | null} */ (null));
/** Run A. */
const pinned = signal(/** @type {PinnedRun | null} */ (null));
/** The open dump, instead of the server's answers. */
const opened = signal(/** @type {ShownDump | null} */ (null));
/** @type {Signal<ErrorBody | null>} */
const error = signal(page.error);
/** The error of run A. */
const pinError = signal(/** @type {ErrorBody | null} */ (null));

/** A mistaken address: the default model is shown, and the mistake stays visible until a change. */
let isAddressAtFault = page.error !== null;

const address = connectAddress(view, page.error === null ? page.query : location.search.slice(1));
/** @param {Partial<View>} change */
const setView = (change) => address.setView(change);
/** @param {Partial<View>} change */
const replaceView = (change) => address.setView(change, false);
const pictures = connectPictures(picture, theory, () => opened.value === null);

const live = new Live({
  picture(next) {
    if (next.spec === spec.value && !isAddressAtFault) {
      error.value = null;
      address.accept(queryOf(next.spec));
    }
    pictures.take(next);
  },
  theory: pictures.takeTheory,
  training: (message, asked) => training.take(message, asked),
  error(body, asked) {
    if (asked === spec.value && training.goesOn(body, asked)) return live.request(asked);
    if (asked === spec.value) error.value = body;
    training.refused();
  },
  state(connection) {
    elements.status.connection = connection;
    own?.reached(connection);
  },
  model: (news) => own?.told(news),
}, queryOf);

addEventListener("popstate", () => {
  const start = landing(page.lessons);
  const asked = specOf(queryIn(start || location.search));
  address.moved(queryOf(asked), fragmentIn(start) || location.hash);
  if (queryOf(asked) !== queryOf(spec.value)) jump(asked);
});

/** Another net, by no control. @param {Spec} next */
function jump(next) {
  training.changes(false);
  setSpec(next);
}

/** @param {Spec} next */
function setSpec(next) {
  if (isAddressAtFault) document.querySelector(".page-error[role=alert]")?.remove();
  isAddressAtFault = false;
  pinError.value = null;
  // The server computes while the controls update.
  live.request(next);
  spec.value = next;
}

// Elements to state

/** @template T @param {string} type @param {(detail: T) => void} listener */
function on(type, listener) {
  document.addEventListener(type, (event) => listener(/** @type {CustomEvent<T>} */ (event).detail));
}

const axes = new AxisKeeper();
/** The picture at the start of the drag. @type {Picture | null} */
let before = null;
let forgetting = 0;

/** @param {boolean} moving whether the slider is being dragged */
function rememberStart(moving) {
  if (moving && !isMoving) before = picture.value;
  cancel(forgetting);
  if (moving || before === null) return;
  forgetting = later(() => {
    before = null;
    if (picture.value !== null) show(picture.value);
  }, FORGET_BEFORE_MS);
}

let isMoving = false;
on("spec-change", (/** @type {{change: Spec, moving: boolean}} */ { change, moving }) => {
  // One drag, one history entry: its first movement makes it, the rest replaces it.
  if (!isMoving) address.pushes = true;
  rememberStart(moving);
  isMoving = moving;
  elements.profile.isHeld = moving;
  // The slider starts from the picture on the screen, not from a refused input.
  const refused = error.value?.field;
  const accepted = specOf(address.query);
  const isRefusedElsewhere = !isAddressAtFault && refused != null && refused in spec.value && "scale" in change
    && "scale" in accepted && refused !== "scale";
  const base = isRefusedElsewhere ? accepted : spec.value;
  const next = { ...("program" in change ? withProgram(page, base, String(change["program"])) : base), ...change };
  if (!("step" in change)) training.changes(moving);
  if (!moving && queryOf(next) === queryOf(spec.value)) {
    // A drag that ends where it began makes no entry; a click on the track does, once its picture arrives.
    if (address.query === queryOf(spec.value)) address.pushes = false;
    elements.controls.spec = spec.value;
    return;
  }
  setSpec("step" in change ? next : training.anew(next));
});
on("preset-choose", (/** @type {{preset: Preset}} */ { preset }) => {
  address.pushes = true;
  // Enters the address with the spec: one history entry.
  view.value = { ...view.value, predict: "", guess: "" };
  jump(specOf(preset.query));
});
on("box-select", (/** @type {{id: string}} */ { id }) => setView({ select: id }));
on("tensor-select", (/** @type {{tensor: string}} */ { tensor }) => {
  setView({ select: drawn.boxOf(tensor) });
  elements.graph.screen.reveal(drawn.boxOf(tensor));
});
on("statistic-change", (/** @type {{statistic: View["statistic"]}} */ { statistic }) => setView({ statistic }));
on("layers-options-change", (/** @type {Partial<LayersOptions>} */ change) => setView(change));
on("prediction-start", (/** @type {{figure: string}} */ { figure }) => {
  setView({ predict: figure, guess: "" });
  elements.prediction.focus();
});
on("prediction-guess",
  (/** @type {{guess: number | null}} */ { guess }) => setView({ guess: guess === null ? "" : String(guess) }));
on("prediction-end", () => {
  setView({ predict: "", guess: "" });
  elements.experiment.querySelector("button")?.focus();
});
on("unpin", () => setView(unpinned()));
on("swap-runs", () => {
  const a = view.value.a;
  if (a === "") return;
  if (pinnedOf(a) >= 0 && opened.value !== null) {
    setView({ a: `dump:${opened.value.index}`, dump: pinnedOf(a) });
    return;
  }
  setView({ a: `?${queryOf(specShown())}` });
  address.pushes = false;
  jump(specOf(a.slice(1)));
});
on("camera-change", (/** @type {{zoom: number, at: number, across: number}} */ camera) => setView(camera));
on("axis-change", (/** @type {DepthAxis} */ { positions, width }) => {
  // With layers in a closed box, graph and profile share no axis.
  const places = (shown?.topology.layers ?? []).map(({ preactivation, activation }) =>
    positions.get(activation ?? preactivation ?? "")
  );
  // Nor if a user's graph is wider than the panel or has parallel layers: the profile shows all layers, side by side.
  const isShared = places.every((x, at) =>
    x !== undefined && (!isOwn() || (x >= 0 && x <= width && x > (places[at - 1] ?? -1)))
  );
  elements.profile.axis = { positions: isShared ? positions : new Map(), width };
});

const drawn = connectGraph({ elements, view, setView, replaceView, on,
  follow: (before, after) => (opened.value === null ? own?.follow(before, after) : undefined) ?? null });

/** @returns {Spec} of the run on the screen; the last one asked for may have been refused */
function specShown() {
  return picture.value?.spec ?? spec.value;
}

// State to elements

elements.controls.configure(page);
const own = page.model == null ? null
  : connectModel({ model: page.model, elements: { ...elements, light: drawn.light }, view, replaceView,
    again: () => live.request(spec.value), isAsking: () => live.isAsking });
elements.presets.presets = page.presets;
// With the spec of the picture shown: the inspector shows its ops.
if (page.model != null)
  elements.inspector.check = (/** @type {string} */ op) => postJson(apiPath("gradcheck", queryOf(specShown())), { op });

spec.subscribe((value) => {
  elements.controls.spec = value;
  elements.presets.current = experimentQuery(value);
});
error.subscribe(tellRecording);
picture.subscribe(tellRecording);
spec.subscribe(tellRecording);
function tellRecording() {
  const asked = spec.value["recording"];
  const isBusy = asked !== specShown()["recording"] && error.value === null;
  elements.toolbar.recording = { asked, isBusy };
}
connectLinks(spec, view, queryOf, (widths) => {
  address.pushes = true;
  view.value = { ...view.value, lesson: "", answer: "" };
  jump({ ...withProgram(page, spec.value, NET), widths });
});

/** @param {Spec} value @returns {string} of its experiment, which any seed belongs to */
function experimentQuery(value) {
  return queryOf({ ...value, seed: specOf("")["seed"] ?? 0 });
}

const training = connectTraining({ elements, view, setView, on, queryOf, specOf, isMoving: () => isMoving });

picture.subscribe((value) => {
  if (value === null) return;
  training.arrived(value);
  show(value);
});
connectAnnouncer(picture, elements.announcer,
  () => ({ picture: shown, theory: theory.value, selection: view.value.select && tensorOf(view.value.select) }));

/** @returns {boolean} whether no spec describes the model shown */
function isOwn() {
  return page.model != null || shown?.spec === null;
}

/** The picture on the screen, without figures that wait for a guess. @type {Picture | null} */
let shown = null;

/** @returns {string} below a saved picture: whose it is, and the keys that differ from their defaults */
function caption() {
  const name = opened.value?.name ?? page.model?.name ?? "";
  const query = shown === null || shown.spec === null ? "" : queryOf(shown.spec);
  const keys = decodeURIComponent(query).replaceAll("&", ", ") || (name === "" ? "all keys at their defaults" : "");
  return ["Chainrule", name, keys].filter((part) => part !== "").join(" · ");
}

/** @param {Picture} value */
function show(value) {
  const prediction = parsePrediction(view.value.predict, view.value.guess);
  const hidden = hide(value, prediction);
  const isShared = view.value.bins === "shared";
  if (!isShared) axes.forget();
  shown = { ...hidden, axes: isShared ? axes.of(value) : null,
    before: hidden.hidden === null && before?.key === value.key ? before : null };
  const rules = (isOwn() ? page.local_rules : null) ?? page.rules;
  elements.diagnosis.rules = rules;
  elements.inspector.rules = rules;
  elements.status.picture = shown;
  elements.note.picture = shown;
  if (shown.spec !== null) elements.controls.picture = shown;
  document.body.dataset["layers"] = shown.topology.layers.length === 0 ? "none" : "some";
  drawn.show(shown);
  if (opened.value === null) own?.show(drawn.graph.value);
  elements.layers.caption = caption();
  elements.layers.picture = shown;
  training.show(shown);
  elements.profile.picture = shown;
  elements.diagnosis.picture = shown;
  elements.presets.secretive = shown.hidden !== null;
  // The prompt gets the whole picture and shows the figure after the guess.
  elements.prediction.show(value, prediction);
  judge();
  compare();
}

/** Run A, without figures that wait for a guess. @type {PinnedRun | null} */
let shownRun = null;

function compare() {
  const prediction = parsePrediction(view.value.predict, view.value.guess);
  const run = pinned.value;
  const matched = run === null || picture.value === null ? null
    : opened.value === null ? run : matchedRun(run, opened.value, picture.value);
  shownRun = matched === null || picture.value === null ? null : hideInRun(matched, picture.value, prediction);
  drawn.compare(matched?.dump?.match == null ? null : { picture: matched.dump.picture, match: matched.dump.match });
  elements.profile.pinned = shownRun;
  inspect();
}

/** Passes theory to the elements, unless it would reveal a guess. */
function judge() {
  const told = shown === null || shown.hidden !== null ? null : theory.value;
  elements.profile.theory = told;
  elements.diagnosis.theory = told;
  elements.diagnosis.toggleAttribute("data-judged", told !== null);
  elements.inspector.theory = told;
  drawn.theory(told);
  if (shown !== null) {
    const query = shown.spec === null ? null : experimentQuery(shown.spec);
    elements.experiment.show(shown, page.presets.filter((preset) => preset.query === query), told);
  }
  // The controls need the std of the distribution of the weights.
  elements.controls.theory = theory.value;
  elements.prediction.theory = theory.value;
}

theory.subscribe(judge);

const dumps = connectDumps({ page, opened, elements, view, setView, on });
const pin = connectPin(pinned, pinError, dumps.take, () => {
  view.value = { ...view.value, ...unpinned() };
  // Replaced: going back must not reach the mistake.
  address.write(false);
}, specOf);
on("bins-change", (/** @type {{bins: View["bins"]}} */ { bins }) => setView({ bins }));
let shownAs = "";
view.subscribe((value) => {
  elements.profile.statistic = value.statistic;
  elements.layers.options = value;
  elements.inspector.reach = value.reach;
  const showsAs = `${value.predict} ${value.guess} ${value.bins}`;
  if (showsAs !== shownAs && picture.value !== null) show(picture.value);
  shownAs = showsAs;
  void pin(value.a);
  select();
});

pinned.subscribe(compare);

function tellErrors() {
  const at = error.value;
  elements.controls.error = at;
  own?.refused(at);
  // Shown at the control at fault, else at the picture.
  const isAtControl = page.keys.some(({ name }) => name === at?.field && name !== "recording");
  elements.status.error = (isAtControl || isAddressAtFault || own?.saysWhy === true ? null : at) ?? pinError.value;
  dumps.tell(pinError.value?.message ?? "");
}

error.subscribe(tellErrors);
pinError.subscribe(tellErrors);

function select() {
  const tensor = tensorOf(view.value.select);
  elements.profile.selection = tensor;
  elements.layers.selection = tensor;
  elements.controls.selection = tensor;
  dumps.inspect(drawn.graph.value, tensor);
  inspect();
}

/** @param {string} id in addresses @returns {string} the tensor's own id, or the given one */
function tensorOf(id) {
  const graph = drawn.graph.value;
  const item = graph === null ? null : findItem(graph, id);
  return item?.kind === "tensor" ? (graph?.topology.tensors[item.index]?.id ?? id) : id;
}

drawn.graph.subscribe(select);

/** Shows the selection in figures; without one the comparison, if there is one. */
function inspect() {
  const { select, statistic } = view.value;
  const graph = drawn.graph.value;
  const isComparing = shownRun !== null && select === "";
  put(elements.comparison, "hidden", !isComparing);
  put(elements.inspector, "hidden", isComparing);
  // The new graph arrives before its picture.
  if (shown === null || graph === null || graph.topology !== shown.topology) return;
  if (isComparing && shownRun !== null) elements.comparison.show(shown, shownRun, statistic);
  else elements.inspector.show(shown, graph, select);
}

// The header

find("#pin").addEventListener("click", () => {
  const { a, colour } = view.value;
  const dump = opened.value;
  if (a !== "") setView(unpinned());
  else if (dump === null) setView({ a: `?${queryOf(specShown())}` });
  // Boxes without a colouring show the difference of the dumps.
  else setView({ a: `dump:${dump.index}`, ...(colour === "" ? { colour: "difference", span: "" } : {}) });
});

/** @returns {Partial<View>} without run A and its colouring */
function unpinned() {
  return { a: "", ...(view.value.colour === "difference" ? { colour: "", span: "" } : {}) };
}

connectLesson({ lessons: page.lessons, column: elements.lesson, view, spec, picture, setView, on, open(target) {
  address.pushes = true;
  // Enters the address with the spec: one history entry.
  view.value = parseView(fragmentIn(target));
  if (target.startsWith("?")) jump(specOf(queryIn(target)));
  else setView({});
} });
connectExplanations(page.glossary);
connectHeader({ view, setView, query: () => address.query, needsToken: page.needs_token });
connectKeys(setView, elements.graph, elements.toolbar);
connectTakeaway(page, () => ({
  picture: shown,
  graph: drawn.graph.value,
  view: elements.graph,
  statistic: view.value.statistic === "mean" ? "mean" : "std",
  selection: view.value.select,
  paintwork: drawn.drawnWith(),
  query: address.query,
  caption: caption(),
  // The saved file holds one dump.
  fragment: viewFragment(opened.value === null ? view.value : { ...view.value, ...unpinned(), dump: 0 }),
  opened: opened.value,
  theory: theory.value,
  model: page.model?.name ?? "",
}));

// The source of pictures: the server, or a dump.

let askingTheory = 0;
opened.subscribe((value) => {
  if (value === null) return;
  const seq = (picture.value?.seq ?? 0) + 1;
  // Theory of the previous step of the same graph stays until there is news.
  if (value.picture.key !== picture.value?.key) theory.value = null;
  // The view in the address belongs to the previous graph.
  if (value.isOther)
    setView({ select: "", toggled: "", step: 0, reach: "", span: "", predict: "", guess: "", ...unpinned(), zoom: 1,
      at: 0, across: 0.5 });
  picture.value = { ...value.picture, seq };
  cancel(askingTheory);
  // A spec's dump needs no theory: the explorer shows it at its address.
  if (value.theory !== null || value.picture.spec !== null || document.body.dataset["opened"] !== "server") {
    theory.value = value.theory === null ? null : { ...value.theory, seq };
    return;
  }
  // Not for steps that a slider passes over.
  askingTheory = later(async () => {
    const told = await theoryOfDump(page.dumps?.[value.index]?.url ?? "");
    if (opened.value === value) theory.value = told === null ? null : { ...told, seq };
  }, value.count > 1 ? ASK_THEORY_AFTER_MS : 0);
});

if (page.dump === null) {
  elements.status.connection = "connecting";
  live.start();
  live.request(spec.value);
}
