"""Every error that Chainrule raises on purpose: each is a ChainruleError, a LimitError also a SpecError.

Each has `status` and the fields of the one JSON error shape: `code`, `message`, and where they apply `field` (the key
at fault) and `limit` (the allowed value). `web` turns them into responses; nothing else knows about HTTP.
"""

from __future__ import annotations

from typing import Any


class ChainruleError(Exception):
    """Base of all errors raised on purpose: `code`, `message`, optional `field` and `limit`."""

    code = "error"
    status = 500

    def __init_subclass__(cls, *, code: str = "", status: int = 0) -> None:
        cls.code, cls.status = code or cls.code, status or cls.status

    def __init__(self, message: str, *, field: str | None = None, limit: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.limit = limit

    def body(self) -> dict[str, Any]:
        """The one JSON error shape: `{"error": {"code", "message", "field"?, "limit"?}}`."""
        optional = {"field": self.field, "limit": self.limit}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"error": {"code": self.code, "message": self.message, **given}}


class SpecError(ChainruleError, code="invalid_spec", status=422):
    """A spec key is unknown, malformed or out of range; the message names key, value and what is allowed."""


class LimitError(SpecError, code="over_limit"):
    """A well-formed spec that asks for more than this server computes; `limit` is the maximum."""


class InputError(ChainruleError, code="invalid_input", status=422):
    """A bad input of a page of the chapter; the message names the input, its value and the allowed ones.

    For inputs that are well-formed but do not fit together, `limit` holds the figures of the page's explanation.
    """


class LessonError(ChainruleError, code="invalid_lesson"):
    """A lesson's file cannot be read; the message names the file, the line and the allowed form."""


class NotFoundError(ChainruleError, code="not_found", status=404):
    """A name that does not exist; `limit` lists the names that do, where they are few."""


class RequestError(ChainruleError):
    """A request that cannot be read (body, media type, range); its `status` and `code` say why."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "bad_request", field: str | None = None, limit: Any = None
    ) -> None:
        super().__init__(message, field=field, limit=limit)
        self.status = status
        self.code = code


class BusyError(ChainruleError, code="busy", status=503):
    """Every compute slot and queue place is taken; try again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: int = 1, limit: Any = None) -> None:
        super().__init__(message, limit=limit)
        self.retry_after = retry_after


class StoppedError(ChainruleError, code="stopped", status=503):
    """Work was stopped because nobody waits for it any more; `reason` is one of STOP_REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"stopped: {STOP_REASONS[reason]}")
        self.reason = reason


STOP_REASONS = {
    "disconnected": "the client has disconnected",
    "superseded": "a newer request of the same socket replaced this one",
    "shutdown": "the server is shutting down",
}
"""The reasons for stopping work, each with its message."""


class DeadlineError(ChainruleError, code="deadline_exceeded", status=504):
    """Work was stopped because it took longer than allowed; `limit` is in seconds."""


class MemoryLimitError(ChainruleError, code="out_of_memory", status=507):
    """The host or the device ran out of memory; the work's tensors have been released."""


class DumpError(ChainruleError, code="invalid_dump", status=422):
    """A graph dump that does not follow the published schema; the message says what is wrong and where."""


class RunError(ChainruleError, code="invalid_run", status=422):
    """A run's file that cannot be read or begun; the message names the file and says why."""


class WatchError(ChainruleError, code="watch_stopped"):
    """A training that `watch` has stopped; the message is the event's."""


class SweepError(ChainruleError, code="invalid_sweep", status=422):
    """A sweep that cannot be run, begun or continued; the message names the axis, the measure or the file."""


class CheckError(ChainruleError, code="invalid_check", status=422):
    """A function whose gradients cannot be checked; the message says why, and where in its file."""


class ExploreError(ChainruleError, code="invalid_model", status=422):
    """A user's model that cannot be run: its file, its factory or the result of that; the message says where."""


class TraceError(ChainruleError, code="trace_failed"):
    """A recording that cannot be made."""


class MissingExtraError(ChainruleError, code="missing_extra", status=501):
    """An optional dependency is not installed; the message says how to install it."""


class RenderError(ChainruleError, code="render_failed"):
    """A picture that cannot be drawn: the page's code failed, or took too long."""


def message_of(error: BaseException) -> str:
    """An error's message; empty if it has none or raises."""
    try:
        return plain_text(str(error.msg if isinstance(error, SyntaxError) else error))
    except Exception:
        return ""


def plain_text(text: str) -> str:
    """A text that JSON can hold: `?` for each lone surrogate, such as a byte of a file name that is not UTF-8."""
    return text.encode("utf-8", "replace").decode()


MAX_NAME = 10_000
"""Maximum length of a name in a trace."""


def plain_name(text: str) -> str:
    """A name that a dump can hold: `plain_text`, and of a long one its end, which differs from those around it."""
    if len(text) <= MAX_NAME:
        return text if text.isascii() else plain_text(text)
    return plain_text(f"…{text[1 - MAX_NAME :]}")


def in_words(error: BaseException) -> str:
    """An error's type and its message, in one line."""
    said = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
