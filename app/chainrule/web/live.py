"""The slider's WebSocket: specs in, frames out, the latest wins.

A reader takes messages as they come and keeps the newest; an answerer computes what is newest when its turn at the
device comes. So a dragged slider never builds a backlog, and the last value set is the last one shown.

    client ──{"seq", "spec"}──▶ _read ──latest──▶ _answer ──turn──▶ trace ──topology, frame──▶ client
                                                     └─time left──▶ theory ──message──▶ client

A frame goes first. What theory says of it follows, at once as long as theory has taken little of the time since the
client last rested, else when it rests again: a newer frame is owed its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import orjson
from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from chainrule.errors import ChainruleError, RequestError, SpecError
from chainrule.profile import theory
from chainrule.run import Retracer
from chainrule.spec import ModelSpec
from chainrule.trace.graph import Trace
from chainrule.web.compute import ComputeSlot
from chainrule.web.guard import InternalError
from chainrule.web.service import Service
from chainrule.wire import dump_topology, frame, theory_message

logger = logging.getLogger(__name__)

MAX_SEQ = 2**32 - 1
"""A frame carries its number in 32 bits."""

THEORY_SHARE = 0.2
"""Of the time that a client's answers are computed in while it does not rest, theory takes no more."""

REST_SECONDS = 0.05
"""A client rests that has asked for nothing for so long: a dragged slider asks again as soon as it has a frame."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One message of a client: what it wants to see, or what is wrong with that."""

    seq: int
    spec: ModelSpec | SpecError


@dataclass(slots=True)
class Spent:
    """Seconds that answers have taken since the client last rested."""

    frames: float = 0.0
    theory: float = 0.0

    @property
    def leaves_theory_time(self) -> bool:
        """Whether theory has taken so little that some more does not slow the frames."""
        return self.theory <= THEORY_SHARE * (self.frames + self.theory)


@dataclass(frozen=True, slots=True)
class Owed:
    """A frame that was sent without what theory says of it."""

    seq: int
    trace: Trace
    slot: ComputeSlot


def live_router(service: Service) -> APIRouter:
    """`/api/v1/live`."""
    router = APIRouter()

    @router.websocket("/api/v1/live")
    async def live(websocket: WebSocket) -> None:
        await websocket.accept()
        await LiveSession(websocket, service).serve()

    return router


