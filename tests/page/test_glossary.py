"""The glossary's entries, and the marks that name them."""

import re

import pytest

from chainrule.page import assets
from chainrule.page.glossary import glossary, read_glossary

pytestmark = pytest.mark.smoke


def test_entries_are_read_by_slug():
    text = "# Glossary\n\nWords.\n\n## Saved for backward\n\nOne line\nand another.\n\n## ∇:W ratio\n\nA share.\n"
    assert read_glossary(text) == {
        "saved-for-backward": {"term": "Saved for backward", "text": "One line and another."},
        "w-ratio": {"term": "∇:W ratio", "text": "A share."},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [("## A b\n\nx\n\n## a-b\n\ny\n", "two entries .* slug a-b"), ("## Empty\n\n## B\n\nx\n", "Empty has no text")],
)
def test_a_mistake_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        read_glossary(text)


def test_every_term_of_the_page_has_an_entry():
    texts = [
        path.read_text(encoding="utf-8")
        for folder, ending in ((assets.templates(), "*.html"), (assets.static(), "*.js"))
        for path in folder.rglob(ending)
    ]
    named = {term for text in texts for term in re.findall(r'(?:data-term=|"data-term": |\bterm: )"([^"]+)"', text)}
    assert named
    assert named <= set(glossary())
