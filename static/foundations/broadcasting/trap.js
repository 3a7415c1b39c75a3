/** The exercise: a guess first, then what the loss without a squeeze really is. */

import { shapeText } from "../../core/chapter/tensor-table.js";
import { html } from "../../core/dom.js";
import { quantity, significant } from "../../core/format.js";

/**
 * @typedef {object} Trap
 * @property {number[]} pred
 * @property {number[]} targ
 * @property {number[]} difference
 * @property {number[]} squeezed_difference
 * @property {number} loss
 * @property {number} true_loss
 * @property {number} loss_difference
 * @property {number} twice_the_covariance
 * @property {number} loss_of_the_mean
 * @property {number} true_loss_of_the_mean
 * @property {number} bytes
 * @property {number} squeezed_bytes
 */

/** @typedef {{shape: string, loss: string} | null} Guess null: none was made */

/** @returns {(trap: Trap) => void} shows a new answer: hidden until there was a guess, or the wish for none */
export function wireTrap() {
  /** @type {Trap | null} */
  let trap = null;
  /** @type {Guess | undefined} */
  let guess = undefined;
  const draw = () => {
    if (trap === null || guess === undefined) return;
    document.querySelector("#trap")?.replaceChildren(...revealed(trap, guess));
    document.querySelector("#trap-sources")?.removeAttribute("hidden");
  };
  document.querySelector("#prediction")?.addEventListener("submit", (event) => {
    event.preventDefault();
    guess = { shape: textOf("guess-shape"), loss: textOf("guess-loss") };
    draw();
  });
  document.querySelector("#reveal")?.addEventListener("click", () => {
    guess = null;
    draw();
  });
  return (answer) => {
    trap = answer;
    draw();
  };
}

/** @param {string} id @returns {string} */
function textOf(id) {
  const field = document.getElementById(id);
  return field instanceof HTMLInputElement ? field.value.trim() : "";
}

/** @param {Trap} trap @param {Guess} guess @returns {Element[]} */
function revealed(trap, guess) {
  const head = html("tr", {}, ...["", "forgotten", "with squeeze(-1)"].map((text) => html("th", { scope: "col" }, text)));
  /** @param {string} name @param {...string} cells */
  const row = (name, ...cells) => html("tr", {}, html("th", { scope: "row" }, name), ...cells.map((text) => html("td", { class: "number" }, text)));
  const figures = html(
    "table",
    { class: "facts" },
    html("thead", {}, head),
    html(
      "tbody",
      {},
      row("pred − targ", shapeText(trap.difference), shapeText(trap.squeezed_difference)),
      row("its memory", quantity(trap.bytes, "B"), quantity(trap.squeezed_bytes, "B")),
      row("loss of these predictions", significant(trap.loss), significant(trap.true_loss)),
      row("loss of mean(targ) for every input", significant(trap.loss_of_the_mean), significant(trap.true_loss_of_the_mean)),
    ),
  );
  const n = trap.targ[0] ?? 0;
  const prefers = trap.loss > trap.loss_of_the_mean ? "It prefers a net that says the mean of the targets whatever its input to these predictions, and training on it would lead there." : "";
  return [
    ...(guess === null ? [] : [verdict(trap, guess)]),
    html("div", { class: "scroll" }, figures),
    html(
      "p",
      { class: "remark warning" },
      n === 1
        ? "With one prediction there is one pair, and both losses are the same. From two on they are not."
        : `The column meets the row, and every prediction is held against every target: ${n} × ${n} pairs, without a word. The loss is too high by ${significant(trap.loss_difference)}, which is twice the covariance of pred and targ, ${significant(trap.twice_the_covariance)}: the better the predictions follow the targets, the larger the error. ${prefers}`,
    ),
  ];
}

/** @param {Trap} trap @param {{shape: string, loss: string}} guess @returns {Element} */
function verdict(trap, guess) {
  const sizes = guess.shape.replace(/[()[\]\s]/g, "").replace(/,$/, "");
  const isShapeRight = sizes === trap.difference.join(",");
  const loss = Number(guess.loss.replace(",", "."));
  const isLossRight = guess.loss !== "" && Math.abs(loss - trap.loss) <= 0.1 * Math.abs(trap.loss);
  const said = guess.shape === "" ? "" : ` You said (${sizes.replaceAll(",", ", ")}).`;
  const saidLoss = guess.loss === "" ? "" : ` You said ${guess.loss}.`;
  return html(
    "p",
    { class: "verdict" },
    html("strong", {}, isShapeRight ? "The shape is right. " : "The shape is another: "),
    `${shapeText(trap.pred)} − ${shapeText(trap.targ)} is ${shapeText(trap.difference)}.${isShapeRight ? "" : said} `,
    html("strong", {}, isLossRight ? "The loss is right: " : "The loss is another: "),
    `${significant(trap.loss)}.${isLossRight ? "" : saidLoss}`,
  );
}
