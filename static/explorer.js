/**
 * The explorer page: state, and who hears of it. Elements know nothing of each other; what they say by bubbling events
 * becomes spec or view here, and spec and view become what they show.
 *
 *   event → spec → live → picture → elements          event → view → elements, address
 */

import { AddressBar } from "./core/address-bar.js";
import { ApiError, getJson, getText, profilePath, tracePath } from "./core/api.js";
import { copyFrom } from "./core/clipboard.js";
import { significant } from "./core/format.js";
import { describeTensor } from "./core/labels.js";
import { Live } from "./core/live.js";
import { hide, hideInRun, parsePrediction } from "./core/prediction.js";
import { signal } from "./core/signal.js";
import { address, parseSpec, parseView, specQuery, viewFragment, viewPushes } from "./core/url-state.js";
import { verdict } from "./core/verdict.js";
import "./elements/comparison-table.js";
import "./elements/diagnosis-list.js";
import "./elements/experiment-note.js";
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

/** @typedef {import("./core/types.js").PageData} PageData */
/** @typedef {import("./core/types.js").Picture} Picture */
/** @typedef {import("./core/types.js").Scene} Scene */
/** @typedef {import("./core/types.js").Spec} Spec */
/** @typedef {import("./core/types.js").ErrorBody} ErrorBody */
/** @typedef {import("./core/types.js").PinnedRun} PinnedRun */
/** @typedef {import("./core/types.js").Theory} Theory */
/** @typedef {import("./core/url-state.js").View} View */

const ANNOUNCE_AFTER_MS = 800;
const PIN_AGAIN_MS = 2000;

/**
 * @param {string} selector
 * @returns {any} the one element that the template promises
 */
function find(selector) {
  const element = document.querySelector(selector);
  if (element === null) throw new Error(`the page has no ${selector}`);
  return element;
}

/** @type {PageData} */
const page = JSON.parse(find("#page-data").textContent);
const elements = {
  controls: find("spec-controls"),
  presets: find("spec-presets"),
  graph: find("graph-view"),
  layers: find("layers-view"),
  profile: find("layer-profile"),
  inspector: find("inspector-panel"),
  comparison: find("comparison-table"),
  status: find("run-status"),
  diagnosis: find("diagnosis-list"),
  experiment: find("experiment-note"),
  prediction: find("prediction-prompt"),
  announcer: find("#announcer"),
};

/** @param {Spec} spec @returns {string} */
const queryOf = (spec) => specQuery(page.keys, spec);
/** @param {string} query @returns {Spec} */
const specOf = (query) => parseSpec(page.keys, page.defaults, query);

// The page's own query may hold a preset's name or a mistake: the server's reading of it is what counts.
const spec = signal(specOf(page.query));
const view = signal(parseView(location.hash));
/** What the server last showed of the spec. @type {import("./core/signal.js").Signal<Picture | null>} */
const picture = signal(/** @type {Picture | null} */ (null));
/** @type {import("./core/signal.js").Signal<Theory | null>} */
const theory = signal(/** @type {Theory | null} */ (null));
/** The run that is compared to. @type {import("./core/signal.js").Signal<PinnedRun | null>} */
const pinned = signal(/** @type {PinnedRun | null} */ (null));
/** @type {import("./core/signal.js").Signal<{scene: Scene, key: string} | null>} */
const scene = signal(/** @type {{scene: Scene, key: string} | null} */ (null));
/** @type {import("./core/signal.js").Signal<ErrorBody | null>} */
const error = signal(page.error);
/** What is wrong with the run that the address says to compare to. @type {import("./core/signal.js").Signal<ErrorBody | null>} */
const pinError = signal(/** @type {ErrorBody | null} */ (null));

/** Opened at a mistaken address: the default model is shown, and the mistake stays in sight until something is changed. */
let isAddressAtFault = page.error !== null;

// Pictures: whatever came since the last frame of the screen is skipped; numbers on the screen only go up.

/** @type {Picture | null} */
let arrived = null;

function paint() {
  if (arrived === null || arrived.seq <= (picture.value?.seq ?? 0)) return;
  // What theory said of another graph is no use for this one.
  if (arrived.key !== picture.value?.key) theory.value = null;
  picture.value = arrived;
  expectations.paint();
}

/** What theory says of a picture, held back until that picture is on the screen. */
const expectations = {
  /** @type {Theory | null} */
  arrived: null,
  paint() {
    if (this.arrived === null || this.arrived.seq > (picture.value?.seq ?? 0)) return;
    theory.value = this.arrived;
    this.arrived = null;
  },
};

