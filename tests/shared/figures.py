"""Figures as the page writes them."""

from __future__ import annotations

from typing import Any

from chainrule.diagnose.profile import theory
from chainrule.trace import Trace


def significant(value: float | None) -> str:
    """Three significant digits as the page writes them, computed here by Python's own formatting."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    sign = "−" if value < 0 else ""
    mantissa, exponent = f"{abs(value):.2e}".split("e")
    power = int(exponent)
    if -3 <= power < 3:
        return f"{sign}{float(f'{mantissa}e{power}'):.{2 - power}f}"
    if power == 3:
        return f"{sign}{float(f'{mantissa}e3'):.0f}"
    return f"{sign}{mantissa}e{power}"


def statistic(dump: dict[str, Any], name: str, column: str) -> Any:
    """A tensor's figure in a dump, by the tensor's name."""
    (tensor,) = [each["id"] for each in dump["tensors"] if each["name"] == name]
    return dump["statistics"][column][dump["statistics"]["tensor"].index(tensor)]


def percent(fraction: float) -> str:
    """A share with one decimal, and none for nothing and for all."""
    return f"{fraction * 100:.{0 if fraction in (0, 1) else 1}f} %"


def bands_of(trace: Trace, name: str) -> dict[str, tuple[float, float]]:
    """Theory's bands for the mean and the std of a tensor."""
    tensor, found = trace.tensor_by_name[name].id, {}
    for layer, said in zip(trace.layers, theory(trace).layers, strict=True):
        for quantity, expected in said.expected.items():
            part, _, statistic = quantity.partition("_")
            if statistic in ("mean", "std") and getattr(layer, part) == tensor:
                found[statistic] = expected.band
    return found
