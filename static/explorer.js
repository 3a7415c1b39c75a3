/**
 * The explorer page: its state and its subscribers. Elements do not know each other: their bubbling events change spec or view here, and spec and view update the elements.
 *
 *   event → spec → live → picture → elements          event → view → elements, address
 */

import { atFrame, cancel, later } from "./core/activity.js";
import { address, AddressBar, parseSpec, parseView, specQuery, viewFragment, viewPushes,
  withProgram } from "./core/url-state.js";
import { checkPath, nodeDataPath, postJson, tracePath, useBase } from "./core/api.js";
import { significant } from "./core/format.js";
import { find as findItem } from "./core/graph/graph.js";
import { describeTensor } from "./core/labels.js";
import { Live } from "./core/live.js";
import { matchedRun } from "./core/lab/dump-run.js";
import { hide, hideInRun, parsePrediction } from "./core/lab/prediction.js";
import { signal } from "./core/signal.js";
import { verdict } from "./core/lab/verdict.js";
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
import "./elements/prediction-prompt.js";
import "./elements/run-status.js";
import "./elements/spec-controls.js";
import "./elements/spec-presets.js";
import "./elements/steps-view.js";
import "./elements/tensor-over-steps.js";
import "./elements/value-map.js";
import "./elements/what-if-controls.js";
import { theoryOfDump } from "./explorer/dump-theory.js";
import { connectDumps, pinnedOf } from "./explorer/dump.js";
import { connectGraph } from "./explorer/graph.js";
import { connectHeader, isTyping } from "./explorer/header.js";
import { connectModel, specTable } from "./explorer/model.js";
import { connectPin } from "./explorer/pin.js";
import { connectTakeaway } from "./explorer/takeaway.js";

const ANNOUNCE_AFTER_MS = 800;
/** Faster screens get no more pictures. */
const FRAME_MS = 1000 / 60;
/** The picture is on the screen by then. */
const AFTER_PICTURE_MS = 60;
/** Rest of the slider over dumps before theory is asked for. */
const ASK_THEORY_AFTER_MS = 120;

/** The only program with layers. */
const NET = "mlp";

/** Names of the colourings in the node data. @type {Record<string, string>} */
const NODE_DATA = { std: "std", gradient_norm: "gradient_norm", dead_fraction: "dead_fraction", time: "time",
  memory: "bytes", flops: "flops" };

/** @param {string} selector @returns {any}  */
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

const table = specTable(page);
/** @param {Spec} spec @returns {string} */
const queryOf = (spec) => specQuery(table, spec);
/** @param {string} query @returns {Spec} */
const specOf = (query) => parseSpec(table, query);

// The query of the address may hold a preset's name or a mistake; page.query is the server's reading.
const spec = signal(specOf(page.query));
const view = signal(parseView(location.hash || (page.view ?? "")));
/**  @type {Signal<Picture | null>} */
const picture = signal(/** @type {Picture | null} */ (null));
/** @type {Signal<Theory | null>} */
const theory = signal(/** @type {Theory | null} */ (null));
/** Run A. @type {Signal<PinnedRun | null>} */
const pinned = signal(/** @type {PinnedRun | null} */ (null));
/** The open dump, instead of the server's answers. @type {Signal<ShownDump | null>} */
const opened = signal(/** @type {ShownDump | null} */ (null));
/** @type {Signal<ErrorBody | null>} */
const error = signal(page.error);
/** The error of run A. @type {Signal<ErrorBody | null>} */
const pinError = signal(/** @type {ErrorBody | null} */ (null));

/** A mistaken address: the default model is shown, and the mistake stays visible until a change. */
let isAddressAtFault = page.error !== null;

// Pictures: drawn once per frame, the latest one only; seq never decreases.

let arrived = /** @type {Picture | null} */ (null);
let isWaiting = false;
let paintedAt = -Infinity;

