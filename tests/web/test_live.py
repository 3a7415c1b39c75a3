"""The live socket: topologies, frames, theory and errors; the latest message wins."""

import json
import math
import threading

import httpx
import numpy as np
import pytest
from live_client import COUNTS, FLOATS, Socket
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from chainrule.build import Training
from chainrule.dump.wire import dump_topology
from chainrule.errors import TraceError
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.web import live
from chainrule.web.main import create_app


@pytest.fixture
def address(serve, settings):
    # Nothing is superseded or reaches its deadline here; see test_live_fairness.
    return serve(create_app(settings.model_copy(update={"live_grace_seconds": 60, "live_deadline_seconds": 60})))


@pytest.fixture
def socket(address):
    with connect(f"ws://{address}/api/v1/live", compression=None) as websocket:
        yield Socket(websocket)


@pytest.mark.smoke
def test_a_frame_holds_the_numbers_of_the_trace(socket):
    socket.ask(1, seed=3, widths="20,10,1")
    frame = socket.next()
    spec = ModelSpec(seed=3, widths="20,10,1")
    trace = trace_spec(spec)
    assert (frame.seq, frame.topology, frame.flags) == (1, 1, 0)
    assert frame.loss == trace.loss
    assert frame.compute_ms > 0
    assert socket.topology["topology"] == 1
    assert tuple(socket.topology["trace"]["statistics"]["tensor"]) == trace.statistics.tensors
    sent = socket.topology["trace"]
    assert len(sent["op_us"]) == len(trace.ops)
    expected = dump_topology(trace) | {"op_us": sent["op_us"]}
    assert json.loads(json.dumps(expected, default=vars_of)) == sent
    for name in (*FLOATS, *COUNTS):
        np.testing.assert_array_equal(frame.columns[name], trace.statistics.column(name), err_msg=name)
    np.testing.assert_array_equal(frame.histogram, trace.statistics.counts)
    assert (frame.histogram.sum(axis=1) + frame.columns["nan"] == frame.columns["n"]).all()


def test_a_frame_holds_the_values_of_small_tensors_as_the_dump_does(socket, address):
    for seq, scale in enumerate((1, 1.5, 1e4)):
        query = f"widths=4,4,4,1&batch=2&dtype=float16&scale={scale}"
        socket.ask(seq, widths="4,4,4,1", batch=2, dtype="float16", scale=scale)
        frame = socket.next()
        dump = httpx.get(f"http://{address}/api/v1/trace.json?{query}").json()
        rows = {tensor: row for row, tensor in enumerate(dump["statistics"]["tensor"])}
        sizes = {tensor["id"]: math.prod(tensor["shape"]) for tensor in dump["tensors"]}
        assert dump["values"].keys() == {tensor for tensor in rows if sizes[tensor] <= 16}
        for tensor, values in dump["values"].items():
            np.testing.assert_array_equal(frame.values(rows[tensor]), [float(value) for value in values])
    assert any("NaN" in values for values in dump["values"].values())
    assert any("Infinity" in values for values in dump["values"].values())


def vars_of(part):
    return {name: getattr(part, name) for name in part.__dataclass_fields__}


def test_the_topology_comes_once_per_graph_shape(socket):
    for seq, spec, expected in (
        (1, {}, 1),
        (2, {"scale": 0.5}, 1),
        (3, {"seed": 9, "init": "xavier_uniform"}, 1),
        (4, {"widths": "100,50,50,1"}, 2),
        (5, {"widths": "100,50,50,1", "scale": 2}, 2),
        (6, {"style": "module"}, 3),
        # Another batch is another shape, though the graph looks alike.
        (7, {"style": "module", "batch": 50}, 4),
        (8, {}, 5),
    ):
        socket.ask(seq, **spec)
        frame = socket.next()
        assert (frame.seq, frame.topology, socket.topology["topology"]) == (seq, expected, expected)
        assert frame.rows == len(socket.topology["trace"]["statistics"]["tensor"])


