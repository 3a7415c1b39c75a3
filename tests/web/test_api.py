"""The HTTP API's own behaviour: what it computes, when it does not, and what it refuses before it starts."""

import json
import threading

import numpy as np
import orjson
import pytest

from chainrule.build import build_model
from chainrule.main import create_app
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.web import api
from chainrule.wire import load


@pytest.fixture
def app(settings):
    return create_app(settings)


@pytest.fixture
def client(open_client, app):
    return open_client(app)


def forbid_computing(monkeypatch):
    """Any trace from here on is a failure."""

    def fail(*_):
        raise AssertionError("nothing may be computed")

    for name in ("trace_spec", "tensor_values"):
        monkeypatch.setattr(api, name, fail)


@pytest.fixture
def no_compute(monkeypatch):
    forbid_computing(monkeypatch)


def without_timing(content):
    dump = json.loads(content)
    assert dump.pop("timing")
    return dump


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


def test_a_posted_spec_gives_the_same_dump(client):
    got = client.get("/api/v1/trace.json?preset=kaiming-relu&widths=20,10,1&bias_std=0.5")
    posted = client.request(
        "POST", "/api/v1/trace", json={"preset": "kaiming-relu", "widths": [20, 10, 1], "bias_std": 0.5}
    )
    assert posted.status_code == 200
    assert without_timing(posted.content) == without_timing(got.content)
    assert posted.headers["cache-control"] == "no-store"


def test_two_dumps_of_one_spec_differ_in_timing_alone(client):
    first, second = (client.get("/api/v1/trace.json?widths=20,10,1").content for _ in range(2))
    assert without_timing(first) == without_timing(second)
    assert first.partition(b'"timing"')[0] == second.partition(b'"timing"')[0]


def test_the_values_of_a_tensor_are_the_models(client):
    answer = client.get("/api/v1/tensor.json?name=x&rows=1:4&cols=2:4&seed=5")
    expected = build_model(ModelSpec(seed=5)).leaves["x"][1:4, 2:4]
    assert answer.status_code == 200
    np.testing.assert_array_equal(np.array(answer.json()["values"], np.float32), expected.numpy())
    assert answer.json()["shape"] == [200, 100]


def test_without_a_range_the_first_five_rows_and_columns(client):
    values = client.get("/api/v1/tensor.json?name=w1").json()["values"]
    assert np.shape(values) == (5, 5)


# Entity tags ---------------------------------------------------------------------------------------------------------

TAGGED = [
    "/api/v1/trace.json?widths=9,5,1",
    "/api/v1/trace.dot?widths=9,5,1",
    "/api/v1/trace.model-explorer.json?widths=9,5,1",
    "/api/v1/profile.json?widths=9,5,1",
    "/api/v1/tensor.json?name=l1&widths=9,5,1",
    "/api/v1/presets.json",
    "/api/v1/devices.json",
    "/api/v1/schema/trace.json",
]


@pytest.mark.parametrize("path", TAGGED)
def test_what_is_known_is_answered_304_before_anything_is_computed(client, path, monkeypatch):
    first = client.get(path)
    assert first.status_code == 200
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    forbid_computing(monkeypatch)
    again = client.get(path, headers={"if-none-match": tag})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == tag
    assert again.headers["cache-control"] == first.headers["cache-control"]


def test_a_tag_is_of_the_spec_not_of_its_spelling(client):
    tags = [
        client.get(f"/api/v1/trace.json?{query}").headers["etag"]
        for query in ("widths=9,9,1&seed=1", "seed=1&widths=9x2,1", "seed=1&widths=9%2C9%2C1&activation=relu")
    ]
    assert len(set(tags)) == 1
    assert client.get("/api/v1/trace.json?widths=9,9,1&seed=2").headers["etag"] != tags[0]
    assert client.get("/api/v1/trace.dot?widths=9,9,1&seed=1").headers["etag"] != tags[0]


def test_a_tag_of_values_is_of_the_range_too(client):
    tags = {
        client.get(f"/api/v1/tensor.json?widths=9,9,1&{own}").headers["etag"]
        for own in ("name=x", "name=x&rows=0:4", "name=x&cols=0:4", "name=l1")
    }
    assert len(tags) == 4


def test_a_tag_is_of_the_environment_too(client, monkeypatch):
    path = "/api/v1/trace.json?widths=9,9,1"
    tag = client.get(path).headers["etag"]
    before = api.environment("cpu")
    monkeypatch.setattr(api, "environment", lambda _: {**before, "torch": "0.0"})
    answer = client.get(path, headers={"if-none-match": tag})
    assert answer.status_code == 200
    assert answer.headers["etag"] != tag


# Bad input -----------------------------------------------------------------------------------------------------------

BAD = [
    ("/api/v1/trace.json?scale=x", 422, "invalid_spec", "scale"),
    ("/api/v1/trace.json?widths=0,1", 422, "invalid_spec", "widths"),
    ("/api/v1/trace.json?widths=1000000000,1", 422, "over_limit", "widths"),
    ("/api/v1/trace.json?widths=100x999999999", 422, "invalid_spec", "widths"),
    ("/api/v1/trace.json?scale=inf", 422, "invalid_spec", "scale"),
    ("/api/v1/trace.json?preset=none", 422, "invalid_spec", "preset"),
    ("/api/v1/trace.json?name=l2", 422, "invalid_spec", "name"),
    ("/api/v1/trace.dot?seed=1&seed=1", 422, "invalid_spec", "seed"),
    ("/api/v1/trace.model-explorer.json?bias=2", 422, "invalid_spec", "bias"),
    ("/api/v1/profile.json?batch=1025", 422, "over_limit", "batch"),
    ("/api/v1/tensor.json", 422, "bad_request", "name"),
    ("/api/v1/tensor.json?name=l2&rows=5:0", 422, "invalid_range", "rows"),
    ("/api/v1/tensor.json?name=l2&rows=5", 422, "invalid_range", "rows"),
    ("/api/v1/tensor.json?name=l2&cols=-5:0", 422, "invalid_range", "cols"),
    ("/api/v1/tensor.json?name=l2&cols=0:65", 422, "invalid_range", "cols"),
    ("/api/v1/tensor.json?name=l2&cols=0:99999999999", 422, "invalid_range", "cols"),
]


