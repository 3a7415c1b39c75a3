"""The server's log on standard error: a line for people, or a JSON object per line for machines.

Text from a client stays inside its field: it can neither begin a line nor add a key. Records never hold the token (see
`request_log`); if one did, it would be replaced here.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

from chainrule.settings import Settings
from chainrule.web import request_log
from chainrule.web.people import people_of
from chainrule.web.request_log import noted_spec, request_id, spec_hash

STRUCK_OUT = "[token]"

_PLAIN = re.compile(r"[A-Za-z0-9._:/@%+,~{}\[\]-]+")
"""Values written without quotes."""

_CONNECTIONS = re.compile(r"[/\\](protocols|websockets)[/\\]")
"""Paths of the modules, uvicorn's and the library's, that log single connections."""

# Python imports a codec at its first use, which fails once no file can be opened: just when an error is logged.
codecs.lookup("unicode_escape")

WINDOW_SECONDS = 60.0
MAX_REPEATED = 20
"""Warnings of one kind that are written within a window; the next window begins with the number of the others."""

_MAX_KINDS = 1000

_FALSE_ALARM = "ASGI callable returned without completing handshake."
"""Uvicorn logs this error for every handshake that the application refuses."""


def configure_logging(settings: Settings, stream: TextIO | None = None) -> logging.Handler:
    """Make every logger of this process, uvicorn's too, write in the format and from the level of the settings."""
    level = logging.getLevelName(settings.log_level.upper())
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.addFilter(keep)
    handler.addFilter(Repetition())
    handler.setFormatter(Formatter(settings))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Other libraries' messages below WARNING are not for this log.
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("chainrule").setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        # At DEBUG its connections would log headers and messages, byte by byte.
        logger.setLevel(max(level, logging.INFO))
    logging.captureWarnings(True)
    return handler


def keep(record: logging.LogRecord) -> bool:
    """Whether to write a record: not uvicorn's about single connections, and no exception twice."""
    ours = not record.name.startswith("uvicorn")
    if not ours and record.levelno < logging.WARNING and _CONNECTIONS.search(record.pathname):
        # They hold addresses with query strings, and `request_log` has its own record.
        return False
    if record.msg == _FALSE_ALARM:
        return False
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return True
    logged = getattr(error, "chainrule_logged", False)
    error.chainrule_logged = True  # type: ignore[attr-defined]
    return ours or not logged


class Repetition(logging.Filter):
    """Leaves out warnings and errors that repeat: a client must not be able to fill the disk with them.

    Two records are of one kind if one line of code writes both, whatever they say. The records of requests are no
    repetitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int], tuple[float, int]] = {}
        """Per place in the code: when its window began, and how many records came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record."""
        if record.levelno < logging.WARNING or record.name == request_log.__name__:
            return True
        kind = (record.pathname, record.lineno)
        began, count = self._kinds.get(kind, (record.created, 0))
        if record.created - began >= WINDOW_SECONDS or record.created < began:
            if count > MAX_REPEATED:
                record.msg, record.args = f"{record.getMessage()} ({count - MAX_REPEATED} more before it)", None
            began, count = record.created, 0
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = began, count + 1
        return count < MAX_REPEATED


class Formatter(logging.Formatter):
    """`level message key=value …` with an indented stack, or JSON."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._people = people_of(settings)
        self._write = _json if settings.log_format == "json" else _text

    def format(self, record: logging.LogRecord) -> str:
        """A record as text, without tokens."""
        spec = noted_spec()
        known: dict[str, object] = {"request_id": request_id(), "spec": "" if spec is None else spec_hash(spec)}
        fields = {key: value for key, value in known.items() if value} | getattr(record, "fields", {})
        exception = self.formatException(record.exc_info) if record.exc_info and record.exc_info[1] else ""
        stack = "\n".join(filter(None, [exception, record.stack_info]))
        text = self._write(record, fields, stack)
        for token in self._people.known:
            text = text.replace(token, STRUCK_OUT)
        return text


def _json(record: logging.LogRecord, fields: dict[str, object], stack: str) -> str:
    values = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": record.getMessage().strip(),
        **fields,
        **({"exception": stack} if stack else {}),
    }
    # ASCII: no reader of a log breaks a line inside, nor obeys a control character.
    return json.dumps(values, default=str, separators=(",", ":"))


def _text(record: logging.LogRecord, fields: dict[str, object], stack: str) -> str:
    parts = [record.levelname.lower(), visible(record.getMessage().strip())]
    for key, value in fields.items():
        text = str(value)
        parts.append(f"{key}={text if _PLAIN.fullmatch(text) else visible(json.dumps(text, ensure_ascii=False))}")
    return "\n".join([" ".join(parts), *(f"    {visible(line)}" for line in stack.split("\n") if line)])


def visible(text: str) -> str:
    """The text with every character escaped that could end a line, move a cursor or change the reading direction."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )
