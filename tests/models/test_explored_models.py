"""The same models in the explorer: on a copy, recorded, repeated, and at a what-if, they compute the same bits."""

import copy
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from chainrule.trace.nested import nested_tensors
from chainrule.user_model.parameters import State
from chainrule.user_model.seeded import seeded
from chainrule.user_model.subject import make_subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf

SEED = 7
HALVED = WhatIf(scale=0.5)


@dataclass
class Seen:
    """The outputs of all passes, and the state of the copy after the last one."""

    outputs: list[torch.Tensor] = field(default_factory=list)
    left: dict[str, torch.Tensor] = field(default_factory=dict)
    random: torch.Tensor | None = None


def after(model: nn.Module, output: object) -> dict[str, torch.Tensor]:
    """All visible tensors by name."""
    found = {f"output {place}": tensor.detach().clone() for place, tensor in enumerate(nested_tensors([output]))}
    for name, parameter in model.named_parameters():
        found[f"parameter {name}"] = parameter.detach().clone()
        if parameter.grad is not None:
            found[f"gradient {name}"] = parameter.grad.clone()
    return found | {f"buffer {name}": buffer.clone() for name, buffer in model.named_buffers()}


def run_bare(case, what_if):
    """The model alone, at this what-if, with the seed of its random numbers."""
    model = copy.deepcopy(case.model)
    with torch.no_grad():
        for parameter in model.parameters():  # a tied one once
            if parameter.dim() >= 2:
                parameter.mul_(what_if.scale)
    with seeded(SEED):
        output = model(*case.args, **case.kwargs)
        case.loss(output).backward()
        return after(model, output), torch.get_rng_state()


@pytest.fixture
def seen(monkeypatch):
    seen = Seen()
    restore = State.restore

    def looked_into(state):
        seen.left = after(state.model_of_this_test, seen.outputs[-1])
        seen.random = torch.get_rng_state()
        restore(state)

    begin = State.__init__

    def beginning(state, model):
        begin(state, model)
        state.model_of_this_test = model

    monkeypatch.setattr(State, "__init__", beginning)
    monkeypatch.setattr(State, "restore", looked_into)
    return seen


def assert_same(seen, bare):
    left, random = bare
    assert any(name.startswith("output ") for name in left)
    assert any(name.startswith("gradient ") for name in left)
    assert seen.left.keys() == left.keys()
    for name, value in left.items():
        assert seen.left[name].dtype == value.dtype, name
        assert torch.equal(seen.left[name], value), name
    assert torch.equal(seen.random, random)


def test_the_explorers_copy_computes_the_numbers_of_the_model(make_case, seen):
    case = make_case()

    def loss(output):
        seen.outputs.append(output)
        return case.loss(output)

    subject = make_subject((case.model, dict(case.kwargs) if case.kwargs else case.args, loss), "make")
    as_it_is, halved = run_bare(case, WhatIf()), run_bare(case, HALVED)
    assert any(not torch.equal(value, halved[0][name]) for name, value in as_it_is[0].items() if "gradient" in name)
    before = {name: value.clone() for name, value in case.model.state_dict().items()}

    tracer = Tracer(subject, SEED)
    trace = tracer.trace()
    assert (trace.error, trace.loss) == (None, case.loss(seen.outputs[-1]).item())
    assert_same(seen, as_it_is)
    # Repeated for its numbers, where that can be; and back, after what the passes between have left behind.
    for what_if, bare in ((HALVED, halved), (WhatIf(group="none"), as_it_is)):
        passes = len(seen.outputs)
        tracer.trace(what_if)
        assert len(seen.outputs) > passes
        assert_same(seen, bare)
    tracer.record(HALVED)
    assert_same(seen, halved)

    assert all(torch.equal(value, before[name]) for name, value in case.model.state_dict().items())
    assert all(parameter.grad is None for parameter in case.model.parameters())
