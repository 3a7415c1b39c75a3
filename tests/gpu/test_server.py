"""The server computes on the GPU what it computes on the CPU."""

import httpx
import pytest
import torch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("query", ["scale=0.9", "style=module&activation=tanh", "data=moons&widths=2,16,2&step=30"])
def test_a_trace_on_the_gpu(server_url, query):
    host, there = (
        httpx.get(f"{server_url}/api/v1/trace.json?{query}&device={device}", timeout=120).raise_for_status().json()
        for device in ("cpu", "cuda")
    )
    assert there["environment"]["device_name"] == torch.cuda.get_device_name()
    assert there["loss"] == pytest.approx(host["loss"], rel=1e-4)
    assert there["statistics"]["tensor"] == host["statistics"]["tensor"]
    assert [op["name"] for op in there["ops"]] == [op["name"] for op in host["ops"]]
