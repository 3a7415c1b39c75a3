"""Many live sockets on one device: superseded work, slow and closed clients, limits and accounts.

The sockets are made here, without a network, so that a test decides when a client asks, reads and leaves.
"""

import asyncio
import contextlib
import json
import random
import struct
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from accounts import closed
from gate import Gate
from starlette.websockets import WebSocket

from chainrule.diagnose.profile import theory
from chainrule.run import Retracer, trace_spec
from chainrule.spec import ModelSpec
from chainrule.web import compute as compute_module
from chainrule.web import live, main
from chainrule.web.compute import Device
from chainrule.web.live import LiveSession, specs
from chainrule.web.main import create_app

TINY = {"widths": "2,1", "batch": 2}


class Peer:
    """A client without a network."""

    def __init__(self, service):
        self.service = service
        self.inbox = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.got = []
        self.frames = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.close_code = None
        self.session = None
        self.task = asyncio.create_task(self._serve())

    async def _serve(self):
        websocket = WebSocket({"type": "websocket", "path": "/", "headers": []}, self.inbox.get, self._send)
        await websocket.accept()
        self.session = LiveSession(websocket, self.service, specs(self.service))
        await self.session.serve()

    async def _send(self, message):
        await self.takes.wait()
        if message["type"] == "websocket.close":
            self.close_code = message["code"]
        elif message.get("bytes") is not None:
            seq, loss = struct.unpack_from("<4xI16xd", message["bytes"])
            self.got.append(("frame", seq))
            self.frames.append((seq, loss))
        elif message.get("text") is not None:
            body = json.loads(message["text"])
            if body["type"] != "topology":
                code = [body["error"]["code"]] if body["type"] == "error" else []
                self.got.append((body["type"], body["seq"], *code))

    def ask(self, seq, **spec):
        self.inbox.put_nowait({"type": "websocket.receive", "text": json.dumps({"seq": seq, "spec": {**TINY, **spec}})})

    def allow_time(self):
        self.session.source = replace(self.session.source, deadline_seconds=3600)

    async def until(self, *wanted):
        await until(lambda: wanted in self.got)

    async def leave(self):
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await asyncio.wait_for(self.task, 20)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    monkeypatch.setattr(live.Retracer, "trace", lambda _, spec: gate.work(spec.seed) and trace_spec(spec))
    yield gate
    gate.open.set()


@pytest.fixture
def run(settings):
    """A server with changed settings, and a function that makes its clients; all work has ended afterwards."""

    @contextlib.asynccontextmanager
    async def run(**changes):
        # Only tests that change these settings supersede work or reach a deadline.
        changes = {"live_grace_seconds": 3600, "live_deadline_seconds": 3600} | changes
        service = create_app(settings.model_copy(update=changes)).state.service
        peers = []

        def peer():
            peers.append(Peer(service))
            return peers[-1]

        try:
            async with asyncio.timeout(60):
                yield service, peer
        finally:
            for each in peers:
                each.inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
            await asyncio.gather(*(each.task for each in peers))
            await service.compute.close()
            books = closed(service.metrics)
            assert not any(count for (_, end), count in books.items() if end == "in_hand")
            assert service.compute.kept.bytes == 0

    return run


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def begun(peer, gate):
    """A client whose picture of seed 1 is being computed."""
    client = peer()
    client.ask(1, seed=1)
    await until(lambda: gate.began == [1])
    return client


def count(service, name):
    return int(service.metrics.registry.get_sample_value(f"chainrule_{name}_total"))


# Giving way ----------------------------------------------------------------------------------------------------------
async def test_an_old_computation_is_superseded_and_the_next_finishes(run, gate):
    async with run(live_grace_seconds=0) as (service, peer):
        client = peer()
        for seq in (1, 2):
            client.ask(seq, seed=seq)
            await until(lambda: gate.began[-1:] == [seq])  # noqa: B023 (awaited at once)
        assert [(name, reason) for name, reason, _ in gate.stopped] == [(1, "superseded")]
        client.ask(3, seed=3)
        await until(lambda: count(service, "live_messages") == 3)
        await asyncio.sleep(0.05)
        assert gate.began == [1, 2]
        gate.open.set()
        await client.until("frame", 3)
        # The first is superseded without an answer.
        assert [each for each in client.got if each[0] != "theory"] == [("frame", 2), ("frame", 3)]
        assert closed(service.metrics)["picture", "cancelled superseded"] == 1
        # After a finished one, the next may be superseded again.
        gate.open.clear()
        client.ask(4, seed=4)
        await until(lambda: gate.began[-1] == 4)
        client.ask(5, seed=5)
        await until(lambda: gate.began[-1] == 5)
    assert [name for name, *_ in gate.stopped] == [1, 4, 5]  # 5 because its client left


