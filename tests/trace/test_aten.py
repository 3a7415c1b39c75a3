"""The level `aten`: the ops of PyTorch's dispatcher inside each op, with the numbers of an unrecorded pass."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import chainrule
from chainrule.dump.wire import dump_trace, load
from chainrule.trace import Trace
from chainrule.trace import record as trace_record


class Block(nn.Module):
    """Attention and a residual, after a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).split(8, dim=2)
        return x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return 3 * x

    @staticmethod
    def backward(_context, gradient):
        return 3 * gradient


class Mixed(nn.Module):
    """In-place ops, a custom Function, a shared weight, a checkpoint and two readers of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x).mul_(0.5)
        hidden = F.relu(hidden, inplace=True)
        hidden = Scaled.apply(hidden) + hidden[:, [1, 0, 2, 3, 4, 5]]
        hidden = torch.utils.checkpoint.checkpoint(
            lambda each: torch.tanh(self.linear(each)), hidden, use_reentrant=False
        )
        return hidden / hidden.abs().max()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "layers": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), lambda: torch.randn(5, 6)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten()),
        lambda: torch.randn(3, 2, 8, 8),
    ),
    "attention": (lambda: nn.Sequential(Block(), nn.Dropout(0.3), Block()), lambda: torch.randn(2, 5, 8)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 6), nn.LSTM(6, 4, batch_first=True)),
        lambda: torch.randint(9, (2, 5)),
    ),
    "mixed": (Mixed, lambda: torch.randn(4, 6)),
}


def run(name: str, level: str | None) -> tuple[list[Tensor], Trace | None]:
    """The state after three steps of SGD, the last one recorded."""
    torch.manual_seed(0)
    make, draw = MODELS[name]
    model, x = make(), draw()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trace = None

    def step() -> None:
        optimizer.zero_grad()
        output = model(x)
        loss = (output[0] if isinstance(output, tuple) else output).square().mean()
        loss.backward()

    for number in range(3):
        if level is not None and number == 2:
            with chainrule.record(model, level=level) as recording:
                step()
            trace = recording.trace
        else:
            step()
        gradients = [each.grad.clone() for each in model.parameters()]
        optimizer.step()
    return [*gradients, *model.state_dict().values()], trace


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_stay_and_the_graph_holds(name):
    bare, _ = run(name, None)
    recorded, trace = run(name, "aten")
    assert all(torch.equal(a, b) for a, b in zip(bare, recorded, strict=True))
    assert load(dump_trace(trace)).ops == tuple(trace.ops)  # every id leads somewhere, and nothing in a circle
    _, outer = run(name, "op")
    assert trace.loss == outer.loss
    assert not trace.faults
    for tensor in outer.tensors:
        if tensor.role == "parameter" and f"{tensor.name}.g" in outer.tensor_by_name:
            a = outer.statistics[outer.tensor_by_name[f"{tensor.name}.g"].id]
            b = trace.statistics[trace.tensor_by_name[f"{tensor.name}.g"].id]
            assert (a.mean, a.std, a.norm, a.counts) == (b.mean, b.std, b.norm, b.counts)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_read_from_nowhere(name):
    """Every input of an op is made by an op, or is an input, a parameter, a buffer or a number."""
    _, trace = run(name, "aten")
    unknown = [
        (op.name, tensor.name, tensor.shape)
        for op in trace.ops
        for each in op.inputs
        if (tensor := trace.tensor_by_id[each]).producer is None
        and tensor.role not in ("input", "parameter", "buffer")
        and tensor.gradient_of is None
        and "int" not in tensor.dtype
        and tensor.shape != ()
    ]
    assert not unknown


def test_the_ops_of_a_function_stay_in_its_groups():
    _, trace = run("mixed", "aten")
    paths = {module.id: module.path for module in trace.modules}
    of_function = [(op.phase, paths[op.module]) for op in trace.ops if "Scaled" in paths[op.module]]
    assert of_function == [("forward", "Scaled.mul"), ("backward", "Scaled.mul_1")]


def test_an_op_is_a_group_of_its_aten_ops():
    _, trace = run("layers", "aten")
    paths = {module.id: module.path for module in trace.modules}
    forward = [(paths[op.module], op.name) for op in trace.ops if op.phase == "forward"]
    assert forward[:5] == [
        ("0.linear", "t"),
        ("0.linear", "addmm"),
        ("1.relu", "relu"),
        ("1.relu", "detach"),
        ("2.linear", "t"),
    ]
    backward = [op.name for op in trace.ops if op.phase == "backward" and paths[op.module] == "0.linear"]
    assert backward == ["t", "mm", "t", "sum", "view", "t"]
    layers = [(layer.preactivation, layer.weight) for layer in trace.layers]
    names = [[trace.tensor_by_id[each].name for each in layer] for layer in layers]
    assert names == [["0.linear.addmm", "0.weight"], ["2.linear.addmm", "2.weight"]]
    assert all(op.source is not None for op in trace.ops if op.phase == "forward")


def test_the_floating_point_operations_are_those_of_the_products():
    _, trace = run("layers", "aten")
    products = {
        op.phase: [each.flops for each in trace.ops if each.phase == op.phase and each.name in ("mm", "addmm")]
        for op in trace.ops
    }
    # (5 x 6) (6 x 8) + 8, (5 x 8) (8 x 3) + 3; back, without the gradient of x, one product of each size and one more.
    assert products["forward"] == [2 * 5 * 6 * 8 + 40, 2 * 5 * 8 * 3 + 15]
    assert products["backward"] == [2 * 5 * 3 * 8, 2 * 5 * 3 * 8, 2 * 5 * 8 * 6]
    assert all(op.flops <= 40 for op in trace.ops if op.name not in ("mm", "addmm"))


def test_attention_shows_its_kernel():
    """The plain way has a mask and a softmax that the op level does not show."""
    with sdpa_kernel(SDPBackend.MATH):
        _, trace = run("attention", "aten")
    groups = {module.id: module.path for module in trace.modules}
    inner = [op.name for op in trace.ops if groups[op.module] == "0.scaled_dot_product_attention"]
    assert inner.count("bmm") == 6
    assert [name for name in inner if "softmax" in name] == ["_safe_softmax", "_softmax_backward_data"]
    assert "tril" in inner


def test_the_sums_of_the_engine_are_no_aten_ops_of_a_node():
    _, trace = run("attention", "aten")
    groups = {module.id: module.path for module in trace.modules}
    places = [(groups[op.module], op.name) for op in trace.ops if op.phase == "backward"]
    assert ("2.norm.layer_norm", "add") not in places
    assert [place for place in places if place[0] == ""] == []
    assert [name for _, name in places].count("accumulate") == 1  # of the second block: x needs no gradient


def test_an_op_in_place_on_a_view_changes_the_whole():
    linear = nn.Linear(3, 4)
    with chainrule.record(linear, level="aten") as recording:
        whole = linear(torch.ones(2, 3)).clone()
        whole[:, 1:3].mul_(2)
        (whole * 1).sum().backward()
    trace = recording.trace
    changed = next(op for op in trace.ops if op.name == "mul")
    maker = next(op for op in trace.ops if changed.inputs[0] in op.outputs)
    assert maker.name == "mul_"


def test_an_operator_of_higher_order_runs_unrecorded():
    def run():
        x = torch.ones(3, requires_grad=True)
        torch.compiler.reset()
        result = torch.cond(x.sum() > 2, torch.sin, torch.cos, (x.detach(),))
        return x.detach() + result

    expected = run()
    with chainrule.record(level="aten") as recording:
        if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):  # torch 2.8 refuses them in a mode
            with pytest.raises(NotImplementedError, match="cond"):
                run()
            return
        found = run()
    assert torch.equal(found, expected)
    assert "add" in [op.name for op in recording.trace.ops]


def test_the_mode_ends_below_a_mode_that_was_entered_later():
    recording = chainrule.record(nn.Linear(2, 2), level="aten").start()
    counter = FlopCounterMode(display=False)
    counter.__enter__()
    recording.stop()
    assert _len_torch_dispatch_stack() == 1
    counter.__exit__(None, None, None)


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="level: 'cuda' is not one of op, aten"):
        chainrule.record(nn.Linear(2, 2), level="cuda")


def test_an_interrupt_while_a_leaf_is_recorded_stays_one():
    def interrupt(_, tensor):
        if tensor.numel() == 7:
            raise KeyboardInterrupt

    constant = torch.ones(7)
    with pytest.raises(KeyboardInterrupt), trace_record(level="aten", on_tensor=interrupt):
        constant.sum()


def test_a_failing_op_ends_the_group():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 3))
    recording = chainrule.record(net, level="aten")
    with pytest.raises(RuntimeError), recording:
        net(torch.ones(1, 2))
    assert recording.trace.error is not None
    with chainrule.record(net[0], level="aten") as again:
        net[0](torch.ones(1, 2)).sum().backward()
    assert not again.trace.has_faults
