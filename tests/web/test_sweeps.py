"""`POST /api/v1/sweeps`: a stream of values, as `chainrule serve` sends it; and the page's data."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack

import httpx
import numpy as np
import pytest
from command import command, serving
from pyarrow import parquet

from chainrule.spec import ModelSpec
from chainrule.sweeps.run import run_sweep
from chainrule.sweeps.sweep import read_sweep
from chainrule.web.sweeps import SWEEPS

SPEC = {"widths": "10x4", "batch": 8, "bias_std": 0.1, "activation": "tanh", "init": "lecun_normal"}
BODY = {"spec": SPEC, "over": ["scale=0.5:2:9", "depth=2:6:5"], "seeds": 2, "measure": "activation_std"}
# Takes a minute or more.
LONG = {
    "spec": {"widths": "10x4", "batch": 8, "step": 2000},
    "over": ["scale=0.5:2:9", "depth=2:30:29"],
    "measure": "loss",
}


@pytest.fixture(scope="module")
def client(server_url):
    # Other processes of a busy machine leave little to workers of low priority.
    with httpx.Client(base_url=server_url, timeout=600) as client:
        yield client


def lines_of(client, **changes):
    answer = client.post("/api/v1/sweeps", json={**BODY, **changes})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.iter_lines()]


def values_of(lines, cells):
    values = np.full(cells, np.nan)
    for line in lines:
        if line["type"] == "cells":
            values[line["cells"]] = [float(value) for value in line["values"]]
    return values


def test_the_stream_has_the_plan_and_then_every_value(client):
    plan, *rest = lines_of(client)
    assert [axis["key"] for axis in plan["axes"]] == ["scale", "depth"]
    assert plan["axes"][1]["values"] == [2, 3, 4, 5, 6]
    assert (plan["cells"], plan["seeds"]) == (90, [42, 43])
    assert ModelSpec.from_query(plan["query"]).as_dict() == plan["spec"] == ModelSpec.parse(SPEC).as_dict()
    assert {curve["name"] for curve in plan["curves"]} == {"χ₁ = 1", "6 ξ (correlation)", "6 ξ (gradient)"}
    assert [line["type"] for line in rest] == ["cells"] * plan["tasks"] + ["done"]
    here = run_sweep(read_sweep(ModelSpec.parse(SPEC), BODY["over"], 2, "activation_std"))
    assert values_of(rest, 90).tobytes() == here.values.tobytes()


def test_the_table_is_that_of_the_stream(client, tmp_path):
    answer = client.post("/api/v1/sweeps.parquet", json=BODY)
    assert answer.status_code == 200, answer.text
    (tmp_path / "map.parquet").write_bytes(answer.content)
    table = parquet.read_table(tmp_path / "map.parquet").to_pydict()
    values = values_of(lines_of(client), 90)
    assert table["activation_std"] == values.tolist()
    assert table["depth"][:19] == [2] * 18 + [3]
    refused = client.post("/api/v1/sweeps.parquet", json={**BODY, "over": ["scal=1,2"]})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "over")


@pytest.mark.long
def test_a_client_that_lost_the_stream_asks_for_the_rest(client):
    changes = {"spec": {**SPEC, "step": 20}, "over": ["scale=0.5:2:9", "depth=2:30:29"]}
    plan, *all_lines = lines_of(client, **changes)
    assert plan["tasks"] > 2
    _, *rest = lines_of(client, **changes, start=2)
    assert [line["task"] for line in rest[:-1]] == list(range(2, plan["tasks"]))
    both = [*all_lines[:2], *rest]
    assert values_of(both, plan["cells"]).tobytes() == values_of(all_lines, plan["cells"]).tobytes()


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"over": []}, "over", "over: missing"),
        ({"over": "scale=1,2"}, "over", "over: not a list of one or two axes"),
        ({"over": ["scale=1,2", "lr=1,2", "depth=2,3"]}, "over", "over: not a list of one or two axes"),
        ({"over": ["scal=1,2"]}, "over", "scal: unknown key"),
        ({"over": ["scale=1:2:1000000000"]}, "over", "over: 2000000000 cells, about"),
        ({"over": ["scale=1:2:30000"]}, "over", "over: 60000 cells, about"),
        (
            {"over": ["step=100000"], "measure": "loss", "spec": {"widths": "100x50"}},
            "over",
            "floating point operations",
        ),
        ({"over": ["depth=2,70"]}, "widths", "widths: 70 layers; at most 64 are allowed here (CHAINRULE_MAX_DEPTH)"),
        ({"seeds": 0}, "seeds", "seeds: expected an integer from 1 to 1000, got 0"),
        ({"seeds": "many"}, "seeds", "seeds: expected an integer from 1 to 1000, got 'many'"),
        ({"measure": "x"}, "measure", "measure: 'x' is not one of"),
        ({"measure": 3}, "measure", "measure: not a text"),
        ({"start": -1}, "start", "start: not an integer"),
        ({"start": 99}, "start", "start: 99 is above 1, the number of tasks"),
        (
            {"over": ["batch=1:100:100", "width=1:100:100"]},
            "over",
            "over: 10000 different shapes of nets (batch, width)",
        ),
        ({"spec": "widths=3"}, "spec", "spec: not an object"),
        ({"spec": {"widhts": "3"}}, "widhts", "widhts: unknown key"),
        ({"what": 1}, "what", "what: unknown key; the keys are spec, over, seeds, measure, start"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(client, changes, field, says):
    answer = client.post("/api/v1/sweeps", json={**BODY, **changes})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert says in error["message"]
    assert error["field"] == field


def test_one_sweep_too_many_is_refused_until_another_client_leaves(client):
    with ExitStack() as streams:
        answers = [streams.enter_context(client.stream("POST", "/api/v1/sweeps", json=LONG)) for _ in range(SWEEPS)]
        # Kept: an iterator that is given up closes its connection.
        lines = [answer.iter_lines() for answer in answers]
        assert all(json.loads(next(each))["type"] == "plan" for each in lines)
        refused = client.post("/api/v1/sweeps", json=BODY)
        assert refused.status_code == 503, refused.text[-300:]
        assert refused.json()["error"]["code"] == "busy"
        assert int(refused.headers["retry-after"]) > 0
    # All have left: the server notices it, stops their work, and has room again.
    while (answer := client.post("/api/v1/sweeps", json=BODY)).status_code == 503:
        pass
    assert json.loads(answer.text.splitlines()[-1])["type"] == "done"


def test_the_worker_is_free_when_its_client_leaves(client):
    """One stack that would take hours: its worker must stop in the middle."""
    endless = {"spec": {"widths": "10x4", "step": 100000}, "over": ["scale=1,2"], "measure": "loss"}
    with client.stream("POST", "/api/v1/sweeps", json=endless) as answer:
        assert json.loads(next(answer.iter_lines()))["type"] == "plan"
    assert lines_of(client)[-1]["type"] == "done"


def test_a_trace_is_answered_while_a_map_is_computed(client):
    with client.stream("POST", "/api/v1/sweeps", json=LONG) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert client.get("/api/v1/trace.json?widths=3,2,1").status_code == 200


def children(process):
    said = subprocess.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in said.stdout.splitlines() if "spawn_main" in line]


@pytest.mark.long
def test_a_killed_worker_is_replaced_and_the_stream_goes_on():
    with serving(fresh=True) as (process, link), httpx.Client(base_url=link.rstrip("/"), timeout=600) as client:
        spec, over = {**SPEC, "step": 20}, ["scale=0.5:2:9", "depth=2:30:29"]
        with client.stream("POST", "/api/v1/sweeps", json={**BODY, "spec": spec, "over": over}) as answer:
            lines = answer.iter_lines()
            plan, first = json.loads(next(lines)), json.loads(next(lines))
            workers = children(process.pid)
            assert workers
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            rest = [json.loads(line) for line in lines]
    assert rest[-1]["type"] == "done"
    here = run_sweep(read_sweep(ModelSpec.parse(spec), over, 2, "activation_std"))
    assert values_of([first, *rest], plan["cells"]).tobytes() == here.values.tobytes()


def test_maps_can_be_switched_off():
    with command("serve", "--port", "0", CHAINRULE_SWEEP_WORKERS="0") as url:
        answer = httpx.post(f"{url}/api/v1/sweeps", json=BODY)
        assert answer.status_code == 422
        assert "CHAINRULE_SWEEP_WORKERS" in answer.json()["error"]["message"]


def page_data(client, address):
    answer = client.get(address)
    text = answer.text.partition('id="page-data">')[2].partition("</script>")[0]
    return answer.status_code, json.loads(text)


def test_the_page_starts_with_what_its_address_says(client):
    status, data = page_data(client, "/map?widths=10x4&x=scale=1,2&y=depth=2,3&seeds=3&measure=loss")
    assert (status, data["error"]) == (200, None)
    assert data["form"] == {"x": "scale=1,2", "y": "depth=2,3", "seeds": 3, "measure": "loss"}
    assert data["query"] == "widths=10x4"
    status, data = page_data(client, "/map?widths=9,8,7,1")
    assert status == 200
    assert data["form"]["y"].startswith("bias_std=")
    status, data = page_data(client, "/map?widths=x&x=scale=1,2")
    assert (status, data["error"]["field"], data["form"]["x"]) == (422, "widths", "scale=1,2")


def test_every_preset_and_every_proposed_axis_can_be_drawn(client):
    _, data = page_data(client, "/map")
    for preset in data["presets"]:
        status, page = page_data(client, f"/map?{preset['query']}")
        assert (status, page["error"]) == (200, None), preset["name"]
        form = page["form"]
        assert read_sweep(ModelSpec.parse(page["spec"]), [form["x"], form["y"]], form["seeds"], form["measure"]).cells
    for axis in data["axes"]:
        spec = ModelSpec.from_query("widths=2,8,2" if axis["name"] == "data" else "widths=8x4")
        assert read_sweep(spec, [axis["over"]]).cells > 1, axis["name"]
