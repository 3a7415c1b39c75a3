/** Turns the server's MathML into an element. */

const MATHML = "http://www.w3.org/1998/Math/MathML";

/** @param {string} mathml a math element or its content @param {"block" | "inline"} [display] @returns {Element}
 * @throws {Error} not well-formed */
export function mathElement(mathml, display = "inline") {
  const inner = mathml.trim().startsWith("<math") ? mathml : `<math xmlns="${MATHML}">${mathml}</math>`;
  // A separate parser runs no scripts: the text never becomes markup of the page.
  const parsed = new DOMParser().parseFromString(inner.replace("<math>", `<math xmlns="${MATHML}">`),
    "application/xml");
  if (parsed.querySelector("parsererror") !== null) throw new Error("the formula is not well-formed");
  const element = document.importNode(parsed.documentElement, true);
  element.setAttribute("display", display);
  return element;
}
