"""A server answers before it is ready."""

import hashlib
import re
import socket
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from chainrule.settings import Settings
from chainrule.web.serve import AddressError, Start, bind
from chainrule.web.starting import StartingServer

PAGE = {"accept": "text/html,*/*;q=0.8"}


@pytest.fixture
def listener():
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        yield taken


@pytest.fixture
def starting(listener):
    server = StartingServer(listener, "Chainrule imports <PyTorch>")
    yield server
    server.end()


@pytest.fixture
def url(starting):
    return f"http://127.0.0.1:{starting.socket.getsockname()[1]}/"


def test_the_page_says_what_it_waits_for_and_may_run_only_its_own_script(url):
    answer = httpx.get(f"{url}runs?token=abc", headers=PAGE)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["cache-control"] == "no-store"
    assert "Chainrule imports &lt;PyTorch&gt;. The page opens as soon as this is done." in answer.text
    assert "abc" not in answer.text
    for kind in ("script", "style"):
        text = re.search(rf"<{kind}>(.*?)</{kind}>", answer.text, re.DOTALL)[1]
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
def test_other_requests_get_503_in_the_shape_of_all_errors(url, method):
    answer = httpx.request(method, f"{url}api/v1/trace.json")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": {"code": "busy", "message": "the server starts: Chainrule imports <PyTorch>"}}


def test_head_has_no_body(url):
    answer = httpx.head(url, headers=PAGE)
    assert (answer.status_code, answer.content) == (503, b"")
    assert int(answer.headers["content-length"]) > 1000


def test_nonsense_and_silence_keep_nobody_waiting(url, listener):
    address = listener.getsockname()
    with socket.create_connection(address), socket.create_connection(address) as client:
        client.sendall(b"\x00\xff\r\n\r\n")
        assert client.recv(10_000).startswith(b"HTTP/1.0 503 ")
        assert httpx.get(url).status_code == 503


def test_a_file_name_of_no_encoding_is_shown_as_far_as_it_goes(listener):
    server = StartingServer(listener, "Chainrule runs m\udcff.py")
    try:
        answer = httpx.get(f"http://127.0.0.1:{listener.getsockname()[1]}/", headers=PAGE)
        assert "Chainrule runs m?.py" in answer.text
    finally:
        server.end()


def test_after_the_end_a_connection_waits_for_the_server(listener, starting, url):
    with httpx.Client() as client, ThreadPoolExecutor() as threads:
        assert client.get(url).status_code == 503
        starting.end()
        waiting = threads.submit(httpx.get, url, timeout=60)
        with listener.accept()[0] as accepted:
            assert accepted.recv(1000).startswith(b"GET / ")
            accepted.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert waiting.result().status_code == 204


def test_a_loopback_server_listens_at_once_and_says_so(capsys):
    with Start(Settings(port=0), "runs#a=1", task="Chainrule waits") as start:
        link = capsys.readouterr().out.split(" starts at ")[1].strip()
        assert link.endswith("/runs#a=1")
        assert "Chainrule waits." in httpx.get(link, headers=PAGE).text
        start.tell()
        assert capsys.readouterr().out.endswith(f" is at {link}\n")
        port = start.listener.getsockname()[1]
        with pytest.raises(AddressError, match=f"port {port} on 127.0.0.1 is in use"):
            Start(Settings(port=port))


def test_a_public_server_refuses_connections_until_it_is_ready(capsys):
    with Start(Settings(host="0.0.0.0", port=0, token="a-token-of-mine"), "#view") as start:
        assert capsys.readouterr().out == ""
        address = "127.0.0.1", start.listener.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        start.listen()
        with socket.create_connection(address):
            start.tell()
        assert capsys.readouterr().out.endswith(f" is at http://127.0.0.1:{address[1]}/?token=a-token-of-mine#view\n")
