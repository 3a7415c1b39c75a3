"""Answers of every route: status, media type, shape, headers."""

import json

import jsonschema
import pytest
from starlette.routing import Mount, WebSocketRoute

from chainrule.chapter.pages import PAGES
from chainrule.dump.wire import load
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.keys import SPEC_KEYS
from chainrule.web.guard import SECURITY_HEADERS
from chainrule.web.main import create_app

TRACE = set("schema spec environment loss modules ops tensors saved layers sources statistics error timing".split())

CHAPTER = {
    # page: the least keys of its JSON
    "neuron": ["neuron", "layer"],
    "arithmetic": ["operators", "item"],
    "matmul": ["rungs"],
    "broadcasting": ["shape", "steps"],
    "einsum": ["shape", "indices"],
    "initialization": ["layer", "stack", "experiments"],
    "backward": ["loss", "stages", "derivations"],
    "styles": ["code", "runs"],
    "functions": ["context", "backward"],
    "gradcheck": ["checks", "steps"],
    "extension": ["race"],
}

ROUTES = {
    # address: (media type, keys of the JSON object or None)
    "/": ("text/html; charset=utf-8", None),
    "/docs": ("text/html; charset=utf-8", None),
    "/map": ("text/html; charset=utf-8", None),
    "/openapi.json": ("application/json", {"openapi", "info", "paths"}),
    "/healthz": ("application/json", {"status", "version"}),
    "/readyz": ("application/json", {"ready", "status", "kernel", "devices", "sockets", "shutting_down"}),
    "/metrics": ("text/plain; version=0.0.4; charset=utf-8", None),
    "/static/vendor/plotly.min.js": ("text/javascript; charset=utf-8", None),
    "/api/v1/trace.json": ("application/json", TRACE),
    "/standalone.html": ("text/html; charset=utf-8", None),
    "/api/v1/trace.dot": ("text/vnd.graphviz; charset=utf-8", None),
    "/api/v1/trace.svg": ("image/svg+xml", None),
    "/api/v1/trace.html": ("text/html; charset=utf-8", None),
    "/api/v1/trace.model-explorer.json": ("application/json", {"label", "graphs"}),
    "/api/v1/node-data.json?statistic=norm": ("application/json", {"trace"}),
    "/api/v1/trace.py": ("text/x-python; charset=utf-8", None),
    "/api/v1/profile.json": (
        "application/json",
        {"schema", "spec", "loss", "first_inf_layer", "first_nan_layer", "input", "advice", "layers", "rules"},
    ),
    "/api/v1/run.json?step=3": (
        "application/json",
        {"schema", "spec", "environment", "rows", "steps", "batch", "held_out", "layers"},
    ),
    "/api/v1/data.json?data=moons": (
        "application/json",
        {"data", "seed", "features", "classes", "samples", "held_out", "x", "y", "held_out_x", "held_out_y"},
    ),
    "/api/v1/theory.json": (
        "application/json",
        {"schema", "activation", "weight_variance", "bias_variance", "at_q1", "fixed_point"},
    ),
    "/api/v1/tensor.json?name=l2": ("application/json", {"name", "id", "shape", "dtype", "rows", "cols", "values"}),
    "/api/v1/presets.json": ("application/json", {"presets"}),
    "/api/v1/lessons.json": ("application/json", {"lessons"}),
    "/api/v1/devices.json": ("application/json", {"devices"}),
    "/api/v1/schema/trace.json": ("application/json", {"$schema", "$id", "properties", "$defs"}),
    "/foundations": ("text/html; charset=utf-8", None),
    "/foundations/": ("text/html; charset=utf-8", None),
    "/foundations.json": ("application/json", {"pages", "sections"}),
    **{page.path: ("text/html; charset=utf-8", None) for page in PAGES.values()},
    **{f"{page.path}.json": ("application/json", set(CHAPTER[name])) for name, page in PAGES.items()},
}
"""Every address that answers GET, with the least it takes."""

POSTED = {"/api/v1/trace", "/api/v1/sweeps", "/api/v1/sweeps.parquet"}
"""Every address that answers POST."""

ONLY_WHEN_OPENED = {"/api/v1/dump.json"}
"""Answers 404 unless the server was given a dump."""


def test_the_table_has_every_route():
    app = create_app(Settings())
    paths = set()
    for route in flat(app.routes):
        if isinstance(route, (Mount, WebSocketRoute)):
            continue
        if "GET" in route.methods:
            paths.add(route.path.replace("{name:path}", "plotly.min.js"))
        else:
            assert (route.path, route.methods) in [(path, {"POST"}) for path in POSTED]
    # The guide's address leads to its folder, which is mounted.
    assert paths - {"/guide"} == {address.partition("?")[0] for address in ROUTES} | ONLY_WHEN_OPENED


