"""The expected share of dead units in a rectified layer."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from chainrule.theory.activations import normal_cdf
from chainrule.theory.gaussian import Array

STEP = 0.1
"""Distance between nodes. The rule converges exponentially, and no integrand here is narrower than three steps."""


def dead_fractions(correlations: Array, inputs: int) -> Array:
    """Expected share of units that are ≤ 0 for all of `inputs` inputs.

    2^−inputs for independent inputs, ½ for identical ones. It grows with depth in a *correct* deep relu net too,
    because the correlation c tends to 1.

    With u_i = √c z + √(1−c) z_i and r = √(c/(1−c)) a unit is dead if the largest z_i is ≤ −r z. Hence two forms,
    E[Φ(−M/r)] over that largest M and E[Φ(−r z)^inputs] over z; each is smooth where the other has a step.
    `correlations` of two inputs' preactivations: `(L,)`, in [0, 1].
    """
    with np.errstate(divide="ignore", under="ignore"):
        r = np.sqrt(correlations / (1 - correlations))
        alike = r >= 1
        shares = np.empty_like(r)
        largest, mass = _largest_of(inputs)
        shares[alike] = normal_cdf(np.multiply.outer(-1 / r[alike], largest)) @ mass
        z, weights = normal_grid()
        shares[~alike] = normal_cdf(np.multiply.outer(-r[~alike], z)) ** inputs @ weights
    return np.where(correlations < 1, shares, 0.5)


def normal_grid() -> tuple[Array, Array]:
    """Evenly spaced nodes and weights for expectations under a standard normal."""
    z = np.arange(-12.0, 12.0, STEP)
    return z, np.exp(-(z**2) / 2) * (STEP / math.sqrt(2 * math.pi))


@lru_cache(maxsize=256)
def _largest_of(inputs: int) -> tuple[Array, Array]:
    """Nodes and weights of the largest of `inputs` standard normals; its density is `inputs` Φ^(inputs−1) Φ′."""
    nodes = np.arange(-9.0, 9.0, STEP)
    density = inputs * normal_cdf(nodes) ** (inputs - 1) * np.exp(-(nodes**2) / 2)
    weights = density * (STEP / math.sqrt(2 * math.pi))
    some = weights > 1e-18
    return nodes[some], weights[some]
