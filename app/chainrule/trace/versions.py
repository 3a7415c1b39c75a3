"""The versions of PyTorch that the recorder was tested with: it reads the autograd graph, which changes with them."""

from __future__ import annotations

import logging
import re

import torch

TESTED = (2, 6), (2, 15)
"""The first and the last version."""

FIRST_COMPILED = (2, 8)
"""The first version whose compiled graphs can be recorded."""

logger = logging.getLogger(__name__)


def number_of(version: str) -> tuple[int, ...]:
    """2.13.0+cpu → (2, 13)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def warn_of(version: str) -> None:
    """Log a warning for a version of PyTorch that is not among those tested."""
    first, last = TESTED
    if not first <= number_of(version) <= last:
        logger.warning(
            "PyTorch %s: Chainrule was tested with %d.%d to %d.%d, so a recording may lack ops or gradients",
            *(version, *first, *last),
        )


warn_of(torch.__version__)
