/** The gradient check of a user's function, opened by `chainrule gradcheck --open`. */

import { getJson } from "../core/api.js";
import { byId, div, p, strong } from "../core/chapter/parts.js";
import { html } from "../core/dom.js";
import { figure, jacobians, verdictCard } from "./jacobians.js";

/** @typedef {GradientCheck & {in_place: string[], analytic?: {agrees: boolean, max_difference: number | string}}}
 * Check */

/** @param {{checks: Record<string, Check | {error: string}>}} report */
function show(report) {
  const verdicts = byId("verdicts");
  const figures = byId("jacobians");
  for (const [dtype, check] of Object.entries(report.checks)) {
    if ("error" in check) {
      verdicts.append(div("check-card", p("head", strong("", dtype)), p("", check.error)));
      continue;
    }
    const card = verdictCard(dtype, check);
    if (check.in_place.length > 0)
      card.append(p("soft", `The Function modifies ${check.in_place.join(", ")} in place, so copies are checked.`));
    if (check.analytic !== undefined && check.forward_repeatable) {
      const { agrees, max_difference: difference } = check.analytic;
      card.append(
        p("",
          agrees ? "The analytic Jacobians agree with float64, except for rounding."
            : `The analytic Jacobians differ from float64 by up to ${figure(difference)}: look at backward.`),
      );
    }
    verdicts.append(card);
    figures.append(html("h2", {}, `The Jacobians in ${dtype}`), jacobians(check));
  }
  document.body.dataset["answers"] = "1";
}

getJson("/gradcheck.json", AbortSignal.timeout(60_000)).then(show);
