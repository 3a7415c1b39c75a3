"""Every program computes torch's numbers, untouched by the recording, in a graph that shows its construct."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from chainrule.build import build_model
from chainrule.errors import MissingExtraError
from chainrule.foundations.initialization import generator_for
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.programs import PROGRAMS, RUNGS

PYTHON = [name for name in PROGRAMS if name not in ("mlp", "linear_cpp")]
"""Every program but the net that runs wherever torch does."""

QUERIES = [
    *(f"program={name}" for name in PYTHON),
    *(f"program=matmul&rung={rung}&widths=4,3&batch=2" for rung in RUNGS),
    "program=matmul&rung=loops&widths=1,1&batch=1",
    "program=neuron&widths=1,1&bias_std=0.5",
    "program=neuron&init=zeros",  # at the kink
    "program=neuron&widths=64,1&init=torch_default",
    *(f"program=neuron&seed={seed}" for seed in range(4)),  # open and closed
    "program=exp&widths=1&batch=1",
    "program=mul_constant&constant=-3.5",
    "program=mul_constant&constant=0",
    "program=my_relu&widths=30&batch=7",
    "program=linear_function&bias=false",
    "program=linear_function&widths=7,1&batch=5&bias_std=0.3&init=xavier_uniform&scale=2",
    "program=linear_function&widths=6,4&batch=1&init=torch_default",
    "program=two_outputs&widths=9&batch=1",
]


def by_torch(spec):
    """Loss, and values and gradients by name, from torch alone, on leaves drawn as the spec's are."""
    leaves = {name: leaf.detach().double() for name, leaf in build_model(spec).leaves.items()}
    named = {name: leaf.requires_grad_(name != "y") for name, leaf in leaves.items()}
    x, y, w, b = (named.get(name) for name in "xywb")
    match spec.program:
        case "neuron":
            named["l1"] = torch.dot(x, w) + b
            named["out"] = named["l1"].clamp_min(0)  # slope 1 at 0, as in the chapter: torch's relu has 0 there
            loss = F.mse_loss(named["out"], y)
        case "matmul":
            named["c"] = torch.mm(named["a"], b)
            loss = named["c"].sum()
        case "exp":
            named["out"] = torch.exp(x)
            loss = named["out"].sum()
        case "mul_constant":
            named["out"] = torch.mul(x, spec.constant)
            loss = named["out"].sum()
        case "my_relu":
            named["out"] = F.relu(x)
            loss = named["out"].sum()
        case "linear_function" | "linear_cpp":
            named["out"] = F.linear(x, w, b)
            loss = F.mse_loss(named["out"].view(y.shape), y)
        case "two_outputs":
            named["sines"], named["cosines"] = torch.sin(x), torch.cos(x)
            loss = torch.dot(named["sines"].flatten(), named["cosines"].flatten())
    for name, tensor in named.items():
        if name != "y":
            tensor.retain_grad()
    loss.backward()
    return loss.item(), named


def assert_is_torchs(spec, tolerance):
    trace = trace_spec(spec)
    loss, named = by_torch(spec)
    assert trace.error is None
    assert trace.loss == pytest.approx(loss, rel=tolerance, abs=tolerance)
    for name, tensor in named.items():
        pairs = [(name, tensor.detach())] + ([(f"{name}.g", tensor.grad)] if name != "y" else [])
        for recorded, expected in pairs:
            of = trace.tensor_by_name[recorded]
            assert of.shape == tuple(expected.shape), recorded
            row = trace.statistics[of.id]
            size = tolerance * max(1.0, expected.abs().max().item())
            assert row.mean == pytest.approx(expected.mean().item(), abs=size), recorded
            assert row.std == pytest.approx(expected.std(correction=0).item(), abs=size), recorded
            assert row.max == pytest.approx(expected.max().item(), abs=size), recorded
            assert row.norm == pytest.approx(expected.norm().item(), rel=tolerance, abs=size), recorded


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
def test_values_and_gradients_are_torchs(query, dtype, tolerance):
    assert_is_torchs(ModelSpec.from_query(f"{query}&dtype={dtype}"), tolerance)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("program", PYTHON)
def test_half_precision_stays_half(program, dtype):
    model = build_model(ModelSpec(program=program, dtype=dtype))
    loss = model.forward()
    model.backward(loss)
    assert loss.dtype == getattr(torch, dtype)
    assert loss.shape == ()
    assert {leaf.grad.dtype for name, leaf in model.leaves.items() if name != "y"} == {loss.dtype}


