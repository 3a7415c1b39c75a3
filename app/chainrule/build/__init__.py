"""spec → model: draws the tensors, assembles the program, names everything."""

from __future__ import annotations

from chainrule.build.draws import weight_variances
from chainrule.build.mlp import build_mlp
from chainrule.build.model import BuiltModel
from chainrule.build.programs import PROGRAM_BUILDERS, check_program
from chainrule.build.rescaled import RescaledNet, rescales
from chainrule.build.training import Training
from chainrule.spec import ModelSpec

__all__ = ["BuiltModel", "RescaledNet", "Training", "build_model", "check_program", "rescales", "weight_variances"]


def build_model(spec: ModelSpec) -> BuiltModel:
    """Draw the tensors of a spec, assemble its program, and train it to its step: without global random state.

    The caller checks that the device exists and the sizes are within limits.

    Raises:
        RuntimeError: torch cannot put a tensor on `spec.device`.
        MissingExtraError: the program needs the C++ extension, which is not built.
    """
    if spec.step:
        return Training(spec, checkpoint_bytes=0).go_to(spec.step)
    return PROGRAM_BUILDERS[spec.program](spec) if spec.program in PROGRAM_BUILDERS else build_mlp(spec)