async def test_a_computation_is_superseded_after_the_grace(run, gate):
    async with run(live_grace_seconds=0.2) as (_, peer):
        client = await begun(peer, gate)
        client.ask(2, seed=2)
        await until(lambda: gate.began == [1, 2])
    name, reason, seconds = gate.stopped[0]
    assert (name, reason) == (1, "superseded")
    assert seconds >= 0.15  # the grace is counted from a moment before the gate's clock starts


async def test_a_bad_spec_supersedes_nothing(run, gate):
    async with run(live_grace_seconds=0) as (service, peer):
        client = await begun(peer, gate)
        client.ask(2, scale="much")
        await until(lambda: count(service, "live_messages") == 2)
        gate.open.set()
        await client.until("error", 2, "invalid_spec")
        await client.until("theory", 1)
        assert client.frames[0][0] == 1
    assert gate.stopped == []


async def test_a_new_device_while_in_line_is_used(run, monkeypatch):
    monkeypatch.setattr(main, "list_devices", lambda: [Device("cpu", "one"), Device("cuda", "another")])
    gate, threads = Gate(), []

    def trace(_, spec):
        threads.append((spec.device, threading.current_thread().name))
        return trace_spec(spec.replace(device="cpu"))

    monkeypatch.setattr(live.Retracer, "trace", trace)
    async with run() as (service, peer):
        client, slot = peer(), service.compute.slots["cpu"]
        busy = asyncio.create_task(slot.run(lambda: gate.work("request")))
        await until(lambda: gate.began)
        client.ask(1, device="cpu")
        await until(lambda: slot.in_line == 1)
        client.ask(2, device="cuda")
        await until(lambda: client.session.newest.seq == 2)
        gate.open.set()
        await client.until("theory", 2)
        await busy
    assert threads == [("cuda", "compute-cuda_0")]


async def test_after_a_computation_that_does_not_stop_another_tracer_is_used(run, gate, monkeypatch):
    monkeypatch.setattr(compute_module, "PATIENCE_SECONDS", 0.05)
    gate.stubborn = True
    async with run(live_deadline_seconds=0.1) as (service, peer):
        client = await begun(peer, gate)
        retracer = client.session.retracer
        await client.until("error", 1, "deadline_exceeded")
        client.allow_time()
        assert client.session.retracer is not retracer
        client.ask(2, seed=2)
        await until(lambda: client.session.newest is not None)
        assert gate.began == [1]
        gate.open.set()
        await client.until("frame", 2)
        # The first result is dropped, because the client already has an error for it.
        assert [seq for seq, _ in client.frames] == [2]
        assert closed(service.metrics)["picture", "timed_out"] == 1


async def test_theory_is_superseded_and_ends_with_its_socket(run, monkeypatch):
    gate = Gate()

    def held(trace):
        gate.work(trace.spec["seed"])
        return theory(trace)

    monkeypatch.setattr(live, "theory", held)
    async with run(live_grace_seconds=0) as (service, peer):
        client = await begun(peer, gate)
        client.ask(2, seed=2)
        await until(lambda: gate.began == [1, 2])
        await client.leave()
        await until(lambda: len(gate.stopped) == 2)
        assert client.got == [("frame", 1), ("frame", 2)]
        await until(lambda: not service.compute.slots["cpu"].busy)
        books = closed(service.metrics)
        assert (books["theory", "cancelled superseded"], books["theory", "cancelled disconnected"]) == (1, 1)


