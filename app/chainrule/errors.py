"""Everything Chainrule raises on purpose.

    ChainruleError
    ├── SpecError            a spec key is unknown, malformed or out of range          422 invalid_spec
    │   └── LimitError       well-formed, but more than this server computes           422 over_limit
    ├── InputError           what a page of the chapter was asked makes no sense       422 invalid_input
    ├── NotFoundError        a name (preset, tensor, page) that does not exist         404 not_found
    ├── RequestError         a request that cannot be read (body, media type, range)   4xx, code of its own
    ├── BusyError            no place in line, or no socket or request is left         503 busy
    ├── StoppedError         nobody waits any more for what was being computed         503 stopped
    ├── DeadlineError        it would have taken longer than is allowed                504 deadline_exceeded
    ├── MemoryLimitError     the host or the device ran out of memory                  507 out_of_memory
    ├── DumpError            a graph dump that does not follow the published schema    422 invalid_dump
    ├── CheckError           a function whose gradients cannot be checked              422 invalid_check
    ├── ExploreError         a model of one's own that cannot be run                   422 invalid_model
    ├── TraceError           a recording that cannot be made                           500 trace_failed
    ├── MissingExtraError    needs an optional dependency that is not installed        501 missing_extra
    └── RenderError          a picture that cannot be drawn                            500 render_failed

Each carries what the one JSON error shape shows: `code`, `message`, and where they apply `field` (the key at fault)
and `limit` (what is allowed). `web` turns them into answers; nothing else knows about HTTP status codes.
"""

from __future__ import annotations

from typing import Any


class ChainruleError(Exception):
    """Base of all errors raised on purpose: `code`, `message`, optional `field` and `limit`."""

    code = "error"
    status = 500

    def __init__(self, message: str, *, field: str | None = None, limit: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.limit = limit

    def body(self) -> dict[str, Any]:
        """The one JSON error shape: `{"error": {"code", "message", "field"?, "limit"?}}`."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.field is not None:
            error["field"] = self.field
        if self.limit is not None:
            error["limit"] = self.limit
        return {"error": error}


class SpecError(ChainruleError):
    """A spec key is unknown, malformed or out of range; the message names key, value and what is allowed."""

    code = "invalid_spec"
    status = 422


class LimitError(SpecError):
    """A well-formed spec that asks for more than this server computes; `limit` is the most it allows."""

    code = "over_limit"


class InputError(ChainruleError):
    """What a page of the chapter was asked makes no sense; the message names the input, its value and what is allowed.

    Where the inputs are well-formed but do not go together, `limit` holds what the page explains that with.
    """

    code = "invalid_input"
    status = 422


class NotFoundError(ChainruleError):
    """A name that does not exist; `limit` lists the names that do, where they are few."""

    code = "not_found"
    status = 404


class RequestError(ChainruleError):
    """A request that cannot be read; `status` and `code` say in which way."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "bad_request", field: str | None = None, limit: Any = None
    ) -> None:
        super().__init__(message, field=field, limit=limit)
        self.status = status
        self.code = code


class BusyError(ChainruleError):
    """Every compute slot and queue place is taken; try again after `retry_after` seconds."""

    code = "busy"
    status = 503

    def __init__(self, message: str, *, retry_after: int = 1, limit: Any = None) -> None:
        super().__init__(message, limit=limit)
        self.retry_after = retry_after


class StoppedError(ChainruleError):
    """Work was given up on because nobody waits for it any more; `reason` is one of STOP_REASONS."""

    code = "stopped"
    status = 503

    def __init__(self, reason: str) -> None:
        super().__init__(f"given up: {STOP_REASONS[reason]}")
        self.reason = reason


STOP_REASONS = {
    "disconnected": "the client has gone",
    "superseded": "a newer request of the same socket took its place",
    "shutdown": "the server is shutting down",
}
"""Why work is given up on, each with what a person is told."""


class DeadlineError(ChainruleError):
    """Computing was stopped because it took longer than is allowed; `limit` is in seconds."""

    code = "deadline_exceeded"
    status = 504


class MemoryLimitError(ChainruleError):
    """The host or the device ran out of memory; what was being computed has been let go of."""

    code = "out_of_memory"
    status = 507


class DumpError(ChainruleError):
    """A graph dump that does not follow the published schema; the message says what is wrong and where."""

    code = "invalid_dump"
    status = 422


class CheckError(ChainruleError):
    """A function whose gradients cannot be checked; the message says why, and where in its file."""

    code = "invalid_check"
    status = 422


class ExploreError(ChainruleError):
    """A model of one's own that cannot be run: its file, its factory or what that returned; the message says where."""

    code = "invalid_model"
    status = 422


class TraceError(ChainruleError):
    """A recording that cannot be made."""

    code = "trace_failed"


class MissingExtraError(ChainruleError):
    """What was asked for needs an optional dependency that is not installed; the message says how to install it."""

    code = "missing_extra"
    status = 501


class RenderError(ChainruleError):
    """A picture that cannot be drawn: the page's code failed, or took too long."""

    code = "render_failed"


def message_of(error: BaseException) -> str:
    """What an error says; nothing of one that cannot."""
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:
        return ""


def in_words(error: BaseException) -> str:
    """An error's type and its message, in one line."""
    said = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
