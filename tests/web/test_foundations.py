"""The chapter's pages over HTTP: page and JSON, inputs at and past their limits, errors."""

import html
import re
from urllib.parse import urlencode

import orjson
import pytest

from chainrule.chapter.listings import read_listing
from chainrule.chapter.pages import PAGES
from chainrule.errors import InputError

EVERY = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@pytest.fixture
def client(shared_client):
    return shared_client


def edges(page):
    """Name, text and validity of each input at its limits, at its choices and past them."""
    for each in page.inputs:
        if each.minimum is not None:
            inside = [each.minimum, each.maximum]
            outside = [each.minimum - 1, 2 * abs(each.maximum) + 1, "", "x", "nan", "9" * 400]
        elif each.choices:
            inside, outside = list(each.choices), ["", "no such choice"]
        elif each.kind == "flag":
            inside, outside = ["true", "false"], ["", "1"]
        else:
            inside, outside = [], ["x" * 2001, "\x00", "💥", "<script>alert(1)</script>"]
        for value in inside:
            text = f"{value:.17g}" if isinstance(value, float) else str(value)
            yield each.name, text.removesuffix(".0"), True
        for value in outside:
            yield each.name, str(value), False


def readable(page, name, text):
    try:
        page.read({name: text})
    except InputError:
        return False
    return True


@EVERY
def test_the_page_and_its_twin_answer(client, page):
    answer = client.get(page.path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f"<h1>{html.escape(page.title)}</h1>" in answer.text
    assert f"/foundations/{page.name}.js" in answer.text
    twin = client.get(f"{page.path}.json")
    assert (twin.status_code, twin.headers["content-type"]) == (200, "application/json")
    assert page.timed or twin.json() == orjson.loads(orjson.dumps(page.ask({})))


WITHOUT_CONTROL = {("arithmetic", "op"), ("matmul", "rungs")}
"""Set by the rows of a table, and by the page's script during the race."""


@EVERY
def test_every_input_has_a_control_a_default_and_a_description(client, page):
    text = client.get(page.path).text
    for each in page.inputs:
        assert each.read(each.default) is not None
        controls = 0 if (page.name, each.name) in WITHOUT_CONTROL else 1
        assert text.count(f'id="input-{each.name}"') == controls, each.name
        assert each.doc.endswith(".")
        assert each.allowed
    for listing in page.listings:
        assert text.count(f'id="listing-{listing.name}"') == 1, listing.name


@EVERY
def test_a_page_lists_textbook_code_and_links_to_graphs(client, page):
    files = [read_listing(listing, page.listings).file for listing in page.listings]
    assert any(file.startswith("chainrule/foundations/") for file in files)
    assert page.links
    for link in page.links:
        answer = client.get(f"/api/v1/trace.json?{link.query}")
        # 501: the extension is not installed.
        assert answer.status_code in (200, 501), (link, answer.text)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=pytest.mark.long if name in ("initialization", "gradcheck", "matmul") else [])
        for name, page in PAGES.items()
    ],
)
def test_inputs_at_their_limits_are_accepted(client, page):
    for name, text, allowed in edges(page):
        if allowed:
            answer = client.get(f"{page.path}.json?{urlencode({name: text})}")
            assert answer.status_code == 200, (name, text, answer.text[:300])


@EVERY
def test_inputs_past_their_limits_are_refused(client, page):
    for name, text, allowed in edges(page):
        if allowed:
            continue
        query = urlencode({name: text})
        answer = client.get(f"{page.path}.json?{query}")
        assert answer.status_code == 422, (name, text, answer.text[:300])
        error = answer.json()["error"]
        assert (error["code"], error["field"]) == ("invalid_input", name)
        assert len(error["message"]) < 1000
        opened = client.get(f"{page.path}?{query}")
        # A page opens where only the computation can tell that a text is wrong, and explains it in place.
        assert opened.status_code == (200 if readable(page, name, text) else 422)
        assert "<script>alert(1)</script>" not in opened.text


TEXTS = (
    *("", " ", "5", " -5 ", "−5", "1e-3", ".5", "5.", "nan", "-inf", "1,2", "1,2,", "1,", "1 , 2", "1,2;3,4", "1,2;"),
    *("[1]", "[1,2]", "[[1,2],[3,4]]", "[[1],[2]", "[[[1]]]", "[]", "[[]]", "()", "(3,)", "3,1,5", "(200,1)", ","),
    *("1,2;3", "3,2;2,3", "();3", "loops", "einsum, @", "loops,", "x", "1e", "0x5", "1,2)", "٣", "True", "e", ";;"),
)


@EVERY
def test_openapi_allows_every_readable_input(client, page):
    operation = client.get("/openapi.json").json()["paths"][f"{page.path}.json"]["get"]
    schemas = {each["name"]: each["schema"] for each in operation["parameters"]}
    assert list(schemas) == [each.name for each in page.inputs]
    for each in page.inputs:
        schema = schemas[each.name]
        if each.minimum is not None:
            whole = each.allowed.startswith("an integer")
            assert schema["type"] == ("integer" if whole else "number")
            assert type(schema["default"]) is int or not whole
            assert (schema["minimum"], schema["maximum"]) == (each.minimum, each.maximum)
        elif each.kind == "text":
            assert schema["maxLength"] == 2000
            assert ("pattern" in schema) == ((page.name, each.name) not in FREE)
            for text in (each.default, *TEXTS):
                if readable(page, each.name, text):
                    assert re.search(schema.get("pattern", ""), text), (each.name, text)
            for text in ("x", "1 2", "0x5", "<", "1e", "٣"):
                assert "pattern" not in schema or not re.search(schema["pattern"], text), (each.name, text)


FREE = {("einsum", "equation"), ("einsum", "sublists")}
"""Inputs without a pattern: only the reader of the equation can judge them."""


def test_a_refused_page_keeps_the_values(client):
    answer = client.get("/foundations/matmul?m=0&k=7")
    assert answer.status_code == 422
    assert 'value="0"' in answer.text
    assert 'value="7"' in answer.text
    assert "m: &#39;0&#39; is not an integer from 1" in answer.text


def test_the_index_lists_every_page(client):
    for path in ("/foundations", "/foundations/"):
        text = client.get(path).text
        for page in PAGES.values():
            assert f'href="{page.path}"' in text
    answer = client.get("/foundations.json")
    assert {"path", "title", "seed"} <= answer.json()["pages"][0].keys()
    again = client.get("/foundations.json", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


def test_unknown_pages_and_inputs_and_two_values_are_refused(client):
    answer = client.get("/foundations/nosuch")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert client.get("/foundations/nosuch.json").json()["error"]["code"] == "not_found"
    for query, field in (("nosuch=1", "nosuch"), ("m=1&m=2", "m")):
        answer = client.get(f"/foundations/matmul.json?{query}")
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
        answer = client.get(f"/foundations/matmul?{query}")
        assert answer.status_code == 422
        assert field in answer.text
