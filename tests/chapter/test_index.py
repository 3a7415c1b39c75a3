from pathlib import Path

import pytest

import chainrule
from chainrule.chapter.index import DOCUMENTS, SECTIONS
from chainrule.chapter.pages import ORDER, PAGES
from chainrule.web.foundations import index_answer

PACKAGE = Path(chainrule.__file__).parent


@pytest.mark.parametrize("section", SECTIONS, ids=[f"{each.document} {each.title}" for each in SECTIONS])
def test_a_section_names_pages_and_sources_that_exist(section):
    assert section.document in DOCUMENTS
    assert section.constructs
    assert section.pages
    assert set(section.pages) <= set(PAGES)
    assert section.sources
    assert [source for source in section.sources if not (PACKAGE / source).is_file()] == []


def test_the_index_as_json():
    assert {name for section in SECTIONS for name in section.pages} == set(PAGES)
    answer = index_answer()
    assert [page["path"] for page in answer["pages"]] == [f"/foundations/{name}" for name in ORDER]
    section = answer["sections"][1]
    assert section["constructs"][1] == "def relu(x): return x if x >= 0 else 0"
    assert (section["pages"], section["sources"]) == (["/foundations/neuron"], ["foundations/neuron.py"])
