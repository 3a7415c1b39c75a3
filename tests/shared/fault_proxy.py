"""A TCP proxy with the faults of a network: delay, throttle, silence, broken and half-closed connections, failover.

    with FaultProxy([("127.0.0.1", 8000), ("127.0.0.1", 8001)]) as proxy:
        proxy.latency = 0.2
        httpx.get(f"http://{proxy.address}/healthz")
        proxy.latency = 0.0
        proxy.drop_all()

It runs in its own thread. Attributes may be set in any thread at any time and apply to the next bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Literal, Self

CHUNK = 16_384
"""Most bytes passed on at once: the unit of throttles and drops."""

IN_FLIGHT = 64
"""Chunks that are under way in one direction; a sender whose receiver takes nothing waits, as on a real line."""

CONNECT_SECONDS = 1
"""How long an upstream may take to take a connection."""

BLINK = 0.01
"""How often a silent line looks whether it still is, in seconds."""

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""

Side = Literal["client", "server"]


class FaultProxy:
    """A proxy on a free loopback port, in front of one or several upstreams.

    Attributes:
        upstreams: where connections lead, as (host, port): each new one takes the next, or the first after it that
            answers. None is set aside after a refusal, as nginx has it with max_fails=0: the next finds out by itself.
        latency: seconds that every byte, and every end, takes in each direction.
        bytes_per_second: most that passes in one direction of one connection; None is any amount.
        drop_chance: how likely a connection is to break, per chunk that passes.
        blackhole: nothing passes, without an error; afterwards everything goes on, as in TCP.
        refuse: new connections are reset at once.
        dropped: connections that the proxy broke so far.
        refused: connections that an upstream did not take so far.
    """

    def __init__(self, upstreams: Iterable[tuple[str, int]]) -> None:
        self.upstreams = list(upstreams)
        self.latency = 0.0
        self.bytes_per_second: float | None = None
        self.drop_chance = 0.0
        self.blackhole = False
        self.refuse = False
        self.dropped = 0
        self.refused = 0
        self._random = random.Random(0)
        self._turn = 0
        self._links: set[_Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="fault-proxy", daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def drop_all(self) -> int:
        """Reset every connection on both sides; returns their number."""
        return self._in_loop(lambda: sum(link.drop() for link in list(self._links)))

    def half_close(self, towards: Side = "client") -> int:
        """End one direction of every connection; returns their number."""
        return self._in_loop(lambda: sum(link.end(towards) for link in list(self._links)))

    def __enter__(self) -> Self:
        self._port: int = self._listener.getsockname()[1]
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the proxy does not end"

    def _in_loop(self, action: Callable[[], int]) -> int:
        async def run() -> int:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, sock=self._listener, limit=CHUNK)
        self._ready.set()
        await self._ended.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            if self.refuse:
                _reset(writer)
                return
            await self._pass_silence()
            found = await self._connect()
            if found is None:
                _reset(writer)
                return
            back, upstream = found
            link = _Link(self, writer, upstream)
            self._links.add(link)
            try:
                # Either direction may end by itself; a break ends both.
                await asyncio.gather(link.pump(reader, "server"), link.pump(back, "client"))
            except OSError:
                link.break_off()
            finally:
                self._links.discard(link)
        finally:
            for each in (writer, upstream):
                if each is not None:
                    each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the next upstream, or to the first after it that accepts."""
        upstreams = list(self.upstreams)
        self._turn += 1
        for number in range(len(upstreams)):
            host, port = upstreams[(self._turn + number) % len(upstreams)]
            try:
                return await asyncio.wait_for(asyncio.open_connection(host, port, limit=CHUNK), CONNECT_SECONDS)
            except (OSError, TimeoutError):
                self.refused += 1
        return None

    async def _pass_silence(self) -> None:
        while self.blackhole:
            await asyncio.sleep(BLINK)


class _Link:
    """One connection through the proxy: a pump for each direction."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.writers: dict[Side, asyncio.StreamWriter] = {"client": client, "server": server}
        self.ended: set[Side] = set()

    async def pump(self, reader: asyncio.StreamReader, towards: Side) -> None:
        """Carry one direction: bytes and the end arrive `latency` later, in order."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(IN_FLIGHT)
        feeder = asyncio.create_task(self._feed(reader, under_way))
        writer = self.writers[towards]
        try:
            while True:
                due, chunk = await under_way.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self.proxy._pass_silence()
                if not chunk:
                    self.end(towards)
                    return
                if self.proxy._random.random() < self.proxy.drop_chance:
                    self.drop()
                    raise ConnectionResetError
                if towards not in self.ended:
                    writer.write(chunk)
                    await writer.drain()
                if self.proxy.bytes_per_second:
                    await asyncio.sleep(len(chunk) / self.proxy.bytes_per_second)
        finally:
            feeder.cancel()

    async def _feed(self, reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]) -> None:
        while True:
            try:
                chunk = await reader.read(CHUNK)
            except OSError:
                # One side broke it: so it is for the other.
                self.break_off()
                chunk = b""
            await under_way.put((time.monotonic() + self.proxy.latency, chunk))
            if not chunk:
                return

    def end(self, towards: Side) -> bool:
        """End one direction; false if it had ended."""
        if towards in self.ended:
            return False
        self.ended.add(towards)
        with contextlib.suppress(OSError):
            if not self.writers[towards].transport.is_closing():
                self.writers[towards].write_eof()
        return True

    def drop(self) -> bool:
        self.proxy.dropped += 1
        self.break_off()
        return True

    def break_off(self) -> None:
        for writer in self.writers.values():
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset: unread bytes are lost."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