async def test_theory_that_starts_after_a_newer_message_is_superseded(run, gate, monkeypatch):
    """Theory waits behind a request; the message arrives meanwhile."""
    said, request = Gate(), Gate()
    monkeypatch.setattr(live, "theory", lambda trace: said.work(trace.spec["seed"]) and theory(trace))
    async with run(live_grace_seconds=0) as (service, peer):
        client, slot = peer(), service.compute.slots["cpu"]
        client.ask(1, seed=1)
        await until(lambda: gate.began == [1])
        between = asyncio.create_task(slot.run(lambda: request.work("request")))
        await until(lambda: slot.waiting == 1)
        gate.open.set()
        await until(lambda: request.began and slot.in_line == 1)
        client.ask(2, seed=2)
        await until(lambda: client.session.newest is not None)
        request.open.set()
        await client.until("frame", 2)
        assert closed(service.metrics)["theory", "cancelled superseded"] == 1
        said.open.set()
        await client.until("theory", 2)
        await between
        assert client.got == [("frame", 1), ("frame", 2), ("theory", 2)]


async def test_theory_past_its_deadline_is_skipped(run, monkeypatch):
    gate = Gate()
    monkeypatch.setattr(live, "theory", lambda trace: gate.work(trace.spec["seed"]) and theory(trace))
    async with run(live_deadline_seconds=0.1) as (service, peer):
        client = peer()
        client.ask(1, seed=1)
        await until(lambda: gate.stopped)
        client.allow_time()
        gate.open.set()
        client.ask(2, seed=2)
        await client.until("theory", 2)
        assert client.got == [("frame", 1), ("frame", 2), ("theory", 2)]
        assert closed(service.metrics)["theory", "timed_out"] == 1


@pytest.mark.parametrize(
    "style", ["module", *(pytest.param(each, marks=pytest.mark.long) for each in ("functions", "autograd_function"))]
)
async def test_numbers_are_right_after_superseded_passes(run, style, monkeypatch):
    spec = {"widths": "100x9", "batch": 100, "style": style}
    monkeypatch.setattr(compute_module, "PATIENCE_SECONDS", 60)
    async with run(live_grace_seconds=0) as (service, peer):
        client = peer()
        dice, seq = random.Random(1), 0
        while closed(service.metrics)["picture", "cancelled superseded"] < 10 or len(client.frames) < 10:
            seq += 1
            client.ask(seq, **spec, scale=1 + seq % 100 / 100)
            await asyncio.sleep(dice.random() * 0.01)
        client.ask(seq + 1, **spec, scale=1 + (seq + 1) % 100 / 100)
        await client.until("frame", seq + 1)
    for seq, loss in client.frames:
        expected = trace_spec(ModelSpec.parse({**spec, "scale": 1 + seq % 100 / 100})).loss
        np.testing.assert_equal(loss, expected)


# Many clients --------------------------------------------------------------------------------------------------------
async def test_thirty_busy_clients_take_turns_and_end_on_their_last_values(run, monkeypatch):
    clients, rounds = 30, 5
    order, trace, slots = [], Retracer.trace, []

    def noted(self, spec):
        order.append(spec.seed)
        if len(order) <= clients * rounds:
            # All others wait in line too.
            deadline = time.monotonic() + 20
            while slots[0].in_line < clients - 1:
                assert time.monotonic() < deadline
                time.sleep(0.0005)
        return trace(self, spec)

    monkeypatch.setattr(live.Retracer, "trace", noted)
    # Theory of a frame takes a separate turn.
    monkeypatch.setattr(live, "THEORY_SHARE", -1.0)

    async with run() as (service, peer):
        slots.append(service.compute.slots["cpu"])
        peers = [peer() for _ in range(clients)]
        seqs = [0] * clients
        while len(order) < clients * rounds:
            for index, client in enumerate(peers):
                seqs[index] += 1
                client.ask(seqs[index], seed=index, scale=seqs[index])
            await asyncio.sleep(0.002)
        for client, seq in zip(peers, seqs, strict=True):
            await client.until("frame", seq)
            assert client.frames == sorted(client.frames)
        await until(lambda: not service.compute.slots["cpu"].busy)
        accepted = closed(service.metrics)["picture", "accepted"]
        assert count(service, "live_messages") == sum(seqs) == count(service, "live_coalesced") + accepted
    for index, client in enumerate(peers):
        seq, loss = client.frames[-1]
        assert loss == trace_spec(ModelSpec(**TINY, seed=index, scale=seq)).loss
    for turn in range(clients * (rounds - 1)):
        assert sorted(order[turn : turn + clients]) == list(range(clients))