def test_a_step_of_a_training_is_followed_by_its_new_updates(socket):
    net = {"widths": "2,6,2", "data": "moons", "loss": "cross_entropy", "lr": 0.5}
    training = Training(ModelSpec.parse(net))
    training.go_to(9)
    # Back at step 2 there is no news; another learning rate is another training.
    for seq, (step, rows) in enumerate(((0, []), (3, [0, 1, 2]), (4, [3]), (2, []), (9, [4, 5, 6, 7, 8])), start=1):
        socket.ask(seq, **net, step=step)
        frame = socket.next("frame")
        told = socket.next("training")
        assert (told["seq"], told["step"], told["rows"]["steps"]) == (frame.seq, step, rows) == (seq, step, rows)
        assert told["rows"]["loss"] == pytest.approx(training.rows[rows, 0].tolist(), rel=1e-5)
        assert told["batch"]["loss"] == pytest.approx(frame.loss, rel=1e-5)
        assert frame.loss == trace_spec(ModelSpec.parse({**net, "step": step})).loss
        assert 0 <= told["held_out"]["accuracy"] <= 1
        assert told["surface"]["output"]["shape"] == [32, 32]
    socket.ask(8, **net | {"lr": 0.1}, step=1)
    assert socket.next("training")["rows"]["steps"] == [0]


def test_an_untrained_net_of_random_data_has_no_training(socket):
    socket.ask(1)
    assert socket.next("frame", "training").seq == 1
    socket.ask(2, scale=2)
    assert socket.next("frame", "training").seq == 2


def test_a_nan_loss_is_sent_as_nan(socket):
    socket.ask(1, preset="deep-exploding")
    frame = socket.next()
    assert math.isnan(frame.loss)
    assert frame.columns["nan"][socket.row("out")] == 200 * 100
    assert math.isnan(frame.columns["mean"][socket.row("out")])


def test_a_bad_spec_is_answered_with_its_number(socket):
    for seq, (name, value, code) in enumerate(
        (
            ("scale", "x", "invalid_spec"),
            ("widht", "3", "invalid_spec"),
            ("widths", "100x66", "over_limit"),
            ("batch", 10**9, "over_limit"),
            ("preset", "none", "invalid_spec"),
        )
    ):
        socket.ask(seq, **{name: value})
        error = socket.next()
        assert error["seq"] == seq
        assert (error["error"]["code"], error["error"]["field"]) == (code, name)
        assert error["error"]["message"].startswith(name)
    socket.ask(6)
    assert socket.next().seq == 6


NO_MESSAGES = (
    *("", "no json", "[]", "3", b"\x00\x01", "{}", '{"seq": 1}', '{"spec": {}}', "[" * 5000),
    *('{"seq": 1, "spec": {}, "more": 1}', '{"seq": 1, "spec": "scale=1"}', '{"seq": 1, "spec": []}'),
    *(f'{{"seq": {seq}, "spec": {{}}}}' for seq in ('"1"', "true", "1.5", "-1", "4294967296")),
)


def test_too_many_malformed_messages_in_a_row_end_the_socket(socket):
    for seq in range(3):
        for _ in range(live.MAX_MALFORMED - 1):
            socket.websocket.send("")
            assert socket.next()["seq"] is None
        socket.ask(seq)
        assert socket.next().seq == seq
    for _ in range(live.MAX_MALFORMED):
        socket.websocket.send("")
        assert socket.next("error")["seq"] is None
    with pytest.raises(ConnectionClosed) as closed:
        socket.next("error")
    assert closed.value.rcvd.code == live.REFUSED


def test_malformed_messages_are_answered_without_a_number(socket):
    for message in NO_MESSAGES:
        socket.websocket.send(message)
        error = socket.next()
        assert (error["type"], error["seq"], error["error"]["code"]) == ("error", None, "bad_message"), message
    socket.ask(1)
    assert socket.next().seq == 1


def test_numbers_must_grow(socket):
    socket.ask(7)
    assert socket.next().seq == 7
    for seq in (7, 3):
        socket.ask(seq)
        error = socket.next()
        assert (error["seq"], error["error"]["field"]) == (None, "seq")
    socket.ask(4294967295)
    assert socket.next().seq == 4294967295


