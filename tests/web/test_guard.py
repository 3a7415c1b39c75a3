"""The guard: who gets in, and what every answer carries. Tested around an app of a few lines."""

import logging

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from chainrule.settings import Settings
from chainrule.web.guard import COOKIE, SECURITY_HEADERS, Guard, host_allowed, same_origin, split_token

TOKEN = "correct-horse-battery"


async def echo(request):
    return JSONResponse({"method": request.method, "path": request.url.path, "query": request.url.query})


async def broken(_):
    raise RuntimeError("a secret of the inside")


async def half(_):
    async def chunks():
        yield b"half"
        raise RuntimeError("a secret of the inside")

    return StreamingResponse(chunks())


async def socket(websocket):
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


@pytest.fixture
def guarded(settings):
    def make(**changes):
        return Starlette(
            routes=[
                Route("/", echo, methods=["GET"]),
                Route("/echo", echo, methods=["GET", "POST"]),
                Route("/healthz", echo),
                Route("/readyz", echo),
                Route("/broken", broken),
                Route("/half", half),
                WebSocketRoute("/socket", socket),
            ],
            middleware=[Middleware(Guard, settings=settings.model_copy(update=changes))],
        )

    return make


def secured(answer):
    return all(answer.headers.get(name) == value for name, value in SECURITY_HEADERS.items())


def with_token(token=TOKEN):
    return Settings(token=token).token


# Headers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 200), ("GET", "/nowhere", 404), ("POST", "/", 405), ("GET", "/broken", 500), ("HEAD", "/echo", 200)],
)
def test_every_answer_carries_the_security_headers(guarded, open_client, method, path, status):
    answer = open_client(guarded()).request(method, path)
    assert answer.status_code == status
    assert secured(answer)
    # One of each: a second policy would be combined with the first.
    names = [name for name, _ in answer.headers.multi_items()]
    assert len(names) == len(set(names))


def test_the_policy_allows_no_inline_script_and_no_other_server():
    policy = dict(part.strip().split(" ", 1) for part in SECURITY_HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["object-src"] == policy["base-uri"] == "'none'"
    assert policy["frame-ancestors"] == "'self'"
    assert "http" not in SECURITY_HEADERS["content-security-policy"]


def test_refusals_carry_them_too(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    for answer in (
        client.get("/echo"),
        client.get("/echo", headers={"host": "elsewhere.example"}),
        client.request("POST", "/echo", headers={"origin": "http://elsewhere.example"}),
        client.get(f"/echo?token={TOKEN}"),
    ):
        assert answer.status_code in (303, 400, 401, 403)
        assert secured(answer)


def test_a_crash_says_nothing_and_is_logged(guarded, open_client, caplog):
    with caplog.at_level(logging.ERROR):
        answer = open_client(guarded()).get("/broken?scale=3")
    assert answer.json() == {
        "error": {"code": "internal", "message": "something broke while answering; the server's log says what"}
    }
    assert "a secret of the inside" in caplog.text
    assert "RuntimeError" in caplog.text


def test_half_an_answer_is_not_passed_off_as_whole(guarded, serve):
    import httpx

    address = serve(guarded())
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
        httpx.get(f"http://{address}/half", timeout=5)


def test_head_has_the_headers_of_get_and_no_body(guarded, open_client):
    client = open_client(guarded())
    get, head = client.get("/echo?a=1"), client.request("HEAD", "/echo?a=1")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers == get.headers
    assert int(head.headers["content-length"]) == len(get.content)


# Host ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8000", True),
        ("localhost:9", True),
        ("LOCALHOST", True),
        ("[::1]:8000", True),
        ("class.example:8000", True),
        ("elsewhere.example", False),
        ("sub.class.example", False),
        ("localhost.elsewhere.example", False),
        ("192.168.1.4:8000", False),
        ("", False),
        ("localhost@elsewhere.example", False),
        ("elsewhere.example/localhost", False),
        ("localhost#", False),
        ("[::1", False),
    ],
)
def test_which_hosts_a_loopback_server_answers_to(settings, host, expected):
    assert host_allowed(host, settings.model_copy(update={"allowed_hosts": ("class.example",)})) is expected


def test_beyond_loopback_any_address_is_the_servers_but_names_must_be_known(settings):
    public = settings.model_copy(update={"host": "0.0.0.0"})
    assert host_allowed("192.168.1.4:8000", public)
    assert host_allowed("[fe80::1]:8000", public)
    assert not host_allowed("rebound.example:8000", public)
    assert host_allowed("rebound.example", public.model_copy(update={"allowed_hosts": ("*",)}))
    assert host_allowed("box.local:1", settings.model_copy(update={"host": "box.local"}))


def test_a_foreign_host_is_refused_before_anything_else(guarded, open_client):
    answer = open_client(guarded()).get("/broken", headers={"host": "rebound.example"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "host_not_allowed"
    assert "rebound.example" in answer.json()["error"]["message"]


# Origin --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("https://class.example", "class.example", True),
        ("HTTP://x", "x", False),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", False),
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        ("", "127.0.0.1:8000", False),
        ("file://", "", False),
        ("http://127.0.0.1:8000.elsewhere.example", "127.0.0.1:8000", False),
    ],
)
def test_which_origins_are_the_same(origin, host, expected):
    assert same_origin(origin, host) is expected


