"""The JavaScript engine of `svg.py`, in a process of its own: V8 ends its process where memory runs out.

It reads requests from standard input and answers to standard output, each a length of 8 bytes and then so many bytes:
first the script that defines `chainrule`, then expressions, whose values are answered as JSON. An answer begins with a
letter: v for a value, e for a JavaScript error, m for too much memory. An empty request frees unused memory, and has
no answer. Run as a file, so that it imports nothing of Chainrule's.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py_mini_racer import MiniRacer

IS_MISSING = 3
"""The exit status where the package of the engine is not installed."""

NO_KEYS = "--no-memory-protection-keys"
"""V8 locks its memory with the processor's keys, and a thread that is older than V8 has none: it would crash."""


def make_engine() -> MiniRacer:
    """A JavaScript engine. Raises ImportError: its package is not installed."""
    import py_mini_racer

    with contextlib.suppress(py_mini_racer.LibAlreadyInitializedError):
        py_mini_racer.init_mini_racer(flags=(*py_mini_racer.DEFAULT_V8_FLAGS, NO_KEYS))
    return py_mini_racer.MiniRacer()


def main(max_memory: int) -> None:
    """Answer until standard input ends."""
    try:
        context = make_engine()
    except ImportError:
        sys.exit(IS_MISSING)
    from py_mini_racer import JSEvalException, JSOOMException

    context.set_hard_memory_limit(max_memory)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(8):
        code = source.read(int.from_bytes(head, "little")).decode()
        if not code:
            context.low_memory_notification()
            continue
        try:
            answer = f"v{context.eval(code)}"
        except JSOOMException:
            answer = "m"
        except JSEvalException as error:
            answer = f"e{error}"
        written = answer.encode()
        sink.write(len(written).to_bytes(8, "little") + written)
        sink.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
