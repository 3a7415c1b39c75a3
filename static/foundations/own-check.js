/** The gradient check of somebody's own function, as `chainrule gradcheck --open` found it. */

import { getJson } from "../core/api.js";
import { html } from "../core/dom.js";
import { jacobians, verdictCard } from "./jacobians.js";

/** @typedef {import("./jacobians.js").Check} Check */

/** @type {{checks: Record<string, Check | {error: string}>}} */
const report = await getJson("/gradcheck.json", AbortSignal.timeout(60_000));
const verdicts = /** @type {HTMLElement} */ (document.getElementById("verdicts"));
const figures = /** @type {HTMLElement} */ (document.getElementById("jacobians"));
for (const [dtype, check] of Object.entries(report.checks)) {
  if ("error" in check) {
    verdicts.append(html("div", { class: "check-card" }, html("p", { class: "head" }, html("strong", {}, dtype)), html("p", {}, check.error)));
    continue;
  }
  verdicts.append(verdictCard(dtype, check));
  figures.append(html("h2", {}, `The Jacobians in ${dtype}`), jacobians(check));
}
document.body.dataset["answers"] = "1";
