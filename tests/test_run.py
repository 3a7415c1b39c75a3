"""A spec's trace is the chapter's pass, in every style, and a pure function of the spec."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from hypothesis import given, settings
from spec_strategies import changing_specs
from trace_rules import assert_same_trace, assert_twins

import chainrule.run
from chainrule.build import BuiltModel, build_model
from chainrule.errors import NotFoundError, SpecError
from chainrule.run import MAX_VALUES, Retracer, available_devices, environment, tensor_values, trace_spec
from chainrule.spec import ModelSpec
from chainrule.stats import StatisticsSlab, instruction_set

STYLES = ("functions", "classes", "layer_function", "autograd_function", "module")


@pytest.fixture(scope="module")
def traces():
    """The chapter's model, 100 → 50 → 1 on a batch of 200, in its five styles."""
    return {style: trace_spec(ModelSpec.parse({"style": style})) for style in STYLES}


def statistics(trace, name):
    return trace.statistics[trace.tensor_by_name[name].id]


@pytest.fixture(scope="module")
def by_autograd():
    """Values and gradients of the chapter's model, from torch alone, in float64, on the spec's own draw."""
    leaves = {name: tensor.double() for name, tensor in build_model(ModelSpec()).leaves.items()}
    x, y, w1, b1, w2, b2 = (leaves[name].requires_grad_(name != "y") for name in ("x", "y", "w1", "b1", "w2", "b2"))
    l1 = x @ w1 + b1
    l2 = torch.relu(l1)
    out = l2 @ w2 + b2
    loss = F.mse_loss(out.squeeze(-1), y)
    named = {"x": x, "w1": w1, "b1": b1, "l1": l1, "l2": l2, "w2": w2, "b2": b2, "out": out}
    for tensor in named.values():
        tensor.retain_grad()
    loss.backward()
    gradients = {f"{name}.g": tensor.grad for name, tensor in named.items()}
    return {**named, "y": y, "loss": loss, **gradients}


@pytest.mark.smoke
@pytest.mark.parametrize("style", STYLES)
def test_every_style_shows_the_same_numbers_which_are_torchs(style, traces, by_autograd):
    trace = traces[style]
    for name, expected in by_autograd.items():
        if name == "loss.g":
            continue
        row = statistics(trace, name)
        x = expected.detach().numpy().ravel()
        size = float(np.abs(x).max())
        assert row.n == x.size, name
        assert row.mean == pytest.approx(x.mean(), rel=1e-5, abs=1e-6 * size), name
        assert row.std == pytest.approx(x.std(), rel=1e-5, abs=1e-6 * size), name
        assert row.norm == pytest.approx(np.linalg.norm(x), rel=1e-5), name
        assert row.min == pytest.approx(x.min(), rel=1e-4, abs=1e-6 * size), name
        assert row.max == pytest.approx(x.max(), rel=1e-4, abs=1e-6 * size), name
    assert trace.loss == pytest.approx(by_autograd["loss"].item(), rel=1e-6)


# matmul, add | relu | matmul, add | squeeze, sub, pow, mean
FORWARD = {
    "layers.0": ["matmul", "add"],
    "layers.1": ["clamp_min"],
    "layers.2": ["matmul", "add"],
    "loss": ["squeeze", "sub", "pow", "mean"],
}
MODULE_TYPES = {
    "functions": ("lin", "relu", "lin", "mse"),
    "classes": ("Lin", "Relu", "Lin", "Mse"),
    "layer_function": ("Lin", "Relu", "Lin", "Mse"),
    "autograd_function": ("LinearFunction", "MyRelu", "LinearFunction", "MseFunction"),
    "module": ("Linear", "ReLU", "Linear", "Mse"),
}


@pytest.mark.smoke
@pytest.mark.parametrize("style", STYLES)
def test_modules_group_alike_in_every_style(style, traces):
    modules = {module.path: module for module in traces[style].modules}
    paths = ["layers.0", "layers.1", "layers.2", "loss"]
    assert list(modules) == ["", "layers", *paths]
    assert tuple(modules[path].type for path in paths) == MODULE_TYPES[style]
    parents = {path: module.parent for path, module in modules.items()}
    root, layers = modules[""].id, modules["layers"].id
    assert list(parents.values()) == [None, root, layers, layers, layers, root]


