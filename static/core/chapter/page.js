/** A page of the chapter: its controls, its address and its answers. The query string holds the inputs that are not
 * at their default; the page shows what its JSON twin answers to the same query. */

import { cancel, during, later } from "../activity.js";
import { ApiError, getJson } from "../api.js";
import { buttonOf, writeText } from "../dom.js";

/** @typedef {Record<string, string>} Values every input's text by its name */
/** @typedef {{name: string, answer: string, inputs: {name: string, default: string, kind: string}[]}} PageData */

/** @typedef {object} Behaviour @property {(answer: any, values: Values) => void} show an answer
 * @property {(error: ErrorBody, values: Values) => boolean | void} [failed] explains an error in place; true: the
 * top of the page need not show it
 * @property {(values: Values, asking: PageQuery) => Promise<any>} [load] replaces the single request */

/** ms without typing before what was typed is asked */
const PAUSE = 250;
/** ms until the page shows that it is busy */
const PATIENCE = 200;
/** ms between two tries while the server is busy */
const RETRY = 1000;
const TRIES = 5;

export class ChapterPage {
  /** @type {PageData} */
  #page = JSON.parse(document.querySelector("#page-data")?.textContent ?? "{}");
  #behaviour;
  #asking = /** @type {AbortController | null} */ (null);
  #pause = /** @type {number | undefined} */ (undefined);
  #answers = 0;
  #asked = "";
  values = /** @type {Values} */ ({});

  /** @param {Behaviour} behaviour */
  constructor(behaviour) {
    this.#behaviour = behaviour;
    this.values = this.#readControls();
    const changed = () => this.#change(this.#readControls(), false);
    for (const { name } of this.#page.inputs) {
      const control = controlOf(name);
      control?.addEventListener("input", () => {
        cancel(this.#pause);
        if (control.type === "text") this.#pause = later(changed, PAUSE);
        else changed();
      });
      control?.addEventListener("change", changed);
    }
    document.addEventListener("submit", (event) => {
      event.preventDefault();
      changed();
    });
    document.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("[data-set]") : null;
      if (button instanceof HTMLElement) this.set(Object.fromEntries(new URLSearchParams(button.dataset["set"] ?? "")));
    });
    addEventListener("popstate", () => {
      // A move to a heading of the page needs no answer.
      if (location.search.slice(1) === this.#asked) return;
      const given = new URLSearchParams(location.search);
      this.values = Object.fromEntries(
        this.#page.inputs.map((each) => [each.name, given.get(each.name) ?? each.default]),
      );
      this.#writeControls(this.values);
      this.#ask(location.search.slice(1));
    });
    // The address as it stands: the answer names its mistakes, even those that no control can show.
    this.#ask(location.search.slice(1));
  }

  /** @param {Values} changes to some inputs */
  set(changes) {
    const values = { ...this.values, ...changes };
    this.#writeControls(values);
    this.#change(values, true);
  }

