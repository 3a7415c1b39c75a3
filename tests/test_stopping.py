"""Stopped work ends within one layer and leaves nothing behind, and the next work is right."""

import gc
import threading

import pytest
import torch
from process_state import left_behind
from torch.utils._python_dispatch import TorchDispatchMode
from trace_rules import assert_same_trace

from chainrule.build import build_model
from chainrule.chapter.matmul import measure
from chainrule.chapter.pages import PAGES
from chainrule.diagnose.profile import profile
from chainrule.errors import DeadlineError, StoppedError
from chainrule.export.svg import to_svg
from chainrule.run import Retracer, tensor_values, trace_spec
from chainrule.spec import ModelSpec
from chainrule.stopping import Stop, check, current_stop, stoppable
from chainrule.trace import record

AS_IT_WAS = left_behind()
STYLES = ("functions", "classes", "layer_function", "autograd_function", "module")
DEPTH = 12
PASSES = {"forward": 4, "backward": DEPTH + 4}
"""The product of matrices during which work is asked to stop: one per layer on the way there, two on the way back."""


def net(style="module", **keys):
    return ModelSpec.parse({"widths": f"9x{DEPTH + 1}", "batch": 7, "activation": "tanh", "style": style, **keys})


class AskDuring(TorchDispatchMode):
    """Asks a stop, from a thread of its own, during the n-th call of an op, and counts those that are run after it.

    It stands below autograd and the recorder, and sees what is really computed.
    """

    def __init__(self, stop, n, ops=("mm", "addmm")):
        super().__init__()
        self.stop = stop
        self.n = n
        self.ops = ops
        self.seen = 0

    @property
    def after(self):
        return self.seen - self.n

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.ops:
            self.seen += 1
            if self.seen == self.n:
                asking = threading.Thread(target=self.stop.ask, args=(StoppedError("superseded"),))
                asking.start()
                asking.join()
        with torch._C.DisableTorchFunction():  # a repetition would take it for one of the program's calls
            return func(*args, **(kwargs or {}))


def stopped(work, *args, n, ops=("mm", "addmm")):
    """Stop work during its n-th op: the number of ops that ran after it, and the error."""
    stop = Stop()
    mode = AskDuring(stop, n, ops)
    with pytest.raises(StoppedError) as caught, mode, stoppable(stop):
        work(*args)
    assert caught.value is stop.error
    assert mode.seen >= n
    return mode.after, caught.value


@pytest.fixture
def new_tensors():
    """Lists the live tensors that the test made: the collector no longer visits what lived before."""
    gc.collect()
    gc.freeze()

    def listed():
        gc.collect()
        return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]

    return listed


def assert_nothing_is_left_behind(tensors=()):
    assert left_behind() == AS_IT_WAS
    for tensor in tensors:
        if tensor.is_leaf:
            assert tensor.grad is None
        assert getattr(tensor, "g", None) is None


@pytest.mark.smoke
def test_the_first_error_asked_for_counts():
    stop = Stop()
    stop.check()
    stop.ask(DeadlineError("late"))
    stop.ask(StoppedError("disconnected"))
    with pytest.raises(DeadlineError, match="late"):
        stop.check()


@pytest.mark.smoke
def test_a_stop_is_for_the_work_inside_its_block_alone():
    never, outer, inner = current_stop(), Stop(), Stop()
    with stoppable(outer):
        assert current_stop() is outer
        with stoppable(inner):
            inner.ask(StoppedError("shutdown"))
            with pytest.raises(StoppedError):
                check()
        check()
    assert current_stop() is never
    check()


@pytest.mark.smoke
def test_another_threads_work_goes_on():
    asked = Stop()
    asked.ask(StoppedError("disconnected"))
    traces = []
    with stoppable(asked):
        other = threading.Thread(target=lambda: traces.append(trace_spec(net())))
        other.start()
        other.join()
        with pytest.raises(StoppedError):
            trace_spec(net())
    assert_same_trace(traces[0], trace_spec(net()))


@pytest.mark.smoke
@pytest.mark.parametrize("during", PASSES)
@pytest.mark.parametrize("style", STYLES)
def test_a_stopped_recording_keeps_no_tensor(style, during, new_tensors):
    trace_spec(net(style))  # small draws are kept from here on
    before = len(new_tensors())
    _, error = stopped(trace_spec, net(style), n=PASSES[during])
    assert len(new_tensors()) == before, error


