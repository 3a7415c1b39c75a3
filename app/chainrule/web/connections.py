"""One HTTP or WebSocket connection: uvicorn's, with less patience.

Uvicorn waits for ever for the rest of a request and for a client that takes nothing; no setting of it changes that.

- The head of a request must arrive within CHAINRULE_RECEIVE_SECONDS of the connection's start or, on a kept connection,
  of its first byte. The body has as long again, whether it is read or not.
- A client that takes less than 1 KiB a second for CHAINRULE_SEND_SECONDS is cut off (`slow_clients.py`).
- Nothing is read from a client that does not take its answers, nor from one whose request is answered before its end.
- Few events and bytes are parsed at a time, so that no client keeps the others waiting.
- One connection more than CHAINRULE_MAX_CONNECTIONS takes the place of an idle one, or is answered 503.
- Answers that uvicorn makes without the application are JSON in the one error shape, with the usual headers.

These classes rely on attributes of uvicorn's two protocol classes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.server import ServerProtocol

from chainrule.errors import BusyError, ChainruleError, RequestError
from chainrule.web.guard import InternalError
from chainrule.web.slow_clients import SendWatch, cut_off, limit_buffers, unsent

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

    from chainrule.web.server import ServerConfig

logger = logging.getLogger(__name__)

LEEWAY_SECONDS = 0.5
"""Added for bodies: a route that waits for a body answers first, with a better message."""

LINGER_SECONDS = 0.5
"""How long bytes after a refusal are read and dropped. Closing at once would reset the connection and lose the answer.
"""

MAX_LINGERING = 64
"""Refused connections that stay until their answer is taken; further ones are closed without an answer."""

HALF_CLOSED_SECONDS = 0.25
"""An answer may take so long if the client will send nothing more: perhaps it reads, and perhaps it has gone."""

EVENTS_PER_TURN = 64
"""Parts of requests, such as chunks of a body, that a connection parses in one turn: about a millisecond."""

BYTES_PER_TURN = 512
"""Bytes of messages that a socket parses in one turn: at most 85 messages, about a millisecond."""

MAX_UNANSWERED = 4
"""Messages of a socket that may wait for an answer; beyond, it is read in gulps, since only the latest will count."""

GULP_SECONDS = 0.05
"""Time between two such gulps."""


class Requests(h11.Connection):
    """h11's parser, which also refuses requests that a proxy may read differently (RFC 9112, 6.3).

    Attributes:
        left: events that it gives before it says that there are no more.
    """

    left = EVENTS_PER_TURN

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """See `h11.Connection.next_event`.

        Raises:
            h11.RemoteProtocolError: also where a request has both Content-Length and Transfer-Encoding.
        """
        if self.left == 0:
            return h11.NEED_DATA
        self.left -= 1
        event = super().next_event()
        if isinstance(event, h11.Request) and {b"content-length", b"transfer-encoding"} <= {
            name for name, _ in event.headers
        }:
            raise h11.RemoteProtocolError(
                "a request has both Content-Length and Transfer-Encoding; only one is allowed"
            )
        return event


class Flow(FlowControl):
    """Uvicorn's, which does not read on while a connection has more to parse."""

    has_more = False

    def resume_reading(self) -> None:
        """See `FlowControl`."""
        if not self.has_more:
            super().resume_reading()


