"""Metrics: readable by Prometheus, correct, and bounded."""

import asyncio
import contextlib
import json
import random
import re
import string

import httpx
from accounts import closed
from prometheus_client.parser import text_string_to_metric_families
from served import wait_for
from websockets.sync.client import connect

from chainrule import __version__
from chainrule.errors import TraceError
from chainrule.stats import kernel_name
from chainrule.web import api
from chainrule.web.main import create_app
from chainrule.web.metrics import Metrics
from chainrule.web.request_log import CLIENT_GONE, OTHER, RequestLog, Templates


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def scrape(client):
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return families(answer.text)


def values(family):
    """Label values in the order of their names → sample value."""
    return {tuple(sample.labels[name] for name in sorted(sample.labels)): sample.value for sample in family.samples}


def requests(scraped):
    """(method, route, status) → count."""
    return values(scraped["chainrule_http_requests"])


# The text ------------------------------------------------------------------------------------------------------------
def test_prometheus_reads_every_family_before_the_first_request(client):
    text = client.get("/metrics").text
    scraped = families(text)
    for name, family in scraped.items():
        assert name.startswith(("chainrule_", "process_"))
        assert family.documentation.endswith("."), name
        assert family.type in ("counter", "gauge", "histogram"), name
    assert "_created" not in text
    (build,) = scraped["chainrule_build_info"].samples
    assert build.value == 1
    assert build.labels["version"] == __version__
    assert build.labels["kernel"] == kernel_name()
    assert build.labels["torch"]
    assert scraped["chainrule_start_time_seconds"].samples[0].value > 1e9
    kinds = {"request", "picture", "theory"}
    for name in ("accepted", "done", "timed_out"):
        assert values(scraped[f"chainrule_work_{name}"]) == {(kind,): 0 for kind in kinds}
    cancelled = values(scraped["chainrule_work_cancelled"])
    assert {reason for _, reason in cancelled} == {"disconnected", "superseded", "shutdown"}
    assert set(cancelled.values()) == {0}


def test_a_gauge_has_a_series_per_device():
    metrics = Metrics()
    lines = {"cpu": 3, "cuda": 0}
    for device in lines:
        metrics.watch("line", "Who waits.", lambda device=device: lines[device], device=device)
    lines["cuda"] = 5
    assert values(families(metrics.text().decode())["chainrule_line"]) == {("cpu",): 3, ("cuda",): 5}


# Requests ------------------------------------------------------------------------------------------------------------
def test_requests_are_counted_by_method_route_and_status(client):
    for path in (
        *["/api/v1/trace.json?widths=9,5,1&seed=1"] * 2,
        *["/api/v1/trace.json?widths=0"] * 3,
        *["/nowhere"] * 4,
        *["/static/nowhere.js"] * 2,
        "/static/explorer.js",
        "/healthz",
    ):
        client.get(path)
    client.request("HEAD", "/api/v1/presets.json")
    client.request("DELETE", "/healthz")
    client.request("POST", "/api/v1/trace", json={"widths": "9,5,1"})
    scraped = scrape(client)
    assert requests(scraped) == {
        ("GET", "/api/v1/trace.json", "200"): 2,
        ("GET", "/api/v1/trace.json", "422"): 3,
        ("GET", OTHER, "404"): 4,
        ("GET", "/static/{path}", "404"): 2,
        ("GET", "/static/{path}", "200"): 1,
        ("GET", "/healthz", "200"): 1,
        ("HEAD", "/api/v1/presets.json", "200"): 1,
        ("DELETE", "/healthz", "405"): 1,
        ("POST", "/api/v1/trace", "200"): 1,
    }
    assert values(scraped["chainrule_rejected"]) == {
        ("not_found",): 6,
        ("invalid_spec",): 3,
        ("method_not_allowed",): 1,
    }
    # The scrape itself.
    assert values(scraped["chainrule_http_open_requests"]) == {(): 1}