def test_a_crash_is_answered_without_its_message(socket, monkeypatch):
    def fail(_):
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(live.Retracer, "trace", lambda _, spec: fail(spec))
    socket.ask(1)
    error = socket.next()
    assert (error["seq"], error["error"]["code"]) == (1, "internal")
    assert "secret" not in json.dumps(error)

    def refuse(_):
        raise TraceError("cannot be recorded")

    monkeypatch.setattr(live.Retracer, "trace", lambda _, spec: refuse(spec))
    socket.ask(2)
    assert socket.next()["error"] == {"code": "trace_failed", "message": "cannot be recorded"}
    monkeypatch.undo()
    socket.ask(3)
    assert socket.next().seq == 3


# Theory -----------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_theory_follows_its_frame_and_equals_the_profile(address, socket):
    # The last two repeat the pass of the third, and are broken in other ways.
    queries = (
        "seed=3",
        "widths=100x31&init=standard_normal",
        *(f"activation=tanh&scale={scale}" for scale in (3, 0.01, 90)),
    )
    for seq, query in enumerate(queries, start=1):
        socket.ask(seq, **dict(part.split("=") for part in query.split("&")))
        frame, message = socket.any(), socket.any()
        assert (frame.seq, message["type"], message["seq"]) == (seq, "theory", seq)
        profile = httpx.get(f"http://{address}/api/v1/profile.json?{query}").json()
        told = message["theory"]
        assert list(told) == ["advice", "first_inf_layer", "first_nan_layer", "layers"]
        for name in ("advice", "first_inf_layer", "first_nan_layer"):
            assert told[name] == profile[name]
        assert told["layers"] == [
            {name: layer[name] for name in ("index", "health", "weight_std", "expected")} for layer in profile["layers"]
        ]
        assert told["layers"][0]["expected"]["preactivation_std"]["value"] > 0
        assert message["faults"] == httpx.get(f"http://{address}/api/v1/trace.json?{query}").json()["faults"]
    assert message["faults"]


@pytest.mark.parametrize("share", [-1.0, 1.0])
def test_the_last_of_many_messages_gets_frame_and_theory(socket, monkeypatch, share):
    monkeypatch.setattr(live, "THEORY_SHARE", share)
    for seq in range(500):
        socket.ask(seq, scale=1 + seq / 500, widths="30x11", activation="gelu")
    seen = socket.until_theory_of(499)
    frames, theories = ([seq for kind, seq in seen if kind == each] for each in ("frame", "theory"))
    assert frames == sorted(set(frames))
    assert theories == sorted(set(theories))
    assert frames[-1] == theories[-1] == 499
    for seq in theories:
        assert seen.index(("frame", seq)) < seen.index(("theory", seq))


def test_theory_takes_at_most_its_share_of_the_time():
    spent = live.Spent()
    assert spent.leaves_theory_time  # the first frame gets its theory at once
    spent.frames, spent.theory = 0.09, 0.01
    assert spent.leaves_theory_time
    spent.theory = 0.011
    assert not spent.leaves_theory_time


def test_failing_theory_is_logged_and_frames_go_on(socket, monkeypatch, caplog):
    entered = threading.Semaphore(0)

    def fail(_):
        entered.release()
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(live, "theory", fail)
    for seq in (1, 2):
        socket.ask(seq)
        assert socket.any().seq == seq
        assert entered.acquire(timeout=10)
    monkeypatch.undo()
    socket.ask(3)
    assert socket.until_theory_of(3) == [("frame", 3), ("theory", 3)]
    assert "theory of a live trace failed" in caplog.text


def test_a_message_too_long_closes_only_its_socket(address, socket):
    with connect(f"ws://{address}/api/v1/live", compression=None) as websocket:
        websocket.send(json.dumps({"seq": 1, "spec": {"widths": "1," * 40_000}}))
        with pytest.raises(ConnectionClosed) as caught:
            websocket.recv(timeout=10)
        assert caught.value.rcvd.code == 1009
    socket.ask(1)
    assert socket.next().seq == 1
