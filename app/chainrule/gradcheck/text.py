"""A report of `check` as text: a row per output and input, then the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def report_text(report: Mapping[str, Any]) -> str:
    """The table: a row per output and input, then the verdicts."""
    check = report["checks"]["float64"]
    lines = [
        f"{report['name']} in float64: eps {report['eps']:g}, "
        f"|analytic − numeric| ≤ {report['atol']:g} + {report['rtol']:g} · |numeric|",
        "",
        *_table(check),
        "",
    ]
    lines += _faults(check)
    failed = sum(not each["passed"] for each in check["comparisons"])
    if report["passed"]:
        lines.append("passed")
    elif failed:
        lines.append(f"FAILED: {failed} of {len(check['comparisons'])} Jacobians differ")
    elif check["passed"] and not check["torch"]["finds_fault"]:
        lines.append("FAILED: in float64 it passes, but not in the dtype given")
    else:
        lines.append("FAILED")
    lines.append(_said_by_torch(check, passed=report["passed"]))
    lines += _other_dtypes(report)
    return "\n".join(lines)


def _faults(check: Mapping[str, Any]) -> list[str]:
    """The faults of the function other than its Jacobians."""
    lines = []
    if not check["zero_for_zero"]:
        lines.append("backward does not multiply by grad_output: grad_output = 0 gives gradients that are not 0")
    if not check["takes_undefined"] and check["zero_for_zero"]:
        lines.append(
            "backward does not take an undefined grad_output for 0: it is None for an output that is not used, "
            "after ctx.set_materialize_grads(False)"
        )
    if not check["forward_repeatable"]:
        # Then nothing is known of backward: it is that of another forward each time.
        lines.append("forward is not repeatable: run twice on the same values it gives two results")
    elif not check["backward_repeatable"]:
        lines.append("backward is not repeatable: run twice on the same values it gives two results")
    return lines


def _said_by_torch(check: Mapping[str, Any], *, passed: bool) -> str:
    said = check["torch"]
    copies = f" (on copies: it modifies {', '.join(check['in_place'])} in place)" if check["in_place"] else ""
    if said["passed"] == check["passed"]:
        same = "says the same" if said["passed"] == passed else "passes it in float64"
        return f"torch.autograd.gradcheck {same}{copies}"
    verdict = "passes it" if said["passed"] else "fails it" if said["finds_fault"] else "cannot check it"
    return f"torch.autograd.gradcheck {verdict}{copies}: {said['message']}".strip().removesuffix(":")


def _table(check: Mapping[str, Any]) -> list[str]:
    rows = [("output", "input", "Jacobian", "max |a − n|", "worst at", "analytic", "numeric", "tolerance", "")]
    for each in check["comparisons"]:
        worst = each["worst"]
        size = each["size"]
        rows.append(
            (
                each["output"],
                each["input"],
                f"{size[0]} × {size[1]}",
                _figure(each["max_difference"]),
                *(
                    ("", "", "", "")
                    if worst is None
                    else (
                        f"{each['output']}{worst['output_index'] or ''} / {each['input']}{worst['input_index'] or ''}",
                        *(_figure(worst[name]) for name in ("analytic", "numeric", "tolerance")),
                    )
                ),
                "ok" if each["passed"] else f"{each['outside']} DIFFER",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _other_dtypes(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for dtype, check in report["checks"].items():
        if dtype == "float64":
            continue
        lines.append("")
        if "error" in check:
            lines.append(f"In {dtype}, as the inputs are given: {check['error']}")
            continue
        lines.append(
            f"In {dtype}, as the inputs are given: max |a − n| {_figure(check['max_difference'])}, "
            f"which {'passes' if check['passed'] else 'fails'}."
        )
        lines += [f"{fault}." for fault in _faults(check)]
        if not check["forward_repeatable"]:
            continue
        if not check["analytic"]["agrees"]:
            lines.append(
                f"analytic in {dtype} differs from float64's, by up to "
                f"{_figure(check['analytic']['max_difference'])}: look at backward."
            )
        elif check["analytic"]["holds"] and not check["passed"] and report["checks"]["float64"]["passed"]:
            lines.append(
                "That is the difference's rounding and no mistake of backward, which says in float64 the same: of f's "
                f"digits too few are left when {report['eps']:g} is what x moves by."
            )
    return lines


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
