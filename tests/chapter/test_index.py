from pathlib import Path

import pytest

import chainrule
from chainrule.chapter.index import DOCUMENTS, SECTIONS
from chainrule.chapter.pages import ORDER, PAGES
from chainrule.web.foundations import index_answer

PACKAGE = Path(chainrule.__file__).parent


def test_every_page_is_in_the_index():
    assert tuple(PAGES) == ORDER
    for name, page in PAGES.items():
        assert page.name == name
        assert any(name in section.pages for section in SECTIONS), name


@pytest.mark.parametrize("section", SECTIONS, ids=[f"{each.document} {each.title}" for each in SECTIONS])
def test_a_section_names_sources_that_exist(section):
    assert section.document in DOCUMENTS
    assert section.pages
    assert set(section.pages) <= set(PAGES)
    assert section.sources
    for source in section.sources:
        assert (PACKAGE / source).is_file(), source


def test_the_index_as_json():
    answer = index_answer()
    assert [page["path"] for page in answer["pages"]] == [f"/foundations/{name}" for name in ORDER]
    assert all(page["title"] and page["seed"] for page in answer["pages"])
    assert len(answer["sections"]) == len(SECTIONS)
    assert answer["sections"][0]["pages"] == ["/foundations/neuron"]
