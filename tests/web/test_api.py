"""The HTTP API: values, tags, bad input and load."""

import asyncio
import queue
import socket
import threading

import numpy as np
import pytest
from accounts import accounts, closed
from served import wait_for
from starlette.datastructures import Headers

from chainrule.build import build_model
from chainrule.chapter import page
from chainrule.dump.wire import load
from chainrule.export import formats
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.stopping import check
from chainrule.web import api, compute
from chainrule.web.answers import is_fresh
from chainrule.web.main import create_app


@pytest.fixture
def app(settings):
    return create_app(settings)


def forbid_computing(monkeypatch):
    def fail(*_):
        raise AssertionError("nothing may be computed")

    for name in ("trace_spec", "tensor_values", "layer_theory"):
        monkeypatch.setattr(api, name, fail)
    monkeypatch.setattr(formats, "trace_spec", fail)


@pytest.fixture
def client(open_client, app):
    return open_client(app)


@pytest.mark.smoke
def test_the_dump_is_the_trace(client):
    answer = client.get("/api/v1/trace.json?widths=20,10,1&seed=3")
    assert answer.status_code == 200
    trace = trace_spec(ModelSpec(widths="20,10,1", seed=3))
    dump = load(answer.content)
    assert dump.loss == trace.loss
    assert dump.tensors == trace.tensors
    np.testing.assert_array_equal(dump.statistics.counts, trace.statistics.counts)
    assert answer.json()["spec"] == ModelSpec(widths="20,10,1", seed=3).as_dict()


def test_the_values_of_a_tensor_are_the_models(client):
    answer = client.get("/api/v1/tensor.json?name=x&rows=1:4&cols=2:4&seed=5")
    expected = build_model(ModelSpec(seed=5)).leaves["x"][1:4, 2:4]
    assert answer.status_code == 200
    np.testing.assert_array_equal(np.array(answer.json()["values"], np.float32), expected.numpy())
    assert answer.json()["shape"] == [200, 100]


# Theory --------------------------------------------------------------------------------------------------------------

FIGURES = ("mean", "second_moment", "std", "derivative_second_moment", "gain", "chi1_at_gain")