@pytest.mark.parametrize(("path", "status", "code", "field"), BAD, ids=[path for path, *_ in BAD])
@pytest.mark.usefixtures("no_compute")
def test_bad_input_is_refused_before_anything_is_computed(client, path, status, code, field):
    answer = client.get(path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == (code, field)
    assert error["message"].startswith(field)
    assert answer.headers["cache-control"] == "no-store"


def test_a_device_that_is_not_there(client):
    devices = [each["name"] for each in client.get("/api/v1/devices.json").json()["devices"]]
    answer = client.get("/api/v1/trace.json?device=cuda&widths=9,5,1")
    if "cuda" in devices:
        assert answer.status_code == 200
    else:
        assert answer.status_code == 422
        assert answer.json()["error"] == {
            "code": "invalid_spec",
            "message": "device: 'cuda' is not on this machine, which has cpu",
            "field": "device",
            "limit": ["cpu"],
        }


def test_a_tensor_that_does_not_exist(client):
    answer = client.get("/api/v1/tensor.json?name=l9&widths=9,5,1")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert "'l9'" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, "malformed_json"),
        (b"", {}, 400, "malformed_json"),
        (b"\xff\xfe", {}, 400, "malformed_json"),
        (b"[" * 5000, {}, 400, "malformed_json"),
        (b"NaN", {}, 400, "malformed_json"),
        (b'{"scale": NaN}', {}, 400, "malformed_json"),
        (b"[]", {}, 422, "invalid_body"),
        (b"null", {}, 422, "invalid_body"),
        (b'{"scale": "x"}', {}, 422, "invalid_spec"),
        (b'{"scale": {}}', {}, 422, "invalid_spec"),
        (b'{"more": 1}', {}, 422, "invalid_spec"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b"scale=2", {"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        (b"{}", {"content-type": ""}, 415, "unsupported_media_type"),
        (b" " * 70_000 + b"{}", {}, 413, "body_too_large"),
    ],
)
@pytest.mark.usefixtures("no_compute")
def test_a_bad_body_is_refused(client, body, headers, status, code):
    answer = client.request(
        "POST", "/api/v1/trace", content=body, headers={"content-type": "application/json", **headers}
    )
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


def test_a_body_that_does_not_say_its_length_is_read_no_further_than_it_may_be_long(client):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 2**14

    answer = client.request("POST", "/api/v1/trace", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert sent == 5  # 64 KiB and the piece that went beyond


def test_a_charset_is_no_other_media_type_and_an_address_is_no_body(client):
    options = {"content": b'{"widths": "9,5,1"}', "headers": {"content-type": "application/json; charset=utf-8"}}
    assert client.request("POST", "/api/v1/trace", **options).status_code == 200
    answer = client.request("POST", "/api/v1/trace?seed=1", **options)
    assert answer.status_code == 400
    assert "body" in answer.json()["error"]["message"]


# Load ----------------------------------------------------------------------------------------------------------------


def test_a_full_line_is_told_when_to_come_back_and_the_loop_stays_free(open_client, settings, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(api, "_trace_bytes", lambda *_: orjson.dumps(gate.wait(20)))
    client = open_client(create_app(settings.model_copy(update={"queue": 2})))

    async def scenario():
        import asyncio

        tasks = [asyncio.create_task(client.client.get("/api/v1/trace.json")) for _ in range(5)]
        done, _ = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 2:
            done, _ = await asyncio.wait(tasks, timeout=0.05)
        # Answered while the device's only job waits for the gate.
        health, ready = await client.client.get("/healthz"), await client.client.get("/readyz")
        gate.set()
        return await asyncio.gather(*tasks), health, ready

    answers, health, ready = client.runner.run(scenario())
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503]
    for answer in answers:
        if answer.status_code == 503:
            assert answer.json()["error"]["code"] == "busy"
            assert int(answer.headers["retry-after"]) >= 1
    assert health.json()["status"] == "ok"
    assert ready.status_code == 503
    assert ready.json() == {"status": "busy", "devices": {"cpu": {"busy": True, "waiting": 2, "limit": 2}}}
    assert client.get("/readyz").json()["status"] == "ready"


def test_torch_never_runs_in_the_event_loop(client, monkeypatch):
    threads = []

    def spy(spec):
        threads.append(threading.current_thread())
        return trace_spec(spec)

    monkeypatch.setattr(api, "trace_spec", spy)
    for path in ("/api/v1/trace.json", "/api/v1/trace.dot", "/api/v1/profile.json"):
        assert client.get(f"{path}?widths=9,5,1").status_code == 200
    assert len(threads) == 3
    assert {thread.name for thread in threads} == {"compute-cpu_0"}


def test_a_limit_is_the_settings(open_client, settings):
    client = open_client(create_app(settings.model_copy(update={"max_depth": 1})))
    error = client.get("/api/v1/trace.json").json()["error"]
    assert (error["field"], error["limit"]) == ("widths", 1)
    assert client.get("/api/v1/trace.json?widths=9,1").status_code == 200
