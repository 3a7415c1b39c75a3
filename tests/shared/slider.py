"""A client of the live socket that reconnects as the page does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
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
            if self._task.done():
                self._task.result()
            assert not self.errors, self.errors
            return bool(self.frames) and self.frames[-1].seq == self.seq

        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(is_there)
        return self.frames[-1]

    async def answered(self, seq: int, seconds: float) -> None:
        """Wait until message `seq` or a later one is answered."""

        def is_there() -> bool:
            if self._task.done():
                self._task.result()
            seqs = [frame.seq for frame in self.frames[-1:]] + [error["seq"] for error in self.errors[-1:]]
            return any(each is not None and each >= seq for each in seqs)

        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(is_there)

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
                shown = Shown(time.monotonic(), seq, loss)
            else:
                answer = json.loads(message)
                if answer["type"] != "error":
                    continue
                seq = answer["seq"]
                shown = None
            assert seq is None or last < seq <= self.seq, f"{seq} is answered after {last}, {self.seq} was the last"
            last = last if seq is None else seq
            async with self._changed:
                if shown is None:
                    self.errors.append(answer)
                else:
                    self.frames.append(shown)
                self._changed.notify_all()


@cache
def _loss(query: str) -> float:
    return trace_spec(ModelSpec.from_query(query)).loss


def true_loss(**spec: Any) -> float:
    return _loss(ModelSpec.parse(spec).query())
