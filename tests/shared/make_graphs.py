"""Redraw the graphs of tests/golden/graphs: python tests/shared/make_graphs.py [NAME …]."""

import sys
from pathlib import Path

from reference_models import MODELS, VIEWS

from chainrule.export.svg import to_svg

GRAPHS = Path(__file__).parents[1] / "golden" / "graphs"

GOLDEN_VIEWS = {name: VIEWS[name] for name in ("chapter", "layers50", "residual")} | {
    "lstm": {"level": "1", "fold": "off"}
}
"""The steps of the LSTM are closed: with all groups open its file is four times as long and shows nothing new."""


def draw(name: str) -> str:
    """The graph without figures, which depend on the build of torch."""
    return to_svg(MODELS[name](), statistic="none", **GOLDEN_VIEWS[name])


def main() -> None:
    GRAPHS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or GOLDEN_VIEWS:
        (GRAPHS / f"{name}.svg").write_text(draw(name), encoding="utf-8")
        print(GRAPHS / f"{name}.svg")


if __name__ == "__main__":
    main()
