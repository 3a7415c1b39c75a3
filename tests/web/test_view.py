"""`chainrule.explore(model, *inputs)`: one view at a time, behind a token; the model is unchanged."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
import torch
from served import wait_for
from torch import nn

from chainrule.dump.wire import load
from chainrule.errors import ExploreError, RequestError
from chainrule.settings import OWN_HOST
from chainrule.web import serve
from chainrule.web import view as view_module
from chainrule.web.serve import on_own_host
from chainrule.web.view import View, explore


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
        self.head = nn.Linear(5, 1)

    def forward(self, x, *, shift=0.0):
        return self.head(self.body(x)) + shift


def square(output):
    return output.pow(2).mean()


@pytest.fixture
def net():
    torch.manual_seed(1)
    return Net()


@pytest.fixture
def x():
    return torch.arange(48.0).reshape(8, 6) / 48


@pytest.fixture(autouse=True)
def no_view_left():
    yield
    if view_module._current is not None:
        view_module._current.close()
    view_module._current = None
    assert not [thread for thread in threading.enumerate() if thread.name == "chainrule"]


@pytest.fixture
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr("webbrowser.open", lambda address: addresses.append(address))
    return addresses


LINK = "http://127.0.0.1:8000/?token=abc"


def test_a_browser_gets_a_host_name_of_its_own(monkeypatch):
    def resolve(name, port):
        assert name == OWN_HOST
        return [(None, None, None, "", (address, port)) for address in ("::1", "127.0.0.1")]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    assert re.fullmatch(r"chainrule-[0-9a-f]{8}\.localhost", OWN_HOST)
    assert on_own_host(LINK) == f"http://{OWN_HOST}:8000/?token=abc"
    assert on_own_host("http://192.168.1.4:8000/") == "http://192.168.1.4:8000/"


@pytest.mark.parametrize("addresses", [(), ("127.0.0.1", "192.0.2.1"), ("::1",)])
def test_a_browser_gets_the_address_where_its_name_means_another_one(monkeypatch, addresses):
    """No such name; a provider's server for unknown names; an address at which the server does not listen."""

    def resolve(_name, port):
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(None, None, None, "", (address, port)) for address in addresses]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    assert on_own_host(LINK) == LINK


def test_a_browser_does_not_wait_for_a_resolver_that_does_not_answer(monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: answers.wait() and [])
    monkeypatch.setattr(serve, "LOOKUP_SECONDS", 0.01)
    assert on_own_host(LINK) == LINK
    answers.set()


def get(view, path, **options):
    """Ask the view's server without following redirects."""
    base = view.url.partition("/?")[0]
    return httpx.get(f"{base}{path}", **options)


def bearer(view):
    (token,) = parse_qs(urlsplit(view.url).query)["token"]
    return {"headers": {"authorization": f"Bearer {token}"}}


@pytest.mark.smoke
def test_a_view_needs_the_token_of_its_link(net, x):
    with explore(net, x, loss=square, browser=False) as view:
        with httpx.Client(follow_redirects=True) as browser:
            page = browser.get(view.url)
            assert page.status_code == 200
            assert '"name": "Net"' in page.text
            assert "token" not in str(page.url)
            dump = browser.get(str(page.url.join("/api/v1/model/trace.json")))
        sent = load(dump.content)
        assert sent.loss == view.trace.loss
        np.testing.assert_array_equal(sent.statistics.moments, view.trace.statistics.moments)
        assert get(view, "/api/v1/model/trace.json").status_code == 401
        assert get(view, "/api/v1/model/trace.json", **bearer(view)).status_code == 200


def test_the_trace_is_of_the_given_inputs(net, x):
    net.eval()
    kwargs = {"shift": 3.0}
    view = explore(net, x, kwargs=kwargs, loss=square, browser=False)
    assert view.trace.loss == pytest.approx(float(square(net(x, **kwargs)).detach()), rel=1e-6)
    assert {"body", "body.0", "head"} <= {module.path for module in view.trace.modules}
    assert view.trace.error is None
    assert isinstance(view, View)
    assert repr(view) == f"<View of Net at {view.url}>"


def test_the_same_seed_gives_the_same_pass_and_later_changes_do_not_show(net, x):
    views = [explore(net, x, loss=square, seed=seed, browser=False) for seed in (7, 8, 7)]
    assert views[0].trace.loss == views[2].trace.loss != views[1].trace.loss, "dropout draws"
    with torch.no_grad():
        net.head.weight.fill_(100.0)
    for query in ("", "?scale=2", "?scale=1"):
        dump = get(views[2], f"/api/v1/model/trace.json{query}", **bearer(views[2])).json()
    assert dump["loss"] == views[2].trace.loss


