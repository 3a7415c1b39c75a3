"""How a connection behaves, and the server that holds them all: uvicorn's, with less patience.

Uvicorn by itself waits for ever for the rest of a request, and for a client that takes nothing of what it is sent. Here

- the head of a request must be there CHAINRULE_RECEIVE_SECONDS after the connection was opened, or after its first
  byte on a connection that was kept; its body as long after its head; whether anybody reads it or not;
- a client that takes less than 1 KiB a second of what it is sent, for CHAINRULE_SEND_SECONDS, is cut off, and what was
  kept for it is let go; one that takes more is served to the end;
- who does not take what it is sent is not read either: no answer is made to what comes then;
- one connection more than CHAINRULE_MAX_CONNECTIONS takes the place of an idle one, or is answered 503;
- what uvicorn answers without the application is JSON in the one error shape, with the headers of every answer.

Relied on of uvicorn's insides: the attributes of its two protocol classes that are used below.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast

import h11
import orjson
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.server import ServerProtocol

from chainrule.errors import BusyError, ChainruleError, RequestError
from chainrule.settings import SPARE_DESCRIPTORS, Settings
from chainrule.web.guard import SECURITY_HEADERS, InternalError
from chainrule.web.request_log import HEADER, REFUSED, name_request, record_refusal
from chainrule.web.service import Service

if sys.platform != "win32":
    import fcntl
    import resource
    import termios

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

logger = logging.getLogger(__name__)

LEEWAY_SECONDS = 0.5
"""A route that reads a body answers first when the body does not come: it knows more than the connection does."""

LINGER_SECONDS = 0.5
"""What still comes after a refusal is read for so long and thrown away. Closed at once the connection would be reset,
and the answer lost on its way."""

LOOKS = 8
"""How often within CHAINRULE_SEND_SECONDS a slow reader is looked at."""

SLOWEST = 1024
"""Bytes a second that a client has to take: half of what the slowest telephone line carries."""

KERNEL_BYTES = 1 << 17
"""What the kernel keeps for a client that has not taken it yet; left to itself it keeps megabytes. Linux doubles it."""

UNSENT_BYTES = 1 << 16
"""How much of it may wait to be sent at all, where the kernel can tell."""

UNANSWERED = 4
"""Of a socket that has asked for so much more than it was answered, more is read in gulps: each reading has its cost,
and of what it asks meanwhile only the latest will count."""

GULP_SECONDS = 0.05
"""A gulp is what has come in so long."""

LINGERING = 64
"""So many refused connections stay for the moment in which their answer is taken; more are closed without one."""

ACCEPTED_AT_ONCE = 32
"""Connections that the loop takes before it looks at them. Those that wait to be taken are the kernel's to keep."""

BACKLOG = 2048
"""How many of those there may be."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

COMPLAINT_SECONDS = 10
"""That no connection can be taken is said once in so long."""

SHUTDOWN_LEEWAY_SECONDS = 1
"""Work that is stopped at the end of CHAINRULE_SHUTDOWN_SECONDS has so long to say so."""


class ServerConfig(uvicorn.Config):
    """Uvicorn's configuration, and what the connections below need to know."""

    def __init__(self, app: ASGIApp, settings: Settings, service: Service | None) -> None:
        super().__init__(
            app,
            # One implementation of each everywhere, whatever else is installed.
            loop="asyncio",
            http=HttpConnection,
            ws=SocketConnection,
            # What is logged, and how, is `web/logs.py`'s.
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="on",
            proxy_headers=True,
            # An empty list trusts nobody; None would ask the environment.
            forwarded_allow_ips="*" if "*" in settings.trusted_proxies else list(settings.trusted_proxies),
            # Frames are numbers, which hardly shrink for the time it takes.
            ws_per_message_deflate=False,
            ws_max_size=settings.max_body_bytes,
            # A peer that is gone without a word is found in twice this: asked after one, given up after the other.
            ws_ping_interval=settings.send_seconds,
            ws_ping_timeout=settings.send_seconds,
            timeout_graceful_shutdown=settings.shutdown_seconds + SHUTDOWN_LEEWAY_SECONDS,
            backlog=ACCEPTED_AT_ONCE,
        )
        self.settings = settings
        self.service = service
        self.places = Places(settings.max_connections)

    def count(self, code: str) -> None:
        """Count a refusal."""
        if self.service is not None:
            self.service.metrics.rejected.labels(code=code).inc()

    def refusal(
        self, error: ChainruleError, client: tuple[str, int] | None, scope: MutableMapping[str, Any] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """Count an answer that no application made, and see that it is logged; its headers and its body.

        Args:
            error: what is answered.
            client: who asked.
            scope: of the request that the application has in hand: its own record says what became of it.
        """
        if error.status < 500 or isinstance(error, BusyError):
            self.count(error.code)
        body = orjson.dumps(error.body())
        if scope is not None:
            name = name_request(scope)
            scope["state"][REFUSED] = error
        else:
            metrics = None if self.service is None else self.service.metrics
            name = record_refusal(metrics, error, client[0] if client else "", len(body))
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            "cache-control": "no-store",
            HEADER: name,
            **SECURITY_HEADERS,
        }
        if isinstance(error, BusyError):
            headers["retry-after"] = str(error.retry_after)
        return headers, body

    def make_room(self) -> bool:
        """Close the connection that is idle for the longest; whether there was one."""
        idle = self.places.longest_idle()
        if idle is None:
            return False
        self.count("crowded_out")
        self.places.leave(idle)
        # Not by a reset: what was answered last may be on its way.
        idle.transport.close()
        return True


