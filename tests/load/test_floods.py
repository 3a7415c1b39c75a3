"""Floods of what costs much to parse: `/healthz` is answered meanwhile, and the log stays short."""

import contextlib
import socket
import threading
import time

import pytest
from loads import Probe, percentile
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

SECONDS = 8

HEAD = b"POST /api/v1/trace HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\na\r\n"
EMPTY = b"\x81\x80\0\0\0\0"
"""A message without content, masked by zeros."""


def send_chunks(server, until):
    """A body in chunks of one byte, again and again."""
    while time.monotonic() < until:
        with socket.create_connection(("127.0.0.1", server.port)) as client, contextlib.suppress(OSError):
            client.sendall(HEAD)
            while time.monotonic() < until:
                client.sendall(CHUNK * 10_000)


def send_messages(server, until):
    """50,000 empty messages in one burst, on one socket after the other."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ConnectionClosed), connect(f"ws://{server.address}/api/v1/live") as websocket:
            websocket.socket.sendall(EMPTY * 50_000)
            while True:
                websocket.recv(timeout=SECONDS)


@pytest.mark.parametrize(
    ("name", "send", "clients", "settings"),
    [
        ("chunks of one byte", send_chunks, 4, {}),
        ("chunks of one byte without the token", send_chunks, 4, {"token": "a-token-of-some-length"}),
        ("empty messages", send_messages, 16, {}),
    ],
)
def test_health_is_answered_during_a_flood(serve, figure, name, send, clients, settings):
    with serve(**settings) as server:
        until = time.monotonic() + SECONDS
        floods = [threading.Thread(target=send, args=(server, until)) for _ in range(clients)]
        with Probe(server.port).running() as probe:
            for flood in floods:
                flood.start()
            for flood in floods:
                flood.join()
        assert probe.statuses == {200}
        figure(f"{name}: answers", len(probe.seconds), "", ">= 50")
        figure(f"{name}: p99", 1e3 * percentile(probe.seconds, 0.99), "ms", "< 100")
        figure(f"{name}: log", server.log.stat().st_size / 1e6, "MB", "< 1")