async def test_a_client_that_reads_nothing_delays_nobody(run):
    async with run() as (service, peer):
        slow, quick = peer(), peer()
        slow.ask(1)
        await slow.until("theory", 1)
        slow.takes.clear()
        slow.ask(2)
        await until(lambda: closed(service.metrics)["picture", "done"] == 2)
        for seq in range(3, 50):
            slow.ask(seq)
        for seq in range(5):
            quick.ask(seq)
            await quick.until("theory", seq)
        # None of the 47 waiting messages was computed; only the newest is kept.
        assert closed(service.metrics)["picture", "done"] == 2 + 5
        await until(lambda: slow.inbox.empty())
        assert slow.session.newest.seq == 49
        await slow.leave()
        assert service.compute.kept.bytes == quick.session.retracer.kept_bytes
        slow.takes.set()
        assert slow.got == [("frame", 1), ("theory", 1)]
        # Its last message is in the accounts.
        assert closed(service.metrics)["picture", "cancelled disconnected"] == 1


async def test_a_client_that_leaves_frees_the_device(run, gate):
    async with run() as (service, peer):
        first, second, third = peer(), peer(), peer()
        first.ask(1, seed=1)
        await until(lambda: gate.began == [1])
        second.ask(1, seed=2)
        third.ask(1, seed=3)
        slot = service.compute.slots["cpu"]
        await until(lambda: slot.in_line == 2)
        await second.leave()
        assert slot.in_line == 1
        await first.leave()
        await until(lambda: gate.began == [1, 3])
        gate.open.set()
        await third.until("frame", 1)
        assert closed(service.metrics)["picture", "cancelled disconnected"] == 2
    assert [(name, reason) for name, reason, _ in gate.stopped] == [(1, "disconnected")]


# The end of things ---------------------------------------------------------------------------------------------------
async def test_out_of_memory_is_answered_and_frees_kept_memory(run, monkeypatch):
    trace, greedy = Retracer.trace, []

    def fail_once(self, spec):
        if spec.seed == 2:
            greedy.append(self)
            raise MemoryError
        return trace(self, spec)

    monkeypatch.setattr(live.Retracer, "trace", fail_once)
    async with run() as (service, peer):
        client, idle = peer(), peer()
        for each in (client, idle):
            each.ask(1, widths="50,50,1")
            await each.until("theory", 1)
        assert service.compute.kept.bytes > 0
        client.ask(2, seed=2)
        await client.until("error", 2, "out_of_memory")
        assert service.compute.kept.bytes == 0
        assert idle.session.retracer.kept_bytes == 0
        assert client.session.retracer is not greedy[0]
        for each in (client, idle):
            each.ask(3, seed=3)
            await each.until("theory", 3)
        assert closed(service.metrics)["picture", "failed out_of_memory"] == 1


async def test_shutdown_closes_sockets_and_stops_computing(run, gate, monkeypatch):
    monkeypatch.setattr(live, "CLOSE_SECONDS", 0.1)
    async with run(shutdown_seconds=3600) as (service, peer):
        busy, waiting, idle, dead = (peer() for _ in range(4))
        busy.ask(1, seed=1)
        await until(lambda: gate.began == [1])
        waiting.ask(1, seed=2)
        await until(lambda: service.compute.slots["cpu"].in_line == 1 and dead.session and idle.session)
        dead.takes.clear()
        service.compute.begin_shutdown()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in (busy, waiting, idle, dead))), 20)
        assert [each.close_code for each in (busy, waiting, idle, dead)] == [1012, 1012, 1012, None]
        await until(lambda: not service.compute.slots["cpu"].busy)
        assert closed(service.metrics)["picture", "cancelled shutdown"] == 2
    assert [(name, reason) for name, reason, _ in gate.stopped] == [(1, "shutdown")]
