/** Plotly, loaded when it is first wanted. It is a script of the classic kind that leaves a global behind. */

/** @typedef {object} Plotly the part that is used
 * @property {(target: HTMLElement, data: object[], layout: object, config: object) => Promise<unknown>} react
 * @property {(target: HTMLElement) => void} purge
 * @property {(figure: {data: object[], layout: object}, options: object) => Promise<unknown>} downloadImage */

/** Options of every chart: its buttons act in the page only. */
export const LOCAL = { displaylogo: false, showSendToCloud: false, plotlyServerURL: "" };

const ADDRESS = "/static/vendor/plotly.min.js";

/** @type {Promise<Plotly> | null} */
let loading = null;

export function loadPlotly() {
  // A page that is a file has only what is in it.
  if (location.protocol === "file:") return Promise.reject(new Error("Plotly is not in this file"));
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = ADDRESS;
    script.addEventListener("load",
      () => resolve(/** @type {{Plotly: Plotly}} */ (/** @type {unknown} */ (window)).Plotly));
    script.addEventListener("error", () => {
      // Another try may succeed.
      loading = null;
      script.remove();
      reject(new Error(`${ADDRESS} cannot be loaded`));
    });
    document.head.append(script);
  });
  return loading;
}
