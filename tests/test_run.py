"""A spec's trace is the chapter's pass, in every style, and a pure function of the spec."""

import linecache
import math
from pathlib import Path

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
from chainrule.stats import StatisticsSlab

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
def test_roles_and_producers(style, traces):
    trace = traces[style]
    roles = {"x": "input", "y": "target", "w1": "parameter", "b1": "parameter", "l1": "preactivation",
             "l2": "activation", "out": "preactivation", "loss": "loss"}  # fmt: skip
    assert {name: trace.tensor_by_name[name].role for name in roles} == roles
    for name in ("x", "y", "w1", "b1", "w2", "b2"):
        assert trace.tensor_by_name[name].producer is None
    for name in ("l1", "l2", "out", "loss"):
        assert trace.tensor_by_name[name].producer is not None
    for name in ("x", "w1", "b1", "l1", "l2", "w2", "b2", "out"):
        gradient = trace.tensor_by_name[f"{name}.g"]
        assert gradient.role == "gradient"
        assert gradient.gradient_of == trace.tensor_by_name[name].id
    assert "y.g" not in trace.tensor_by_name


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
def test_source_lines_are_in_the_package(style, traces):
    with_source = [op for op in traces[style].ops if op.source is not None]
    assert with_source
    for op in with_source:
        assert op.source.file.startswith("chainrule/foundations/")
        path = Path(chainrule.__file__).parent / op.source.file.removeprefix("chainrule/")
        assert op.source.text == linecache.getline(str(path), op.source.line).strip() != ""
    products = [op for op in with_source if op.name == "matmul" and op.phase == "forward"]
    assert all("inp @ " in op.source.text for op in products)
    missing = [op for op in traces[style].ops if op.source is None]
    assert all(op.phase == "backward" and op.name.endswith(("Backward0", "Backward1")) for op in missing)
    assert bool(missing) == (style == "module")


@pytest.mark.parametrize("style", STYLES)
def test_layers_name_the_tensors_of_the_net(style, traces):
    trace = traces[style]
    ids = {name: tensor.id for name, tensor in trace.tensor_by_name.items()}
    parts = ("preactivation", "activation", "gradient", "weight", "weight_gradient", "bias", "bias_gradient")
    for index, names in ((1, "l1 l2 l2.g w1 w1.g b1 b1.g"), (2, "out out out.g w2 w2.g b2 b2.g")):
        layer = trace.layers[index - 1]
        assert (layer.index, layer.name) == (index, f"layer {index}")
        assert [getattr(layer, part) for part in parts] == [ids[name] for name in names.split()]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"last_activation": True}, "x w1 b1 l1 l2 w2 b2 l3 l4 w3 b3 l5 out"),
        ({"activation": "linear"}, "x w1 b1 l1 w2 b2 l2 w3 b3 out"),
        ({"bias": False}, "x w1 l1 l2 w2 l3 l4 w3 out"),
        ({"activation": "selu", "loss": "cross_entropy"}, "x w1 b1 l1 l2 w2 b2 l3 l4 w3 b3 out"),
    ],
    ids=["last activation", "linear", "no bias", "cross entropy"],
)
def test_deeper_nets_have_the_chapters_names_with_gradients(style, options, expected):
    trace = trace_spec(ModelSpec.parse({"widths": "6,5,4,3", "batch": 8, "style": style, **options}))
    names = trace.tensor_by_name
    for name in expected.split():
        gradient = names[f"{name}.g"]
        assert (gradient.gradient_of, gradient.shape) == (names[name].id, names[name].shape)
    assert any(name.startswith("b") for name in names) == options.get("bias", True)
    assert [layer.bias is None for layer in trace.layers] == [not options.get("bias", True)] * 3
    assert trace.layers[-1].activation == names["out"].id


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


