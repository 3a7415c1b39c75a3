"""What live sockets keep between two pictures: all together no more than the server may keep."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet


class Keeper(Protocol):
    """What keeps memory to be faster the next time, and can do without."""

    @property
    def kept_bytes(self) -> int:
        """How much it keeps."""

    def forget(self) -> None:
        """Let go of it."""


class KeptMemory:
    """Watches over all keepers: where they keep too much, who was not used for the longest forgets first.

    A keeper is used by one device's thread at a time, and is not made to forget while it is.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._idle: OrderedDict[Keeper, int] = OrderedDict()
        self._left: WeakSet[Keeper] = WeakSet()

    @property
    def bytes(self) -> int:
        """How much all of them keep."""
        with self._lock:
            return sum(self._idle.values())

    @contextmanager
    def using(self, keeper: Keeper) -> Iterator[None]:
        """Inside, the keeper is the caller's alone; after it, others forget until all is within the limit again."""
        with self._lock:
            self._idle.pop(keeper, None)
        try:
            yield
        finally:
            with self._lock:
                # One that has left, in the meantime or before, goes as soon as nobody holds it.
                if keeper not in self._left:
                    self._idle[keeper] = keeper.kept_bytes
                left = sum(self._idle.values())
                while left > self.max_bytes:
                    oldest, size = self._idle.popitem(last=False)
                    oldest.forget()
                    left -= size

    def leave(self, keeper: Keeper) -> None:
        """Nobody will use the keeper again, but for a thread that is at it or about to be."""
        with self._lock:
            self._idle.pop(keeper, None)
            self._left.add(keeper)

    def forget_all(self) -> None:
        """Have everyone who is not at work forget."""
        with self._lock:
            for keeper in self._idle:
                keeper.forget()
            self._idle.clear()
