"""The base class; the layers themselves are tested with those of layers.py."""

import pytest
import torch
from draws import normal

from chainrule.foundations import layers
from chainrule.foundations.layer_function import LayerFunction


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
    torch.testing.assert_close(a.g, 2 * a, rtol=1e-12, atol=1e-12)


def test_the_base_class_names_the_missing_method():
    class ForwardOnly(LayerFunction):
        def forward(self, inp):
            return inp + 1

    with pytest.raises(NotImplementedError, match=r"LayerFunction\.forward"):
        LayerFunction()(torch.ones(1))
    layer = ForwardOnly()
    layer(torch.ones(1))
    with pytest.raises(NotImplementedError, match=r"ForwardOnly\.bwd"):
        layer.backward()
