"""Answers: entity tags and the one error shape."""

import json

import pytest
from starlette.datastructures import Headers

from chainrule.errors import BusyError, NotFoundError, SpecError
from chainrule.web import answers

pytestmark = pytest.mark.smoke


def test_a_tag_is_weak_and_depends_on_every_part():
    tag = answers.entity_tag("/a", "seed=1")
    assert tag.startswith('W/"')
    assert tag.endswith('"')
    assert tag == answers.entity_tag("/a", "seed=1")
    others = {
        answers.entity_tag("/a", "seed=2"),
        answers.entity_tag("/b", "seed=1"),
        answers.entity_tag("/aseed=1", ""),
    }
    assert len({tag, *others}) == 4


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ('W/"abc"', True),
        ('"abc"', True),
        ('"x", W/"abc" , "y"', True),
        ("*", True),
        ('W/"abcd"', False),
        ("abc", False),
        ("", False),
    ],
)
def test_tags_are_compared_weakly(header, expected):
    headers = Headers({} if header is None else {"if-none-match": header})
    assert answers.is_fresh(headers, 'W/"abc"') is expected


def test_an_error_is_json():
    answer = answers.error_answer("/api/v1/x", SpecError("scale: no", field="scale", limit={"minimum": 0}))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(answer.body) == {
        "error": {"code": "invalid_spec", "message": "scale: no", "field": "scale", "limit": {"minimum": 0}}
    }


def test_busy_has_retry_after():
    assert answers.error_answer("/x", BusyError("full", retry_after=7)).headers["retry-after"] == "7"


def test_an_error_of_a_page_is_an_escaped_page():
    answer = answers.error_answer("/", NotFoundError("<script>alert(1)</script>"))
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert b"<script" not in answer.body
    assert b"&lt;script&gt;" in answer.body
