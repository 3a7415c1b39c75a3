"""Figures as the page writes them."""

from __future__ import annotations


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
