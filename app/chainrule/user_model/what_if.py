"""A what-if: the changes to a user's model before it runs, a small flat set of values, like a spec.

The values come as strings (the page's query string) or as JSON values (a live message), with the same meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote_plus

from chainrule.errors import SpecError
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.values import Key, closest, read_keys, shown, value_text

AS_IT_IS = ""
"""The `init` that keeps the parameters' values."""

EVERYTHING = ""
"""The group of all parameters."""

MAX_NAMED = 12
"""Groups that an error message names."""

COMPILERS = ("aot_eager", "inductor")
"""The backends of torch.compile whose graphs can be recorded."""

WHAT_IF_KEYS: tuple[Key, ...] = (
    Key(
        "scale",
        1.0,
        "float",
        "Multiplies the parameters with 2 or more dimensions, and changes nothing else.",
        minimum=KEY_BY_NAME["scale"].minimum,
        maximum=KEY_BY_NAME["scale"].maximum,
    ),
    # Its choices are the model's own: `UserModel.groups`.
    Key(
        "group",
        EVERYTHING,
        "choice",
        "The path of the part of the model to change; empty for the whole model.",
        words="the path of a module",
    ),
    Key(
        "init",
        AS_IT_IS,
        "choice",
        "The initialization that redraws these parameters; empty to keep their values.",
        choices=(AS_IT_IS, *KEY_BY_NAME["init"].choices),
    ),
    Key(
        "seed",
        42,
        "int",
        "The seed of the new values, together with the parameter's name.",
        minimum=KEY_BY_NAME["seed"].minimum,
        maximum=KEY_BY_NAME["seed"].maximum,
    ),
    # Its default is the model's own: `UserModel.keys`. The option `level` of the formats is the depth of open groups.
    Key(
        "recording",
        "op",
        "choice",
        "The level of the recording: aten shows the ops of PyTorch's dispatcher inside each op; aot_eager and inductor "
        "show the graphs of torch.compile.",
        choices=("op", "aten", *COMPILERS),
    ),
)
"""Every key of a what-if, in the order of the canonical query string."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The changes, in this order: a new draw, then a scale. Immutable and hashable.

    Attributes:
        scale: multiplies every parameter of the group that has 2 or more dimensions, from 1e-4 to 1e4.
        group: the path of a module; "" is all of them.
        init: how these parameters are drawn anew, one of the spec's schemes; "" leaves their values.
        seed: what is drawn is drawn from (seed, parameter's name).
        recording: the level of the recording, see `chainrule.trace.record`; it changes no value.
        device: of the server, "cpu" or "cuda"; no key, and not compared.
    """

    scale: float = 1.0
    group: str = EVERYTHING
    init: str = AS_IT_IS
    seed: int = 42
    recording: str = "op"
    device: str = field(default="cpu", compare=False)

    @classmethod
    def parse(cls, values: Mapping[str, object], *, device: str = "cpu") -> Self:
        """Read a what-if from strings or JSON values. `UserModel.read` checks the group.

        Raises:
            SpecError: a key is unknown or a value is malformed or out of range; names key, value and what is allowed.
        """
        return cls(**read_keys(WHAT_IF_KEYS, values, "a what-if"), device=device)

    def query(self, keys: Sequence[Key] = WHAT_IF_KEYS) -> str:
        """The canonical query string: the keys that differ from the defaults, in the table's order; it may be empty."""
        pairs = ((key, getattr(self, key.name)) for key in keys)
        return "&".join(f"{key.name}={quote_plus(value_text(value))}" for key, value in pairs if value != key.default)

    def as_dict(self) -> dict[str, Any]:
        """Every key with its JSON value."""
        return {key.name: getattr(self, key.name) for key in WHAT_IF_KEYS}


def check_group(group: str, groups: Collection[str]) -> str:
    """Return the group, if it is one of these or everything.

    Raises:
        SpecError: an unknown group; the message names some groups.
    """
    if group == EVERYTHING or group in groups:
        return group
    some = sorted(groups, key=lambda path: (path.count("."), path))[:MAX_NAMED]
    rest = f" and {len(groups) - len(some)} more" if len(groups) > len(some) else ""
    there = f"such modules are {', '.join(some)}{rest}" if some else "the model has no such module"
    near = closest(group, list(groups))
    raise SpecError(
        f"group: {shown(group)} is not a module with a parameter of 2 or more dimensions; {there}"
        f"{near and f'; {near}'}",
        field="group",
        limit=some,
    )
