"""The glossary in `docs/glossary.md`, whose texts the page shows beside its marks."""

from __future__ import annotations

import re
from functools import cache

from chainrule.page import assets


def read_glossary(text: str) -> dict[str, dict[str, str]]:
    """The entries by slug: a heading of level 2 is the `term`, what stands below it the `text`.

    Raises:
        ValueError: two entries have one slug, or an entry has no text.
    """
    entries: dict[str, dict[str, str]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        term, _, body = section.partition("\n")
        slug = re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")
        if slug in entries:
            raise ValueError(f"two entries of the glossary have the slug {slug}")
        if not body.strip():
            raise ValueError(f"the glossary's entry {term} has no text")
        entries[slug] = {"term": term.strip(), "text": " ".join(body.split())}
    return entries


@cache
def glossary() -> dict[str, dict[str, str]]:
    """The entries of the file."""
    return read_glossary(assets.documents().joinpath("glossary.md").read_text(encoding="utf-8"))
