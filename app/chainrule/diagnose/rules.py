"""The rule behind every expected figure, band and verdict, in readable form, with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chainrule.diagnose.advice import MEAN_FIELD
from chainrule.diagnose.verdicts import DEVIATIONS, EXPLODING, GAIN, SATURATED, SELECTIVE, VANISHING, WEAKENING, Health


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as an equation or a few words, and its source."""

    rule: str
    source: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the expected figures, their bands, and the verdicts."""

    expected: Mapping[str, Rule]
    band: Rule
    health: Mapping[Health, Rule]


_AUTOTRAINER = "X. Zhang et al. 2021, AUTOTRAINER: An Automatic DNN Training Problem Detection and Repair System"
_KARPATHY = "A. Karpathy, makemore part 3: Activations & Gradients, BatchNorm"

RULES = Rules(
    expected={
        "preactivation_std": Rule("std² = q − q (c + (1 − c)/B)/n, qₗ₊₁ = σ_w² E[φ(√qₗ z)²] + σ_b²", MEAN_FIELD),
        "activation_mean": Rule("mean = E φ(√q z), z ~ N(0, 1)", MEAN_FIELD),
        "activation_std": Rule("std² = E[φ(√q z)²] − (E φ(√q z))², less 1/n of what units differ by", MEAN_FIELD),
        "gradient_std": Rule(
            "γₗ = γₗ₊₁ · nₗ₊₁ Var(Wₗ₊₁) · E[φ′(√qₗ₊₁ z)²] from 2 (out − y)/numel(y) back, and what comes back along "
            "the activation",
            "S. Schoenholz et al. 2017, Deep Information Propagation",
        ),
        "dead_fraction": Rule(
            "E[Φ(−z √(c/(1 − c)))ᴮ]: none of B inputs above 0, cₗ₊₁ = (σ_w² E[φ(u₁) φ(u₂)] + σ_b²)/qₗ₊₁",
            MEAN_FIELD,
        ),
        "saturation": Rule("P(|tanh u| > 0.97), u ~ N(0, q); for the sigmoid u/2 in place of u", _KARPATHY),
    },
    band=Rule(
        "median ×/÷ e^√v: v = Var ln(std²) is s² v + Var(φ²)/(n E[φ²]²) one layer on, s = d ln qₗ₊₁/d ln qₗ, and less "
        "where inputs differ; shares, and means near 0: ± 2 standard deviations. 19 of 20 draws lie within",
        "B. Hanin and M. Nica 2018, Products of many large random matrices and gradients in deep neural networks",
    ),
    health={
        "non-finite": Rule("a NaN or ±Inf in the preactivation, the activation or the gradient", "IEEE 754"),
        "dead": Rule(
            f"no unit above 0 for any input, or by {DEVIATIONS:g} standard deviations more than the larger of 1/2 and "
            f"{1 - SELECTIVE:g}ᴮ for B inputs",
            "L. Lu et al. 2020, Dying ReLU and Initialization; the threshold is Chainrule's",
        ),
        "saturated": Rule(
            f"more than {SATURATED:.0%} of the values beyond |tanh u| = 0.97",
            f"{_KARPATHY}; the threshold is Chainrule's",
        ),
        "vanishing": Rule(
            f"RMS(activation) < {VANISHING:g} RMS(source), or 1/{WEAKENING:g} per layer without a normalization, here "
            f"and in all layers ahead; or a gradient < {VANISHING:g} times the last layer's, here and in all layers "
            "behind",
            _AUTOTRAINER,
        ),
        "exploding": Rule(
            f"RMS(activation) > {EXPLODING:g} RMS(source), or {GAIN:g} per layer without a normalization, here and in "
            f"all hidden layers ahead; or a gradient > {EXPLODING:g} times the last layer's, here and in all layers "
            "behind",
            _AUTOTRAINER,
        ),
    },
)
"""With a spec: q is the variance of a preactivation, c its correlation for two inputs; B inputs, n units."""

_KAIMING = "K. He et al. 2015, Delving Deep into Rectifiers"

LOCAL_RULES = Rules(
    expected={
        "preactivation_std": Rule(
            "std² = n Var(W) E[x²] + Var(b): n products per sum, weights drawn independently of x; x, W and b as "
            "they were measured",
            _KAIMING,
        ),
        "activation_mean": Rule(
            "mean = E φ(m + s z), z ~ N(0, 1), with the preactivation's mean m and std s", MEAN_FIELD
        ),
        "activation_std": Rule("std² = E[φ(m + s z)²] − (E φ(m + s z))²", MEAN_FIELD),
        "gradient_std": Rule(
            "std² = n Var(W) E[g²] of the one layer that reads this: n products per input, g as it was measured at "
            "that layer's preactivation",
            _KAIMING,
        ),
        "dead_fraction": Rule(
            "E[Φ(−(m/s + √c z)/√(1 − c))ᴮ]: none of B inputs above 0, with c = mean(x)²/E[x²]; up to c = 1 in the band",
            MEAN_FIELD,
        ),
        "saturation": Rule("P(|tanh u| > 0.97), u ~ N(m, s²); for the sigmoid u/2 in place of u", _KARPATHY),
    },
    band=Rule(
        "×/÷ e^√v: v = Var ln(std²) of n independent units, 2/n for a preactivation, as if all inputs were alike; they "
        "stray less where inputs differ. 19 of 20 draws lie within, or more",
        "B. Hanin and M. Nica 2018, Products of many large random matrices and gradients in deep neural networks",
    ),
    health=RULES.health,
)
"""Without a spec: each layer from its measured input."""
