"""Probes: alive and ready; neither waits for a device."""

import asyncio
import re
import threading
import time

import pytest

from chainrule import __version__
from chainrule.stats import kernel_name
from chainrule.web import api
from chainrule.web.main import create_app


@pytest.fixture
def gate(monkeypatch):
    """Profiles wait for the gate, which is open at the end."""
    opened = threading.Event()

    def wait(_):
        assert opened.wait(60)
        return b"{}"

    monkeypatch.setattr(api, "_profile_bytes", wait)
    yield opened
    opened.set()


async def until(client, path, holds):
    """The first answer whose JSON `holds`."""
    end = time.monotonic() + 20
    while True:
        answer = await client.get(path)
        if holds(answer.json()):
            return answer
        assert time.monotonic() < end, answer.text
        await asyncio.sleep(0.01)


def test_an_idle_server_is_alive_and_ready(client):
    health, ready = client.get("/healthz"), client.get("/readyz")
    assert (health.status_code, health.json()) == (200, {"status": "ok", "version": __version__})
    assert ready.status_code == 200
    said = ready.json()
    devices = said.pop("devices")
    assert said == {"ready": True, "status": "ready", "kernel": kernel_name(), "sockets": 0, "shutting_down": False}
    assert devices[0]["name"] == "cpu"
    for device in devices:
        assert device["description"]
        assert (device["busy"], device["waiting"], device["queue"], device["running_seconds"]) == (False, 0, 8, 0)
    assert health.headers["cache-control"] == ready.headers["cache-control"] == "no-store"


async def test_a_full_queue_is_not_ready(open_client, settings, gate):
    client = open_client(create_app(settings.model_copy(update={"queue": 2})))

    def gauges(text):
        names = ("queue_length", "queue_limit", "device_busy")
        return [float(re.search(rf'^chainrule_{name}{{device="cpu"}} (.*)$', text, re.MULTILINE)[1]) for name in names]

    ask = client.client.get
    tasks = [asyncio.create_task(ask("/api/v1/profile.json")) for _ in range(2)]
    half = await until(client.client, "/readyz", lambda said: said["devices"][0]["waiting"] == 1)
    # The probes answer while the device computes.
    assert half.json()["devices"][0]["busy"] is True
    assert (await ask("/healthz")).json()["status"] == "ok"
    assert not any(task.done() for task in tasks)
    tasks.append(asyncio.create_task(ask("/api/v1/profile.json")))
    full = await until(client.client, "/readyz", lambda said: said["devices"][0]["waiting"] == 2)
    refused, during = await ask("/api/v1/profile.json"), await ask("/metrics")
    gate.set()
    answers = await asyncio.gather(*tasks)
    after = await until(client.client, "/readyz", lambda said: said["status"] == "ready")
    idle = await ask("/metrics")
    assert (half.status_code, half.json()["status"]) == (200, "ready")
    assert (full.status_code, full.json()["status"], full.json()["ready"]) == (503, "busy", False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert after.status_code == 200
    assert (gauges(during.text), gauges(idle.text)) == ([2, 2, 1], [0, 2, 0])


async def test_a_device_past_its_deadline_hangs(open_client, settings, gate):
    limits = {"deadline_seconds": 0.1, "live_deadline_seconds": 0.1}
    client = open_client(create_app(settings.model_copy(update=limits))).client
    task = asyncio.create_task(client.get("/api/v1/profile.json"))
    hanging = await until(client, "/readyz", lambda said: said["status"] == "hanging")
    assert (hanging.status_code, hanging.json()["ready"]) == (503, False)
    assert hanging.json()["devices"][0]["running_seconds"] >= 0.3
    assert (await client.get("/healthz")).status_code == 200
    gate.set()
    await task
    assert (await until(client, "/readyz", lambda said: said["status"] == "ready")).status_code == 200


async def test_a_server_in_shutdown_is_alive_and_not_ready(open_client, settings):
    app = create_app(settings)
    client = open_client(app)
    async with app.router.lifespan_context(app):
        before = await client.client.get("/readyz")
        app.state.service.compute.begin_shutdown()
        told, health = await client.client.get("/readyz"), await client.client.get("/healthz")
    ended = await client.client.get("/readyz")
    assert (before.status_code, before.json()["shutting_down"]) == (200, False)
    for after in (told, ended):
        assert (after.status_code, after.json()["status"]) == (503, "shutting down")
        assert (after.json()["ready"], after.json()["shutting_down"]) == (False, True)
    assert health.status_code == 200
