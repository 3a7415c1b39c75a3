"""A summary of a tensor that is too large to be shown: its moments, counts and histogram."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from chainrule.dump.json_values import json_number

BINS = 48


def spread(tensor: Tensor) -> float | None:
    """`moments(tensor)["std"]` alone, several times as fast."""
    std = float(tensor.detach().double().std(correction=0))
    if math.isfinite(std):
        return std
    finite = tensor.detach()[tensor.isfinite()].double()
    return float(finite.std(correction=0)) if finite.numel() else None


def moments(tensor: Tensor) -> dict[str, Any]:
    """{"n", "mean", "std", "min", "max", "zeros", "nan", "posinf", "neginf"} of a tensor of any shape.

    Mean, std, min and max are over the finite values, in float64, and None if there are none; std is the population's.
    """
    values = tensor.detach().double().flatten()
    finite = values[values.isfinite()]
    there_are = finite.numel() > 0
    return {
        "n": values.numel(),
        "mean": json_number(float(finite.mean())) if there_are else None,
        "std": json_number(float(finite.std(correction=0))) if there_are else None,
        "min": float(finite.min()) if there_are else None,
        "max": float(finite.max()) if there_are else None,
        "zeros": int((values == 0).sum()),
        "nan": int(values.isnan().sum()),
        "posinf": int((values == torch.inf).sum()),
        "neginf": int((values == -torch.inf).sum()),
    }


def summary(tensor: Tensor) -> dict[str, Any]:
    """`moments`, the tensor's shape, and its histogram: counts of the finite values in 48 bins over [min, max]."""
    values = tensor.detach().double().flatten()
    finite = values[values.isfinite()]
    found = moments(tensor)
    counts = torch.zeros(BINS, dtype=torch.long)
    if finite.numel():
        low, high = float(finite.min()), float(finite.max())
        span = high - low
        # Halved first: high - low may overflow.
        places = (finite / 2 - low / 2) / (span / 2) if 0 < span < torch.inf else torch.zeros_like(finite)
        counts = torch.bincount((places * BINS).long().clamp(0, BINS - 1), minlength=BINS)
    return {"shape": list(tensor.shape), **found, "histogram": counts.tolist()}
