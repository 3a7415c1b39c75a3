"""The versions of PyTorch that the recorder was tested with: it reads the autograd graph, which changes with them."""

from __future__ import annotations

import logging
import re

import torch

TESTED = (2, 6), (2, 15)
"""The first and the last version."""

logger = logging.getLogger(__name__)


def warn_of(version: str) -> None:
    """Log a warning for a version of PyTorch that is not among those tested."""
    number = tuple(map(int, re.findall(r"\d+", version)[:2]))
    first, last = TESTED
    if not first <= number <= last:
        logger.warning(
            "PyTorch %s: Chainrule was tested with %d.%d to %d.%d, so a recording may lack ops or gradients",
            *(version, *first, *last),
        )


warn_of(torch.__version__)