def flat(routes):
    for route in routes:
        if hasattr(route, "path"):
            yield route
        else:
            yield from flat(route.original_router.routes)


@pytest.mark.parametrize("address", ROUTES)
def test_a_route_answers_in_its_form_with_every_header_and_once(http, address):
    get, head = http.get(address), http.head(address)
    media_type, keys = ROUTES[address]
    assert get.status_code == head.status_code == 200, get.text[:300]
    assert get.headers["content-type"] == head.headers["content-type"] == media_type
    assert int(get.headers["content-length"]) == len(get.content) > 0
    assert head.content == b""
    assert "cache-control" in get.headers
    assert "server" not in get.headers
    for name, value in SECURITY_HEADERS.items():
        assert get.headers[name] == head.headers[name] == value
    if keys is not None:
        assert get.json().keys() >= keys
    timed = address.partition(".json")[0] in {page.path for page in PAGES.values() if page.timed}
    if "trace" not in address and "profile" not in address and not timed and address != "/metrics":
        # Timings make dumps and races a few bytes longer or shorter, and what is counted grows.
        assert head.headers["content-length"] == get.headers["content-length"]
    tag = get.headers.get("etag")
    assert head.headers.get("etag") == tag
    if not timed and address.startswith(("/api", "/static", *(f"{page.path}.json" for page in PAGES.values()))):
        again = http.get(address, headers={"if-none-match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["content-security-policy"] == SECURITY_HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "style=module",
        "preset=deep-exploding",
        "preset=deep-relu&style=functions",
        "widths=8,4,3&loss=cross_entropy",
    ],
)
def test_a_dump_follows_the_schema_that_is_published(http, query):
    schema = http.get("/api/v1/schema/trace.json").json()
    validator = jsonschema.Draft202012Validator(schema)
    dump = http.get(f"/api/v1/trace.json?{query}").json()
    validator.validate(dump)
    assert dump["spec"] == ModelSpec.from_query(query).as_dict()
    # `load` checks what a schema cannot, such as ids.
    assert load(json.dumps(dump)).tensors
    dump["tensors"][0]["more"] = 1
    assert not validator.is_valid(dump)


def test_standalone_pages_are_sent_as_attachments(http):
    for address in ("/api/v1/trace.html", "/standalone.html"):
        assert http.head(address).headers["content-disposition"] == 'attachment; filename="chainrule.html"'
    assert "content-disposition" not in http.head("/api/v1/trace.svg").headers


def test_posting_gives_the_same_dump(http):
    dumps = http.get("/api/v1/trace.json?seed=9").json(), http.post("/api/v1/trace", json={"seed": 9}).json()
    for dump in dumps:
        assert dump.pop("timing")["total_ms"] > 0
    assert dumps[0] == dumps[1]


def test_every_preset_has_the_keys_the_page_reads(http):
    presets = http.get("/api/v1/presets.json").json()["presets"]
    assert len(presets) == 9
    for preset in presets:
        assert set(preset) == {
            "name", "title", "spec", "query", "focus", "statistic", "theory", "printed", "band", "note",
        }  # fmt: skip
        assert http.head(f"/?{preset['query']}").status_code == 200


def test_the_description_has_every_route_and_every_key(http):
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.0.")
    described = set(document["paths"])
    hidden = {"/", "/docs", "/map", "/openapi.json", "/standalone.html", "/static/vendor/plotly.min.js"}
    hidden |= {"/foundations", "/foundations/", *(page.path for page in PAGES.values())}
    routes = {address.partition("?")[0] for address in ROUTES} | ONLY_WHEN_OPENED
    assert described == routes - hidden | POSTED
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert operation["responses"], path
    parameters = document["paths"]["/api/v1/trace.json"]["get"]["parameters"]
    assert [each["name"] for each in parameters] == ["preset", *(key.name for key in SPEC_KEYS)]
    defaults = {each["name"]: each["schema"].get("default") for each in parameters if each["name"] != "preset"}
    assert defaults == {**ModelSpec().as_dict(), "rung": "broadcasting", "constant": 2.0}
    svg = document["paths"]["/api/v1/trace.svg"]["get"]
    own = [each["name"] for each in svg["parameters"]][: -len(parameters)]
    assert own == ["level", "toggled", "fold", "statistic", "scheme", "bins"]
    assert not set(own) & {key.name for key in SPEC_KEYS}
    assert "501" in svg["responses"]
    theory = document["paths"]["/api/v1/theory.json"]["get"]["parameters"]
    assert {each["name"]: each["schema"].get("default") for each in theory} == {
        "activation": "relu",
        "weight_variance": None,
        "bias_variance": 0,
    }
    body = document["paths"]["/api/v1/trace"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.Draft7Validator.check_schema(body)
    jsonschema.validate(ModelSpec().as_dict(), body, jsonschema.Draft7Validator)
