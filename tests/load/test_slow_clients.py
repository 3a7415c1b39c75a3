"""Clients that send slowly or take nothing: they are closed, hold no memory, and others are served meanwhile."""

import asyncio
import contextlib
import json
import time

import httpx
import pytest
from loads import FIFTY, Probe, every, path, request_head, slow_reader
from served import wait_for
from slider import Slider
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from chainrule.settings import Settings

SLOW = 50

READERS = 20

SIP = 64
"""Bytes that a reader takes every second: a network or a person's patience has more."""

SILENT = 1500

OTHERS = 2
"""Seconds that others wait at most."""

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def server(serve):
    with serve() as server:
        asyncio.run(warm(server))
        yield server


async def warm(server):
    """Load modules, and let the allocator take what so many answers at once need: this is not counted for slow
    clients."""
    idle = server.descriptors
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client, Slider(server.address) as slider:
        for number in range(8):
            for target in (path("trace.html", **FIFTY), path("profile.json", seed=number)):
                (await client.get(target)).raise_for_status()
            await slider.set(**FIFTY, scale=1 + number / 10)
            await slider.shows(60)
        await asyncio.gather(*(client.get(path("trace.html", **FIFTY)) for _ in range(READERS)))
    wait_for(lambda: server.descriptors <= idle, 10, "the descriptors of the first clients")