def test_the_expected_loss_and_gradients_of_the_chapter():
    """Kaiming 100 → 50 → 1 on normal x and y: E loss = 3; RMS gradient .01732 at out, .003464 at l2, .002449 at l1."""
    losses, squares = [], {"out": [], "l2": [], "l1": []}
    for seed in range(60):
        trace = trace_spec(ModelSpec.parse({"seed": seed}))
        losses.append(trace.loss)
        for name, found in squares.items():
            row = statistics(trace, f"{name}.g")
            found.append(row.norm**2 / row.n)
    assert np.mean(losses) == pytest.approx(3.0, rel=0.1)
    for name, expected in (("out", 0.01732), ("l2", 0.003464), ("l1", 0.002449)):
        assert math.sqrt(np.mean(squares[name])) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("style", STYLES)
def test_a_pass_that_overflows_is_recorded_whole(style):
    options = {"widths": "20x9", "init": "standard_normal", "scale": 1e4, "activation": "linear", "dtype": "bfloat16"}
    trace = trace_spec(ModelSpec.parse({**options, "style": style, "bias": False}))
    assert trace.error is None
    assert not math.isfinite(trace.loss)
    assert len(trace.layers) == 8
    nonfinite = [statistics(trace, f"w{layer}.g") for layer in range(1, 9)]
    assert any(row.nan + row.posinf + row.neginf for row in nonfinite)


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


def expected_values(spec, name):
    built = build_model(spec)
    leaves = built.leaves
    if name in leaves:
        return leaves[name].detach()
    assert name == "l2"
    return torch.relu(leaves["x"] @ leaves["w1"] + leaves["b1"]).detach()


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["x", "w1", "l2"])
@pytest.mark.parametrize(
    ("rows", "cols"), [((0, 5), (0, 5)), ((3, 7), (10, 12)), ((0, 1), (49, 50)), ((0, 64), (0, 50))]
)
def test_values_are_the_slice_of_the_tensor(name, rows, cols):
    spec = ModelSpec()
    values = tensor_values(spec, name, rows, cols)
    expected = expected_values(spec, name)[slice(*rows), slice(*cols)]
    assert values.values == expected.double().tolist()
    assert values.name == name
    assert values.shape == tuple(expected_values(spec, name).shape)
    assert values.dtype == "float32"
    assert values.id == trace_spec(spec).tensor_by_name[name].id


def test_a_window_is_cut_to_the_shape():
    spec = ModelSpec.parse({"widths": "4,3,1", "batch": 5})
    assert np.array(tensor_values(spec, "x", (3, 60), (2, 60)).values).shape == (2, 2)
    assert tensor_values(spec, "x", (10, 20), (0, 5)).values == []
    assert len(tensor_values(spec, "b1", (0, 2), (0, 60)).values) == 2
    assert isinstance(tensor_values(spec, "loss").values, float)
    assert tensor_values(spec, "loss").values == trace_spec(spec).loss


def test_inf_and_nan_are_strings_in_json():
    spec = ModelSpec.parse({"preset": "deep-exploding"})
    values = tensor_values(spec, "out", (0, 1), (0, 3)).values
    assert set(values[0]) <= {"NaN", "Infinity", "-Infinity"}


@pytest.mark.parametrize(
    ("rows", "cols", "field"),
    [
        ((-1, 4), (0, 5), "rows"),
        ((4, 4), (0, 5), "rows"),
        ((5, 4), (0, 5), "rows"),
        ((0, MAX_VALUES + 1), (0, 5), "rows"),
        ((0, 5), (-3, 2), "cols"),
        ((0, 5), (7, 7), "cols"),
        ((0, 5), (0, 10**9), "cols"),
    ],
)
def test_a_bad_window_names_its_field(rows, cols, field):
    with pytest.raises(SpecError) as error:
        tensor_values(ModelSpec(), "x", rows, cols)
    assert error.value.field == field
    assert error.value.limit == MAX_VALUES
    assert field in error.value.message


def test_an_unknown_tensor_is_not_found():
    with pytest.raises(NotFoundError) as error:
        tensor_values(ModelSpec.parse({"widths": "3,2,1", "batch": 4}), "l99")
    assert "l99" in error.value.message
    assert error.value.field == "name"


def assert_same(retracer, spec):
    assert_same_trace(retracer.trace(spec), trace_spec(spec))


@given(changing_specs())
@settings(max_examples=40, deadline=None)
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
