"""What `theory.json` is asked: one kind of layer, by its activation and the variances of its weights and biases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chainrule.errors import RequestError
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME, number_text
from chainrule.theory.mean_field import moments
from chainrule.web.openapi import choice_parameter, number_parameter

MAX_VARIANCE = 1e12
"""The largest σ_w² or σ_b² that can be asked for; a spec's σ_w² is at most 1024 · 10⁸."""

ACTIVATIONS = KEY_BY_NAME["activation"].choices
DEFAULT_ACTIVATION = ModelSpec().activation
KEYS = ("activation", "weight_variance", "bias_variance")


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One kind of layer: φ, σ_w² = fan_in · Var(W) and σ_b²."""

    activation: str
    weight_variance: float
    bias_variance: float

    @property
    def canonical(self) -> str:
        """One spelling of it."""
        return f"{self.activation} {self.weight_variance!r} {self.bias_variance!r}"


def read_layer_kind(values: Mapping[str, str]) -> LayerKind:
    """The kind of layer that a query string names.

    Without an activation it is a spec's default one, without `weight_variance` the one that keeps a variance of 1
    biases aside, 1/E[φ(z)²], and without `bias_variance` 0.

    Raises:
        RequestError: another key, another activation, or a variance that is no number from 0 to MAX_VARIANCE.
    """
    for name in values:
        if name not in KEYS:
            raise _invalid(name[:40], f"not a key of theory.json, which are {', '.join(KEYS)}", list(KEYS))
    activation = values.get("activation", DEFAULT_ACTIVATION)
    if activation not in ACTIVATIONS:
        raise _invalid("activation", f"{activation[:40]!r} is not one of {', '.join(ACTIVATIONS)}", list(ACTIVATIONS))
    return LayerKind(
        activation,
        _variance("weight_variance", values.get("weight_variance"), 1 / moments(activation).second_moment),
        _variance("bias_variance", values.get("bias_variance"), 0.0),
    )


_DECIMAL = re.compile(r"([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")


def _variance(field: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    value = float(text) if _DECIMAL.fullmatch(text) else -1.0
    if not 0 <= value <= MAX_VARIANCE:
        raise _invalid(
            field,
            f"{text[:40]!r} is not a number from 0 to {number_text(MAX_VARIANCE)}",
            {"minimum": 0, "maximum": MAX_VARIANCE},
        )
    return value


def _invalid(field: str, reason: str, limit: Any) -> RequestError:
    return RequestError(f"{field}: {reason}", status=422, code="invalid_parameter", field=field, limit=limit)


def theory_parameters() -> list[dict[str, Any]]:
    """The keys as query parameters."""
    bounds = {"minimum": 0.0, "maximum": MAX_VARIANCE}
    return [
        choice_parameter("activation", "φ.", ACTIVATIONS, DEFAULT_ACTIVATION),
        number_parameter(
            "weight_variance",
            "σ_w² = fan_in · Var(W). Without it, the one that keeps a variance of 1 biases aside, 1/E[φ(z)²].",
            **bounds,
        ),
        number_parameter("bias_variance", "σ_b², the variance of a bias.", **bounds, default=0.0),
    ]