const live = new Live(
  {
    picture(next) {
      if (arrived === null || arrived === picture.value) requestAnimationFrame(paint);
      arrived = next;
      if (next.spec === spec.value && !isAddressAtFault) {
        error.value = null;
        acceptedQuery = queryOf(next.spec);
        writeAddress(specPushes);
        specPushes = false;
      }
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
    },
  },
  queryOf,
);

// The address: a spec gets into it once the server has accepted it, so that a reload never meets a mistake.

let acceptedQuery = page.error === null ? page.query : location.search.slice(1);
/** Whether the spec that is asked for makes a history entry: one per drag, per choice. */
let specPushes = false;
const addressBar = new AddressBar();

/** @param {boolean} push */
function writeAddress(push) {
  addressBar.write(address(acceptedQuery, viewFragment(view.value)), push);
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
  spec.value = next;
  live.request(next);
}

/** @param {Partial<View>} change */
function setView(change) {
  const next = { ...view.value, ...change };
  if (viewFragment(next) === viewFragment(view.value)) return;
  view.value = next;
  writeAddress(viewPushes(change));
}

/** @param {string} tensor @returns {string} the id of its box, or its own where it has none */
function boxOf(tensor) {
  return scene.value?.scene.tensors.find((shown) => shown.tensor === tensor)?.id ?? tensor;
}

// Elements to state

/**
 * @template T
 * @param {string} type
 * @param {(detail: T) => void} listener
 */
function on(type, listener) {
  document.addEventListener(type, (event) => listener(/** @type {CustomEvent<T>} */ (event).detail));
}

let isMoving = false;
on("spec-change", (/** @type {{change: Spec, moving: boolean}} */ { change, moving }) => {
  // One drag, one history entry: its first movement makes it, the rest replaces it.
  if (!isMoving) specPushes = true;
  isMoving = moving;
  // The slider moves the picture on the screen, whatever else has been typed and refused.
  const refused = error.value?.field;
  const isRefusedElsewhere = !isAddressAtFault && refused != null && refused in spec.value && "scale" in change && refused !== "scale";
  const next = { ...(isRefusedElsewhere ? specOf(acceptedQuery) : spec.value), ...change };
  if (!moving && queryOf(next) === queryOf(spec.value)) {
    // A drag that ended where it began makes no entry; a click on the track, whose picture is still to come, does.
    if (acceptedQuery === queryOf(spec.value)) specPushes = false;
    elements.controls.spec = spec.value;
    return;
  }
  setSpec(next);
});
on("preset-choose", (/** @type {{preset: import("./core/types.js").Preset}} */ { preset }) => {
  specPushes = true;
  // Into the address with the spec: one choice, one history entry.
  view.value = { ...view.value, predict: "", guess: "" };
  setSpec(specOf(preset.query));
});
on("box-select", (/** @type {{id: string}} */ { id }) => setView({ select: id }));
on("tensor-select", (/** @type {{tensor: string}} */ { tensor }) => {
  setView({ select: boxOf(tensor) });
  elements.graph.reveal(boxOf(tensor));
});
on("statistic-change", (/** @type {{statistic: View["statistic"]}} */ { statistic }) => setView({ statistic }));
on("layers-options-change", (/** @type {Partial<import("./core/types.js").LayersOptions>} */ change) => setView(change));
on("prediction-start", (/** @type {{figure: string}} */ { figure }) => {
  setView({ predict: figure, guess: "" });
  elements.prediction.focus();
});
on("prediction-guess", (/** @type {{guess: number | null}} */ { guess }) => setView({ guess: guess === null ? "" : String(guess) }));
on("prediction-end", () => {
  setView({ predict: "", guess: "" });
  elements.experiment.querySelector("button")?.focus();
});
on("unpin", () => setView({ a: "" }));
on("swap-runs", () => {
  const a = view.value.a;
  if (a === "") return;
  // The run on the screen: what was asked for last may have been refused.
  setView({ a: `?${queryOf(picture.value?.spec ?? spec.value)}` });
  specPushes = false;
  setSpec(specOf(a.slice(1)));
});
on("camera-change", (/** @type {{zoom: number, at: number}} */ camera) => setView(camera));
on("axis-change", (/** @type {import("./core/types.js").DepthAxis} */ axis) => (elements.profile.axis = axis));
on("scene-change", (/** @type {{scene: Scene, key: string}} */ change) => (scene.value = change));

// State to elements

elements.controls.configure(page);
elements.presets.presets = page.presets;
elements.diagnosis.rules = page.rules;
elements.inspector.rules = page.rules;

// Looked up once: a search through a graph of thousands of elements takes longer than all the rest of a slider's event.
const modelButtons = document.querySelectorAll("[data-widths]");
const traceLinks = document.querySelectorAll("a[data-trace]");