@pytest.mark.smoke
@pytest.mark.parametrize("style", STYLES)
def test_the_ops_of_the_chapters_model_counted_by_hand(style, traces):
    trace = traces[style]
    paths = {module.id: module.path for module in trace.modules}
    found = {}
    for op in trace.ops:
        if op.phase == "forward":
            found.setdefault(paths[op.module], []).append(op.name)
    expected = {path: list(names) for path, names in FORWARD.items()}
    if style in ("autograd_function", "module"):
        # weights are (fan_out, fan_in) there, as in torch
        expected["layers.0"].insert(0, "t")
        expected["layers.2"].insert(0, "t")
    if style == "module":
        expected["layers.1"] = ["relu"]
    assert found == expected
    assert {paths[op.module] for op in trace.ops if op.phase == "backward"} == set(FORWARD)

    backward = [op.name for op in trace.ops if op.phase == "backward"]
    if style == "module":
        # one autograd node per forward op, in reverse
        assert backward == [
            "MeanBackward0", "PowBackward0", "SubBackward0", "SqueezeBackward1",
            "AddBackward0", "MmBackward0", "TBackward0", "ReluBackward0", "AddBackward0", "MmBackward0", "TBackward0",
        ]  # fmt: skip
    else:
        # five products and three sums over the batch would be wrong: two layers have four products and two sums
        assert backward.count("matmul") == 4
        assert backward.count("sum") == 2
        assert backward.count("gt") == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_gradient_is_made_by_the_twin_of_the_op_that_reads_the_tensor(style, traces):
    trace = traces[style]
    assert_twins(trace)
    phases = [op.phase for op in trace.ops]
    assert phases == sorted(phases, key=("forward", "backward").index)
    ops = {op.id: op for op in trace.ops}
    for name in ("x", "w1", "l2", "w2"):
        maker = ops[trace.tensor_by_name[f"{name}.g"].producer]
        twin = ops[maker.twin]
        assert twin.name == ("t" if maker.name == "TBackward0" else "matmul"), name
        assert trace.module_by_id[twin.module].path == ("layers.0" if name in ("x", "w1") else "layers.2")
    for name in ("b1", "b2"):
        assert ops[ops[trace.tensor_by_name[f"{name}.g"].producer].twin].name == "add"
    relu = ops[ops[trace.tensor_by_name["l1.g"].producer].twin]
    assert relu.inputs == (trace.tensor_by_name["l1"].id,)


@pytest.mark.parametrize("style", STYLES)
def test_tensors_saved_for_the_backward(style, traces):
    """The linear layers need their input and their weight, relu its input or its output, the loss its difference."""
    trace = traces[style]
    ops = {op.id: op for op in trace.ops}
    names = {tensor.id: tensor.name for tensor in trace.tensors}
    kept = {}
    for saved in trace.saved:
        kept.setdefault(trace.module_by_id[ops[saved.op].module].path, set()).add(names[saved.tensor])
    if style == "module":
        assert kept == {
            "layers.0": {"x", "layers.0.t"},
            "layers.1": {"l2"},
            "layers.2": {"l2", "layers.2.t"},
            "loss": {"loss.sub"},
        }
    else:
        assert kept == {"layers.0": {"x", "w1"}, "layers.1": {"l1"}, "layers.2": {"l2", "w2"}, "loss": {"out", "y"}}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({}, "l1 l2 w1 b1, l3 l4 w2 b2, out out w3 b3"),
        ({"last_activation": True}, "l1 l2 w1 b1, l3 l4 w2 b2, l5 out w3 b3"),
        ({"activation": "linear"}, "l1 l1 w1 b1, l2 l2 w2 b2, out out w3 b3"),
        ({"bias": False}, "l1 l2 w1, l3 l4 w2, out out w3"),
        ({"activation": "selu", "loss": "cross_entropy"}, "l1 l2 w1 b1, l3 l4 w2 b2, out out w3 b3"),
    ],
    ids=["default", "last activation", "linear", "no bias", "cross entropy"],
)
def test_layers_name_the_tensors_of_the_net(style, options, layers):
    trace = trace_spec(ModelSpec.parse({"widths": "6,5,4,3", "batch": 8, "style": style, **options}))
    named = trace.tensor_by_name
    for index, (layer, names) in enumerate(zip(trace.layers, layers.split(", "), strict=True), start=1):
        z, a, w, *b = names.split()
        assert (layer.index, layer.name) == (index, f"layer {index}")
        found = [layer.preactivation, layer.activation, layer.gradient, layer.weight, layer.weight_gradient]
        assert found == [named[name].id for name in (z, a, f"{a}.g", w, f"{w}.g")]
        assert [layer.bias, layer.bias_gradient] == ([named[b[0]].id, named[f"{b[0]}.g"].id] if b else [None, None])
        for name in (z, a, w, *b):
            gradient = named[f"{name}.g"]
            assert (gradient.role, gradient.gradient_of, gradient.shape) == (
                "gradient",
                named[name].id,
                named[name].shape,
            )
        roles = {z: "preactivation", a: "preactivation" if a == z else "activation", w: "parameter"}
        assert {name: named[name].role for name in roles} == roles
    assert (named["x"].role, named["y"].role, named["loss"].role) == ("input", "target", "loss")
    assert {name for name, tensor in named.items() if tensor.producer is None} >= {"x", "y", "w1"}
    assert "y.g" not in named


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "elu", "selu"])
def test_dead_units_and_saturation_of_every_activation_in_every_style(activation, style):
    spec = ModelSpec.parse({"widths": "8,40,2", "batch": 6, "activation": activation, "style": style, "scale": 3.0})
    trace = trace_spec(spec)
    values = np.array(tensor_values(spec, "l2", (0, 6), (0, 40)).values)
    row = statistics(trace, "l2")
    assert trace.tensor_by_name["l2"].role == "activation"
    if activation in ("tanh", "sigmoid"):
        signed = values if activation == "tanh" else 2 * values - 1
        assert row.saturation == np.mean(np.abs(signed) > 0.97)
        assert row.dead_fraction is None
    else:
        assert row.dead_fraction == np.mean((values <= 0).all(0))
        assert row.saturation is None
    assert statistics(trace, "l1").dead_fraction is None
    assert statistics(trace, "l1").saturation is None


