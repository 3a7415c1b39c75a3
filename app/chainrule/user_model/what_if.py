"""What is changed on a copy of one's own model before it runs: a small flat set of values, like a spec.

The same values come as strings (the page's query string) or as JSON values (a live message), and mean the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote_plus

from chainrule.errors import SpecError
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.model_spec import read_query
from chainrule.spec.values import Key, closest, read_keys, shown, value_text

AS_IT_IS = ""
"""The scheme of parameters that are not drawn anew."""

EVERYTHING = ""
"""The group of all parameters: the model itself."""

MOST_NAMED = 12
"""So many groups an error message names."""

WHAT_IF_KEYS: tuple[Key, ...] = (
    Key(
        "scale",
        1.0,
        "float",
        "Multiplies the parameters with 2 or more dimensions; their values stay the same but for it.",
        minimum=KEY_BY_NAME["scale"].minimum,
        maximum=KEY_BY_NAME["scale"].maximum,
    ),
    # Its choices are the model's own: `OwnModel.groups`.
    Key(
        "group",
        EVERYTHING,
        "choice",
        "Which part of the model is changed, by its path; all of it if empty.",
        words="the path of a module",
    ),
    Key(
        "init",
        AS_IT_IS,
        "choice",
        "How these parameters are drawn anew; left as they are if empty.",
        choices=(AS_IT_IS, *KEY_BY_NAME["init"].choices),
    ),
    Key(
        "seed",
        42,
        "int",
        "What is drawn anew is drawn from this and the parameter's name.",
        minimum=KEY_BY_NAME["seed"].minimum,
        maximum=KEY_BY_NAME["seed"].maximum,
    ),
)
"""Every key of a what-if, in the order of the canonical query string."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is changed on a copy, in this order: a new draw, then a scale. Immutable and hashable.

    Attributes:
        scale: multiplies every parameter of the group that has 2 or more dimensions, from 1e-4 to 1e4.
        group: the path of a module; "" is all of them.
        init: how these parameters are drawn anew, one of the spec's schemes; "" leaves their values.
        seed: what is drawn is drawn from (seed, parameter's name).
        device: the server's device that it is computed on, "cpu" or "cuda"; no key, and not to be compared.
    """

    scale: float = 1.0
    group: str = EVERYTHING
    init: str = AS_IT_IS
    seed: int = 42
    device: str = field(default="cpu", compare=False)

    @classmethod
    def parse(cls, values: Mapping[str, object], *, device: str = "cpu") -> Self:
        """Read a what-if from strings or JSON values. Whether the model has the group is `OwnModel.read`'s to say.

        Raises:
            SpecError: a key is unknown or a value is malformed or out of range; names key, value and what is allowed.
        """
        return cls(**read_keys(WHAT_IF_KEYS, values, "a what-if"), device=device)

    @classmethod
    def from_query(cls, query: str, *, device: str = "cpu") -> Self:
        """Read a what-if from a query string such as `scale=2&group=layers.0`.

        Raises:
            SpecError: see `parse`; also for a key that is given twice.
        """
        return cls.parse(read_query(query), device=device)

    @property
    def changes_nothing(self) -> bool:
        """Whether the copy is the model as it is."""
        return self.scale == 1.0 and self.init == AS_IT_IS

    def query(self) -> str:
        """The canonical query string: the keys that differ from the defaults, in the table's order; it may be empty."""
        pairs = ((key, getattr(self, key.name)) for key in WHAT_IF_KEYS)
        return "&".join(f"{key.name}={quote_plus(value_text(value))}" for key, value in pairs if value != key.default)

    def as_dict(self) -> dict[str, Any]:
        """Every key with its JSON value."""
        return {key.name: getattr(self, key.name) for key in WHAT_IF_KEYS}


def check_group(group: str, groups: Collection[str]) -> str:
    """The group itself, if it is one of these or everything.

    Raises:
        SpecError: it is none of them; names some that there are.
    """
    if group == EVERYTHING or group in groups:
        return group
    some = sorted(groups, key=lambda path: (path.count("."), path))[:MOST_NAMED]
    rest = f" and {len(groups) - len(some)} more" if len(groups) > len(some) else ""
    there = f"what has some is {', '.join(some)}{rest}" if some else "and no other module has one"
    near = closest(group, list(groups))
    raise SpecError(
        f"group: {shown(group)} is no module with a parameter of 2 or more dimensions; {there}{near and f'; {near}'}",
        field="group",
        limit=some,
    )
