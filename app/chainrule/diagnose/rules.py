"""The rule behind every expected value, band and verdict, in readable form, with its source."""

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
    """The rules of the expected values, their bands, and the verdicts."""

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
        "an operation saves a tensor for its backward, and the tensor is overwritten before the backward runs",
        f"{_PYTORCH}, Autograd mechanics: In-place operations with autograd",
    ),
    "first_nonfinite": Rule(
        "the first tensor in order of execution with a NaN or ±Inf that is neither a mask nor a fill value", "IEEE 754"
    ),
    "unregistered": Rule(
        "the model reads a parameter that neither model.parameters() nor the optimizer holds",
        f"{_PYTORCH}, torch.nn.ModuleList",
    ),
    "detach": Rule(
        "the loss depends on trainable parameters, and the graph between them is cut",
        f"{_PYTORCH}, Autograd mechanics: Locally disabling gradient computation",
    ),
    "no_gradient": Rule(
        "a parameter of the model got no gradient from a backward pass",
        f"{_PYTORCH}, Autograd mechanics: Setting requires_grad",
    ),
    "no_optimizer": Rule(
        "a trainable parameter got a gradient, but no given optimizer holds it",
        f"{_PYTORCH}, torch.optim: Constructing it",
    ),
    "leftover_gradient": Rule(
        "a gradient that an optimizer reads was not 0 before this step, and the backward pass added to it",
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
        "an operation of the loss joins (n, 1) with (n,) or (1, n), and only one of them has a gradient: n × n results",
        f"{_PYTORCH}, Broadcasting semantics",
    ),
    "softmax": Rule(
        "the loss selects class scores from a softmax over the batch, takes the softmax of a softmax, or reads "
        "probabilities where it needs their logarithm",
        f"{_PYTORCH}, torch.nn.CrossEntropyLoss",
    ),
    "exploding": Rule(
        f"RMS(activation) > {EXPLODING:g} RMS(source), or {GAIN:g} per layer without a normalization, in this layer "
        f"and in all later hidden layers; or a gradient > {EXPLODING:g} times the gradient of the last layer, in this "
        "layer and in all earlier layers",
        _AUTOTRAINER,
    ),
    "vanishing": Rule(
        f"RMS(activation) < {VANISHING:g} RMS(source), or 1/{WEAKENING:g} per layer without a normalization, in this "
        "layer and in all later layers",
        _AUTOTRAINER,
    ),
    "gradient_drop": Rule(
        f"a gradient < {VANISHING:g} times the gradient of the last layer, in this layer and in all earlier layers",
        _AUTOTRAINER,
    ),
    "dead": Rule(
        f"no unit is above 0 for any of B inputs, or the share of such units exceeds max(1/2, {1 - SELECTIVE:g}ᴮ) by "
        f"more than {DEVIATIONS:g} standard deviations",
        "L. Lu et al. 2020, Dying ReLU and Initialization; the threshold is Chainrule's",
    ),
    "saturated": Rule(
        f"more than {SATURATED:.0%} of the values have |tanh u| > 0.97", f"{_KARPATHY}; the threshold is Chainrule's"
    ),
    "starts_at_zero": Rule(
        "all elements of a parameter are 0, it gets a gradient, and the layers before it get none",
        "E. Hu et al. 2021, LoRA; P. Goyal et al. 2017, Accurate, Large Minibatch SGD (the last normalization)",
    ),
    "graph_break": Rule("torch.compile does not trace the whole forward pass into one graph", "torch._dynamo.explain"),
    "recompilation": Rule(
        "torch.compile compiles a function again in the third pass with the same inputs", "torch._dynamo.guards"
    ),
    "replicas": Rule(
        "a parameter whose gradient is reduced, this gradient, or a buffer that is broadcast has other statistics on "
        "another rank of the group",
        "S. Li et al. 2020, PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
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
        "activation_std": Rule(
            "std² = E[φ(√q z)²] − (E φ(√q z))², minus 1/n of the variance between units", MEAN_FIELD
        ),
        "gradient_std": Rule(
            "γₗ = γₗ₊₁ · nₗ₊₁ Var(Wₗ₊₁) · E[φ′(√qₗ₊₁ z)²], starting from 2 (out − y)/numel(y), plus the part of the "
            "gradient along the activation",
            "S. Schoenholz et al. 2017, Deep Information Propagation",
        ),
        "dead_fraction": Rule(
            "E[Φ(−z √(c/(1 − c)))ᴮ]: none of B inputs above 0, cₗ₊₁ = (σ_w² E[φ(u₁) φ(u₂)] + σ_b²)/qₗ₊₁",
            MEAN_FIELD,
        ),
        "saturation": Rule("P(|tanh u| > 0.97), u ~ N(0, q); for the sigmoid use u/2 instead of u", _KARPATHY),
    },
    band=Rule(
        "median ×/÷ e^√v with v = Var ln(std²). The next layer has s² v + Var(φ²)/(n E[φ²]²) with s = d ln qₗ₊₁/d ln "
        "qₗ, or less if the inputs differ. Shares and means near 0: ± 2 standard deviations. 19 of 20 draws lie in "
        "the band",
        "B. Hanin and M. Nica 2018, Products of many large random matrices and gradients in deep neural networks",
    ),
    health=HEALTH_RULES,
)
"""With a spec: q is the variance of a preactivation, c its correlation for two inputs; B inputs, n units."""

_KAIMING = "K. He et al. 2015, Delving Deep into Rectifiers"

LOCAL_RULES = Rules(
    expected={
        "preactivation_std": Rule(
            "std² = n Var(W) E[x²] + Var(b): n products per sum, weights independent of x; x, W and b are measured",
            _KAIMING,
        ),
        "activation_mean": Rule(
            "mean = E φ(m + s z), z ~ N(0, 1), with the preactivation's mean m and std s", MEAN_FIELD
        ),
        "activation_std": Rule("std² = E[φ(m + s z)²] − (E φ(m + s z))²", MEAN_FIELD),
        "gradient_std": Rule(
            "std² = n Var(W) E[g²] of the only layer that reads this activation: n products per input; g, the gradient "
            "of that layer's preactivation, is measured",
            _KAIMING,
        ),
        "dead_fraction": Rule(
            "E[Φ(−(m/s + √c z)/√(1 − c))ᴮ]: none of B inputs above 0, with c = mean(x)²/E[x²]; the band goes to c = 1",
            MEAN_FIELD,
        ),
        "saturation": Rule("P(|tanh u| > 0.97), u ~ N(m, s²); for the sigmoid use u/2 instead of u", _KARPATHY),
    },
    band=Rule(
        "×/÷ e^√v with v = Var ln(std²) of n independent units (2/n for a preactivation) if all inputs are equal. If "
        "they differ, v is smaller, so at least 19 of 20 draws lie in the band",
        "B. Hanin and M. Nica 2018, Products of many large random matrices and gradients in deep neural networks",
    ),
    health=RULES.health,
)
"""Without a spec: each layer from its measured input."""
