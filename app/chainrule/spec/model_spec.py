"""The spec: a small flat set of values that determines a trace.

`SPEC_KEYS` lists the keys. Values are texts (a query string) or JSON values (a request body), with the same meaning.

    "widths=100x51&seed=7" ──read_query──▶ {"widths": "100x51", "seed": "7"} ──ModelSpec.parse──▶ ModelSpec

The spec's `program` computes the graph; `keys_of(program)` are the keys that it uses, with its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Self
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, model_validator

from chainrule.errors import SpecError
from chainrule.spec.data import DATA_SETS, RANDOM
from chainrule.spec.keys import KEY_BY_NAME, keys_of
from chainrule.spec.presets import PRESET_BY_NAME
from chainrule.spec.programs import DEFAULT, PROGRAMS
from chainrule.spec.values import Key, number_text, shown, unknown_key, value_text, widths_text

MAX_QUERY_FIELDS = 64
"""A query string with more fields is refused unread."""


PRESET_KEY = Key(
    "preset", None, "choice", "Start from this preset; the other keys override it.", choices=tuple(PRESET_BY_NAME)
)


class ModelSpec(BaseModel):
    """The program of a trace, its sizes, its draw and its device. Immutable and hashable.

    The constructor checks everything: `ModelSpec(scale="2")` and `ModelSpec.parse({"scale": 2})` are equal, and a bad
    value raises SpecError. A key that the program does not use may not be given; its attribute has the table's default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str = DEFAULT
    rung: str = "broadcasting"
    constant: float = 2.0
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
    data: str = RANDOM
    optimizer: str = "sgd"
    lr: float = 0.01
    weight_decay: float = 0.0
    parametrization: str = "standard"
    step: int = 0
    seed: int = 42
    dtype: str = "float32"
    device: str = "cpu"

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: Mapping[str, object]) -> dict[str, Any]:
        """Read and check all values; pydantic calls this for every new spec."""
        program = KEY_BY_NAME["program"].read(values.get("program", DEFAULT))
        keys = keys_of(program)
        read: dict[str, Any] = {}
        for name, value in values.items():
            if name not in KEY_BY_NAME:
                raise SpecError(**unknown_key(name, [*KEY_BY_NAME, "preset"], "a spec"))
            if name not in keys:
                raise _unused_key(name, value, program)
            read[name] = keys[name].read(value)
        complete = {**_defaults(program), **read}
        _check_together(complete)
        return complete

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read a spec from texts or JSON values; other keys override those of `preset`.

        Raises:
            SpecError: a key is unknown, or a value is malformed, out of range or contradicts another; it names the key,
                the value and what is allowed.
        """
        given: dict[str, Any] = dict(values)
        if "preset" in given:
            name = given.pop("preset")
            preset = PRESET_BY_NAME[PRESET_KEY.read(name)].spec
            if KEY_BY_NAME["program"].read(given.get("program", DEFAULT)) != DEFAULT:
                raise SpecError(
                    f"program: {shown(given['program'])} with preset={name}, which is a preset of {DEFAULT}; "
                    "give only one of the two",
                    field="program",
                    limit=[DEFAULT],
                )
            given = {**preset, **given}
        return cls(**given)

    @classmethod
    def from_query(cls, query: str) -> Self:
        """Read a spec from a query string such as `widths=100x51&seed=7`. Raises SpecError, also for repeated keys."""
        return cls.parse(read_query(query))

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some keys.

        If the program changes, only keys that both programs use with the same default are kept: `seed` and `dtype`, but
        not `widths`, whose meaning differs.
        """
        keys = keys_of(self.program)
        others = keys_of(KEY_BY_NAME["program"].read(changes.get("program", self.program)))
        kept = {
            name: getattr(self, name)
            for name, key in keys.items()
            if name in others and (others[name].default == key.default or name == "program")
        }
        return type(self)(**{**kept, **changes})

    @property
    def keys(self) -> Mapping[str, Key]:
        """The keys that its program uses, by name."""
        return keys_of(self.program)

    @property
    def is_net(self) -> bool:
        """Whether its program is a chain of layers, which have a theory and a profile."""
        return self.program == DEFAULT

    @property
    def depth(self) -> int:
        """Number of layers of a net."""
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
        """The canonical query string: the program, and the keys that differ from its defaults, in the table's order.

        It is empty for the default spec.
        """
        defaults = {**_defaults(self.program), "program": DEFAULT}
        pairs = ((name, getattr(self, name)) for name in self.keys)
        return "&".join(f"{name}={value_text(value)}" for name, value in pairs if value != defaults[name])

    def as_dict(self) -> dict[str, int | float | bool | str]:
        """Every key that the program uses with its JSON value; `widths` as in the query string."""
        return {**{name: getattr(self, name) for name in self.keys}, "widths": widths_text(self.widths)}