function paintSoon() {
  if (isWaiting) return;
  if (!document.hidden && performance.now() - paintedAt > FRAME_MS) {
    // Painting at once leaves the next frame free.
    paint();
    return;
  }
  isWaiting = true;
  atFrame(() => {
    isWaiting = false;
    paint();
  });
}

function paint() {
  paintedAt = performance.now();
  if (opened.value !== null || arrived === null || arrived.seq <= (picture.value?.seq ?? 0)) return;
  // Theory of another graph does not fit.
  if (arrived.key !== picture.value?.key) theory.value = null;
  picture.value = arrived;
  expectations.paint();
}

/** Holds theory back until its picture is on the screen. */
const expectations = {
  /** @type {Theory | null} */
  arrived: null,
  paint() {
    if (opened.value !== null || this.arrived === null || this.arrived.seq > (picture.value?.seq ?? 0)) return;
    theory.value = this.arrived;
    this.arrived = null;
  },
};

const live = new Live({
  picture(next) {
    arrived = next;
    if (next.spec === spec.value && !isAddressAtFault) {
      error.value = null;
      acceptedQuery = queryOf(next.spec);
      writeAddress(specPushes, AFTER_PICTURE_MS);
      specPushes = false;
    }
    paintSoon();
  },
  theory(next) {
    expectations.arrived = next;
    expectations.paint();
  },
  error(body, asked) {
    if (asked === spec.value) error.value = body;
  },
  state(connection) {
    elements.status.connection = connection;
    own?.reached(connection);
  },
  model: (news) => own?.told(news),
}, queryOf);

// The address: it takes a spec once the server has accepted it, so that a reload never fails.

let acceptedQuery = page.error === null ? page.query : location.search.slice(1);
/** Whether the next spec makes a history entry: one per drag or choice. */
let specPushes = false;
const addressBar = new AddressBar();

/** @param {boolean} push @param {number} [delay] ms */
function writeAddress(push, delay) {
  addressBar.write(address(acceptedQuery, viewFragment(view.value)), push, delay);
}

addEventListener("popstate", () => {
  addressBar.moved();
  specPushes = false;
  const asked = specOf(location.search);
  acceptedQuery = queryOf(asked);
  view.value = parseView(location.hash);
  if (queryOf(asked) !== queryOf(spec.value)) setSpec(asked);
});

/** @param {Spec} next */
function setSpec(next) {
  if (isAddressAtFault) document.querySelector(".page-error[role=alert]")?.remove();
  isAddressAtFault = false;
  pinError.value = null;
  // The server computes while the controls update.
  live.request(next);
  spec.value = next;
}

/** @param {Partial<View>} change */
function setView(change) {
  if (takeView(change)) writeAddress(viewPushes(change));
}

/** For changes that the user did not ask for: no history entry. @param {Partial<View>} change */
function replaceView(change) {
  if (takeView(change)) writeAddress(false);
}

/** @param {Partial<View>} change @returns {boolean} whether the view changes */
function takeView(change) {
  const next = { ...view.value, ...change };
  if (viewFragment(next) === viewFragment(view.value)) return false;
  view.value = next;
  return true;
}

// Elements to state

/** @template T @param {string} type @param {(detail: T) => void} listener */
function on(type, listener) {
  document.addEventListener(type, (event) => listener(/** @type {CustomEvent<T>} */ (event).detail));
}

