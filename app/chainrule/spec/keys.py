"""The one table of what may stand in a spec: every key with its default, its kind and what it takes.

`keys_of` is the table as one program sees it: the keys that mean something to it, with its own defaults and bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from itertools import groupby
from typing import Literal

from chainrule.spec.programs import DEFAULT, MAX_SIZE, PROGRAMS, RUNGS, Program

Kind = Literal["int", "float", "bool", "choice", "widths"]


@dataclass(frozen=True, slots=True)
class SpecKey:
    """One key of a spec. `minimum` and `maximum` bound numbers, and every single width of `widths`.

    `lengths` says how many widths there may be, from and to.
    """

    name: str
    default: int | float | bool | str
    kind: Kind
    doc: str
    choices: tuple[str, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    lengths: tuple[int, int] = PROGRAMS[DEFAULT].widths

    def holds(self, value: int | float) -> bool:
        """Whether a number is in the key's range; NaN never is."""
        return (self.minimum is None or self.minimum <= value) and (self.maximum is None or value <= self.maximum)

    @property
    def allowed(self) -> str:
        """What the key takes, in words, e.g. `a number from 0.0001 to 10000`."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "widths":
            least, most = self.lengths
            between = f"from {self.minimum} to {self.maximum}"
            if most == 1:
                return f"one integer {between}"
            if least == most:
                return f"{least} integers {between} separated by a comma"
            return f"{least} to {most} integers {between} separated by commas, where 100x3 stands for 100,100,100"
        noun = "an integer" if self.kind == "int" else "a number"
        return f"{noun} from {number_text(self.minimum or 0)} to {number_text(self.maximum or 0)}"


SPEC_KEYS: tuple[SpecKey, ...] = (
    SpecKey(
        "program",
        DEFAULT,
        "choice",
        "What computes the graph: the net (mlp), or one construct of the chapter by itself.",
        choices=tuple(PROGRAMS),
    ),
    SpecKey("rung", "broadcasting", "choice", "How the matrix product is written.", choices=RUNGS),
    SpecKey("constant", 2.0, "float", "What is multiplied by.", minimum=-1e6, maximum=1e6),
    SpecKey(
        "widths",
        "100,50,1",
        "widths",
        "Features of the input, of every hidden layer and of the output; 100x51 repeats.",
        minimum=1,
        maximum=MAX_SIZE,
    ),
    SpecKey(
        "activation",
        "relu",
        "choice",
        "The nonlinearity after every hidden layer.",
        choices=("linear", "relu", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "elu", "selu"),
    ),
    SpecKey("last_activation", False, "bool", "The nonlinearity follows the last layer too."),
    SpecKey(
        "init",
        "kaiming_normal",
        "choice",
        "How weights are drawn: Kaiming is √(2/n_in) on every layer, LeCun 1/√n_in, Xavier gain 1, uniform ±0.1.",
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
    SpecKey(
        "scale",
        1.0,
        "float",
        "Multiplies the weights, and only them; the draw stays the same.",
        minimum=1e-4,
        maximum=1e4,
    ),
    SpecKey("bias", True, "bool", "Layers have biases."),
    SpecKey("bias_std", 0.0, "float", "Standard deviation of the biases.", minimum=0.0, maximum=10.0),
    SpecKey(
        "style",
        "layer_function",
        "choice",
        "Which of the five ways of writing the same net is run.",
        choices=("functions", "classes", "layer_function", "autograd_function", "module"),
    ),
    SpecKey("loss", "mse", "choice", "The loss; cross_entropy draws class labels.", choices=("mse", "cross_entropy")),
    SpecKey("batch", 200, "int", "Inputs in the batch.", minimum=1, maximum=MAX_SIZE),
    SpecKey(
        "seed",
        42,
        "int",
        "Every tensor is drawn from its own generator, seeded with this and its name.",
        minimum=0,
        maximum=2**63 - 1,
    ),
    SpecKey(
        "dtype",
        "float32",
        "choice",
        "What the pass computes in; draws are made in float32 and then cast.",
        choices=("float32", "float64", "bfloat16", "float16"),
    ),
    SpecKey("device", "cpu", "choice", "Where the pass runs.", choices=("cpu", "cuda")),
)
"""Every key a spec may hold, in the order of the canonical query string."""

KEY_BY_NAME: Mapping[str, SpecKey] = {key.name: key for key in SPEC_KEYS}


@cache
def keys_of(program: str) -> Mapping[str, SpecKey]:
    """The keys that a program uses, by name in the table's order: with its own defaults, and its own bounds of widths.

    Raises:
        KeyError: there is no such program.
    """
    return {key.name: _key_of(PROGRAMS[program], key) for key in SPEC_KEYS if key.name in _used(PROGRAMS[program])}


def _used(program: Program) -> tuple[str, ...]:
    return ("program", *program.keys)


def _key_of(program: Program, key: SpecKey) -> SpecKey:
    if key.name == "program":
        return replace(key, default=program.name)
    key = replace(key, default=program.defaults.get(key.name, key.default))
    return replace(key, lengths=program.widths, maximum=program.max_width) if key.kind == "widths" else key


# -------------------------------------------------------------------------------------------------------- as text


def widths_text(widths: tuple[int, ...]) -> str:
    """Widths as a query string has them, runs compressed: `(100, 100, 1)` is `100x2,1`."""
    runs = ((width, sum(1 for _ in run)) for width, run in groupby(widths))
    return ",".join(f"{width}x{count}" if count > 1 else str(width) for width, count in runs)


def number_text(value: int | float) -> str:
    """The shortest decimal text that reads back as the same number, as JavaScript's `String(value)` writes it.

    The page writes links too: with one spelling for a number, one spec has one address.
    """
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if abs(value) >= 1e-6:
        return format(Decimal(repr(value)), "f")
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}"


def value_text(value: object) -> str:
    """One value of a spec as the query string has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return widths_text(value)
    if isinstance(value, int | float):
        return number_text(value)
    return str(value)
