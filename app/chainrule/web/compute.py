"""The one place where torch runs: a thread of its own per device, off the event loop, one pass at a time.

Requests wait in one line per device, first come first served. A plain request is turned away when the line is full; a
live socket always gets a place, because it takes one place at most and computes what is latest when its turn comes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from chainrule.errors import BusyError
from chainrule.run import available_devices, environment

P = ParamSpec("P")
T = TypeVar("T")

MAX_RETRY_AFTER = 60
"""Longest wait in seconds that a refusal proposes."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that specs can name."""

    name: str
    description: str


def list_devices() -> tuple[Device, ...]:
    """The devices of this machine, the CPU first."""
    return tuple(Device(name, str(environment(name)["device_name"])) for name in available_devices())


class ComputeSlot:
    """One device's thread and the line in front of it."""

    def __init__(self, device: str, queue: int) -> None:
        self.device = device
        self.queue = queue
        self.waiting = 0
        self._turn = asyncio.Lock()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"compute-{device}")
        self._seconds = 0.1

    @property
    def busy(self) -> bool:
        """Whether something runs or is about to."""
        return self._turn.locked()

    @property
    def full(self) -> bool:
        """Whether one more plain request would be turned away."""
        return (self.busy or self.waiting > 0) and self.waiting >= self.queue

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the device's thread when its turn comes.

        Raises:
            BusyError: the line is full; it says how long what stands in it will take, by the runs so far.
        """
        if self.full:
            wait = math.ceil((self.waiting + 1) * self._seconds)
            raise BusyError(
                f"{self.device} is busy and {self.waiting} requests wait, at most {self.queue} may (CHAINRULE_QUEUE)",
                retry_after=min(MAX_RETRY_AFTER, max(1, wait)),
                limit=self.queue,
            )
        self.waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.waiting -= 1
        try:
            return await self.compute(work, *args, **kwargs)
        finally:
            self._turn.release()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Stand in line without a limit; inside, the slot is the caller's alone, to use with `compute`."""
        async with self._turn:
            yield

    async def compute(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the device's thread now; the caller's turn must have come."""
        start = time.perf_counter()
        loop = asyncio.get_running_loop()
        try:
            # Should the caller be cancelled, its run goes on and the next one starts behind it: the thread is one.
            return await loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))
        finally:
            self._seconds += 0.2 * (time.perf_counter() - start - self._seconds)

    def close(self) -> None:
        """Let the thread end; what has not begun is dropped."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Compute:
    """The slots of all devices."""

    def __init__(self, devices: Sequence[Device], queue: int) -> None:
        self.devices = tuple(devices)
        self.slots: Mapping[str, ComputeSlot] = {each.name: ComputeSlot(each.name, queue) for each in devices}

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices a spec may name here."""
        return tuple(self.slots)

    def close(self) -> None:
        """Close every slot."""
        for slot in self.slots.values():
            slot.close()