let isMoving = false;
on("spec-change", (/** @type {{change: Spec, moving: boolean}} */ { change, moving }) => {
  // One drag, one history entry: its first movement makes it, the rest replaces it.
  if (!isMoving) specPushes = true;
  isMoving = moving;
  // The slider starts from the picture on the screen, not from a refused input.
  const refused = error.value?.field;
  const accepted = specOf(acceptedQuery);
  const isRefusedElsewhere = !isAddressAtFault && refused != null && refused in spec.value && "scale" in change
    && "scale" in accepted && refused !== "scale";
  const before = isRefusedElsewhere ? accepted : spec.value;
  const next = { ...("program" in change ? withProgram(page, before, String(change["program"])) : before), ...change };
  if (!moving && queryOf(next) === queryOf(spec.value)) {
    // A drag that ends where it began makes no entry; a click on the track does, once its picture arrives.
    if (acceptedQuery === queryOf(spec.value)) specPushes = false;
    elements.controls.spec = spec.value;
    return;
  }
  setSpec(next);
});
on("preset-choose", (/** @type {{preset: Preset}} */ { preset }) => {
  specPushes = true;
  // Enters the address with the spec: one history entry.
  view.value = { ...view.value, predict: "", guess: "" };
  setSpec(specOf(preset.query));
});
on("box-select", (/** @type {{id: string}} */ { id }) => setView({ select: id }));
on("tensor-select", (/** @type {{tensor: string}} */ { tensor }) => {
  setView({ select: drawn.boxOf(tensor) });
  elements.graph.reveal(drawn.boxOf(tensor));
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
  specPushes = false;
  setSpec(specOf(a.slice(1)));
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
    again: () => live.request(spec.value) });
elements.presets.presets = page.presets;
// With the spec of the picture shown: the inspector shows its ops.
if (page.model != null)
  elements.inspector.check = (/** @type {string} */ op) => postJson(checkPath(queryOf(specShown())), { op });

// Looked up once: a search through thousands of elements takes longer than the rest of a slider event.
const modelButtons = document.querySelectorAll("[data-widths]");
const traceLinks = document.querySelectorAll("a[data-trace]");

spec.subscribe((value) => {
  const query = queryOf(value);
  elements.controls.spec = value;
  elements.presets.current = experimentQuery(value);
  for (const button of modelButtons) {
    const isShown = value["program"] === NET && button.getAttribute("data-widths") === value["widths"];
    button.setAttribute("aria-pressed", String(isShown));
  }
  writeNodeDataLink();
  for (const link of traceLinks) {
    link.setAttribute("href", tracePath(link.getAttribute("data-trace") ?? "json", query));
  }
});

/** One statistic per file: the colouring of the boxes, if Model Explorer knows it. */
function writeNodeDataLink() {
  const { colour } = view.value;
  const statistic = NODE_DATA[colour] ?? "std";
  find("#node-data").setAttribute("href", nodeDataPath(statistic, queryOf(spec.value)));
}

/** @param {Spec} value @returns {string} of its experiment, which any seed belongs to */
function experimentQuery(value) {
  return queryOf({ ...value, seed: specOf("")["seed"] ?? 0 });
}

let announcement = 0;
picture.subscribe((value) => {
  if (value === null) return;
  show(value);
  clearTimeout(announcement);
  announcement = setTimeout(announce, ANNOUNCE_AFTER_MS);
});

/** @returns {boolean} whether no spec describes the model shown */
function isOwn() {
  return page.model != null || shown?.spec === null;
}

function ruleByKind() {
  const rules = (isOwn() ? page.local_rules : null) ?? page.rules;
  elements.diagnosis.rules = rules;
  elements.inspector.rules = rules;
}

/** The picture on the screen, without figures that wait for a guess. @type {Picture | null} */
let shown = null;

/** @param {Picture} value  */
function show(value) {
  const prediction = parsePrediction(view.value.predict, view.value.guess);
  shown = hide(value, prediction);
  ruleByKind();
  elements.status.picture = shown;
  elements.note.picture = shown;
  if (shown.spec !== null) elements.controls.picture = shown;
  document.body.dataset["layers"] = shown.topology.layers.length === 0 ? "none" : "some";
  drawn.show(shown);
  if (opened.value === null) own?.show(drawn.graph.value);
  elements.layers.picture = shown;
  elements.profile.picture = shown;
  elements.diagnosis.picture = shown;
  const query = value.spec === null ? null : experimentQuery(value.spec);
  elements.experiment.show(shown, page.presets.filter((preset) => preset.query === query));
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
  elements.diagnosis.toggleAttribute("data-judged", told !== null && isOwn());
  elements.inspector.theory = told;
  drawn.theory(told);
  // The controls need the std that weights are drawn with.
  elements.controls.theory = theory.value;
  elements.prediction.theory = theory.value;
}

