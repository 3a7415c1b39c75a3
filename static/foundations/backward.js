/** The backward pass: its gradients with the line of code and the derivation of each; shapes tried; mse's traps. */

import { byId, code, div, factsTable, figure, head, label, lightLines, mathElement, number, p,
  row } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { shapeText } from "../core/chapter/tensor-table.js";
import { buttonOf, html, svg } from "../core/dom.js";
import { tensorHistogram } from "./tensor-histogram.js";

/** @typedef {TensorSummary & {name: string, line: string, derivation: string, autograd_difference: FigureValue}}
 * Gradient */
/** @typedef {{name: string, call: string, listing: string, local: string, gradients: Gradient[]}} Stage */
/** @typedef {{title: string, code: string, equations: {says: string, mathml: string}[]}} Derivation */
/** @typedef {{code: string, left: number[], right: number[], shape: number[] | null, error: string | null, fits:
 * boolean, difference: FigureValue, is_gradient: boolean, is_transpose: boolean}} Trial */
/** @typedef {{name: string, shape: number[], operands: {name: string, shape: number[]}[], trials: Trial[], fitting:
 * number, right: string[]}} Trials */
/** @typedef {{code: string, shape: number[], fits: boolean, difference: FigureValue, times_too_large: FigureValue}}
 * TrapGradient */
/** @typedef {{out: number[], targ: number[], numel: number, batch: number, squeezed: number[], loss: FigureValue,
 * unsqueezed_loss: FigureValue, unsqueezed_shape: number[], gradient_max: FigureValue, gradients: TrapGradient[]}}
 * Traps */

const LISTINGS = ["mse_grad", "lin_grad", "relu_grad"];
const PARAMETERS = ["w1.g", "b1.g", "w2.g", "b2.g"];

/** Code and derivation of the chosen gradient; moved into the item of its call. */
const detail = byId("detail");
/** The chosen gradient; kept when the numbers change. */
let looked = { stage: 0, name: "out.g" };
/** The trial pictured per gradient: its code. @type {Record<string, string>} */
const pictured = {};

new ChapterPage({
  show(answer, values) {
    byId("loss").textContent = `loss = ${figure(answer.loss)}`;
    showStages(answer.stages, answer.derivations);
    byId("square").replaceChildren(...equations(answer.derivations.square));
    byId("chain").replaceChildren(...equations(answer.derivations.chain));
    byId("trials-w").replaceChildren(...trialsOf(answer.trials.w));
    byId("trials-inp").replaceChildren(...trialsOf(answer.trials.inp));
    showTraps(answer.traps);
    const widths = `${values["n_in"]},${values["hidden"]},${values["n_out"]}`;
    byId("explorer-link").setAttribute("href",
      `/?${new URLSearchParams({ widths, batch: values["batch"] ?? "", seed: values["seed"] ?? "",
        style: "functions" })}`);
  },
});

// --- the four calls

/** @param {Stage[]} stages @param {Record<string, Derivation>} derivations */
function showStages(stages, derivations) {
  const items = stages.map((stage, at) => {
    const buttons = stage.gradients.map((gradient) =>
      gradientButton(gradient, at, () => look(stages, derivations, at, gradient.name))
    );
    const call = html("h3", {}, code(stage.call));
    return html("li", {}, call, p("soft", "backward through ", code(stage.local)), div("gradients", ...buttons));
  });
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset["gradient"]
    : undefined;
  byId("stages").replaceChildren(...items);
  look(stages, derivations, looked.stage, looked.name);
  if (focused !== undefined)
    /** @type {HTMLElement | null} */ (byId("stages").querySelector(`[data-gradient="${CSS.escape(focused)}"]`))?.focus(
      { preventScroll: true },
    );
}

/** @param {Gradient} gradient @param {number} stage @param {() => void} pressed @returns {HTMLElement} */
function gradientButton(gradient, stage, pressed) {
  const hue = PARAMETERS.includes(gradient.name) ? "parameter" : "backward";
  const agrees = p("agrees muted",
    gradient.autograd_difference === 0 ? "identical to autograd"
      : `differs from autograd by at most ${figure(gradient.autograd_difference)}`);
  return buttonOf({ class: "gradient", "data-gradient": `${stage} ${gradient.name}`, "aria-pressed": "false" }, pressed,
    tensorHistogram(gradient.name, gradient, hue), agrees);
}

