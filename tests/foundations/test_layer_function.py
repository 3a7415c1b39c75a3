import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from chainrule.foundations import layers
from chainrule.foundations.activations import ACTIVATIONS
from chainrule.foundations.layer_function import Activation, CrossEntropy, LayerFunction, Lin, Mse, Relu

EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def autograd_of(f, *tensors, grad_output=None):
    copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = f(*copies)
    return out.detach(), torch.autograd.grad(out, copies, grad_output)


@pytest.mark.smoke
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), [(7, 5, 3), (7, 5, 1), (1, 5, 3)])
def test_lin(generator, batch, fan_in, fan_out, bias):
    # As printed, bwd reads self.inp, which nothing sets any more.
    inp, w = normal(generator, batch, fan_in), normal(generator, fan_in, fan_out)
    b = normal(generator, fan_out) if bias else None
    grad_output = normal(generator, batch, fan_out)
    parameters = [inp, w] if b is None else [inp, w, b]
    expected, gradients = autograd_of(
        lambda inp, w, b=None: F.linear(inp, w.t(), b), *parameters, grad_output=grad_output
    )
    layer = Lin(w, b)
    out = layer(inp)
    out.g = grad_output
    layer.backward()
    torch.testing.assert_close(out, expected, **EXACT)
    for tensor, gradient in zip(parameters, gradients, strict=True):
        assert tensor.g.shape == tensor.shape
        torch.testing.assert_close(tensor.g, gradient, **EXACT)


def test_lin_names_pattern_and_shapes():
    with pytest.raises(ValueError, match=r"expected inp \(batch, fan_in\).*got inp \(7, 5\), w \(4, 3\), b \(3,\)"):
        Lin(torch.ones(4, 3), torch.ones(3))(torch.ones(7, 5))


@pytest.mark.parametrize("name", ["relu", *ACTIVATIONS])
def test_activations(generator, name):
    inp, grad_output = normal(generator, 7, 5), normal(generator, 7, 5)
    f = torch.relu if name == "relu" else ACTIVATIONS[name].f
    expected, (gradient,) = autograd_of(f, inp, grad_output=grad_output)
    layer = Relu() if name == "relu" else Activation(name)
    out = layer(inp)
    out.g = grad_output
    layer.backward()
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(inp.g, gradient, **EXACT)


@pytest.mark.parametrize(
    ("inp_shape", "targ_shape"), [((7, 1), (7,)), ((1, 1), (1,)), ((7, 3), (7, 3)), ((1, 3), (1, 3))]
)
def test_mse(generator, inp_shape, targ_shape):
    inp, targ = normal(generator, *inp_shape), normal(generator, *targ_shape)
    expected, (gradient,) = autograd_of(lambda inp: F.mse_loss(inp.view(targ_shape), targ), inp)
    layer = Mse()
    torch.testing.assert_close(layer(inp, targ), expected, **EXACT)
    layer.backward()
    assert inp.g.shape == inp.shape
    torch.testing.assert_close(inp.g, gradient, **EXACT)
    assert not hasattr(targ, "g")


def test_mse_refuses_what_would_broadcast():
    with pytest.raises(ValueError, match=r"got inp \(200, 1\), targ \(1, 200\)"):
        Mse()(torch.ones(200, 1), torch.ones(1, 200))


@pytest.mark.parametrize("batch", [7, 1])
def test_cross_entropy(generator, batch):
    inp, targ = normal(generator, batch, 5), torch.randint(5, (batch,), generator=generator)
    expected, (gradient,) = autograd_of(lambda inp: F.cross_entropy(inp, targ), inp)
    layer = CrossEntropy()
    torch.testing.assert_close(layer(inp, targ), expected, **EXACT)
    layer.backward()
    torch.testing.assert_close(inp.g, gradient, **EXACT)


def test_the_model_of_the_rung_before_takes_these_layers(generator):
    x, targ = normal(generator, 20, 10), normal(generator, 20)
    w1, b1, w2, b2 = normal(generator, 10, 6), normal(generator, 6), normal(generator, 6, 1), normal(generator, 1)
    expected, gradients = autograd_of(
        lambda x, w1, b1, w2, b2: F.mse_loss((torch.relu(x @ w1 + b1) @ w2 + b2).squeeze(-1), targ), x, w1, b1, w2, b2
    )
    model = layers.Model([Lin(w1, b1), Relu(), Lin(w2, b2)], Mse())
    for _ in range(2):  # the second pass starts afresh
        torch.testing.assert_close(model(x, targ), expected, **EXACT)
        model.backward()
        for tensor, gradient in zip((x, w1, b1, w2, b2), gradients, strict=True):
            torch.testing.assert_close(tensor.g, gradient, **EXACT)


def test_a_layer_of_two_arguments_of_one_s_own(generator):
    class Mul(LayerFunction):
        def forward(self, a, b):
            return a * b

        def bwd(self, out, a, b):
            layers.accumulate(a, b * out.g)
            layers.accumulate(b, a * out.g)

    a = normal(generator, 3)
    layer = Mul()
    out = layer(a, a)  # one tensor in both places: a², whose derivative is 2a
    out.g = torch.ones_like(out)
    layer.backward()
    torch.testing.assert_close(a.g, 2 * a, **EXACT)


def test_the_base_names_what_a_layer_must_say():
    class Nothing(LayerFunction):
        pass

    class ForwardOnly(LayerFunction):
        def forward(self, inp):
            return inp + 1

    with pytest.raises(NotImplementedError, match=r"Nothing\.forward"):
        Nothing()(torch.ones(1))
    layer = ForwardOnly()
    layer(torch.ones(1))
    with pytest.raises(NotImplementedError, match=r"ForwardOnly\.bwd"):
        layer.backward()
