"""The slider's WebSocket: specs in, frames out, the latest wins.

A reader keeps the newest message; an answerer computes it when its turn at the device comes. So a dragged slider never
builds a backlog, and the last value set is the last one shown.

    client ──{"seq", "spec"}──▶ _read ──latest──▶ _answer ──turn──▶ trace ──topology, frame──▶ client
                                  └──give way──▶ what runs   └─time left──▶ theory ──message──▶ client

A frame goes first. Its theory follows at once if nobody else waits and theory took little time since the client last
rested, else when the client rests again.

A computation gives way to a newer wish once it is `live_grace_seconds` old, but never twice in a row: else a client
that asks without end would never see a frame. Nothing is computed for a client while it is sent to, so frames never
queue. A client that takes nothing is cut off by its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from chainrule.diagnose.profile import theory
from chainrule.dump.wire import frame, theory_message
from chainrule.errors import ChainruleError, MemoryLimitError, RequestError, SpecError, StoppedError
from chainrule.run import Retracer
from chainrule.spec import ModelSpec
from chainrule.trace.graph import Trace
from chainrule.training.events import TrainingEvents
from chainrule.training.wire import training_message
from chainrule.web.compute import ComputeSlot, Keeper, Work
from chainrule.web.guard import InternalError
from chainrule.web.live_messages import PING, PONG, Shown, SpecT, Wish, error_message, read_wish, show
from chainrule.web.metrics import Kind
from chainrule.web.request_log import log_error, note_coalesced, note_spec
from chainrule.web.service import Service

T = TypeVar("T")

logger = logging.getLogger(__name__)

THEORY_SHARE = 0.1
"""Largest part of a client's computing time for theory, while the client does not rest."""

REST_SECONDS = 0.05
"""A client rests when it asks for nothing for this time: a dragged slider asks again after each frame."""

MAX_MALFORMED = 20
"""So many messages without a valid one between them end a socket."""

REFUSED = 1008
"""Close code for them (RFC 6455, 7.4.1: policy violation)."""

RESTARTING = 1012
"""Close code at the server's end (RFC 6455's registry: service restart)."""

CLOSE_SECONDS = 1.0
"""How long sending a close message may take."""

SpecIn = TypeVar("SpecIn", contravariant=True)


class Tracer(Keeper, Protocol[SpecIn]):
    """Makes traces, and keeps memory that makes the next one faster, such as `run.Retracer`."""

    @property
    def recording(self) -> object:
        """Identity of the recording that the last trace repeats; None if unknown."""

    def trace(self, spec: SpecIn, /) -> Trace:
        """The trace of a spec."""

    def judged(self, trace: Trace, /) -> Trace:
        """The last trace; its faults are found now if `trace` left them out."""

    def aside(self, seq: int, /) -> str | None:
        """A message that follows the last trace's frame with this number, if there is one."""


class LabTracer(Retracer):
    """A retracer that tells of the training of its last spec. Its traces do not wait for faults."""

    def __init__(self) -> None:
        super().__init__(finds_faults=False)
        self._told: tuple[ModelSpec | None, int] = None, 0
        self._events: TrainingEvents | None = None

    def aside(self, seq: int) -> str | None:
        """The training message: the updates that the client has not been told."""
        training = self.training
        if training is None:
            return None
        told = self._told[1] if self._told[0] == training.spec else 0
        self._told = training.spec, max(told, training.step)
        if self._events is None or self._events.training is not training:
            self._events = TrainingEvents(training)
        return training_message(self._events, seq, min(told, training.step))


@dataclass(frozen=True, slots=True)
class Source(Generic[SpecT]):
    """The subject of live sockets: specs, or a user's own model.

    Attributes:
        read: makes a spec from a message's values; raises SpecError.
        tracer: makes the tracer of one socket.
        note: adds a spec to later log records.
        deadline_seconds: how long a picture may compute.
        listen: calls a function, in any thread, whenever there is news, and returns a function that ends this; None
            for a subject without news.
        news: the message for clients then.
        has_news: whether there was news before: a new client may not know it.
    """

    read: Callable[[Mapping[str, object]], SpecT]
    tracer: Callable[[], Tracer[SpecT]]
    note: Callable[[SpecT], None]
    deadline_seconds: float
    listen: Callable[[Callable[[], None]], Callable[[], None]] | None = None
    news: Callable[[], str] = str
    has_news: Callable[[], bool] = bool


def specs(service: Service) -> Source[ModelSpec]:
    """Specs within the server's limits."""
    return Source(
        read=service.read,
        tracer=LabTracer,
        note=note_spec,
        deadline_seconds=service.settings.live_deadline_seconds,
    )


