/** Playing steps one after the other: the play button, its timer, and icons for the buttons beside it. */

import { buttonOf, html, svg, write } from "./dom.js";

/** In a square of 16: not every font has these characters. @type {Record<string, string>} */
const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M11 3v10L4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  on: "M5 3v10l7-5z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
};

/** @param {string} name */
function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
    svg("path", { d: ICONS[name] ?? "", fill: "currentcolor" }));
}

/** @param {string} name of the icon @param {string} title @param {() => void} press @param {string} [label] */
export function iconButton(name, title, press, label = title) {
  return buttonOf({ class: "icon-button", title, "aria-label": label }, press, icon(name));
}

/** @typedef {object} Played @property {() => number} perSecond steps @property {() => boolean | string} isHidden
 * @property {() => boolean} isAtEnd @property {() => void} rewind @property {() => void} next */

export class Player {
  button = html("button", { type: "button", class: "icon-button play" });
  #timer = 0;
  #played;

  /** @param {Played} played */
  constructor(played) {
    this.#played = played;
    this.button.addEventListener("click", () => this.toggle());
    this.#draw();
  }

  get isPlaying() {
    return this.#timer !== 0;
  }

  toggle() {
    if (this.isPlaying) {
      this.pause();
      return;
    }
    if (this.#played.isAtEnd()) this.#played.rewind();
    this.start();
  }

  /** Starts the timer, anew if the speed has changed. */
  start() {
    const { perSecond, isHidden, isAtEnd, next } = this.#played;
    clearInterval(this.#timer);
    this.#timer = setInterval(() => {
      if (isHidden() || isAtEnd()) this.pause();
      else next();
    }, 1000 / perSecond());
    this.#draw();
  }

  pause() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#draw();
  }

  #draw() {
    const label = this.isPlaying ? "Pause (space)" : "Play (space)";
    this.button.replaceChildren(icon(this.isPlaying ? "pause" : "play"));
    write(this.button, "aria-label", label);
    write(this.button, "title", label);
  }
}
