"""The keys of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from chainrule.spec.data import DATA_SETS, RANDOM
from chainrule.spec.programs import DEFAULT, MAX_SIZE, MAX_STEP, PROGRAMS, RUNGS, Program
from chainrule.spec.values import Key

BASE_WIDTH = 64
"""The width at which µP is the standard parametrization."""

SPEC_KEYS: tuple[Key, ...] = (
    Key(
        "program",
        DEFAULT,
        "choice",
        "The program that computes the graph: the net (mlp), or a single construct of the chapter.",
        choices=tuple(PROGRAMS),
    ),
    Key("rung", "broadcasting", "choice", "The way to write the matrix product.", choices=RUNGS),
    Key("constant", 2.0, "float", "The constant factor.", minimum=-1e6, maximum=1e6),
    Key(
        "widths",
        "100,50,1",
        "widths",
        "Features of the input, of every hidden layer and of the output; 100x51 stands for 51 times 100.",
        minimum=1,
        maximum=MAX_SIZE,
        lengths=PROGRAMS[DEFAULT].widths,
    ),
    Key(
        "activation",
        "relu",
        "choice",
        "The nonlinearity after every hidden layer.",
        choices=("linear", "relu", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "elu", "selu"),
    ),
    Key("last_activation", False, "bool", "Also apply the nonlinearity after the last layer."),
    Key(
        "init",
        "kaiming_normal",
        "choice",
        "The distribution of the weights: std √(2/n_in) for Kaiming, 1/√n_in for LeCun, gain 1 for Xavier, ±0.1 for "
        "uniform.",
        choices=(
            "standard_normal",
            "lecun_normal",
            "xavier_normal",
            "xavier_uniform",
            "kaiming_normal",
            "kaiming_uniform",
            "uniform",
            "orthogonal",
            "zeros",
            "torch_default",
        ),
    ),
    Key(
        "scale",
        1.0,
        "float",
        "Multiplies all weights, but not the biases; the random draw stays the same.",
        minimum=1e-4,
        maximum=1e4,
    ),
    Key("bias", True, "bool", "Give the layers biases."),
    Key("bias_std", 0.0, "float", "Standard deviation of the biases.", minimum=0.0, maximum=10.0),
    Key(
        "style",
        "layer_function",
        "choice",
        "One of five ways to write the same net.",
        choices=("functions", "classes", "layer_function", "autograd_function", "module"),
    ),
    Key("loss", "mse", "choice", "The loss; cross_entropy draws class labels.", choices=("mse", "cross_entropy")),
    Key("batch", 200, "int", "Number of examples in the batch.", minimum=1, maximum=MAX_SIZE),
    Key(
        "data",
        RANDOM,
        "choice",
        "The training data: the chapter's batch of random numbers, the same at every step, or a data set, with a new "
        "batch at every step.",
        choices=(RANDOM, *DATA_SETS),
    ),
    Key(
        "optimizer",
        "sgd",
        "choice",
        "The rule that changes the parameters at each step; momentum and nesterov are sgd with a momentum of 0.9.",
        choices=("sgd", "momentum", "nesterov", "adam", "adamw"),
    ),
    Key("lr", 0.01, "float", "The learning rate of the optimizer.", minimum=0.0, maximum=1e9),
    Key("weight_decay", 0.0, "float", "The weight decay of the optimizer.", minimum=0.0, maximum=1e3),
    Key(
        "parametrization",
        "standard",
        "choice",
        "How learning rates and the scale of the last layer follow the width: not at all, or as in µP, which is the "
        f"same at a width of {BASE_WIDTH}.",
        choices=("standard", "mup"),
    ),
    Key("step", 0, "int", "Training steps before the recorded pass.", minimum=0, maximum=MAX_STEP),
    Key(
        "seed",
        42,
        "int",
        "The seed. Every tensor has its own random generator, seeded with this number and the tensor's name.",
        minimum=0,
        maximum=2**63 - 1,
    ),
    Key(
        "dtype",
        "float32",
        "choice",
        "The dtype of the computation; tensors are drawn in float32 and then cast; for float64 before they are scaled.",
        choices=("float32", "float64", "bfloat16", "float16"),
    ),
    Key("device", "cpu", "choice", "The device of the computation.", choices=("cpu", "cuda")),
)
"""Every key a spec may hold, in the order of the canonical query string."""

KEY_BY_NAME: Mapping[str, Key] = {key.name: key for key in SPEC_KEYS}


@cache
def keys_of(program: str) -> Mapping[str, Key]:
    """The keys that a program uses, by name, in the table's order, with the program's defaults and bounds of widths.

    Raises:
        KeyError: an unknown program.
    """
    used = ("program", *PROGRAMS[program].keys)
    return {key.name: _key_of(PROGRAMS[program], key) for key in SPEC_KEYS if key.name in used}


def _key_of(program: Program, key: Key) -> Key:
    if key.name == "program":
        return replace(key, default=program.name)
    key = replace(key, default=program.defaults.get(key.name, key.default))
    return replace(key, lengths=program.widths, maximum=program.max_width) if key.kind == "widths" else key
