"""The rule behind every expected figure, band and verdict, in readable form, with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chainrule.diagnose.advice import MEAN_FIELD
from chainrule.diagnose.verdicts import DEVIATIONS, EXPLODING, GAIN, SATURATED, SELECTIVE, VANISHING, WEAKENING, Health
from chainrule.trace.graph import FaultKind


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
_OWN = "Chainrule's own"
_PYTORCH = "PyTorch documentation"

FAULT_RULES: Mapping[FaultKind, Rule] = {
    "failed": Rule("an operation of the pass raised an exception", _OWN),
    "in_place": Rule(
        "an operation keeps a tensor for its backward, and its values are overwritten before that",
        f"{_PYTORCH}, Autograd mechanics: In-place operations with autograd",
    ),
    "first_nonfinite": Rule(
        "the first tensor in order of execution with a NaN or ±Inf that is no mask and no fill value", "IEEE 754"
    ),
    "unregistered": Rule(
        "a parameter is read while the model runs, and neither model.parameters() nor the optimizer holds it",
        f"{_PYTORCH}, torch.nn.ModuleList",
    ),
    "detach": Rule(
        "trainable parameters lead to the loss, and the graph between them is cut",
        f"{_PYTORCH}, Autograd mechanics: Locally disabling gradient computation",
    ),
    "no_gradient": Rule(
        "a parameter of the model got no gradient from a backward pass",
        f"{_PYTORCH}, Autograd mechanics: Setting requires_grad",
    ),
    "no_optimizer": Rule(
        "a trainable parameter got a gradient, and no optimizer that was given holds it",
        f"{_PYTORCH}, torch.optim: Constructing it",
    ),
    "leftover_gradient": Rule(
        "a gradient that an optimizer reads was not 0 before this step, and its backward pass added to it",
        f"{_PYTORCH}, torch.optim.Optimizer.zero_grad",
    ),
    "eval_mode": Rule(
        "a batch norm or a dropout was in eval mode in a step with an optimizer, and a gradient went through it",
        f"{_PYTORCH}, Autograd mechanics: Evaluation Mode",
    ),
    "untied": Rule(
        "an embedding and an output layer have two parameters whose statistics and histograms are equal",
        "O. Press and L. Wolf 2017, Using the Output Embedding to Improve Language Models",
    ),
    "broadcast": Rule(
        "in the loss an operation joins (n, 1) with (n,) or (1, n), of which one has a gradient: n × n results",
        f"{_PYTORCH}, Broadcasting semantics",
    ),
    "softmax": Rule(
        "the loss chooses class scores out of a softmax over the batch, takes a softmax of one, or reads one where its "
        "logarithm belongs",
        f"{_PYTORCH}, torch.nn.CrossEntropyLoss",
    ),
    "exploding": Rule(
        f"RMS(activation) > {EXPLODING:g} RMS(source), or {GAIN:g} per layer without a normalization, here and in all "
        f"hidden layers ahead; or a gradient > {EXPLODING:g} times the last layer's, here and in all layers behind",
        _AUTOTRAINER,
    ),
    "vanishing": Rule(
        f"RMS(activation) < {VANISHING:g} RMS(source), or 1/{WEAKENING:g} per layer without a normalization, here and "
        "in all layers ahead",
        _AUTOTRAINER,
    ),
    "gradient_drop": Rule(
        f"a gradient < {VANISHING:g} times the last layer's, here and in all layers behind", _AUTOTRAINER
    ),
    "dead": Rule(
        f"no unit above 0 for any input, or by {DEVIATIONS:g} standard deviations more than the larger of 1/2 and "
        f"{1 - SELECTIVE:g}ᴮ for B inputs",
        "L. Lu et al. 2020, Dying ReLU and Initialization; the threshold is Chainrule's",
    ),
    "saturated": Rule(
        f"more than {SATURATED:.0%} of the values beyond |tanh u| = 0.97", f"{_KARPATHY}; the threshold is Chainrule's"
    ),
    "starts_at_zero": Rule(
        "all of a parameter is 0, it gets a gradient, and what stands before it gets none",
        "E. Hu et al. 2021, LoRA; P. Goyal et al. 2017, Accurate, Large Minibatch SGD (the last normalization)",
    ),
}
"""The criterion of each kind of fault."""

HEALTH_RULES: Mapping[Health, Rule] = {
    "non-finite": Rule("a NaN or ±Inf in the preactivation, the activation or the gradient", "IEEE 754"),
    "dead": FAULT_RULES["dead"],
    "saturated": FAULT_RULES["saturated"],
    "vanishing": Rule(f"{FAULT_RULES['vanishing'].rule}; or {FAULT_RULES['gradient_drop'].rule}", _AUTOTRAINER),
    "exploding": FAULT_RULES["exploding"],
}

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
    health=HEALTH_RULES,
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