def test_unknown_paths_and_names_add_no_series(client):
    letters = random.Random(7)

    def ask(times):
        for number in range(times):
            word = "".join(letters.choices(string.ascii_letters + string.digits + "/%{}\"'\\~", k=12))
            for path in (f"/{number}{word}", f"/api/v1/{word}", f"/static/{word}", f"/api/v1/trace.json?{word}={word}"):
                client.get(path)
            client.get(f"/healthz?{word}", headers={"x-request-id": word, "user-agent": word})
            client.request(word[:4].encode().hex(), "/healthz")
            client.get("/api/v1/presets.json", headers={"host": f"{word[:3].encode().hex()}.example"})
        return scrape(client)

    first, second = ask(10), ask(40)
    # The scrapes themselves are one series more.
    assert set(requests(second)) - set(requests(first)) <= {("GET", "/metrics", "200")}
    assert {method for method, *_ in requests(second)} == {"GET", OTHER}
    assert ("other", "/healthz", "405") in requests(second)
    assert set(values(first["chainrule_rejected"])) == set(values(second["chainrule_rejected"]))
    assert sum(len(family.samples) for family in second.values()) < 400


def test_clients_that_leave_are_counted_apart():
    """They leave before, during and after an answer; and one answer breaks."""
    metrics = Metrics()
    start = {"type": "http.response.start", "status": 200, "headers": []}
    end = {"type": "http.response.body", "body": b"{}"}

    def app(*steps):
        async def run(_scope, receive, send):
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                await (send(dict(step)) if step else receive())

        return run

    async def receive():
        return {"type": "http.disconnect"}

    async def send(_):
        pass

    leaves = None
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    for steps in ([leaves], [leaves, start, end], [start, end, leaves], [start, RuntimeError("half an answer")]):
        with contextlib.suppress(RuntimeError):
            asyncio.run(RequestLog(app(*steps), metrics, Templates([]))(dict(scope), receive, send))
    scraped = families(metrics.text().decode())
    assert requests(scraped) == {("GET", OTHER, str(CLIENT_GONE)): 2, ("GET", OTHER, "200"): 2}
    assert values(scraped["chainrule_http_open_requests"]) == {(): 0}


# Work ----------------------------------------------------------------------------------------------------------------
def test_work_is_counted_by_its_end(open_client, settings, monkeypatch):
    app = create_app(settings)
    client = open_client(app)

    def raises(error):
        raise error

    tag = client.get("/api/v1/trace.json?widths=9,5,1").headers["etag"]
    client.get("/api/v1/trace.json?widths=9,5,1", headers={"if-none-match": tag})
    client.get("/api/v1/trace.json?widths=0")
    client.get("/api/v1/theory.json?activation=tanh")
    client.request("POST", "/api/v1/trace", json={"widths": "9,5,1"})
    for error in (RuntimeError("a secret of the inside"), TraceError("nothing was recorded")):
        monkeypatch.setattr(api, "_profile_bytes", lambda _, error=error: raises(error))
        client.get("/api/v1/profile.json")
    assert closed(app.state.service.metrics) == {
        ("request", "accepted"): 5,
        ("request", "done"): 3,
        ("request", "failed internal"): 1,
        ("request", "failed trace_failed"): 1,
    }
    text = client.get("/metrics").text
    for name in ("compute_seconds", "queue_wait_seconds"):
        assert f'chainrule_{name}_count{{kind="request"}} 5.0' in text
    assert 0 < float(re.search(r'chainrule_compute_seconds_sum{kind="request"} (.*)', text)[1]) < 60


# Sockets -------------------------------------------------------------------------------------------------------------
def test_open_sockets_and_their_work_are_counted(serve, settings):
    app = create_app(settings)
    address = serve(app)

    def scraped():
        return families(httpx.get(f"http://{address}/metrics").text)

    with connect(f"ws://{address}/api/v1/live") as first, connect(f"ws://{address}/api/v1/live"):
        for seq in range(3):
            first.send(json.dumps({"seq": seq, "spec": {"widths": "9,5,1", "seed": seq}}))
            while not isinstance(first.recv(), bytes):
                pass
        first.send("no message")
        while json.loads(first.recv())["type"] != "error":
            pass
        during = scraped()
        assert values(during["chainrule_live_sockets"]) == {(): 2}
        assert httpx.get(f"http://{address}/readyz").json()["sockets"] == 2
        assert requests(during)[("GET", "/api/v1/live", "101")] == 2
        assert values(during["chainrule_http_open_requests"]) == {(): 1}
        assert values(during["chainrule_live_messages"]) == {(): 3}
        assert values(during["chainrule_rejected"]) == {("bad_message",): 1}
        books = closed(app.state.service.metrics)
        assert (books["picture", "accepted"], books["picture", "done"]) == (3, 3)
    wait_for(lambda: values(scraped()["chainrule_live_sockets"]) == {(): 0})