def test_an_absent_device_is_a_spec_error_before_anything_is_drawn(monkeypatch):
    if "cuda" in available_devices():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(chainrule.run, "build_model", lambda _spec: pytest.fail("drawn"))
    with pytest.raises(SpecError) as error:
        trace_spec(ModelSpec(device="cuda"))
    assert error.value.field == "device"
    assert error.value.limit == ["cpu"]
    assert "cuda" in error.value.message


def test_the_trace_carries_its_spec_its_environment_and_its_times():
    spec = ModelSpec.parse({"widths": "3,2,1", "batch": 4})
    trace = trace_spec(spec)
    assert trace.spec == spec.as_dict()
    assert trace.environment == environment("cpu")
    assert trace.environment["torch"] == torch.__version__
    assert trace.environment["device"] == "cpu"
    assert trace.environment["threads"] == torch.get_num_threads()
    assert 0 < trace.timing["record_ms"] <= trace.timing["total_ms"]
    assert 0 < trace.timing["build_ms"] <= trace.timing["total_ms"]


def test_a_repeated_trace_has_its_own_faults_or_none_yet():
    exploding, healthy = (ModelSpec.parse({"scale": scale, "widths": "50x11"}) for scale in (50, 1))
    assert [fault.kind for fault in trace_spec(exploding).faults] != [
        fault.kind for fault in trace_spec(healthy).faults
    ]
    retracer = Retracer(finds_faults=False)
    assert retracer.trace(exploding).faults
    for spec in (healthy, exploding):
        trace = retracer.trace(spec)
        assert trace.faults == ()
        assert retracer.judged(trace).faults == trace_spec(spec).faults


ELSEWHERE = """
import json
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
trace = trace_spec(ModelSpec())
print(json.dumps([trace.environment["cpu_capability"], trace.environment["kernel"], trace.loss]))
"""


@pytest.mark.long
def test_the_environment_names_the_instruction_sets_on_which_the_last_digits_depend():
    here = trace_spec(ModelSpec())
    assert here.environment["kernel"] == instruction_set()
    others = os.environ | {"ATEN_CPU_CAPABILITY": "default", "CHAINRULE_KERNEL": "torch"}
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], env=others, check=True, capture_output=True, text=True)
    capability, kernel, loss = json.loads(done.stdout)
    assert (capability, kernel) == ("DEFAULT", "torch")
    assert loss == pytest.approx(here.loss, rel=1e-4)


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["x", "w1", "l2"])
@pytest.mark.parametrize(("rows", "cols"), [((3, 7), (10, 12)), ((0, 64), (0, 50))])
def test_values_are_the_slice_of_the_tensor(name, rows, cols):
    spec = ModelSpec()
    leaves = build_model(spec).leaves
    whole = torch.relu(leaves["x"] @ leaves["w1"] + leaves["b1"]) if name == "l2" else leaves[name]
    values = tensor_values(spec, name, rows, cols)
    assert values.values == whole[slice(*rows), slice(*cols)].double().tolist()
    assert (values.name, values.shape, values.dtype) == (name, tuple(whole.shape), "float32")
    assert values.id == trace_spec(spec).tensor_by_name[name].id


