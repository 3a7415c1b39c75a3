import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import normal
from torch import nn

from chainrule.foundations.functions import LinearFunction
from chainrule.foundations.modules import (
    AutoSuperModel,
    CrossEntropy,
    Linear,
    LinearLayer,
    Model,
    Module,
    Mse,
    SequentialModel,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.smoke
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), [(7, 5, 3), (7, 5, 1), (1, 5, 3)])
@pytest.mark.parametrize("reference", [F.linear, LinearFunction.apply], ids=["F.linear", "LinearFunction"])
def test_linear(generator, reference, batch, fan_in, fan_out, bias):
    layer = Linear(normal(generator, fan_out, fan_in), normal(generator, fan_out) if bias else None)
    inp = normal(generator, batch, fan_in).requires_grad_()
    grad_output = normal(generator, batch, fan_out)
    tensors = [inp, *layer.parameters()]
    out, expected = layer(inp), reference(inp, layer.weight, layer.bias)
    torch.testing.assert_close(out, expected, **EXACT)
    got = torch.autograd.grad(out, tensors, grad_output)
    want = torch.autograd.grad(expected, tensors, grad_output)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, **EXACT)


def drawn(of, *sizes, seed=5):
    return of(*sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("of", "std", "bias"), [(Linear.uniform, 0.1 / 3**0.5, 0.1), (LinearLayer, (2 / 300) ** 0.5, 0)]
)
def test_layers_are_drawn_from_their_generator(of, std, bias):
    before = torch.get_rng_state()
    layer, again, other = drawn(of, 300, 200), drawn(of, 300, 200), drawn(of, 300, 200, seed=6)
    assert torch.equal(torch.get_rng_state(), before)
    assert (layer.weight.shape, layer.bias.shape) == ((200, 300), (200,))
    assert torch.equal(layer.weight, again.weight)
    assert not torch.equal(layer.weight, other.weight)
    assert layer.weight.std().item() == pytest.approx(std, rel=0.02)
    assert layer.bias.abs().max() <= bias


def test_without_bias_there_is_none(generator):
    layer = Linear.uniform(3, 2, bias=False, generator=generator)
    assert "bias" in dict(layer._parameters)
    assert layer.bias is None
    assert layer(torch.ones(1, 3)).shape == (1, 2)
    assert repr(layer) == "Linear(in_features=3, out_features=2, bias=False)"


@pytest.mark.parametrize(("weight", "bias"), [((2, 3), (3,)), ((2,), None)])
def test_linear_names_pattern_and_shapes(weight, bias):
    with pytest.raises(ValueError, match=r"expected weight \(out_features, in_features\)") as raised:
        Linear(torch.zeros(weight), None if bias is None else torch.zeros(bias))
    assert str(raised.value).endswith(f"got weight {weight}, bias {bias}")


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_model(generator, loss):
    w1, b1, w2, b2 = normal(generator, 6, 10), normal(generator, 6), normal(generator, 4, 6), normal(generator, 4)
    x = normal(generator, 20, 10)
    targ = normal(generator, 20, 4) if loss == "mse" else torch.randint(4, (20,), generator=generator)
    ours, torch_s = (Mse(), nn.MSELoss()) if loss == "mse" else (CrossEntropy(), nn.CrossEntropyLoss())
    model = Model([Linear(w1, b1), nn.ReLU(), Linear(w2, b2)], ours)
    assert [path for path, _ in model.named_modules()] == ["", "layers", "layers.0", "layers.1", "layers.2", "loss"]
    reference = nn.Sequential(nn.Linear(10, 6), nn.ReLU(), nn.Linear(6, 4)).double()
    reference.load_state_dict({name.removeprefix("layers."): value for name, value in model.state_dict().items()})
    value, expected = model(x, targ), torch_s(reference(x), targ)
    torch.testing.assert_close(value, expected, **EXACT)
    value.backward()
    expected.backward()
    for (name, parameter), other in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, **EXACT, msg=name)


@pytest.mark.parametrize("n_out", [1, 3])
def test_the_chapter_s_models_are_one(generator, n_out):
    x = torch.randn(6, 5, generator=generator)
    targ = torch.randn(6, generator=generator) if n_out == 1 else torch.randn(6, n_out, generator=generator)
    model, auto = drawn(SequentialModel, 5, 4, n_out), drawn(AutoSuperModel, 5, 4, n_out)
    reference = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, n_out))
    reference.load_state_dict(model.layers.state_dict())
    loss = F.mse_loss(reference(x), targ.view(6, n_out))
    loss.backward()
    for made in (model, auto):
        value = made(x, targ)
        torch.testing.assert_close(value, loss)
        value.backward()
        for (name, parameter), other in zip(made.named_parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, other.grad, msg=name)


def test_module_calls_super_before_init():
    class Forgetful(Module):
        def __init__(self, size, *, extra=0):
            self.weight = nn.Parameter(torch.zeros(size + extra))

    class Careful(Module):
        def __init__(self):
            self.weight = nn.Parameter(torch.zeros(3))
            super().__init__()

    for module in (Forgetful(2, extra=1), Careful()):
        assert [(name, parameter.shape) for name, parameter in module.named_parameters()] == [("weight", (3,))]
    # As any module: copied and saved.
    assert torch.equal(copy.deepcopy(Forgetful(2)).weight, torch.zeros(2))