class Places:
    """Who is connected, the oldest first."""

    def __init__(self, limit: int) -> None:
        self.limit = min(limit, descriptors_to_spare())
        self.lingering = 0
        self._taken = dict[HttpConnection | SocketConnection, None]()

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[HttpConnection | SocketConnection]:
        return iter(self._taken)

    def enter(self, connection: HttpConnection | SocketConnection) -> None:
        """Take a place."""
        self._taken[connection] = None

    def leave(self, connection: HttpConnection | SocketConnection) -> None:
        """Give it back, if there is one."""
        self._taken.pop(connection, None)

    def longest_idle(self) -> HttpConnection | None:
        """The oldest connection on which no request was ever whole, else the oldest whose requests are all answered."""
        answered = None
        for each in self._taken:
            if isinstance(each, HttpConnection):
                if each.cycle is None:
                    return each
                if answered is None and each.cycle.response_complete and not each.transport.get_write_buffer_size():
                    answered = each
        return answered


def descriptors_to_spare() -> int:
    """How many connections the system lets this process have."""
    if sys.platform == "win32":
        return sys.maxsize
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return sys.maxsize
    # Where there are few at all, half of them.
    return max(allowed - SPARE_DESCRIPTORS, allowed // 2, 1)


def server_config(app: ASGIApp, settings: Settings) -> ServerConfig:
    """How the server is run: everywhere the same, in `chainrule serve` and in the tests."""
    return ServerConfig(app, settings, getattr(getattr(app, "state", None), "service", None))


class Server(uvicorn.Server):
    """Uvicorn's server; at its end work in progress is told."""

    config: ServerConfig

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        asyncio.get_running_loop().set_exception_handler(self._on_trouble)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what went wrong in the loop; that no connection can be taken, once and not at every try."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in OUT_OF_DESCRIPTORS or "socket" not in context:
            loop.default_exception_handler(context)
            return
        self.config.make_room()
        if loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + COMPLAINT_SECONDS
            logger.error("no connection can be taken: %s", error.strerror)

    _quiet_until = 0.0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: no more connections, and those that are open may finish for a while."""
        if self.config.service is not None:
            self.config.service.compute.begin_shutdown()
        await super().shutdown(sockets)
        # Who has not taken an answer by now does not get it.
        for connection in self.server_state.connections:
            cut_off(connection.transport)
        await asyncio.sleep(0)


class Sending:
    """Watches that a client takes what it is sent."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float, cut: Callable[[], None]
    ) -> None:
        # The protocol is told as soon as anything is left over, however little: the end of a small answer that nobody
        # takes would otherwise be kept without anyone noticing.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._cut = cut
        self._left = 0
        self._taken = 0
        # When it was looked, and what was taken by then, within the last seconds.
        self._seen = deque[tuple[float, int]]()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Something is left over."""
        self.stop()
        self._left, self._taken = unsent(self._transport), 0
        self._seen = deque([(self._loop.time(), 0)])
        self._look_later()

    def stop(self) -> None:
        """Nothing is left over, or the connection has ended."""
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
        # It may have grown in the meantime: what was taken of that is not seen.
        self._taken += max(0, self._left - left)
        self._left = left
        while len(self._seen) > 1 and now - self._seen[1][0] >= self._seconds:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since >= self._seconds and self._taken - before < SLOWEST * (now - since):
            self._cut()
            return
        self._seen.append((now, self._taken))
        self._look_later()


def unsent(transport: asyncio.Transport) -> int:
    """How many bytes the other side has not taken: those kept here, and those that the kernel keeps.

    The kernel takes in megabytes and asks for more when a third of them is gone. Seen from here, a slow reader takes
    nothing for minutes; hence the kernel is asked, where it says (Linux: what was not acknowledged).
    """
    kept = transport.get_write_buffer_size()
    connection = transport.get_extra_info("socket")
    if sys.platform != "win32" and connection is not None:
        with contextlib.suppress(OSError):
            kept += struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    return kept


def cut_off(transport: asyncio.Transport) -> None:
    """End a connection with a reset: the kernel too lets go of what was not taken."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def prepare(transport: asyncio.Transport) -> None:
    """Set the options of a connection that was taken."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # Who has gone already is told so elsewhere.
    with contextlib.suppress(OSError):
        # asyncio does it only where the listener was opened for TCP by number. An answer is written in two parts, and
        # the second would wait 40 ms for the first one's acknowledgement.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


class Requests(h11.Connection):
    """HTTP without input and output: takes no request that a proxy before it may have read otherwise."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What has come next.

        Raises:
            h11.RemoteProtocolError: a request has two lengths, Content-Length and Transfer-Encoding (RFC 9112, 6.3), or
                is no HTTP at all.
        """
        event = super().next_event()
        if isinstance(event, h11.Request) and {b"content-length", b"transfer-encoding"} <= {
            name for name, _ in event.headers
        }:
            raise h11.RemoteProtocolError("a request has Content-Length and Transfer-Encoding")
        return event


class HttpConnection(H11Protocol):
    """One connection that speaks HTTP."""

    config: ServerConfig

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = Requests(h11.SERVER)
        self._receive_seconds = config.settings.receive_seconds
        # The last thing that was waited for: a part of the request that follows, or belongs to, this cycle.
        self._awaited: tuple[Literal["head", "body"], object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._upgraded = False
        self._lingers = False

    # The life of a connection ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; it has to say something."""
        super().connection_made(transport)
        prepare(transport)
        self._sending = Sending(transport, self.loop, self.config.settings.send_seconds, self._cut)
        places = self.config.places
        if len(places) >= places.limit and not self.config.make_room():
            self._turn_away(places)
            return
        places.enter(self)
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was sent away."""
        self._stop_waiting()
        self._sending.stop()
        self.config.places.leave(self)
        self.config.places.lingering -= self._lingers
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        """Read what has come, and see what is still to come."""
        super().handle_events()
        if self._refused or self._upgraded or self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._await("body")
        elif self.conn.their_state is h11.IDLE and (self.timeout_keep_alive_task is None or self._begun):
            self._await("head")
        else:
            self._stop_waiting()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """The connection changes hands."""
        self._upgraded = True
        self._stop_waiting()
        self._sending.stop()
        self.config.places.leave(self)
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self._sending.start()

    def resume_writing(self) -> None:
        """It has taken everything."""
        super().resume_writing()
        self._sending.stop()

    def shutdown(self) -> None:
        """The server ends."""
        if not self.transport.is_closing() and not self._refused:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self._refuse(RequestError(msg))

    # What is waited for ----------------------------------------------------------------------------------------------

    @property
    def _begun(self) -> bool:
        """Whether some of a head is there."""
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
            # The answer may still be taken to its end. It is the last one here, and no more is read.
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

    def _turn_away(self, places: Places) -> None:
        """There is no room."""
        if places.lingering >= LINGERING:
            self._refused = True
            self.config.count(BusyError.code)
            cut_off(self.transport)
            return
        self._lingers = True
        places.lingering += 1
        message = f"{len(places)} connections are open, at most {places.limit} may be (CHAINRULE_MAX_CONNECTIONS)"
        self._refuse(BusyError(message, limit=places.limit))

    def _refuse(self, error: ChainruleError) -> None:
        """Answer in the application's place, and close."""
        self._refused = True
        self._stop_waiting()
        self._unset_keepalive_if_required()
        cycle = self.cycle
        in_hand = cycle is not None and not cycle.response_complete
        if in_hand:
            # Whatever the application still says, nobody hears it.
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
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _write(self, event: h11.Event) -> None:
        self.transport.write(self.conn.send(event) or b"")

    def _cut(self) -> None:
        self.config.count("slow_reader")
        logger.info("a client took next to nothing for %g s and was cut off", self.config.settings.send_seconds)
        cut_off(self.transport)


