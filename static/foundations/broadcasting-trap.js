/** The exercise: a guess, then the loss without a squeeze. */

import { byId, div, factsTable, number, p, row, strong } from "../core/chapter/parts.js";
import { shapeText } from "../core/chapter/tensor-table.js";
import { quantity, significant } from "../core/format.js";

/** @typedef {object} Trap @property {number[]} pred @property {number[]} targ @property {number[]} difference
 * @property {number[]} squeezed_difference @property {number} loss @property {number} true_loss
 * @property {number} loss_difference @property {number} twice_the_covariance @property {number} loss_of_the_mean
 * @property {number} true_loss_of_the_mean @property {number} bytes @property {number} squeezed_bytes */

/** @typedef {{shape: string, loss: string} | null} Guess null: none, or for other inputs */

/** @returns {(trap: Trap, values: Record<string, string>) => void} shows a new answer after a guess, or after the
 * button that reveals it */
export function wireTrap() {
  let trap = /** @type {Trap | null} */ (null);
  let asked = "";
  let guess = /** @type {Guess | undefined} */ (undefined);
  const draw = () => {
    if (trap === null || guess === undefined) return;
    byId("trap").replaceChildren(...revealed(trap, guess));
    byId("trap-sources").removeAttribute("hidden");
  };
  byId("prediction").addEventListener("submit", (event) => {
    event.preventDefault();
    guess = { shape: textOf("guess-shape"), loss: textOf("guess-loss") };
    draw();
  });
  byId("reveal").addEventListener("click", () => {
    guess = null;
    draw();
  });
  return (answer, { n, noise, seed }) => {
    const now = JSON.stringify([n, noise, seed]);
    // A guess for other inputs does not count; revealed stays revealed.
    if (guess !== undefined && now !== asked) guess = null;
    asked = now;
    trap = answer;
    draw();
  };
}

/** @param {string} id of an input @returns {string} */
function textOf(id) {
  return /** @type {HTMLInputElement} */ (byId(id)).value.trim();
}

/** @param {Trap} trap @param {Guess} guess @returns {Element[]} */
function revealed(trap, guess) {
  /** @param {string} name @param {...string} cells */
  const line = (name, ...cells) => row(name, ...cells.map((text) => number(text)));
  const figures = factsTable(["", "without squeeze", "with squeeze(-1)"], [
    line("pred − targ", shapeText(trap.difference), shapeText(trap.squeezed_difference)),
    line("its memory", quantity(trap.bytes, "B"), quantity(trap.squeezed_bytes, "B")),
    line("loss of these predictions", significant(trap.loss), significant(trap.true_loss)),
    line("loss of mean(targ) for every input", significant(trap.loss_of_the_mean),
      significant(trap.true_loss_of_the_mean)),
  ]);
  const n = trap.targ[0] ?? 0;
  return [
    ...(guess === null || (guess.shape === "" && guess.loss === "") ? [] : [verdict(trap, guess)]),
    div("scroll", figures),
    p("remark warning",
      n === 1 ? "With one prediction there is one pair, so both losses are the same. With two or more they differ."
        : `The column and the row broadcast, so every prediction is compared with every target: ${n} × ${n} pairs, and no error. The loss is too ${
          trap.loss_difference < 0 ? "low" : "high"
        } by ${significant(Math.abs(trap.loss_difference))}: it differs by twice the covariance of pred and targ, ${
          significant(trap.twice_the_covariance)
        }. The better the predictions follow the targets, the larger the error. ${preference(trap)}`),
  ];
}

/** @param {Trap} trap @returns {string} the predictor with the lower loss; over all pairs it is the mean */
function preference({ loss, loss_of_the_mean, true_loss, true_loss_of_the_mean }) {
  if (loss <= loss_of_the_mean) return "";
  if (true_loss < true_loss_of_the_mean) {
    return "This loss is lower for a net that always predicts the mean of the targets than for these predictions, so training would lead to such a net.";
  }
  return "The errors of these predictions are so large that both losses are lower for a net that always predicts the mean of the targets.";
}

/** @param {Trap} trap @param {{shape: string, loss: string}} guess one may be empty @returns {Element} */
function verdict(trap, guess) {
  const parts = [];
  if (guess.shape !== "") {
    const isRight = String(sizesOf(guess.shape)) === String(trap.difference);
    parts.push(strong("", isRight ? "The shape is right: " : "The shape is different: "),
      `${shapeText(trap.pred)} − ${shapeText(trap.targ)} is ${shapeText(trap.difference)}.${
        isRight ? "" : ` You said ${said(guess.shape)}.`
      } `);
  }
  if (guess.loss !== "") {
    const loss = Number(guess.loss.replace(",", ".").replace("−", "-"));
    const isRight = Math.abs(loss - trap.loss) <= 0.1 * Math.abs(trap.loss);
    parts.push(strong("", isRight ? "The loss is right: " : "The loss is different: "),
      `${significant(trap.loss)}.${isRight ? "" : ` You said ${guess.loss}.`}`);
  }
  return p("verdict", ...parts);
}

/** @param {string} text `(50, 50)`, `50,50`, `[50 50]`, `50 x 50` or `50×50`
 * @returns {number[] | null} null: no shape */
function sizesOf(text) {
  const bare = text.replace(/^torch\.Size/, "").replace(/[()[\]]/g, " ");
  const words = bare.split(/[\s,x×*]+/i).filter((word) => word !== "");
  return words.every((word) => /^\d+$/.test(word)) ? words.map(Number) : null;
}

/** @param {string} text @returns {string} */
function said(text) {
  const sizes = sizesOf(text);
  return sizes === null ? `“${text}”` : shapeText(sizes);
}
