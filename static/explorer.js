/**
 * The explorer page: state, and who hears of it. Elements know nothing of each other; what they say by bubbling events
 * becomes spec or view here, and spec and view become what they show.
 *
 *   event → spec → live → picture → elements          event → view → elements, address
 */

import { Live } from "./core/live.js";
import { describeTensor } from "./core/labels.js";
import { significant } from "./core/format.js";
import { signal } from "./core/signal.js";
import { address, parseSpec, parseView, specQuery, viewFragment, viewPushes } from "./core/url-state.js";
import { tracePath } from "./core/api.js";
import { verdict } from "./core/verdict.js";
import "./elements/experiment-note.js";
import "./elements/graph-view.js";
import "./elements/histogram-chart.js";
import "./elements/inspector-panel.js";
import "./elements/layer-profile.js";
import "./elements/layer-table.js";
import "./elements/run-status.js";
import "./elements/spec-controls.js";
import "./elements/spec-presets.js";

/** @typedef {import("./core/types.js").PageData} PageData */
/** @typedef {import("./core/types.js").Picture} Picture */
/** @typedef {import("./core/types.js").Scene} Scene */
/** @typedef {import("./core/types.js").Spec} Spec */
/** @typedef {import("./core/types.js").ErrorBody} ErrorBody */
/** @typedef {import("./core/url-state.js").View} View */

const ADDRESS_EVERY_MS = 250;
const ANNOUNCE_AFTER_MS = 800;
const COPIED_MS = 1500;

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
  profile: find("layer-profile"),
  inspector: find("inspector-panel"),
  status: find("run-status"),
  experiment: find("experiment-note"),
  announcer: find("#announcer"),
};

/** @param {Spec} spec @returns {string} */
const queryOf = (spec) => specQuery(page.keys, spec);
/** @param {string} query @returns {Spec} */
const specOf = (query) => parseSpec(page.keys, page.defaults, query);

// The page's own query may hold a preset's name or a mistake: the server's reading of it is what counts.
const spec = signal(specOf(page.query));
const view = signal(parseView(location.hash));
/** @type {import("./core/signal.js").Signal<Picture | null>} */
const picture = signal(/** @type {Picture | null} */ (null));
/** @type {import("./core/signal.js").Signal<{scene: Scene, key: string} | null>} */
const scene = signal(/** @type {{scene: Scene, key: string} | null} */ (null));
/** @type {import("./core/signal.js").Signal<ErrorBody | null>} */
const error = signal(page.error);

/** Opened at a mistaken address: the default model is shown, and the mistake stays in sight until something is changed. */
let isAddressAtFault = page.error !== null;

// Pictures: whatever came since the last frame of the screen is skipped; numbers on the screen only go up.

/** @type {Picture | null} */
let arrived = null;

function paint() {
  if (arrived === null || arrived.seq <= (picture.value?.seq ?? 0)) return;
  picture.value = arrived;
}

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
let shownAddress = location.pathname + location.search + location.hash;
let lastWritten = 0;
let laterWrite = 0;

/** @param {boolean} push */
function writeAddress(push) {
  clearTimeout(laterWrite);
  const wait = lastWritten + ADDRESS_EVERY_MS - performance.now();
  // Browsers refuse more than a few changes of address a second.
  if (wait > 0 && !push) {
    laterWrite = setTimeout(() => writeAddress(false), wait);
    return;
  }
  const next = address(acceptedQuery, viewFragment(view.value));
  if (next === shownAddress) return;
  shownAddress = next;
  lastWritten = performance.now();
  if (push) history.pushState(null, "", next);
  else history.replaceState(null, "", next);
}

addEventListener("popstate", () => {
  shownAddress = location.pathname + location.search + location.hash;
  specPushes = false;
  clearTimeout(laterWrite);
  const asked = specOf(location.search);
  acceptedQuery = queryOf(asked);
  view.value = parseView(location.hash);
  if (queryOf(asked) !== queryOf(spec.value)) setSpec(asked);
});

