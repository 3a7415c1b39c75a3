/** Making elements. Text goes in as text: names from a dump are never markup. */

const SVG = "http://www.w3.org/2000/svg";

/** @template {keyof HTMLElementTagNameMap} K @param {K} tag
 * @param {Record<string, string | boolean>} [attributes] true: present, false: absent
 * @param {(Node | string)[]} children @returns {HTMLElementTagNameMap[K]} */
export function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** @param {Record<string, string | boolean>} attributes @param {() => void} press
 * @param {(Node | string)[]} children */
export function buttonOf(attributes, press, ...children) {
  const button = html("button", { type: "button", ...attributes }, ...children);
  button.addEventListener("click", press);
  return button;
}

/** @param {string} text for screen readers only @returns {HTMLElement} */
export function unseen(text) {
  return html("span", { class: "visually-hidden" }, text);
}

/** @param {readonly (string | Node)[]} names @returns {HTMLTableRowElement} the headings of a table's columns */
export function headings(names) {
  return html("tr", {}, ...names.map((name) => html("th", { scope: "col" }, name)));
}

/** @template {keyof SVGElementTagNameMap} K @param {K} tag @param {Record<string, string | number>} [attributes]
 * @param {(Node | string)[]} children */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Writes an attribute where it changes. @param {Element} node @param {string} name @param {string} text */
export function write(node, name, text) {
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Sets a property where it changes: a browser restyles the element even for the same value. @template {Node | CSSStyleDeclaration} N
 * @template {keyof N} K @param {N} node @param {K} name @param {N[K]} value */
export function put(node, name, value) {
  if (node[name] !== value) node[name] = value;
}

/** Writes a text where it changes. @param {Element} node @param {string} text */
export function writeText(node, text) {
  const { firstChild } = node;
  // Reuse the text node: a new one would be styled and laid out again.
  if (firstChild instanceof Text && firstChild === node.lastChild && text !== "") {
    if (firstChild.data !== text) firstChild.data = text;
  } else if (node.textContent !== text) node.textContent = text;
}

/** Tells the page, by an event that bubbles. @param {HTMLElement} from @param {string} type @param {unknown} detail */
export function emit(from, type, detail) {
  from.dispatchEvent(new CustomEvent(type, { detail, bubbles: true }));
}
