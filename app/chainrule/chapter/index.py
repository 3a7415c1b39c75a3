"""Which section of the source documents stands on which page, in which source file, and which test holds it true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DOCUMENTS: Mapping[str, str] = {
    "002": "Notes on the fastai book, chapter 17: A Neural Net from the Foundations",
    "000": "The book's chapter 17: from LayerFunction to nn.Module",
    "001": "The PyTorch tutorial: extending torch.autograd and torch.nn",
    "003": "Custom PyTorch operators, part 6: torch.autograd.Function",
    "004": "Uses of a custom Function",
}
"""The documents the chapter's pages come from, by their number, in reading order."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a document, and where it can be run.

    Attributes:
        document: its number.
        title: its heading there.
        constructs: what of it is code, as it is written there.
        pages: names of the pages it stands on, the main one first.
        sources: files of the package that it stands in.
        tests: the tests that hold it to be true, file and name.
    """

    document: str
    title: str
    constructs: tuple[str, ...]
    pages: tuple[str, ...]
    sources: tuple[str, ...]
    tests: tuple[str, ...]


SECTIONS: tuple[Section, ...] = ()
"""Every section, in the order of the documents."""


def sections_of(page: str) -> tuple[Section, ...]:
    """The sections that stand on a page."""
    return tuple(section for section in SECTIONS if page in section.pages)
