"""The cookie of a browser that came with the token: a random session that the token signs, not the token itself.

Nothing is stored: replicas with one token accept each other's sessions, and with the token its sessions end. A browser
sends a cookie to all servers of a host, so another program on this machine may see a session, but never the token.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Mapping

SECONDS = 30 * 86_400
"""How long a session admits."""

MAX_OTHERS = 8
"""Sessions of other servers on this host that a browser keeps: more would fill the headers of each request."""

NAME = re.compile(r"chainrule(_[0-9]{1,5})?")
PORT = re.compile(r":([0-9]+)$")


def cookie_name(host: str) -> str:
    """The name of the cookie of a Host header. Cookies belong to a host, not to a port, so the name has the port."""
    port = PORT.search(host)
    return f"chainrule_{port[1]}" if port else "chainrule"


def new_session(token: str) -> str:
    """A session: when it ends, a random text, and their signature."""
    said = f"{int(time.time()) + SECONDS:x}.{secrets.token_urlsafe(16)}"
    return f"{said}.{_signature(said, token)}"


def is_session(text: str, token: str) -> bool:
    """Whether the token signed the session, and it has not ended."""
    said, _, signature = text.rpartition(".")
    return (
        hmac.compare_digest(signature.encode("utf-8", "surrogateescape"), _signature(said, token).encode())
        and _end_of(said) > time.time()
    )


def surplus(cookies: Mapping[str, str], own: str) -> list[str]:
    """The sessions of other servers to delete: all but those that end last."""
    others = [name for name in cookies if NAME.fullmatch(name) and name != own]
    return sorted(others, key=lambda name: _end_of(cookies[name]))[:-MAX_OTHERS]


def _end_of(session: str) -> int:
    end = session.partition(".")[0]
    return int(end, 16) if re.fullmatch("[0-9a-f]{1,16}", end) else 0


def _signature(said: str, token: str) -> str:
    return hmac.digest(token.encode(), f"session {said}".encode("utf-8", "surrogateescape"), "sha256").hex()
