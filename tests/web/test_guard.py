"""The guard around a small app: hosts, origins, tokens, headers and limits."""

import asyncio
from socket import create_connection

import pytest
from served import wait_for
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from chainrule.settings import Settings
from chainrule.web.guard import SECURITY_HEADERS, Guard, cookie_name, host_allowed, split_token
from chainrule.web.metrics import Metrics

TOKEN = "correct-horse-battery"
COOKIE = cookie_name(TOKEN)


async def echo(request):
    return JSONResponse({"method": request.method, "path": request.url.path, "query": request.url.query})


async def broken(_):
    raise RuntimeError("a secret of the inside")


async def socket(websocket):
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


class Busy:
    """Routes that wait for `go`."""

    def __init__(self):
        self.open = 0
        self.go = asyncio.Event()

    async def request(self, request):
        with self:
            await self.go.wait()
            return await echo(request)

    async def stream(self, _):
        async def parts():
            with self:
                yield b"begun"
                await self.go.wait()
                yield b"done"

        return StreamingResponse(parts())

    async def socket(self, websocket):
        with self:
            await websocket.accept()
            await websocket.receive()

    def __enter__(self):
        self.open += 1

    def __exit__(self, *_):
        self.open -= 1


@pytest.fixture
def busy():
    return Busy()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def guarded(settings, busy, metrics):
    def make(**changes):
        return Starlette(
            routes=[
                Route("/", echo, methods=["GET"]),
                Route("/echo", echo, methods=["GET", "POST"]),
                Route("/healthz", echo),
                Route("/readyz", echo),
                Route("/broken", broken),
                Route("/static/{name}", echo),
                Route("/busy", busy.request, methods=["GET", "POST"]),
                Route("/stream", busy.stream),
                WebSocketRoute("/socket", socket),
                WebSocketRoute("/held", busy.socket),
            ],
            middleware=[Middleware(Guard, settings=settings.model_copy(update=changes), metrics=metrics)],
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


# Host ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("localhost:9", True),
        ("[::1]:8000", True),
        ("class.example:8000", True),
        ("elsewhere.example", False),
        ("localhost.elsewhere.example", False),
        ("192.168.1.4:8000", False),
        ("", False),
        ("localhost@elsewhere.example", False),
        ("elsewhere.example/localhost", False),
        ("[::1", False),
        ("127.0.0.1:65535", True),
        ("127.0.0.1:65536", False),
        ("127.0.0.1:evil.example", False),
        ("127.0.0.1:80:80", False),
        ("127.0.0.1:\N{SUPERSCRIPT TWO}", False),
        ("127.0.0.1\n", False),
        ("[::1]evil.example", False),
        ("[::1%25evil]", False),
        ("[127.0.0.1]", False),
        ("::1", False),
    ],
)
def test_hosts_of_a_loopback_server(settings, host, expected):
    assert host_allowed(host, settings.model_copy(update={"allowed_hosts": ("class.example",)})) is expected


def test_hosts_of_a_public_server(settings):
    public = settings.model_copy(update={"host": "0.0.0.0"})
    assert host_allowed("192.168.1.4:8000", public)
    assert host_allowed("[fe80::1]:8000", public)
    assert not host_allowed("rebound.example:8000", public)
    assert host_allowed("rebound.example", public.model_copy(update={"allowed_hosts": ("*",)}))
    for junk in ("192.168.1.4:evil.example", "[fe80::1]evil.example", "[fe80::1%25eth0]", "rebound.example:x", "::"):
        assert not host_allowed(junk, public.model_copy(update={"allowed_hosts": ("*",)})), junk
    assert host_allowed("box.local:1", settings.model_copy(update={"host": "box.local"}))


# Origin --------------------------------------------------------------------------------------------------------------


