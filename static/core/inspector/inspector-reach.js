/** The inspector's controls of what is lit around the selection: upstream, downstream, so many ops away. */

import { emit, html } from "../dom.js";

/** @type {readonly [string, string, string][]} */
const WAYS = [
  ["", "Off", "Nothing is lit"],
  ["up", "Up", "Upstream: what it depends on"],
  ["down", "Down", "Downstream: what depends on it"],
  ["both", "Both", "What it depends on, and what depends on it"],
];
const HOPS = [1, 2, 3, 5, 10, 20, Infinity];

/**
 * @param {HTMLElement} host that events start from
 * @returns {{element: HTMLElement, fill: (reach: string) => void}} fill: with "up2", "down", "both1" or ""
 */
export function reachControls(host) {
  let [direction, hops] = ["", 1];
  const tell = () => emit(host, "reach-change", { direction, hops });
  const buttons = WAYS.map(([way, text, title]) => {
    const button = html("button", { type: "button", title, "aria-pressed": "false" }, text);
    button.addEventListener("click", () => {
      direction = way;
      tell();
    });
    return { way, button };
  });
  const select = html("select", { "aria-label": "Ops away" },
    ...HOPS.map((each) =>
      html("option", { value: String(each) }, each === Infinity ? "all" : `${each} ${each === 1 ? "op" : "ops"}`)
    ));
  select.addEventListener("change", () => {
    hops = Number(select.value);
    if (direction !== "") tell();
  });
  const group = html("div", { class: "segmented small", role: "group", "aria-label": "Light what is connected" },
    ...buttons.map(({ button }) => button));
  return {
    element: html("section", { class: "reach" }, html("h3", {}, "Light what is connected"),
      html("div", {}, group, select)),
    fill(reach) {
      const [, way = "", far] = /^(up|down|both)(\d*)$/.exec(reach) ?? [];
      direction = way;
      if (far !== undefined) hops = far === "" ? Infinity : Number(far);
      for (const { way: each, button } of buttons) button.setAttribute("aria-pressed", String(each === direction));
      // A number of its own, from an address, is shown as it is.
      if (!HOPS.includes(hops) && ![...select.options].some(({ value }) => value === String(hops)))
        select.append(html("option", { value: String(hops) }, `${hops} ops`));
      select.value = String(hops);
    },
  };
}
