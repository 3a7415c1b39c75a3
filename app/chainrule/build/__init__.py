"""spec → model: draws the tensors, puts the program together, names everything.

draws.py     every tensor, each from its own generator
model.py     what is built: `BuiltModel`, ready to run, and the names of its parts
mlp.py       the net, in one of the chapter's five ways
styles.py    those five ways
programs.py  every other program: one construct of the chapter each
rescaled.py  a net that takes one scale after another, in the same memory
"""

from __future__ import annotations

from chainrule.build.draws import (
    BASE_VARIANCES,
    CACHED_ELEMENTS,
    base_draw,
    draw_leaves,
    weight_variances,
)
from chainrule.build.mlp import build_mlp, name_layers
from chainrule.build.model import BuiltModel, LayerNames
from chainrule.build.programs import PROGRAM_BUILDERS, check_program
from chainrule.build.rescaled import RescaledNet, rescales
from chainrule.build.styles import ACTIVATION_MODULES, STYLES
from chainrule.foundations.initialization import generator_for
from chainrule.spec import ModelSpec

__all__ = [
    "ACTIVATION_MODULES",
    "BASE_VARIANCES",
    "CACHED_ELEMENTS",
    "STYLES",
    "BuiltModel",
    "LayerNames",
    "RescaledNet",
    "base_draw",
    "build_model",
    "check_program",
    "draw_leaves",
    "generator_for",
    "name_layers",
    "rescales",
    "weight_variances",
]


def build_model(spec: ModelSpec) -> BuiltModel:
    """Draw the tensors of a spec and put its program together.

    A pure function of the spec: no global random state is read or changed.

    Args:
        spec: of which program, style, seed, dtype and device count here as much as widths, activation, init and loss.

    Returns:
        The model, not yet run.

    Raises:
        RuntimeError: torch cannot put a tensor on `spec.device`. Whether the device is there and the sizes are within
            limits is for the caller to check before.
        MissingExtraError: the program needs what is not built here.
    """
    return PROGRAM_BUILDERS[spec.program](spec) if spec.program in PROGRAM_BUILDERS else build_mlp(spec)
