"""The query of `theory.json`: one kind of layer, by its activation and the variances of its weights and biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from chainrule.export.options import invalid_parameter
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.values import Key, read_keys
from chainrule.theory.mean_field import moments

MAX_VARIANCE = 1e12
"""The largest σ_w² or σ_b² that can be asked for; a spec's σ_w² is at most 1024 · 10⁸."""

THEORY_KEYS = (
    replace(KEY_BY_NAME["activation"], doc="φ.", error=invalid_parameter),
    Key(
        "weight_variance",
        None,
        "float",
        "σ_w² = fan_in · Var(W). Without it, the one that keeps a variance of 1 biases aside, 1/E[φ(z)²].",
        minimum=0,
        maximum=MAX_VARIANCE,
        error=invalid_parameter,
    ),
    Key(
        "bias_variance",
        0.0,
        "float",
        "σ_b², the variance of a bias.",
        minimum=0,
        maximum=MAX_VARIANCE,
        error=invalid_parameter,
    ),
)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One kind of layer: φ, σ_w² = fan_in · Var(W) and σ_b²."""

    activation: str
    weight_variance: float
    bias_variance: float

    @property
    def canonical(self) -> str:
        """The same text for equal kinds."""
        return f"{self.activation} {self.weight_variance!r} {self.bias_variance!r}"


def read_layer_kind(values: Mapping[str, str]) -> LayerKind:
    """The kind of layer that a query string names.

    Raises:
        RequestError: a key is unknown, or a value is out of range.
    """
    read = read_keys(THEORY_KEYS, values, "theory.json", invalid_parameter)
    if read["weight_variance"] is None:
        read["weight_variance"] = 1 / moments(read["activation"]).second_moment
    return LayerKind(**read)
