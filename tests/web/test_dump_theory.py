"""Theory of an open dump."""

import json

import pytest
import torch
from torch import nn

from chainrule.diagnose.profile import theory
from chainrule.dump.opened import OpenDump
from chainrule.dump.wire import dump_json, dump_trace, theory_dump
from chainrule.trace import trace_model
from chainrule.web.main import create_app

ADDRESS = "/api/v1/dump.json?what=theory"


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
    return trace_model(model, torch.randn(9, 8), loss=lambda out: out.square().mean())


@pytest.fixture
def client(open_client, settings, trace):
    return open_client(create_app(settings, OpenDump.check("own.json", dump_trace(trace))))


def test_theory_of_a_dump_equals_theory_of_its_trace(client, trace):
    answer = client.get(ADDRESS)
    assert answer.status_code == 200
    told = answer.json()
    assert told == json.loads(dump_json(theory_dump(theory(trace))))
    assert [layer.get("reason") for layer in told["layers"]] == [None, "LayerNorm: no theory of it here", None]
    assert set(told["layers"][0]["expected"]) >= {"preactivation_std", "activation_std"}


def test_theory_and_dump_have_different_tags(client):
    dump, told = client.get("/api/v1/dump.json"), client.get(ADDRESS)
    assert dump.headers["etag"] != told.headers["etag"]
    again = client.get(ADDRESS, headers={"if-none-match": told.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_other_values_of_what_are_refused(client):
    answer = client.get("/api/v1/dump.json?what=profile")
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (422, "what")
    assert "is not dump or theory" in error["message"]


def test_the_page_has_rules_for_specs_and_for_dumps(client):
    page = client.get("/").text
    data = json.loads(page.split('id="page-data">')[1].split("</script>")[0])
    assert data["rules"]["expected"].keys() == data["local_rules"]["expected"].keys()
    assert data["rules"]["expected"] != data["local_rules"]["expected"]
