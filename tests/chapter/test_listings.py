import ast
import inspect
from pathlib import Path

import pytest

import chainrule
from chainrule.chapter.listings import read_listing
from chainrule.chapter.page import Listing
from chainrule.chapter.pages import PAGES
from chainrule.foundations import layer_function, layers

PACKAGE = Path(chainrule.__file__).parent


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_line_is_in_the_file_at_its_number(page):
    for listing in page.listings:
        source = read_listing(listing, page.listings)
        file = (PACKAGE.parent / source.file).read_text(encoding="utf-8").splitlines()
        lines = [line for line in source.lines if line.change != "old"]
        assert lines
        assert [file[line.number - 1].strip() for line in lines] == [line.text.strip() for line in lines]
        numbers = [line.number for line in lines]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("of", [layers.lin, layers.lin_grad, layers.Lin, layers.Model, layer_function.Lin])
def test_only_docstrings_are_left_out(of):
    shown = "\n".join(line.text for line in read_listing(Listing("it", of)).lines)
    meant = ast.parse(inspect.getsource(of))
    for node in ast.walk(meant):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    assert ast.unparse(ast.parse(shown)) == ast.unparse(meant)


def test_lines_that_differ_from_the_previous_listing_are_marked():
    old, new = Listing("classes", layers.Relu), Listing("layer_function", layer_function.Relu, previous="classes")
    lines = read_listing(new, (old, new)).lines
    by_change = {change: [line.text for line in lines if line.change == change] for change in ("", "new", "old")}
    assert any("def __call__" in text for text in by_change["old"])
    assert any("def forward" in text for text in by_change["new"])
    assert [line.text for line in lines if line.change != "old"] == [
        line.text for line in read_listing(Listing("it", layer_function.Relu)).lines
    ]


def test_a_file_of_another_language_is_shown_with_its_colours():
    source = read_listing(Listing("kernel", PACKAGE / "stats" / "_kernel.c"))
    assert source.file == "chainrule/stats/_kernel.c"
    assert any(kind == "comment" for line in source.lines for _, kind in line.parts)
