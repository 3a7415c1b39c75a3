"""A client of the live socket that reconnects as the page does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

HEADER = struct.Struct("<4sIIIIIddII")
"""The head of a frame; `chainrule.dump.wire.frame` writes it."""

RETRY_SECONDS = 0.25
"""How long a client waits before it connects again."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture: its time, its message and its loss."""

    at: float
    seq: int
    loss: float


@dataclass
class Slider:
    """One live client. It sends each new value at once, and again on every new connection."""

    address: str
    frames: list[Shown] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    connections: int = 0
    answered_seq: int = -1
    seq: int = 0
    spec: dict[str, Any] | None = None
    socket: ClientConnection | None = None

    async def __aenter__(self) -> Self:
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._stay_connected())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        ends = await asyncio.gather(self._task, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError), ends

    async def set(self, **spec: Any) -> int:
        self.seq += 1
        self.spec = spec
        await self._send()
        return self.seq

    async def shows(self, seconds: float) -> Shown:
        """Wait for the picture of the last `set`; an error answer fails."""

        def is_there() -> bool:
            assert not self.errors, self.errors
            return bool(self.frames) and self.frames[-1].seq == self.seq

        await self._wait(is_there, seconds)
        return self.frames[-1]

    async def answered(self, seq: int, seconds: float) -> None:
        """Wait until message `seq` or a later one is answered."""
        await self._wait(lambda: self.answered_seq >= seq, seconds)

    async def _wait(self, holds: Callable[[], bool], seconds: float) -> None:
        def seen() -> bool:
            if self._task.done():
                self._task.result()
            return holds()

        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(seen)

    async def _stay_connected(self) -> None:
        while True:
            with contextlib.suppress(
                OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimeoutError
            ):
                async with connect(
                    f"ws://{self.address}/api/v1/live", compression=None, max_size=None, open_timeout=5, close_timeout=2
                ) as self.socket:
                    self.connections += 1
                    try:
                        await self._send()
                        await self._read(self.socket)
                    finally:
                        self.closed.append(self.socket.close_code or 0)
                        self.socket = None
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(RETRY_SECONDS)

    async def _send(self) -> None:
        if self.socket is not None and self.spec is not None:
            with contextlib.suppress(ConnectionClosed):
                await self.socket.send(json.dumps({"seq": self.seq, "spec": self.spec}))

    async def _read(self, socket: ClientConnection) -> None:
        """Keep answers and check their order."""
        last = -1
        async for message in socket:
            if isinstance(message, bytes):
                magic, seq, *_, loss, _, _, _ = HEADER.unpack_from(message)
                assert magic == b"CRF1"
                self.frames.append(Shown(time.monotonic(), seq, loss))
            elif (answer := json.loads(message))["type"] == "error":
                seq = answer["seq"]
                self.errors.append(answer)
            else:
                continue
            assert seq is None or last < seq <= self.seq, f"{seq} is answered after {last}, {self.seq} was the last"
            self.answered_seq = last = last if seq is None else seq
            async with self._changed:
                self._changed.notify_all()


@cache
def _loss(query: str) -> float:
    return trace_spec(ModelSpec.from_query(query)).loss


def true_loss(**spec: Any) -> float:
    return _loss(ModelSpec.parse(spec).query())
