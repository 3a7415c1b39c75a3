"""The base class; the layers themselves are tested with those of layers.py."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import normal

from chainrule.foundations import layers
from chainrule.foundations.layer_function import LayerFunction, Lin, Mse, Relu

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def autograd_of(f, *tensors):
    copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = f(*copies)
    return out.detach(), torch.autograd.grad(out, copies)


def test_the_model_of_classes_takes_these_layers(generator):
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


def test_a_user_s_layer_of_two_arguments(generator):
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


def test_the_base_class_names_the_missing_method():
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
