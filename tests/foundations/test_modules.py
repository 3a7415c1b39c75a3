import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from chainrule.foundations.modules import (
    AutoSuperModel,
    Linear,
    LinearLayer,
    Module,
    SequentialModel,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}


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
