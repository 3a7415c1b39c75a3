/** Five styles: their code side by side, how far their numbers are apart, and what goes wrong in two of them. */

import { byId, code, div, factsTable, figure, head, number, p, row, span, strong, td } from "../core/chapter/parts.js";
import { ChapterPage } from "../core/chapter/page.js";
import { shapeText } from "../core/chapter/tensor-table.js";
import { html } from "../core/dom.js";
import { count } from "../core/format.js";

/** @typedef {{number: number, parts: [string, string][]}} Line */
/** @typedef {{code: Line[], file: string | null, instead: string | null}} Cell */
/** @typedef {{name: string, title: string, removes: string | null, lines: number, per_layer: number, once: number,
 * per_model: number, backward: number, names: number}} Style */
/** @typedef {{left: number | null, right: number | null, same: boolean}} Beside lines by their places in two cells */
/** @typedef {{styles: Style[], rows: {part: string, role: string, cells: Cell[]}[], pairs: Record<string,
 * Beside[][]>}} Code */
/** @typedef {{difference: FigureValue, relative: FigureValue, nan: number, inf: number}} Agreement */
/** @typedef {{style: string, loss: FigureValue, gradients: Record<string, Agreement>}} Run */
/** @typedef {{leaves: string[], shapes: Record<string, number[]>, reference_loss: FigureValue, runs: Run[],
 * non_finite: {elements: number, nan: number[], inf: number[], same: boolean}, apart: FigureValue[][], identical:
 * boolean[][]}} Runs */
/** @typedef {{type: string, message: string} | null} Raised */
/** @typedef {{error: Raised, gradients: string[], attributes: string[]}} Ran */
/** @typedef {{linear_layer: number[][], forgotten: Raised, models: {name: string, loss: FigureValue, parameters:
 * {name: string, shape: number[]}[]}[]}} Modules */

const COUNTS = /** @type {const} */ ([
  ["lines", "all lines"],
  ["per_layer", "lin, relu, mse"],
  ["once", "shared by all layers"],
  ["per_model", "the model"],
  ["backward", "only for gradients"],
  ["names", "different names"],
]);

new ChapterPage({
  show(answer, values) {
    showCode(answer.code, values["compare"] ?? "");
    showRuns(answer, answer.code.styles);
    showMisprint(answer.misprint);
    showModules(answer.modules);
    const spec = { widths: `${values["n_in"]},${values["hidden"]},${values["n_out"]}`, batch: values["batch"] ?? "",
      seed: values["seed"] ?? "", dtype: values["dtype"] ?? "" };
    byId("explorer").replaceChildren("This model in the explorer, at scale 1: ",
      ...answer.code.styles.flatMap((
        /** @type {Style} */ { name, title },
        /** @type {number} */ at,
      ) => [at > 0 ? " · " : "", html("a", { href: `/?${new URLSearchParams({ ...spec, style: name })}` }, title)]));
  },
});

// --- side by side

/** @param {Code} code @param {string} compare */
function showCode({ styles, rows, pairs }, compare) {
  const [one, other] = compare.split(" to ");
  const shown = styles.map((style, at) => ({ ...style, at })).filter(({ name }) =>
    other === undefined || name === one || name === other
  );
  const titles = shown.map(({ title }) => html("th", { scope: "col" }, title));
  const body = rows.map(({ part, role, cells }, at) => {
    const isFirst = rows[at - 1]?.part !== part;
    const label = html("th", { scope: "rowgroup", colspan: String(shown.length),
      class: isFirst ? "part first" : "part" }, span("what", isFirst ? part : ""), span("role", role));
    const [left, right] = shown.map((style) => cells[style.at]);
    const beside = pairs[compare]?.[at];
    const lines = beside === undefined ? [html("tr", {}, ...shown.map((style) => codeCell(cells[style.at])))]
      : pairedRows(left, right, beside);
    return html("tbody", {}, html("tr", { class: "label" }, label), ...lines);
  });
  const table = html("table", { class: other === undefined ? "styles" : "styles pair" },
    html("thead", {}, html("tr", {}, ...titles)), ...body);
  byId("code").replaceChildren(table);
  byId("steps").replaceChildren(
    ...shown.flatMap(({ title, removes, at }) =>
      removes === null || !shown.some((style) => style.at === at - 1) ? []
        : [html("li", {}, strong("", `${styles[at - 1]?.title} → ${title}`), ` ${removes}`)]
    ),
  );
  const countRows = shown.map((style) =>
    html("tr", { "data-style": style.name }, html("th", { scope: "row" }, style.title), ...COUNTS.map(([key]) =>
      number(String(style[key]), key)
    ))
  );
  byId("counts").replaceChildren(factsTable(["", ...COUNTS.map(([, title]) => head(title, true))], countRows));
}

