"""A server that runs out of memory answers 507, and answers the next request normally."""

import re
import resource
from pathlib import Path

import httpx
import pytest
from command import serving

# Half a gigabyte of weights and activations, as much again for gradients.
LARGE = "widths=8000x3&batch=8000"
MARGIN = 400 << 20


@pytest.mark.long
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits the memory of another process")
def test_a_pass_that_does_not_fit_is_a_507_and_the_next_one_works():
    limits = {"MAX_WIDTH": 8000, "MAX_BATCH": 8000, "MAX_FLOPS": 10**14, "MAX_MEMORY_BYTES": 1 << 40}
    limits |= {"MAX_RESPONSE_BYTES": 1 << 40, "DEADLINE_SECONDS": 100}
    environment = {f"CHAINRULE_{name}": str(value) for name, value in limits.items()}
    with serving(fresh=True, **environment) as (process, link), httpx.Client(base_url=link, timeout=100) as client:
        # The first pass loads libraries, before the limit.
        assert client.get("/api/v1/trace.json?widths=9,5,1").status_code == 200
        status = Path(f"/proc/{process.pid}/status").read_text()
        size = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) << 10
        resource.prlimit(process.pid, resource.RLIMIT_AS, (size + MARGIN, size + MARGIN))
        for _ in range(2):
            answer = client.get(f"/api/v1/trace.json?{LARGE}")
            assert answer.status_code == 507, answer.text[:300]
            assert answer.json()["error"]["code"] == "out_of_memory"
            assert client.get("/api/v1/trace.json?widths=100x5").status_code == 200
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert process.returncode in (0, -15, 143), errors
