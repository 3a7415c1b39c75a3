"""Parameters that a model uses but does not register: its optimizer never changes them."""

import pytest
import torch
from lambda_modules import Parts
from torch import nn

from chainrule.trace.scope import scope
from chainrule.user_model.subject import Subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf


class Listed(nn.Module):
    """Three layers in a list of the kind `listed`, and one as an attribute."""

    def __init__(self, listed):
        super().__init__()
        self.layers = listed(nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


def with_out(forward, **parts):
    return Parts(forward, out=nn.Linear(8, 1), **parts)


def made_in_forward():
    return with_out(lambda self, x: self.out(nn.Linear(8, 8, bias=False)(x)))


def held(tensor):
    return with_out(lambda self, x: self.out(x * self.held["gain"]), held={"gain": tensor})


class Scoped(Listed):
    def forward(self, x):
        with scope("stem", "block"):
            return super().forward(x)


def taught(teach):
    """A model with a teacher that stays as it is, hidden from the optimizer."""
    return with_out(lambda self, x: self.out(x) - teach(self.teacher[0], x), teacher=[nn.Linear(8, 1)])


def teach_without_gradients(teacher, x):
    with torch.no_grad():
        return teacher(x)


GLOBAL = nn.Linear(8, 8)


def by_name():
    """A model that runs a registered layer by its name in this file."""
    return with_out(lambda self, x: self.out(GLOBAL(x)), body=GLOBAL)


def grows():
    """A model that registers a layer in its first forward pass."""

    def forward(self, x):
        if self.body is None:
            self.body = nn.Linear(x.shape[1], 8)
        return self.out(self.body(x))

    return with_out(forward, body=None)


class Special(nn.Parameter):
    """A kind of parameter of the user's own."""


def learned():
    """A loss with a parameter."""
    return Parts(lambda self, out: (out - self.target).square().mean(), target=nn.Parameter(torch.zeros(1)))


LEARNED = learned()


def tied():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    return model


AS_IT_IS, DOUBLED = WhatIf(), WhatIf(scale=2.0)


def faults(model, *args, loss=None, what_ifs=(AS_IT_IS,), **kwargs):
    """The faults of this kind, in the last of some passes."""
    torch.manual_seed(0)
    tracer = Tracer(Subject(model, args or (torch.randn(4, 8),), kwargs, loss or torch.sum, name="model"))
    trace = [tracer.trace(each) for each in what_ifs][-1]
    ids = {tensor.id for tensor in trace.tensors}
    found = [fault for fault in trace.faults if fault.kind == "unregistered"]
    assert all(fault.tensor in ids and fault.op is not None for fault in found)
    return found


@pytest.mark.parametrize("what_ifs", [[AS_IT_IS], [AS_IT_IS, DOUBLED]], ids=["recorded", "repeated"])
def test_layers_in_a_plain_list_are_named_with_the_line_that_runs_them(what_ifs):
    (fault,) = faults(Listed(list), what_ifs=what_ifs)
    assert faults(Scoped(list))[0].message == fault.message
    assert fault.message == (
        "this pass uses 6 parameters that are missing from model.parameters(): an optimizer of model.parameters() "
        "never changes them"
    )
    assert "nn.ModuleList" in fault.remedy
    assert fault.source.file.endswith("test_unregistered.py")
    assert "torch.tanh(layer(x))" in fault.source.text


@pytest.mark.parametrize(
    "model",
    [made_in_forward(), held(nn.Parameter(torch.ones(8))), held(Special(torch.ones(8)))],
    ids=["made in forward", "a tensor in a dict", "one of a kind"],
)
def test_an_unregistered_parameter_elsewhere_is_found(model):
    (fault,) = faults(model)
    assert fault.message.startswith("this pass uses 1 parameter that is missing from model.parameters()")
    assert fault.message.endswith("never changes it")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (Listed(nn.ModuleList), {}),
        (held(nn.Parameter(torch.ones(8), requires_grad=False)), {}),
        (held(torch.ones(8, requires_grad=True)), {}),
        (taught(lambda teacher, x: teacher(x).detach()), {}),
        (taught(teach_without_gradients), {}),
        (by_name(), {}),
        (grows(), {}),
        (nn.Linear(8, 1), {"loss": learned()}),
        (nn.Linear(8, 1), {"loss": lambda output: LEARNED(output)}),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 1)), {}),
        (nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), {}),
        (nn.LSTM(8, 4, num_layers=2), {"loss": lambda output: output[0].sum()}),
        (tied(), {}),
    ],
    ids=[
        *("ModuleList", "frozen", "no parameter", "detached", "no_grad", "by name", "grows", "loss", "loss by name"),
        *("weight norm", "orthogonal", "recurrent", "tied"),
    ],
)
def test_registered_parameters_and_other_tensors_are_no_fault(model, options):
    assert faults(model, **options) == []
