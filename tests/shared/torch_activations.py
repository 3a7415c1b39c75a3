"""The nine activations in PyTorch, and their measured statistics."""

import torch
from torch.nn import functional

TORCH_ACTIVATIONS = {
    "linear": lambda u: u,
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "elu": functional.elu,
    "selu": functional.selu,
}


def measured(name, h, a):
    """The figures of a layer with preactivations `h` and activations `a`, both (batch, …)."""
    found = {
        "preactivation_std": h.std(correction=0),
        "activation_mean": a.mean(),
        "activation_std": a.std(correction=0),
    }
    if name in ("tanh", "sigmoid"):
        middle = {"tanh": 0.0, "sigmoid": 0.5}[name]
        found["saturation"] = ((a - middle).abs() > 0.97 * (1 - middle)).double().mean()
    elif name != "linear":
        found["dead_fraction"] = (a.amax(0) <= 0).double().mean()
    return {key: value.item() for key, value in found.items()}
