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

from chainrule.settings import OWN_HOST, Settings
from chainrule.web import sessions
from chainrule.web.guard import SECURITY_HEADERS, Guard, host_allowed
from chainrule.web.metrics import Metrics
from chainrule.web.sessions import MAX_OTHERS, cookie_name, is_session, new_session, surplus

TOKEN = "correct-horse-battery"
COOKIE = cookie_name("127.0.0.1:8000")
SESSION = new_session(TOKEN)


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
LOOPBACK = ("127.0.0.1", "localhost:9", "[::1]:8000", "class.example:8000", "CLASS.example", "127.0.0.1:65535")
FOREIGN = (
    *("elsewhere.example", "localhost.elsewhere.example", "127.0.0.1.elsewhere.example", "192.168.1.4:8000", ""),
    *("0.0.0.0", "class.example.", "localhost@elsewhere.example", "elsewhere.example/localhost", "[::1", "0x7f.1"),
    *("127.0.0.1:65536", "127.0.0.1:evil.example", "127.0.0.1:80:80", "127.0.0.1:\N{SUPERSCRIPT TWO}"),
    *("127.0.0.1\n", "[::1]evil.example", "[::1%25evil]", "[127.0.0.1]", "::1"),
)


def test_hosts_of_a_loopback_server(settings):
    named = settings.model_copy(update={"allowed_hosts": ("class.example",)})
    assert [host for host in LOOPBACK if not host_allowed(host, named)] == []
    assert host_allowed(f"{OWN_HOST}:8000", named)
    assert not host_allowed("chainrule-0123abcd.localhost:8000", named), "a network may answer for such names"
    assert [host for host in FOREIGN if host_allowed(host, named)] == []


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
SAME = (None, "http://{host}", "https://{host}")
OTHER = (
    *("http://{host}/", "http://{host}:1", "http://user@{host}", "http://{host}.elsewhere.example"),
    *("http://elsewhere.example", "http://elsewhere.example/{host}", "http://elsewhere.example@{host}", "//{host}"),
    *("ws://{host}", "file://", "chrome-extension://{host}", "{host}", "null", "", " "),
)
HOSTS = {"127.0.0.1:8000": True, "[::1]:8000": True, "class.example": True, "elsewhere.example": False}


@pytest.mark.parametrize("host", HOSTS)
def test_requests_need_an_allowed_host_and_its_origin(guarded, open_client, host):
    """Every method checks Host; methods that write check Origin too."""
    client = open_client(guarded(allowed_hosts=("class.example",)))
    for origin in SAME + OTHER:
        headers = {"host": host} if origin is None else {"host": host, "origin": origin.format(host=host)}
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            answer = client.request(method, "/echo", headers=headers)
            if HOSTS[host] and origin in SAME:
                assert answer.status_code == (200 if method == "POST" else 405)
            else:
                code = "origin_not_allowed" if HOSTS[host] else "host_not_allowed"
                assert answer.json()["error"]["code"] == code, (method, origin)
        for method in ("GET", "HEAD"):
            answer = client.request(method, "/echo", headers=headers)
            assert answer.status_code == (200 if HOSTS[host] else 400)
            assert "access-control-allow-origin" not in answer.headers


def test_handshakes_need_an_allowed_host_and_its_origin(guarded, serve):
    name, port = serve(guarded(allowed_hosts=("class.example",))).split(":")
    for host in ("class.example", "elsewhere.example"):
        for origin in SAME + OTHER:
            given = "" if origin is None else f"Origin: {origin.format(host=host)}\r\n"
            with create_connection((name, int(port)), 10) as client:
                client.sendall(
                    f"GET /held HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{given}"
                    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
                )
                status = int(client.recv(1 << 16).split()[1])
            assert status == (400 if not HOSTS[host] else 101 if origin in SAME else 403), (host, origin)


def test_each_of_two_origins_and_the_scheme_must_be_allowed(guarded, open_client):
    client = open_client(guarded(), base_url="https://127.0.0.1:8000")
    mine, foreign = ("origin", "https://127.0.0.1:8000"), ("origin", "null")
    for headers, status in (
        ([mine], 200),
        ([mine, foreign], 403),
        ([foreign, mine], 403),
        ([("origin", "http://127.0.0.1:8000")], 403),
    ):
        assert client.request("POST", "/echo", headers=headers).status_code == status


# Mode and destination as Chromium sends them.
LOADS = {
    "link": ("navigate", "document", True),
    "no destination": ("navigate", None, True),
    "frame": ("navigate", "iframe", False),
    "object": ("navigate", "object", False),
    "picture": ("no-cors", "image", False),
    "prefetch": ("no-cors", "empty", False),
    "module": ("cors", "script", False),
}