/** @param {Spec} next */
function setSpec(next) {
  isAddressAtFault = false;
  document.querySelector(".page-error[role=alert]")?.remove();
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
  const next = { ...spec.value, ...change };
  if (!moving && queryOf(next) === queryOf(spec.value)) {
    specPushes = false;
    elements.controls.spec = spec.value;
    return;
  }
  setSpec(next);
});
on("preset-choose", (/** @type {{preset: import("./core/types.js").Preset}} */ { preset }) => {
  specPushes = true;
  setSpec(specOf(preset.query));
});
on("box-select", (/** @type {{id: string}} */ { id }) => setView({ select: id }));
on("tensor-select", (/** @type {{tensor: string}} */ { tensor }) => setView({ select: boxOf(tensor) }));
on("statistic-change", (/** @type {{statistic: "std" | "mean"}} */ { statistic }) => setView({ statistic }));
on("camera-change", (/** @type {{zoom: number, at: number}} */ camera) => setView(camera));
on("axis-change", (/** @type {import("./core/types.js").DepthAxis} */ axis) => (elements.profile.axis = axis));
on("scene-change", (/** @type {{scene: Scene, key: string}} */ change) => (scene.value = change));

// State to elements

elements.controls.configure(page);
elements.presets.presets = page.presets;

spec.subscribe((value) => {
  const query = queryOf(value);
  elements.controls.spec = value;
  elements.presets.current = query;
  for (const button of document.querySelectorAll("[data-widths]")) {
    button.setAttribute("aria-pressed", String(button.getAttribute("data-widths") === value["widths"]));
  }
  for (const link of document.querySelectorAll("a[data-trace]")) {
    link.setAttribute("href", tracePath(link.getAttribute("data-trace") ?? "json", query));
  }
});

let announcement = 0;
picture.subscribe((value) => {
  if (value === null) return;
  elements.graph.picture = value;
  elements.profile.picture = value;
  elements.controls.picture = value;
  elements.status.picture = value;
  elements.experiment.preset = page.presets.find((preset) => preset.query === queryOf(value.spec)) ?? null;
  elements.experiment.picture = value;
  inspect();
  clearTimeout(announcement);
  announcement = setTimeout(() => announce(value), ANNOUNCE_AFTER_MS);
});

scene.subscribe(inspect);

view.subscribe((value) => {
  elements.graph.statistic = value.statistic;
  elements.profile.statistic = value.statistic;
  elements.graph.camera = value;
  document.body.dataset["tab"] = value.tab;
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const isShown = tab.getAttribute("data-tab") === value.tab;
    tab.setAttribute("aria-selected", String(isShown));
    tab.setAttribute("tabindex", isShown ? "0" : "-1");
  }
  inspect();
});

error.subscribe((value) => {
  elements.controls.error = value;
  // At a control if one is at fault, else at the picture.
  const isAtControl = page.keys.some(({ name }) => name === value?.field);
  elements.status.error = isAtControl ? null : value;
});

/** The selection, wherever it shows. */
function inspect() {
  const { select } = view.value;
  elements.graph.selection = select;
  const [now, drawn] = [picture.value, scene.value];
  // A new graph's scene follows its picture by the time of a layout.
  if (now === null || drawn === null || drawn.key !== now.key) return;
  elements.profile.selection = drawn.scene.tensors.find(({ id }) => id === select)?.tensor ?? select;
  elements.inspector.show(now, drawn.scene, select);
}

/** @param {Picture} shown */
function announce(shown) {
  const { select } = view.value;
  const focus = scene.value?.scene.tensors.find(({ id }) => id === select)?.tensor ?? shown.topology.layers[0]?.activation;
  const tensor = shown.topology.tensors.find(({ id }) => id === focus);
  const parts = [`Loss ${significant(shown.loss)}`, tensor === undefined ? "" : describeTensor(shown, tensor), verdict(shown).text];
  elements.announcer.textContent = parts.filter((part) => part !== "").join(". ");
}

// The header

for (const button of document.querySelectorAll("[data-widths]")) {
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
}

find("#copy-link").addEventListener("click", async (/** @type {Event} */ { currentTarget }) => {
  const button = /** @type {HTMLButtonElement} */ (currentTarget);
  const text = button.textContent;
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    // Only pages of a secure origin may write to the clipboard.
    button.textContent = "Copy it from the address bar";
  }
  setTimeout(() => (button.textContent = text), COPIED_MS);
});

find(".skip-link").addEventListener("click", (/** @type {Event} */ event) => {
  // The fragment holds the view: the link must not overwrite it.
  event.preventDefault();
  elements.graph.focus();
});

const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[role="tab"]')]);
tabs.forEach((tab, order) => {
  tab.addEventListener("click", () => setView({ tab: /** @type {View["tab"]} */ (tab.dataset["tab"]) }));
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