  /** @param {Values} values @param {boolean} isEntry makes a history entry */
  #change(values, isEntry) {
    cancel(this.#pause);
    const before = this.#query;
    this.values = values;
    if (this.#query === before && this.#asked === before) return;
    const address = `${location.pathname}${this.#query && `?${this.#query}`}${location.hash}`;
    history[isEntry ? "pushState" : "replaceState"](null, "", address);
    this.#ask();
  }

  /** @returns {Values} */
  #readControls() {
    return Object.fromEntries(this.#page.inputs.map((each) => {
      const control = controlOf(each.name);
      const given = new URLSearchParams(location.search).get(each.name);
      return [each.name, control === null ? (given ?? each.default) : textOf(control)];
    }));
  }

  /** @param {Values} values */
  #writeControls(values) {
    for (const [name, text] of Object.entries(values)) {
      const control = controlOf(name);
      if (control instanceof HTMLInputElement && control.type === "checkbox") control.checked = text === "true";
      else if (control !== null && control.value !== text) control.value = text;
    }
  }

  /** Without the inputs that are at their default. */
  get #query() {
    const given = this.#page.inputs.filter((each) => this.values[each.name] !== each.default);
    return new URLSearchParams(
      given.map(({ name }) => /** @type {[string, string]} */ ([name, this.values[name] ?? ""])),
    ).toString();
  }

  /** @param {string} [query] by default that of the inputs */
  #ask(query = this.#query) {
    void during(this.#answer(query));
  }

  /** @param {string} query */
  async #answer(query) {
    this.#asked = query;
    cancel(this.#pause);
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    const { signal } = asking;
    const { values } = this;
    for (const link of document.querySelectorAll("a[data-answer]"))
      link.setAttribute("href", this.#page.answer + (query && `?${query}`));
    const patience = setTimeout(() => document.body.setAttribute("aria-busy", "true"), PATIENCE);
    /** @type {(answer: any) => void} */
    const show = (answer) => {
      if (!signal.aborted) this.#behaviour.show(answer, values);
    };
    try {
      const ask = (/** @type {string} */ asked) => answerOf(this.#page.answer, asked, signal);
      const answer = await (this.#behaviour.load?.(values, { signal, query, ask, partial: show }) ?? ask(query));
      if (signal.aborted) return;
      this.#say(null);
      show(answer);
      document.body.dataset["answers"] = String(++this.#answers);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.#say(error.body, this.#behaviour.failed?.(error.body, values) === true);
    } finally {
      clearTimeout(patience);
      if (this.#asking === asking) document.body.removeAttribute("aria-busy");
    }
  }

  /** Shows the error beside the control at fault, else at the top; the last answer stays, dimmed.
   * @param {ErrorBody | null} error @param {boolean} [isExplained] by the page itself */
  #say(error, isExplained = false) {
    const field = error?.field ?? null;
    const isOfControl = field !== null && controlOf(field) !== null;
    for (const { name } of this.#page.inputs) {
      const control = controlOf(name);
      if (control === null) continue;
      const isAtFault = field === name;
      document.querySelector(`[data-input="${name}"]`)?.classList.toggle("at-fault", isAtFault);
      writeText(/** @type {Element} */ (document.getElementById(`input-${name}-note`)),
        isAtFault ? (error?.message ?? "") : "");
      if (isAtFault) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    }
    const top = /** @type {HTMLElement} */ (document.getElementById("page-error"));
    top.hidden = error === null || isOfControl || isExplained;
    top.replaceChildren(error?.message ?? "");
    if (error?.code === "unreachable" || error?.code === "busy")
      top.append(" ", buttonOf({ class: "link" }, () => this.#ask(this.#asked), "Try again"));
    document.body.toggleAttribute("data-stale", error !== null);
    if (error === null) delete document.body.dataset["error"];
    else document.body.dataset["error"] = error.code;
  }
}

/** A `load` that resets inputs at fault and asks again: the other sections follow, those that use them are dimmed.
 * @param {Readonly<Record<string, readonly string[]>>} used inputs of each section, by the id of an element in it
 * @param {...readonly string[]} groups of inputs that must fit each other */
export function loadSections(used, ...groups) {
  const sections = Object.keys(used);
  /** @param {readonly string[]} stale */
  const dim = (stale) => {
    for (const id of sections)
      document.getElementById(id)?.closest("section")?.toggleAttribute("data-stale", stale.includes(id));
  };
  /** @param {Values} _values @param {PageQuery} asking @returns {Promise<SectionsAnswer>} */
  return async (_values, { signal, query, ask, partial }) => {
    const asked = new URLSearchParams(query);
    const errors = /** @type {ErrorBody[]} */ ([]);
    const stale = /** @type {Set<string>} */ (new Set());
    for (;;) {
      const answer = await ask(asked.toString()).catch((error) => {
        const field = error.body?.field ?? "";
        const reset = groups.find((names) => names.includes(field)) ?? [field];
        // An error that is not about the remaining inputs.
        if (!reset.some((name) => asked.has(name))) {
          if (!signal.aborted) dim(sections);
          throw error;
        }
        errors.push(error.body);
        for (const name of reset) asked.delete(name);
        for (const id of sections) if (used[id]?.some((name) => reset.includes(name))) stale.add(id);
        return null;
      });
      if (answer === null) continue;
      const found = { answer, errors, stale };
      dim([...stale]);
      const [first] = errors;
      if (first === undefined) return found;
      partial(found);
      throw new ApiError(first, 422);
    }
  };
}

/** @param {string} path @param {string} query @param {AbortSignal} signal @returns {Promise<any>} */
async function answerOf(path, query, signal) {
  for (let tried = 1;; tried++) {
    try {
      return await getJson(path + (query && `?${query}`), signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 503 || tried === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY));
      signal.throwIfAborted();
    }
  }
}

/** @param {string} name @returns {HTMLInputElement | HTMLSelectElement | null} */
function controlOf(name) {
  const control = document.getElementById(`input-${name}`);
  return control instanceof HTMLInputElement || control instanceof HTMLSelectElement ? control : null;
}

/** @param {HTMLInputElement | HTMLSelectElement} control @returns {string} */
function textOf(control) {
  if (control instanceof HTMLInputElement && control.type === "checkbox") return control.checked ? "true" : "false";
  return control.value;
}
