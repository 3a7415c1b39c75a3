"""A user's model over HTTP and the live socket: what-ifs instead of specs, and reloads."""

import contextlib
import json
import threading
import time

import httpx
import numpy as np
import orjson
import pytest
import torch
from live_client import FLOATS, Socket
from served import wait_for
from torch import nn
from websockets.sync.client import connect

from chainrule.diagnose.profile import profile
from chainrule.dump.wire import dump_profile, dump_topology, load
from chainrule.errors import ExploreError
from chainrule.user_model.model import UserModel
from chainrule.user_model.subject import make_subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WHAT_IF_KEYS, WhatIf
from chainrule.web.main import create_app

BASE = "/api/v1/model"
BROKEN = "net.py:3: the import failed: SyntaxError: invalid syntax"

FILES = {
    "trace.json": "application/json",
    "trace.dot": "text/vnd.graphviz; charset=utf-8",
    "trace.svg": "image/svg+xml",
    "trace.html": "text/html; charset=utf-8",
    "trace.csv": "text/csv; charset=utf-8",
    "trace.model-explorer.json": "application/json",
    "node-data.json": "application/json",
}


class Double(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return 2 * x

    @staticmethod
    def backward(_, grad_output):
        return 2 * grad_output


class Net(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(6, 6), nn.Tanh())))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(Double.apply(self.layers(x)))


def made(depth=2):
    """An equal subject for an equal depth."""
    torch.manual_seed(3)
    return make_subject((Net(depth), torch.randn(8, 6), lambda out: (out**2).mean()), "net")


class Making:
    """A factory whose result can change, as a file can."""

    def __init__(self):
        self.depth = 2
        self.problem = None

    def __call__(self):
        if self.problem is not None:
            raise ExploreError(self.problem)
        return made(self.depth)


@pytest.fixture
def making():
    return Making()


@pytest.fixture
def own(making):
    return UserModel("net.py:make", making, seed=5)


@pytest.fixture
def app(own, settings):
    return create_app(settings, own=own)


@pytest.fixture
def client(app, open_client):
    return open_client(app)


def traced(**values):
    """The same trace, without the server."""
    return Tracer(made(), seed=5).trace(WhatIf(**values))


def std(dump, name):
    ids = {tensor["name"]: tensor["id"] for tensor in reversed(dump["tensors"])}
    return dump["statistics"]["std"][dump["statistics"]["tensor"].index(ids[name])]


