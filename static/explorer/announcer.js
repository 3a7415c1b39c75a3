/** Announces the loss, a tensor and the verdict to screen readers when the numbers rest. */

import { significant } from "../core/format.js";
import { describeTensor } from "../core/labels.js";
import { faultsOf, faultWord, headline, judged } from "../core/lab/faults.js";

const REST_MS = 800;

/** @param {Signal<Picture | null>} picture @param {HTMLElement} announcer
 * @param {() => {picture: Picture | null, theory: Theory | null, selection: string}} now without hidden figures;
 * selection: id of a tensor */
export function connectAnnouncer(picture, announcer, now) {
  let timer = 0;
  picture.subscribe((value) => {
    if (value === null) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const { picture: shown, theory, selection } = now();
      if (shown === null) return;
      const focus = selection === "" ? shown.topology.layers[0]?.activation : selection;
      const tensor = shown.topology.tensors.find(({ id }) => id === focus);
      const parts = [`Loss ${shown.hidden?.loss === true ? "hidden until it is guessed" : significant(shown.loss)}`,
        tensor === undefined ? "" : describeTensor(shown, tensor), verdictText(shown, theory)];
      announcer.textContent = parts.filter((part) => part !== "").join(". ");
    }, REST_MS);
  });
}

/** @param {Picture} picture @param {Theory | null} theory @returns {string} what the header says, and the first fault */
function verdictText(picture, theory) {
  const faults = faultsOf(picture, theory);
  if (faults === null) return "";
  const { isHealthy, text } = headline(faults, judged(picture, theory));
  const [first] = faults;
  return `${isHealthy ? "healthy, " : ""}${text}${
    first === undefined ? "" : `. ${faultWord(first.kind)}: ${first.message}`
  }`;
}