spec.subscribe((value) => {
  const query = queryOf(value);
  elements.controls.spec = value;
  elements.presets.current = experimentQuery(value);
  for (const button of modelButtons) {
    button.setAttribute("aria-pressed", String(button.getAttribute("data-widths") === value["widths"]));
  }
  for (const link of traceLinks) {
    link.setAttribute("href", tracePath(link.getAttribute("data-trace") ?? "json", query));
  }
});

/** @param {Spec} value @returns {string} of the experiment that it is a run of, whatever the seed: bands are over seeds */
function experimentQuery(value) {
  return queryOf({ ...value, seed: page.defaults["seed"] ?? 0 });
}

let announcement = 0;
picture.subscribe((value) => {
  if (value === null) return;
  show(value);
  clearTimeout(announcement);
  announcement = setTimeout(announce, ANNOUNCE_AFTER_MS);
});

/** The picture on the screen: the server's, or what of it may be seen before a guess. @type {Picture | null} */
let shown = null;

/** @param {Picture} value what the elements get to see, less a figure that waits for its guess */
function show(value) {
  const prediction = parsePrediction(view.value.predict, view.value.guess);
  shown = hide(value, prediction);
  elements.status.picture = shown;
  elements.controls.picture = shown;
  elements.graph.picture = shown;
  elements.layers.picture = shown;
  elements.profile.picture = shown;
  elements.diagnosis.picture = shown;
  const query = experimentQuery(value.spec);
  elements.experiment.show(shown, page.presets.filter((preset) => preset.query === query));
  elements.presets.secretive = shown.hidden !== null;
  // Its own guard: it tells the figure once there is a guess.
  elements.prediction.show(value, prediction);
  judge();
  compare();
}

/** The run to compare to, or what of it may be seen before a guess. @type {PinnedRun | null} */
let shownRun = null;

function compare() {
  const prediction = parsePrediction(view.value.predict, view.value.guess);
  shownRun = pinned.value === null || picture.value === null ? null : hideInRun(pinned.value, picture.value, prediction);
  elements.profile.pinned = shownRun;
  inspect();
}

/** What theory expects, wherever it shows; it would give away what is to be guessed. */
function judge() {
  const told = shown === null || shown.hidden !== null ? null : theory.value;
  elements.profile.theory = told;
  elements.diagnosis.theory = told;
  elements.inspector.theory = told;
  // For the std that weights are drawn with, which no measurement gives as well.
  elements.controls.theory = theory.value;
  elements.prediction.theory = theory.value;
}

theory.subscribe(judge);

scene.subscribe(select);

/** What is asked for as run A, and may not be there yet. */
let pinning = "";
let shownPrediction = "";
view.subscribe((value) => {
  elements.graph.statistic = value.statistic === "mean" ? "mean" : "std";
  elements.profile.statistic = value.statistic;
  elements.layers.options = value;
  elements.graph.camera = value;
  document.body.dataset["tab"] = value.tab;
  document.body.dataset["show"] = value.show;
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const isShown = tab.getAttribute("data-tab") === value.tab && (tab.getAttribute("data-show") ?? value.show) === value.show;
    tab.setAttribute("aria-selected", String(isShown));
    tab.setAttribute("tabindex", isShown ? "0" : "-1");
  }
  for (const button of document.querySelectorAll("button[data-show]:not([role])")) {
    button.setAttribute("aria-pressed", String(button.getAttribute("data-show") === value.show));
  }
  const prediction = `${value.predict} ${value.guess}`;
  if (prediction !== shownPrediction && picture.value !== null) show(picture.value);
  shownPrediction = prediction;
  pin(value.a);
  select();
});

/** @param {string} a as in the address */
async function pin(a) {
  if (a === pinning) return;
  pinning = a;
  find("#pin").setAttribute("aria-pressed", String(a !== ""));
  if (a === "") {
    pinned.value = null;
    return;
  }
  pinError.value = null;
  const query = a.replace(/^\?/, "");
  try {
    const profile = await getJson(profilePath(query));
    if (pinning === a) pinned.value = { query, profile };
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
    if (pinning !== a) return;
    pinError.value = { ...problem.body, message: `Run A: ${problem.body.message}`, field: null };
    // A mistake in the address will not mend; a busy server may.
    if (problem.status >= 400 && problem.status < 500) {
      view.value = { ...view.value, a: "" };
      // In place: going back must not lead to the mistake again.
      writeAddress(false);
    } else {
      pinning = "";
      setTimeout(() => void pin(view.value.a), PIN_AGAIN_MS);
    }
  }
}

pinned.subscribe(compare);

function tellErrors() {
  const at = error.value;
  elements.controls.error = at;
  // At a control if one is at fault, else at the picture.
  const isAtControl = page.keys.some(({ name }) => name === at?.field);
  elements.status.error = (isAtControl || isAddressAtFault ? null : at) ?? pinError.value;
}