def test_a_window_is_cut_to_the_shape():
    spec = ModelSpec.parse({"widths": "4,3,1", "batch": 5})
    assert np.array(tensor_values(spec, "x", (3, 60), (2, 60)).values).shape == (2, 2)
    assert tensor_values(spec, "x", (10, 20), (0, 5)).values == []
    assert len(tensor_values(spec, "b1", (0, 2), (0, 60)).values) == 2
    assert isinstance(tensor_values(spec, "loss").values, float)
    assert tensor_values(spec, "loss").values == trace_spec(spec).loss
    (row,) = tensor_values(ModelSpec.parse({"preset": "deep-exploding"}), "out", (0, 1), (0, 3)).values
    assert set(row) <= {"NaN", "Infinity", "-Infinity"}
    with pytest.raises(NotFoundError, match="'l99'") as error:
        tensor_values(spec, "l99")
    assert error.value.field == "name"


@pytest.mark.parametrize(
    ("rows", "cols", "field"),
    [
        ((-1, 4), (0, 5), "rows"),
        ((4, 4), (0, 5), "rows"),
        ((0, MAX_VALUES + 1), (0, 5), "rows"),
        ((0, 5), (0, 10**9), "cols"),
    ],
)
def test_a_bad_window_names_its_field(rows, cols, field):
    with pytest.raises(SpecError) as error:
        tensor_values(ModelSpec(), "x", rows, cols)
    assert error.value.field == field
    assert error.value.limit == MAX_VALUES


def assert_same(retracer, spec):
    assert_same_trace(retracer.trace(spec), trace_spec(spec))


@given(changing_specs())
@settings(max_examples=40)
def test_a_retracer_gives_that_trace_after_any_other(specs):
    retracer = Retracer()
    for spec in specs:
        assert_same(retracer, spec)


def test_a_new_scale_reads_only_the_tensors_that_it_changes(monkeypatch):
    """x, y and the biases stay as they are: of the leaves only w1 and w2 are read again."""
    retracer = Retracer()
    base = ModelSpec.parse({"bias_std": 0.1})
    first = retracer.trace(base)
    taken = []
    write = StatisticsSlab.write
    monkeypatch.setattr(
        StatisticsSlab, "write", lambda self, row, tensor: (taken.append(row), write(self, row, tensor))
    )
    leaves = {first.statistics.tensors.index(first.tensor_by_name[name].id) for name in ("x", "y", "b1", "b2")}
    for change, expected in (({"scale": 2.0}, set()), ({"scale": 3.0}, set()), ({"scale": 3.0, "seed": 7}, leaves)):
        taken.clear()
        retracer.trace(base.replace(**change))
        assert leaves & set(taken) == expected, change
        assert len(taken) == len(set(taken))
        assert len(taken) > 10


def test_a_broken_repetition_spoils_no_later_trace(monkeypatch):
    """Rows that are not taken again come from the last complete trace."""
    retracer = Retracer()
    spec = ModelSpec.parse({"bias_std": 0.1})
    for each in (spec, spec.replace(scale=2.0)):
        assert_same(retracer, each)

    def breaks(*_arguments):
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(BuiltModel, "backward", breaks)
        with pytest.raises(RuntimeError, match="on purpose"):
            retracer.trace(spec.replace(seed=5, scale=4.0))
    for each in (spec.replace(seed=5, scale=4.0), spec.replace(seed=5), spec):
        assert_same(retracer, each)


def test_a_backward_by_hand_is_recorded_once_per_graph():
    retracer = Retracer()
    first, second = (retracer.trace(ModelSpec(scale=scale)) for scale in (1.0, 2.0))
    assert second.ops is first.ops
    assert retracer.trace(ModelSpec(batch=3)).ops is not first.ops


@pytest.mark.parametrize("style", ["functions", "layer_function", "autograd_function", "module"])
def test_a_retracer_holds_no_gradient_between_two_traces(style):
    retracer = Retracer()
    for scale in (1.0, 1.5, 2.0):
        retracer.trace(ModelSpec(style=style, scale=scale, widths="6,5,4"))
    built = retracer._net.build(ModelSpec(style=style, scale=2.0, widths="6,5,4"))
    for name, leaf in built.leaves.items():
        assert leaf.grad is None, name
        assert not hasattr(leaf, "g"), name
