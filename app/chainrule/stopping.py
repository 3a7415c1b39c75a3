"""How work is stopped from outside: it is asked to, and looks for itself where it can stop.

with stoppable(stop):            # in the thread that computes
    trace_spec(spec)             # check() between its ops and in its hooks raises what `stop` was asked with

A torch op cannot be interrupted, and a thread must not be killed with its hooks still in place; so whoever computes
calls `check` between two ops. A recording takes the stop of the thread that starts it, because autograd may run its
hooks in threads of its own.
"""

from __future__ import annotations

from contextvars import ContextVar

from chainrule.errors import ChainruleError


class Stop:
    """Whether a piece of work is to stop, and with which error. Asked from any thread, the first time counts."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: ChainruleError | None = None

    def ask(self, error: ChainruleError) -> None:
        """Have the work raise `error` at its next check."""
        if self.error is None:
            self.error = error

    def check(self) -> None:
        """Raise what was asked for, if anything was.

        Raises:
            ChainruleError: the work is to stop.
        """
        if self.error is not None:
            raise self.error


_NEVER = Stop()
_current: ContextVar[Stop] = ContextVar("stop", default=_NEVER)


def current_stop() -> Stop:
    """The stop of the work that this thread does; one that is never asked where there is none."""
    return _current.get()


def check() -> None:
    """Raise if the work that this thread does is to stop.

    Raises:
        ChainruleError: what the work was asked to stop with.
    """
    _current.get().check()


class stoppable:  # noqa: N801 (used as a statement)
    """What this thread does inside the block can be stopped by `stop`.

    Raises:
        ChainruleError: what the work was asked to stop with.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._token = _current.set(self._stop)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _current.reset(self._token)
        if error is self._stop.error and error is not None:
            # The stop keeps the error, and that would keep the frames of the work with all tensors in them.
            error.__traceback__ = None
