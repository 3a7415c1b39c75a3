"""Loads for the server: specs that take long, requests as bytes, and the net that sliders drag."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import math
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

FIFTY: dict[str, Any] = {"widths": "100x51", "batch": 200}
"""Fifty layers of 100: docs/performance.md quotes the slider's figures for this net."""

DEFAULT: dict[str, Any] = {}
"""The chapter's net of two layers."""

SECOND: dict[str, Any] = {"widths": "512x33", "batch": 512}
"""Takes about a second of one core."""

# Products of half precision are slow on a CPU and take little memory: time without a danger to the machine.
ENDLESS: dict[str, Any] = {"widths": "512x64", "batch": 900, "dtype": "float16"}
"""Takes about half a minute: the default deadline does not let it end, and the default limit does not let it begin."""

ENDLESS_FLOPS = 10**13
"""CHAINRULE_MAX_FLOPS of a server that lets it begin."""


def path(form: str = "trace.json", **spec: Any) -> str:
    return f"/api/v1/{form}?{urlencode(spec)}"


def request_head(port: int, target: str, method: str = "GET", **headers: str) -> bytes:
    fields = {"Host": f"127.0.0.1:{port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def slow_reader(port: int) -> socket.socket:
    """A connection with a small receive buffer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return connection


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Probe:
    """Asks for one address at fixed times, from a thread of its own so that nothing here delays it.

    An answer's seconds count from when its request was due. One that had to wait for the answer before it is late by
    that too: a server that stands still for a second is seen by all whose turn came in it, not by one alone.
    """

    def __init__(self, port: int, target: str = "/healthz", period: float = 0.05) -> None:
        self.port = port
        self.target = target
        self.period = period
        self.seconds: list[float] = []
        self.statuses: set[int] = set()
        self.error: Exception | None = None
        self._stop = threading.Event()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            due = time.perf_counter()
            while not self._stop.wait(max(0.0, due - time.perf_counter())):
                connection.request("GET", self.target)
                answer = connection.getresponse()
                answer.read()
                self.seconds.append(time.perf_counter() - due)
                self.statuses.add(answer.status)
                due += self.period
        except Exception as error:
            self.error = error
        finally:
            connection.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Probe]:
        """Ask until the block ends; raises the error of the thread, if any."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(40)
        if self.error is not None:
            raise self.error


async def every(seconds: float, until: float) -> Any:
    """Ticks at a fixed rate until a moment of `time.monotonic`."""
    due = time.monotonic()
    while due < until:
        yield due
        due += seconds
        await asyncio.sleep(max(0.0, due - time.monotonic()))
