"""A typical model of a user: a GPT-like model of twelve blocks, its input and its loss."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from models import case

GAIN = 1.0
"""An edit that bench/explore.py makes."""


def make() -> tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]:
    """M4 of bench/models.py."""
    gpt = case("M4")
    return gpt.model, gpt.x * GAIN, gpt.loss