def read_query(query: str) -> dict[str, str]:
    """Decode a query string into keys and values. Raises SpecError for repeated keys, or too many."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise SpecError(f"the query string has more than {MAX_QUERY_FIELDS} fields", limit=MAX_QUERY_FIELDS) from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            field = shown(name).strip("'")
            raise SpecError(
                f"{field}: given twice, as {shown(values[name])} and {shown(value)}; give it once", field=field
            )
        values[name] = value
    return values


def _unused_key(name: str, value: object, program: str) -> SpecError:
    users = [each.name for each in PROGRAMS.values() if name in each.keys]
    used = list(keys_of(program))
    return SpecError(
        f"{name}: program={program} does not use this key, given as {shown(value)}; its keys are {', '.join(used)}; "
        f"{name} is a key of {', '.join(users)}",
        field=name,
        limit=used,
    )


@cache
def _defaults(program: str) -> Mapping[str, Any]:
    """Every key's default in a program; unused keys have the table's."""
    keys = {**KEY_BY_NAME, **keys_of(program)}
    return {name: key.read(key.default) for name, key in keys.items()}


def _check_together(values: Mapping[str, Any]) -> None:
    """Raise SpecError if two keys contradict each other."""
    program = PROGRAMS[values["program"]]
    if program.last_width is not None and values["widths"][-1] != program.last_width:
        text = widths_text(values["widths"])
        raise SpecError(
            f"widths: {shown(text)} ends in {values['widths'][-1]}; with program={program.name} the last width is "
            f"{program.last_width}",
            field="widths",
            limit={"minimum": 1, "maximum": program.max_width},
        )
    if values["loss"] == "cross_entropy" and values["widths"][-1] == 1:
        raise SpecError(
            "loss: 'cross_entropy' needs at least 2 outputs, one per class, "
            f"but widths {shown(widths_text(values['widths']))} ends in 1",
            field="loss",
            limit=["mse"],
        )
    if values["data"] != RANDOM:
        _check_data(values)
    bias_std = values["bias_std"]
    if bias_std and not values["bias"]:
        raise SpecError(
            f"bias_std: {number_text(bias_std)} with bias=false; without biases it must be 0", field="bias_std", limit=0
        )
    if bias_std and values["init"] == "torch_default":
        raise SpecError(
            f"bias_std: {number_text(bias_std)} with init=torch_default, which draws its own biases from U(±1/√n_in); "
            "bias_std must then be 0",
            field="bias_std",
            limit=0,
        )


def _check_data(values: Mapping[str, Any]) -> None:
    """Raise SpecError if the net does not fit its data set."""
    name, widths = values["data"], values["widths"]
    size = DATA_SETS[name]
    outputs = [size.classes] if values["loss"] == "cross_entropy" or size.classes > 2 else [1, size.classes]
    if widths[0] != size.features or widths[-1] not in outputs:
        last = " or ".join(map(str, outputs))
        raise SpecError(
            f"widths: {shown(widths_text(widths))} with data={name}, which has {size.features} features and "
            f"{size.classes} classes; the first width must be {size.features}, the last width {last}",
            field="widths",
            limit={"first": size.features, "last": outputs},
        )
    if values["batch"] > size.samples:
        raise SpecError(
            f"batch: {values['batch']} with data={name}, which has {size.samples} training samples; "
            f"batch must be at most {size.samples}",
            field="batch",
            limit={"minimum": 1, "maximum": size.samples},
        )
