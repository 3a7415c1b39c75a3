"""The spec: a small flat set of values that a whole trace is a pure function of.

`SPEC_KEYS` is the one table of what may stand in a spec. Parsing, error messages, the API's documentation and the
page's controls are all read from it. The same values come as strings (a query string) or as JSON values (a request
body), and mean the same.

    "widths=100x51&seed=7" ──read_query──▶ {"widths": "100x51", "seed": "7"} ──ModelSpec.parse──▶ ModelSpec
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal, Self
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, model_validator

from chainrule.errors import SpecError
from chainrule.presets import PRESETS

Kind = Literal["int", "float", "bool", "choice", "widths"]

MAX_DEPTH = 10_000
"""Layers a spec can name at all; what a server computes is a setting, and usually far less."""

MAX_SIZE = 2**31 - 1
"""The largest width or batch a spec can name at all."""


@dataclass(frozen=True, slots=True)
class SpecKey:
    """One key of a spec. `minimum` and `maximum` bound numbers, and every single width of `widths`."""

    name: str
    default: int | float | bool | str
    kind: Kind
    doc: str
    choices: tuple[str, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None

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
            return (
                f"2 to {MAX_DEPTH + 1} integers from {self.minimum} to {self.maximum} "
                "separated by commas, where 100x3 stands for 100,100,100"
            )
        noun = "an integer" if self.kind == "int" else "a number"
        return f"{noun} from {number_text(self.minimum or 0)} to {number_text(self.maximum or 0)}"


SPEC_KEYS: tuple[SpecKey, ...] = (
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

MAX_QUERY_FIELDS = 64
"""More fields than this in a query string are refused unread."""


class ModelSpec(BaseModel):
    """What one trace is computed from: the net, its draw and where it runs. Immutable and hashable.

    Constructing one checks everything, whichever way: `ModelSpec(scale="2")` and `ModelSpec.parse({"scale": 2})` are
    equal, and a bad value raises SpecError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    widths: tuple[int, ...] = (100, 50, 1)
    activation: str = "relu"
    last_activation: bool = False
    init: str = "kaiming_normal"
    scale: float = 1.0
    bias: bool = True
    bias_std: float = 0.0
    style: str = "layer_function"
    loss: str = "mse"
    batch: int = 200
    seed: int = 42
    dtype: str = "float32"
    device: str = "cpu"

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: Mapping[str, object]) -> dict[str, Any]:
        """Every way of making a spec passes through here, so that all of them check the same."""
        read: dict[str, Any] = {}
        for name, value in values.items():
            key = KEY_BY_NAME.get(name)
            if key is None:
                raise _unknown_key(name)
            read[name] = _READERS[key.kind](key, value)
        _check_together({**_DEFAULTS, **read})
        return read

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read a spec from strings or JSON values; `preset` is expanded first and overridden by the other keys.

        Raises:
            SpecError: a key is unknown or a value is malformed, out of range or at odds with another; it names the key,
                the value and what is allowed.
        """
        given: dict[str, Any] = dict(values)
        if "preset" in given:
            given = {**_preset_spec(given.pop("preset")), **given}
        return cls(**given)

    @classmethod
    def from_query(cls, query: str) -> Self:
        """Read a spec from a query string such as `widths=100x51&seed=7`.

        Raises:
            SpecError: see `parse`; also for a key that is given twice.
        """
        return cls.parse(read_query(query))

    def replace(self, **changes: Any) -> Self:
        """The same spec with other values for some keys, checked as ever."""
        return type(self)(**{**self.model_dump(), **changes})

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    @property
    def n_in(self) -> int:
        """Features of the input."""
        return self.widths[0]

    @property
    def n_out(self) -> int:
        """Features of the output."""
        return self.widths[-1]

    def query(self) -> str:
        """The canonical query string: keys that differ from their default, in the table's order; it may be empty."""
        pairs = ((key, getattr(self, key.name)) for key in SPEC_KEYS)
        return "&".join(f"{key.name}={_text(value)}" for key, value in pairs if value != _DEFAULTS[key.name])

    def as_dict(self) -> dict[str, int | float | bool | str]:
        """Every key with its JSON value; `widths` as the text that the query string has."""
        return {**self.model_dump(), "widths": widths_text(self.widths)}


def read_query(query: str) -> dict[str, str]:
    """Decode a query string into keys and values.

    Raises:
        SpecError: a key stands there twice (which of the two is meant cannot be known), or there are too many.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise SpecError(f"the query string has more than {MAX_QUERY_FIELDS} fields", limit=MAX_QUERY_FIELDS) from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            field = _shown(name).strip("'")
            raise SpecError(
                f"{field}: given twice, as {_shown(values[name])} and {_shown(value)}; give it once", field=field
            )
        values[name] = value
    return values


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


def _text(value: object) -> str:
    """One value of a spec as the query string has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return widths_text(value)
    if isinstance(value, int | float):
        return number_text(value)
    return str(value)