class Handshakes(ServerProtocol):
    """The WebSocket protocol without input and output: refuses in JSON, counts what is written."""

    written = 0

    def __init__(self, refusal: Callable[[ChainruleError], tuple[dict[str, str], bytes]], **options: Any) -> None:
        super().__init__(**options)
        self._refusal = refusal

    def reject(self, status: HTTPStatus | int, text: str) -> Response:
        """An answer that refuses a handshake."""
        answer = super().reject(status, text)
        error: ChainruleError = RequestError(text.strip() or answer.reason_phrase, code="bad_handshake")
        if answer.status_code >= 500:
            error = InternalError()
        # Statuses are told apart by the library, codes by us.
        error.status = answer.status_code
        headers, body = self._refusal(error)
        return Response(answer.status_code, answer.reason_phrase, Headers(headers), body)

    def data_to_send(self) -> list[bytes]:
        """What is to be written now."""
        output = super().data_to_send()
        self.written += sum(map(len, output))
        return output


class SocketConnection(WebSocketsSansIOProtocol):
    """One connection that speaks WebSocket, from the head of its handshake on."""

    config: ServerConfig

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # Told to log more they log a handshake's address, and its headers: either may hold a token.
        self.logger = self.logger.getChild("socket")
        self.logger.setLevel(max(logging.WARNING, logging.getLogger("uvicorn.error").getEffectiveLevel()))
        self.conn: Handshakes = Handshakes(self._refusal, max_size=config.ws_max_size, logger=self.logger)
        self._taken_at_ping = 0
        self._unanswered = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take over a connection whose client asks for a WebSocket."""
        super().connection_made(transport)
        self._sending = Sending(transport, self.loop, self.config.settings.send_seconds, self._cut)
        self.config.places.enter(self)
        if transport.get_write_buffer_size():
            self.pause_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was sent away."""
        self._sending.stop()
        self.config.places.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The head of the handshake, whole; then frames."""
        super().data_received(data)
        if not self.handshake_initiated and not self.transport.is_closing():
            # A head that HTTP can read and WebSocket cannot: a line is too long, or there are too many.
            output = b"".join(self.conn.data_to_send())
            self.transport.write(output or self.conn.reject(400, "this is no WebSocket handshake").serialize())
            self.transport.close()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self._sending.start()
        # Each ping is answered: who sends them and takes no answer would fill the memory.
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It has taken everything."""
        super().resume_writing()
        self._sending.stop()
        if not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        """The next message."""
        if self._unanswered < UNANSWERED:
            message = await super().receive()
            self._stay_paused()
        else:
            message = await self.queue.get()
            if self.read_paused and self.queue.empty():
                self.loop.call_later(GULP_SECONDS, self._read_on)
        self._unanswered += 1
        return message

    def _read_on(self) -> None:
        """Read again, unless that has been done, or there still is something to be taken."""
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()
            self._stay_paused()

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message, or close."""
        await super().send(message)
        self._unanswered = 0
        self._read_on()

    def _stay_paused(self) -> None:
        """Uvicorn reads on when the application has read what there is; more is not wanted before it is answered."""
        if not self.writable.is_set():
            self.transport.pause_reading()

    def _refusal(self, error: ChainruleError) -> tuple[dict[str, str], bytes]:
        """The answer to a handshake that fails, before the application has it or while it does."""
        scope = cast("MutableMapping[str, Any] | None", getattr(self, "scope", None))
        return self.config.refusal(error, self.client, scope)

    def shutdown(self) -> None:
        """The server ends; the client is told, unless it does not listen."""
        if self.transport.is_closing():
            return
        super().shutdown()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(LINGER_SECONDS, cut_off, self.transport)

    def send_keepalive_ping(self) -> None:
        """Ask whether the client is there."""
        super().send_keepalive_ping()
        self._taken_at_ping = self._taken

    def keepalive_timeout(self) -> None:
        """It did not answer: it has gone, or the question still waits behind what it takes slowly."""
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
        """Bytes that the client has taken, from an origin that does not move."""
        return self.conn.written - unsent(self.transport)

    def _cut(self) -> None:
        self.config.count("slow_reader")
        logger.info("a socket took next to nothing for %g s and was cut off", self.config.settings.send_seconds)
        cut_off(self.transport)
