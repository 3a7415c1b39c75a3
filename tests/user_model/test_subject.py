"""Checks of what a factory returns, and copies of subjects."""

import functools
import math
import threading
import warnings
from collections import UserDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.utils import weight_norm
from torch.nn.utils.rnn import pack_sequence

from chainrule.errors import ExploreError, MemoryLimitError
from chainrule.user_model.copies import copied_subject
from chainrule.user_model.subject import Subject, check_subject, make_subject, scalar_loss

NET = nn.Linear(3, 2)
X = torch.randn(4, 3)


def refused(made, **options):
    with pytest.raises(ExploreError) as caught:
        make_subject(made, "make", place="model.py:12", **options)
    message = caught.value.message
    assert message.startswith("model.py:12: ")
    assert "\n" not in message
    return message.removeprefix("model.py:12: ")


# --------------------------------------------------------------------------------------------------- what is returned
def test_inputs_are_a_tensor_a_tuple_or_a_dict():
    assert make_subject((NET, X), "make").args == (X,)
    assert make_subject([NET, (X,)], "make").args == (X,)
    by_name = make_subject((NET, {"input": X}), "make")
    assert by_name.args == ()
    assert by_name.kwargs == {"input": X}
    assert make_subject((NET, UserDict(input=X)), "make").kwargs == {"input": X}
    packed = pack_sequence([torch.randn(3, 3), torch.randn(2, 3)])
    assert make_subject((nn.LSTM(3, 2), (packed,)), "make").args == (packed,)
    assert "PackedSequence" in refused((nn.LSTM(3, 2), packed))
    assert make_subject((torch.compile(NET, backend="eager"), X), "make").model is NET


def test_an_optimizer_comes_last_and_its_copy_holds_the_copied_parameters():
    optimizer = torch.optim.SGD(NET.parameters(), 0.1)
    assert make_subject((NET, X, None, optimizer), "make").optimizers == (optimizer,)
    subject = make_subject((NET, X, torch.sum, [optimizer]), "make")
    copied = copied_subject(subject)
    (held,) = copied.optimizers[0].param_groups
    assert [each is own for each, own in zip(held["params"], copied.model.parameters(), strict=True)] == [True, True]
    assert [each is own for each, own in zip(optimizer.param_groups[0]["params"], NET.parameters(), strict=True)] == [
        True
    ] * 2


WANTED = "expected (model, inputs), (model, inputs, loss_fn) or (model, inputs, loss_fn, optimizer)"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, f"make returned None; {WANTED}"),
        ((NET, X, None, None, 3), "make returned a tuple of 5; expected"),
        ((NET, X, None, 3), "make: the optimizer is of type int; expected a torch.optim.Optimizer or a list of them"),
        ((torch.sin, X), f"for the model; {WANTED}, where model is a torch"),
        (
            (NET, [X]),
            "make returned a list of 1 (a tensor of shape (4, 3)) for the inputs; expected a tensor, a tuple",
        ),
        ((NET, {0: X}), "make returned a dict of 0 for the inputs; expected a tensor"),
        ((NET, X, 0.5), "make returned 0.5 for the loss; expected (model, inputs)"),
    ],
)
def test_a_bad_return_value_is_described(made, message):
    assert message in refused(made)


def test_inputs_that_forward_does_not_take_are_refused():
    said = refused((NET, (X, X)))
    wanted = "Linear.forward(input: torch.Tensor) -> torch.Tensor does not take these inputs"
    assert said == f"{wanted}: too many positional arguments"
    assert refused((NET, {"x": X})).endswith("does not take these inputs: missing a required argument: 'input'")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            nn.CrossEntropyLoss(),
            "the loss, CrossEntropyLoss(input: torch.Tensor, target: torch.Tensor) -> torch.Tensor, gets only the "
            "output: missing a required argument: 'target'; bind the other arguments: "
            "lambda output: loss(output, target)",
        ),
        (nn.functional.mse_loss, "the loss, mse_loss(input: torch.Tensor, target: torch.Tensor, size_average"),
        (lambda: 0, "gets only the output: too many positional arguments"),
        (nn.MSELoss, "the loss is the class MSELoss; expected loss_fn, where loss_fn(output) is a scalar"),
    ],
)
def test_a_loss_that_does_not_take_the_output_alone_is_refused(loss, message):
    with pytest.raises(ExploreError) as caught:
        make_subject((NET, X, loss), "make", place="model.py:12")
    assert message in caught.value.message
    assert ".py:" in caught.value.message.partition(" ")[0]
    assert "site-packages" not in caught.value.message
    with pytest.raises(ExploreError):
        check_subject(Subject(NET, (X,), loss=loss))