class LiveSession:
    """One open socket: the newest wish not yet granted, and the graph the client already has."""

    def __init__(self, websocket: WebSocket, service: Service) -> None:
        self.websocket = websocket
        self.service = service
        self.last_seq = -1
        self.newest: Wish | None = None
        self.arrived = asyncio.Event()
        self.topology = 0
        self.shown: Trace | None = None
        self.retracer = Retracer()
        self.owed: Owed | None = None
        self.spent = Spent()

    async def serve(self) -> None:
        """Read and answer until the client goes."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._answer())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, WebSocketDisconnect):
                raise end

    async def _read(self) -> None:
        """Keep the newest message; answer at once what is no message at all."""
        while True:
            message = await self.websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                self.newest = self._wish(message.get("text"))
            except RequestError as error:
                await self._send_error(None, error)
            else:
                self.arrived.set()

    def _wish(self, text: str | None) -> Wish:
        """A message, read. A bad spec is a wish too: it is answered in its turn, with its number.

        Raises:
            RequestError: this is not `{"seq": n, "spec": {…}}` with a number larger than the last.
        """
        if text is None:
            raise _bad_message("a message is JSON text")
        try:
            message = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise _bad_message(f"this is not JSON: {error}") from None
        if not isinstance(message, dict) or message.keys() != {"seq", "spec"}:
            raise _bad_message('a message is {"seq": number, "spec": {…}} and nothing else')
        seq, spec = message["seq"], message["spec"]
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
            raise _bad_message(f"seq is an integer from 0 to {MAX_SEQ}", field="seq")
        if seq <= self.last_seq:
            raise _bad_message(
                f"seq {seq} does not follow {self.last_seq}: every number is larger than the last", "seq"
            )
        if not isinstance(spec, dict):
            raise _bad_message("spec is an object", field="spec")
        self.last_seq = seq
        try:
            return Wish(seq, self.service.read(spec))
        except SpecError as error:
            return Wish(seq, error)

    async def _answer(self) -> None:
        """Grant the newest wish, then the one that is newest by then; in between, pay what theory is owed."""
        while True:
            if self.owed is not None and self.spent.leaves_theory_time:
                await self._pay(self.owed)
                continue
            if self.newest is None and await self._rests():
                if self.owed is not None:
                    await self._pay(self.owed)
                self.spent = Spent()
                await self.arrived.wait()
            wish = self.newest
            assert wish is not None, "arrived is set with a wish and cleared with it"
            if isinstance(wish.spec, SpecError):
                self._take()
                await self._send_error(wish.seq, wish.spec)
                continue
            slot = self.service.compute.slots[wish.spec.device]
            async with slot.turn():
                wish = self.newest
                if wish is None or isinstance(wish.spec, SpecError) or wish.spec.device != slot.device:
                    # While this stood in line the client changed its mind in a way that needs no turn here.
                    continue
                self._take()
                began = time.perf_counter()
                try:
                    messages = await slot.compute(self._picture, wish.seq, wish.spec)
                    assert self.shown is not None, "a picture was made of it"
                    self.owed = Owed(wish.seq, self.shown, slot)
                except ChainruleError as error:
                    messages = [error_message(wish.seq, error)]
                except Exception:
                    logger.exception("a live trace of %s failed", wish.spec.query())
                    messages = [error_message(wish.seq, InternalError())]
                self.spent.frames += time.perf_counter() - began
            # The turn is over: a client that reads slowly holds up nobody else.
            for message in messages:
                if isinstance(message, bytes):
                    await self.websocket.send_bytes(message)
                else:
                    await self.websocket.send_text(message)

    async def _rests(self) -> bool:
        """Whether the client asks for nothing for a while."""
        try:
            await asyncio.wait_for(self.arrived.wait(), REST_SECONDS)
        except TimeoutError:
            return True
        return False

    async def _pay(self, owed: Owed) -> None:
        """Send what theory says of a frame, unless the client wishes for a newer one that it would hold up."""
        async with owed.slot.turn():
            if self.newest is not None and not self.spent.leaves_theory_time:
                return
            self.owed = None
            began = time.perf_counter()
            try:
                message = await owed.slot.compute(lambda: theory_message(theory(owed.trace), owed.seq))
            except Exception:
                # The frame stands without it.
                logger.exception("theory of a live trace failed")
                return
            finally:
                self.spent.theory += time.perf_counter() - began
        await self.websocket.send_text(message)

    def _take(self) -> None:
        self.newest = None
        self.arrived.clear()

    def _picture(self, seq: int, spec: ModelSpec) -> list[str | bytes]:
        """Compute one trace, in the device's thread: its frame, after the topology if the client has another."""
        began = time.perf_counter()
        trace = self.retracer.trace(spec)
        compute_ms = (time.perf_counter() - began) * 1e3
        number, messages = self.topology, list[str | bytes]()
        if self.shown is None or not same_graph(self.shown, trace):
            number += 1
            topology = {"type": "topology", "topology": number, "trace": dump_topology(trace)}
            messages.append(orjson.dumps(topology).decode())
        messages.append(frame(trace, seq, number, compute_ms))
        # Only now: had one of the two failed, the client would not have this graph.
        self.topology, self.shown = number, trace
        return messages

    async def _send_error(self, seq: int | None, error: ChainruleError) -> None:
        await self.websocket.send_text(error_message(seq, error))


def same_graph(one: Trace, other: Trace) -> bool:
    """Whether a frame of one trace can be shown on the topology of the other."""
    return (
        one.ops == other.ops
        and one.tensors == other.tensors
        and one.modules == other.modules
        and one.saved == other.saved
        and one.layers == other.layers
        and one.statistics.tensors == other.statistics.tensors
    )


def error_message(seq: int | None, error: ChainruleError) -> str:
    """An error as the socket carries it; `seq` is null where no message could be read."""
    return orjson.dumps({"type": "error", "seq": seq, **error.body()}).decode()


def _bad_message(message: str, field: str | None = None) -> RequestError:
    return RequestError(message, code="bad_message", field=field)
