"""The addresses of a folder of runs: their JSON, their traces, and what they refuse."""

import json
import re

import numpy as np
import pytest

from chainrule.dump.wire import dump_trace
from chainrule.history import RunWriter
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.web.main import create_app

SPEC = ModelSpec.from_query("widths=2,3,2&loss=cross_entropy&data=moons&step=2")
TRACE = dump_trace(trace_spec(ModelSpec.from_query("widths=3,2,1&batch=2")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with RunWriter(folder / "a b&c.run", ["std", "norm"], spec=SPEC.as_dict()) as run:
        for step, loss in enumerate((2.0, 1.0, float("nan"))):
            run.add_step(step, loss)
            run.add_rows(step, [("l1", "weight"), ("l1", "update")], np.array([[1.0, 2.0], [3.0, float("inf")]]))
        run.add_trace(1, TRACE)
        run.add_event(2, "nonfinite", "the loss is NaN", "l1", node="n3", batch=7)
    (folder / "text.run").write_text("no database")
    return folder


@pytest.fixture
def client(open_client, settings, folder):
    return open_client(create_app(settings, runs=folder))


def get(client, address, **parameters):
    return client.get(f"/api/v1/runs{address}", params=parameters)


def test_the_list_says_what_each_run_is_and_how_far(client, folder):
    answer = get(client, ".json")
    told = answer.json()
    assert told["folder"] == str(folder)
    run, broken = told["runs"]
    assert (broken["name"], broken["error"]) == ("text", "the file is not a run of schema chainrule.run/1")
    expected = {
        "name": "a b&c",
        "ended": "complete",
        "step": 2,
        "loss": "NaN",
        "diverged": 2,
        "events": 1,
        "error": None,
    }
    assert {key: run[key] for key in expected} == expected
    assert ModelSpec.from_query(run["spec"]) == SPEC
    assert run.keys() == {*expected, "state", "started", "written", "spec", "model"}
    again = client.get("/api/v1/runs.json", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_steps_and_rows_come_from_a_step_on(client):
    told = get(client, "/steps.json", run="a b&c", after=0).json()
    assert told["steps"]["step"] == [1, 2]
    assert told["steps"]["loss"] == [1.0, "NaN"]
    assert told["events"] == {
        "step": [2],
        "kind": ["nonfinite"],
        "text": ["the loss is NaN"],
        "op": ["l1"],
        "node": ["n3"],
        "batch": [7],
        "good_step": [None],
    }
    assert (told["traces"], told["parts"], told["statistics"]) == ([1], ["weight", "update"], ["std", "norm"])
    told = get(client, "/rows.json", run="a b&c", part="update", statistic="ratio", after=1).json()
    assert (told["steps"], told["layers"], told["values"]) == ([2], ["l1"], [["Infinity"]])


def test_a_trace_opens_in_the_explorer_with_its_theory(client):
    page = client.get("/runs/graph/a b&c")
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', page.text, re.DOTALL)[1])
    (dump,) = data["dumps"]
    assert dump["name"] == "a b&c, step 1"
    assert client.get(dump["url"]).content == TRACE
    assert client.get(f"{dump['url']}&what=theory").json()["layers"]


@pytest.mark.parametrize(
    ("address", "parameters", "status", "field", "message"),
    [
        (".json", {"x": "1"}, 422, "x", "unknown key"),
        ("/steps.json", {}, 422, "run", "missing"),
        ("/steps.json", {"run": "../a b&c"}, 404, "run", "has no run"),
        ("/steps.json", {"run": "text"}, 422, None, "is not a run"),
        ("/steps.json", {"run": "a b&c", "after": "1.5"}, 422, "after", "'1.5' is not a step"),
        (
            "/rows.json",
            {"run": "a b&c", "part": "x", "statistic": "std"},
            404,
            "part",
            "has no part 'x'; its parts are ",
        ),
        (
            "/rows.json",
            {"run": "a b&c", "part": "weight", "statistic": "ratio"},
            404,
            "statistic",
            "has no statistic 'ratio'; its statistics are std",
        ),
        ("/trace.json", {"run": "a b&c", "step": "2"}, 404, "step", "step 2 has no trace"),
        ("/trace.json", {"run": "a b&c", "step": "1", "what": "x"}, 422, "what", "is not dump or theory"),
    ],
)
def test_a_bad_request_names_the_key_and_what_is_allowed(client, address, parameters, status, field, message):
    answer = get(client, address, **parameters)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error.get("field") == field
    assert message in error["message"]


def test_a_run_without_traces_has_no_graph_and_other_servers_have_no_runs(client, open_client, settings):
    assert client.get("/runs/graph/nothing").status_code == 404
    assert client.get("/runs/graph/..%2Ftext").status_code == 404
    other = open_client(create_app(settings))
    assert [other.get(path).status_code for path in ("/runs", "/api/v1/runs.json")] == [404, 404]