# ------------------------------------------------------------------------------------------------------------- routes
@pytest.mark.parametrize("file", FILES)
def test_every_format_is_served(client, file):
    answer = client.get(f"{BASE}/{file}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == FILES[file]
    # Node data has ids for names, and a picture is of the groups that are open.
    assert "layers.0" in answer.text or file in ("trace.svg", "node-data.json")


@pytest.mark.smoke
def test_the_dump_equals_a_trace_of_the_model(client):
    sent, expected = load(client.get(f"{BASE}/trace.json").content), traced()
    assert sent.loss == expected.loss
    assert [op.name for op in sent.ops] == [op.name for op in expected.ops]
    np.testing.assert_array_equal(sent.statistics.moments, expected.statistics.moments)
    np.testing.assert_array_equal(sent.statistics.counts, expected.statistics.counts)
    assert sent.spec is None
    assert [layer.name for layer in sent.layers] == [layer.name for layer in expected.layers] != []


def test_a_what_if_changes_only_its_group(client):
    plain, scaled = (client.get(f"{BASE}/trace.json{query}").json() for query in ("", "?scale=2&group=layers"))
    assert scaled["ops"] == plain["ops"]
    for name, factor in (("layers.0.weight", 2), ("layers.2.weight", 2), ("head.weight", 1), ("layers.0.bias", 1)):
        # A power of two rounds nothing.
        assert std(scaled, name) == factor * std(plain, name)
    assert scaled["loss"] == traced(scale=2.0, group="layers").loss != plain["loss"]
    drawn = client.get(f"{BASE}/trace.json?init=zeros&group=head").json()
    assert std(drawn, "head.weight") == 0
    assert std(drawn, "layers.0.weight") == std(plain, "layers.0.weight")


def test_the_level_aten_is_the_same_pass(client, making, open_client, settings):
    plain, below = (client.get(f"{BASE}/trace.json?scale=2{query}").json() for query in ("", "&recording=aten"))
    assert below["environment"]["what_if"] == "scale=2&recording=aten"
    names = [op["name"] for op in below["ops"]]
    assert "linear" not in names
    assert names.count("addmm") == [op["name"] for op in plain["ops"]].count("linear") == 3
    assert below["loss"] == plain["loss"]
    for name in ("layers.0.weight", "layers.0.weight.g", "head.bias.g"):
        assert std(below, name) == std(plain, name)
    (inside,) = [module["id"] for module in below["modules"] if module["path"] == "Double.mul"]
    check = {"op": next(op["id"] for op in below["ops"] if op["module"] == inside)}
    assert client.request("POST", f"{BASE}/gradcheck?recording=aten", json=check).json()["passed"] is True
    # `chainrule explore --level aten`: the level where an address names none.
    deep = open_client(create_app(settings, own=UserModel("net.py:make", making, seed=5, level="aten")))
    assert [op["name"] for op in deep.get(f"{BASE}/trace.json?scale=2").json()["ops"]] == names
    assert deep.get(f"{BASE}/trace.json?scale=2&recording=op").json()["ops"] == plain["ops"]
    for address, query, level in (("/", "", "aten"), ("/?recording=op", "recording=op", "op")):
        data = page_data(deep.get(address))
        assert (data["query"], data["spec"]["recording"]) == (query, level)
        assert data["keys"][-1]["default"] == "aten"


def test_the_profile_is_of_the_models_layers(client):
    answer = client.get(f"{BASE}/profile.json?scale=2").json()
    assert [layer["name"] for layer in answer["layers"]] == ["layers.0", "layers.2", "Double", "head"]
    assert answer == json.loads(dump_profile(profile(traced(scale=2.0))))


def test_a_tensors_values(client):
    answer = client.get(f"{BASE}/tensor.json?name=head.weight&rows=0:1&cols=1:4&scale=2").json()
    assert answer["shape"] == [1, 6]
    expected = 2 * made().model.head.weight[0:1, 1:4].double()
    assert answer["values"] == expected.tolist()


@pytest.mark.parametrize(
    ("address", "status", "code", "field"),
    [
        ("trace.json?scale=x", 422, "invalid_spec", "scale"),
        ("trace.json?scale=1e5", 422, "invalid_spec", "scale"),
        ("trace.json?recording=cuda", 422, "invalid_spec", "recording"),
        ("trace.json?group=layers.9", 422, "invalid_spec", "group"),
        ("trace.json?widths=10,1", 422, "invalid_spec", "widths"),
        ("profile.json?init=perfect", 422, "invalid_spec", "init"),
        ("trace.svg?level=most", 422, "invalid_parameter", "level"),
        ("tensor.json", 422, "bad_request", "name"),
        ("tensor.json?name=head.wait", 404, "not_found", "name"),
        ("tensor.json?name=head.weight&rows=5:5", 422, "invalid_range", "rows"),
        ("trace.py", 404, "not_found", None),
    ],
)
def test_an_error_has_the_one_shape(client, address, status, code, field):
    answer = client.get(f"{BASE}/{address}")
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert error.get("field") == field
    assert error["message"]


def test_a_model_without_a_loss_is_refused(settings, serve):
    own = UserModel("linear", lambda: make_subject((nn.Linear(3, 2), torch.randn(4, 3)), "linear"))
    address = serve(create_app(settings, own=own))
    answer = httpx.get(f"http://{address}{BASE}/trace.json")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "invalid_model")
    assert "no scalar loss" in error["message"]
    assert "(4, 2)" in error["message"]
    with connect(f"ws://{address}{BASE}/live", compression=None) as websocket:
        socket = Socket(websocket)
        socket.ask(1)
        answer = socket.next()
    assert (answer["type"], answer["seq"], answer["error"]) == ("error", 1, error)


def test_tags_change_with_the_model(client, own, making, open_client, settings):
    first = client.get(f"{BASE}/trace.json?scale=2")
    known = {"if-none-match": first.headers["etag"]}
    assert client.get(f"{BASE}/trace.json?scale=2", headers=known).status_code == 304
    assert client.get(f"{BASE}/trace.json?scale=2&group=", headers=known).status_code == 304
    for other in ("trace.json", "trace.dot?scale=2", "profile.json?scale=2"):
        assert client.get(f"{BASE}/{other}", headers=known).status_code == 200
    # Another server may have another model of this name.
    again = open_client(create_app(settings, own=UserModel("net.py:make", made)))
    assert again.get(f"{BASE}/trace.json?scale=2", headers=known).status_code == 200
    making.depth = 3
    own.reload()
    again = client.get(f"{BASE}/trace.json?scale=2", headers=known)
    assert again.status_code == 200
    assert len(again.json()["layers"]) == len(first.json()["layers"]) + 1


