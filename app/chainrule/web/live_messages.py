"""Messages of the live socket: wishes read, topologies and errors written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import orjson

from chainrule.dump.wire import dump_topology
from chainrule.errors import ChainruleError, RequestError, SpecError
from chainrule.spec import ModelSpec
from chainrule.trace.graph import Trace
from chainrule.user_model.what_if import WhatIf

MAX_SEQ = 2**32 - 1
"""Frames hold the number in 32 bits."""

PING = '{"type":"ping"}'
"""Sent by a client that waited long (`static/core/live.js`), to tell a long line from a dead socket."""

PONG = '{"type":"pong"}'
"""The answer, sent at once."""

SpecT = TypeVar("SpecT", bound=ModelSpec | WhatIf)


class Wish(Generic[SpecT]):
    """One message of a client. Its spec is read at first use: most of many messages are never used."""

    def __init__(
        self, seq: int, values: Mapping[str, object], read_spec: Callable[[Mapping[str, object]], SpecT]
    ) -> None:
        self.seq = seq
        self._values = values
        self._read_spec = read_spec

    @cached_property
    def spec(self) -> SpecT | SpecError:
        """The spec, or its error."""
        try:
            return self._read_spec(self._values)
        except SpecError as error:
            return error


def read_wish(text: str | None, last_seq: int, read_spec: Callable[[Mapping[str, object]], SpecT]) -> Wish[SpecT]:
    """Read a message (None if it is binary). A bad spec is a wish too: its error is sent in its turn, with its number.

    Raises:
        RequestError: this is not `{"seq": n, "spec": {…}}` with a number larger than the last.
    """
    if text is None:
        raise _bad_message("a message must be JSON text")
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _bad_message(f"this is not JSON: {error}") from None
    if not isinstance(message, dict) or message.keys() != {"seq", "spec"}:
        raise _bad_message('a message must be {"seq": number, "spec": {…}} without other keys')
    seq, spec = message["seq"], message["spec"]
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_SEQ:
        raise _bad_message(f"seq must be an integer from 0 to {MAX_SEQ}", field="seq")
    if seq <= last_seq:
        raise _bad_message(f"seq: {seq} is not larger than {last_seq}, the seq of the previous message", "seq")
    if not isinstance(spec, dict):
        raise _bad_message("spec must be an object", field="spec")
    return Wish(seq, spec, read_spec)


@dataclass(frozen=True, slots=True)
class Shown:
    """Which graph a client has: its number, its recording (see `Retracer.recording`) and its digest."""

    number: int = 0
    recording: object = None
    digest: bytes = b""


def show(trace: Trace, recording: object, shown: Shown) -> tuple[Shown, str | None]:
    """The graph that a client has after `trace` is shown, and the topology message to send first, if any.

    `recording` is the tracer's, or None; `shown` is the graph that the client had before.
    """
    if recording is not None and recording is shown.recording:
        return shown, None
    topology = dump_topology(trace)
    digest = hashlib.blake2b(orjson.dumps({**topology, "op_us": None})).digest()
    if digest == shown.digest:
        return replace(shown, recording=recording), None
    message = {"type": "topology", "topology": shown.number + 1, "trace": topology}
    return Shown(shown.number + 1, recording, digest), orjson.dumps(message).decode()


def error_message(seq: int | None, error: ChainruleError) -> str:
    """An error message; `seq` is null if no message could be read."""
    return orjson.dumps({"type": "error", "seq": seq, **error.body()}).decode()


def _bad_message(message: str, field: str | None = None) -> RequestError:
    return RequestError(message, code="bad_message", field=field)