def theory(client, query):
    answer = client.get(f"/api/v1/theory.json?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.smoke
def test_theory_has_the_published_moments(client):
    body = theory(client, "activation=tanh&weight_variance=1.3&bias_variance=0.05")
    assert list(body) == ["schema", "activation", "weight_variance", "bias_variance", "at_q1", "fixed_point"]
    assert body["schema"] == "chainrule.theory/1"
    assert (body["activation"], body["weight_variance"], body["bias_variance"]) == ("tanh", 1.3, 0.05)
    assert tuple(body["at_q1"]) == FIGURES
    # At q = 1, to the four digits of the published tables.
    expected = (0, 0.3943, 0.6279, 0.4644, 1.5925, 1.1778)
    assert [body["at_q1"][name] for name in FIGURES] == pytest.approx(expected, abs=1e-4)


def test_theory_without_a_fixed_point_and_at_criticality(client):
    assert theory(client, "activation=relu&weight_variance=2.1")["fixed_point"] is None
    critical = theory(client, "activation=relu&weight_variance=2")["fixed_point"]
    assert (critical["q"], critical["c"], critical["chi1"]) == pytest.approx((2, 1, 1))
    assert list(critical) == ["q", "c", "chi1", "depth_scale_gradient", "depth_scale_correlation"]
    assert critical["depth_scale_gradient"] == critical["depth_scale_correlation"] == "Infinity"
    # The default is the gain that preserves the variance.
    tanh = theory(client, "activation=tanh")
    assert tanh["weight_variance"] == pytest.approx(1.5925**2, abs=1e-3)
    assert tanh["fixed_point"]["q"] == pytest.approx(1, abs=1e-6)


# Entity tags ---------------------------------------------------------------------------------------------------------

TAGGED = [
    "/api/v1/trace.json?widths=9,5,1",
    "/api/v1/profile.json?widths=9,5,1",
    "/api/v1/theory.json?activation=tanh&weight_variance=1.3",
    "/api/v1/tensor.json?name=l1&widths=9,5,1",
]


@pytest.mark.parametrize("path", TAGGED)
def test_a_known_tag_is_answered_304_without_computing(client, path, monkeypatch):
    first = client.get(path)
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    forbid_computing(monkeypatch)
    again = client.get(path, headers={"if-none-match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert again.headers["cache-control"] == first.headers["cache-control"]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
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
    assert is_fresh(headers, 'W/"abc"') is expected


@pytest.mark.parametrize(
    ("same", "others"),
    [
        (
            [
                f"trace.json?{query}"
                for query in ("widths=9,9,1&seed=1", "seed=1&widths=9x2,1", "widths=9%2C9%2C1&seed=1")
            ],
            ["trace.json?widths=9,9,1&seed=2", "trace.dot?widths=9,9,1&seed=1"],
        ),
        (
            [f"theory.json?{query}" for query in ("weight_variance=2", "weight_variance=0.2e1&bias_variance=0")],
            ["theory.json?weight_variance=2.5"],
        ),
        (
            ["tensor.json?widths=9,9,1&name=x"],
            [f"tensor.json?widths=9,9,1&{own}" for own in ("name=x&rows=0:4", "name=x&cols=0:4", "name=l1")],
        ),
        (
            ["trace.svg?widths=2,1&batch=1", "trace.svg?widths=2,1&level=layer&batch=1"],
            ["trace.svg?widths=2,1&batch=1&level=all"],
        ),
    ],
    ids=["spec", "theory", "range", "picture"],
)
def test_a_tag_depends_on_values_and_not_on_their_spelling(client, same, others):
    tags = {path: client.get(f"/api/v1/{path}").headers["etag"] for path in (*same, *others)}
    assert len({tags[path] for path in same}) == 1
    assert len(set(tags.values())) == 1 + len(others)


def test_a_tag_depends_on_the_environment(client, monkeypatch):
    path = "/api/v1/trace.json?widths=9,9,1"
    tag = client.get(path).headers["etag"]
    before = api.environment("cpu")
    monkeypatch.setattr(api, "environment", lambda _: {**before, "torch": "0.0"})
    answer = client.get(path, headers={"if-none-match": tag})
    assert answer.status_code == 200
    assert answer.headers["etag"] != tag


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"\xff\xfe", {}, 400, "malformed_json"),
        (b"[" * 5000, {}, 400, "malformed_json"),
        (b'{"scale": NaN}', {}, 400, "malformed_json"),
        (b"scale=2", {"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        (b"{}", {"content-type": ""}, 415, "unsupported_media_type"),
    ],
)
def test_a_bad_body_is_refused(client, monkeypatch, body, headers, status, code):
    forbid_computing(monkeypatch)
    answer = client.request(
        "POST", "/api/v1/trace", content=body, headers={"content-type": "application/json", **headers}
    )
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


def test_a_body_without_a_length_is_read_up_to_the_limit(client):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 2**14

    answer = client.request("POST", "/api/v1/trace", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert sent == 5  # 64 KiB and the piece that went beyond


def test_a_charset_is_accepted_and_a_query_beside_a_body_is_not(client):
    options = {"content": b'{"widths": "9,5,1"}', "headers": {"content-type": "application/json; charset=utf-8"}}
    assert client.request("POST", "/api/v1/trace", **options).status_code == 200
    answer = client.request("POST", "/api/v1/trace?seed=1", **options)
    assert answer.status_code == 400
    assert "body" in answer.json()["error"]["message"]


def test_a_body_that_does_not_arrive_is_answered_408(open_client, settings):
    client = open_client(create_app(settings.model_copy(update={"receive_seconds": 0.05})))

    async def stalls():
        yield b'{"widths": '
        await asyncio.Event().wait()

    answer = client.request("POST", "/api/v1/trace", content=stalls(), headers={"content-type": "application/json"})
    assert answer.status_code == 408
    error = answer.json()["error"]
    assert (error["code"], error["limit"]) == ("request_timeout", 0.05)
    assert "CHAINRULE_RECEIVE_SECONDS" in error["message"]
    # The rest of it would be taken for the next request.
    assert answer.headers["connection"] == "close"


# Load ----------------------------------------------------------------------------------------------------------------


class Endless:
    def __init__(self):
        self.began = threading.Semaphore(0)
        self.stopped = queue.SimpleQueue()

    def __call__(self, *_):
        self.began.release()
        try:
            while True:
                check()
        except Exception as error:
            self.stopped.put(error)
            raise


ENDLESS = [
    ("GET", "/api/v1/profile.json", api, "_profile_bytes"),
    ("GET", "/api/v1/trace.json", formats, "trace_spec"),
    ("POST", "/api/v1/trace", formats, "trace_spec"),
    ("GET", "/api/v1/theory.json", api, "layer_theory"),
    ("GET", "/api/v1/tensor.json?name=x", api, "tensor_values"),
    ("GET", "/foundations/neuron.json", page.Page, "answer"),
]


@pytest.mark.parametrize(("method", "path", "module", "name"), ENDLESS, ids=[path for _, path, *_ in ENDLESS])
def test_a_deadline_is_answered_504_on_every_route(open_client, settings, monkeypatch, method, path, module, name):
    app = create_app(settings.model_copy(update={"deadline_seconds": 0.05}))
    client = open_client(app)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, Endless())
        answer = client.request(method, path, json={} if method == "POST" else None)
    assert answer.status_code == 504
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["error"] == {
        "code": "deadline_exceeded",
        "message": "the computation takes longer than 0.05 seconds (CHAINRULE_DEADLINE_SECONDS)",
        "limit": 0.05,
    }
    assert closed(app.state.service.metrics) == {("request", "accepted"): 1, ("request", "timed_out"): 1}


@pytest.mark.parametrize(("method", "path", "module", "name"), ENDLESS, ids=[path for _, path, *_ in ENDLESS])
def test_closing_the_connection_stops_the_computation(serve, settings, monkeypatch, method, path, module, name):
    endless = Endless()
    monkeypatch.setattr(module, name, endless)
    # Nothing else ends it.
    app = create_app(settings.model_copy(update={"deadline_seconds": 3600}))
    host, port = serve(app).split(":")
    body = b"{}" if method == "POST" else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode() + body)
        assert endless.began.acquire(timeout=10)
        with socket.create_connection((host, int(port)), timeout=10) as other:
            other.sendall(head.encode() + body)
            wait_for(lambda: app.state.service.compute.slots["cpu"].waiting == 1)
        # The second stood in line, and left it without a trace.
        wait_for(lambda: app.state.service.compute.slots["cpu"].waiting == 0)
        assert endless.stopped.empty()
    assert endless.stopped.get(timeout=10).reason == "disconnected"
    wait_for(lambda: not app.state.service.compute.slots["cpu"].busy)
    assert not endless.began.acquire(blocking=False)
    assert closed(app.state.service.metrics) == {("request", "accepted"): 2, ("request", "cancelled disconnected"): 2}


def test_openapi_lists_the_errors_of_computing_routes(client):
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("/api/v1/trace.json", "/api/v1/profile.json", "/api/v1/theory.json", "/foundations/matmul.json"):
        assert {"503", "504", "507"} <= paths[path]["get"]["responses"].keys()
    assert {"408", "413", "504", "507"} <= paths["/api/v1/trace"]["post"]["responses"].keys()
    assert not {"504", "507"} & paths["/api/v1/presets.json"]["get"]["responses"].keys()


def test_pages_compute_nothing(open_client, settings, monkeypatch):
    app = create_app(settings)
    client = open_client(app)
    monkeypatch.setattr(compute.ComputeSlot, "run", lambda *_: pytest.fail("a page computes nothing"))
    for path in ("/?widths=1024x65&batch=1024&activation=gelu", "/?preset=deep-exploding", "/foundations/matmul?m=300"):
        client.get(path)
    assert accounts(app.state.service.metrics) == {}


def test_limits_come_from_the_settings(open_client, settings):
    client = open_client(create_app(settings.model_copy(update={"max_depth": 1})))
    error = client.get("/api/v1/trace.json").json()["error"]
    assert (error["field"], error["limit"]) == ("widths", 1)
    assert client.get("/api/v1/trace.json?widths=9,1").status_code == 200


@pytest.mark.usefixtures("without_engine")
def test_a_picture_without_the_extra_is_a_501_that_names_it(client):
    answer = client.get("/api/v1/trace.svg?widths=2,1&batch=1")
    assert answer.status_code == 501
    assert answer.json() == {
        "error": {
            "code": "missing_extra",
            "message": "drawing without a browser needs an optional dependency: pip install 'chainrule[render]'",
            "limit": "render",
        }
    }
    assert answer.headers["cache-control"] == "no-store"
