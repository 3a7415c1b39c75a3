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


def test_uniform_draws_from_its_generator():
    layer = Linear.uniform(30, 20, generator=torch.Generator().manual_seed(5))
    again = Linear.uniform(30, 20, generator=torch.Generator().manual_seed(5))
    other = Linear.uniform(30, 20, generator=torch.Generator().manual_seed(6))
    assert layer.weight.shape == (20, 30)
    assert layer.bias.shape == (20,)
    assert torch.equal(layer.weight, again.weight)
    assert not torch.equal(layer.weight, other.weight)
    assert 0.09 < layer.weight.abs().max() <= 0.1
    assert layer.weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)
    assert layer.weight.requires_grad


def test_without_bias_there_is_none(generator):
    # As printed, the constructor passes `bias is not None` with False and crashes on None.data.
    layer = Linear.uniform(3, 2, bias=False, generator=generator)
    assert layer.bias is None
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert "bias" in dict(layer._parameters)
    assert layer(torch.ones(1, 3)).shape == (1, 2)


def test_extra_repr():
    assert repr(Linear(torch.zeros(2, 3), torch.zeros(2))) == "Linear(in_features=3, out_features=2, bias=True)"
    assert repr(Linear(torch.zeros(2, 3))) == "Linear(in_features=3, out_features=2, bias=False)"


def test_linear_names_pattern_and_shapes():
    with pytest.raises(
        ValueError, match=r"expected weight \(out_features, in_features\).*got weight \(2, 3\), bias \(3"
    ):
        Linear(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"got weight \(2,\), bias None"):
        Linear(torch.zeros(2))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_model(generator, loss):
    w1, b1, w2, b2 = normal(generator, 6, 10), normal(generator, 6), normal(generator, 4, 6), normal(generator, 4)
    x = normal(generator, 20, 10)
    targ = normal(generator, 20, 4) if loss == "mse" else torch.randint(4, (20,), generator=generator)
    ours, torch_s = (Mse(), nn.MSELoss()) if loss == "mse" else (CrossEntropy(), nn.CrossEntropyLoss())
    model = Model([Linear(w1, b1), nn.ReLU(), Linear(w2, b2)], ours)
    reference = nn.Sequential(nn.Linear(10, 6), nn.ReLU(), nn.Linear(6, 4)).double()
    reference.load_state_dict({name.removeprefix("layers."): value for name, value in model.state_dict().items()})
    value, expected = model(x, targ), torch_s(reference(x), targ)
    torch.testing.assert_close(value, expected, **EXACT)
    value.backward()
    expected.backward()
    for (name, parameter), other in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, **EXACT, msg=name)


def test_module_paths():
    model = Model([Linear(torch.zeros(2, 3)), nn.ReLU(), Linear(torch.zeros(1, 2))], Mse())
    assert [path for path, _ in model.named_modules()] == ["", "layers", "layers.0", "layers.1", "layers.2", "loss"]


def test_the_loss_squeezes_one_output():
    model = Model([Linear(torch.ones(1, 3))], Mse())
    assert model(torch.ones(2, 3), torch.tensor([3.0, 1.0])).item() == 2.0
    assert model(torch.ones(1, 3), torch.tensor([1.0])).item() == 4.0
    with pytest.raises(ValueError, match=r"got inp \(2, 1\), targ \(1, 2\)"):
        model(torch.ones(2, 3), torch.ones(1, 2))


def test_linear_layer_is_drawn_by_kaiming_from_its_generator():
    layer = LinearLayer(300, 200, generator=torch.Generator().manual_seed(5))
    again = LinearLayer(300, 200, generator=torch.Generator().manual_seed(5))
    assert torch.equal(layer.weight, again.weight)
    assert layer.weight.std().item() == pytest.approx((2 / 300) ** 0.5, rel=0.02)
    assert not layer.bias.any()


def test_with_a_generator_the_global_one_is_left_alone(generator):
    before = torch.get_rng_state()
    LinearLayer(4, 3, generator=generator)
    SequentialModel(4, 3, 1, generator=generator)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("n_out", [1, 3])
def test_the_chapter_s_models_are_one(generator, n_out):
    x = torch.randn(6, 5, generator=generator)
    targ = torch.randn(6, generator=generator) if n_out == 1 else torch.randn(6, n_out, generator=generator)
    model = SequentialModel(5, 4, n_out, generator=torch.Generator().manual_seed(8))
    auto = AutoSuperModel(5, 4, n_out, generator=torch.Generator().manual_seed(8))
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

    assert [name for name, _ in Forgetful(2, extra=1).named_parameters()] == ["weight"]
    assert Forgetful(2, extra=1).weight.shape == (3,)
    assert [name for name, _ in Careful().named_parameters()] == ["weight"]
    # As any module: copied and saved.
    assert torch.equal(copy.deepcopy(Forgetful(2)).weight, torch.zeros(2))