def test_passes_of_a_model_have_no_deadline(open_client, settings):
    class Slow(nn.Linear):
        def forward(self, x):
            time.sleep(0.3)
            return super().forward(x).mean()

    own = UserModel("slow", lambda: make_subject((Slow(3, 2), torch.randn(4, 3)), "slow"))
    hasty = settings.model_copy(update={"deadline_seconds": 0.05, "live_deadline_seconds": 0.05})
    client = open_client(create_app(hasty, own=own))
    assert client.get(f"{BASE}/trace.json").status_code == 200
    assert client.get("/api/v1/trace.json?widths=10x20").status_code in (200, 504), "a spec's deadline stays"


def test_the_default_device_holds_in_the_compute_thread(open_client, settings):
    class Asking(nn.Linear):
        def forward(self, x):
            return super().forward(x).mean() * (2.0 if torch.empty(0).is_meta else 1.0)

    torch.manual_seed(0)
    subject = make_subject((Asking(3, 2), torch.randn(4, 3)), "asking")
    losses = []
    for device in (None, "meta"):
        torch.set_default_device(device)
        try:
            app = create_app(settings, own=UserModel("asking", lambda: subject))
        finally:
            torch.set_default_device(None)
        losses.append(open_client(app).get(f"{BASE}/trace.json").json()["loss"])
    assert losses[1] == 2 * losses[0] != 0


def test_a_window_too_large_is_refused(open_client, settings):
    subject = make_subject((nn.Flatten(0), torch.zeros(8, 8, 64, 64, requires_grad=True), torch.sum), "flat")
    client = open_client(create_app(settings, own=UserModel("flat", lambda: subject)))
    fits = client.get(f"{BASE}/tensor.json?name=input&rows=0:2&cols=0:8").json()["values"]
    assert np.shape(fits) == (2, 8, 64, 64)
    error = client.get(f"{BASE}/tensor.json?name=input&rows=0:8&cols=0:8").json()["error"]
    assert (error["code"], error["field"], error["limit"]) == ("invalid_spec", "rows", 65536)
    assert client.get(f"{BASE}/trace.json").status_code == 200


def test_all_formats_of_a_what_if_share_one_pass(client, monkeypatch):
    passes = []
    prepared = Tracer.prepared
    monkeypatch.setattr(Tracer, "prepared", lambda tracer, what_if: passes.append(what_if) or prepared(tracer, what_if))
    for address in ("trace.json?scale=3", "profile.json?scale=3", "trace.dot?scale=3", "trace.json?scale=4"):
        assert client.get(f"{BASE}/{address}").status_code == 200
    assert [what_if.scale for what_if in passes] == [3, 4]


# ---------------------------------------------------------------------------------------------------- gradient check


def custom_op(client):
    dump = client.get(f"{BASE}/trace.json").json()
    functions = {module["id"] for module in dump["modules"] if module["type"] == "Double"}
    (found,) = [op["id"] for op in dump["ops"] if op["module"] in functions and op["phase"] == "forward"]
    return found


def test_a_custom_function_is_checked_at_its_op(client):
    answer = client.request("POST", f"{BASE}/gradcheck?scale=2", json={"op": custom_op(client)})
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["passed"] is True
    assert report["inputs"][0]["shape"] == "(8, 6)" or list(report["inputs"][0]["shape"]) == [8, 6]
    assert "float64" in report["checks"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "op"),
        ({"op": 3}, 422, "op"),
        ({"op": "n1", "eps": 1}, 422, "op"),
        ([], 422, None),
        ({"op": "n9999"}, 404, "op"),
        ({"op": ""}, 404, "op"),
    ],
)
def test_a_bad_gradient_check_is_refused(client, body, status, field):
    answer = client.request("POST", f"{BASE}/gradcheck", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].get("field") == field


# --------------------------------------------------------------------------------------------------- with and without


def flat(routes):
    for route in routes:
        if hasattr(route, "path"):
            yield route.path
        else:
            yield from flat(route.original_router.routes)


