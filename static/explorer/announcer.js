/** Announces the loss and a tensor to screen readers when the numbers rest. */

import { significant } from "../core/format.js";
import { describeTensor } from "../core/labels.js";
import { verdict } from "../core/lab/verdict.js";

const REST_MS = 800;

/** @param {Signal<Picture | null>} picture @param {HTMLElement} announcer
 * @param {() => {picture: Picture | null, selection: string}} now without hidden figures; selection: id of a tensor */
export function connectAnnouncer(picture, announcer, now) {
  let timer = 0;
  picture.subscribe((value) => {
    if (value === null) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const { picture: shown, selection } = now();
      if (shown === null) return;
      const focus = selection === "" ? shown.topology.layers[0]?.activation : selection;
      const tensor = shown.topology.tensors.find(({ id }) => id === focus);
      const parts = [`Loss ${shown.hidden?.loss === true ? "hidden until it is guessed" : significant(shown.loss)}`,
        tensor === undefined ? "" : describeTensor(shown, tensor), verdict(shown).text];
      announcer.textContent = parts.filter((part) => part !== "").join(". ");
    }, REST_MS);
  });
}
