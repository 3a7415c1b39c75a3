import threading

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from chainrule.build import (
    BuiltModel,
    LayerNames,
    build_model,
    draw_leaves,
    generator_for,
    name_layers,
    weight_variances,
)
from chainrule.foundations import layer_function, layers, modules
from chainrule.foundations.initialization import SCHEMES
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.trace.scope import current_scopes

STYLES = KEY_BY_NAME["style"].choices
BY_HAND = ("functions", "classes", "layer_function")
AUTOGRAD = ("autograd_function", "module")
ACTIVATIONS = KEY_BY_NAME["activation"].choices
INITS = KEY_BY_NAME["init"].choices
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def spec_of(**values) -> ModelSpec:
    return ModelSpec.parse(values)


def run(spec: ModelSpec) -> tuple[BuiltModel, torch.Tensor]:
    model = build_model(spec)
    loss = model.forward()
    model.backward(loss)
    return model, loss.detach()


def gradients(model: BuiltModel) -> dict[str, torch.Tensor]:
    """Gradient of every leaf but the target, weights as the chapter lays them: (fan_in, fan_out)."""
    found = {}
    for name, leaf in model.leaves.items():
        if name == "y":
            continue
        gradient = leaf.grad if model.autograd else leaf.g
        assert gradient.shape == leaf.shape
        assert gradient.dtype == leaf.dtype
        found[name] = gradient.t() if model.autograd and name.startswith("w") else gradient
    return found


def assert_same(got: torch.Tensor, expected: torch.Tensor, tolerance: float, name: str) -> None:
    """Relative to the largest element: where terms cancel, a single element has no relative accuracy to speak of."""
    assert got.shape == expected.shape, name
    size = expected.abs().max().item()
    assert (got - expected).abs().max().item() <= tolerance * size, name


# ---------------------------------------------------------------------------------------- five styles, same numbers


