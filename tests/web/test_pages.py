"""The pages: complete, escaped, and loading nothing from elsewhere."""

import json
import re
import socket
from html.parser import HTMLParser
from urllib.parse import quote

import httpx
import pytest
from pydantic import SecretStr

from chainrule import __version__
from chainrule.diagnose.rules import RULES
from chainrule.page.bundles import bundle_of
from chainrule.spec import ModelSpec
from chainrule.spec.keys import SPEC_KEYS
from chainrule.spec.presets import PRESETS
from chainrule.spec.programs import PROGRAMS
from chainrule.web import static_files
from chainrule.web.guard import SECURITY_HEADERS
from chainrule.web.main import create_app


class Page(HTMLParser):
    """Files and scripts that a page loads, and its data."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.inline, self.data, self.handlers = [], [], {}, []
        self._script = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.handlers += [name for name in attributes if name.startswith("on")]
        if tag == "script":
            self._script = attributes
        if tag in ("script", "img", "iframe", "source") and attributes.get("src"):
            self.loaded.append(attributes["src"])
        if tag == "link" and attributes.get("href"):
            self.loaded.append(attributes["href"])

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, text):
        if self._script is None:
            return
        if self._script.get("type") == "application/json":
            self.data[self._script.get("id")] = json.loads(text)
        elif text.strip():
            self.inline.append(text)


def page_data(answer):
    return Page(answer.text).data["page-data"]


@pytest.mark.smoke
def test_the_page_data_of_the_explorer(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    data = page_data(answer)
    assert data["version"] == __version__
    assert data["spec"] == data["programs"][0]["defaults"] == ModelSpec().as_dict()
    assert [each["name"] for each in data["programs"]] == list(PROGRAMS)
    assert all(each["defaults"] == ModelSpec(program=each["name"]).as_dict() for each in data["programs"])
    assert data["query"] == ""
    assert [key["name"] for key in data["keys"]] == [key.name for key in SPEC_KEYS]
    assert [preset["name"] for preset in data["presets"]] == [preset.name for preset in PRESETS]
    assert data["limits"] | {"depth": 64, "width": 1024, "batch": 1024} == data["limits"]
    assert data["devices"][0] == "cpu"
    assert (data["error"], data["dump"]) == (None, None)
    assert data["rules"]["band"] == {"rule": RULES.band.rule, "source": RULES.band.source}
    assert set(data["rules"]["expected"]) == set(RULES.expected)
    assert set(data["rules"]["health"]) == set(RULES.health)


def test_the_page_reads_the_spec_from_the_address(client):
    data = page_data(client.get("/?preset=deep-relu&seed=7"))
    assert data["spec"] == ModelSpec.from_query("preset=deep-relu&seed=7").as_dict()
    assert data["query"] == "widths=100x51&last_activation=true&init=standard_normal&scale=0.1&bias=false&seed=7"


@pytest.mark.parametrize("token", [None, "a-secret-token"])
def test_the_page_data_says_whether_a_token_is_needed_without_the_token(open_client, settings, token):
    guarded = settings.model_copy(update={"token": token and SecretStr(token)})
    client = open_client(create_app(guarded), headers={"authorization": f"Bearer {token}"})
    answer = client.get("/")
    assert page_data(answer)["needs_token"] is (token is not None)
    assert "a-secret-token" not in answer.text


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ("scale=abc", "scale", "invalid_spec"),
        ("nonsense=1", "nonsense", "invalid_spec"),
        ("widths=100x66", "widths", "over_limit"),
        ("seed=1&seed=2", "seed", "invalid_spec"),
    ],
)
def test_a_bad_address_opens_the_page_in_its_error_state(client, query, field, code):
    answer = client.get(f"/?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")
    data = page_data(answer)
    assert (data["error"]["field"], data["error"]["code"]) == (field, code)
    assert data["spec"] == ModelSpec().as_dict()


def test_a_browser_gets_a_page_where_nothing_is_and_a_program_json(client):
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = client.get("/nowhere", headers=browser)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert '<a href="/">' in answer.text
    for path, headers in [("/nowhere", {}), ("/api/v1/nowhere", browser), ("/nowhere.json", browser)]:
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


@pytest.mark.parametrize(
    "prefix", ["/foundations/", "/foundations/neuron?", "/foundations/neuron?x=", "/?", "/?device="]
)
def test_markup_in_the_address_is_escaped(client, prefix):
    evil = "</script><img src=x onerror=alert(1)><script>alert(1)</script>"
    answer = client.get(prefix + quote(evil, safe=""))
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "alert(1)" in answer.text
    page = Page(answer.text)
    assert "<img src=x" not in answer.text
    assert (page.handlers, page.inline) == ([], [])


def test_markup_in_an_error_is_sent_as_json(client):
    evil = "<img src=x onerror=alert(1)>"
    for path in (f"/{quote(evil)}", f"/api/v1/{quote(evil)}", f"/api/v1/trace.json?widths={quote(evil)}"):
        answer = client.get(path)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "<img" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/?scale=x", "/docs"])
def test_a_page_loads_local_files_only_and_they_are_there(client, path):
    page = Page(client.get(path).text)
    assert page.loaded
    assert page.inline == []
    assert page.handlers == []
    for address in page.loaded:
        if address.startswith("data:"):
            continue
        assert re.match(r"/[^/]", address), address
        assert client.get(address).status_code == 200, address


def test_third_party_files_are_served_by_name_only(client):
    assert client.get("/static/vendor/plotly.min.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/static/vendor/swagger-ui/swagger-ui.css").headers["content-type"].startswith("text/css")
    for path in ("/static/vendor/", "/static/vendor/swagger-ui/index.html"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "not_found"


STATIC = [f"/static{folder}" for folder in ("", "/vendor", "/vendor/swagger-ui", "/elements", "/~{digest}", "/~0")]

UPWARDS = (b"..", b"%2e%2e", b".%2e", b"%252e%252e", b"..%00", b"....", b"%c0%ae%c0%ae", b"%uff0e%uff0e", b"..;")
SLASHES = (b"/", b"//", b"%2f", b"%252f", b"\\", b"%5c", b"/./", b"%c0%af")
ELSEWHERE = (
    *(b"/etc/passwd", b"%2fetc%2fpasswd", b"C:/windows/win.ini", b"file:///etc/passwd", b"http://127.0.0.1/", b"~root"),
    *(b"docs.js%00.png", b"docs.js%0d%0aSet-Cookie:%20a=b", b"%ff%fe", b"%", b"a" * 5000, b"../" * 5000, b"docs.j?"),
)


def test_no_static_path_leaves_the_folder(serve, settings):
    """Raw bytes, because clients normalize paths."""
    address, port = serve(create_app(settings)).split(":")
    digest = re.search(r"/static/~(\w+)/", httpx.get(f"http://{address}:{port}/").text)[1]
    tails = [up + slash for up in UPWARDS for slash in SLASHES]
    paths = [
        tail * depth + wanted for tail in tails for depth in (1, 9) for wanted in (b"pyproject.toml", b"etc/passwd")
    ] + list(ELSEWHERE)
    bases = [base.format(digest=digest).encode() for base in STATIC]
    # Each path beneath one of the folders in turn; the load battery asks for more.
    targets = [bases[at % len(bases)] + b"/" + path for at, path in enumerate(paths)]
    while targets:
        with socket.create_connection((address, int(port)), 10) as connection, connection.makefile("rb") as stream:
            while targets:
                target = targets.pop()
                connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                status = int(stream.readline().split()[1])
                headers = dict(line.decode().rstrip().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
                body = stream.read(int(headers["content-length"]))
                assert 400 <= status < 500, (status, target)
                assert json.loads(body)["error"].keys() <= {"code", "message", "limit"}, target
                assert headers["content-type"] == "application/json"
                assert headers | SECURITY_HEADERS == headers
                assert "x-request-id" in headers
                if headers.get("connection") == "close":
                    break


@pytest.mark.parametrize("path", ["/", "/docs", "/foundations"])
def test_files_of_a_page_are_immutable_under_one_digest(client, path):
    loaded = Page(client.get(path).text).loaded
    addresses = [each for each in loaded if not each.startswith(("/static/vendor/", "data:"))]
    (digest,) = {re.match(r"/static/(~[0-9a-f]{16})/", address)[1] for address in addresses}
    for address in addresses:
        answer = client.get(address)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable", address
        assert answer.headers["x-content-type-options"] == "nosniff"
        # The file that has no digest in its address, alone or with what it imports.
        plain = client.get(address.replace(f"{digest}/", ""))
        bundle = bundle_of(address.partition(f"{digest}/")[2], digest[1:])
        assert answer.content == (plain.content if bundle is None else bundle.read_bytes())
        assert answer.headers["content-type"] == plain.headers["content-type"]
        assert (answer.headers["etag"] == plain.headers["etag"]) == (bundle is None)


def test_the_digest_holds_all_files_and_no_others(client):
    text = client.get("/").text
    digest = re.search(r"/static/(~\w+)/", text)[1]
    for name in ("core/layout/worker.js", "core/dom.js", "docs.js", "icon.svg"):
        assert client.get(f"/static/{digest}/{name}").status_code == 200, name
    head = client.request("HEAD", f"/static/{digest}/explorer.js")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = client.get(f"/static/{digest}/explorer.js", headers={"if-none-match": head.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == "public, max-age=31536000, immutable"
    for name in ("", "core", "nowhere.js", f"{digest}/explorer.js"):
        answer = client.get(f"/static/{digest}/{name}")
        assert answer.status_code == 404, name
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("digest", ["", "~0/", "~0123456789abcdef/"])
def test_files_without_the_current_digest_are_revalidated(client, digest):
    answer = client.get(f"/static/{digest}explorer.js")
    assert answer.content == client.get("/static/explorer.js").content
    assert answer.headers["cache-control"] == "private, no-cache"
    again = client.get(f"/static/{digest}explorer.js", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"], again.content) == (304, "private, no-cache", b"")


def test_the_guide_is_shown_where_it_is_built(open_client, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(static_files, "GUIDE", tmp_path / "guide")
    client = open_client(create_app(settings))
    missing = client.get("/guide/", headers={"accept": "text/html"})
    assert missing.status_code == 404
    assert missing.headers["content-type"].startswith("text/html")
    assert "make docs" in missing.text

    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "index.html").write_text("<h1>Guide</h1>")
    assert client.get("/guide", follow_redirects=True).text == "<h1>Guide</h1>"
    assert client.get("/guide/").headers["cache-control"] == "private, no-cache"
    assert client.get("/guide/missing.html").status_code == 404
    assert client.get("/guide/../main.py").status_code == 404
