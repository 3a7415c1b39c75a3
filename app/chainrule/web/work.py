"""One piece of work: what a device's thread computes for one client, from its acceptance to its entry in the accounts.

    accepted ──its turn──▶ begins ──▶ ends: done | cancelled | timed out | failed

Whoever waits for it may give it up at any time; it then counts by why it was given up, even should the thread, which
sees that only at its next check, have computed all of it by then.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from chainrule.errors import BusyError, ChainruleError, DeadlineError, MemoryLimitError, StoppedError
from chainrule.memory import memory_errors, release_memory
from chainrule.stopping import Stop, stoppable
from chainrule.web.metrics import Kind, Metrics

T = TypeVar("T")

INTERNAL = "internal"
"""Code of what fails and was never meant to."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of a computation: a value, or the error that it raised."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """The value.

        Raises:
            Exception: what the computation raised.
        """
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value] # None is then what was computed


class Work:
    """A piece of work in hand. All but `perform` is for the event loop."""

    def __init__(self, kind: Kind, metrics: Metrics, *, waited: float = 0.0, deadline: float = math.inf) -> None:
        """Accept it.

        Args:
            kind: what it is for.
            metrics: where it is accounted for.
            waited: seconds that it has stood in line already.
            deadline: on the clock `time.perf_counter`, when it is to be over.
        """
        self.kind: Kind = kind
        self.stop = Stop()
        self.deadline = deadline
        self.began = 0.0
        self.started = 0.0
        self._accepted = time.perf_counter() - waited
        self._metrics = metrics
        self._given_up: ChainruleError | None = None
        self._ended = False
        metrics.accepted.labels(kind).inc()
        metrics.in_hand.labels(kind).inc()

    @property
    def seconds(self) -> float:
        """How long its thread has been at it."""
        return time.perf_counter() - self.started if self.started else 0.0

    @property
    def over(self) -> bool:
        """Whether it is accounted for: its thread has stopped, or never began."""
        return self._ended

    def begin(self) -> None:
        """Its turn has come."""
        self.began = time.perf_counter()
        self._metrics.waited.labels(self.kind).observe(self.began - self._accepted)

    def give_up(self, error: ChainruleError) -> None:
        """Nobody waits for it any more: have it stop, and count by this error."""
        self.stop.ask(error)
        self._given_up = self._given_up or error

    def end(self, error: BaseException | None = None) -> None:
        """Enter into the accounts how it ended; the first time counts."""
        if self._ended:
            return
        self._ended = True
        if self.started:
            self._metrics.seconds.labels(self.kind).observe(self.seconds)
        error = self._given_up or error
        if error is None:
            self._metrics.done.labels(self.kind).inc()
        elif isinstance(error, StoppedError):
            self._metrics.cancelled.labels(self.kind, error.reason).inc()
        elif isinstance(error, (DeadlineError, BusyError)):
            # Busy, once accepted: its turn did not come in time.
            self._metrics.timed_out.labels(self.kind).inc()
        else:
            code = error.code if isinstance(error, ChainruleError) else INTERNAL
            self._metrics.failed.labels(self.kind, code).inc()
        self._metrics.in_hand.labels(self.kind).dec()

    def perform(self, compute: Callable[[], T], let_go: Callable[[], None]) -> Outcome[T]:
        """Compute it, in the device's thread, unless or until it is asked to stop.

        Args:
            compute: what is computed.
            let_go: forgets what is kept for later; called when memory runs out.
        """
        self.started = time.perf_counter()
        try:
            with stoppable(self.stop), memory_errors():
                self.stop.check()
                return Outcome(compute())
        except Exception as error:
            outcome: Outcome[T] = Outcome(error=_without_tensors(error))
        if isinstance(outcome.error, MemoryLimitError):
            let_go()
            release_memory()
        return outcome


def _without_tensors(error: Exception) -> Exception:
    """The error with the lines that it came through, for the log, but not with what their variables hold."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    # But for the frame that holds the error itself: the two would keep each other.
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