/** @param {Stage[]} stages @param {Record<string, Derivation>} derivations @param {number} at @param {string} name */
function look(stages, derivations, at, name) {
  const stage = stages[at];
  const gradient = stage?.gradients.find((each) => each.name === name);
  if (stage === undefined || gradient === undefined) return;
  looked = { stage: at, name };
  byId("stages").children[at]?.append(detail);
  for (const button of byId("stages").querySelectorAll("[data-gradient]")) {
    button.setAttribute("aria-pressed", String(button.getAttribute("data-gradient") === `${at} ${name}`));
  }
  const derivation = derivations[gradient.derivation];
  if (derivation !== undefined)
    byId("derivation").replaceChildren(html("h3", {}, `${derivation.title}: `, code(name)), ...equations(derivation));
  for (const listing of LISTINGS) {
    byId(`listing-${listing}`).hidden = listing !== stage.listing;
    lightLines(listing, (text) => listing === stage.listing && text.trim() === gradient.line);
  }
  lightLines("forward_and_backward", (text) => text.trim() === stage.call);
}

/** @param {Derivation | undefined} derivation @returns {HTMLElement[]} */
function equations(derivation) {
  return (derivation?.equations ?? []).map(({ says, mathml }) =>
    div("equation", p("", says), div("scroll", mathElement(mathml, "block")))
  );
}

// --- shapes

/** @param {Trials} trials @returns {HTMLElement[]} */
function trialsOf({ name, shape, operands, trials, fitting, right }) {
  const [first, second] = operands;
  const goal = p("", code(name), ` has the shape ${shapeText(shape)}. The factors are `, code(first?.name ?? ""),
    ` ${shapeText(first?.shape ?? [])} and `, code(second?.name ?? ""), ` ${shapeText(second?.shape ?? [])}.`);
  const picture = div("product");
  const shown = trials.find((each) => each.code === pictured[name]) ?? trials.find((each) => each.is_gradient)
    ?? trials[0];
  /** @param {Trial} trial */
  const draw = (trial) => {
    picture.replaceChildren(productPicture(trial, { name, shape }));
    for (const line of lines) line.classList.toggle("lit", line.dataset["code"] === trial.code);
  };
  const lines = trials.map((trial) => {
    const button = html("button", { type: "button", class: "link" }, code(trial.code));
    const line = row(button, number(`${shapeText(trial.left)} @ ${shapeText(trial.right)}`),
      number(trial.shape === null ? "–" : shapeText(trial.shape)),
      html("td", { class: trial.is_gradient ? "right good strong" : "" }, verdict(trial)));
    line.dataset["code"] = trial.code;
    line.title = trial.error ?? "";
    for (const type of ["pointerenter", "focusin"]) line.addEventListener(type, () => draw(trial));
    button.addEventListener("click", () => {
      pictured[name] = trial.code;
      draw(trial);
    });
    return line;
  });
  if (shown !== undefined) draw(shown);
  const says = html("p", { class: fitting === 1 ? "" : "remark warning", "data-fitting": String(fitting) },
    conclusion(name, fitting, right));
  return [goal,
    div("trial-columns", div("scroll", factsTable(["product", "shapes", "result", ""], lines, "facts trials")),
      picture), says];
}

/** @param {Trial} trial @returns {string} */
function verdict({ is_gradient: isGradient, is_transpose: isTranspose, fits, shape, difference }) {
  if (isGradient) return "✓ the gradient";
  if (fits)
    return `right shape, but wrong by up to ${figure(difference)}${isTranspose ? ": this is the transpose" : ""}`;
  if (isTranspose) return "the transpose of the gradient";
  return shape === null ? "the shapes do not fit" : "another shape";
}

/** @param {string} name @param {number} fitting @param {string[]} right @returns {string} */
function conclusion(name, fitting, right) {
  if (fitting === 1)
    return `One of eight products has the shape of ${name}, so the shape alone determines the product here.`;
  return `${fitting} of eight products have the shape of ${name}, and ${
    right.length === fitting ? "all are equal at this size" : `only ${right.join(" and ")} is the gradient`
  }. Here the shapes alone prove nothing; the sum over indices is the proof.`;
}

// --- traps

