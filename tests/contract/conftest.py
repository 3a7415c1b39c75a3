"""The contract is tested over the wire, against `chainrule serve` as a user starts it."""

import httpx
import pytest


@pytest.fixture(scope="session")
def http(server_url):
    with httpx.Client(base_url=server_url, timeout=30) as client:
        yield client
