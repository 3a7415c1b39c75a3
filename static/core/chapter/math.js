/** MathML as the server writes it, as an element of the page. */

const MATHML = "http://www.w3.org/1998/Math/MathML";

/** @param {string} mathml what stands inside a math element, or one @param {"block" | "inline"} [display]
 * @returns {Element} @throws {Error} it is not well-formed */
export function mathElement(mathml, display = "inline") {
  const inner = mathml.trim().startsWith("<math") ? mathml : `<math xmlns="${MATHML}">${mathml}</math>`;
  // A parser of its own, which runs nothing: the text never is markup of the page.
  const parsed = new DOMParser().parseFromString(inner.replace("<math>", `<math xmlns="${MATHML}">`),
    "application/xml");
  if (parsed.querySelector("parsererror") !== null) throw new Error("the formula is not well-formed");
  const element = document.importNode(parsed.documentElement, true);
  element.setAttribute("display", display);
  return element;
}