/** @param {Traps} traps */
function showTraps(traps) {
  const { out, targ, loss, unsqueezed_loss: wrong, unsqueezed_shape: shape, numel, batch, squeezed } = traps;
  const isTrap = shape.length !== targ.length || shape.some((size, at) => size !== targ[at]);
  byId("squeeze-trap").replaceChildren(
    p("", code("out"), ` is ${shapeText(out)} and `, code("targ"), ` is ${shapeText(targ)}. `, code("out - targ"),
      ` without the squeeze is ${shapeText(shape)}${
        isTrap && batch > 1 ? `: ${batch} × ${batch} differences, and no error` : ""
      }.`),
    table(["", "loss"], [["with the squeeze", figure(loss)], ["without the squeeze", figure(wrong)]]),
    p("", code("out.squeeze()"),
      ` is ${shapeText(squeezed)}${
        squeezed.length < targ.length
          ? ": squeeze also removes the batch axis. Broadcasting adds it again, so the loss is correct only by luck"
          : out[1] === 1 ? "" : ": with several outputs, squeeze removes nothing"
      }.`),
  );
  const rows = traps.gradients.map(
    (each) => [each.code, shapeText(each.shape), each.fits ? figure(each.difference) : "another shape",
      each.times_too_large === null ? "–" : `${figure(each.times_too_large)} ×`]
  );
  byId("divide-trap").replaceChildren(
    p("",
      `targ.numel() is ${numel}, targ.shape[0] is ${batch}. The largest element of autograd's gradient is ${
        figure(traps.gradient_max)
      }.`),
    table(["as printed", "shape", "differs from autograd by", "largest element"], rows),
  );
}

/** @param {string[]} titles @param {string[][]} rows @returns {HTMLElement} */
function table(titles, rows) {
  const body = rows.map(([first = "", ...rest]) =>
    row(first.includes("(") ? code(first) : first, ...rest.map((text) => number(text)))
  );
  return div("scroll", factsTable(titles.map((title, at) => head(title, at > 0)), body));
}

// --- a product of two matrices as rectangles, with the sizes that must match and the result

const LONGEST = 84;
const SHORTEST = 12;
const WIDTH = 400;
const HEIGHT = 150;

/** @param {Trial} trial @param {{name: string, shape: number[]}} goal @returns {SVGElement} */
function productPicture({ code, left, right, shape, fits, is_gradient: isGradient }, goal) {
  const meets = left[1] === right[0];
  const longest = Math.max(...left, ...right, ...goal.shape);
  const picture = svg("svg", { class: "product-picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  picture.setAttribute("aria-label",
    `${code}: ${shapeText(left)} @ ${shapeText(right)}${
      shape === null ? " does not fit" : ` gives ${shapeText(shape)}`
    }; ${goal.name} is ${shapeText(goal.shape)}`);
  const [leftCode = "", rightCode = ""] = code.split(" @ ");
  rectangle(picture, 72, left, longest, leftCode, meets ? "meets" : "clashes", "right");
  picture.append(label(121, HEIGHT / 2, "@", "middle", "sign"));
  rectangle(picture, 200, right, longest, rightCode, meets ? "meets" : "clashes", "left");
  picture.append(label(255, HEIGHT / 2, "=", "middle", "sign"));
  if (shape === null) picture.append(label(340, HEIGHT / 2, "✗", "middle", "sign"));
  else rectangle(picture, 340, shape, longest, fits ? goal.name : "",
      fits ? (isGradient ? "is-gradient" : "fits") : "other", "none");
  return picture;
}

/** @param {SVGElement} picture @param {number} centre @param {readonly number[]} shape
 * @param {number} longest size, drawn LONGEST long @param {string} name @param {string} kind
 * @param {"left" | "right" | "none"} meeting the side at the neighbour: columns are written on top, rows at the side */
function rectangle(picture, centre, [rows = 0, columns = 0], longest, name, kind, meeting) {
  const [width, height] = [drawn(columns, longest), drawn(rows, longest)];
  const [x, y] = [centre - width / 2, HEIGHT / 2 - 4 - height / 2];
  picture.append(svg("rect", { class: `matrix ${kind}`, x, y, width, height }),
    label(centre, y - 6, String(columns), "middle", meeting === "right" ? `size ${kind}` : "size"),
    label(x - 5, HEIGHT / 2, String(rows), "end", meeting === "left" ? `size ${kind}` : "size"),
    label(centre, HEIGHT - 6, name, "middle", "name"));
}

/** @param {number} size @param {number} longest @returns {number} logarithmic, so that 1 beside 200 is visible */
function drawn(size, longest) {
  return longest === 1 ? SHORTEST : SHORTEST + (LONGEST - SHORTEST) * (Math.log(size) / Math.log(longest));
}
