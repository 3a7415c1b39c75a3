"""Uvicorn's server, with a limit on connections, errors in the one JSON shape, and an orderly end."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn

from chainrule.errors import BusyError, ChainruleError
from chainrule.settings import SPARE_DESCRIPTORS, Settings
from chainrule.web.connections import HttpConnection, SocketConnection
from chainrule.web.guard import SECURITY_HEADERS
from chainrule.web.request_log import HEADER, REFUSED, name_request, record_refusal
from chainrule.web.service import Service
from chainrule.web.slow_clients import cut_off

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 32
"""Connections accepted before the event loop looks at them."""

BACKLOG = 2048
"""Connections that may wait in the kernel to be accepted."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

COMPLAINT_SECONDS = 10
"""Shortest time between two log records that no connection can be accepted."""

SHUTDOWN_LEEWAY_SECONDS = 1
"""Time to answer for work that is stopped at the end of CHAINRULE_SHUTDOWN_SECONDS."""


class ServerConfig(uvicorn.Config):
    """Uvicorn's configuration, and what the connections need to know."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(
            app,
            # The same implementations everywhere, whatever else is installed.
            loop="asyncio",
            http=HttpConnection,
            ws=SocketConnection,
            # `web/logs.py` configures logging.
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="on",
            proxy_headers=True,
            # An empty list trusts nobody; None would read the environment.
            forwarded_allow_ips="*" if "*" in settings.trusted_proxies else list(settings.trusted_proxies),
            # Frames are numbers, which hardly compress.
            ws_per_message_deflate=False,
            ws_max_size=settings.max_body_bytes,
            # A peer that vanished is found after at most both together.
            ws_ping_interval=settings.send_seconds,
            ws_ping_timeout=settings.send_seconds,
            timeout_graceful_shutdown=settings.shutdown_seconds + SHUTDOWN_LEEWAY_SECONDS,
            backlog=ACCEPTED_AT_ONCE,
        )
        self.settings = settings
        self.service: Service | None = getattr(getattr(app, "state", None), "service", None)
        # Open connections, the oldest first.
        self.open = dict[HttpConnection | SocketConnection, None]()
        self.max_open = min(settings.max_connections, spare_descriptors())
        self.lingering = 0

    def count(self, code: str) -> None:
        """Count a refusal."""
        if self.service is not None:
            self.service.metrics.rejected.labels(code=code).inc()

    def refusal(
        self, error: ChainruleError, client: tuple[str, int] | None, scope: MutableMapping[str, Any] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """Headers and body of an answer that no application made; it is counted and logged.

        `scope` is of the request that the application is answering, which then writes its own record.
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

    def has_room(self) -> bool:
        """Whether one more connection may open, after closing an idle one if need be."""
        return len(self.open) < self.max_open or self.close_idle()

    def close_idle(self) -> bool:
        """Close the oldest connection without any request, else the oldest with all requests answered."""
        idle = next((each for each in self.open if each.silent), None)
        idle = idle or next((each for each in self.open if each.answered), None)
        if idle is None:
            return False
        self.count("crowded_out")
        self.open.pop(idle)
        # No reset: its last answer may be on its way.
        idle.transport.close()
        return True


def spare_descriptors() -> int:
    """How many connections the system allows this process."""
    if sys.platform == "win32":
        return sys.maxsize
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(allowed - SPARE_DESCRIPTORS, allowed // 2, 1)


class Server(uvicorn.Server):
    """Uvicorn's server, which tells running work of its end; calls `started` and `ending` in the event loop.

    `ended_by` is the signal that ends it, if one does.
    """

    config: ServerConfig
    ended_by: int = signal.SIGTERM

    def __init__(
        self, config: ServerConfig, started: Callable[[], object] = bool, ending: Callable[[], object] = bool
    ) -> None:
        super().__init__(config)
        self._started, self._ending = started, ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal, and end."""
        self.ended_by = sig
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        asyncio.get_running_loop().set_exception_handler(self._on_trouble)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)
        self._started()

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop; running out of descriptors is logged once, not at every try."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in OUT_OF_DESCRIPTORS or "socket" not in context:
            loop.default_exception_handler(context)
            return
        self.config.close_idle()
        if loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + COMPLAINT_SECONDS
            logger.error("the server cannot accept connections: %s", error.strerror)

    _quiet_until = 0.0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and let the open ones finish for a while."""
        self._ending()
        if self.config.service is not None:
            self.config.service.compute.begin_shutdown()
        await super().shutdown(sockets)
        for connection in self.server_state.connections:
            cut_off(connection.transport)
        await asyncio.sleep(0)
