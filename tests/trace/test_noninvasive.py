"""The observer does not alter the observed: bit by bit the same results, and nothing left behind."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from process_state import left_behind, random_state
from torch import nn
from torch.autograd.function import Function
from torch.overrides import handle_torch_function, wrap_torch_function
from torch.utils._python_dispatch import TorchDispatchMode
from trace_rules import assert_twins, assert_well_formed

import chainrule
from chainrule.trace import record


def results(program):
    """All visible results of a program."""
    values = {f"result {name}": value.detach().clone() for name, value in program.run().items()}
    if isinstance(program.model, nn.Module):
        for name, parameter in program.model.named_parameters():
            values[f"parameter {name}"] = parameter.detach().clone()
            if parameter.grad is not None:
                values[f"gradient {name}"] = parameter.grad.clone()
        for name, buffer in program.model.named_buffers():
            values[f"buffer {name}"] = buffer.clone()
    return values


def as_bits(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.contiguous().flatten().view(torch.uint8).tolist()


@pytest.mark.smoke
def test_results_and_random_numbers_are_bit_identical(program):
    bare = results(program())
    state = random_state()

    observed = program()
    with record(observed.model) as recording:
        recorded = results(observed)

    assert random_state() == state
    assert recorded.keys() == bare.keys()
    for name, value in bare.items():
        assert as_bits(recorded[name]) == as_bits(value), name
    assert len(recording.trace.ops) > 0
    assert_well_formed(recording.trace)
    assert_twins(recording.trace)


def lazy():
    model = nn.LazyLinear(3)
    model(torch.randn(2, 4)).sum().backward()
    return model.weight.grad


def sparse_embedding():
    table = nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 2, 2])).sum().backward()
    return table.weight.grad.to_dense()


def packed_sequence():
    gru = nn.GRU(3, 4)
    gru(nn.utils.rnn.pack_sequence([torch.randn(3, 3), torch.randn(2, 3)]))[1].sum().backward()
    return gru.weight_ih_l0.grad


def second_order_optimizer():
    weight = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight])

    def closure():
        optimizer.zero_grad()
        loss = ((weight - 3) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach()


def hessian():
    return torch.autograd.functional.hessian(lambda x: (x**3).sum(), torch.randn(2))


def derivatives():
    x = torch.randn(5)
    forward = torch.func.jvp(lambda x: x**2, (x,), (x,))[1]
    return torch.stack([forward, *torch.func.jacrev(torch.func.jacrev(torch.tanh))(x).flatten(0, 1)])


def copies_and_prints():
    model = copy.deepcopy(nn.Linear(2, 2))
    pickle.loads(pickle.dumps(model))
    x = torch.ones(1, 2)
    assert f"{model(x)} {x.sum():.2f} {float(x[0, 0])}".endswith("2.00 1.0")
    return sum(row.sum() for row in model(x))


RARE = (lazy, sparse_embedding, packed_sequence, second_order_optimizer, hessian, derivatives, copies_and_prints)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning")
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
@pytest.mark.parametrize("run", RARE, ids=lambda run: run.__name__)
def test_rarer_parts_of_torch_give_the_same_numbers(run):
    torch.manual_seed(8)
    bare = run()
    torch.manual_seed(8)
    with record() as recording:
        recorded = run()
    assert as_bits(recorded.detach()) == as_bits(bare.detach())
    assert_well_formed(recording.trace)


@pytest.mark.smoke
def test_nothing_is_left_behind(program):
    made = program()
    before = left_behind()
    with record(made.model):
        made.run()
    assert left_behind() == before
    if isinstance(made.model, nn.Module):
        for part in made.model.modules():
            assert not [key for key in vars(part) if "chainrule" in key]
        for tensor in (*made.model.parameters(), *made.model.buffers()):
            assert tensor.__dict__ == {}


class Broken(Function):
    @staticmethod
    def forward(_ctx, inp):
        return inp * 2

    @staticmethod
    def backward(_ctx, _grad_output):
        raise LookupError("no gradient today")


def after_a_pass():
    1 / (nn.Linear(3, 2)(torch.randn(4, 3)).sum().backward() or 0)


def in_an_op():
    nn.Linear(3, 2)(torch.randn(4, 5))


def in_a_backward():
    Broken.apply(nn.Linear(3, 2)(torch.randn(4, 3))).sum().backward()


def by_the_user():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        (after_a_pass, ZeroDivisionError),
        (in_an_op, RuntimeError),
        (in_a_backward, LookupError),
        (by_the_user, KeyboardInterrupt),
    ],
)
def test_nothing_is_left_behind_when_the_block_raises(fails, error):
    before = left_behind()
    with pytest.raises(error), record():
        fails()
    assert left_behind() == before


def test_no_hook_is_left_on_a_graph_that_lives_on():
    weight = nn.Parameter(torch.randn(4, 4))
    with record():
        hidden = torch.tanh(torch.randn(5, 4) @ weight @ weight.t())
        loss = hidden.square().mean()
        loss.backward(retain_graph=True)
    seen, pending = set(), [loss.grad_fn]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        handle = node.register_hook(lambda *_: None)
        assert len(handle.hooks_dict_ref()) == 1, node.name()  # this one
        pending += [target for target, _ in node.next_functions if target is not None]
    assert len(seen) > 6


def test_functions_of_the_program_are_released():
    def run():
        large = torch.randn(100)

        @wrap_torch_function(lambda inp: (inp,))
        def scaled(inp):
            return inp * large[0]

        with record() as recording:
            scaled(torch.ones(3))
        assert "scaled" in [op.name for op in recording.trace.ops]
        return weakref.ref(large)

    reference = run()
    gc.collect()
    assert reference() is None


def test_a_callable_without_a_hash_is_an_op_too():
    class Doubled:
        __hash__ = None

        def __call__(self, inp):
            return inp * 2

    with record() as recording:
        out = handle_torch_function(Doubled(), (torch.ones(2),), torch.ones(2))
    assert out.tolist() == [2, 2]
    assert "Doubled" in [op.name for op in recording.trace.ops]


def test_no_tensor_is_kept_alive():
    gc.collect()
    gc.disable()
    try:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        watched = []
        with record(model) as recording:
            x = torch.randn(3, 4)
            hidden = model[1](model[0](x))
            out = model[2](hidden)
            loss = out.square().mean()
            watched += [weakref.ref(tensor) for tensor in (hidden, out, loss)]
            del hidden, out
            loss.backward()
            del loss
            assert [reference() for reference in watched] == [None] * 3
        watched.append(weakref.ref(x))
        del x
        watched += [weakref.ref(parameter) for parameter in model.parameters()]
        watched.append(weakref.ref(model))
        trace = recording.trace
        del recording, model
        assert [reference() for reference in watched] == [None] * len(watched)
        assert len(trace.ops) > 0
    finally:
        gc.enable()


def test_a_loop_that_drops_its_values_holds_few_of_them():
    alive = weakref.WeakSet()
    most = 0
    with record() as recording:
        x = torch.ones(4)
        for _ in range(400):
            x = x * 1.001
            alive.add(x)
            most = max(most, len(alive))
        del x
    assert recording.trace.error is None
    assert most < 100
    assert len(alive) == 0


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def train_a_layer():
    torch.manual_seed(0)
    F.mse_loss(nn.Linear(4, 2)(torch.randn(5, 4)), torch.randn(5, 2)).backward()


def save_an_output():
    torch.ones(4, 4, requires_grad=True).mul(2).relu().sum().backward()


@pytest.mark.parametrize("program", [train_a_layer, save_an_output])
def test_a_dispatch_mode_of_the_program_sees_only_the_programs_ops(program):
    def run():
        with Log() as log:
            program()
        return log.seen

    bare = run()
    with record():
        recorded = run()
    assert recorded == bare


def test_torch_still_refuses_a_backward_inside_a_function_transform():
    def inner(inp):
        weight = torch.ones(3, requires_grad=True)
        (weight * 2).sum().backward()
        return (inp * inp).sum()

    with record(), pytest.raises(RuntimeError, match="functorch transform"):
        torch.func.grad(inner)(torch.randn(3))


def test_a_saved_tensor_hook_of_the_program_sees_the_same_tensors():
    x = torch.randn(5, 4, requires_grad=True)

    def run():
        packed, unpacked = [], []

        def pack(tensor):
            packed.append(tuple(tensor.shape))
            return tensor

        def unpack(tensor):
            unpacked.append(tuple(tensor.shape))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = (x * x).tanh().sum()
        assert unpacked == []
        loss.backward()
        return packed, unpacked

    bare = run()
    with record():
        assert run() == bare


@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode])
def test_a_pass_without_gradients(grad_mode):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    x = torch.randn(2, 3)
    with grad_mode():
        bare = model(x)
        with record(model) as recording:
            recorded = model(x)
    assert torch.equal(bare, recorded)
    assert not recorded.requires_grad
    assert [op.name for op in recording.trace.ops] == ["linear", "relu"]
    assert all(op.phase == "forward" for op in recording.trace.ops)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
def test_anomaly_detection_still_works():
    x = torch.tensor([-1.0], requires_grad=True)
    with torch.autograd.detect_anomaly():
        with record() as recording, pytest.raises(RuntimeError, match="SqrtBackward0"):
            x.sqrt().sum().backward()
        assert [op.name for op in recording.trace.ops if op.phase == "forward"] == ["sqrt", "sum"]


def test_a_view_that_autograd_refuses_to_tell_of_breaks_nothing():
    """A view of a parameter, made and written to without gradients, as in initializations."""
    layer = nn.Linear(4, 4)
    with chainrule.record(layer) as recording:
        embedding = nn.Embedding(5, 4, padding_idx=0)
        nn.init.orthogonal_(layer.weight)
        with torch.no_grad():
            layer.weight[:1].zero_()
        layer(embedding(torch.tensor([1, 2]))).sum().backward()
    assert recording.trace.error is None
    assert not layer.weight[0].any()