ORIGINS = {
    None: True,
    "http://{host}": True,
    "https://{host}": True,
    "http://{host}/": False,
    "http://{host}:1": False,
    "http://user@{host}": False,
    "http://{host}.elsewhere.example": False,
    "http://elsewhere.example": False,
    "http://elsewhere.example/{host}": False,
    "ws://{host}": False,
    "file://": False,
    "chrome-extension://{host}": False,
    "{host}": False,
    "null": False,
    "": False,
    " ": False,
}

HOSTS = {
    "127.0.0.1:8000": True,
    "localhost": True,
    "[::1]:8000": True,
    "class.example": True,
    "CLASS.example:8000": True,
    "class.example.": False,
    "elsewhere.example": False,
    "127.0.0.1.elsewhere.example": False,
    "10.1.2.3": False,
    "0.0.0.0": False,
    "class.example@elsewhere.example": False,
}


@pytest.mark.parametrize("host", HOSTS)
def test_requests_need_an_allowed_host_and_its_origin(guarded, open_client, host):
    """Every method checks Host; methods that write check Origin too."""
    client = open_client(guarded(allowed_hosts=("class.example",)))
    for origin, same in ORIGINS.items():
        headers = {"host": host} if origin is None else {"host": host, "origin": origin.format(host=host)}
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            answer = client.request(method, "/echo", headers=headers)
            if HOSTS[host] and same:
                assert answer.status_code == (200 if method == "POST" else 405)
            else:
                code = "origin_not_allowed" if HOSTS[host] else "host_not_allowed"
                assert answer.json()["error"]["code"] == code, (method, origin)
        for method in ("GET", "HEAD"):
            assert client.request(method, "/echo", headers=headers).status_code == (200 if HOSTS[host] else 400)


def test_handshakes_need_an_allowed_host_and_its_origin(guarded, serve):
    name, port = serve(guarded(allowed_hosts=("class.example",))).split(":")
    for host in HOSTS:
        for origin, same in ORIGINS.items():
            given = "" if origin is None else f"Origin: {origin.format(host=host)}\r\n"
            with create_connection((name, int(port)), 10) as client:
                client.sendall(
                    f"GET /held HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{given}"
                    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
                )
                status = int(client.recv(1 << 16).split()[1])
            assert status == (400 if not HOSTS[host] else 101 if same else 403), (host, origin)


def test_each_of_two_origins_must_be_allowed(guarded, open_client):
    client = open_client(guarded())
    mine = ("origin", "http://127.0.0.1:8000")
    assert client.request("POST", "/echo", headers=[mine]).status_code == 200
    for headers in ([mine, ("origin", "null")], [("origin", "null"), mine]):
        assert client.request("POST", "/echo", headers=headers).status_code == 403


def test_the_scheme_of_an_origin_must_match(guarded, open_client):
    client = open_client(guarded(), base_url="https://127.0.0.1:8000")
    for scheme, status in (("https", 200), ("http", 403)):
        headers = {"origin": f"{scheme}://127.0.0.1:8000"}
        assert client.request("POST", "/echo", headers=headers).status_code == status


# Mode and destination as Chromium sends them.
LOADS = {
    "link": ("navigate", "document", True),
    "frame": ("navigate", "iframe", False),
    "object": ("navigate", "object", False),
    "picture": ("no-cors", "image", False),
    "script": ("no-cors", "script", False),
    "prefetch": ("no-cors", "empty", False),
    "fetch": ("cors", "empty", False),
    "module": ("cors", "script", False),
}


@pytest.mark.parametrize("path", ["/", "/echo", "/echo?token=anything", "/static/icon.svg", "/healthz"])
@pytest.mark.parametrize("load", LOADS)
def test_pages_elsewhere_may_link_here_and_load_nothing(guarded, open_client, load, path):
    client = open_client(guarded())
    mode, destination, visits = LOADS[load]
    for site in ("none", "same-origin", "same-site", "cross-site"):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": destination}
        answer = client.get(path, headers=headers)
        if visits or site in ("none", "same-origin") or path in ("/static/icon.svg", "/healthz"):
            assert answer.status_code == (303 if "token" in path else 200), site
        else:
            assert answer.status_code == 403, site
            assert secured(answer)
            if path == "/echo":
                assert answer.json()["error"]["code"] == "origin_not_allowed"


