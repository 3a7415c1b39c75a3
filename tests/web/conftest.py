"""Clients of an app: in process for requests, over a socket for connections."""

import asyncio
import contextlib
import socket
import threading

import httpx
import pytest
from served import wait_for

from chainrule.settings import Settings
from chainrule.web.main import Server, ServerConfig, create_app


class Client:
    """Requests to an ASGI app in process, one event loop for its whole life."""

    def __init__(self, app, **options):
        self.runner = asyncio.Runner()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, **{"base_url": "http://127.0.0.1:8000", **options})

    def request(self, method, path, **options):
        return self.runner.run(self.client.request(method, path, **options))

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def close(self):
        self.runner.run(self.client.aclose())
        self.runner.close()


@pytest.fixture
def open_client():
    """Make a client of an app; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(app, **options):
            client = Client(app, **options)
            stack.callback(client.close)
            return client

        yield make


@pytest.fixture
def client(open_client, settings):
    return open_client(create_app(settings))


@pytest.fixture(scope="module")
def shared_client(settings):
    """A client of one app for all tests of a file; nothing reaches its deadline."""
    with contextlib.closing(Client(create_app(settings.model_copy(update={"deadline_seconds": 3600})))) as client:
        yield client


@pytest.fixture(scope="session")
def settings():
    """Default settings without the environment."""
    return Settings(**{name: field.default for name, field in Settings.model_fields.items()})


@pytest.fixture
def serve(settings):
    """A function that serves an app on a free port as `chainrule serve` does, and returns `host:port`.

    `serve.server` is the last server and `serve.stop` ends it; all servers end with the test.
    """
    with contextlib.ExitStack() as stack:

        def start(app, **changes):
            listener = socket.create_server(("127.0.0.1", 0))
            server = Server(ServerConfig(app, settings.model_copy(update={"shutdown_seconds": 1, **changes})))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()

            def stop():
                server.should_exit = True
                thread.join(10)
                assert not thread.is_alive()

            start.server, start.stop = server, stop
            stack.callback(stop)
            wait_for(lambda: server.started, what="the server to start")
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start
