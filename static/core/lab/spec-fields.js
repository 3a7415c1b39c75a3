/** Parts that the controls of a spec and of a what-if share: a key's input, and what it says. */

import { buttonOf, html, svg } from "../dom.js";
import { setting } from "../format.js";

/** A seed of the dice has so many digits at most. */
const SEEDS = 10_000;

/** Text rather than number fields: what does not read as a number goes to the server too, which says what is allowed.
 * @param {SpecKey["kind"]} kind @returns {HTMLInputElement} */
export function textInput(kind) {
  const inputmode = kind === "int" ? "numeric" : kind === "float" ? "decimal" : "text";
  return html("input", { type: "text", inputmode, autocomplete: "off", spellcheck: "false" });
}

/** @param {SpecKey} key @param {SpecControl} control @returns {string | number | boolean} */
export function readControl(key, control) {
  if (control instanceof HTMLInputElement && control.type === "checkbox") return control.checked;
  const text = control.value.trim();
  const number = Number(text);
  const isNumber = (key.kind === "int" || key.kind === "float") && text !== "" && Number.isFinite(number);
  // A seed beyond 2^53 is not a number to a browser: it stays text.
  return isNumber && (key.kind === "float" || Number.isSafeInteger(number)) ? number : text;
}

/** Writes a value, unless it is being typed. @param {SpecKey} key @param {SpecControl} control
 * @param {string | number | boolean} value */
export function writeControl(key, control, value) {
  if (control instanceof HTMLInputElement && control.type === "checkbox") control.checked = value === true;
  else if (document.activeElement !== control || control instanceof HTMLSelectElement || typeof value === "number") {
    const text = key.kind === "float" && typeof value === "number" ? setting(value) : String(value);
    if (control.value !== text) control.value = text;
  }
}

/** @param {SpecKey} key @param {string} id of the control @param {string} label @param {SpecControl} control
 * @param {readonly Node[]} parts the control among them @returns {SpecField} */
export function fieldOf(key, id, label, control, parts) {
  const { name, kind, doc } = key;
  const note = html("p", { class: "note", id: `${id}-note` });
  control.id = id;
  control.title = doc;
  control.setAttribute("aria-describedby", note.id);
  const root = html("div", { class: `field ${kind}`, "data-key": name }, html("label", { for: id, title: doc }, label),
    ...parts, note);
  return { key, root, control, note };
}

/** Shows an error at the field at fault; the other fields show their notes.
 * @param {ReadonlyMap<string, SpecField>} fields @param {ErrorBody | null} error
 * @param {(name: string) => string} noteOf */
export function markFault(fields, error, noteOf) {
  for (const [name, { root, control, note }] of fields) {
    const isAtFault = error?.field === name;
    root.classList.toggle("at-fault", isAtFault);
    if (isAtFault) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
    note.textContent = isAtFault ? (error?.message ?? "") : noteOf(name);
  }
}

/** @param {(seed: number) => void} roll @returns {HTMLButtonElement} */
export function dice(roll) {
  const pips = [[5, 5], [11, 5], [8, 8], [5, 11], [11, 11]].map(([cx, cy]) => svg("circle", { cx, cy, r: 1.2 }));
  const frame = svg("rect", { x: 1.5, y: 1.5, width: 13, height: 13, rx: 2.5 });
  const icon = svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, frame, ...pips);
  return buttonOf({ class: "icon-button dice", title: "Another seed", "aria-label": "Another seed" }, () => {
    const [number] = crypto.getRandomValues(new Uint32Array(1));
    roll(number % SEEDS);
  }, icon);
}