def test_a_hook_may_give_the_forward_other_inputs():
    model = nn.Linear(3, 2)
    model.register_forward_pre_hook(lambda _, args: (args[0] + args[1],))
    assert make_subject((model, (X, X)), "make").args == (X, X)


def test_a_model_without_values_or_gradients_is_refused():
    assert refused((nn.LazyLinear(2), X)).startswith(
        "parameter weight is lazy and has no values yet: call the model once"
    )
    assert refused((nn.Linear(3, 2, device="meta"), X)).startswith("parameter weight is on the meta device")
    frozen = nn.Linear(3, 2).requires_grad_(False)
    assert refused((frozen, X)).startswith("Linear: none of its 2 parameters requires grad")
    assert refused((nn.ReLU(), X)).startswith("ReLU: it has no parameters, and no input requires grad")
    with_input = X.clone().requires_grad_()
    assert make_subject((frozen, with_input), "make").args == (with_input,)


class Bilinear(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)

    def forward(self, x, factor):
        return super().forward(x) * factor


def test_inputs_on_another_device_are_refused():
    elsewhere = X.to("meta")
    assert refused((NET, elsewhere)).startswith("the model is on cpu, but input (4, 3) is on meta; move one of them")
    assert refused((NET, {"input": elsewhere})).startswith("the model is on cpu, but input (4, 3) is on meta")
    # A number may be anywhere, and so may tensors that will be moved.
    assert make_subject((Bilinear(), (X, torch.tensor(2.0, device="meta"))), "make")
    assert make_subject((NET, X), "make", device="meta").args == (X,)
    assert make_subject((NET, elsewhere), "make", device="cpu").args == (elsewhere,)


def test_a_subject_made_by_hand_is_checked():
    assert check_subject(Subject(NET, (X,))).model is NET
    with pytest.raises(ExploreError, match=r"^the model is a value of type function; expected a torch\.nn\.Module"):
        check_subject(Subject(math.sin.__call__ and (lambda x: x), (X,)))
    with pytest.raises(ExploreError, match="does not take these inputs"):
        check_subject(Subject(NET, ()))


# -------------------------------------------------------------------------------------------------------------- loss


def scalar(output, loss=None):
    return scalar_loss(Subject(NET, loss=loss, place="model.py:3"), output, None if loss is None else loss(output))


def test_the_scalar_loss_comes_from_loss_or_output():
    one, two = torch.tensor(1.0), torch.tensor([2.0])
    many = torch.randn(3)
    assert scalar(many, torch.sum) == many.sum()
    assert scalar(SimpleNamespace(loss=one, logits=many)) is one
    assert scalar({"loss": one, "logits": many}) is one
    assert scalar(UserDict(loss=one)) is one
    assert scalar((many, one)) is one
    assert scalar(two) is two


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (torch.zeros(4, 2), "a tensor of shape (4, 2)"),
        ((torch.tensor(1.0), torch.tensor(2.0)), "a tuple of 2 (a tensor of shape (), a tensor of shape ())"),
        ({"logits": torch.zeros(2)}, "a dict of logits"),
        (3.0, "3.0"),
    ],
)
def test_an_output_without_a_scalar_is_refused(output, what):
    with pytest.raises(ExploreError) as caught:
        scalar(output)
    assert caught.value.message.startswith(f"model.py:3: no scalar loss: the model returns {what}; give (model,")


def test_a_loss_that_gives_no_scalar_is_refused_with_its_line(write):
    module = compile(
        write("losses.py", "\n\ndef per_row(out):\n    return out.sum(1)\n").read_text(), "losses.py", "exec"
    )
    names = {}
    exec(module, names)
    with pytest.raises(ExploreError) as caught:
        scalar(torch.zeros(4, 2), names["per_row"])
    assert caught.value.message == "losses.py:3: no scalar loss: loss_fn(output) is a tensor of shape (4,)"


