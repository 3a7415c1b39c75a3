"""Specs around every limit, drawn by hypothesis: answered, refused or stopped in time, and within their memory."""

import time
from collections import Counter

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from loads import ENDLESS, ENDLESS_FLOPS, path

from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.limits import estimate_cost

DEADLINE = 3

LATE = 2
"""Seconds that an answer may come after its deadline: the op under way ends first."""

EXAMPLES = 40

MEBIBYTE = 1 << 20

LIMITS = {name: Settings.model_fields[name].default for name in ("max_depth", "max_width", "max_batch")}


def around(limit):
    """Sizes up to a limit, at it and beyond it, the edges most often."""
    edges = st.sampled_from([1, 2, limit - 1, limit, limit + 1, 2 * limit])
    return edges | st.integers(1, limit + 8)


@st.composite
def specs(draw):
    """Specs whose sizes lie anywhere about the limits, in any dtype and init."""
    depth = draw(around(LIMITS["max_depth"]))
    width = draw(around(LIMITS["max_width"]))
    return {
        "widths": f"{draw(around(LIMITS['max_width']))},{width}x{depth}" if depth > 1 else f"{width},1",
        "batch": draw(around(LIMITS["max_batch"])),
        "dtype": draw(st.sampled_from(["float32", "float64", "bfloat16", "float16"])),
        "init": draw(st.sampled_from(["kaiming_normal", "orthogonal", "uniform", "zeros"])),
        "style": draw(st.sampled_from(["layer_function", "functions", "module", "autograd_function"])),
        "seed": draw(st.integers(0, 10)),
    }


@st.composite
def products(draw):
    """The matrix product written out in Python, about the limit of its steps."""
    rung = draw(st.sampled_from(["loops", "elementwise", "broadcasting", "einsum", "@"]))
    k, n = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    return {"program": "matmul", "rung": rung, "widths": f"{k},{n}", "batch": draw(st.integers(1, 300))}


@pytest.fixture(scope="module")
def server(serve):
    with serve(deadline_seconds=DEADLINE) as server:
        httpx.get(server.url + path(), timeout=60).raise_for_status()
        yield server


@pytest.mark.parametrize("kind", ["nets", "products"])
def test_specs_about_the_limits(server, figure, kind):
    statuses, seconds, used = Counter(), [0.0], [0.0]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(specs() if kind == "nets" else products(), st.sampled_from(["trace.json", "profile.json", "trace.dot"]))
    def ask(spec, form):
        server.forget_peak()
        before = server.rss_bytes
        start = time.monotonic()
        with httpx.Client(base_url=server.url, timeout=DEADLINE + 30) as client:
            answer = client.get(path(form, **spec))
        seconds.append(time.monotonic() - start)
        statuses[answer.status_code] += 1
        assert answer.status_code in (200, 422, 504), answer.text[:400]
        if answer.status_code == 200:
            # The process itself, the allocator's spare memory and the answer are not part of the estimate.
            estimate = estimate_cost(ModelSpec.parse(spec)).memory_bytes
            used.append((server.peak_bytes - before) / (estimate + 4 * len(answer.content) + 32 * MEBIBYTE))
        else:
            error = answer.json()["error"]
            if answer.status_code == 422:
                assert error["code"] in ("over_limit", "invalid_spec"), error
                assert "CHAINRULE_" in error["message"] or error["code"] == "invalid_spec", error

    ask()
    figure(f"{kind}: answered", statuses[200], f"of {sum(statuses.values())}", ">= 1")
    figure(f"{kind}: refused as over a limit", statuses[422], "", ">= 1")
    figure(f"{kind}: stopped at the deadline", statuses[504])
    figure(f"{kind}: slowest answer", max(seconds), "s", f"<= {DEADLINE + LATE}")
    figure(f"{kind}: memory ÷ estimate, at most", max(used), "", "<= 1")
    server.wait_idle(10)


def test_the_default_deadline(serve, figure):
    deadline = Settings.model_fields["deadline_seconds"].default
    with serve(max_flops=ENDLESS_FLOPS) as server:
        httpx.get(server.url + path(), timeout=60).raise_for_status()
        start = time.monotonic()
        answer = httpx.get(server.url + path(**ENDLESS), timeout=deadline + 30)
        took = time.monotonic() - start
        assert answer.status_code == 504, answer.text[:400]
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        figure("default deadline: answered after", took, "s", f"<= {deadline + LATE}")
        assert took >= deadline
        server.wait_idle(10)