def test_routes_exist_only_with_a_model(app, open_client, settings):
    plain = create_app(settings)
    own_routes = {path for path in flat(app.routes) if path.startswith(BASE)}
    assert {f"{BASE}/{file}" for file in FILES} <= own_routes
    assert {f"{BASE}/profile.json", f"{BASE}/tensor.json", f"{BASE}/gradcheck", f"{BASE}/live"} <= own_routes
    assert set(flat(app.routes)) - own_routes == set(flat(plain.routes))
    assert open_client(plain).get(f"{BASE}/trace.json").status_code == 404


def test_openapi_describes_the_routes(app, client, open_client, settings):
    paths = client.get("/openapi.json").json()["paths"]
    described = {path for path in paths if path.startswith(BASE)}
    assert described == {path for path in flat(app.routes) if path.startswith(BASE)} - {f"{BASE}/live"}
    for path in described:
        (operation,) = paths[path].values()
        assert operation["summary"]
        names = [each["name"] for each in operation["parameters"]]
        assert names[-len(WHAT_IF_KEYS) :] == [key.name for key in WHAT_IF_KEYS]
        assert not {"504"} & operation["responses"].keys(), "there is no deadline"
    keys = {each["name"]: each["schema"] for each in paths[f"{BASE}/profile.json"]["get"]["parameters"]}
    assert {name: schema["default"] for name, schema in keys.items()} == WhatIf().as_dict()
    assert keys["scale"]["minimum"] == 1e-4
    assert "kaiming_normal" in keys["init"]["enum"]
    assert "enum" not in keys["group"], "which there are changes with the model"
    without = open_client(create_app(settings)).get("/openapi.json").json()["paths"]
    assert not any(path.startswith(BASE) for path in without)


# ----------------------------------------------------------------------------------------------------------- the page


def page_data(answer):
    return json.loads(answer.text.split('id="page-data">')[1].split("</script>")[0])


def test_the_page_data_of_a_model(client):
    answer = client.get("/?scale=2&group=layers.2")
    assert answer.status_code == 200
    data = page_data(answer)
    assert data["model"] == {
        "name": "net.py:make",
        "base": BASE,
        "groups": ["layers", "layers.0", "layers.2", "head"],
        "tied": {},
        "seed": 5,
        "version": 1,
        "error": None,
    }
    assert data["query"] == "scale=2&group=layers.2"
    assert data["spec"] == WhatIf(scale=2.0, group="layers.2").as_dict()
    assert [key["name"] for key in data["keys"]] == [key.name for key in WHAT_IF_KEYS]
    assert data["programs"] == data["presets"] == []
    assert data["error"] is None


def test_the_page_shows_the_unchanged_model_after_a_bad_address_or_reload(client, own, making):
    answer = client.get("/?scale=2&group=tail")
    data = page_data(answer)
    assert (answer.status_code, data["error"]["field"]) == (422, "group")
    assert (data["spec"], data["query"]) == (WhatIf().as_dict(), "")
    making.problem = BROKEN
    own.reload()
    model = page_data(client.get("/"))["model"]
    assert (model["error"], model["version"]) == ({"code": "invalid_model", "message": BROKEN}, 1)


# -------------------------------------------------------------------------------------------------------- live socket
@pytest.fixture
def address(app, serve):
    return serve(app)


@contextlib.contextmanager
def live(address, **options):
    with connect(f"ws://{address}{BASE}/live", compression=None, max_size=None, **options) as websocket:
        yield Socket(websocket)


@pytest.fixture
def socket(address):
    with live(address) as socket:
        yield socket


@pytest.mark.smoke
def test_frames_of_what_ifs_equal_traces(socket, app):
    socket.ask(1)
    frame = socket.next()
    trace = traced()
    assert (frame.seq, frame.topology, frame.loss) == (1, 1, trace.loss)
    for name in FLOATS:
        np.testing.assert_array_equal(frame.columns[name], trace.statistics.column(name), err_msg=name)
    sent = socket.topologies[0]["trace"]
    expected = json.loads(orjson.dumps(dump_topology(trace) | {"op_us": sent["op_us"]}))
    assert sent == expected
    last = app.state.model.tracer._last.trace
    socket.ask(2)
    assert socket.next().compute_ms >= last.timing["total_ms"] > 0, "a repeated frame has the time of its pass"
    socket.ask(3, scale=2, group="layers.0")
    frame = socket.next()
    trace = traced(scale=2.0, group="layers.0")
    assert (frame.seq, frame.topology, frame.loss) == (3, 1, trace.loss)
    small = {trace.statistics.row_of[tensor]: values for tensor, values in trace.statistics.values.items()}
    assert len(small) > 1
    for row, values in small.items():
        np.testing.assert_array_equal(frame.values(row), values)
    np.testing.assert_array_equal(frame.histogram, trace.statistics.counts)
    assert len(socket.topologies) == 1, "the graph is the same"