@pytest.mark.parametrize("during", PASSES)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("traced", [0, 1, 2], ids=["recorded", "repeated", "rescaled"])
def test_a_retracer_stops_within_one_layer_and_is_right_afterwards(style, during, traced, new_tensors):
    specs = [net(style, scale=scale) for scale in (0.5, 0.75, 1.5)]
    retracer = Retracer()
    for spec in specs[:traced]:
        retracer.trace(spec)
    before = len(new_tensors())
    after, error = stopped(retracer.trace, specs[traced], n=PASSES[during])
    # A layer's backward is two products, and by autograd both are of one node.
    assert after <= {"forward": 0, "backward": 1}[during]
    assert_nothing_is_left_behind(new_tensors())
    # A first recording leaves its model in the retracer.
    assert len(new_tensors()) <= before or not traced, error
    for spec in (specs[traced], net(style, scale=3.0), net(style, seed=5)):
        assert_same_trace(retracer.trace(spec), trace_spec(spec))


@pytest.mark.parametrize("rung", ["loops", "broadcasting"])
def test_a_program_of_many_steps_stops_between_them(rung):
    spec = ModelSpec.parse({"program": "matmul", "rung": rung, "widths": "3,4", "batch": 5})
    after, _ = stopped(trace_spec, spec, n=3, ops=("mul",))
    assert after == 0
    assert_nothing_is_left_behind()


def test_the_engine_may_call_the_hooks_in_any_thread():
    stop, weights, found = Stop(), [torch.randn(4, 4, requires_grad=True) for _ in range(6)], []

    def go_back(loss):
        try:
            loss.backward()
        except StoppedError as error:
            found.append(error)

    with stoppable(stop), record():
        x = torch.ones(2, 4)
        for weight in weights:
            x = torch.tanh(x @ weight)
        engine = threading.Thread(target=go_back, args=(x.sum(),))
        stop.ask(StoppedError("disconnected"))
        engine.start()
        engine.join()
    assert found == [stop.error]
    assert all(weight.grad is None for weight in weights)


def test_drawing_stops_between_two_tensors():
    spec = ModelSpec.parse({"widths": "200x5", "init": "orthogonal"})
    after, _ = stopped(build_model, spec, n=2, ops=("linalg_qr",))
    assert after == 0


@pytest.mark.parametrize(
    "work", [lambda trace: profile(trace), lambda trace: to_svg(trace), lambda _: tensor_values(net(), "l1")]
)
def test_work_on_a_trace_does_not_begin_after_a_stop(work):
    trace, asked = trace_spec(net()), Stop()
    asked.ask(StoppedError("disconnected"))
    with stoppable(asked), pytest.raises(StoppedError):
        work(trace)
    work(trace)


def test_a_race_stops_between_two_runs():
    stop, runs = Stop(), []

    def rung(a, b):
        runs.append(a @ b)
        if len(runs) == 3:
            stop.ask(StoppedError("disconnected"))
        return runs[-1]

    with stoppable(stop), pytest.raises(StoppedError):
        measure(lambda: rung(torch.ones(2, 2), torch.ones(2, 2)), budget=3600.0)
    assert len(runs) == 3


@pytest.mark.parametrize(
    ("page", "given", "op", "most"),
    [
        ("matmul", {}, "mul", 64 * 2),  # a piece of the loops: what is timed is not disturbed
        ("gradcheck", {}, "mm", 2),
        ("backward", {}, "mm", 3),  # the rest of one pass
        ("styles", {}, "mm", 3),  # of one style
        ("initialization", {"seed": "987"}, "mm", 50),  # one of the chapter's experiments
    ],
)
def test_a_page_of_the_chapter_stops_between_its_parts(page, given, op, most):
    whole = AskDuring(Stop(), 3, (op,))
    with whole:
        PAGES[page].ask(given)
    after, _ = stopped(PAGES[page].ask, given | ({"seed": "988"} if "seed" in given else {}), n=3, ops=(op,))
    assert after <= most < whole.after


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_no_page_of_the_chapter_answers_after_a_stop(page):
    values, asked = page.read({}), Stop()
    asked.ask(StoppedError("disconnected"))
    with stoppable(asked), pytest.raises(StoppedError):
        page.answer(values)
