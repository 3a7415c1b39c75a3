"""Modules of the page that need no document, run by Node.js, with answers of the server computed in this process."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from chainrule.settings import Settings
from chainrule.web.main import create_app


@pytest.fixture(scope="session")
def answer() -> Iterator[Callable[[str], str]]:
    """The text at a path of the server."""
    settings = Settings(**{name: field.default for name, field in Settings.model_fields.items()})
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        yield lambda path: client.get(path).raise_for_status().text


@pytest.fixture(scope="session")
def dump_of(answer: Callable[[str], str]) -> Callable[[str], dict[str, Any]]:
    """The graph dump of a query."""
    return lambda query: json.loads(answer(f"/api/v1/trace.json?{query}"))


@pytest.fixture(scope="session")
def profile_of(answer: Callable[[str], str]) -> Callable[[str], dict[str, Any]]:
    """The profile of a query."""
    return lambda query: json.loads(answer(f"/api/v1/profile.json?{query}"))
