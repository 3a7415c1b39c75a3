"""µP, the maximal update parametrization: a net of any width learns at the same rate.

In the standard parametrization the largest good learning rate shrinks as the net gets wider. µP changes three things,
with m = fan / BASE_WIDTH; at the base width it is the standard parametrization.

                     std of the weight     rate of sgd         rate of adam
    first layer, biases    as drawn        × m of fan_out      × 1
    hidden layers          as drawn        × 1                 ÷ m of fan_in
    last layer             ÷ √m of fan_in  ÷ m of fan_in       ÷ m of fan_in

Source: G. Yang et al., *Tensor Programs V* (2022), arXiv 2203.03466, table 3.
"""

from __future__ import annotations

import math
from itertools import pairwise

from chainrule.spec import ModelSpec
from chainrule.spec.keys import BASE_WIDTH


def output_factor(spec: ModelSpec, fan_in: int) -> float:
    """The factor of the last layer's weight."""
    return 1.0 if spec.parametrization == "standard" else 1 / math.sqrt(fan_in / BASE_WIDTH)


def rate_factors(spec: ModelSpec) -> dict[str, float]:
    """The factor of the learning rate of each parameter, by its name; empty in the standard parametrization."""
    factors: dict[str, float] = {}
    if spec.parametrization == "standard":
        return factors
    is_sgd = spec.optimizer in ("sgd", "momentum", "nesterov")
    for index, (fan_in, fan_out) in enumerate(pairwise(spec.widths), start=1):
        less, more = BASE_WIDTH / fan_in, fan_out / BASE_WIDTH if is_sgd else 1.0
        if index == spec.depth:
            factors[f"w{index}"], factors[f"b{index}"] = less, 1.0
        else:
            factors[f"w{index}"] = more if index == 1 else 1.0 if is_sgd else less
            factors[f"b{index}"] = more
    return factors