async def closed_after(port, first, drip, pause):
    """Seconds until the server closes a connection on which a byte arrives now and then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    start = time.monotonic()
    try:
        writer.write(first)
        while time.monotonic() - start < 60:
            try:
                # An answer such as 408 may come first; what counts is the end.
                if not await asyncio.wait_for(reader.read(65_536), pause):
                    return time.monotonic() - start
            except TimeoutError:
                with contextlib.suppress(OSError):
                    writer.write(drip)
            except OSError:
                return time.monotonic() - start
        raise AssertionError("the connection is open after a minute")
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def others_are_served(server, figure, name):
    """A live client and a plain one, all along; figures of the slowest answer of each."""
    stop = asyncio.Event()
    waits = {"picture": [], "request": []}

    async def pictures(slider):
        while not stop.is_set():
            start = time.monotonic()
            await slider.set(**FIFTY, scale=round(1 + 0.1 * (start % 1), 4))
            await slider.shows(10)
            waits["picture"].append(time.monotonic() - start)
            await asyncio.sleep(0.1)

    async def requests(client):
        while not stop.is_set():
            start = time.monotonic()
            (await client.get(path("profile.json", seed=len(waits["request"])))).raise_for_status()
            waits["request"].append(time.monotonic() - start)
            await asyncio.sleep(0.1)

    async with (
        Slider(server.address) as slider,
        httpx.AsyncClient(base_url=server.url, timeout=10) as client,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(pictures(slider))
        group.create_task(requests(client))
        yield
        stop.set()
    for kind, seconds in waits.items():
        figure(f"{name}: slowest {kind} of others", max(seconds), "s", f"<= {OTHERS}")


@pytest.mark.parametrize("part", ["head", "body"])
async def test_slow_senders_are_closed(server, figure, part):
    idle, plural = server.descriptors, {"head": "heads", "body": "bodies"}[part]
    if part == "head":
        first, drip = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X: y\r\n"
    else:
        head = request_head(
            server.port, "/api/v1/trace", "POST", Content_Type="application/json", Content_Length="60000"
        )
        first, drip = head + b"{", b" "
    async with others_are_served(server, figure, f"slow {plural}"):
        closed = await asyncio.gather(*(closed_after(server.port, first, drip, 0.5) for _ in range(SLOW)))
    figure(f"{SLOW} slow {plural}: last closed after", max(closed), "s", "<= 12")
    wait_for(lambda: server.descriptors <= idle, 10, f"the descriptors of slow {plural}")


@pytest.mark.parametrize("takes", ["nothing", "a little"])
async def test_readers_hold_no_memory(server, figure, takes):
    """Readers that take nothing of an answer, or a few bytes of it every second."""
    idle, before, kernel_before = server.descriptors, server.rss_bytes, server.kernel_bytes
    name = f"{READERS} readers that take {takes}"
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    connections, sips, held = [], [], []

    async def sip(connection):
        with contextlib.suppress(OSError):
            while not stop.is_set() and await loop.sock_recv(connection, SIP):
                await asyncio.sleep(1)

    try:
        async with others_are_served(server, figure, name):
            for _ in range(READERS):
                connections.append(await slow_reader(server.port))
                # The same answer many times over, none of it read.
                request = request_head(server.port, path("trace.html", **FIFTY))
                await loop.sock_sendall(connections[-1], READERS * request)
                if takes == "a little":
                    sips.append(asyncio.create_task(sip(connections[-1])))
                held.append((server.rss_bytes, server.kernel_bytes))
                await asyncio.sleep(0.25)
            assert server.descriptors - idle >= READERS // 2
            start = time.monotonic()
            # The live client, the plain one and the slow ones are connected; in the end the slow ones are not.
            while server.descriptors > idle + 2:
                assert time.monotonic() - start < 60, f"{server.descriptors - idle} connections are still open"
                held.append((server.rss_bytes, server.kernel_bytes))
                await asyncio.sleep(0.1)
            took = time.monotonic() - start
    finally:
        stop.set()
        for each in sips:
            each.cancel()
        await asyncio.gather(*sips, return_exceptions=True)
        for connection in connections:
            connection.close()
    resident, kernel = map(max, zip(*held, strict=True))
    # Every answer has its turn at the device before nobody takes it: the time is that of the last one.
    figure(f"{name}: last closed after", took, "s", "<= 30")
    # Together with what others are served meanwhile, and what an allocator keeps of it.
    figure(f"{name}: memory at most", (resident - before) / MEBIBYTE, "MiB", "<= 160")
    figure(f"{name}: kernel memory at most", (kernel - kernel_before) / MEBIBYTE, "MiB", f"<= {READERS}")
    server.wait_idle(10)
    figure(f"{name}: memory kept", (server.rss_bytes - before) / MEBIBYTE, "MiB", "<= 48")


async def test_silent_connections_leave_room_for_others(server, figure):
    limit, idle = Settings.model_fields["max_connections"].default, server.descriptors
    most, writers = 0, []
    with Probe(server.port).running() as probe:
        try:
            for number in range(SILENT):
                writers.append((await asyncio.open_connection("127.0.0.1", server.port))[1])
                if number % 50 == 0:
                    most = max(most, server.descriptors - idle)
            await asyncio.sleep(1)
            rest = server.descriptors - idle
            # A new client is admitted.
            assert (await asyncio.to_thread(httpx.get, f"{server.url}/healthz", timeout=10)).status_code == 200
        finally:
            for writer in writers:
                writer.transport.abort()
    assert probe.statuses == {200}
    figure(f"{SILENT} silent connections: slowest health", 1e3 * max(probe.seconds), "ms", f"<= {1000 * OTHERS}")
    # Those that are taken in one turn of the event loop are there together for a moment, until the oldest are closed.
    figure(f"{SILENT} silent connections: open at most", most)
    figure(f"{SILENT} silent connections: open once all have come", rest, "", f"<= {limit + 20}")
    wait_for(lambda: server.descriptors <= idle, 15, "the descriptors of silent connections")


async def test_live_clients_that_take_no_frames_are_closed(serve, figure):
    # A new server: after other tests the allocator has just given memory back, and would take it again.
    with serve() as server:
        await warm(server)
        await deaf_clients(server, figure)


async def deaf_clients(server, figure):
    idle, before = server.descriptors, server.rss_bytes
    options = {"compression": None, "max_size": None, "max_queue": 1, "close_timeout": 0.1}

    async def deaf(until):
        """Sends what a slider sends and reads nothing."""
        connection, start = await slow_reader(server.port), time.monotonic()
        async with connect(f"ws://{server.address}/api/v1/live", sock=connection, **options) as websocket:
            seq = 0
            async for now in every(1 / 20, until):
                seq += 1
                spec = {**FIFTY, "scale": round(1 + 0.1 * (now % 1), 4)}
                try:
                    await websocket.send(json.dumps({"seq": seq, "spec": spec}))
                except (ConnectionClosed, OSError):
                    return time.monotonic() - start
        raise AssertionError("a client that takes nothing was served to the end")

    async with others_are_served(server, figure, "deaf live clients"):
        closed = await asyncio.gather(*(deaf(time.monotonic() + 40) for _ in range(4)))
    figure("4 live clients that take nothing: last closed after", max(closed), "s", "<= 30")
    wait_for(lambda: server.descriptors <= idle, 10, "the descriptors of deaf clients")
    server.wait_idle(10)
    figure("4 live clients that take nothing: memory kept", (server.rss_bytes - before) / MEBIBYTE, "MiB", "<= 48")