# ------------------------------------------------------------------------------------------------------------ copies
def test_a_copy_shares_no_memory_and_keeps_ties():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    x = X.clone().requires_grad_()
    subject = Subject(model, ([x, {"again": x}],), {"mask": X})
    copy = copied_subject(subject)
    pairs = list(zip(model.state_dict().values(), copy.model.state_dict().values(), strict=True))
    assert all(torch.equal(old, new) and old.data_ptr() != new.data_ptr() for old, new in pairs)
    assert copy.model[2].weight is copy.model[0].weight
    (given,) = copy.args
    assert given[0] is given[1]["again"] is not x
    assert given[0].requires_grad
    assert given[0].is_leaf
    assert torch.equal(copy.kwargs["mask"], X)
    assert copy.kwargs["mask"].data_ptr() != X.data_ptr()


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
def test_outputs_kept_by_a_model_do_not_prevent_a_copy():
    model = weight_norm(nn.Linear(3, 2))
    model.last = [model(X)]
    copy = copied_subject(Subject(model, (X,))).model
    assert torch.equal(copy(X), model(X))
    assert copy.last[0].grad_fn is None


def test_the_loss_of_a_copy_uses_the_copy():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    target = torch.randn(4, 2)
    import torch.nn.functional as local_module

    def penalized(out, weight=model[1].weight, factor=0.1):
        return (
            local_module.mse_loss(out, target) + factor * sum(p.pow(2).sum() for p in model.parameters()) + weight[0, 0]
        )

    class Trainer:
        def __init__(self):
            self.model = model

        def loss(self, out):
            return out.mean() + sum(each.sum() for each in self.model.parameters())

    for loss in (penalized, functools.partial(penalized, factor=0.5), Trainer().loss):
        copy = copied_subject(Subject(model, (X,), loss=loss))
        assert torch.equal(copy.loss(copy.model(X)), loss(model(X)))
        copy.loss(copy.model(X)).backward()
        assert all(parameter.grad is None for parameter in model.parameters())
        assert all(parameter.grad is not None for parameter in copy.model.parameters())


def test_a_loss_that_is_a_module_a_method_or_calls_itself_is_copied():
    class Criterion(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_variance = nn.Parameter(torch.zeros(()))

        def forward(self, out):
            return out.pow(2).mean() * self.log_variance.exp() + self.log_variance

    criterion = Criterion()

    def halved(out, depth=3):
        return halved(out / 2, depth - 1) if depth else criterion(out)

    for loss in (criterion, criterion.forward, halved):
        copy = copied_subject(Subject(NET, (X,), loss=loss))
        assert torch.equal(copy.loss(X), loss(X))
        copy.loss(X).backward()
        assert criterion.log_variance.grad is None


GLOBAL = nn.Linear(3, 2)


def global_penalty():
    return GLOBAL.weight.square().sum()


def global_loss(out):
    return out.mean() + global_penalty()


def test_a_loss_with_the_model_as_a_global_uses_the_copy():
    copy = copied_subject(Subject(GLOBAL, (X,), loss=global_loss))
    copy.loss(copy.model(X)).backward()
    assert GLOBAL.weight.grad is None
    expected = 2 * GLOBAL.weight + X.mean(0) / 2
    assert torch.allclose(copy.model.weight.grad, expected)
    assert copy.loss.__globals__["nn"] is nn
    # Without the model among its globals it is not copied, nor are functions of torch.
    assert copied_subject(Subject(NET, (X,), loss=global_loss)).loss is global_loss
    assert copied_subject(Subject(NET, (X,), loss=nn.functional.mse_loss)).loss is nn.functional.mse_loss
    model = nn.Linear(3, 2)
    model.activation = nn.functional.relu
    assert copied_subject(Subject(model, (X,))).model.activation is nn.functional.relu


def hooked():
    model = nn.Sequential(nn.Linear(3, 2))
    model.second, model.third = nn.Linear(2, 2), nn.Linear(2, 2)
    model.forward = lambda x: model[0](x)
    model[0].register_forward_hook(lambda _, __, out: model.second(out))
    model[0].register_forward_hook(functools.partial(lambda third, _, __, out: third(out), model.third))
    return model


def with_another_forward():
    model = nn.Linear(3, 2)
    before = model.forward
    model.forward = lambda x: before(x) * 2
    return model


class Steps(NamedTuple):
    first: Callable
    last: Callable


def in_containers():
    model = nn.Linear(3, 2)
    before = model.forward

    def twice(x):
        return before(x) * 2

    named = functools.update_wrapper(functools.partial(twice), twice)
    model.kind = Steps
    model.functions = [(twice,), {"f": twice}, Steps(twice, twice), SimpleNamespace(held=twice), named]

    def forward(x):
        (one,), two, three, four, five = model.functions
        assert five.__name__ == "twice"
        return one(x) + two["f"](x) + three.last(x) + four.held(x) + five(x)

    model.forward = forward
    return model


@pytest.mark.parametrize("make", [hooked, with_another_forward, in_containers])
def test_functions_of_a_copy_use_the_copy(make):
    model = make()
    copy = copied_subject(Subject(model, (X,))).model
    assert torch.equal(copy(X), model(X))
    copy(X).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in copy.parameters())
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.zero_()
    assert not copy(X).any()


