"""Stopping work from outside: `stop.ask(error)` requests it, and the work raises the error at its next `check`.

with stoppable(stop):            # in the thread that computes
    trace_spec(spec)             # calls check() between its ops and in its hooks

A torch op cannot be interrupted, and a killed thread would leave its hooks in place, so work calls `check` between two
ops. A recording takes the stop of the thread that starts it, because autograd may run its hooks in other threads.
"""

from __future__ import annotations

from contextvars import ContextVar

from chainrule.errors import ChainruleError


class Stop:
    """The error that a piece of work is to stop with, if any. Any thread may ask; the first error counts."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: ChainruleError | None = None

    def ask(self, error: ChainruleError) -> None:
        """Have the work raise `error` at its next check."""
        if self.error is None:
            self.error = error

    def check(self) -> None:
        """Raise the error that was asked for, if any.

        Raises:
            ChainruleError: the work is to stop.
        """
        if self.error is not None:
            raise self.error


_NEVER = Stop()
_current: ContextVar[Stop] = ContextVar("stop", default=_NEVER)


def current_stop() -> Stop:
    """The stop of this thread's work; outside of `stoppable` a stop that is never asked."""
    return _current.get()


def check() -> None:
    """Raise the error that this thread's work was asked to stop with, if any.

    Raises:
        ChainruleError: the work is to stop.
    """
    _current.get().check()


class stoppable:  # noqa: N801 (used as a statement)
    """Inside the block this thread's work can be stopped by `stop`."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._token = _current.set(self._stop)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _current.reset(self._token)
        if error is self._stop.error and error is not None:
            # The stop keeps the error, whose traceback would keep all tensors of the work.
            error.__traceback__ = None