/** @param {Cell | undefined} left @param {Cell | undefined} right @param {Beside[]} beside @returns {HTMLElement[]} */
function pairedRows(left, right, beside) {
  if (beside.length === 0) return [html("tr", {}, codeCell(left), codeCell(right))];
  return beside.map(({ left: l, right: r, same }, at) => {
    const cells = /** @type {[Cell | undefined, number | null, string][]} */ ([[left, l, "left"], [right, r, "right"]])
      .flatMap(([cell, place, side]) => {
        if (cell === undefined || cell.code.length === 0) {
          if (at > 0) return [];
          const nothing = codeCell(cell);
          nothing.setAttribute("rowspan", String(beside.length));
          return [nothing];
        }
        const line = place === null ? undefined : cell.code[place];
        return [
          html("td", { class: line === undefined ? "gap" : side },
            ...(line === undefined ? [] : [html("code", { class: "code" }, codeLine(line, cell.file))])),
        ];
      });
    return html("tr", { class: same ? "beside same" : "beside changed" }, ...cells);
  });
}

/** @param {Cell | undefined} cell @returns {HTMLElement} */
function codeCell(cell) {
  if (cell === undefined || cell.code.length === 0) return td("nothing", cell?.instead ?? "nothing");
  return td("", html("code", { class: "code" }, ...cell.code.map((line) => codeLine(line, cell.file))));
}

/** @param {[string, string][]} parts @returns {[string, string][]} joins neighbours of one kind */
function joined(parts) {
  const found = /** @type {[string, string][]} */ ([]);
  for (const [part, kind] of parts) {
    const last = found[found.length - 1];
    if (last !== undefined && last[1] === kind) last[0] += part;
    else found.push([part, kind]);
  }
  return found;
}

/** @param {Line} line @param {string | null} file @returns {HTMLElement} */
function codeLine({ number: at, parts }, file) {
  const text = parts.map(([part]) => part).join("");
  const indent = text.length - text.trimStart().length;
  // A wrapped line continues below its own indent.
  const line = html("span", { class: "line", title: `${file}:${at}`, style: `--indent: ${indent + 2}ch` });
  line.append(
    ...joined(parts).map(([part, kind]) =>
      html("span", { class: kind === "" ? false : kind }, ...part.split(/(->)/).map((piece) =>
        piece === "->" ? span("whole", piece) : piece
      ))
    ),
  );
  return line;
}

// --- agreement

/** @param {Runs} runs @param {Style[]} styles */
function showRuns(
  { leaves, shapes, reference_loss: referenceLoss, runs, non_finite: nonFinite, apart, identical },
  styles,
) {
  const titles = leaves.map((leaf) =>
    html("th", { scope: "col", class: "number" }, code(leaf), ` ${shapeText(shapes[leaf] ?? [])}`)
  );
  const rows = runs.map(({ style, loss, gradients }, at) =>
    html("tr", { "data-style": style }, html("th", { scope: "row" }, styles[at]?.title ?? style), number(figure(loss)),
      ...leaves.map((leaf) => agreementCell(leaf, gradients[leaf])))
  );
  const reference = html("tr", { class: "soft" }, html("th", { scope: "row" }, "autograd in float64"),
    number(figure(referenceLoss)), ...leaves.map(() => number("0")));
  byId("agreement").replaceChildren(factsTable(["style", head("loss", true), ...titles], [...rows, reference]));
  const pairRows = apart.map((distances, at) =>
    row(styles[at]?.title ?? "", ...distances.map((each, other) =>
      pairCell(each, identical[at]?.[other] === true, at === other)
    ))
  );
  byId("apart").replaceChildren(factsTable(["", ...styles.map(({ title }) => head(title, true))], pairRows));
  byId("agreement-says").textContent = agreementSays(runs, nonFinite, identical, styles.map(({ title }) => title));
}

/** @param {string} leaf @param {Agreement | undefined} agreement @returns {HTMLElement} */
function agreementCell(leaf, agreement) {
  if (agreement === undefined) return number("–");
  const { difference, relative, nan, inf } = agreement;
  const odd = [nan > 0 ? `${count(nan)} NaN` : "", inf > 0 ? `${count(inf)} Inf` : ""].filter((part) => part !== "")
    .join(", ");
  const cell = number(odd === "" ? figure(difference) : odd, odd === "" ? "" : "odd");
  cell.dataset["leaf"] = leaf;
  if (relative !== null && odd === "")
    cell.append(div("relative muted", `rel. ${figure(relative)}`));
  return cell;
}

