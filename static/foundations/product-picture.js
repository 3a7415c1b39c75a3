/** A product of two matrices as rectangles, with the sizes that must match and the result. */

import { shapeText } from "../core/chapter/tensor-table.js";
import { svg } from "../core/dom.js";

/** @typedef {{code: string, left: number[], right: number[], shape: number[] | null, fits: boolean, is_gradient:
 * boolean}} Product */

const LONGEST = 84;
const SHORTEST = 12;
const WIDTH = 400;
const HEIGHT = 150;

/** @param {Product} product @param {{name: string, shape: number[]}} goal @returns {SVGElement} */
export function productPicture({ code, left, right, shape, fits, is_gradient: isGradient }, goal) {
  const meets = left[1] === right[0];
  const longest = Math.max(...left, ...right, ...goal.shape);
  const picture = svg("svg", { class: "product-picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  picture.setAttribute("aria-label",
    `${code}: ${shapeText(left)} @ ${shapeText(right)}${
      shape === null ? " cannot be multiplied" : ` gives ${shapeText(shape)}`
    }; ${goal.name} is ${shapeText(goal.shape)}`);
  const [leftCode = "", rightCode = ""] = code.split(" @ ");
  rectangle(picture, 72, left, longest, leftCode, meets ? "meets" : "clashes", "right");
  sign(picture, 121, "@");
  rectangle(picture, 200, right, longest, rightCode, meets ? "meets" : "clashes", "left");
  sign(picture, 255, "=");
  if (shape === null) sign(picture, 340, "✗");
  else rectangle(picture, 340, shape, longest, fits ? goal.name : "",
      fits ? (isGradient ? "is-gradient" : "fits") : "other", "none");
  return picture;
}

/** @param {SVGElement} picture @param {number} centre @param {readonly number[]} shape
 * @param {number} longest size, drawn LONGEST long @param {string} label @param {string} kind
 * @param {"left" | "right" | "none"} meeting the side at the neighbour: columns are written on top, rows at the side */
function rectangle(picture, centre, [rows = 0, columns = 0], longest, label, kind, meeting) {
  const [width, height] = [drawn(columns, longest), drawn(rows, longest)];
  const [x, y] = [centre - width / 2, HEIGHT / 2 - 4 - height / 2];
  picture.append(svg("rect", { class: `matrix ${kind}`, x, y, width, height }));
  picture.append(
    svg("text", { class: meeting === "right" ? `size ${kind}` : "size", x: centre, y: y - 6, "text-anchor": "middle" },
      String(columns)),
  );
  picture.append(
    svg("text", { class: meeting === "left" ? `size ${kind}` : "size", x: x - 5, y: HEIGHT / 2, "text-anchor": "end" },
      String(rows)),
  );
  picture.append(svg("text", { class: "name", x: centre, y: HEIGHT - 6, "text-anchor": "middle" }, label));
}

/** @param {number} size @param {number} longest @returns {number} logarithmic, so that 1 beside 200 is visible */
function drawn(size, longest) {
  return longest === 1 ? SHORTEST : SHORTEST + (LONGEST - SHORTEST) * (Math.log(size) / Math.log(longest));
}

/** @param {SVGElement} picture @param {number} x @param {string} text */
function sign(picture, x, text) {
  picture.append(svg("text", { class: "sign", x, y: HEIGHT / 2, "text-anchor": "middle" }, text));
}
