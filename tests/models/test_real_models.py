"""Models of other people's libraries are recorded as they are: not a bit of what they compute is changed.

Each is run three times from one state: unrecorded, in a `with record(…)` block, and by `trace_model`.
"""

from dataclasses import dataclass

import pytest
import torch
from process_state import left_behind, random_state
from torch import nn
from trace_rules import assert_twins, assert_well_formed

import chainrule
from chainrule.dump.wire import dump_trace
from chainrule.trace.nested import nested_tensors

MODULE_HOOKS = [name for name in vars(nn.Module()) if "hooks" in name]


@dataclass
class Run:
    """The state after a pass: all visible tensors by name, and the streams of random numbers."""

    case: object
    left: dict[str, torch.Tensor]
    random: object
    trace: chainrule.Trace | None = None


def run(case, how):
    torch.manual_seed(2)
    outputs = []

    def loss(output):
        outputs.append(output)
        return case.loss(output)

    trace = None
    if how == "unrecorded":
        loss(case()).backward()
    elif how == "record":
        with chainrule.record(case.model) as recording:
            loss(case()).backward()
        trace = recording.trace
    else:
        trace = chainrule.trace_model(case.model, *case.args, kwargs=case.kwargs, loss=loss)
    streams = random_state()
    left = {f"output {place}": tensor.detach() for place, tensor in enumerate(nested_tensors(outputs))}
    for name, parameter in case.model.named_parameters():
        left[f"parameter {name}"] = parameter.detach()
        if parameter.grad is not None:
            left[f"gradient {name}"] = parameter.grad
    left |= {f"buffer {name}": buffer for name, buffer in case.model.named_buffers()}
    return Run(case, left, streams, trace)


@pytest.fixture(scope="module")
def bare(make_case):
    return run(make_case(), "unrecorded")


@pytest.fixture(scope="module")
def recorded(make_case):
    return run(make_case(), "record")


@pytest.fixture(scope="module")
def traced(make_case):
    return run(make_case(), "trace_model")


def hung_on(model):
    """The number of hooks of each module and parameter, and the attributes of each tensor."""
    found = {}
    for path, part in model.named_modules():
        found |= {(path, table): len(getattr(part, table) or ()) for table in MODULE_HOOKS}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found[name] = (len(tensor._backward_hooks or ()), *vars(tensor))
    return found


@pytest.mark.parametrize("how", ["recorded", "traced"])
def test_recording_changes_no_bit(how, bare, request):
    run = request.getfixturevalue(how)
    assert any(name.startswith("gradient ") for name in bare.left)
    assert run.left.keys() == bare.left.keys()
    for name, value in bare.left.items():
        assert run.left[name].dtype == value.dtype, name
        assert torch.equal(run.left[name], value), name
    assert run.random == bare.random


def test_nothing_is_left_on_the_model_or_in_torch(bare, make_case):
    case, before = make_case(), left_behind()
    run(case, "record")
    assert left_behind() == before
    # A library may hang hooks of its own on a model when it is first called.
    assert hung_on(case.model) == hung_on(bare.case.model)


def test_both_ways_record_the_same(recorded, traced):
    def ops(trace):
        # trace_model has the loss in a scope of its own.
        return [(op.name, op.phase, trace.module_by_id[op.module].path.removeprefix("loss")) for op in trace.ops]

    assert ops(recorded.trace) == ops(traced.trace)


def test_the_trace_obeys_all_rules_and_its_dump_can_be_read(recorded):
    assert_well_formed(recorded.trace)
    assert_twins(recorded.trace)
    read = chainrule.load(dump_trace(recorded.trace))
    assert read.layers == recorded.trace.layers
    assert list(read.modules) == list(recorded.trace.modules)
    assert read.error is None


def test_modules_are_the_models(recorded):
    model = recorded.case.model
    types = {path: type(module).__name__ for path, module in model.named_modules()}
    found = {module.path: module.type for module in recorded.trace.modules}
    assert {path: kind for path, kind in found.items() if path not in types} == recorded.case.added
    for path, kind in found.items():
        if path in types:
            assert kind in (types[path], "container"), path


def test_parameters_get_the_gradients_that_torch_left(recorded):
    trace = recorded.trace
    for name, parameter in recorded.case.model.named_parameters():
        whole = [tensor.id for tensor in trace.tensors if tensor.name == f"{name}.g"]
        if parameter.grad is None:
            assert whole == [], name
            continue
        (found,) = whole
        assert trace.tensor_by_id[found].gradient_of == trace.tensor_by_name[name].id
        row = trace.statistics[found]
        assert (row.min, row.max) == (parameter.grad.min().item(), parameter.grad.max().item()), name
        assert row.norm == pytest.approx(parameter.grad.double().norm().item(), rel=1e-9), name


def test_arguments_have_names_and_roles(recorded):
    tensors = recorded.trace.tensor_by_name
    case = recorded.case
    names = [*["input"] * len(case.args), *case.kwargs]
    assert [tensors[name].role for name in names] == ["target" if name == "labels" else "input" for name in names]


def test_layers_are_the_modules_with_parameters_in_order(recorded):
    trace = recorded.trace
    producers = {tensor.id: tensor.producer for tensor in trace.tensors}
    order = {op.id: place for place, op in enumerate(trace.ops)}
    assert [layer.index for layer in trace.layers] == list(range(1, len(trace.layers) + 1))
    places = [order[producers[layer.preactivation]] for layer in trace.layers]
    assert places == sorted(places)

    ran = {trace.module_by_id[op.module].path for op in trace.ops if op.phase == "forward"}
    owners = {
        path
        for path, module in recorded.case.model.named_modules()
        if path in ran and any(True for _ in module.parameters(recurse=False))
    }
    innermost = {path for path in owners if not any(other.startswith(f"{path}.") for other in owners)} - {""}
    # A second call of one module is a layer of its own.
    names = {layer.name.partition(" ")[0] for layer in trace.layers}
    assert names == innermost
    for layer in trace.layers:
        assert layer.gradient is not None, layer.name
