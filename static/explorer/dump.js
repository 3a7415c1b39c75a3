/** A dump in the place of the server's answers: opened with the page, from a file, or dropped on it. */

import { ApiError, getText } from "../core/api.js";

/** @typedef {import("../core/types.js").Dump} Dump */
/** @typedef {import("../core/types.js").PageData} PageData */
/** @template T @typedef {import("../core/signal.js").Signal<T>} Signal */

/** @typedef {{name: string, dump: Dump}} Opened */

/**
 * @param {PageData} page
 * @param {Signal<Opened | null>} opened becomes the dump
 * @param {Record<string, any>} elements opener, note
 * @param {(type: string, listener: (detail: any) => void) => void} on
 */
export function connectDump(page, opened, elements, on) {
  document.querySelector("#open-dump")?.addEventListener("click", () => elements["opener"].choose());
  on("dump-open", (/** @type {{dump: Dump, name: string}} */ { dump, name }) => (opened.value = { name, dump }));
  on("dump-close", () => location.assign("/"));
  opened.subscribe((value) => {
    const isDump = value !== null || page.dump !== null;
    document.body.dataset["source"] = isDump ? "dump" : "live";
    // What a server was opened with has an address; what a person has dropped on the page has none.
    const isServed = page.dump?.url !== undefined && (value === null || value.name === page.dump.name);
    document.body.dataset["opened"] = isServed ? "server" : "here";
    elements["note"].hidden = !isDump;
    if (value === null) return;
    document.title = `${value.name} · Chainrule`;
    // A page that was opened with a dump has no other run to go back to.
    elements["note"].show(value.name, value.dump, page.dump === null);
  });
  if (page.dump !== null) void open(page.dump);

  /** @param {import("../core/types.js").OpenDump} dump that the page was opened with */
  async function open({ name, url, content }) {
    try {
      elements["opener"].read(content != null ? JSON.stringify(content) : await getText(url ?? ""), name);
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      elements["opener"].refuse(problem, name);
    }
  }
}