def test_two_sockets_get_their_own_what_ifs(address, socket):
    # Before they ask, because a pass beside the server's would share torch's generator.
    socket.ask(0)
    socket.next()
    loss = {scale: traced(scale=scale).loss for scale in (1.0, 2.0, 10.0, 20.0)}
    with live(address) as other:
        for seq in (1, 2):
            socket.ask(seq, scale=seq)
            other.ask(seq, scale=10 * seq)
            assert socket.next().loss == loss[float(seq)]
            assert other.next().loss == loss[10.0 * seq]
    assert len(socket.topologies) == len(other.topologies) == 1


def test_a_reload_is_announced_and_the_next_frame_is_of_the_new_model(socket, own, making):
    socket.ask(1, scale=2)
    first = socket.next()

    def reload(version, error=None):
        own.reload()
        groups = list(own.groups)
        news = {"type": "model", "version": version, "groups": groups, "tied": {}, "error": error}
        assert socket.next("model") == news

    making.problem = BROKEN
    reload(1, {"code": "invalid_model", "message": BROKEN})
    socket.ask(2, scale=2)
    assert socket.next().loss == first.loss
    making.problem = None
    reload(2)
    socket.ask(3, scale=2)
    frame = socket.next()
    assert (frame.seq, frame.topology, frame.loss) == (3, 1, first.loss)
    assert len(socket.topologies) == 1, "the graph is the same"
    making.depth = 3
    reload(3)
    assert "layers.4" in own.groups
    socket.ask(4, scale=2)
    frame = socket.next()
    assert (frame.seq, frame.topology) == (4, 2)
    paths = [{module["path"] for module in each["trace"]["modules"]} for each in socket.topologies]
    assert ["layers.4" in each for each in paths] == [False, True]


def test_every_open_socket_hears_of_a_reload(address, own, making):
    making.problem = BROKEN
    own.reload()
    with live(address) as first:
        with live(address) as second:
            for each in (first, second):
                # Its page may be older than the reload.
                assert each.next("model")["error"]["message"] == BROKEN
                each.websocket.send('{"type":"ping"}')
                each.next("pong")
            making.problem = None
            own.reload()
            assert [each.next("model")["version"] for each in (first, second)] == [2, 2]
        wait_for(lambda: len(own._listeners) == 1)
        own.reload()
        assert first.next("model")["version"] == 3


def test_the_first_trace_is_computed_at_startup(own, settings, serve, monkeypatch):
    expected, passed = traced().loss, threading.Event()
    trace = Tracer.traced

    def noted(tracer, what_if):
        found = trace(tracer, what_if)
        passed.set()
        return found

    monkeypatch.setattr(Tracer, "traced", noted)
    address = serve(create_app(settings, own=own))
    assert passed.wait(20)
    monkeypatch.setattr(Tracer, "prepared", lambda *_: pytest.fail("it is there already"))
    assert httpx.get(f"http://{address}{BASE}/trace.json").json()["loss"] == expected


def test_the_theory_of_a_what_if_has_the_faults_of_its_trace_whatever_others_ask_meanwhile(address, socket):
    for seq, scale in enumerate((1, 1e-4, 1e4)):
        socket.ask(seq, scale=scale)
        socket.next()
        assert httpx.get(f"http://{address}{BASE}/trace.json?scale=3").status_code == 200
        message = socket.next("theory")
        assert [fault["kind"] for fault in message["faults"]] == [fault.kind for fault in traced(scale=scale).faults]
    assert message["faults"], "the last one is not healthy"


def test_out_of_memory_frees_the_copy(client, app, monkeypatch):
    assert client.get(f"{BASE}/trace.json").status_code == 200
    model = app.state.model
    assert model.tracer is not None

    def greedy(*_):
        raise MemoryError

    monkeypatch.setattr(Tracer, "traced", greedy)
    answer = client.get(f"{BASE}/trace.json?scale=2")
    assert answer.status_code == 507
    assert model.tracer is None
