"""One device's thread and the line in front of it.

    request ──┐                                  ┌─ deadline, client gone, newer wish, shutdown: asked to stop
    socket  ──┼──▶ line, first come first ──▶ turn ──▶ thread ──▶ the next one's turn, once the thread is free
    socket  ──┘    served

A plain request is turned away when the line is full; a live socket always gets a place, because it takes one place at
most and computes what is latest when its turn comes. Whoever had a turn goes to the end of the line: so sockets that
ask without end take turns. A turn ends when the thread has really stopped, however early its client lost interest.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from chainrule.errors import BusyError, ChainruleError, DeadlineError, StoppedError
from chainrule.memory import STACK_BYTES
from chainrule.web.metrics import Kind, Metrics
from chainrule.web.work import Outcome, Work

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

MAX_RETRY_AFTER = 60
"""Longest wait in seconds that a refusal proposes."""

PATIENCE_SECONDS = 1.0
"""How long after its deadline work may take to stop before its client is answered without it."""

GIVE_BACK_SECONDS = 10.0
"""How often, while there is work and once after it, the thread gives back the memory that its work has left free."""

FIRST_GUESS: Mapping[Kind, float] = {"request": 0.1, "picture": 0.05, "theory": 0.02}
"""Seconds that work of a kind takes, before any was seen."""


@dataclass(eq=False, slots=True)
class Place:
    """A place in line."""

    kind: Kind
    called: asyncio.Future[None]
    since: float


class DeepExecutor(ThreadPoolExecutor):
    """Its threads have a stack of `STACK_BYTES`, of which only what is used takes memory."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor.submit`."""
        # That is where a thread begins that is not there yet.
        usual = threading.stack_size(STACK_BYTES)
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            threading.stack_size(usual)


