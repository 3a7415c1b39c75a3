"""`chainrule gradcheck f.py:MyFunction --inputs f.py:make_inputs`: the check of a user's own function, as text.

The files are run, as `python f.py` would run them: this is a command of the user, and nothing of it is open to the web.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainrule.errors import CheckError, ExploreError, in_words


def check_function(
    function: str, inputs: str, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, seed: int = 42
) -> dict[str, Any]:
    """Check `file.py:name` at the point that `file.py:name()` returns; see `chapter.own_check.check_own`.

    Raises:
        CheckError: it cannot be checked; the message names the place.
    """
    for name, value, least in (("eps", eps, sys.float_info.min), ("atol", atol, 0.0), ("rtol", rtol, 0.0)):
        if not least <= value < float("inf"):
            raise CheckError(f"--{name}: {value} is not a {'positive' if least else 'non-negative'} number", field=name)
    try:
        return _check(function, inputs, eps=eps, atol=atol, rtol=rtol, seed=seed)
    except (CheckError, ExploreError) as error:
        # Places are said as they are typed: from the folder that the command runs in.
        raise CheckError(error.message.replace(f"{Path.cwd()}{os.sep}", ""), limit=error.limit) from error


def _check(function: str, inputs: str, *, eps: float, atol: float, rtol: float, seed: int) -> dict[str, Any]:
    import_path, arguments = list(sys.path), sys.argv
    try:
        return _check_beside(function, inputs, eps=eps, atol=atol, rtol=rtol, seed=seed)
    finally:
        sys.path[:] = import_path
        sys.argv = arguments


def _check_beside(function: str, inputs: str, *, eps: float, atol: float, rtol: float, seed: int) -> dict[str, Any]:
    import torch

    from chainrule.gradcheck.check import check_arguments, check_own, raised_at
    from chainrule.user_model.code import as_program, load, split_reference

    file, name = split_reference(function)
    inputs_file, _ = split_reference(inputs)

    # A file's own folder comes first on the import path while the file runs and while anything of it is called: a
    # function may import when it is called.
    as_program(file)
    target = load(function)
    as_program(inputs_file)
    make_inputs = load(inputs)
    if not callable(make_inputs):
        raise CheckError(
            f"{inputs}: a value of type {type(make_inputs).__name__}, not a function that makes the inputs"
        )
    torch.manual_seed(seed)
    try:
        made = make_inputs()
    except (Exception, SystemExit) as error:
        place = raised_at(error, str(inputs_file)) or inputs
        raise CheckError(f"{place}: making the inputs raised {in_words(error)}") from error
    try:
        arguments = check_arguments(made)
    except CheckError as error:
        raise CheckError(f"{inputs}: {error.message}") from error
    as_program(file)
    return {**check_own(target, arguments, file=str(file), name=name, eps=eps, atol=atol, rtol=rtol), "file": file.name}


# ----------------------------------------------------------------------------------------------------------- as text


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
    """What is wrong with the function other than its Jacobians."""
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