/** @param {FigureValue} difference @param {boolean} isIdentical @param {boolean} isSame @returns {HTMLElement} */
function pairCell(difference, isIdentical, isSame) {
  if (isSame) return number("");
  return number(isIdentical ? "identical" : difference === "NaN" ? "NaN in one of them" : figure(difference),
    isIdentical ? "soft" : "");
}

/** @param {Run[]} runs @param {Runs["non_finite"]} nonFinite @param {boolean[][]} identical @param {string[]} titles */
function agreementSays(runs, { elements, nan, inf, same }, identical, titles) {
  const kinds = (/** @type {number} */ at) =>
    [[nan[at] ?? 0, "NaN"], [inf[at] ?? 0, "±Inf"]].flatMap(([many, kind]) =>
      many === 0 ? [] : [`${count(Number(many))} ${kind}`]
    ).join(" and ") || "all finite";
  const isOdd = runs.some((_, at) => (nan[at] ?? 0) + (inf[at] ?? 0) > 0);
  if (!same) {
    const groups = /** @type {Map<string, string[]>} */ (new Map());
    for (const at of runs.keys()) groups.set(kinds(at), [...(groups.get(kinds(at)) ?? []), titles[at] ?? ""]);
    const counts = groups.size === 1 ? `${kinds(0)} in every style, but at different places`
      : [...groups].map(([found, names]) => `${found} in ${names.join(", ")}`).join("; ");
    const byHand = nan[0] ?? 0;
    const why = byHand > (nan[runs.length - 1] ?? 0)
      ? " For a unit that is 0, (inp > 0) · out.g is 0 · Inf = NaN; torch's own relu returns 0." : "";
    return `Of ${count(elements)} elements of the gradients: ${counts}.${why}`;
  }
  const odd = isOdd
    ? `Of ${count(elements)} elements of the gradients: ${kinds(0)}, at the same places in every style. ` : "";
  if (identical.every((row) => row.every(Boolean))) return `${odd}All five give the same numbers, bit by bit.`;
  const relative = Math.max(
    ...runs.flatMap(({ gradients }) =>
      Object.values(gradients).flatMap(({ relative: each }) => typeof each === "number" ? [each] : [])
    ),
  );
  const loss = !isOdd && runs.every((run) => run.loss === "Infinity")
    ? " The loss overflows, but the gradients do not use it." : "";
  return `${odd}${
    isOdd ? "The rest is the same" : "The same numbers"
  } except for rounding, because the order of the additions differs. The error is at most ${
    figure(relative)
  } of a gradient's largest element, compared with float64.${loss}`;
}

// --- what goes wrong

/** @param {{as_printed: Ran, mended: Ran}} misprint */
function showMisprint({ as_printed: printed, mended }) {
  byId("misprint").replaceChildren(raised("backward() of the layer as printed", printed.error),
    p("", "A layer on LayerFunction has ", ...names(printed.attributes),
      `, but no inp. Before the error, backward computed ${
        printed.gradients.join(", ") || "nothing"
      }. The corrected layer uses the arguments of bwd and computes ${mended.gradients.join(", ")}.`));
}

/** @param {Modules} modules */
function showModules({ linear_layer: shapes, forgotten, models }) {
  byId("linear-layer").replaceChildren(code("lin = LinearLayer(10, 2); p1, p2 = lin.parameters()"),
    ` gives ${
      shapes.map((shape) => shapeText(shape)).join(" and ")
    }: the module finds both because they are attributes.`);
  byId("forgotten").replaceChildren(raised("ForgetfulLayer(10, 2)", forgotten));
  const rows = models.map(({ name, loss, parameters }) =>
    row(code(name), number(figure(loss)), td("", parameters.map((each) =>
      `${each.name} ${shapeText(each.shape)}`
    ).join(", ")))
  );
  byId("models").replaceChildren(factsTable(["", head("loss", true), "parameters"], rows));
}

/** @param {string} what @param {Raised} error @returns {HTMLElement} */
function raised(what, error) {
  return p(`remark ${error === null ? "" : "warning"}`, code(what),
    error === null ? " ends without an error." : " raises ",
    ...(error === null ? [] : [html("code", { class: "raised" }, `${error.type}: ${error.message}`)]));
}

/** @param {string[]} attributes @returns {(Node | string)[]} */
function names(attributes) {
  return attributes.flatMap((name, at) => [at === 0 ? "" : at === attributes.length - 1 ? " and " : ", ", code(name)]);
}