error.subscribe(tellErrors);
pinError.subscribe(tellErrors);

/** The selection, wherever it shows. */
function select() {
  const id = view.value.select;
  elements.graph.selection = id;
  const tensor = scene.value?.scene.tensors.find((box) => box.id === id)?.tensor ?? id;
  elements.profile.selection = tensor;
  elements.layers.selection = tensor;
  elements.controls.selection = tensor;
  inspect();
}

/** What is selected, in figures; without a selection the comparison, if there is one. */
function inspect() {
  const { select, statistic } = view.value;
  const drawn = scene.value;
  const isComparing = shownRun !== null && select === "";
  elements.comparison.hidden = !isComparing;
  elements.inspector.hidden = isComparing;
  // A new graph's scene follows its picture by the time of a layout.
  if (shown === null || drawn === null || drawn.key !== shown.key) return;
  if (isComparing && shownRun !== null) elements.comparison.show(shown, shownRun, statistic);
  else elements.inspector.show(shown, drawn.scene, select);
}

function announce() {
  if (shown === null) return;
  const { select } = view.value;
  const { layers, tensors } = shown.topology;
  const focus = scene.value?.scene.tensors.find(({ id }) => id === select)?.tensor ?? layers[0]?.activation;
  const tensor = tensors.find(({ id }) => id === focus);
  const parts = [`Loss ${shown.hidden?.loss === true ? "hidden until it is guessed" : significant(shown.loss)}`, tensor === undefined ? "" : describeTensor(shown, tensor), verdict(shown).text];
  elements.announcer.textContent = parts.filter((part) => part !== "").join(". ");
}

// The header

for (const button of modelButtons) {
  button.addEventListener("click", () => {
    specPushes = true;
    setSpec({ ...spec.value, widths: button.getAttribute("data-widths") ?? "" });
  });
}

for (const menu of document.querySelectorAll("details.menu")) {
  if (!(menu instanceof HTMLDetailsElement)) continue;
  document.addEventListener("pointerdown", ({ target }) => {
    if (target instanceof Node && !menu.contains(target)) menu.open = false;
  });
  menu.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary")?.focus();
  });
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !menu.contains(relatedTarget)) menu.open = false;
  });
}

for (const button of document.querySelectorAll("button[data-show]:not([role])")) {
  button.addEventListener("click", () => setView({ show: /** @type {View["show"]} */ (button.getAttribute("data-show")) }));
}

find("#pin").addEventListener("click", () => setView({ a: view.value.a === "" ? `?${queryOf(picture.value?.spec ?? spec.value)}` : "" }));

/** @type {Record<string, () => string | Promise<string>>} */
const COPIES = {
  // Not the browser's own address, which may be a moment behind.
  "#copy-link": () => new URL(address(acceptedQuery, viewFragment(view.value)), location.href).href,
  "#copy-pytorch": () => getText(tracePath("py", acceptedQuery)),
  "#copy-curl": () => curl(new URL(tracePath("json", acceptedQuery), location.href).href),
};
for (const [button, text] of Object.entries(COPIES)) {
  find(button).addEventListener("click", (/** @type {Event} */ { currentTarget }) => {
    void copyFrom(/** @type {HTMLButtonElement} */ (currentTarget), text);
  });
}

/** @param {string} url @returns {string} a command that gets it */
function curl(url) {
  const token = page.needs_token ? ' -H "Authorization: Bearer $CHAINRULE_TOKEN"' : "";
  return `curl -s${token} '${url.replaceAll("'", "%27")}'`;
}

find(".skip-link").addEventListener("click", (/** @type {Event} */ event) => {
  // The fragment holds the view: the link must not overwrite it.
  event.preventDefault();
  elements.graph.focus();
});

const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[role="tab"]')]);
tabs.forEach((tab, order) => {
  tab.addEventListener("click", () => {
    const show = /** @type {View["show"]} */ (tab.dataset["show"] ?? view.value.show);
    setView({ tab: /** @type {View["tab"]} */ (tab.dataset["tab"]), show });
  });
  tab.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowRight" && key !== "ArrowLeft") return;
    const next = tabs[(order + (key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length];
    next?.focus();
    next?.click();
  });
});

const help = /** @type {HTMLDialogElement} */ (find("#help"));
find("#help-button").addEventListener("click", () => help.showModal());
addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement && event.target.type === "text";
  if (event.key === "?" && !isTyping && !help.open) help.showModal();
  if (event.key === "Escape" && !isTyping && !help.open && document.querySelector("details.menu[open]") === null) setView({ select: "" });
});

elements.status.connection = "connecting";
live.start();
live.request(spec.value);