def torch_reference(spec: ModelSpec) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss and gradients by torch's own functions and autograd, from the same draw."""
    leaves = draw_leaves(spec)
    for name, leaf in leaves.items():
        if name != "y":
            leaf.requires_grad_()
    function = {"linear": lambda x: x, "tanh": torch.tanh, "sigmoid": torch.sigmoid}.get(spec.activation)
    function = function or getattr(F, spec.activation)
    hidden = leaves["x"]
    for index in range(1, spec.depth + 1):
        hidden = F.linear(hidden, leaves[f"w{index}"].t(), leaves.get(f"b{index}"))
        if index < spec.depth or spec.last_activation:
            hidden = function(hidden)
    y = leaves["y"]
    loss = F.cross_entropy(hidden, y) if spec.loss == "cross_entropy" else F.mse_loss(hidden.view(y.shape), y)
    loss.backward()
    return loss.detach(), {name: leaf.grad for name, leaf in leaves.items() if name != "y"}


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_every_style_agrees_with_torch(style, activation, loss, dtype):
    spec = spec_of(
        style=style, activation=activation, loss=loss, dtype=dtype, widths="12,10,8,3", batch=20, bias_std=0.3, seed=3
    )
    expected_loss, expected = torch_reference(spec)
    model, value = run(spec)
    assert value.dtype == getattr(torch, dtype)
    assert value.shape == ()
    assert_same(value, expected_loss, TOLERANCE[dtype], "loss")
    found = gradients(model)
    assert found.keys() == expected.keys() == {"x", "w1", "b1", "w2", "b2", "w3", "b3"}
    for name, gradient in found.items():
        assert_same(gradient, expected[name], TOLERANCE[dtype], name)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"batch": 1},
        {"batch": 1, "widths": "6,1"},
        {"widths": "1,1,1", "batch": 3},
        {"widths": "6,5,4", "batch": 1},
        {"widths": "6,5,4", "batch": 1, "loss": "cross_entropy"},
        {"bias": False},
        {"last_activation": True},
        {"last_activation": True, "widths": "6,5,4", "activation": "tanh"},
        {"widths": "6,5", "activation": "linear"},
        {"init": "zeros"},  # every preactivation sits on relu's kink
        {"init": "torch_default"},
        {"widths": "20x21", "init": "orthogonal", "activation": "silu"},
    ],
    ids=str,
)
@pytest.mark.parametrize("style", STYLES)
def test_every_shape_of_model_agrees_with_torch(style, values):
    spec = spec_of(**values, style=style, dtype="float64")
    expected_loss, expected = torch_reference(spec)
    model, value = run(spec)
    assert_same(value, expected_loss, 1e-12, "loss")
    found = gradients(model)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_same(gradient, expected[name], 1e-12, name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("style", STYLES)
def test_half_precision_stays_half_and_near_float64(style, loss, dtype):
    values = {"style": style, "loss": loss, "widths": "12,10,3", "batch": 20, "activation": "tanh"}
    model, value = run(spec_of(**values, dtype=dtype))
    exact, exact_value = run(spec_of(**values, dtype="float64"))
    assert value.dtype == getattr(torch, dtype)
    for name, leaf in model.leaves.items():
        assert leaf.dtype == (torch.int64 if name == "y" and loss == "cross_entropy" else getattr(torch, dtype))
    # A few roundings of 2⁻⁹ (bfloat16) or 2⁻¹² (float16) in sequence.
    tolerance = 0.05 if dtype == "bfloat16" else 0.01
    assert_same(value.double(), exact_value, tolerance, "loss")
    for name, gradient in gradients(model).items():
        assert_same(gradient.double(), gradients(exact)[name], tolerance, name)


def test_on_overflow_the_relus_differ_as_documented():
    # Where a gradient is Inf behind a closed unit, 0 · Inf = NaN in the chapter's relu; autograd's selects the 0.
    values = {"widths": "100x4,1", "init": "standard_normal", "dtype": "float16", "batch": 8}
    found = {style: gradients(run(spec_of(**values, style=style))[0])["w1"] for style in STYLES}
    chapter, autograd = found["functions"], found["module"]
    assert chapter.isnan().any()
    assert not autograd.isnan().any()
    for style in ("classes", "layer_function", "autograd_function"):
        assert torch.equal(found[style].isnan(), chapter.isnan()), style
    finite = chapter.isfinite() & autograd.isfinite()
    assert finite.sum() > 1000
    torch.testing.assert_close(chapter[finite], autograd[finite], rtol=0.02, atol=0.02)


def test_a_second_pass_gives_the_same_gradients():
    for style in STYLES:
        model, loss = run(spec_of(style=style, widths="6,5,1", batch=4))
        first = {name: gradient.clone() for name, gradient in gradients(model).items()}
        again = model.forward()
        model.backward(again)
        assert torch.equal(again.detach(), loss)
        for name, gradient in gradients(model).items():
            assert torch.equal(gradient, first[name]), (style, name)


def test_500_layers_in_every_style():
    for style in STYLES:
        _, loss = run(spec_of(style=style, widths="4x501", init="orthogonal", activation="linear", batch=2))
        assert loss.isfinite()


# --------------------------------------------------------------------------------------------------------- names


def test_the_chapter_s_names():
    spec = spec_of()
    assert name_layers(spec) == (
        LayerNames(1, "layer 1", "l1", "l2", "w1", "b1"),
        LayerNames(2, "layer 2", "out", "out", "w2", "b2"),
    )
    for style in STYLES:
        model = build_model(spec_of(style=style))
        assert model.outputs == {"layers.0": "l1", "layers.1": "l2", "layers.2": "out", "loss": "loss"}
        assert list(model.leaves) == ["x", "w1", "b1", "w2", "b2", "y"]
        assert model.layers == name_layers(spec)


@pytest.mark.parametrize(
    ("values", "outputs"),
    [
        (
            {"widths": "5,4,3,2"},
            {"layers.0": "l1", "layers.1": "l2", "layers.2": "l3", "layers.3": "l4", "layers.4": "out", "loss": "loss"},
        ),
        (
            {"widths": "5,4,3,2", "activation": "linear"},
            {"layers.0": "l1", "layers.1": "l2", "layers.2": "out", "loss": "loss"},
        ),
        (
            {"widths": "5,4,2", "last_activation": True},
            {"layers.0": "l1", "layers.1": "l2", "layers.2": "l3", "layers.3": "out", "loss": "loss"},
        ),
        ({"widths": "5,2", "activation": "linear", "last_activation": True}, {"layers.0": "out", "loss": "loss"}),
        ({"widths": "5,2", "last_activation": True}, {"layers.0": "l1", "layers.1": "out", "loss": "loss"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("style", STYLES)
def test_outputs(style, values, outputs):
    model = build_model(spec_of(**values, style=style))
    assert model.outputs == outputs
    if style in ("classes", "layer_function", "module"):
        assert len(model.root.layers) == len(outputs) - 1


def test_names_of_deep_layers():
    names = name_layers(spec_of(widths="7x4", last_activation=True, bias=False))
    assert [(layer.preactivation, layer.activation) for layer in names] == [("l1", "l2"), ("l3", "l4"), ("l5", "out")]
    assert [layer.bias for layer in names] == [None] * 3
    names = name_layers(spec_of(widths="7x4", activation="linear"))
    assert [(layer.preactivation, layer.activation) for layer in names] == [("l1", "l1"), ("l2", "l2"), ("out", "out")]


def test_every_output_is_what_its_name_says():
    # The numbers behind l1, l2 and out, told by the layers that made them.
    spec = spec_of(widths="6,5,1", batch=4)
    leaves = draw_leaves(spec)
    l1 = leaves["x"] @ leaves["w1"] + leaves["b1"]
    expected = {"l1": l1, "l2": l1.relu(), "out": l1.relu() @ leaves["w2"] + leaves["b2"]}
    model, _ = run(spec)
    for path, name in model.outputs.items():
        if name != "loss":
            layer = model.root.layers[int(path.removeprefix("layers."))]
            torch.testing.assert_close(layer.out, expected[name])


def test_the_parts_are_the_style_s_own():
    def types(style, activation="relu"):
        root = build_model(spec_of(style=style, activation=activation)).root
        return type(root), [type(layer) for layer in root.layers], type(root.loss)

    assert types("classes") == (layers.Model, [layers.Lin, layers.Relu, layers.Lin], layers.Mse)
    assert types("layer_function") == (
        layers.Model,
        [layer_function.Lin, layer_function.Relu, layer_function.Lin],
        layer_function.Mse,
    )
    assert types("module") == (modules.Model, [modules.Linear, nn.ReLU, modules.Linear], modules.Mse)
    assert types("module", "gelu")[1][1] is nn.GELU
    assert types("classes", "gelu")[1][1] is layers.Activation


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("functions", [("layers.0", "lin"), ("layers.1", "tanh"), ("layers.2", "lin"), ("loss", "mse")]),
        (
            "autograd_function",
            [
                ("layers.0", "LinearFunction"),
                ("layers.1", "ActivationFunction"),
                ("layers.2", "LinearFunction"),
                ("loss", "MseFunction"),
            ],
        ),
    ],
)
def test_plain_functions_are_called_in_the_scope_of_their_module(style, expected):
    entered = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            scopes = current_scopes.get()
            if scopes and (not entered or entered[-1] != scopes):
                entered.append(scopes)
            return function(*args, **(kwargs or {}))

    model = build_model(spec_of(style=style, activation="tanh", widths="6,5,1", batch=4))
    with Watch():
        loss = model.forward()
        assert entered == [(pair,) for pair in expected]
        entered.clear()
        model.backward(loss)
    assert entered == ([(pair,) for pair in reversed(expected)] if style == "functions" else [])
    assert current_scopes.get() == ()


@pytest.mark.parametrize("style", STYLES)
def test_leaves_are_the_tensors_the_model_computes_with(style):
    model = build_model(spec_of(style=style, widths="6,5,1", batch=4))
    assert model.autograd == (style in AUTOGRAD)
    before = model.forward().item()
    with torch.no_grad():
        model.leaves["w2"].mul_(2)
    assert model.forward().item() != before
    if style == "module":
        assert model.leaves["w1"] is model.root.layers[0].weight
        assert model.leaves["b1"] is model.root.layers[0].bias
    for name, leaf in model.leaves.items():
        assert leaf.requires_grad == (style in AUTOGRAD and name != "y")
        assert leaf.is_leaf
        assert leaf.is_contiguous()


# --------------------------------------------------------------------------------------------------------- draws


def chapter_leaves(spec: ModelSpec) -> dict[str, torch.Tensor]:
    """The leaves of a built model, detached, weights as (fan_in, fan_out)."""
    model = build_model(spec)
    return {
        name: (leaf.t() if model.autograd and name.startswith("w") else leaf).detach()
        for name, leaf in model.leaves.items()
    }


BASE = {"widths": "12,10,8", "batch": 6, "bias_std": 0.5, "seed": 11}


@pytest.mark.smoke
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("style", STYLES)
def test_the_draw_is_the_same_in_every_style(style, init):
    values = BASE | {"init": init} | ({"bias_std": 0} if init == "torch_default" else {})
    expected = chapter_leaves(spec_of(**values))
    found = chapter_leaves(spec_of(**values, style=style))
    assert found.keys() == expected.keys()
    for name, leaf in found.items():
        assert torch.equal(leaf, expected[name]), name


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_a_dtype_casts_the_draw(dtype):
    expected = chapter_leaves(spec_of(**BASE))
    for name, leaf in chapter_leaves(spec_of(**BASE, dtype=dtype)).items():
        assert torch.equal(leaf, expected[name].to(getattr(torch, dtype))), name


@pytest.mark.parametrize("scale", [0.25, 8.0, 0.1, 3.7])
def test_scale_multiplies_the_weights_alone(scale):
    expected = chapter_leaves(spec_of(**BASE))
    for name, leaf in chapter_leaves(spec_of(**BASE, scale=scale)).items():
        if not name.startswith("w"):
            assert torch.equal(leaf, expected[name]), name
        elif scale in (0.25, 8.0):
            assert torch.equal(leaf, scale * expected[name]), name
        else:
            torch.testing.assert_close(leaf, scale * expected[name], rtol=3e-7, atol=0)


def test_another_width_leaves_the_other_draws_alone():
    before = chapter_leaves(spec_of(widths="12,10,8,6", batch=6, bias_std=0.5))
    wider = chapter_leaves(spec_of(widths="12,10,8,7", batch=6, bias_std=0.5))
    deeper = chapter_leaves(spec_of(widths="12,10,8,6,5", batch=6, bias_std=0.5))
    for name in ("x", "w1", "b1", "w2", "b2"):
        assert torch.equal(before[name], wider[name]), name
        assert torch.equal(before[name], deeper[name]), name
    assert torch.equal(before["w3"], deeper["w3"])
    taller = chapter_leaves(spec_of(widths="12,10,8,6", batch=7, bias_std=0.5))
    for name in ("w1", "b1", "w3", "b3"):
        assert torch.equal(before[name], taller[name]), name


def test_schemes_of_one_base_share_the_draw():
    expected = chapter_leaves(spec_of(**BASE, init="standard_normal"))
    kaiming = chapter_leaves(spec_of(**BASE, init="kaiming_normal"))
    torch.testing.assert_close(kaiming["w1"], expected["w1"] * (2 / 12) ** 0.5, rtol=3e-7, atol=0)
    torch.testing.assert_close(kaiming["w2"], expected["w2"] * (2 / 10) ** 0.5, rtol=3e-7, atol=0)
    assert torch.equal(kaiming["x"], expected["x"])


def test_another_seed_or_name_is_another_draw():
    one, two = chapter_leaves(spec_of(**BASE)), chapter_leaves(spec_of(**BASE | {"seed": 12}))
    for name, leaf in one.items():
        assert not torch.equal(leaf, two[name]), name
    square = chapter_leaves(spec_of(widths="10,10,10", batch=10))
    drawn = [square[name] for name in ("x", "w1", "w2", "y")]
    for index, tensor in enumerate(drawn):
        for other in drawn[:index]:
            assert not torch.allclose(tensor / tensor.std(), other / other.std())


def test_generators_are_pinned():
    # These numbers are what every permalink promises to give again.
    assert [generator_for(42, name).initial_seed() for name in ("x", "w1", "y")] == [
        3559024184578332787,
        13066298538337190441,
        15734870594865485972,
    ]
    assert generator_for(2**63 - 1, "x").device.type == "cpu"


def test_building_reads_and_changes_no_global_state():
    before = torch.random.get_rng_state()
    one = chapter_leaves(spec_of(**BASE))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    two = chapter_leaves(spec_of(**BASE))
    torch.random.set_rng_state(before)
    for name, leaf in one.items():
        assert torch.equal(leaf, two[name])


def test_models_share_no_tensor():
    # Base draws are kept between builds; what is handed out must be a copy even where nothing rescales it.
    spec = spec_of(init="standard_normal", widths="6,5,1", batch=4)
    first = build_model(spec)
    kept = {name: leaf.clone() for name, leaf in first.leaves.items()}
    with torch.no_grad():
        for leaf in first.leaves.values():
            leaf.fill_(7)
    for name, leaf in build_model(spec).leaves.items():
        assert torch.equal(leaf, kept[name]), name


def test_a_draw_too_large_to_keep_is_the_same_draw():
    large = spec_of(widths="300,200,1", init="standard_normal", batch=2)
    one, two = build_model(large).leaves["w1"], build_model(large).leaves["w1"]
    assert torch.equal(one, two)
    assert torch.equal(one, torch.randn(300, 200, generator=generator_for(42, "w1")))


def test_concurrent_builds_do_not_disturb_each_other():
    specs = [spec_of(seed=seed, widths="30,20,1", batch=10) for seed in range(8)]
    alone = [chapter_leaves(spec) for spec in specs]
    wrong = []

    def work(spec, expected):
        for _ in range(20):
            found = chapter_leaves(spec)
            wrong.extend(name for name, leaf in found.items() if not torch.equal(leaf, expected[name]))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(specs, alone, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("values", "shape"),
    [({"widths": "6,1"}, (9,)), ({"widths": "6,3"}, (9, 3)), ({"widths": "6,3", "loss": "cross_entropy"}, (9,))],
)
def test_target(values, shape):
    y = build_model(spec_of(**values, batch=9)).leaves["y"]
    assert y.shape == shape
    if spec_of(**values).loss == "cross_entropy":
        assert y.dtype == torch.int64
    many = build_model(spec_of(**values, batch=3000)).leaves["y"]
    if values.get("loss") == "cross_entropy":
        share = many.bincount(minlength=3) / 3000
        assert share.tolist() == pytest.approx([1 / 3] * 3, abs=0.05)
    else:
        assert many.mean().item() == pytest.approx(0, abs=0.1)
        assert many.std().item() == pytest.approx(1, abs=0.1)


def test_biases():
    assert build_model(spec_of()).leaves["b1"].tolist() == [0] * 50
    drawn = build_model(spec_of(widths="4,3000,1", bias_std=0.5)).leaves["b1"]
    assert drawn.std().item() == pytest.approx(0.5, rel=0.1)
    assert not any(name.startswith("b") for name in build_model(spec_of(bias=False)).leaves)
    # torch draws its biases as it draws its weights; scale leaves them alone
    leaves = build_model(spec_of(widths="16,3000,1", init="torch_default", scale=100)).leaves
    assert 0.24 < leaves["b1"].abs().max().item() <= 0.25
    assert 24 < leaves["w1"].abs().max().item() <= 25


@pytest.mark.parametrize("init", INITS)
def test_every_init_of_the_spec_has_its_scheme(init):
    assert set(SCHEMES) == set(INITS)
    w = build_model(spec_of(widths="300,200,1", init=init)).leaves["w1"]
    factor = SCHEMES[init].factor(300, 200)
    # Standard deviation of the base draw: N(0,1), U(−1,1), an orthonormal column's entries, zeros.
    unit = {"normal": 1, "uniform": 3**-0.5, "orthogonal": 300**-0.5, "zeros": 0}[SCHEMES[init].base.__name__]
    assert w.double().std().item() == pytest.approx(unit * factor, rel=0.015, abs=1e-12)


# --------------------------------------------------------------------------------------------------- nominal variances


@pytest.mark.parametrize("widths", ["300,400,200", "200,400,300"])
@pytest.mark.parametrize("init", INITS)
def test_weight_variances_are_those_of_the_draws(init, widths):
    spec = spec_of(widths=widths, init=init, scale=1.7, bias_std=0 if init == "torch_default" else 0.3)
    draws = [draw_leaves(spec.replace(seed=seed)) for seed in range(4)]
    for index, (weight_variance, bias_variance) in enumerate(weight_variances(spec), start=1):
        weights = torch.stack([leaves[f"w{index}"] for leaves in draws]).double()
        biases = torch.stack([leaves[f"b{index}"] for leaves in draws]).double()
        assert weights.shape[1] * weights.pow(2).mean().item() == pytest.approx(weight_variance, rel=0.02)
        assert biases.pow(2).mean().item() == pytest.approx(bias_variance, rel=0.2)


@pytest.mark.smoke
def test_weight_variances_in_closed_form():
    closed_forms = {
        "": [2.0, 0.0, 2.0, 0.0],
        "init=torch_default&scale=3": [3.0, 1 / 300, 3.0, 1 / 150],
        "init=torch_default&bias=false": [1 / 3, 0.0, 1 / 3, 0.0],
        "init=orthogonal&widths=10,40,10": [0.25, 0.0, 1.0, 0.0],
        "init=xavier_uniform&bias_std=0.5": [200 / 150, 0.25, 100 / 51, 0.25],
        "init=zeros": [0.0, 0.0, 0.0, 0.0],
    }
    for query, variances in closed_forms.items():
        found = weight_variances(ModelSpec.from_query(query))
        assert [number for layer in found for number in layer] == pytest.approx(variances), query
