"""Clients of the live socket: frames read as the page reads them."""

from __future__ import annotations

import json
import struct

import numpy as np

HEADER = struct.Struct("<4sIIIIIddII")
FLOATS = ("mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation")
COUNTS = ("n", "nan", "posinf", "neginf")


class Frame:
    def __init__(self, message):
        fields = HEADER.unpack_from(message)
        magic, self.seq, self.topology, self.rows, bins, floats, self.loss, self.compute_ms, self.flags, counts = fields
        assert (magic, bins, counts) == (b"CRF1", 64, len(COUNTS))
        at = HEADER.size
        self.columns = {}
        names = [*FLOATS, *range(floats - len(FLOATS))]
        for name, kind, size in (*((name, "<f8", 8) for name in names), *((name, "<u4", 4) for name in COUNTS)):
            self.columns[name] = np.frombuffer(message, kind, self.rows, at)
            at += size * self.rows
        self.histogram = np.frombuffer(message, "<u4", self.rows * bins, at).reshape(self.rows, bins)
        assert at + 4 * self.rows * bins == len(message)

    def values(self, row):
        """The values of a small tensor."""
        return [self.columns[place][row] for place in range(self.columns["n"][row])]


class Socket:
    """A client that keeps topologies and reload messages."""

    def __init__(self, websocket):
        self.websocket = websocket
        self.topologies = []
        self.news = []

    @property
    def topology(self):
        return self.topologies[-1]

    def ask(self, seq, **spec):
        self.websocket.send(json.dumps({"seq": seq, "spec": spec}))

    def any(self):
        return self.next("frame", "theory", "error")

    def next(self, *kinds):
        """The next message of these kinds: frame, error, theory, model, pong; a frame or an error by default."""
        while True:
            message = self.websocket.recv(timeout=20)
            if isinstance(message, bytes):
                kind, message = "frame", Frame(message)
            else:
                message = json.loads(message)
                kind = message["type"]
            if kind == "topology":
                self.topologies.append(message)
            elif kind == "model":
                self.news.append(message)
            if kind in (kinds or ("frame", "error")):
                return message

    def until_theory_of(self, seq):
        """Messages up to the theory of that frame, as `("frame", seq)`."""
        seen = []
        while not seen or seen[-1] != ("theory", seq):
            message = self.any()
            seen.append(("frame", message.seq) if isinstance(message, Frame) else (message["type"], message["seq"]))
        return seen

    def row(self, name):
        ids = {tensor["name"]: tensor["id"] for tensor in reversed(self.topology["trace"]["tensors"])}
        return self.topology["trace"]["statistics"]["tensor"].index(ids[name])