theory.subscribe(judge);

const dumps = connectDumps({ page, opened, elements, view, setView, on });
const pin = connectPin(pinned, pinError, dumps.take, () => {
  view.value = { ...view.value, ...unpinned() };
  // Replaced: going back must not reach the mistake.
  writeAddress(false);
}, specOf);
let shownPrediction = "";
view.subscribe((value) => {
  elements.profile.statistic = value.statistic;
  elements.layers.options = value;
  elements.inspector.reach = value.reach;
  writeNodeDataLink();
  const prediction = `${value.predict} ${value.guess}`;
  if (prediction !== shownPrediction && picture.value !== null) show(picture.value);
  shownPrediction = prediction;
  void pin(value.a);
  select();
});

pinned.subscribe(compare);

function tellErrors() {
  const at = error.value;
  elements.controls.error = at;
  own?.refused(at);
  // Shown at the control at fault, else at the picture.
  const isAtControl = page.keys.some(({ name }) => name === at?.field);
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
  elements.comparison.hidden = !isComparing;
  elements.inspector.hidden = isComparing;
  // The new graph arrives before its picture.
  if (shown === null || graph === null || graph.topology !== shown.topology) return;
  if (isComparing && shownRun !== null) elements.comparison.show(shown, shownRun, statistic);
  else elements.inspector.show(shown, graph, select);
}

function announce() {
  if (shown === null) return;
  const { select } = view.value;
  const { layers, tensors } = shown.topology;
  const focus = select === "" ? layers[0]?.activation : tensorOf(select);
  const tensor = tensors.find(({ id }) => id === focus);
  const parts = [`Loss ${shown.hidden?.loss === true ? "hidden until it is guessed" : significant(shown.loss)}`,
    tensor === undefined ? "" : describeTensor(shown, tensor), verdict(shown).text];
  elements.announcer.textContent = parts.filter((part) => part !== "").join(". ");
}

// The header

for (const button of modelButtons) {
  button.addEventListener("click", () => {
    specPushes = true;
    setSpec({ ...withProgram(page, spec.value, NET), widths: button.getAttribute("data-widths") ?? "" });
  });
}

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

connectHeader({ view, setView, query: () => acceptedQuery, needsToken: page.needs_token });
connectTakeaway(page, () => ({
  picture: shown,
  graph: drawn.graph.value,
  view: elements.graph,
  statistic: view.value.statistic === "mean" ? "mean" : "std",
  selection: view.value.select,
  paintwork: drawn.drawnWith(),
  query: acceptedQuery,
  // The saved file holds one dump.
  fragment: viewFragment(opened.value === null ? view.value : { ...view.value, ...unpinned(), dump: 0 }),
  opened: opened.value,
  theory: theory.value,
  model: page.model?.name ?? "",
}));

find(".skip-link").addEventListener("click", (/** @type {Event} */ event) => {
  // The link must not overwrite the fragment, which holds the view.
  event.preventDefault();
  elements.graph.focus();
});

addEventListener("keydown", (event) => {
  if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey
    || document.querySelector("dialog[open]") !== null) return;
  if (event.key === "Escape" && document.querySelector("details.menu[open]") === null) setView({ select: "" });
  if (event.key === "/") {
    event.preventDefault();
    elements.toolbar.focus();
  }
});

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
    const told = await theoryOfDump(value.index);
    if (opened.value === value) theory.value = told === null ? null : { ...told, seq };
  }, value.count > 1 ? ASK_THEORY_AFTER_MS : 0);
});

if (page.dump === null) {
  elements.status.connection = "connecting";
  live.start();
  live.request(spec.value);
}