@pytest.mark.parametrize("path", ["/", "/echo", "/echo?token=anything", "/static/icon.svg", "/healthz"])
def test_pages_elsewhere_may_link_here_and_load_nothing(guarded, open_client, path):
    client = open_client(guarded())
    for mode, destination, visits in LOADS.values():
        for site in ("none", "same-origin", "same-site", "cross-site"):
            headers = {"sec-fetch-site": site, "sec-fetch-mode": mode}
            headers |= {"sec-fetch-dest": destination} if destination else {}
            answer = client.get(path, headers=headers)
            if visits or site in ("none", "same-origin") or path in ("/static/icon.svg", "/healthz"):
                assert answer.status_code == (303 if "token" in path else 200), (mode, destination, site)
            else:
                assert answer.status_code == 403, (mode, destination, site)
                assert secured(answer)


def test_a_foreign_origin_may_not_post_by_navigation(guarded, open_client):
    client = open_client(guarded())
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for origin in ("http://elsewhere.example", "null"):
        answer = client.request("POST", "/echo", headers=headers | {"origin": origin})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")


def test_a_websocket_needs_host_token_and_a_route(guarded, serve):
    address = serve(guarded(token=with_token()))
    own = cookie_name(address)

    def refused(path, **headers):
        with pytest.raises(InvalidStatus) as caught:
            connect(f"ws://{address}{path}", additional_headers=headers)
        return caught.value.response.status_code

    assert refused("/socket") == 401
    assert refused("/socket", Cookie=f"{own}=wrong-wrong") == 401
    # A link is for people: a socket does not take the token from the address.
    assert refused(f"/socket?token={TOKEN}") == 401
    assert refused("/nowhere", Cookie=f"{own}={SESSION}") == 404
    with connect(f"ws://{address}/socket", additional_headers={"Cookie": f"{own}={SESSION}"}) as websocket:
        assert websocket.recv(timeout=5) == "hello"


