"""The devices: who waits for each, what runs on it, and the memory kept between two pictures. Torch runs only here.

    request ──┐                                  ┌─ deadline, client gone, newer wish, shutdown: asked to stop
    socket  ──┼──▶ line, first come first ──▶ turn ──▶ thread ──▶ next turn, once the thread is free
    socket  ──┘    served

Each device has one thread, one line and one turn at a time. A request is refused when the line is full. A live socket
always gets a place: it takes at most one, and computes its latest wish when its turn comes. After its turn a socket
goes to the end of the line, so sockets that ask without end take turns. A turn ends when the thread has stopped, even
if the client left earlier.

Work is accounted for from its acceptance: done, cancelled, timed out or failed. Work that its client gave up counts as
given up, even if the thread, which checks only now and then, has computed all of it.

Everything belongs to the event loop but for `Work.perform`, keepers and `give_back`, which run in the device's thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from chainrule.errors import BusyError, ChainruleError, DeadlineError, MemoryLimitError, StoppedError
from chainrule.export.svg import rest_engine
from chainrule.memory import STACK_BYTES, memory_errors, release_memory, return_free_pages
from chainrule.run import available_devices, environment
from chainrule.stopping import Stop, stoppable
from chainrule.web.metrics import Kind, Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

MAX_RETRY_AFTER = 60
"""Longest wait in seconds that a refusal proposes."""

PATIENCE_SECONDS = 1.0
"""How long after its deadline work may take to stop before its client is answered without it."""

GIVE_BACK_SECONDS = 10.0
"""How often free memory is returned to the system while there is work; once more after the last work."""

FIRST_GUESS: Mapping[Kind, float] = {"request": 0.1, "picture": 0.05, "theory": 0.02}
"""Seconds that work of a kind takes, before any was measured."""

LAST_SECONDS = 1.5
"""How long the server waits at its end for threads that it has asked to stop."""


class Device(NamedTuple):
    """A device that specs can name."""

    name: str
    description: str


def list_devices() -> tuple[Device, ...]:
    """The devices of this machine, the CPU first."""
    return tuple(Device(name, str(environment(name)["device_name"])) for name in available_devices())


class Work:
    """One computation for one client, which has `waited` seconds; its `deadline` is by `time.perf_counter`."""

    def __init__(self, kind: Kind, metrics: Metrics, *, waited: float = 0.0, deadline: float = math.inf) -> None:
        self.kind: Kind = kind
        self.stop = Stop()
        self.deadline = deadline
        self.began = 0.0
        self.started = 0.0
        self.over = False
        self._accepted = time.perf_counter() - waited
        self._metrics = metrics
        self._given_up: ChainruleError | None = None
        metrics.accepted.labels(kind).inc()
        metrics.in_hand.labels(kind).inc()

    @property
    def seconds(self) -> float:
        """How long the thread has been computing."""
        return time.perf_counter() - self.started if self.started else 0.0

    def begin(self, seconds: float) -> float:
        """Note that the turn has come; returns the seconds left, at most these."""
        self.began = time.perf_counter()
        self._metrics.waited.labels(self.kind).observe(self.began - self._accepted)
        self.deadline = min(self.deadline, self.began + seconds)
        return max(self.deadline - self.began, 0.0)

    def give_up(self, error: ChainruleError) -> None:
        """Ask the thread to stop, and account for the work under this error: the client no longer waits."""
        self.stop.ask(error)
        self._given_up = self._given_up or error

    def end(self, error: BaseException | None = None) -> None:
        """Account for the end; only the first call counts."""
        if self.over:
            return
        self.over = True
        metrics, error = self._metrics, self._given_up or error
        if self.started:
            metrics.seconds.labels(self.kind).observe(self.seconds)
        if error is None:
            metrics.done.labels(self.kind).inc()
        elif isinstance(error, StoppedError):
            metrics.cancelled.labels(self.kind, error.reason).inc()
        elif isinstance(error, (DeadlineError, BusyError)):
            # BusyError of accepted work: its turn did not come in time.
            metrics.timed_out.labels(self.kind).inc()
        else:
            metrics.failed.labels(self.kind, error.code if isinstance(error, ChainruleError) else "internal").inc()
        metrics.in_hand.labels(self.kind).dec()

    def perform(self, compute: Callable[[], T], let_go: Callable[[], None]) -> T:
        """Compute in the device's thread until asked to stop; call `let_go` if memory runs out."""
        self.started = time.perf_counter()
        try:
            with stoppable(self.stop), memory_errors():
                self.stop.check()
                return compute()
        except Exception as error:
            link: BaseException | None = error
            while link is not None:
                # The log wants the lines of the traceback; the tensors in its frames would only take memory.
                traceback.clear_frames(link.__traceback__)
                link = link.__cause__ or link.__context__
            if isinstance(error, MemoryLimitError):
                let_go()
                release_memory()
            raise


