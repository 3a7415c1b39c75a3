"""Custom autograd.Functions: modules with the ops of both passes; a broken backward is the op at fault."""

import pytest
import torch
from torch import nn
from torch.autograd.function import Function
from trace_rules import assert_gradient, assert_statistics, assert_twins, assert_well_formed, names_in

from chainrule.trace import record, trace_model


@pytest.mark.smoke
def test_a_backward_is_recorded_with_its_lines(functions, source_line):
    cube = functions.cube.apply
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    trace = trace_model(lambda x: cube(x).sum(), x)
    assert_well_formed(trace)
    assert_twins(trace)
    (module,) = [module for module in trace.modules if module.type == "Cube"]
    inside = [op for op in trace.ops if op.module == module.id]
    assert [op.name for op in inside if op.phase == "forward"] == ["mul", "mul"]
    backward = [op for op in inside if op.phase == "backward"]
    assert [op.name for op in backward] == ["mul", "mul", "mul"]
    for op in backward:
        assert op.source.text == source_line(op) == "return 3 * inp * inp * grad_output"
        assert op.source.function == "Cube.backward"
    assert trace.tensor_by_name["input.g"].producer == backward[-1].id
    assert_gradient(trace, "input", torch.tensor([3.0, 12.0]))
    assert [trace.tensor_by_id[saved.tensor].name for saved in trace.saved] == ["input"]


class AddOne(Function):
    @staticmethod
    def forward(ctx, inp):
        ctx.mark_dirty(inp)
        return inp.add_(1)

    @staticmethod
    def backward(_ctx, grad_output):
        return grad_output


class Reverse(Function):
    """Returns a view of its input."""

    @staticmethod
    def forward(_ctx, inp):
        return inp.view_as(inp)

    @staticmethod
    def backward(_ctx, grad_output):
        return -grad_output


class Double(Function):
    @staticmethod
    def forward(inp):
        return inp * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(_ctx, grad_output):
        return grad_output * 2


@pytest.mark.parametrize(
    ("program", "gradient"),
    [
        # The backward of Reverse turns d/dx (2x + 1)² around.
        (lambda x, _: (Reverse.apply(AddOne.apply(x * 2)) ** 2).sum(), lambda x: -4 * (2 * x + 1)),
        (lambda x, _: Double.apply(x).sum(), lambda x: torch.full_like(x, 2.0)),
        (lambda x, f: f.cube.apply(f.cube.apply(x)).sum(), lambda x: 9 * x**8),
        (lambda x, f: f.numpy_sine.apply(x).sum(), torch.cos),
        (lambda x, f: f.sum_and_difference.apply(x, torch.ones(2), 2.0)[1].sum(), lambda x: torch.full_like(x, 2.0)),
    ],
    ids=["in place and handed through", "setup_context", "twice", "numpy", "one output unused"],
)
def test_the_gradient_is_the_one_that_the_function_gives(functions, program, gradient):
    x = torch.tensor([1.0, -1.5], requires_grad=True)
    trace = trace_model(lambda x: program(x, functions), x)
    assert_well_formed(trace)
    assert torch.allclose(x.grad, gradient(x.detach()))
    assert_gradient(trace, "input", x.grad)


@pytest.mark.parametrize("asks", [True, False], ids=["both ask", "one gradient is None"])
def test_two_outputs_and_two_inputs(functions, asks):
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=asks)

    def program(a, b):
        total, difference = functions.sum_and_difference.apply(a, b, 0.5)
        return (total * difference).sum()

    trace = trace_model(program, a, b)
    assert torch.allclose(a.grad, a.detach() / 2)
    assert_gradient(trace, "input", a.grad)
    assert_gradient(trace, "input_1", b.grad)


class SavesBoth(Function):
    """Saves its two outputs; autograd hands each back as another tensor object."""

    @staticmethod
    def forward(ctx, inp):
        sin, cos = inp.sin(), inp.cos()
        ctx.save_for_backward(sin, cos)
        return sin, cos

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        sin, cos = ctx.saved_tensors
        return grad_sin * cos - grad_cos * sin


def test_a_saved_output_is_the_same_tensor_in_the_backward():
    x = torch.randn(4, 3, requires_grad=True)
    with record(leaves={"x": x}) as recording:
        sin, cos = SavesBoth.apply(x)
        (sin * cos).sum().backward()
    trace = recording.trace
    assert [tensor.name for tensor in trace.tensors if tensor.producer is None] == ["x", "sum.g"]
    sine, cosine = (next(op for op in trace.ops if op.name == name).outputs[0] for name in ("sin", "cos"))
    first, second = (op for op in trace.ops if op.name == "mul" and op.phase == "backward")
    assert (first.inputs[1], second.inputs[1]) == (cosine, sine)
    assert {saved.tensor for saved in trace.saved} == {sine, cosine}


class Broken(Function):
    """Doubles; its backward fails in the way `how`."""

    @staticmethod
    def forward(ctx, x, how):
        ctx.how = how
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        if ctx.how == "raises":
            raise ValueError("no gradient today")
        if ctx.how == "raises after an op":
            doubled = gradient * 2
            raise ValueError(f"no gradient today: {tuple(doubled.shape)}")
        if ctx.how == "raises in an op":
            return gradient @ torch.ones(7), None
        if ctx.how == "too many":
            return gradient * 2, None, gradient
        if ctx.how == "another shape":
            return gradient.repeat(5, 5), None
        return gradient * 2, None


def op_at_fault(trace):
    return next(op for op in trace.ops if op.id == trace.error.op)


