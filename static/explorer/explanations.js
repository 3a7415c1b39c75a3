/** Explanations: an element with `data-term` shows its entry of the glossary on hover and on focus; Esc hides it. */

import { html } from "../core/dom.js";

/** @param {PageData["glossary"]} glossary */
export function connectExplanations(glossary) {
  const shown = html("p", { class: "explanation", id: "explanation", role: "tooltip", popover: "manual" });
  document.body.append(shown);
  /** @type {Element | null} */
  let explained = null;

  const hide = () => {
    explained?.removeAttribute("aria-describedby");
    explained = null;
    shown.hidePopover();
  };
  /** @param {Event} event */
  const follow = ({ target }) => {
    const mark = target instanceof Element ? target.closest("[data-term]") : null;
    if (mark === explained) return;
    hide();
    const entry = glossary[mark?.getAttribute("data-term") ?? ""];
    if (mark === null || entry === undefined) return;
    explained = mark;
    mark.setAttribute("aria-describedby", shown.id);
    shown.replaceChildren(html("strong", {}, entry.term), ` ${entry.text}`);
    shown.showPopover();
    const [box, own] = [mark.getBoundingClientRect(), shown.getBoundingClientRect()];
    const below = box.bottom + 6;
    shown.style.left = `${Math.max(8, Math.min(box.left, innerWidth - own.width - 8))}px`;
    shown.style.top = `${below + own.height <= innerHeight ? below : Math.max(8, box.top - own.height - 6)}px`;
  };
  addEventListener("pointerover", follow);
  addEventListener("focusin", follow);
  addEventListener("focusout", hide);
  addEventListener("keydown", ({ key }) => {
    if (key === "Escape") hide();
  });
}