def test_a_part_that_copies_share_keeps_its_functions():
    class Shared(nn.Linear):
        def __deepcopy__(self, _):
            return self

    model = nn.Sequential(nn.Linear(3, 2), Shared(2, 2))
    function = model[1].function = lambda x: model[0](x)
    kept = model[1].kept = [function, functools.partial(function)]
    copy = copied_subject(Subject(model, (X,))).model
    assert (copy[1], copy[1].function, copy[1].kept[0]) == (model[1], function, function)
    assert copy[1].kept is kept


def test_hooks_of_a_copy_write_to_one_copied_container():
    seen = {}
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    for name, module in model.named_children():
        module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
    copy = copied_subject(Subject(model, (X,))).model
    copy(X)
    (hook,) = copy[0]._forward_hooks.values()
    assert (seen, list(hook.__closure__[0].cell_contents)) == ({}, ["0", "1"])


def test_gradient_hooks_of_parameters_are_copied():
    model = nn.Linear(3, 2)
    mask = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    model.weight.register_hook(lambda gradient: gradient * mask)
    copy = copied_subject(Subject(model, (X,))).model
    copy(X).sum().backward()
    assert torch.equal(copy.weight.grad != 0, mask.bool())
    assert model.weight.grad is None


def test_a_scripted_model_is_copied_with_leaves_that_require_grad():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        model = torch.jit.script(nn.Linear(3, 2))
    model.bias.requires_grad_(False)
    copy = copied_subject(Subject(model, (X,))).model
    assert [(each.is_leaf, each.requires_grad) for each in copy.parameters()] == [(True, True), (True, False)]


class Locked(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.lock = threading.Lock()


class Large(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)

    def __deepcopy__(self, memo):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("model", "given", "error", "message"),
    [
        (
            Locked(),
            X,
            ExploreError,
            r"the model cannot be copied, because of lock \(a value of type lock\): TypeError: cannot",
        ),
        (NET, threading.Lock(), ExploreError, "the inputs cannot be copied: TypeError: cannot pickle"),
        (Large(), X, MemoryLimitError, "the model cannot be copied: the device ran out of memory"),
    ],
)
def test_what_cannot_be_copied_is_named(model, given, error, message):
    with pytest.raises(error, match=rf"^\S+\.py:\d+: {message}"):
        copied_subject(Subject(model, (given,), place="model.py:3"))


def test_a_copy_on_another_device_moves_model_inputs_and_loss():
    target = torch.randn(4, 2)
    subject = Subject(nn.Linear(3, 2), (X,), loss=lambda out: (out - target).mean())
    copy = copied_subject(subject, "meta")
    assert copy.device == torch.device("meta")
    assert copy.loss(copy.model(*copy.args)).device.type == "meta"
    assert subject.device == torch.device("cpu")
    assert target.device.type == "cpu"
