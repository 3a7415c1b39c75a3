"""What a page of the chapter is: what it can be asked, what it answers, and the sources it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule.errors import InputError
from chainrule.spec.values import Key, read_keys

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Values of the inputs by name → what the page says, ready for JSON."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A function, a class or a file whose source a page shows as it is.

    Attributes:
        name: what the template calls it by.
        of: the function or class, or the file of another language.
        previous: name of the listing that this one improves on, whose lines are shown where they differ.
    """

    name: str
    of: Any | Path
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A graph in the explorer: what the link says, and the spec as its query string."""

    label: str
    query: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page at `/foundations/NAME`, with its twin at `/foundations/NAME.json`.

    Attributes:
        name: its place in the address.
        title: its heading.
        seed: the sections of the source documents that it makes runnable.
        lead: one sentence under the heading.
        inputs: what it can be asked; every one has a default.
        answer: what it says to that. Takes less than two seconds whatever the inputs admit; raises InputError where
            inputs do not go together.
        listings: sources it shows.
        links: graphs of it in the explorer.
        timed: the answer holds timings, so that it is another one each time.
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
        """Its address."""
        return f"/foundations/{self.name}"

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Every input's value by its name; an input that is not given has its default.

        Raises:
            InputError: a name is unknown, or a text cannot be read.
        """
        return read_keys(self.inputs, given, "this page", InputError)

    def ask(self, given: Mapping[str, str]) -> dict[str, Any]:
        """What the page answers to texts, as its JSON twin gives it.

        Raises:
            InputError: an input cannot be read, or does not go with the others.
        """
        return self.answer(self.read(given))