def test_a_second_view_replaces_the_first(net, x):
    first = explore(net, x, loss=square, browser=False)
    second = explore(net, 2 * x, loss=square, browser=False)
    with pytest.raises(httpx.ConnectError):
        get(first, "/healthz")
    assert get(second, "/healthz").status_code == 200
    assert first.trace.loss != second.trace.loss, "the first trace stays"
    tokens = {urlsplit(view.url).query for view in (first, second)}
    assert len(tokens) == 2
    assert urlsplit(second.url).hostname == "127.0.0.1"
    assert get(second, "/", headers={"host": "elsewhere.example"}).status_code == 400


def test_a_closed_view_frees_its_port_and_keeps_its_trace(net, x, tmp_path):
    view = explore(net, x, loss=square, browser=False)
    port = urlsplit(view.url).port
    view.close()
    view.close()
    with pytest.raises(httpx.ConnectError):
        get(view, "/healthz")
    socket.create_server(("127.0.0.1", port)).close()
    assert view.save(tmp_path / "net.json").is_file()
    assert load((tmp_path / "net.json").read_bytes()).loss == view.trace.loss
    assert view.save(tmp_path / "net.dot").read_text().startswith("digraph")
    with pytest.raises(RequestError, match="docx"):
        view.save(tmp_path / "net.docx")


def test_a_port_can_be_chosen_and_one_in_use_is_an_error(net, x):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            explore(net, x, loss=square, port=port, browser=False)
    assert urlsplit(explore(net, x, loss=square, port=port, browser=False).url).port == port


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (Net(), {}, r"no scalar loss: the model returns a tensor of shape \(8, 1\)"),
        (Net(), {"loss": lambda output: output}, r"no scalar loss: loss_fn\(output\) is a tensor"),
        (Net(), {"loss": square, "kwargs": {"shake": 1}}, "does not take these inputs: .*shake"),
        (Net().requires_grad_(False), {"loss": square}, "none of its 6 parameters requires grad"),
        (Net().to("meta"), {"loss": square}, "meta device"),
        (square, {}, r"expected a torch\.nn\.Module"),
    ],
)
def test_a_bad_model_is_refused_and_leaves_no_thread(x, model, options, says):
    before = set(threading.enumerate())
    with pytest.raises(ExploreError, match=says):
        explore(model, x, browser=False, **options)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive(), thread.name


# ------------------------------------------------------------------------------------------------------ where it runs
def test_at_a_prompt_a_browser_opens_and_explore_returns(net, x, opened, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(serve, "on_own_host", lambda address: f"{address}&own")
    view = explore(net, x, loss=square)
    wait_for(lambda: opened, 10, "a browser")
    assert opened == [f"{view.url}&own"]
    assert get(view, "/healthz").status_code == 200


SCRIPT = """
import chainrule, torch
view = chainrule.explore(torch.nn.Linear(3, 1), torch.ones(4, 3), loss=lambda output: output.sum())
print("goes on with", len(view.trace.ops), "ops", flush=True)
"""


@pytest.mark.long
def test_a_script_opens_a_browser_and_goes_on_when_the_view_is_closed(tmp_path):
    path, noted, browser = tmp_path / "script.py", tmp_path / "opened.txt", tmp_path / "browser.py"
    path.write_text(SCRIPT)
    browser.write_text("import sys\nwith open(sys.argv[1], 'a') as noted:\n    print(sys.argv[2], file=noted)\n")
    with subprocess.Popen(
        [sys.executable, str(path)],
        env={**os.environ, "BROWSER": f"{sys.executable} {browser} {noted} %s"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in its background with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            url = re.search(r"http://\S+", process.stdout.readline())[0]
            address = urlsplit(url)
            # An open page does not keep the process alive.
            kept = http.client.HTTPConnection(address.hostname, address.port)
            kept.request("GET", f"/?{address.query}")
            assert kept.getresponse().status == 303
            wait_for(lambda: noted.is_file() and noted.read_text(), what="a browser")
            # Under a host name of its own, where the system knows such names.
            assert re.sub(r"chainrule-[0-9a-f]{8}\.localhost", "127.0.0.1", noted.read_text().strip()) == url
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=20)
            kept.close()
        finally:
            process.kill()
    assert rest.startswith("goes on with ")
    assert (errors, process.returncode) == ("", 0)