NO_MORE = 'raise ValueError("no gradient today")'
NO_MORE_AFTER = 'raise ValueError(f"no gradient today: {tuple(doubled.shape)}")'


@pytest.mark.parametrize(
    ("how", "line", "shape"),
    [
        ("raises", NO_MORE, (2, 3)),
        ("raises", NO_MORE, (1, 1)),
        ("raises after an op", NO_MORE_AFTER, (2, 3)),
        ("raises after an op", NO_MORE_AFTER, (1, 1)),
        ("too many", None, (2, 3)),
        ("too many", None, (1, 1)),
        ("another shape", None, (2, 3)),
    ],
)
def test_a_broken_backward_is_the_op_at_fault(how, line, shape):
    x = torch.randn(shape, requires_grad=True)

    def step():
        y = Broken.apply(torch.tanh(x), how)
        # A single element is the loss itself: nothing has gone back before.
        (y if y.numel() == 1 else y.mean()).backward()

    with pytest.raises((ValueError, RuntimeError)), record() as recording:
        step()
    trace = recording.trace
    op = op_at_fault(trace)
    (forward,) = (each for each in trace.ops if each.name == "mul" and each.phase == "forward")
    assert (op.name, op.phase, op.twin, op.outputs) == ("BrokenBackward", "backward", forward.id, ())
    assert op.module == forward.module
    assert [trace.tensor_by_id[each].gradient_of for each in op.inputs] == [forward.outputs[0]]
    assert (None if op.source is None else op.source.text) == line
    assert op is trace.ops[-1]


def test_an_op_that_fails_in_a_backward_is_the_op_at_fault(functions):
    x = torch.randn(3, requires_grad=True)
    trace = trace_model(lambda x: Broken.apply(functions.cube.apply(x), "raises in an op").sum(), x)
    assert_well_formed(trace)
    failed = op_at_fault(trace)
    assert (failed.phase, failed.name) == ("backward", "matmul")
    assert failed.source.function.endswith("Broken.backward")
    assert trace.module_by_id[failed.module].type == "Broken"
    assert "SumBackward0" in names_in(trace, "backward")
    assert x.grad is None


class Catches(Function):
    """Catches an error of an inner backward, and may then raise another."""

    @staticmethod
    def forward(ctx, x, raises):
        ctx.raises = raises
        return x + 1

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            inner = Broken.apply(torch.ones(2, 3, requires_grad=True), "raises").sum()
        with pytest.raises(ValueError, match="no gradient today"):
            inner.backward()
        if ctx.raises:
            raise LookupError
        return gradient, None


def test_a_broken_backward_that_is_caught_is_not_at_fault():
    x = torch.randn(2, 3, requires_grad=True)
    with record() as recording:
        Catches.apply(x, False).sum().backward()
    assert recording.trace.error is None
    assert x.grad is not None

    def step():
        with pytest.raises(ValueError, match="no gradient today"):
            Broken.apply(x, "raises").sum().backward()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), record() as recording:
        step()
    assert recording.trace.error.op is None


def test_a_function_that_raises_after_it_caught_another_error_is_at_fault():
    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(LookupError), record() as recording:
        Catches.apply(x, True).sum().backward()
    op = op_at_fault(recording.trace)
    assert (op.name, op.source.text) == ("CatchesBackward", "raise LookupError")


def test_a_finished_backward_is_not_at_fault_for_a_later_error():
    x = torch.randn(2, 3, requires_grad=True)

    def step():
        y = torch.exp(x)
        z = Broken.apply(y, "works")
        y.add_(1)
        z.sum().backward()

    with pytest.raises(RuntimeError, match="inplace operation"), record() as recording:
        step()
    assert recording.trace.error.op is None
    assert "SumBackward0" in names_in(recording.trace, "backward")


class Hand(Function):
    """2x; its backward multiplies too."""

    @staticmethod
    def forward(_ctx, x):
        return x * 2

    @staticmethod
    def backward(_ctx, gradient):
        return gradient * 2


@pytest.mark.parametrize("first", ["function", "layer", "two functions"])
def test_a_sum_gives_each_operand_a_gradient_of_its_own(first):
    """AddBackward0 hands one tensor object to both: the backward of a Function reads the gradient of its own output."""
    layer, x = nn.Linear(3, 3), torch.randn(4, 3, requires_grad=True)
    sums = {
        "function": lambda: Hand.apply(x) + layer(x),
        "layer": lambda: layer(x) + Hand.apply(x),
        "two functions": lambda: Hand.apply(layer(x)) + Hand.apply(x),
    }
    made = sums[first]()
    (expected,) = torch.autograd.grad(made.square().sum(), made)
    with record(layer) as recording:
        sums[first]().square().sum().backward()
    trace = recording.trace
    assert_well_formed(trace)
    assert_twins(trace)
    ops = {op.id: op for op in trace.ops}
    reads = [op for op in trace.ops if op.phase == "backward" and op.twin is not None and op.name == "mul"]
    assert len(reads) == 1 + (first == "two functions")
    for op in reads:
        (gradient,) = op.inputs
        assert trace.tensor_by_id[gradient].gradient_of == ops[op.twin].outputs[0]
        assert_statistics(trace, gradient, expected)
    (add,) = [op for op in trace.ops if op.name == "add"]
    (back,) = [op for op in trace.ops if op.twin == add.id]
    assert [trace.tensor_by_id[each].gradient_of for each in back.outputs] == list(add.inputs)
    # Each is read by the backward of its own operand's op.
    readers = [ops[reader].twin for each in back.outputs for reader in trace.tensor_by_id[each].consumers]
    assert readers == [trace.tensor_by_id[each].producer for each in add.inputs]
