/** Saves the state on the screen: as a picture, as a dump, or as a file that opens without a server. */

import { saveFile } from "../core/lab/csv.js";
import { isDarkScheme } from "../core/colours.js";
import { apiPath, getJson, getText } from "../core/api.js";
import { bytesOf, readSource } from "../core/dump/sources.js";
import { graphSvg } from "../core/takeaway/graph-svg.js";
import { standaloneHtml } from "../core/takeaway/standalone.js";

const SCALE = 2;
/** Limits of canvases in all browsers: px along a side and in total. */
const MAX_SIDE = 16_384;
const MAX_PIXELS = 2 ** 26;

/** @param {string} svg with width and height @returns {Promise<Blob>} twice as large, if the canvas allows */
async function graphPng(svg) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const { naturalWidth: width, naturalHeight: height } = image;
    const scale = Math.min(SCALE, MAX_SIDE / Math.max(width, height), Math.sqrt(MAX_PIXELS / (width * height)));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((/** @type {(blob: Blob | null) => void} */ resolve) =>
      canvas.toBlob(resolve, "image/png")
    );
    if (blob === null) throw new Error("the picture is too large for this browser");
    return blob;
  } finally {
    URL.revokeObjectURL(address);
  }
}

const FAILED_MS = 4000;

/** @typedef {object} OnScreen @property {Picture | null} picture @property {Graph | null} graph
 * @property {any} view the graph-view @property {"std" | "mean"} statistic @property {string} selection
 * @property {Paintwork | null} paintwork @property {string} query of the picture's spec
 * @property {string} caption of the picture @property {string} fragment of the view @property {Theory | null} theory
 * @property {string} model name of the user's own model or ""
 * @property {OpenedDump | null} opened the open dump */

/** @param {PageData} page @param {() => OnScreen} now */
export function connectTakeaway(page, now) {
  offer("#save-svg", async () => saveFile(`${nameOf(now())}.svg`, svgOf(now()), "image/svg+xml"));
  offer("#save-png", async () => saveFile(`${nameOf(now())}.png`, await graphPng(svgOf(now())), "image/png"));
  offer("#save-html", async () => {
    const { fragment, query, opened, theory } = now();
    /** @type {[string, Dump]} */
    const [shell, dump] = await Promise.all([getText("/standalone.html"),
      opened === null ? getJson(apiPath("trace.json", query)) : readSource(opened.source)]);
    const text = standaloneHtml(shell, { ...withoutModel(page), view: fragment, dumps: [],
      dump: { name: `${nameOf(now())}.json`, content: dump, theory } });
    saveFile(`${nameOf(now())}.html`, text, "text/html");
  });
  offer("#save-dump", async () => {
    const { opened } = now();
    if (opened !== null) saveFile(opened.name, await bytesOf(opened.source), "application/json");
  });
}

/** @param {OnScreen} on @returns {string} */
function svgOf({ picture, graph, view, statistic, selection, paintwork, theory, caption }) {
  const { drawing } = view;
  if (picture === null || graph === null || drawing === null) throw new Error("nothing is drawn yet");
  const scheme = isDarkScheme() ? "dark" : "light";
  return graphSvg({ graph, drawing, picture, theory, statistic, paintwork, selection, scheme, caption,
    viewBox: view.viewBox() });
}

/** @param {PageData} page @returns {PageData} for a file without the model */
function withoutModel(page) {
  return page.model == null ? page : { ...page, model: null, spec: {}, query: "", keys: [] };
}

/** @param {OnScreen} on @returns {string} of a file, without its suffix */
function nameOf({ opened, picture, model }) {
  if (opened !== null) return opened.name.replace(/\.[a-z]+(\.gz)?$/i, "");
  if (model !== "") return `chainrule-${model.replaceAll(/[^\w.-]+/g, "-")}`;
  const { program = "mlp", widths = "graph" } = picture?.spec ?? {};
  return `chainrule-${program === "mlp" ? "" : `${program}-`}${String(widths).replaceAll(",", "-")}`;
}

/** @param {string} selector of a button @param {() => Promise<void>} act */
function offer(selector, act) {
  const button = /** @type {HTMLButtonElement | null} */ (document.querySelector(selector));
  button?.addEventListener("click", async () => {
    const label = [...button.childNodes];
    button.disabled = true;
    try {
      await act();
    } catch (problem) {
      button.textContent = problem instanceof Error ? problem.message : String(problem);
      await new Promise((resolve) => setTimeout(resolve, FAILED_MS));
      button.replaceChildren(...label);
    } finally {
      button.disabled = false;
    }
  });
}