def _shown(value: object) -> str:
    """A value as an error message quotes it: short, whatever was sent."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer of more than 77 digits"
    text = repr(value[:80]) if isinstance(value, str | list | tuple) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[0]


def _bad(key: SpecKey, value: object, *, because: str = "") -> SpecError:
    """The error for a value that a key does not take: key, value and what is allowed."""
    limit: object = list(key.choices) or None
    if limit is None and key.minimum is not None:
        limit = {"minimum": key.minimum, "maximum": key.maximum}
    reason = f" ({because})" if because else ""
    return SpecError(f"{key.name}: {_shown(value)} is not {key.allowed}{reason}", field=key.name, limit=limit)


def _closest(name: str, names: list[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no name is near. The cut keeps a very long name from costing time."""
    near = difflib.get_close_matches(name[:40], names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _unknown_key(name: str) -> SpecError:
    names = [*KEY_BY_NAME, "preset"]
    field = name if len(name) <= 40 else name[:39] + "…"
    return SpecError(
        f"{field}: not a key of a spec, which are {', '.join(names)}{_closest(name, names)}", field=field, limit=names
    )


def _preset_spec(name: object) -> Mapping[str, object]:
    names = [preset.name for preset in PRESETS]
    for preset in PRESETS:
        if preset.name == name:
            return preset.spec
    near = _closest(name, names) if isinstance(name, str) else ""
    raise SpecError(f"preset: {_shown(name)} is not one of {', '.join(names)}{near}", field="preset", limit=names)


def _read_int(key: SpecKey, value: object) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not key.holds(number):
        raise _bad(key, value)
    return number


_DECIMAL = re.compile(r"-?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")


def _read_float(key: SpecKey, value: object) -> float:
    number = float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    # The range also refuses NaN, and an integer too large for a float before it is converted.
    if isinstance(number, bool) or not isinstance(number, int | float) or not key.holds(number):
        raise _bad(key, value)
    # Adding 0.0 turns -0.0 into 0.0, so that equal specs have equal queries.
    return float(number) + 0.0


def _read_bool(key: SpecKey, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise _bad(key, value)


def _read_choice(key: SpecKey, value: object) -> str:
    if isinstance(value, str) and value in key.choices:
        return value
    error = _bad(key, value)
    if isinstance(value, str):
        near = _closest(value, list(key.choices))
        error = SpecError(error.message + near, field=error.field, limit=error.limit)
    raise error


_RUN = re.compile(r"([0-9]{1,10})(?:x([0-9]{1,10}))?")


def _read_widths(key: SpecKey, value: object) -> tuple[int, ...]:
    """`100,50x2,1`, or a list of integers. Runs are counted before they are made: `100x999999999` costs nothing."""
    widths: list[int] = []
    if isinstance(value, str):
        # At most this many parts can be right, so no more than that are cut.
        for part in value.split(",", MAX_DEPTH + 1):
            run = _RUN.fullmatch(part)
            if run is None:
                raise _bad(key, value, because=f"{_shown(part)} is neither a width nor a repetition")
            width, count = int(run[1]), int(run[2] or 1)
            if count < 1 or len(widths) + count > MAX_DEPTH + 1:
                raise _bad(key, value)
            widths.extend([width] * count)
    elif isinstance(value, list | tuple) and len(value) <= MAX_DEPTH + 1:
        for width in value:
            if isinstance(width, bool) or not isinstance(width, int):
                raise _bad(key, value, because=f"{_shown(width)} is not an integer")
            widths.append(width)
    else:
        raise _bad(key, value)
    for width in widths:
        if not key.holds(width):
            raise _bad(key, value, because=f"{width} is out of range")
    if len(widths) < 2:
        raise _bad(key, value, because="an input and an output are needed")
    return tuple(widths)


_READERS: Mapping[Kind, Callable[[SpecKey, object], Any]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "choice": _read_choice,
    "widths": _read_widths,
}

_DEFAULTS: Mapping[str, Any] = {key.name: _READERS[key.kind](key, key.default) for key in SPEC_KEYS}


def _check_together(values: Mapping[str, Any]) -> None:
    """What no key can say alone.

    Raises:
        SpecError: two keys contradict each other.
    """
    if values["loss"] == "cross_entropy" and values["widths"][-1] == 1:
        raise SpecError(
            "loss: 'cross_entropy' needs at least 2 outputs, one per class, "
            f"but widths {_shown(widths_text(values['widths']))} ends in 1",
            field="loss",
            limit=["mse"],
        )
    bias_std = values["bias_std"]
    if bias_std and not values["bias"]:
        raise SpecError(
            f"bias_std: {number_text(bias_std)} with bias=false; without biases it must be 0", field="bias_std", limit=0
        )
    if bias_std and values["init"] == "torch_default":
        raise SpecError(
            f"bias_std: {number_text(bias_std)} with init=torch_default, which draws its own biases from U(±1/√n_in); "
            "with it bias_std must be 0",
            field="bias_std",
            limit=0,
        )
