"""Every page and view: where it is, and which menu or dialog is opened there."""

from typing import NamedTuple

import pytest

CHAPTER = (
    "neuron arithmetic matmul broadcasting einsum initialization backward styles functions gradcheck extension".split()
)
GUIDE = "index guide api recipes settings reliability performance limits glossary maps".split()


class View(NamedTuple):
    """`server` is the command that serves it; `click` opens what is looked at."""

    address: str
    click: str = ""
    server: str = "serve"


def explored(fragment: str) -> View:
    """A view of the user's model `blocks.py`."""
    return View(f"/#{fragment}", server="explore")


def opened(fragment: str) -> View:
    """A view of dumps of one training."""
    return View(f"/#{fragment}", server="open")


VIEWS = {
    "graph": View("/"),
    "inspector": View("/#select=l2&tab=inspector"),
    "op": View("/#select=n0&level=all&tab=inspector"),
    "coloured": View("/?preset=deep-kaiming#colour=std&toggled=layers.0/forward&q=relu&fold=off"),
    "heatmap": View("/?preset=deep-kaiming#show=layers"),
    "heatmap-menu": View("/?preset=deep-kaiming#show=layers", "layers-view .save summary"),
    "ridgeline": View("/?preset=deep-exploding#show=layers&form=ridgeline"),
    "steps": View("/#show=steps&step=5"),
    "training": View("/?widths=2,12,2&loss=cross_entropy&data=moons&lr=0.5&step=20#show=training"),
    "training-digits": View("/?widths=64,20,10&loss=cross_entropy&data=digits&lr=0.2&step=20#show=training"),
    "no-training": View("/#show=training"),
    "training-layers": View("/?widths=2,12,2&loss=cross_entropy&data=moons&lr=0.5&step=20#show=layers"),
    "ratio": View("/#statistic=ratio&tab=profile"),
    "compared": View("/?scale=2#a=?&tab=inspector"),
    "prediction": View("/#predict=l2.std"),
    "controls": View("/?program=neuron#level=all&tab=controls"),
    "more-controls": View("/#tab=controls", "spec-controls .more > summary"),
    "faults": View("/?preset=deep-exploding#tab=controls"),
    "landing": View("/#lesson=signal.1"),
    "lesson": View("/#lesson=signal.2&answer=2"),
    "teacher": View("/#lesson=signal.2&mode=teach"),
    "mistake": View("/?widths=nonsense"),
    "share-menu": View("/", "#share summary"),
    "presets-menu": View("/", "spec-presets summary"),
    "lessons-menu": View("/", "details.lessons summary"),
    "help": View("/", "#help-button"),
    "own": explored(""),
    "own-inspector": explored("select=embed.linear&tab=inspector"),
    "own-layers": explored("show=layers"),
    "own-steps": explored("show=steps&step=5"),
    "own-profile": explored("tab=profile"),
    "own-controls": explored("tab=controls"),
    "dumps": opened(""),
    "dumps-inspector": opened("select=body.2.weight&tab=inspector"),
    "dumps-compared": opened("a=dump:0&dump=5&tab=inspector"),
    "runs": View("/runs", server="runs"),
    "runs-layers": View("/runs#run=nan&part=update&statistic=norm&scale=linear", server="runs"),
    "map": View("/map?widths=8x6&batch=16&x=scale=0.5:2:9&y=depth=2:6:5&seeds=2"),
    "foundations": View("/foundations"),
    **{page: View(f"/foundations/{page}") for page in CHAPTER},
    **{f"guide-{page}": View(f"/guide/{page}.html") for page in GUIDE},
    "api-documentation": View("/docs"),
    "not-found": View("/nothing"),
}

EVERY_VIEW = [name if name == "graph" else pytest.param(name, marks=pytest.mark.long) for name in VIEWS]
"""The names of all views, to parametrize a test; all but the graph belong to the long tail."""