@pytest.mark.parametrize("origin", ["null", "http://elsewhere.example", "https://127.0.0.1"])
def test_writing_from_elsewhere_is_refused_and_reading_is_the_browsers_business(guarded, open_client, origin):
    client = open_client(guarded())
    answer = client.request("POST", "/echo", headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"
    assert client.get("/echo", headers={"origin": origin}).status_code == 200
    assert "access-control-allow-origin" not in client.get("/echo", headers={"origin": origin}).headers


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),
        ("same", 101),
        ("null", 403),
        ("http://elsewhere.example", 403),
        ("http://127.0.0.1:1", 403),
    ],
)
def test_a_websocket_from_elsewhere_is_refused(guarded, serve, origin, status):
    address = serve(guarded())
    headers = {} if origin is None else {"Origin": f"http://{address}" if origin == "same" else origin}
    if status == 101:
        with connect(f"ws://{address}/socket", additional_headers=headers) as websocket:
            assert websocket.recv(timeout=5) == "hello"
        return
    with pytest.raises(InvalidStatus) as caught:
        connect(f"ws://{address}/socket", additional_headers=headers)
    answer = caught.value.response
    assert answer.status_code == status
    assert b"origin_not_allowed" in answer.body
    assert answer.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]


def test_a_websocket_needs_host_token_and_a_route(guarded, serve):
    address = serve(guarded(token=with_token()))

    def refused(path, **headers):
        with pytest.raises(InvalidStatus) as caught:
            connect(f"ws://{address}{path}", additional_headers=headers)
        return caught.value.response.status_code

    assert refused("/socket") == 401
    assert refused("/socket", Cookie=f"{COOKIE}=wrong-wrong") == 401
    # A link is for people: a socket does not take the token from the address.
    assert refused(f"/socket?token={TOKEN}") == 401
    assert refused("/nowhere", Cookie=f"{COOKIE}={TOKEN}") == 404
    with connect(f"ws://{address}/socket", additional_headers={"Cookie": f"{COOKIE}={TOKEN}"}) as websocket:
        assert websocket.recv(timeout=5) == "hello"


# Token ---------------------------------------------------------------------------------------------------------------


def test_a_link_becomes_a_cookie_and_leaves_the_address(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    answer = client.get(f"/echo?widths=100x51&token={TOKEN}&seed=1%20")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/echo?widths=100x51&seed=1%20"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={TOKEN};")
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert attribute in cookie
    assert "Secure" not in cookie
    assert answer.headers["cache-control"] == "no-store"
    # The client kept the cookie: it is in.
    assert client.get("/echo").status_code == 200


def test_the_cookie_of_a_secure_server_is_secure(guarded, open_client):
    client = open_client(guarded(token=with_token()), base_url="https://127.0.0.1:8000")
    assert "Secure" in client.get(f"/?token={TOKEN}").headers["set-cookie"]


@pytest.mark.parametrize("path", ["//elsewhere.example/", "/\\elsewhere.example", "/%5Celsewhere.example", "///x"])
def test_a_link_never_leads_to_another_host(guarded, open_client, path):
    location = (
        open_client(guarded(token=with_token())).get(f"http://127.0.0.1:8000{path}?token={TOKEN}").headers["location"]
    )
    assert location.startswith("/")
    assert location[1:2] not in ("/", "\\")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": f"Bearer {TOKEN}x"},
        {"cookie": f"{COOKIE}=wrong"},
        {"cookie": f"other={TOKEN}"},
        {"cookie": "\x01;;=,"},
    ],
)
def test_without_the_token_nobody_gets_in(guarded, open_client, headers):
    answer = open_client(guarded(token=with_token())).get("/echo", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text


@pytest.mark.parametrize("neighbour", ["weird[1]=x", 'quote="', "=;;", "a b=c"])
def test_another_programs_odd_cookie_locks_nobody_out(guarded, open_client, neighbour):
    client = open_client(guarded(token=with_token()))
    for cookie in (f"{neighbour}; {COOKIE}={TOKEN}", f"{COOKIE}={TOKEN}; {neighbour}"):
        assert client.get("/echo", headers={"cookie": cookie}).status_code == 200


def test_a_wrong_link_sets_no_cookie(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    for query in ("token=wrong-wrong", "token=", "token=%ff", "token=\N{LATIN SMALL LETTER U WITH DIAERESIS}"):
        answer = client.get(f"/echo?{query}")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_bearer_token_admits(guarded, open_client, scheme):
    client = open_client(guarded(token=with_token()))
    assert client.get("/echo", headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 200


def test_a_person_without_the_token_sees_a_page(guarded, open_client):
    answer = open_client(guarded(token=with_token())).get("/")
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert "open the complete link" in answer.text
    assert secured(answer)


def test_probes_need_neither_host_nor_token(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    for path in ("/healthz", "/readyz"):
        assert client.get(path, headers={"host": "10.2.3.4"}).status_code == 200


def test_an_old_link_to_a_server_that_needs_no_token_still_works(guarded, open_client):
    answer = open_client(guarded()).get("/?seed=1&token=whatever")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?seed=1"
    assert "set-cookie" not in answer.headers


def test_splitting_a_token_off_leaves_the_rest_as_it_was():
    assert split_token(b"a=%2F&token=x&b=+&a=2") == ("x", "a=%2F&b=+&a=2")
    assert split_token(b"") == (None, "")
    assert split_token(b"tokens=1") == (None, "tokens=1")