class DeepExecutor(ThreadPoolExecutor):
    """Its threads have a stack of `STACK_BYTES`; memory is taken only for the part in use."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor.submit`, which starts the thread."""
        usual = threading.stack_size(STACK_BYTES)
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            threading.stack_size(usual)


class ComputeSlot:
    """One device's thread and its line, in which `queue` requests may wait.

    `let_go` forgets kept memory when memory runs out; `give_back` returns free memory, see `GIVE_BACK_SECONDS`.
    """

    def __init__(
        self,
        device: str,
        queue: int,
        metrics: Metrics | None = None,
        let_go: Callable[[], None] = lambda: None,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.device = device
        self.queue = queue
        self.metrics = metrics or Metrics()
        self.busy = False
        self.closing = False
        self._closed = False
        self._let_go = let_go
        self._give_back = give_back
        self._line: dict[asyncio.Future[None], Kind] = {}
        self._work: Work | None = None
        self._thread: asyncio.Future[Any] | None = None
        self._give_back_timer: asyncio.TimerHandle | None = None
        self._executor = DeepExecutor(max_workers=1, thread_name_prefix=f"compute-{device}")
        self._usual = dict(FIRST_GUESS)

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return list(self._line.values()).count("request")

    @property
    def in_line(self) -> int:
        """Requests and live sockets in line."""
        return len(self._line)

    @property
    def full(self) -> bool:
        """Whether one more request would be refused."""
        return self.waiting >= self.queue and (self.busy or bool(self._line))

    @property
    def running_seconds(self) -> float:
        """How long the present work has been running; 0 when the device is idle."""
        return 0.0 if self._work is None else self._work.seconds

    @property
    def free_in(self) -> float:
        """Estimated seconds until everyone in line has had a turn.

        Each takes the usual time of its kind. Work that already took longer is expected to take that time again, and
        so is other work of its kind.
        """
        usual, left = dict(self._usual), 0.0
        if self._work is not None:
            kind, seconds = self._work.kind, self._work.seconds
            left = max(usual[kind] - seconds, seconds)
            left = min(left, max(self._work.deadline - time.perf_counter(), PATIENCE_SECONDS))
            usual[kind] = max(usual[kind], seconds)
        return left + sum(usual[kind] for kind in self._line.values())

    async def warm_up(self, compute: Callable[[], object]) -> None:
        """Compute once before the first request, which would take longer than all others."""
        await asyncio.get_running_loop().run_in_executor(
            self._executor, self._logging_errors, compute, "the first pass on %s failed"
        )

    async def run(self, compute: Callable[[], T], seconds: float = math.inf) -> T:
        """Run a request's work in the device's thread when its turn comes; it may wait and compute for so many seconds.

        Raises:
            BusyError: the line is full, or the turn did not come in time; says when to come again.
            DeadlineError: the turn came, but the work took too long.
            StoppedError: the server is shutting down.
            MemoryLimitError: memory ran out.
        """
        if self.full:
            raise self._busy(
                f"{self.device} is busy and {self.waiting} requests wait; the limit is {self.queue} (CHAINRULE_QUEUE)",
                self.queue,
            )
        work = Work("request", self.metrics, deadline=time.perf_counter() + seconds)
        try:
            async with self.turn("request", seconds):
                return await self.compute(work, compute, seconds, "CHAINRULE_DEADLINE_SECONDS")
        except BaseException as error:
            if not work.began:
                work.end(self.left() if isinstance(error, asyncio.CancelledError) else error)
            raise

    @asynccontextmanager
    async def turn(self, kind: Kind, seconds: float = math.inf) -> AsyncIterator[float]:
        """Wait in line; inside the block, only the caller may use `compute`. Yields the seconds waited.

        Raises:
            BusyError: the turn did not come within `seconds`.
            StoppedError: the server is shutting down.
        """
        if self._closed:
            raise StoppedError("shutdown")
        asked, called = time.perf_counter(), asyncio.get_running_loop().create_future()
        self._line[called] = kind
        self._call_next()
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await called
            if self._closed:
                raise StoppedError("shutdown")
        except BaseException as error:
            self._line.pop(called, None)
            if called.done() and not called.cancelled():
                # Called at the moment it left.
                self._end_turn()
            if isinstance(error, TimeoutError):
                raise self._busy(
                    f"{self.device} is busy: this request waited longer than {seconds:g} seconds "
                    "(CHAINRULE_DEADLINE_SECONDS)",
                    seconds,
                ) from None
            raise
        try:
            yield time.perf_counter() - asked
        finally:
            if self._thread is None:
                self._end_turn()
            else:
                # The caller has left, but its thread still computes.
                self._thread.add_done_callback(lambda _: self._end_turn())

    async def compute(self, work: Work, compute: Callable[[], T], seconds: float, setting: str) -> T:
        """Run `work` in the device's thread now; the caller must have the turn.

        The environment variable `setting` gives it `seconds`, if its own deadline is not earlier.

        Raises:
            DeadlineError: it took longer.
            StoppedError: it was asked to stop.
            MemoryLimitError: memory ran out.
        """
        if self._closed:
            work.end(StoppedError("shutdown"))
            raise StoppedError("shutdown")
        loop = asyncio.get_running_loop()
        left = work.begin(seconds)
        # The caller's context carries the request id for the log.
        context = contextvars.copy_context()
        thread = loop.run_in_executor(self._executor, context.run, work.perform, compute, self._let_go)
        self._work, self._thread = work, thread
        thread.add_done_callback(partial(self._computed, work))
        late = DeadlineError(f"the computation takes longer than {seconds:g} seconds ({setting})", limit=seconds)
        timer = None if left == math.inf else loop.call_later(left, work.stop.ask, late)
        try:
            async with asyncio.timeout(None if timer is None else left + PATIENCE_SECONDS):
                return await asyncio.shield(thread)
        except TimeoutError:
            if thread.done():
                # Raised by the computation.
                return thread.result()
            work.give_up(late)
            raise work.stop.error or late from None
        except asyncio.CancelledError:
            work.give_up(self.left())
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def left(self) -> StoppedError:
        """Why nobody waits for an answer any more: the client or the server has gone."""
        return StoppedError("shutdown" if self.closing else "disconnected")

    def close(self) -> None:
        """Refuse new work, empty the line, ask running work to stop, and let the thread end."""
        self.closing = self._closed = True
        if self._work is not None:
            self._work.stop.ask(StoppedError("shutdown"))
        for called in self._line:
            if not called.done():
                called.set_result(None)
        self._line.clear()
        if self._give_back_timer is not None:
            self._give_back_timer.cancel()
        self._executor.shutdown(wait=False)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until the thread is idle, at most so many seconds."""
        if self._thread is not None:
            await asyncio.wait([self._thread], timeout=seconds)

    def _call_next(self) -> None:
        while self._line and not self.busy:
            called = next(iter(self._line))
            del self._line[called]
            if not called.done():
                self.busy = True
                called.set_result(None)

    def _end_turn(self) -> None:
        self.busy = False
        self._call_next()

    def _computed(self, work: Work, thread: asyncio.Future[Any]) -> None:
        """Account for work whose thread has stopped, and learn how long its kind takes."""
        self._work = self._thread = None
        if self._give_back_timer is None and not self.closing:
            self._give_back_timer = asyncio.get_running_loop().call_later(GIVE_BACK_SECONDS, self._give_back_now)
        self._usual[work.kind] += 0.2 * (work.seconds - self._usual[work.kind])
        work.end(StoppedError("shutdown") if thread.cancelled() else thread.exception())

    def _give_back_now(self) -> None:
        self._give_back_timer = None
        self._executor.submit(self._logging_errors, self._give_back, "free memory on %s could not be returned")

    def _logging_errors(self, act: Callable[[], object], message: str) -> None:
        try:
            act()
        except Exception:
            logger.exception(message, self.device)

    def _busy(self, message: str, limit: float) -> BusyError:
        wait = min(MAX_RETRY_AFTER, max(1, math.ceil(self.free_in)))
        return BusyError(message, retry_after=wait, limit=limit)


class Keeper(Protocol):
    """Keeps memory that makes the next picture faster, and can do without it."""

    @property
    def kept_bytes(self) -> int:
        """How much is kept."""

    def forget(self) -> None:
        """Free the memory."""


class KeptMemory:
    """Limits the memory of all keepers: above the limit, the keeper that was unused for longest forgets first.

    One device's thread uses a keeper at a time; meanwhile it is not made to forget.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._idle: OrderedDict[Keeper, int] = OrderedDict()
        self._left: WeakSet[Keeper] = WeakSet()

    @property
    def bytes(self) -> int:
        """Total of all idle keepers."""
        with self._lock:
            return sum(self._idle.values())

    @contextmanager
    def using(self, keeper: Keeper) -> Iterator[None]:
        """Give the caller the keeper for the block; afterwards others forget until the limit holds again."""
        with self._lock:
            self._idle.pop(keeper, None)
        try:
            yield
        finally:
            with self._lock:
                if keeper not in self._left:
                    self._idle[keeper] = keeper.kept_bytes
                total = sum(self._idle.values())
                while total > self.max_bytes:
                    oldest, size = self._idle.popitem(last=False)
                    oldest.forget()
                    total -= size

    def leave(self, keeper: Keeper) -> None:
        """Stop counting a keeper: nobody uses it again, except a thread that is at it or about to be."""
        with self._lock:
            self._idle.pop(keeper, None)
            self._left.add(keeper)

    def forget_all(self) -> None:
        """Make every idle keeper forget."""
        with self._lock:
            for keeper in self._idle:
                keeper.forget()
            self._idle.clear()


def give_back() -> None:
    """Return to the system the memory that passes and drawings left free."""
    rest_engine()
    return_free_pages()


class Compute:
    """The slots of all devices, and how they end: requests have `shutdown_seconds` then."""

    def __init__(
        self,
        devices: Sequence[Device],
        queue: int,
        metrics: Metrics | None = None,
        *,
        max_kept_bytes: int = 0,
        shutdown_seconds: float = 5,
    ) -> None:
        self.devices = tuple(devices)
        self.kept = KeptMemory(max_kept_bytes)
        self.slots: Mapping[str, ComputeSlot] = {
            each.name: ComputeSlot(each.name, queue, metrics, self.kept.forget_all, give_back) for each in devices
        }
        self.closing = False
        self.shutdown = asyncio.Event()
        self._shutdown_seconds = shutdown_seconds

    def begin_shutdown(self) -> None:
        """Close sockets now, and stop requests after `shutdown_seconds`."""
        if self.closing:
            return
        self.closing = True
        for slot in self.slots.values():
            slot.closing = True
        self.shutdown.set()
        asyncio.get_running_loop().call_later(self._shutdown_seconds, self.stop)

    def stop(self) -> None:
        """Stop everything, in line and in the threads."""
        self.closing = True
        self.shutdown.set()
        for slot in self.slots.values():
            slot.close()

    async def close(self) -> None:
        """Stop everything and wait a moment for the threads: the process ends when they have."""
        self.stop()
        await asyncio.gather(*(slot.wait_closed(LAST_SECONDS) for slot in self.slots.values()))
