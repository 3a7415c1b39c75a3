"""The one place where torch runs: a thread of its own per device, off the event loop, one piece of work at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chainrule.export.svg import rest_engine
from chainrule.memory import return_free_pages
from chainrule.run import available_devices, environment
from chainrule.web.kept import KeptMemory
from chainrule.web.metrics import Metrics
from chainrule.web.slot import ComputeSlot

__all__ = ["Compute", "ComputeSlot", "Device", "list_devices"]

LAST_SECONDS = 1.5
"""How long the server waits in the end for what it has asked to stop."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that specs can name."""

    name: str
    description: str


def list_devices() -> tuple[Device, ...]:
    """The devices of this machine, the CPU first."""
    return tuple(Device(name, str(environment(name)["device_name"])) for name in available_devices())


def give_back() -> None:
    """Return to the system what passes and drawings have left free."""
    rest_engine()
    return_free_pages()


class Compute:
    """The slots of all devices, and how they end."""

    def __init__(
        self,
        devices: Sequence[Device],
        queue: int,
        metrics: Metrics | None = None,
        *,
        max_kept_bytes: int = 0,
        shutdown_seconds: float = 5,
    ) -> None:
        """Slots with nobody in line.

        Args:
            devices: what there is to compute on.
            queue: how many plain requests may wait for each.
            metrics: where work is accounted for.
            max_kept_bytes: see `KeptMemory`.
            shutdown_seconds: how long requests may take to end once the server shuts down.
        """
        self.devices = tuple(devices)
        self.kept = KeptMemory(max_kept_bytes)
        self.slots: Mapping[str, ComputeSlot] = {
            each.name: ComputeSlot(each.name, queue, metrics, self.kept.forget_all, give_back) for each in devices
        }
        self.closing = False
        self.shutdown = asyncio.Event()
        self._shutdown_seconds = shutdown_seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices a spec may name here."""
        return tuple(self.slots)

    def open(self) -> None:
        """Called in the event loop, before anything else."""
        self._loop = asyncio.get_running_loop()

    def begin_shutdown(self) -> None:
        """Say that the server is going to end: sockets close now, requests may take a while. For signal handlers too.

        Called again, it changes nothing.
        """
        if self.closing:
            return
        self.closing = True
        for slot in self.slots.values():
            slot.closing = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_shutdown)

    def _begin_shutdown(self) -> None:
        assert self._loop is not None, "it was asked to call this"
        self.shutdown.set()
        self._loop.call_later(self._shutdown_seconds, self.stop)

    def stop(self) -> None:
        """Have everything stop, in line and in the threads; nothing is computed any more."""
        self.closing = True
        self.shutdown.set()
        for slot in self.slots.values():
            slot.close()

    async def close(self) -> None:
        """Have everything stop, and wait a while until it has: the process ends when its threads have."""
        self.stop()
        await asyncio.gather(*(slot.wait_closed(LAST_SECONDS) for slot in self.slots.values()))
