"""The dumps of many programs, to compare the compiled observer with the one in Python: as JSON, if run as a script."""

import importlib.util
import json
import sys
import threading
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.autograd.function import Function
from torch.nn import functional as F  # noqa: N812 (its usual name)

from chainrule.dump.wire import dump_trace
from chainrule.errors import ChainruleError
from chainrule.stopping import Stop, stoppable
from chainrule.trace import record, trace_model

TESTS = Path(__file__).parents[1]


def module_at(path):
    """A Python file that is not on the path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recorded(run, model=None, **options):
    """The trace of a program that may raise."""
    with suppress(RuntimeError, ValueError), record(model, **options) as recording:
        run()
    return recording.trace


def op_that_fails():
    x = torch.ones(2, 3, requires_grad=True)
    (x @ x.t()).relu() @ torch.ones(5, 5)


def op_that_fails_and_is_caught():
    x = torch.ones(3, requires_grad=True)
    try:
        x.view(7)
    except RuntimeError:
        (x * 2).sum().backward()


class Sequenced(list):
    """A list whose length is not the number of its elements."""

    def __len__(self):
        return 0


def forward_without_call():
    """No hook sees these modules; the second line is in torch's own file alone."""
    layer, x = nn.Linear(3, 3), torch.ones(2, 3)
    torch.stack(Sequenced([layer.forward(x), layer(x)])).sum().backward()


class Broken(Function):
    """Its backward raises, after an op."""

    @staticmethod
    def forward(_ctx, x):
        return x * 2

    @staticmethod
    def backward(_ctx, gradient):
        raise ValueError(f"no gradient of {tuple((gradient * 2).shape)}")


def backward_that_fails():
    x = torch.ones(3, requires_grad=True)
    Broken.apply(x.exp()).sum().backward()


def double_backward():
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    (gradient,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    (gradient.square().sum() + x.sum()).backward()


def written_through_a_view():
    x = torch.zeros(4, 3)
    y = torch.ones(4, 3, requires_grad=True) * 2
    y[1:3].mul_(3)
    x[0] = 5
    (y + x).sum().backward()


def without_gradients():
    with torch.no_grad():
        x = torch.arange(6.0).reshape(2, 3)
        torch.add(x, 1, out=torch.empty(2, 3)).t().contiguous()
    with torch.inference_mode():
        torch.ones(3).add_(1).max(dim=0)


def arguments_of_all_kinds():
    x = torch.linspace(-2, 2, 24).reshape(2, 3, 4).requires_grad_()
    parts = x.transpose(0, 1).split([1, 2], dim=0)
    joined = torch.cat([part.reshape(-1) for part in parts], dim=0).clamp(min=-1.5, max=float("inf"))
    picked = torch.where(joined > 0, joined, joined.double().to(torch.float32) * 0.5)[::2][None, ..., 1:]
    torch.einsum("ij,ij->i", picked, picked).sum().backward()


def shared_and_detached():
    layer = nn.Linear(3, 3)
    x = torch.ones(2, 3)
    hidden = layer(layer(x).tanh())
    loss = F.mse_loss(hidden, hidden.detach().roll(1, 0)) + layer.weight.square().sum()
    loss.backward()
    loss = (layer(x) * layer.weight.grad.sum()).sum()
    loss.backward()


def several_passes():
    x = torch.ones(3, 3, requires_grad=True)
    y = x.relu().sum(0)
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    x.register_hook(lambda gradient: gradient * 2)
    y.prod().backward()


def another_thread():
    layer = nn.Linear(4, 4)
    thread = threading.Thread(target=lambda: layer(torch.ones(2, 4)).sum().backward())
    thread.start()
    thread.join()
    layer(torch.ones(2, 4)).relu().sum().backward()


def two_threads_at_once():
    """Each thread records its own pass."""
    traces = {}
    barrier = threading.Barrier(2)

    def train(width):
        weight = torch.ones(width, width, requires_grad=True)

        def run():
            for _ in range(20):
                barrier.wait()
                torch.ones(3, width).matmul(weight).relu().sum().backward()

        with record() as recording:
            run()
        traces[width] = recording.trace

    threads = [threading.Thread(target=train, args=(width,)) for width in (2, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [traces[2], traces[30]]


def stopped():
    stop = Stop()
    layer = nn.Linear(3, 3)
    with suppress(ChainruleError), stoppable(stop), record(layer) as recording:
        out = layer(torch.ones(1, 3))
        stop.ask(ChainruleError("enough"))
        out.sum()
    return recording.trace


PLAIN = (
    op_that_fails,
    op_that_fails_and_is_caught,
    forward_without_call,
    backward_that_fails,
    double_backward,
    written_through_a_view,
    without_gradients,
    arguments_of_all_kinds,
    shared_and_detached,
    several_passes,
    another_thread,
)


def traces():
    """Name and trace of every program."""
    models = module_at(TESTS.parent / "bench" / "models.py")
    for name in ("M1", "M2"):
        case = models.case(name)
        yield name, trace_model(case.model, case.x, loss=case.loss)
    conftest = module_at(TESTS / "trace" / "conftest.py")
    for make in conftest.PROGRAM_BY_NAME.values():
        conftest.make_program(make).run()  # modules of torch that it imports may compute something
        for level in ("op", "aten"):
            program = conftest.make_program(make)
            yield f"{make.__name__}, level {level}", recorded(program.run, program.model, level=level)
    for run in PLAIN:
        torch.manual_seed(0)
        yield run.__name__, recorded(run)
    layer = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    yield "forward of a module", recorded(lambda: layer[1].forward(layer[0].forward(torch.ones(1, 3))), layer)
    yield "an activation of several ops", recorded(op_that_fails, activations={"": "gelu"})
    for number, trace in enumerate(two_threads_at_once()):
        yield f"thread {number}", trace
    yield "stopped", stopped()


def dumps():
    """The dump of every program, without the times."""
    found = {}
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # it also fills memory that ops have not written, which is recorded too
    for name, trace in traces():
        found[name] = json.loads(dump_trace(trace))
        del found[name]["timing"]
    torch.use_deterministic_algorithms(deterministic)
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))  # sums depend on it in their last bits
    json.dump(dumps(), sys.stdout)
