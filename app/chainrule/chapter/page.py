"""A page of the chapter: its inputs, its answer, and the sources it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule.errors import InputError
from chainrule.spec.values import Key, read_keys

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""The values of the inputs by name → the page's answer, ready for JSON."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A function, class or file whose source a page shows; `previous` names the listing that it improves."""

    name: str
    of: Any | Path
    previous: str | None = None


def listings(*sources: Any) -> tuple[Listing, ...]:
    """A listing per function, class or file, under its name."""
    return tuple(Listing(of.name if isinstance(of, Path) else of.__name__, of) for of in sources)


@dataclass(frozen=True, slots=True)
class Link:
    """A graph in the explorer: the link's text, and the query string of its spec."""

    label: str
    query: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page at `/foundations/NAME`, with its twin at `/foundations/NAME.json`.

    `seed`: the sections of the source documents that it makes runnable; `lead`: one sentence under the heading. All
    inputs have defaults. `answer` takes less than two seconds for any inputs, and raises InputError for inputs that do
    not go together. `timed`: the answer holds timings, so it changes every time.
    """

    name: str
    title: str
    seed: str
    lead: str
    inputs: tuple[Key, ...]
    answer: Answer
    listings: tuple[Listing, ...] = ()
    links: tuple[Link, ...] = ()
    timed: bool = False

    @property
    def path(self) -> str:
        """The page's address."""
        return f"/foundations/{self.name}"

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Every input's value by its name; the default of those not given. Raises InputError."""
        return read_keys(self.inputs, given, "this page", InputError)

    def ask(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The answer of the JSON twin. Raises InputError if inputs cannot be read or do not go together."""
        return self.answer(self.read(given))
