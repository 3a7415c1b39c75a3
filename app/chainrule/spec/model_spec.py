"""The spec: a small flat set of values that a whole trace is a pure function of.

`SPEC_KEYS` is the one table of what may stand in a spec. Parsing, error messages, the API's documentation and the
page's controls are all read from it. The same values come as strings (a query string) or as JSON values (a request
body), and mean the same.

    "widths=100x51&seed=7" ──read_query──▶ {"widths": "100x51", "seed": "7"} ──ModelSpec.parse──▶ ModelSpec

What computes the graph is the spec's `program`. It says which keys mean anything, and with which defaults: `keys_of`
is the table as one program sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Self
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, model_validator

from chainrule.errors import SpecError
from chainrule.spec.keys import KEY_BY_NAME, keys_of
from chainrule.spec.presets import PRESET_BY_NAME
from chainrule.spec.programs import DEFAULT, PROGRAMS
from chainrule.spec.values import Key, number_text, shown, unknown_key, value_text, widths_text

MAX_QUERY_FIELDS = 64
"""More fields than this in a query string are refused unread."""


PRESET_KEY = Key(
    "preset", None, "choice", "Start from this preset; the other keys override it.", choices=tuple(PRESET_BY_NAME)
)


class ModelSpec(BaseModel):
    """What one trace is computed from: the program, its sizes, its draw and where it runs. Immutable and hashable.

    Constructing one checks everything, whichever way: `ModelSpec(scale="2")` and `ModelSpec.parse({"scale": 2})` are
    equal, and a bad value raises SpecError. A key that the program does not use may not be given; its attribute is
    there all the same, and has the table's default.
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
    seed: int = 42
    dtype: str = "float32"
    device: str = "cpu"

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: Mapping[str, object]) -> dict[str, Any]:
        """Every way of making a spec passes through here, so that all of them check the same."""
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
        """Read a spec from strings or JSON values; `preset` is expanded first and overridden by the other keys.

        Raises:
            SpecError: a key is unknown or a value is malformed, out of range or at odds with another; it names the key,
                the value and what is allowed.
        """
        given: dict[str, Any] = dict(values)
        if "preset" in given:
            name = given.pop("preset")
            preset = PRESET_BY_NAME[PRESET_KEY.read(name)].spec
            if KEY_BY_NAME["program"].read(given.get("program", DEFAULT)) != DEFAULT:
                raise SpecError(
                    f"program: {shown(given['program'])} with preset={name}, which is a run of {DEFAULT}; "
                    "give one of the two",
                    field="program",
                    limit=[DEFAULT],
                )
            given = {**preset, **given}
        return cls(**given)

    @classmethod
    def from_query(cls, query: str) -> Self:
        """Read a spec from a query string such as `widths=100x51&seed=7`.

        Raises:
            SpecError: see `parse`; also for a key that is given twice.
        """
        return cls.parse(read_query(query))

    def replace(self, **changes: Any) -> Self:
        """The same spec with other values for some keys, checked as ever.

        With another program only those keys are kept that both use, and for which they have one default: `seed` and
        `dtype`, but not `widths`, which say something else there.
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
        """Whether its program is a chain of layers, of which theory and the profile have something to say."""
        return self.program == DEFAULT

    @property
    def depth(self) -> int:
        """Number of layers, where the program is a net."""
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

        It may be empty: that is the default program with nothing changed.
        """
        defaults = {**_defaults(self.program), "program": DEFAULT}
        pairs = ((name, getattr(self, name)) for name in self.keys)
        return "&".join(f"{name}={value_text(value)}" for name, value in pairs if value != defaults[name])

    def as_dict(self) -> dict[str, int | float | bool | str]:
        """Every key that the program uses with its JSON value; `widths` as the text that the query string has."""
        return {**{name: getattr(self, name) for name in self.keys}, "widths": widths_text(self.widths)}


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
        f"{name}: {shown(value)} with program={program}, which does not use it; it uses {', '.join(used)}. "
        f"{name} is for {', '.join(users)}",
        field=name,
        limit=used,
    )


@cache
def _defaults(program: str) -> Mapping[str, Any]:
    """Every key's value in a spec that names the program alone; a key it does not use has the table's default."""
    keys = {**KEY_BY_NAME, **keys_of(program)}
    return {name: key.read(key.default) for name, key in keys.items()}


def _check_together(values: Mapping[str, Any]) -> None:
    """What no key can say alone.

    Raises:
        SpecError: two keys contradict each other.
    """
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
