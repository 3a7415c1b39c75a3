"""Watches that a client takes what it is sent, and resets connections. Uvicorn waits for such a client for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable

if sys.platform != "win32":
    import fcntl
    import termios

LOOKS = 8
"""How often within CHAINRULE_SEND_SECONDS a slow reader is checked."""

MIN_BYTES_PER_SECOND = 1024
"""Slowest rate that is served: half of a slow telephone line."""

KERNEL_BYTES = 1 << 17
"""Send buffer of the kernel per client, megabytes by default. Linux doubles the number."""

UNSENT_BYTES = 1 << 16
"""How much of the send buffer may wait to be sent, where the kernel has such a limit."""


class SendWatch:
    """Calls `cut` when a client takes less than `MIN_BYTES_PER_SECOND` for so many seconds."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float, cut: Callable[[], None]
    ) -> None:
        # The protocol must hear of any byte that is left over, else the end of a small answer could stay for ever.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._cut = cut
        self._left = 0
        self._taken = 0
        # Times of the last checks, with the bytes taken by then.
        self._seen = deque[tuple[float, int]]()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch: something is left over."""
        self.stop()
        self._left, self._taken = unsent(self._transport), 0
        self._seen = deque([(self._loop.time(), 0)])
        self._look_later()

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._seconds / LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() == 0:
            return
        left, now = unsent(self._transport), self._loop.time()
        # Bytes that were added meanwhile hide some of those taken.
        self._taken += max(0, self._left - left)
        self._left = left
        while len(self._seen) > 1 and now - self._seen[1][0] >= self._seconds:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since >= self._seconds and self._taken - before < MIN_BYTES_PER_SECOND * (now - since):
            self._cut()
            return
        self._seen.append((now, self._taken))
        self._look_later()


def unsent(transport: asyncio.Transport) -> int:
    """Bytes that the client has not taken: buffered here or, on Linux, not yet acknowledged.

    The kernel accepts megabytes at once and asks for more when a third is gone: seen from here alone, a slow reader
    takes nothing for minutes.
    """
    kept = transport.get_write_buffer_size()
    connection = transport.get_extra_info("socket")
    if sys.platform != "win32" and connection is not None:
        with contextlib.suppress(OSError):
            kept += struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    return kept


def cut_off(transport: asyncio.Transport) -> None:
    """Reset a connection, so that the kernel frees its send buffer too."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def limit_buffers(transport: asyncio.Transport) -> None:
    """Limit the kernel's send buffer of a new TCP connection, and send small writes at once."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # OSError: the client has gone already.
    with contextlib.suppress(OSError):
        # asyncio sets TCP_NODELAY only on some listeners. Without it the second write of an answer waits 40 ms for the
        # first one's ACK.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