@dataclass(slots=True)
class Spent:
    """Seconds that answers have taken since the client last rested."""

    frames: float = 0.0
    theory: float = 0.0

    @property
    def leaves_theory_time(self) -> bool:
        """Whether theory may take more time without slowing the frames."""
        return self.theory <= THEORY_SHARE * (self.frames + self.theory)


@dataclass(frozen=True, slots=True)
class Owed:
    """A frame that was sent without its theory."""

    seq: int
    trace: Trace
    slot: ComputeSlot


def _theory_of(tracer: Tracer[Any], owed: Owed) -> str:
    """The theory message of a frame; its faults depend on the numbers too."""
    trace = tracer.judged(owed.trace)
    return theory_message(theory(trace), owed.seq, trace.faults)


def live_router(service: Service) -> APIRouter:
    """`/api/v1/live`."""
    router = APIRouter()

    @router.websocket("/api/v1/live")
    async def live(websocket: WebSocket) -> None:
        await websocket.accept()
        await LiveSession(websocket, service, specs(service)).serve()

    return router


class LiveSession(Generic[SpecT]):
    """One open socket: the newest wish, and the graph that the client has."""

    def __init__(self, websocket: WebSocket, service: Service, source: Source[SpecT]) -> None:
        self.websocket = websocket
        self.service = service
        self.source = source
        self.settings = service.settings
        self.metrics = service.metrics
        self.last_seq = -1
        self.newest: Wish[SpecT] | None = None
        self.arrived = asyncio.Event()
        self.shown = Shown()
        self.retracer = source.tracer()
        self.owed: Owed | None = None
        self.spent = Spent()
        self.running: Work | None = None
        self.let_finish = False
        self.grace: asyncio.TimerHandle | None = None

    def _slot(self, spec: SpecT) -> ComputeSlot:
        return self.service.compute.slots[spec.device]

    async def serve(self) -> None:
        """Read and answer until the client or the server goes."""
        parts = self._read(), self._answer(), self._tell(), self.service.compute.shutdown.wait()
        tasks = [asyncio.create_task(each) for each in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self._leave()
        if self.service.compute.shutdown.is_set():
            await self._close(RESTARTING)
        for end in ends:
            # Raised when the client or the server left.
            if isinstance(end, Exception) and not isinstance(end, WebSocketDisconnect | StoppedError):
                raise end

    def _leave(self) -> None:
        """Account for the last wish, and keep nothing."""
        spec, self.newest = self.newest.spec if self.newest is not None else None, None
        if isinstance(spec, SpecError):
            self.metrics.rejected.labels(spec.code).inc()
        elif spec is not None:
            Work("picture", self.metrics).end(self._slot(spec).left())
        self.service.compute.kept.leave(self.retracer)

    async def _read(self) -> None:
        """Keep the newest message; answer a malformed one at once, until there are too many."""
        malformed = 0
        while malformed < MAX_MALFORMED:
            message = await self.websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text == PING:
                await self._send(PONG)
                continue
            try:
                wish = read_wish(text, self.last_seq, self.source.read)
            except RequestError as error:
                malformed += 1
                await self._send_error(None, error)
                continue
            malformed = 0
            self.last_seq = wish.seq
            self.metrics.messages.inc()
            if self.newest is not None:
                self.metrics.coalesced.inc()
                note_coalesced()
            self.newest = wish
            self.arrived.set()
            self._give_way()
        await self._close(REFUSED)

    def _give_way(self) -> None:
        """Stop this client's computation for its newer wish, once the grace is over; not for a mistaken wish."""
        work, wish = self.running, self.newest
        if work is None or wish is None or self.let_finish or work.stop.error is not None:
            return
        left = self.settings.live_grace_seconds - work.seconds
        if self.grace is not None:
            self.grace.cancel()
        if left > 0:
            self.grace = asyncio.get_running_loop().call_later(left, self._give_way)
        elif not isinstance(wish.spec, SpecError):
            work.stop.ask(StoppedError("superseded"))

    async def _answer(self) -> None:
        """Answer the newest wish again and again, and send theory in between."""
        while True:
            if self.owed is not None and self.spent.leaves_theory_time and not self.owed.slot.in_line:
                await self._pay(self.owed)
                continue
            if self.newest is None and await self._rests():
                if self.owed is not None:
                    await self._pay(self.owed)
                self.spent = Spent()
                await self.arrived.wait()
            wish = self.newest
            assert wish is not None, "arrived is set and cleared together with wish"
            if isinstance(wish.spec, SpecError):
                self._take()
                await self._send_error(wish.seq, wish.spec)
            else:
                await self._grant(self._slot(wish.spec))

    async def _rests(self) -> bool:
        """Whether the client asks for nothing for `REST_SECONDS`."""
        # Before Python 3.12 `wait_for` loses a cancellation that comes together with a wish.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                await self.arrived.wait()
        return not self.arrived.is_set()

    async def _grant(self, slot: ComputeSlot) -> None:
        """Send the picture of the wish that is newest when the turn comes."""
        messages: tuple[str | bytes, ...]
        async with slot.turn("picture") as waited:
            wish = self.newest
            if wish is None or isinstance(wish.spec, SpecError) or self._slot(wish.spec) is not slot:
                # The newest wish needs no turn at this device any more.
                return
            self._take()
            self.source.note(wish.spec)
            began = time.perf_counter()
            superseded = False
            try:
                self.shown, trace, messages = await self._compute(
                    slot, "picture", waited, partial(self._picture, wish.seq, wish.spec)
                )
                self.owed = Owed(wish.seq, trace, slot)
            except StoppedError:
                superseded, messages = True, ()
            except ChainruleError as error:
                log_error(error)
                messages = (error_message(wish.seq, error),)
            except Exception:
                logger.exception("a live trace failed")
                messages = (error_message(wish.seq, InternalError()),)
            self.let_finish = superseded
            self.spent.frames += time.perf_counter() - began
        # The turn is over: a client that reads slowly holds up nobody else.
        for message in messages:
            await self._send(message)

    async def _pay(self, owed: Owed) -> None:
        """Send the theory of a frame, unless it would delay a newer frame."""
        async with owed.slot.turn("theory") as waited:
            if self.newest is not None and not self.spent.leaves_theory_time:
                return
            self.owed, tracer = None, self.retracer
            began = time.perf_counter()
            try:
                message = await self._compute(
                    owed.slot,
                    "theory",
                    waited,
                    partial(_theory_of, tracer, owed),
                )
            except ChainruleError as error:
                # The frame stands without it.
                logger.info("no theory of a live trace: %s", error.message)
                return
            except Exception:
                logger.exception("theory of a live trace failed")
                return
            finally:
                self.spent.theory += time.perf_counter() - began
        await self._send(message)

    async def _compute(self, slot: ComputeSlot, kind: Kind, waited: float, compute: Callable[[], T]) -> T:
        """Compute in this client's turn, giving way to its newer wishes.

        Raises:
            ChainruleError: see `ComputeSlot.compute`.
        """
        work = self.running = Work(kind, self.metrics, waited=waited)
        self._give_way()
        try:
            return await slot.compute(work, compute, self.source.deadline_seconds, "CHAINRULE_LIVE_DEADLINE_SECONDS")
        except MemoryLimitError:
            self._forget()
            raise
        finally:
            self.running = None
            if self.grace is not None:
                self.grace.cancel()
                self.grace = None
            if not work.over:
                # The thread still runs and uses the tracer.
                self._forget()

    def _forget(self) -> None:
        """Replace the tracer, with all that it keeps."""
        self.service.compute.kept.leave(self.retracer)
        self.retracer = self.source.tracer()
        self.owed = None

    def _take(self) -> None:
        self.newest = None
        self.arrived.clear()

    def _picture(self, seq: int, spec: SpecT) -> tuple[Shown, Trace, tuple[str | bytes, ...]]:
        """Trace in the device's thread: the graph that the client then has, the trace, and the messages."""
        began = time.perf_counter()
        retracer = self.retracer
        with self.service.compute.kept.using(retracer):
            trace, recording = retracer.trace(spec), retracer.recording
            aside = retracer.aside(seq)
        # A kept trace reports the time of its pass.
        compute_ms = max((time.perf_counter() - began) * 1e3, trace.timing.get("total_ms", 0.0))
        shown, topology = show(trace, recording, self.shown)
        numbers = frame(trace, seq, shown.number, compute_ms)
        return shown, trace, tuple(each for each in (topology, numbers, aside) if each is not None)

    async def _tell(self) -> None:
        """Send news; a subject without news waits for ever."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            # The loop may have ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(told.set)

        leave = self.source.listen(tell) if self.source.listen is not None else None
        if self.source.has_news():
            told.set()
        try:
            while True:
                await told.wait()
                told.clear()
                await self._send(self.source.news())
        finally:
            if leave is not None:
                leave()

    async def _send_error(self, seq: int | None, error: ChainruleError) -> None:
        self.metrics.rejected.labels(error.code).inc()
        await self._send(error_message(seq, error))

    async def _send(self, message: str | bytes) -> None:
        """Send one message; the connection limits how slowly the client may take it.

        Raises:
            WebSocketDisconnect: the client has gone, or was cut off.
        """
        try:
            if isinstance(message, bytes):
                await self.websocket.send_bytes(message)
            else:
                await self.websocket.send_text(message)
        except RuntimeError:
            # The server closed the socket, perhaps over a message that is too long.
            raise WebSocketDisconnect(1006) from None

    async def _close(self, code: int) -> None:
        """Close the socket, if the client still reads."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.websocket.close(code)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            logger.debug("the client left before the live socket was closed")
