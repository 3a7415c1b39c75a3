"""The programs of a spec, which compute the graph: the keys that each uses, and its defaults.

`mlp` is the chapter's net; every other program is one construct of the chapter by itself, small enough that each of its
ops can be looked at. `build/programs.py` builds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_DEPTH = 10_000
"""The most layers of any spec; a server's limit is a setting, and usually far lower."""

MAX_SIZE = 2**31 - 1
"""The largest width or batch of any spec."""

MAX_STEP = 100_000
"""The last step of a training."""

MAX_NEURON_INPUTS = 64
"""Each input of the neuron adds a product and a sum to the graph."""

RUNGS = ("loops", "elementwise", "broadcasting", "einsum", "@")
"""The chapter's five ways to write a matrix product, as in `foundations/matmul.py`."""


@dataclass(frozen=True, slots=True)
class Program:
    """A computation that a spec can name.

    Attributes:
        keys: the spec's keys that it uses, besides `program`.
        defaults: as texts, where they differ from the table's.
        widths: the least and the greatest number of widths.
        last_width: the only value of the last width; None for any.
        page: the chapter's page on it; None for the explorer's own.
    """

    name: str
    doc: str
    keys: tuple[str, ...]
    defaults: Mapping[str, str] = field(default_factory=dict)
    widths: tuple[int, int] = (1, 1)
    max_width: int = MAX_SIZE
    last_width: int | None = None
    page: str | None = None


_EVERYWHERE = ("seed", "dtype", "device")
_WEIGHTS = ("init", "scale")
_TRAINING = ("data", "optimizer", "lr", "weight_decay", "parametrization", "step")
_ELEMENTWISE = {"widths": "5", "batch": "4"}
# As the PyTorch tutorial has it in its gradcheck of LinearFunction: input (20, 20), weight (30, 20).
_LINEAR = {"widths": "20,30", "batch": "20"}

PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program(
            "mlp",
            "A fully connected net: linear layers, each followed by its activation, and a loss.",
            (
                "widths",
                "activation",
                "last_activation",
                *_WEIGHTS,
                "bias",
                "bias_std",
                "style",
                "loss",
                "batch",
                *_TRAINING,
                *_EVERYWHERE,
            ),
            widths=(2, MAX_DEPTH + 1),
        ),
        Program(
            "neuron",
            "One neuron: the sum of its weighted inputs and a bias, then relu; the loss is (out − y)².",
            ("widths", *_WEIGHTS, "bias_std", *_EVERYWHERE),
            {"widths": "3,1"},
            widths=(2, 2),
            max_width=MAX_NEURON_INPUTS,
            last_width=1,
            page="/foundations/neuron",
        ),
        Program(
            "matmul",
            "A matrix product from scratch, in one of five ways: (batch, k) by (k, n), widths k,n; the loss is Σ c.",
            ("rung", "widths", "batch", *_EVERYWHERE),
            {"widths": "3,2", "batch": "2"},
            widths=(2, 2),
            page="/foundations/matmul",
        ),
        Program(
            "exp",
            "The exponential as an autograd.Function that saves its result; the loss is Σ out.",
            ("widths", "batch", *_EVERYWHERE),
            _ELEMENTWISE,
            page="/foundations/functions",
        ),
        Program(
            "mul_constant",
            "Multiplication by a number that is not a tensor, as an autograd.Function; the loss is Σ out.",
            ("constant", "widths", "batch", *_EVERYWHERE),
            _ELEMENTWISE,
            page="/foundations/functions",
        ),
        Program(
            "my_relu",
            "The rectified linear unit as an autograd.Function; the loss is Σ out.",
            ("widths", "batch", *_EVERYWHERE),
            _ELEMENTWISE,
            page="/foundations/functions",
        ),
        Program(
            "linear_function",
            "The linear layer as an autograd.Function with its three gradients; the loss is the mean squared error.",
            ("widths", *_WEIGHTS, "bias", "bias_std", "batch", *_EVERYWHERE),
            _LINEAR,
            widths=(2, 2),
            page="/foundations/functions",
        ),
        Program(
            "two_outputs",
            "Sine and cosine from one autograd.Function: its backward gets two gradients; the loss is Σ sin · cos.",
            ("widths", "batch", *_EVERYWHERE),
            _ELEMENTWISE,
            page="/foundations/functions",
        ),
        Program(
            "linear_cpp",
            "The linear layer with forward and backward in C++; `chainrule build-extension` builds it.",
            ("widths", *_WEIGHTS, "bias", "bias_std", "batch", *_EVERYWHERE),
            _LINEAR,
            widths=(2, 2),
            page="/foundations/extension",
        ),
    )
}
"""Every program, by name, in the order of the chapter."""

DEFAULT = "mlp"
"""The program of a spec that names none."""