def test_a_navigation_without_a_destination_is_allowed(guarded, open_client):
    client = open_client(guarded())
    for mode, status in (("navigate", 200), ("no-cors", 403)):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode}
        assert client.get("/echo", headers=headers).status_code == status


def test_a_foreign_origin_may_not_post_by_navigation(guarded, open_client):
    client = open_client(guarded())
    for mode in ("navigate", "cors"):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode, "sec-fetch-dest": "document"}
        for origin in ({"origin": "http://elsewhere.example"}, {"origin": "null"}):
            answer = client.request("POST", "/echo", headers=headers | origin)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")


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
    for attribute in ("HttpOnly", "SameSite=lax", "Path=/"):
        assert attribute in cookie
    assert "Secure" not in cookie
    assert answer.headers["cache-control"] == "no-store"
    assert secured(answer)
    # The client kept the cookie: it is in.
    assert client.get("/echo").status_code == 200


def test_servers_on_one_host_have_separate_cookies(guarded, open_client):
    """Cookies have a host and no port."""
    one, other = "correct-horse-battery", "another-long-token"
    first, second = (open_client(guarded(token=with_token(each))) for each in (one, other))
    jar = {}
    for client, token in ((first, one), (second, other)):
        name, _, value = client.get(f"/?token={token}").headers["set-cookie"].partition(";")[0].partition("=")
        jar[name] = value
    assert len(jar) == 2
    cookies = "; ".join(f"{name}={value}" for name, value in jar.items())
    for client in (first, second):
        assert client.get("/echo", headers={"cookie": cookies}).status_code == 200


