"""The pages: complete, escaped, and loading nothing from elsewhere."""

import json
import re
from html.parser import HTMLParser

import pytest
from pydantic import SecretStr

from chainrule import __version__
from chainrule.main import create_app
from chainrule.page.opened import OpenDump
from chainrule.presets import PRESETS
from chainrule.programs import PROGRAMS
from chainrule.rules import RULES
from chainrule.run import trace_spec
from chainrule.spec import SPEC_KEYS, ModelSpec
from chainrule.web import pages
from chainrule.wire import dump_trace


class Page(HTMLParser):
    """What a page loads and embeds."""

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


@pytest.fixture
def client(open_client, settings):
    return open_client(create_app(settings))


def page_data(answer):
    return Page(answer.text).data["page-data"]


@pytest.mark.smoke
def test_the_explorer_knows_everything_before_it_asks(client):
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


def test_a_page_that_was_opened_with_a_dump_knows_where_it_is(open_client, settings):
    content = dump_trace(trace_spec(ModelSpec.from_query("widths=2,1&batch=1")))
    client = open_client(create_app(settings, OpenDump.check("<i>net</i>.json", content)))
    data = page_data(client.get("/"))
    assert data["dump"] == {"name": "<i>net</i>.json", "url": "/api/v1/dump.json"}
    answer = client.get(data["dump"]["url"])
    assert (answer.content, answer.headers["content-type"]) == (content, "application/json")
    again = client.get(data["dump"]["url"], headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_address_is_the_spec(client):
    data = page_data(client.get("/?preset=deep-relu&seed=7"))
    assert data["spec"] == ModelSpec.from_query("preset=deep-relu&seed=7").as_dict()
    assert data["query"] == "widths=100x51&last_activation=true&init=standard_normal&scale=0.1&bias=false&seed=7"


@pytest.mark.parametrize("token", [None, "a-secret-token"])
def test_the_page_knows_whether_requests_need_a_token_and_not_the_token(open_client, settings, token):
    guarded = settings.model_copy(update={"token": token and SecretStr(token)})
    client = open_client(create_app(guarded), headers={"authorization": f"Bearer {token}"})
    answer = client.get("/")
    assert page_data(answer)["needs_token"] is (token is not None)
    assert "a-secret-token" not in answer.text


def test_presets_on_the_page_lead_to_their_specs(client):
    for preset in page_data(client.get("/"))["presets"]:
        spec = ModelSpec.parse({"preset": preset["name"]})
        assert preset["query"] == spec.query()
        assert ModelSpec.parse(preset["spec"]) == spec
        assert all(len(band) == 2 for band in preset["band"].values())


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


def test_what_stands_in_the_address_never_becomes_markup(client):
    evil = "</script><img src=x onerror=alert(1)>"
    answer = client.get("/", params={"init": evil, evil: "1"})
    assert answer.status_code == 422
    page = Page(answer.text)
    assert evil not in answer.text
    assert "x" not in page.loaded
    assert page.handlers == []
    assert "error" in page.data["page-data"]


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


def test_the_documentation_is_of_this_server(client):
    text = client.get("/docs").text
    assert "/static/vendor/swagger-ui/swagger-ui-bundle.js" in text
    script = client.get("/static/docs.js").text
    assert '"/openapi.json"' in script
    assert "validatorUrl: null" in script
    assert "http" not in script


def test_third_party_files_are_served_by_name_only(client):
    assert client.get("/static/vendor/plotly.min.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/static/vendor/swagger-ui/swagger-ui.css").headers["content-type"].startswith("text/css")
    for path in (
        "/static/vendor/",
        "/static/vendor/swagger-ui/index.html",
        "/static/vendor/%2e%2e/%2e%2e/pyproject.toml",
        "/static/%2e%2e/pyproject.toml",
        "/static/..%2fpyproject.toml",
        "/static//etc/passwd",
        "/static/docs.js%00",
        "/static/" + "a" * 5000,
    ):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "not_found"


def test_static_files_are_kept_but_asked_about(client):
    answer = client.get("/static/docs.js")
    assert answer.headers["cache-control"] == "private, no-cache"
    again = client.get("/static/docs.js", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


@pytest.mark.parametrize("path", ["/", "/docs", "/foundations"])
def test_a_pages_own_files_are_kept_for_good_under_one_digest(client, path):
    loaded = Page(client.get(path).text).loaded
    addresses = [each for each in loaded if not each.startswith(("/static/vendor/", "data:"))]
    (digest,) = {re.match(r"/static/(~[0-9a-f]{16})/", address)[1] for address in addresses}
    for address in addresses:
        answer = client.get(address)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable", address
        assert answer.headers["x-content-type-options"] == "nosniff"
        # The file that has no digest in its address.
        plain = client.get(address.replace(f"{digest}/", ""))
        assert (answer.content, answer.headers["content-type"]) == (plain.content, plain.headers["content-type"])
        assert answer.headers["etag"] == plain.headers["etag"]


def test_under_one_digest_are_all_files_and_no_others(client):
    text = client.get("/").text
    digest = re.search(r"/static/(~\w+)/", text)[1]
    for name in ("core/layout/layout-worker.js", "core/dom.js", "docs.js", "icon.svg"):
        assert client.get(f"/static/{digest}/{name}").status_code == 200, name
    head = client.request("HEAD", f"/static/{digest}/explorer.js")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = client.get(f"/static/{digest}/explorer.js", headers={"if-none-match": head.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == "public, max-age=31536000, immutable"
    for name in ("", "core", "nowhere.js", f"{digest}/explorer.js", "%2e%2e/pyproject.toml", "..%2fpyproject.toml"):
        answer = client.get(f"/static/{digest}/{name}")
        assert answer.status_code == 404, name
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("digest", ["~0", "~0123456789abcdef"])
def test_under_another_digest_the_files_are_served_and_asked_about(client, digest):
    answer = client.get(f"/static/{digest}/explorer.js")
    assert answer.content == client.get("/static/explorer.js").content
    assert answer.headers["cache-control"] == "private, no-cache"
    again = client.get(f"/static/{digest}/explorer.js", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, "private, no-cache")


def test_the_page_does_not_compute(client, monkeypatch):
    def fail(*_):
        raise AssertionError("the page must be there before the first trace")

    monkeypatch.setattr("chainrule.run.trace_spec", fail)
    monkeypatch.setattr("chainrule.web.api.trace_spec", fail)
    assert client.get("/").status_code == 200
    assert "trace_spec" not in vars(pages)
