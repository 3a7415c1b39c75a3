"""Tokens of persons, from a file that changes while the server runs."""

import logging
from contextlib import suppress

import pytest
from served import wait_for
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from chainrule.__main__ import _server_settings
from chainrule.settings import Settings, read_settings
from chainrule.web.guard import Guard
from chainrule.web.logs import Formatter
from chainrule.web.main import create_app
from chainrule.web.metrics import Metrics

ANNA, BEN = "token-of-anna", "token-of-ben"


@pytest.fixture
def people(tmp_path):
    """Writes the file of the people; its path."""
    path = tmp_path / "people"

    def write(text):
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(path)
        return str(path)

    write(f"# A class.\nanna {ANNA}\n\n  ben\t{BEN}\n")
    write.path = str(path)
    return write


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_everybody_comes_in_with_their_own_token(open_client, people):
    app = create_app(Settings(tokens_file=people.path, token="token-of-the-teacher"))
    for token in (ANNA, BEN, "token-of-the-teacher"):
        client = open_client(app)
        assert client.get("/", headers=bearer(token)).status_code == 200
        assert client.get("/").status_code == 401
        assert client.get(f"/?token={token}").status_code == 303
        assert client.get("/").status_code == 200, "the session of the link"
    assert open_client(app).get("/", headers=bearer("token-of-nobody")).status_code == 401


def test_whose_line_is_removed_is_refused_at_once(open_client, people):
    app = create_app(Settings(tokens_file=people.path))
    anna, ben = open_client(app), open_client(app)
    for client, token in ((anna, ANNA), (ben, BEN)):
        client.get(f"/?token={token}")
        assert client.get("/").status_code == 200
    people(f"ben {BEN}\ncleo token-of-cleo\n")
    assert [client.get("/").status_code for client in (anna, ben)] == [401, 200]
    assert anna.get(f"/?token={ANNA}").status_code == 401
    assert anna.get("/", headers=bearer("token-of-cleo")).status_code == 200
    people("")
    assert ben.get("/").status_code == 401


def ask_until_it_ends(socket):
    for number in range(1, 1000):
        socket.send(f'{{"seq": {number}, "spec": {{"widths": "9,5,1"}}}}')
        socket.recv(timeout=60)


def test_an_open_socket_ends_with_its_owners_line(serve, people):
    address = serve(create_app(Settings(tokens_file=people.path)))
    with connect(f"ws://{address}/api/v1/live", additional_headers=bearer(ANNA)) as socket:
        socket.send('{"seq": 0, "spec": {"widths": "9,5,1"}}')
        socket.recv(timeout=60)
        people(f"ben {BEN}\n")
        with pytest.raises(ConnectionClosed) as ended:
            ask_until_it_ends(socket)
        assert ended.value.rcvd.code == 1008
    with pytest.raises(InvalidStatus):
        connect(f"ws://{address}/api/v1/live", additional_headers=bearer(ANNA))


def test_after_a_mistake_the_last_correct_file_counts(open_client, people, caplog):
    app = create_app(Settings(tokens_file=people.path))
    client = open_client(app)
    assert client.get("/", headers=bearer(ANNA)).status_code == 200
    for mistake in (f"anna {ANNA}\nben short\n", f"anna {ANNA} more\n", f"anna {ANNA}\nben {ANNA}\n"):
        people(mistake)
        with caplog.at_level(logging.ERROR):
            assert [client.get("/", headers=bearer(token)).status_code for token in (ANNA, BEN)] == [200, 200]
        (record,) = [each for each in caplog.records if "CHAINRULE_TOKENS_FILE" in each.getMessage()]
        assert ANNA not in record.getMessage()
        caplog.clear()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("anna\n", "line 1 is not a name and a token"),
        ("anna short\n", "line 1 is not a name and a token"),
        (f"a\nben {BEN}\n", "line 1 is not"),
        (f"ben {BEN}\nben {ANNA}\n", "line 2 has a name or a token of an earlier line"),
        (f"an/na {ANNA}\n", "line 1 is not"),
    ],
)
def test_a_server_does_not_start_with_a_wrong_file(people, text, says):
    people(text)
    with pytest.raises(ValueError, match="CHAINRULE_TOKENS_FILE") as caught:
        read_settings(tokens_file=people.path)
    assert says in str(caught.value)
    assert BEN not in str(caught.value)
    with pytest.raises(ValueError, match="the file cannot be read"):
        read_settings(tokens_file=people.path + ".missing")


def test_the_log_names_persons_and_no_tokens(serve, people, caplog):
    with caplog.at_level(logging.INFO, "chainrule"):
        address = serve(create_app(Settings(tokens_file=people.path)))
        with connect(f"ws://{address}/api/v1/live", additional_headers=bearer(BEN)):
            pass
        wait_for(lambda: any(each.getMessage() == "socket closed" for each in caplog.records), 60, "the log")
    fields = [each.fields for each in caplog.records if hasattr(each, "fields")]
    assert {each.get("person") for each in fields} == {"ben"}


def test_the_log_strikes_out_every_token_that_was_ever_known(people):
    settings = Settings(tokens_file=people.path)
    formatter = Formatter(settings)
    people(f"ben {BEN}-and-more\n")
    for token in (ANNA, BEN, f"{BEN}-and-more"):
        record = logging.LogRecord("chainrule", logging.ERROR, "", 0, f"a link with {token}", None, None)
        assert formatter.format(record) == "error a link with [token]"


def test_news_do_not_reach_who_is_no_longer_admitted(serve, people):
    async def news(websocket):
        await websocket.accept()
        await websocket.send_text("first")
        people("")
        await websocket.send_text("second")
        with suppress(WebSocketDisconnect):
            await websocket.receive_text()

    settings = Settings(tokens_file=people.path)
    guard = Middleware(Guard, settings=settings, metrics=Metrics())
    address = serve(Starlette(routes=[WebSocketRoute("/news", news)], middleware=[guard]))
    with connect(f"ws://{address}/news", additional_headers=bearer(ANNA)) as socket:
        assert socket.recv(timeout=60) == "first"
        with pytest.raises(ConnectionClosed) as ended:
            socket.recv(timeout=60)
    assert ended.value.rcvd.code == 1008


def test_a_message_of_who_is_no_longer_admitted_is_not_read(serve, people):
    read = []

    async def listens(websocket):
        await websocket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                read.append(await websocket.receive_text())
                people("")

    guard = Middleware(Guard, settings=Settings(tokens_file=people.path), metrics=Metrics())
    address = serve(Starlette(routes=[WebSocketRoute("/listens", listens)], middleware=[guard]))
    with connect(f"ws://{address}/listens", additional_headers=bearer(ANNA)) as socket:
        socket.send("first")
        wait_for(lambda: read, 60, "the first message")
        socket.send("second")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
    assert read == ["first"]


def test_a_private_server_is_for_its_own_link_alone(people, monkeypatch):
    monkeypatch.setenv("CHAINRULE_TOKENS_FILE", people.path)
    settings = _server_settings(None, None, None, is_private=True)
    assert settings.token is not None
    assert settings.tokens_file == ""
    assert _server_settings("0.0.0.0", None, None).token is None, "of a class everybody has a token of their own"