def test_leaves_are_drawn_as_the_chapter_draws_them():
    def normal(seed, name, *shape):
        return torch.randn(shape, generator=generator_for(seed, name)).double()

    a, b = build_model(ModelSpec(program="matmul", seed=3)).leaves.values()
    assert torch.equal(a.detach().double(), normal(3, "a", 2, 3))
    assert torch.equal(b.detach().double(), normal(3, "b", 3, 2))
    linear = build_model(ModelSpec(program="linear_function", seed=3)).leaves
    assert torch.allclose(linear["w"].detach().double(), normal(3, "w", 20, 30).t() * math.sqrt(2 / 20), rtol=1e-6)
    assert linear["w"].shape == (30, 20)
    assert not linear["b"].any()
    neuron = build_model(ModelSpec(program="neuron", seed=3)).leaves
    assert [tuple(leaf.shape) for leaf in neuron.values()] == [(3,), (3,), (), ()]


def forward_ops(trace):
    return Counter(op.name for op in trace.ops if op.phase == "forward")


@pytest.mark.parametrize("query", QUERIES)
def test_every_leaf_is_known_and_every_gradient_belongs_to_a_tensor(query):
    """A Function saves only its inputs and outputs, never a tensor of unknown origin."""
    spec = ModelSpec.from_query(query)
    trace = trace_spec(spec)
    outside = {tensor.name for tensor in trace.tensors if tensor.producer is None}
    assert outside == {*build_model(spec).leaves, "loss.g"}
    assert all(f"{name}.g" in trace.tensor_by_name for name in build_model(spec).leaves if name != "y")
    assert all(op.twin is not None for op in trace.ops if op.phase == "backward")
    roles = {name: trace.tensor_by_name[name].role for name in build_model(spec).leaves}
    expected = {"x": "input", "y": "target", "w": "parameter", "b": "parameter"}
    assert roles == ({"a": "input", "b": "input"} if spec.program == "matmul" else {n: expected[n] for n in roles})


def test_every_product_of_a_neuron_is_an_op():
    trace = trace_spec(ModelSpec(program="neuron", widths="5,1"))
    assert forward_ops(trace) == {"unbind": 2, "mul": 5, "add": 6, "clamp_min": 1, "sub": 1, "pow": 1}
    assert [module.path for module in trace.modules] == ["", "neuron", "relu", "loss"]


@pytest.mark.parametrize(
    ("rung", "products"), [("loops", 24), ("elementwise", 6), ("broadcasting", 2), ("einsum", 0), ("@", 0)]
)
def test_a_rung_shows_its_loops(rung, products):
    trace = trace_spec(ModelSpec(program="matmul", rung=rung, widths="4,3", batch=2))
    assert forward_ops(trace)["mul"] == products
    assert trace.tensor_by_name["c"].shape == (2, 3)
    assert trace.tensor_by_name["c.g"].gradient_of == trace.tensor_by_name["c"].id


@pytest.mark.long
@pytest.mark.usefixtures("linear_extension")
@pytest.mark.parametrize("query", ["", "bias=false", "widths=7,1&batch=5&bias_std=0.3", "widths=6,4&batch=1"])
def test_the_layer_in_cpp_is_torchs(query):
    assert_is_torchs(ModelSpec.from_query(f"program=linear_cpp&dtype=float64&{query}"), 1e-12)
    trace = trace_spec(ModelSpec.from_query(f"program=linear_cpp&{query}"))
    assert next(op.name for op in trace.ops if op.phase == "forward") == "LinearCpp"


@pytest.mark.long
@pytest.mark.usefixtures("linear_extension")
def test_the_layer_in_cpp_costs_its_products():
    trace = trace_spec(ModelSpec.from_query("program=linear_cpp&widths=7,3&batch=5"))
    costs = {op.name: op.flops for op in trace.ops if op.name.startswith("LinearCpp")}
    assert costs == {"LinearCpp": 2 * 5 * 7 * 3 + 5 * 3, "LinearCppBackward": 2 * (2 * 5 * 7 * 3 + 5 * 3)}


@pytest.mark.usefixtures("no_linear_extension")
def test_a_missing_extension_is_an_error_with_its_remedy():
    with pytest.raises(MissingExtraError, match="chainrule build-extension") as caught:
        build_model(ModelSpec(program="linear_cpp"))
    assert (caught.value.status, caught.value.field) == (501, "program")
