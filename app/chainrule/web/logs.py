"""What the server writes to standard error: a line for people or a JSON object a line for machines.

Whatever a client sent stays inside its field: it can neither begin a line nor add a key. The token is no part of any
record (see `request_log`); should one slip in all the same, it is struck out here, last of all.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson

from chainrule.settings import Settings
from chainrule.web.request_log import noted_spec, request_id, spec_hash

STRUCK_OUT = "[token]"

_PLAIN = re.compile(r"[A-Za-z0-9._:/@%+,~{}\[\]-]+")
"""Values that are written as they are; any other stands in quotes."""

_CONNECTIONS = re.compile(r"[/\\](protocols|websockets)[/\\]")
"""Where uvicorn's records about single connections come from: its own modules and the library's."""

# Imported when it is first used, which fails where no file can be opened: just when there is something to say.
codecs.lookup("unicode_escape")

_FALSE_ALARM = "ASGI callable returned without completing handshake."
"""Uvicorn says so, as an error, of each handshake that is answered with a refusal."""

_LINE_ENDS = {number: f"\\u{number:04x}" for number in (0x7F, *range(0x80, 0xA0), 0x2028, 0x2029)}
"""What orjson leaves as it is but some reader of a log would break a line at, or obey."""


def configure_logging(settings: Settings, stream: TextIO | None = None) -> logging.Handler:
    """Have every logger of this process, uvicorn's too, write in the format and from the level of the settings.

    Args:
        settings: log_format and log_level; the token is what never appears.
        stream: standard error unless given.
    """
    level = logging.getLevelName(settings.log_level.upper())
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.addFilter(keep)
    token = settings.token.get_secret_value() if settings.token else None
    handler.setFormatter(JsonFormatter(token) if settings.log_format == "json" else TextFormatter(token))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What others say below a warning is theirs to know.
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("chainrule").setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        # At level debug its connections would write down headers and messages, byte by byte.
        logger.setLevel(max(level, logging.INFO))
    logging.captureWarnings(True)
    return handler


def keep(record: logging.LogRecord) -> bool:
    """Whether a record is written: none of uvicorn's about single connections, and no exception a second time."""
    ours = not record.name.startswith("uvicorn")
    if not ours and record.levelno < logging.WARNING and _CONNECTIONS.search(record.pathname):
        # They quote addresses with their query strings, and `request_log` has said it.
        return False
    if record.msg == _FALSE_ALARM:
        return False
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return True
    logged = getattr(error, "chainrule_logged", False)
    error.chainrule_logged = True  # type: ignore[attr-defined]
    return ours or not logged


class _Formatter(logging.Formatter):
    """What both formats share."""

    def __init__(self, token: str | None) -> None:
        super().__init__()
        self.token = token

    def format(self, record: logging.LogRecord) -> str:
        """A record as text, in which the token does not occur."""
        text = self.compose(record)
        return text if self.token is None else text.replace(self.token, STRUCK_OUT)

    def compose(self, record: logging.LogRecord) -> str:
        """A record as text."""
        raise NotImplementedError

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        """The keys and values of a record: whose request it belongs to, the spec, and its own."""
        spec = noted_spec()
        shared = {"request_id": request_id(), "spec": "" if spec is None else spec_hash(spec)}
        return {**{key: value for key, value in shared.items() if value}, **getattr(record, "fields", {})}

    def stack(self, record: logging.LogRecord) -> str:
        """The exception of a record with its stack; empty where there is none."""
        parts = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[1] else []
        return "\n".join([*parts, *([record.stack_info] if record.stack_info else [])])


class TextFormatter(_Formatter):
    """`level message key=value …` in one line; a stack follows, indented."""

    def compose(self, record: logging.LogRecord) -> str:
        """A record for people."""
        parts = [record.levelname.lower(), visible(record.getMessage().strip())]
        parts += [f"{key}={_quoted(value)}" for key, value in self.fields(record).items()]
        # split: a "line" that only some reader would see as one must not begin without its indent either.
        stack = (f"    {visible(line)}" for line in self.stack(record).split("\n") if line)
        return "\n".join([" ".join(parts), *stack])


class JsonFormatter(_Formatter):
    """One object a line."""

    def compose(self, record: logging.LogRecord) -> str:
        """A record for machines."""
        values: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().strip(),
            **self.fields(record),
        }
        stack = self.stack(record)
        if stack:
            values["exception"] = stack
        values = {key: _encodable(value) for key, value in values.items()}
        return orjson.dumps(values, default=str).decode().translate(_LINE_ENDS)


def visible(text: str) -> str:
    """A text in which nothing ends a line, moves a cursor or turns the direction of reading."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else visible(json.dumps(text, ensure_ascii=False))


def _encodable(value: object) -> object:
    """A value that orjson takes: text of a path may hold halves of characters, and integers may be long."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value if value is None or isinstance(value, bool | float) else _integer_or_text(value)


def _integer_or_text(value: object) -> object:
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    return _encodable(str(value))