class ComputeSlot:
    """One device's thread and the line in front of it. All of it is for the event loop."""

    def __init__(
        self,
        device: str,
        queue: int,
        metrics: Metrics | None = None,
        let_go: Callable[[], None] = lambda: None,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        """A slot with nobody in line.

        Args:
            device: its name.
            queue: how many plain requests may wait.
            metrics: where work is accounted for.
            let_go: forgets what is kept for later; called in the device's thread when memory runs out.
            give_back: returns what work has left free; called there every `GIVE_BACK_SECONDS` while there is work, and
                once after it.
        """
        self.device = device
        self.queue = queue
        self.metrics = metrics or Metrics()
        self._let_go = let_go
        self._give_back = give_back
        self._line: deque[Place] = deque()
        self._taken = False
        self._work: Work | None = None
        self._thread: asyncio.Future[Outcome[Any]] | None = None
        self._give_back_timer: asyncio.TimerHandle | None = None
        self.closing = False
        self._closed: ChainruleError | None = None
        self._executor = DeepExecutor(max_workers=1, thread_name_prefix=f"compute-{device}")
        self._usual = dict(FIRST_GUESS)

    @property
    def busy(self) -> bool:
        """Whether something runs or is about to."""
        return self._taken

    @property
    def waiting(self) -> int:
        """Plain requests in line."""
        return sum(place.kind == "request" for place in self._line)

    @property
    def in_line(self) -> int:
        """Everyone in line, live sockets too."""
        return len(self._line)

    @property
    def full(self) -> bool:
        """Whether one more plain request would be turned away."""
        return self.waiting >= self.queue and (self.busy or bool(self._line))

    @property
    def running_seconds(self) -> float:
        """How long what runs has been running; 0 when nothing does."""
        return 0.0 if self._work is None else self._work.seconds

    @property
    def free_in(self) -> float:
        """In how many seconds, as far as can be told, all who are here will have had their turn.

        Each takes as long as its kind usually does. What has taken longer already is thought to take that long again,
        and others of its kind to be like it.
        """
        usual, left = dict(self._usual), 0.0
        if self._work is not None:
            kind, seconds = self._work.kind, self._work.seconds
            left = max(usual[kind] - seconds, seconds)
            left = min(left, max(self._work.deadline - time.perf_counter(), PATIENCE_SECONDS))
            usual[kind] = max(usual[kind], seconds)
        return left + sum(usual[place.kind] for place in self._line)

    async def warm_up(self, compute: Callable[[], object]) -> None:
        """Compute something for nobody, before anybody asks: the first time takes longer than all others."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, compute)
        except Exception:
            logger.exception("the first pass on %s failed", self.device)

    async def run(self, compute: Callable[[], T], seconds: float = math.inf) -> T:
        """Run a plain request's work in the device's thread when its turn comes.

        Args:
            compute: what is computed.
            seconds: how long it may wait and compute.

        Raises:
            BusyError: the line is full, or its turn did not come in time; it says when to come again.
            DeadlineError: its turn came, but it would have taken longer than it may.
            StoppedError: the server is shutting down.
            MemoryLimitError: memory ran out.
        """
        if self.full:
            raise self._busy(
                f"{self.device} is busy and {self.waiting} requests wait, at most {self.queue} may (CHAINRULE_QUEUE)",
                self.queue,
            )
        work = Work("request", self.metrics, deadline=time.perf_counter() + seconds)
        try:
            async with self.turn("request", seconds):
                return await self.compute(work, compute, seconds, "CHAINRULE_DEADLINE_SECONDS")
        except TimeoutError:
            if work.began:
                raise
            error = self._busy(
                f"{self.device} is busy: the turn of this request did not come within {seconds:g} seconds "
                "(CHAINRULE_DEADLINE_SECONDS)",
                seconds,
            )
            work.end(error)
            raise error from None
        except asyncio.CancelledError:
            work.give_up(self.left())
            if not work.began:
                work.end()
            raise
        except ChainruleError as error:
            if not work.began:
                work.end(error)
            raise

    @asynccontextmanager
    async def turn(self, kind: Kind, seconds: float = math.inf) -> AsyncIterator[float]:
        """Stand in line; inside, the slot is the caller's alone, to use with `compute`. Gives the seconds waited.

        Raises:
            TimeoutError: the turn did not come within so many seconds.
            StoppedError: the server is shutting down.
        """
        place = Place(kind, asyncio.get_running_loop().create_future(), time.perf_counter())
        if self._closed is not None:
            raise self._closed
        self._line.append(place)
        self._call()
        try:
            if not place.called.done():
                async with asyncio.timeout(None if seconds == math.inf else seconds):
                    await place.called
            place.called.result()
        except BaseException:
            if place in self._line:
                self._line.remove(place)
            if place.called.done() and not place.called.cancelled() and place.called.exception() is None:
                # Called in the moment it left: the turn is the next one's.
                self._end_turn()
            raise
        try:
            yield time.perf_counter() - place.since
        finally:
            if self._thread is None:
                self._end_turn()
            else:
                # The caller has gone, its thread has not: nobody computes beside it.
                self._thread.add_done_callback(lambda _: self._end_turn())

    async def compute(self, work: Work, compute: Callable[[], T], seconds: float, setting: str) -> T:
        """Run `work` in the device's thread now; the caller's turn must have come.

        Args:
            work: what it counts as.
            compute: what is computed.
            seconds: how long it may wait and compute in all; of work without a deadline of its own, how long it may
                compute.
            setting: the environment variable that says so.

        Raises:
            DeadlineError: it would have taken longer.
            StoppedError: it was asked to stop.
            MemoryLimitError: memory ran out.
        """
        if self._closed is not None:
            work.end(self._closed)
            raise self._closed
        loop = asyncio.get_running_loop()
        work.begin()
        if work.deadline == math.inf:
            work.deadline = work.began + seconds
        # With the caller's context, so that what is logged there says whom it is for.
        context = contextvars.copy_context()
        thread = loop.run_in_executor(self._executor, context.run, partial(work.perform, compute, self._let_go))
        self._work, self._thread = work, thread
        thread.add_done_callback(partial(self._computed, work))
        timer = None
        late = DeadlineError(f"this takes longer than {seconds:g} seconds ({setting})", limit=seconds)
        left = None if work.deadline == math.inf else max(work.deadline - work.began, 0.0)
        if left is not None:
            timer = loop.call_later(left, work.stop.ask, late)
        try:
            async with asyncio.timeout(None if left is None else left + PATIENCE_SECONDS):
                return (await asyncio.shield(thread)).get()
        except TimeoutError:
            if thread.done():
                return thread.result().get()
            work.give_up(late)
            raise work.stop.error or late from None
        except asyncio.CancelledError:
            work.give_up(self.left())
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def left(self) -> StoppedError:
        """Why nobody waits any more for what somebody did: the client or the server has gone."""
        return StoppedError("shutdown" if self.closing else "disconnected")

    def close(self) -> None:
        """Take nothing more, send away who is in line, have what runs stop, and let the thread end."""
        self.closing = True
        if self._closed is None:
            self._closed = StoppedError("shutdown")
            if self._work is not None:
                self._work.stop.ask(self._closed)
            while self._line:
                place = self._line.popleft()
                if not place.called.done():
                    place.called.set_exception(StoppedError("shutdown"))
        if self._give_back_timer is not None:
            self._give_back_timer.cancel()
        self._executor.shutdown(wait=False)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until nothing runs any more, but no longer than so many seconds."""
        if self._thread is not None:
            await asyncio.wait([self._thread], timeout=seconds)

    def _call(self) -> None:
        """Give the turn to the first in line if nobody has it."""
        while self._line and not self._taken:
            place = self._line.popleft()
            if not place.called.done():
                self._taken = True
                place.called.set_result(None)

    def _end_turn(self) -> None:
        self._taken = False
        self._call()

    def _computed(self, work: Work, thread: asyncio.Future[Outcome[Any]]) -> None:
        """The thread is free: close the work's account, and learn how long its kind takes."""
        self._work = self._thread = None
        if self._give_back_timer is None and not self.closing:
            self._give_back_timer = asyncio.get_running_loop().call_later(GIVE_BACK_SECONDS, self._give_back_now)
        self._usual[work.kind] += 0.2 * (work.seconds - self._usual[work.kind])
        if thread.cancelled():
            work.end(StoppedError("shutdown"))
        else:
            raised = thread.exception()
            work.end(thread.result().error if raised is None else raised)

    def _give_back_now(self) -> None:
        """Between two pieces of work, in the thread whose memory it is."""
        self._give_back_timer = None
        self._executor.submit(self._give_back_logged)

    def _give_back_logged(self) -> None:
        try:
            self._give_back()
        except Exception:
            logger.exception("what is free of the memory on %s could not be given back", self.device)

    def _busy(self, message: str, limit: float) -> BusyError:
        wait = min(MAX_RETRY_AFTER, max(1, math.ceil(self.free_in)))
        return BusyError(message, retry_after=wait, limit=limit)
