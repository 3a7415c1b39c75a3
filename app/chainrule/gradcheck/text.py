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
    lines += [f"{_place(each)}: {each['kink']}" for each in check["comparisons"] if each["kink"] is not None]
    lines += _faults(check)
    failed = sum(not each["passed"] for each in check["comparisons"])
    if report["passed"]:
        lines.append("passed")
    elif failed:
        lines.append(f"FAILED: {failed} of {len(check['comparisons'])} Jacobians differ")
    elif check["passed"] and not check["torch"]["finds_fault"]:
        lines.append("FAILED: it passes in float64, but not in the dtype of the inputs")
    else:
        lines.append("FAILED")
    lines.append(_said_by_torch(check, passed=report["passed"]))
    lines += _other_dtypes(report)
    return "\n".join(lines)


def _faults(check: Mapping[str, Any]) -> list[str]:
    """The faults of the function other than its Jacobians."""
    lines = []
    if not check["zero_for_zero"]:
        lines.append("backward does not multiply by grad_output: a grad_output of 0 gives gradients that are not 0")
    if not check["takes_undefined"] and check["zero_for_zero"]:
        lines.append(
            "backward does not treat a grad_output of None as 0: after ctx.set_materialize_grads(False), grad_output "
            "is None for an unused output"
        )
    if not check["forward_repeatable"]:
        # Then backward cannot be judged: each run belongs to another forward.
        lines.append("forward is not repeatable: two runs on the same values give different results")
    elif not check["backward_repeatable"]:
        lines.append("backward is not repeatable: two runs on the same values give different results")
    return lines


def _said_by_torch(check: Mapping[str, Any], *, passed: bool) -> str:
    said = check["torch"]
    copies = f" (on copies: {', '.join(check['in_place'])} is modified in place)" if check["in_place"] else ""
    if said["passed"] == check["passed"]:
        same = "agrees" if said["passed"] == passed else "passes it in float64"
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
                        _place(each),
                        *(_figure(worst[name]) for name in ("analytic", "numeric", "tolerance")),
                    )
                ),
                "ok" if each["passed"] else f"{each['outside']} DIFFER",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _place(comparison: Mapping[str, Any]) -> str:
    """The worst element: out[0, 1] / x[2]."""
    worst = comparison["worst"]
    indices = (worst[name] or "" for name in ("output_index", "input_index"))
    return " / ".join(f"{comparison[name]}{index}" for name, index in zip(("output", "input"), indices, strict=True))


def _other_dtypes(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for dtype, check in report["checks"].items():
        if dtype == "float64":
            continue
        lines.append("")
        if "error" in check:
            lines.append(f"In {dtype}, the dtype of the inputs: {check['error']}")
            continue
        lines.append(
            f"In {dtype}, the dtype of the inputs: max |a − n| {_figure(check['max_difference'])}, "
            f"which {'passes' if check['passed'] else 'fails'}."
        )
        lines += [f"{fault}." for fault in _faults(check)]
        if not check["forward_repeatable"]:
            continue
        if not check["analytic"]["agrees"]:
            lines.append(
                f"The analytic Jacobian in {dtype} differs from the one in float64 by up to "
                f"{_figure(check['analytic']['max_difference'])}: look at backward."
            )
        elif check["analytic"]["holds"] and not check["passed"] and report["checks"]["float64"]["passed"]:
            lines.append(
                "The finite differences fail, not backward: backward gives the same gradients in float64. With eps "
                f"{report['eps']:g}, the difference of two rounded values of f has too few correct digits."
            )
    return lines


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
