"""The answers of a server that is not ready: a page that waits for it, and 503 to every other request.

Importing PyTorch takes seconds. This module needs only the standard library.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from base64 import b64encode
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import Template
from typing import Any

from chainrule.errors import BusyError
from chainrule.page import assets

REQUEST_SECONDS = 5
"""Longest wait for a client's request."""


class StartingServer(ThreadingHTTPServer):
    """Answers on a listening socket from its creation until `end`; `task` names the work that the start waits for."""

    def __init__(self, listener: socket.socket, task: str) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        page = Template((assets.templates() / "starting.html").read_text("utf-8")).substitute(task=escape(task))
        self.page = page.encode(errors="replace")
        self.error = json.dumps(BusyError(f"the server starts: {task}").body()).encode()
        self.policy = "default-src 'none'; connect-src 'self'; frame-ancestors 'self'" + "".join(
            f"; {kind.decode()}-src 'sha256-{b64encode(sha256(text).digest()).decode()}'"
            for kind, text in re.findall(rb"<(script|style)>(.*?)</\1>", self.page, re.DOTALL)
        )
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="chainrule-start", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Accept no more connections. Those that wait in the socket stay there."""
        self.shutdown()
        self._thread.join()

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: StartingServer
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        """Answer any request, even one that cannot be read."""
        is_page = "text/html" in getattr(self, "headers", {}).get("accept", "")
        body = self.server.page if is_page else self.server.error
        self.send_response_only(503)
        for name, value in {
            "content-type": "text/html; charset=utf-8" if is_page else "application/json",
            "content-length": str(len(body)),
            "content-security-policy": self.server.policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
            "retry-after": "1",
            "connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, *_: Any, **__: Any) -> None:
        """Answer a request with a method that `http.server` does not know, or one that it cannot read."""
        self.close_connection, self.request_version = True, "HTTP/1.0"
        self.do_GET()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815 (names of http.server)

    def log_message(self, *_: Any) -> None:
        """Write no log."""