class HttpConnection(H11Protocol):
    """One HTTP connection."""

    config: ServerConfig

    def __init__(self, config: ServerConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.conn: Requests = Requests(h11.SERVER)
        self._receive_seconds = config.settings.receive_seconds
        # The part of a request that is due, and the cycle that it follows or belongs to.
        self._awaited: tuple[Literal["head", "body"], object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._upgraded = False
        self._lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client, if there is room."""
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)
        limit_buffers(transport)
        self._sending = SendWatch(transport, self.loop, self.config.settings.send_seconds, self._cut)
        if self.config.has_room():
            self.config.open[self] = None
            self._await("head")
        else:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the connection's place."""
        self._stop_waiting()
        self._sending.stop()
        self.config.open.pop(self, None)
        self.config.lingering -= self._lingers
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a whole request, if that does not take long; whether the connection stays open for it."""
        waits = (
            not self._refused
            and self.cycle is not None
            and not self.cycle.response_complete
            and self.conn.their_state is not h11.SEND_BODY
        )
        if waits:
            self.cycle.keep_alive = False
            self.loop.call_later(HALF_CLOSED_SECONDS, self.transport.close)
        return waits

    def data_received(self, data: bytes) -> None:
        """Read some of a request."""
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        """Read some of what has come, and start or stop waiting for the rest."""
        self.conn.left = EVENTS_PER_TURN
        super().handle_events()
        if self._refused or self._upgraded or self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._end()
            return
        if self.conn.left == 0 and not self.flow.has_more:
            self.flow.has_more = True
            self.flow.pause_reading()
            self.loop.call_soon(self._go_on)
        if self.conn.their_state is h11.SEND_BODY:
            self._await("body")
        elif self.conn.their_state is h11.IDLE and (self.timeout_keep_alive_task is None or self._begun):
            self._await("head")
        else:
            self._stop_waiting()

    def _go_on(self) -> None:
        """Parse more of what has come, now that others had their turn."""
        self.flow.has_more = False
        if not self._refused and not self._upgraded and not self.transport.is_closing():
            self.flow.resume_reading()
            self.handle_events()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the connection on to a `SocketConnection`."""
        self._upgraded = True
        self._stop_waiting()
        self._sending.stop()
        self.config.open.pop(self, None)
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """Watch a client that takes less than it is sent."""
        super().pause_writing()
        self._sending.start()

    def resume_writing(self) -> None:
        """Stop watching: it has taken everything."""
        super().resume_writing()
        self._sending.stop()

    def shutdown(self) -> None:
        """Close at the server's end."""
        if not self.transport.is_closing() and not self._refused:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP."""
        self._refuse(RequestError(msg))

    @property
    def silent(self) -> bool:
        """Whether no request was ever complete."""
        return self.cycle is None

    @property
    def answered(self) -> bool:
        """Whether every request is answered and every answer taken."""
        complete: bool = self.cycle is not None and self.cycle.response_complete
        return complete and not self.transport.get_write_buffer_size()

    @property
    def _begun(self) -> bool:
        """Whether part of a head has arrived."""
        return bool(self.conn.trailing_data[0])

    def _await(self, part: Literal["head", "body"]) -> None:
        awaited = (part, self.cycle)
        if awaited == self._awaited:
            return
        self._stop_waiting()
        self._awaited = awaited
        seconds = self._receive_seconds + (LEEWAY_SECONDS if part == "body" else 0)
        self._timer = self.loop.call_later(seconds, self._overdue, part)

    def _stop_waiting(self) -> None:
        self._awaited = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self, part: Literal["head", "body"]) -> None:
        if self.transport.is_closing():
            return
        answered = part == "body" and self.cycle.response_started
        if (part == "head" and not self._begun) or (answered and self.cycle.response_complete):
            self.transport.close()
        elif answered:
            # The client may still take its answer, the last one here.
            self.cycle.keep_alive = False
            self.flow.pause_reading()
        else:
            self._refuse(
                RequestError(
                    f"the {part} of the request took more than {self._receive_seconds:g} s to arrive "
                    "(CHAINRULE_RECEIVE_SECONDS)",
                    status=408,
                    code="request_timeout",
                    limit=self._receive_seconds,
                )
            )

    def _turn_away(self) -> None:
        """Refuse a connection for which there is no room."""
        config = self.config
        if config.lingering >= MAX_LINGERING:
            self._refused = True
            config.count(BusyError.code)
            cut_off(self.transport)
            return
        self._lingers = True
        config.lingering += 1
        number, limit = len(config.open), config.max_open
        message = f"{number} connections are open; at most {limit} are allowed (CHAINRULE_MAX_CONNECTIONS)"
        self._refuse(BusyError(message, limit=limit))

    def _refuse(self, error: ChainruleError) -> None:
        """Answer instead of the application, and close."""
        self._refused = True
        self._stop_waiting()
        self._unset_keepalive_if_required()
        cycle = self.cycle
        in_hand = cycle is not None and not cycle.response_complete
        if in_hand:
            # Drop anything the application still sends.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            scope = cast("MutableMapping[str, Any]", cycle.scope) if in_hand else None
            headers, body = self.config.refusal(error, self.client, scope)
            reason = HTTPStatus(error.status).phrase.encode()
            self._write(h11.Response(status_code=error.status, headers=list(headers.items()), reason=reason))
            if scope is None or scope["method"] != "HEAD":
                self._write(h11.Data(data=body))
            self._write(h11.EndOfMessage())
        else:
            self.config.count(error.code)
        self._end()

    def _end(self) -> None:
        """Say nothing more, drop the bytes that still come, and close."""
        self._refused = True
        self._stop_waiting()
        self._unset_keepalive_if_required()
        self.flow.has_more = False
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _write(self, event: h11.Event) -> None:
        self.transport.write(self.conn.send(event) or b"")

    def _cut(self) -> None:
        self.config.count("slow_reader")
        logger.info("a client read almost nothing for %g s and was disconnected", self.config.settings.send_seconds)
        cut_off(self.transport)


class Handshakes(ServerProtocol):
    """The library's WebSocket parser, which refuses in JSON and counts bytes written."""

    written = 0

    def __init__(self, refusal: Callable[[ChainruleError], tuple[dict[str, str], bytes]], **options: Any) -> None:
        super().__init__(**options)
        self._refusal = refusal

    def reject(self, status: HTTPStatus | int, text: str) -> Response:
        """The answer to a handshake that is refused."""
        answer = super().reject(status, text)
        error: ChainruleError = RequestError(text.strip() or answer.reason_phrase, code="bad_handshake")
        if answer.status_code >= 500:
            error = InternalError()
        # The library sets statuses, this server codes.
        error.status = answer.status_code
        headers, body = self._refusal(error)
        return Response(answer.status_code, answer.reason_phrase, Headers(headers), body)

    def data_to_send(self) -> list[bytes]:
        """Bytes to write now."""
        output = super().data_to_send()
        self.written += sum(map(len, output))
        return output


class SocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket connection. It begins with the head of its handshake."""

    config: ServerConfig
    silent = answered = False

    def __init__(self, config: ServerConfig, **options: Any) -> None:
        super().__init__(config, **options)
        # Below WARNING they log a handshake's address and headers: either may hold a token.
        self.logger = self.logger.getChild("socket")
        self.logger.setLevel(max(logging.WARNING, logging.getLogger("uvicorn.error").getEffectiveLevel()))
        self.conn: Handshakes = Handshakes(self._refusal, max_size=config.ws_max_size, logger=self.logger)
        self._taken_at_ping = 0
        self._unanswered = 0
        self._waiting = bytearray()  # for its turn to be parsed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection over from an `HttpConnection`."""
        super().connection_made(transport)
        self._sending = SendWatch(transport, self.loop, self.config.settings.send_seconds, self._cut)
        self.config.open[self] = None
        if transport.get_write_buffer_size():
            self.pause_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the connection's place."""
        self._sending.stop()
        self.config.open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read the complete head of the handshake, then frames, some at a time."""
        if self._waiting or (self.handshake_initiated and len(data) > BYTES_PER_TURN):
            if not self._waiting:
                self.loop.call_soon(self._parse_some)
            self._waiting += data
            self.transport.pause_reading()
            return
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            # h11 could read this head, but a line is too long for the WebSocket library, or there are too many.
            output = b"".join(self.conn.data_to_send())
            self.transport.write(output or self.conn.reject(400, "this is not a WebSocket handshake").serialize())
            self.transport.close()

    def _parse_some(self) -> None:
        """Parse some of what has come, now that others had their turn."""
        if self.transport.is_closing():
            return
        data = bytes(self._waiting[:BYTES_PER_TURN])
        del self._waiting[:BYTES_PER_TURN]
        super().data_received(data)
        if self._waiting:
            self.loop.call_soon(self._parse_some)
        elif not self.read_paused:
            self.transport.resume_reading()
            self._stay_paused()

    def pause_writing(self) -> None:
        """Watch a client that takes less than it is sent."""
        super().pause_writing()
        self._sending.start()
        # Answers to its pings would fill the memory.
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Stop watching: it has taken everything."""
        super().resume_writing()
        self._sending.stop()
        if not self.read_paused:
            self.transport.resume_reading()
            self._stay_paused()

    async def receive(self) -> ASGIReceiveEvent:
        """The next message."""
        if self._unanswered < MAX_UNANSWERED:
            message = await super().receive()
            self._stay_paused()
        else:
            message = await self.queue.get()
            if self.read_paused and self.queue.empty():
                self.loop.call_later(GULP_SECONDS, self._read_on)
        self._unanswered += 1
        return message

    def _read_on(self) -> None:
        """Read again once the queue is empty."""
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()
            self._stay_paused()

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message, or close."""
        await super().send(message)
        # Until all of it is in the kernel's buffer or at the client: other work would slow the sending.
        await self.writable.wait()
        self._unanswered = 0
        self._read_on()

    def _stay_paused(self) -> None:
        """Undo uvicorn's resumed reading while the client does not take its answers, or bytes wait for their turn."""
        if self._waiting or not self.writable.is_set():
            self.transport.pause_reading()

    def _refusal(self, error: ChainruleError) -> tuple[dict[str, str], bytes]:
        """Headers and body for a handshake that fails."""
        scope = cast("MutableMapping[str, Any] | None", getattr(self, "scope", None))
        return self.config.refusal(error, self.client, scope)

    def shutdown(self) -> None:
        """Say goodbye at the server's end, and reset the connection if the client does not read."""
        if self.transport.is_closing():
            return
        super().shutdown()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(LINGER_SECONDS, cut_off, self.transport)

    def send_keepalive_ping(self) -> None:
        """Ping the client."""
        super().send_keepalive_ping()
        self._taken_at_ping = self._taken

    def keepalive_timeout(self) -> None:
        """Close unless the ping still waits behind bytes that the client is taking slowly."""
        taken = self._taken
        if taken > self._taken_at_ping and unsent(self.transport):
            self._taken_at_ping = taken
            assert self.ping_timeout is not None
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self._cut()

    @property
    def _taken(self) -> int:
        """Bytes that the client has taken so far."""
        return self.conn.written - unsent(self.transport)

    def _cut(self) -> None:
        self.config.count("slow_reader")
        logger.info("a socket read almost nothing for %g s and was disconnected", self.config.settings.send_seconds)
        cut_off(self.transport)
