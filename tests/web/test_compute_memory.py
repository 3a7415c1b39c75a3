"""Memory kept by live sockets: below the limit, least recently used first."""

import gc
import tracemalloc

import pytest

from chainrule.run import Retracer, trace_spec
from chainrule.spec import ModelSpec
from chainrule.web.compute import KeptMemory
from chainrule.web.live_messages import Shown, show


class Keeper:
    def __init__(self, size=0):
        self.kept_bytes = size

    def forget(self):
        self.kept_bytes = 0


def use(kept, keeper, size):
    with kept.using(keeper):
        keeper.kept_bytes = size


def test_the_least_recently_used_forgets_first():
    kept, (a, b, c, large) = KeptMemory(10), (Keeper() for _ in range(4))
    for each in (a, b, a, c):
        use(kept, each, 4)
    assert [each.kept_bytes for each in (a, b, c)] == [4, 0, 4]
    assert kept.bytes == 8
    # One above the limit keeps nothing.
    use(kept, large, 11)
    assert ([each.kept_bytes for each in (a, c, large)], kept.bytes) == ([0, 0, 0], 0)


def test_a_tracer_at_work_forgets_nothing():
    kept, busy, other = KeptMemory(10), Keeper(), Keeper()
    use(kept, busy, 8)
    with kept.using(busy):
        use(kept, other, 8)
        kept.forget_all()
        assert (busy.kept_bytes, other.kept_bytes) == (8, 0)
    assert kept.bytes == 8


def test_a_tracer_that_leaves_is_not_counted():
    kept, keeper, early = KeptMemory(10), Keeper(), Keeper()
    use(kept, keeper, 5)
    kept.leave(keeper)
    assert kept.bytes == 0
    with kept.using(keeper):
        keeper.kept_bytes = 5
        kept.leave(keeper)
    kept.leave(early)
    use(kept, early, 5)
    assert kept.bytes == 0
    use(kept, Keeper(), 10)
    assert kept.bytes == 10


def test_tracers_share_the_limit_and_trace_the_same():
    # 100x11: ten weights of 100 × 100 floats are 400 kB; x and y are 160 kB with a batch of 200.
    spec = ModelSpec(widths="100x11", style="functions")
    kept, tracers = KeptMemory(3_000_000), [Retracer() for _ in range(8)]
    expected = {scale: trace_spec(spec.replace(scale=scale)) for scale in (0.5, 1.0, 2.0)}
    for scale, trace in expected.items():
        for tracer in tracers:
            with kept.using(tracer):
                again = tracer.trace(spec.replace(scale=scale))
            assert (again.statistics.counts == trace.statistics.counts).all()
            assert (again.ops, again.tensors, again.loss) == (trace.ops, trace.tensors, trace.loss)
            assert sum(each.kept_bytes for each in tracers) == kept.bytes <= 3_000_000
    assert tracers[-1].kept_bytes >= 560_000
    assert tracers[0].kept_bytes == 0
    kept.forget_all()
    assert sum(each.kept_bytes for each in tracers) == 0


def large(style):
    return {"widths": "16x33", "activation": "gelu", "style": style}


@pytest.mark.parametrize(
    "values",
    [
        large("layer_function"),
        *(pytest.param(large(each), marks=pytest.mark.long) for each in ("functions", "autograd_function", "module")),
        pytest.param({"program": "matmul", "rung": "loops", "batch": 4, "widths": "8,8"}, marks=pytest.mark.long),
    ],
    ids=lambda values: values.get("style") or values["program"],
)
def test_kept_bytes_are_an_upper_bound_and_forget_frees_them(values):
    """Tensor memory is known; tracemalloc measures Python's."""
    spec = ModelSpec.parse(values)

    def traced():
        tracer = Retracer()
        for each in (spec, spec.replace(scale=2.0) if spec.is_net else spec):
            tracer.trace(each)
        return tracer

    traced()  # what is made once, for all tracers
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracers = [traced() for _ in range(2)]
        gc.collect()
        kept = (tracemalloc.get_traced_memory()[0] - before) / 2
        told = tracers[0].kept_bytes - tracers[0]._net.kept_bytes
        assert 200_000 < kept <= told <= 1.5 * kept
        for tracer in tracers:
            tracer.forget()
            assert tracer.kept_bytes == 0
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 0.05 * 2 * kept
    finally:
        tracemalloc.stop()


# The graph that a socket has sent ------------------------------------------------------------------
def test_a_sent_graph_is_recognized_by_its_digest():
    tracer, shown, sent = Retracer(), Shown(), []
    for values in ({}, {"scale": 2}, {"batch": 50}, {"batch": 50, "seed": 1}, "forget", {"batch": 50}, {}):
        if values == "forget":
            tracer.forget()
            continue
        trace = tracer.trace(ModelSpec.parse(values))
        shown, message = show(trace, tracer.recording, shown)
        # A tracer that cannot say what it repeats is as good, only slower.
        assert show(trace, None, shown) == (Shown(shown.number, None, shown.digest), None)
        sent.append((shown.number, message is not None))
    assert sent == [(1, True), (1, False), (2, True), (2, False), (2, False), (3, True)]
