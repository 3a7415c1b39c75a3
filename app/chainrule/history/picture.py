"""A run as a picture: SVG without scripts, in HTML that notebooks show even if they are not trusted."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from chainrule.history.summary import Summary, figure, scaled

EVENTS = 3
"""Number of the last events that are shown in words."""

WANTED_RATIO = 1e-3
"""The ratio of update to weight in a net that trains well, about."""

_PANEL, _HEIGHT = 300, 150
_LEFT, _TOP, _WIDE, _HIGH = 52, 26, 236, 100

_STYLE = (
    "text{font:11px sans-serif;fill:#333}.n{font-weight:bold}.e{text-anchor:end}"
    "path{fill:none;stroke:#0b62a4;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}"
    ".l{stroke-width:.8}.a{stroke:#999;stroke-width:1}.d{stroke:#777;stroke-width:1;stroke-dasharray:2 3}"
    ".v{stroke:#b3261e;stroke-width:1;stroke-dasharray:3 3}.x{stroke:#b3261e}"
)

Points = Sequence[tuple[float, float]]


def to_html(summary: Summary, name: str) -> str:
    """The progress of a run as HTML in ASCII: a sentence, the curves and the last events."""
    named = [("loss", summary.loss), ("lr", summary.lr), ("gradient norm", summary.gradient_norm)]
    said = [f"step {summary.step}" if summary.step >= 0 else "no step yet"]
    said += [f"{key} {figure(value)}" for key, value in named if value is not None]
    if summary.steps_per_second is not None:
        said.append(f"{figure(summary.steps_per_second)} steps/s")
    if summary.events:
        said.append(f"{len(summary.events)} event{'s' * (len(summary.events) > 1)}")
    if summary.ended is not None:
        said.append(summary.ended)
    sentence = f"{name}: {', '.join(said)}"
    # An image, because notebooks that are not trusted remove inline SVG.
    address = f"data:image/svg+xml;base64,{base64.b64encode(to_svg(summary).encode()).decode()}"
    items = "".join(
        f"<li>step {step}, {html.escape(kind)}: {html.escape(text)}</li>"
        for step, kind, text in summary.events[-EVENTS:]
    )
    page = f'<p>{html.escape(sentence)}</p><img alt="{html.escape(sentence)}" src="{address}">'
    return (page + (f"<ul>{items}</ul>" if items else "")).encode("ascii", "xmlcharrefreplace").decode()


def to_svg(summary: Summary) -> str:
    """The loss, the norm of all gradients, and update : weight of the smallest, the median and the largest layer."""
    panels: list[tuple[str, Sequence[Points], float | None]] = [
        ("loss", [summary.losses.points], None),
        ("gradient norm", [summary.gradient_norms.points], None),
        ("update : weight, smallest to largest", [each.points for each in summary.ratio_curves], WANTED_RATIO),
    ]
    panels = [each for each in panels if any(each[1])]
    last = max(summary.step, 1)
    events = sorted({round(_WIDE * min(step, last) / last) for step, _, _ in summary.events})
    size = f"{max(1, len(panels)) * _PANEL} {_HEIGHT}"
    width, height = size.split()
    drawn = "".join(
        f'<g transform="translate({place * _PANEL} 0)">{_panel(*panel, last, events)}</g>'
        for place, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {size}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{drawn}</svg>'
    )


def _panel(title: str, curves: Sequence[Points], wanted: float | None, last: int, events: Sequence[int]) -> str:
    values = [value for points in curves for _, value in points]
    heights, low, high = scaled(values if wanted is None else [*values, wanted])
    bottom, right = _TOP + _HIGH, _LEFT + _WIDE
    parts = [
        f'<text class="n" x="{_LEFT}" y="15">{title}</text>',
        f'<path class="a" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        f'<text class="e" x="{_LEFT - 5}" y="{_TOP + 8}">{figure(high)}</text>',
        f'<text class="e" x="{_LEFT - 5}" y="{bottom}">{figure(low)}</text>' if high > low else "",
        f'<text x="{_LEFT}" y="{bottom + 15}">0</text>',
        f'<text class="e" x="{right}" y="{bottom + 15}">step {last}</text>',
        *(f'<path class="v" d="M{_LEFT + x} {_TOP}V{bottom}"/>' for x in events),
    ]
    if wanted is not None and heights[-1] is not None:
        y = bottom - _HIGH * heights[-1]
        parts.append(f'<path class="d" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="e" x="{right}" y="{y - 3:.1f}">{wanted:g}</text>')
    start = 0
    for number, points in enumerate(curves):
        own = heights[start : start + len(points)]
        start += len(points)
        line, crosses, begins = "", "", True
        for (step, _), height in zip(points, own, strict=True):
            x = _LEFT + _WIDE * min(step, last) / last
            if height is None:
                crosses += f"M{x - 2:.1f} {_TOP}l4 4m0-4l-4 4"
            else:
                # h0 draws a dot if the point has no neighbours.
                line += f"{'M' if begins else 'L'}{x:.1f} {bottom - _HIGH * height:.1f}{'h0' if begins else ''}"
            begins = height is None
        style = ' class="l"' if len(curves) > 1 and number != len(curves) // 2 else ""
        parts.append(f'<path{style} d="{line}"/>' if line else "")
        parts.append(f'<path class="x" d="{crosses}"/>' if crosses else "")
    return "".join(parts)