def test_the_cookie_name_is_a_hash_of_the_token():
    assert cookie_name(TOKEN) == "chainrule_61105c51"
    assert cookie_name("another-long-token") != cookie_name(TOKEN)


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
def test_requests_without_the_token_are_refused(guarded, open_client, headers):
    answer = open_client(guarded(token=with_token())).get("/echo", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text
    assert secured(answer)


@pytest.mark.parametrize("neighbour", ["weird[1]=x", 'quote="', "=;;", "a b=c"])
def test_malformed_cookies_of_other_programs_are_ignored(guarded, open_client, neighbour):
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


def test_a_browser_without_the_token_gets_a_page(guarded, open_client):
    answer = open_client(guarded(token=with_token())).get("/")
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert "open the complete link" in answer.text
    assert secured(answer)


def test_probes_need_neither_host_nor_token(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    for path in ("/healthz", "/readyz"):
        assert client.get(path, headers={"host": "10.2.3.4"}).status_code == 200


def test_a_server_without_a_token_removes_one_from_the_address(guarded, open_client):
    answer = open_client(guarded()).get("/?seed=1&token=whatever")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?seed=1"
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("old", ["old-token-of-yesterday", "", "%ff"])
def test_an_old_token_is_removed_from_an_authorized_address(guarded, open_client, old):
    client = open_client(guarded(token=with_token()))
    for headers in ({"cookie": f"{COOKIE}={TOKEN}"}, {"authorization": f"Bearer {TOKEN}"}):
        answer = client.get(f"/?token={old}&widths=10,5,1", headers=headers)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/?widths=10,5,1"
        assert "set-cookie" not in answer.headers


def test_split_token_keeps_the_rest_of_the_query():
    assert split_token(b"a=%2F&token=x&b=+&a=2") == ("x", "a=%2F&b=+&a=2")
    assert split_token(b"") == (None, "")
    assert split_token(b"tokens=1") == (None, "tokens=1")


# Places --------------------------------------------------------------------------------------------------------------


def count(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"chainrule_{name}", labels) or 0


@pytest.mark.parametrize("path", ["/busy", "/stream"])
def test_a_request_too_many_is_answered_503(guarded, open_client, busy, metrics, path):
    client = open_client(guarded(max_requests=3))

    async def crowd():
        waiting = [asyncio.create_task(client.client.get(path)) for _ in range(3)]
        while busy.open < 3:
            await asyncio.sleep(0)
        refused, alive, ready = [await client.client.get(each) for each in ("/echo", "/healthz", "/readyz")]
        busy.go.set()
        answers = await asyncio.gather(*waiting)
        return refused, alive, ready, answers, await client.client.get("/echo")

    refused, alive, ready, answers, after = client.runner.run(crowd())
    assert refused.status_code == 503
    assert refused.json()["error"] == {
        "code": "busy",
        "message": "3 requests are open, at most 3 may be (CHAINRULE_MAX_REQUESTS)",
        "limit": 3,
    }
    assert int(refused.headers["retry-after"]) >= 1
    assert secured(refused)
    # Probes have a place always, and what was open is finished.
    assert [each.status_code for each in (alive, ready, *answers, after)] == [200] * 6
    assert count(metrics, "rejected_total", code="busy") == 1


def test_refused_failed_and_cancelled_requests_free_their_place(guarded, open_client, busy):
    client = open_client(guarded(max_requests=1, token=with_token()))
    authorized = {"authorization": f"Bearer {TOKEN}"}

    async def crowd():
        for _ in range(3):
            assert (await client.client.get("/echo")).status_code == 401
            assert (await client.client.get("/broken", headers=authorized)).status_code == 500
            assert (await client.client.get("/nowhere", headers=authorized)).status_code == 404
            task = asyncio.create_task(client.client.get("/busy", headers=authorized))
            while not busy.open:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        return await client.client.get("/echo", headers=authorized)

    assert client.runner.run(crowd()).status_code == 200


def test_a_socket_too_many_is_answered_503(guarded, serve, metrics):
    address = serve(guarded(max_sockets=2))
    with connect(f"ws://{address}/held") as one, connect(f"ws://{address}/held"):
        assert count(metrics, "live_sockets") == 2
        with pytest.raises(InvalidStatus) as caught:
            connect(f"ws://{address}/held")
        answer = caught.value.response
        assert answer.status_code == 503
        assert b"CHAINRULE_MAX_SOCKETS" in answer.body
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]
        one.close()
        wait_for(lambda: count(metrics, "live_sockets") == 1)
        with connect(f"ws://{address}/held"):
            assert count(metrics, "live_sockets") == 2
    assert count(metrics, "rejected_total", code="busy") == 1


def test_refusals_are_counted_by_code(guarded, open_client, serve, metrics):
    client = open_client(guarded(token=with_token()))
    client.get("/echo")
    client.get("/echo")
    client.get("/echo", headers={"host": "elsewhere.example"})
    client.request("POST", "/echo", headers={"origin": "null"})
    client.get("/healthz")
    client.get(f"/echo?token={TOKEN}")
    with pytest.raises(InvalidStatus):
        connect(f"ws://{serve(guarded())}/nowhere")
    counted = {"unauthorized": 2, "host_not_allowed": 1, "origin_not_allowed": 1, "not_found": 1}
    assert {code: count(metrics, "rejected_total", code=code) for code in counted} == counted
    assert sum(each.value for each in next(iter(metrics.rejected.collect())).samples if "total" in each.name) == 5


def test_a_client_that_leaves_before_its_body_is_not_logged(settings, caplog):
    async def reads(request):
        await request.body()

    app = Guard(Starlette(routes=[Route("/", reads, methods=["POST"])]), settings, Metrics())
    scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"", "scheme": "http"}
    scope |= {"headers": [(b"host", b"127.0.0.1")], "http_version": "1.1", "server": None, "client": None}
    sent = []

    async def leave():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message["type"])

    asyncio.run(app(scope, leave, send))
    assert caplog.text == ""