# Token ---------------------------------------------------------------------------------------------------------------
def test_a_link_becomes_a_cookie_and_leaves_the_address(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    answer = client.get(f"/echo?widths=100x51&token={TOKEN}&seed=1%20")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/echo?widths=100x51&seed=1%20"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert TOKEN not in cookie
    # On loopback it ends with the browser.
    assert "max-age" not in cookie.lower()
    for attribute in ("HttpOnly", "SameSite=lax", "Path=/"):
        assert attribute in cookie
    assert "Secure" not in cookie
    assert answer.headers["cache-control"] == "no-store"
    assert secured(answer)
    # The client kept the cookie: it is in.
    assert client.get("/echo").status_code == 200
    secure = open_client(guarded(token=with_token()), base_url="https://127.0.0.1:8000")
    assert "Secure" in secure.get(f"/?token={TOKEN}").headers["set-cookie"]


def test_beyond_loopback_a_session_lasts(guarded, open_client):
    client = open_client(guarded(token=with_token(), host="0.0.0.0"))
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert f"Max-Age={sessions.SECONDS}" in cookie


def test_a_session_ends_with_its_time_and_with_its_token(monkeypatch):
    session = new_session(TOKEN)
    assert session != new_session(TOKEN)
    assert is_session(session, TOKEN)
    assert not is_session(session, f"{TOKEN}x")
    end, random, signature = session.split(".")
    later = f"{int(end, 16) + 1:x}"
    for bad in (
        f"{later}.{random}.{signature}",
        f"{end}.x{random}.{signature}",
        f"{end}.{random}.{signature}0",
        "",
        ".",
        TOKEN,
    ):
        assert not is_session(bad, TOKEN)
    monkeypatch.setattr(sessions.time, "time", lambda: int(end, 16))
    assert not is_session(session, TOKEN)


def test_a_browser_keeps_few_sessions(guarded, open_client):
    """Each view has a port, and so a cookie, of its own."""
    client = open_client(guarded(token=with_token()))
    ports = [f"chainrule_{port}" for port in range(9000, 9012)]
    ends = {name: f"{10**9 + order:x}.x.x" for order, name in enumerate(ports)} | {ports[3]: "malformed"}
    others = ("theme=x", "chainrule_theme=dark", "chainrule_\xe9=x", f"{COOKIE}=x")
    jar = "; ".join((*others, *(f"{name}={ends[name]}" for name in reversed(ports))))
    answer = client.get(f"/?token={TOKEN}", headers={"cookie": jar.encode("latin-1")})
    assert answer.status_code == 303
    changed = answer.headers.get_list("set-cookie")
    deleted = [each.partition("=")[0] for each in changed if "Max-Age=0" in each]
    assert deleted == [ports[3], *ports[:3]]
    assert [each.partition("=")[0] for each in changed if "Max-Age=0" not in each] == [COOKIE]
    assert surplus(dict.fromkeys(ports[:MAX_OTHERS], "x"), COOKIE) == []


def test_servers_on_one_host_have_separate_cookies(guarded, open_client):
    """Cookies have a host and no port."""
    one, other = "correct-horse-battery", "another-long-token"
    first, second = (
        open_client(guarded(token=with_token(each)), base_url=f"http://127.0.0.1:{port}")
        for each, port in ((one, 8001), (other, 8002))
    )
    jar = {}
    for client, token in ((first, one), (second, other)):
        name, _, value = client.get(f"/?token={token}").headers["set-cookie"].partition(";")[0].partition("=")
        jar[name] = value
    assert len(jar) == 2
    cookies = "; ".join(f"{name}={value}" for name, value in jar.items())
    for client in (first, second):
        assert client.get("/echo", headers={"cookie": cookies}).status_code == 200


@pytest.mark.parametrize("path", ["//elsewhere.example/", "/\\elsewhere.example", "/%5Celsewhere.example", "///x"])
def test_a_link_never_leads_to_another_host(guarded, open_client, path):
    location = (
        open_client(guarded(token=with_token())).get(f"http://127.0.0.1:8000{path}?token={TOKEN}").headers["location"]
    )
    assert location.startswith("/")
    assert location[1:2] not in ("/", "\\")


def test_requests_without_the_token_are_refused(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": f"Bearer {TOKEN}x"},
        {"cookie": f"{COOKIE}=wrong"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"other={new_session(TOKEN)}"},
        {"cookie": f"{COOKIE}={new_session('another-long-token')}"},
        {"cookie": "\x01;;=,"},
    ):
        answer = client.get("/echo", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in answer.text
        assert secured(answer)
    for scheme in ("Bearer", "bearer"):
        assert client.get("/echo", headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("neighbour", ["weird[1]=x", 'quote="', "=;;", "a b=c"])
def test_malformed_cookies_of_other_programs_are_ignored(guarded, open_client, neighbour):
    client = open_client(guarded(token=with_token()))
    for cookie in (f"{neighbour}; {COOKIE}={SESSION}", f"{COOKIE}={SESSION}; {neighbour}"):
        assert client.get("/echo", headers={"cookie": cookie}).status_code == 200


def test_a_wrong_link_sets_no_cookie(guarded, open_client):
    client = open_client(guarded(token=with_token()))
    for query in ("token=wrong-wrong", "token=", "token=%ff", "token=\N{LATIN SMALL LETTER U WITH DIAERESIS}"):
        answer = client.get(f"/echo?{query}")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


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
    for headers in ({"cookie": f"{COOKIE}={SESSION}"}, {"authorization": f"Bearer {TOKEN}"}):
        answer = client.get(f"/?token={old}&widths=10,5,1", headers=headers)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/?widths=10,5,1"
        assert "set-cookie" not in answer.headers


# Places --------------------------------------------------------------------------------------------------------------


def count(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"chainrule_{name}", labels) or 0


@pytest.mark.parametrize("path", ["/busy", "/stream"])
async def test_a_request_too_many_is_answered_503(guarded, open_client, busy, metrics, path):
    client = open_client(guarded(max_requests=3))
    waiting = [asyncio.create_task(client.client.get(path)) for _ in range(3)]
    while busy.open < 3:
        await asyncio.sleep(0)
    refused, alive, ready = [await client.client.get(each) for each in ("/echo", "/healthz", "/readyz")]
    busy.go.set()
    answers = await asyncio.gather(*waiting)
    after = await client.client.get("/echo")
    assert refused.status_code == 503
    assert refused.json()["error"] == {
        "code": "busy",
        "message": "3 requests are open; at most 3 are allowed (CHAINRULE_MAX_REQUESTS)",
        "limit": 3,
    }
    assert int(refused.headers["retry-after"]) >= 1
    assert secured(refused)
    # Probes have a place always, and what was open is finished.
    assert [each.status_code for each in (alive, ready, *answers, after)] == [200] * 6
    assert count(metrics, "rejected_total", code="busy") == 1


async def test_refused_failed_and_cancelled_requests_free_their_place(guarded, open_client, busy):
    client = open_client(guarded(max_requests=1, token=with_token()))
    authorized = {"authorization": f"Bearer {TOKEN}"}
    for _ in range(3):
        assert (await client.client.get("/echo")).status_code == 401
        assert (await client.client.get("/broken", headers=authorized)).status_code == 500
        assert (await client.client.get("/nowhere", headers=authorized)).status_code == 404
        task = asyncio.create_task(client.client.get("/busy", headers=authorized))
        while not busy.open:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert (await client.client.get("/echo", headers=authorized)).status_code == 200


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
