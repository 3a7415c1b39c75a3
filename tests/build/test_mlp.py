"""The program mlp in the five styles: torch's numbers from one draw, and the chapter's names."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from chainrule.build import BuiltModel, build_model
from chainrule.build.draws import draw_leaves
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME

STYLES = KEY_BY_NAME["style"].choices
AUTOGRAD = ("autograd_function", "module")
ACTIVATIONS = KEY_BY_NAME["activation"].choices
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
    """Equal relative to the largest element: where terms cancel, a single element has no relative accuracy."""
    assert got.shape == expected.shape, name
    size = expected.abs().max().item()
    assert (got - expected).abs().max().item() <= tolerance * size, name


def assert_same_pass(spec: ModelSpec, tolerance: float) -> None:
    expected_loss, expected = torch_reference(spec)
    model, value = run(spec)
    assert (value.dtype, value.shape) == (getattr(torch, spec.dtype), ())
    assert_same(value, expected_loss, tolerance, "loss")
    found = gradients(model)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_same(gradient, expected[name], tolerance, name)


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
    assert_same_pass(spec, TOLERANCE[dtype])


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
    assert_same_pass(spec_of(**values, style=style, dtype="float64"), 1e-12)


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


@pytest.mark.parametrize("style", STYLES)
def test_a_second_pass_gives_the_same_gradients(style):
    model, loss = run(spec_of(style=style, widths="6,5,1", batch=4))
    first = {name: gradient.clone() for name, gradient in gradients(model).items()}
    again = model.forward()
    model.backward(again)
    assert torch.equal(again.detach(), loss)
    assert all(torch.equal(gradient, first[name]) for name, gradient in gradients(model).items())


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
