"""The same models in the explorer: on a copy, recorded, repeated, and at a what-if, they compute the same bits."""

import copy

import pytest
import torch

from chainrule.user_model.seeded import seeded
from chainrule.user_model.subject import make_subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf

# To import transformers takes seconds. `user_model/test_tracer.py` has quick copies, `test_real_models.py` gpt2 itself.
pytestmark = pytest.mark.long

SEED = 7
HALVED = WhatIf(scale=0.5)


def bare(case, what_if):
    """Loss, and the ends of every gradient by name, of the model alone at this what-if."""
    model = copy.deepcopy(case.model)
    with torch.no_grad():
        for parameter in model.parameters():  # a tied one once
            if parameter.dim() >= 2:
                parameter.mul_(what_if.scale)
    with seeded(SEED):
        loss = case.loss(model(*case.args, **case.kwargs))
        loss.backward()
    grads = {f"{name}.g": each.grad for name, each in model.named_parameters() if each.grad is not None}
    return loss.item(), {name: (grad.min().item(), grad.max().item()) for name, grad in grads.items()}


def seen(trace):
    assert trace.error is None
    rows = {tensor.name: trace.statistics[tensor.id] for tensor in trace.tensors if tensor.id in trace.statistics}
    parameters = [tensor.name for tensor in trace.tensors if tensor.role == "parameter"]
    found = {f"{name}.g": rows[f"{name}.g"] for name in parameters if f"{name}.g" in rows}
    return trace.loss, {name: (row.min, row.max) for name, row in found.items()}


def test_the_explorers_copy_computes_the_numbers_of_the_model(make_case):
    case = make_case()
    subject = make_subject((case.model, dict(case.kwargs) if case.kwargs else case.args, case.loss), "make")
    as_it_is, halved = bare(case, WhatIf()), bare(case, HALVED)
    assert as_it_is[1].keys() == halved[1].keys() != set()
    assert as_it_is[1] != halved[1]
    before = {name: value.clone() for name, value in case.model.state_dict().items()}

    tracer = Tracer(subject, SEED)
    assert seen(tracer.trace()) == as_it_is
    # Repeated for its numbers, where that can be; and back, after what the passes between have left behind.
    assert seen(tracer.trace(HALVED)) == halved
    assert seen(tracer.trace(WhatIf(group="none"))) == as_it_is
    assert seen(tracer.record(HALVED)) == halved

    assert all(torch.equal(value, before[name]) for name, value in case.model.state_dict().items())
    assert all(parameter.grad is None for parameter in case.model.parameters())
