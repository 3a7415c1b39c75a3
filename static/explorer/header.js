/** The header: menus, views, tabs, copying, and the list of keys. */

import { apiPath, getText } from "../core/api.js";
import { address, viewFragment } from "../core/url-state.js";

const COPIED_MS = 1500;

/** @param {HTMLButtonElement} button @param {() => string | Promise<string>} text */
async function copyFrom(button, text) {
  const label = button.textContent;
  button.disabled = true;
  try {
    await navigator.clipboard.writeText(await text());
    button.textContent = "Copied";
  } catch {
    // Only secure origins may write to the clipboard.
    button.textContent = "The browser does not allow this page to copy";
  }
  setTimeout(() => {
    button.textContent = label;
    button.disabled = false;
  }, COPIED_MS);
}

/** @typedef {object} Page @property {Signal<View>} view @property {(change: Partial<View>) => void} setView
 * @property {() => string} query of the accepted spec @property {boolean} needsToken */

/** @param {Page} page */
export function connectHeader({ view, setView, query, needsToken }) {
  connectMenus();
  connectViews(view, setView);
  const help = /** @type {HTMLDialogElement | null} */ (document.querySelector("#help"));
  document.querySelector("#help-button")?.addEventListener("click", () => help?.showModal());
  addEventListener("keydown", (event) => {
    if (event.key === "?" && !isTyping(event) && help?.open === false) help.showModal();
  });
  /** @type {Record<string, () => string | Promise<string>>} */
  const copies = {
    // The browser's own address may lag behind.
    "#copy-link": () => new URL(address(query(), viewFragment(view.value)), location.href).href,
    "#copy-pytorch": () => getText(apiPath("trace.py", query())),
    "#copy-curl": () => curl(new URL(apiPath("trace.json", query()), location.href).href, needsToken),
  };
  for (const [selector, text] of Object.entries(copies)) {
    const button = /** @type {HTMLButtonElement | null} */ (document.querySelector(selector));
    button?.addEventListener("click", () => void copyFrom(button, text));
  }
}

/** @param {string} url @param {boolean} needsToken @returns {string} */
function curl(url, needsToken) {
  const token = needsToken ? ' -H "Authorization: Bearer $CHAINRULE_TOKEN"' : "";
  return `curl -s${token} '${url.replaceAll("'", "%27")}'`;
}

function connectMenus() {
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
}

/** The panels are tabs on a narrow screen. @param {Signal<View>} view @param {(change: Partial<View>) => void} setView */
function connectViews(view, setView) {
  const buttons = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("button[data-show]:not([role])")]);
  const tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[role="tab"]')]);
  for (const button of buttons) {
    button.addEventListener("click", () => setView({ show: /** @type {View["show"]} */ (button.dataset["show"]) }));
  }
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
  view.subscribe((value) => {
    document.body.dataset["tab"] = value.tab;
    document.body.dataset["show"] = value.show;
    for (const tab of tabs) {
      const isShown = tab.dataset["tab"] === value.tab && (tab.dataset["show"] ?? value.show) === value.show;
      tab.setAttribute("aria-selected", String(isShown));
      tab.setAttribute("tabindex", isShown ? "0" : "-1");
    }
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset["show"] === value.show));
  });
}

/** @param {KeyboardEvent} event @returns {boolean} whether the key goes into a text field */
function isTyping({ target }) {
  return target instanceof HTMLInputElement && ["text", "search"].includes(target.type);
}

/** @param {(change: Partial<View>) => void} setView @param {HTMLElement} graph @param {HTMLElement} toolbar */
export function connectKeys(setView, graph, toolbar) {
  document.querySelector(".skip-link")?.addEventListener("click", (event) => {
    // The link must not overwrite the fragment, which holds the view.
    event.preventDefault();
    graph.focus();
  });
  addEventListener("keydown", (event) => {
    if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey
      || document.querySelector("dialog[open]") !== null) return;
    if (event.key === "Escape" && document.querySelector("details.menu[open]") === null) setView({ select: "" });
    if (event.key === "p") setView({ mode: document.body.dataset["mode"] === "teach" ? "" : "teach" });
    if (event.key === "/") {
      event.preventDefault();
      toolbar.focus();
    }
  });
}
