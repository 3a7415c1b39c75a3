from itertools import product

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from chainrule.foundations.activations import ACTIVATIONS
from chainrule.foundations.functions import (
    ActivationFunction,
    CrossEntropyFunction,
    Exp,
    LinearFunction,
    MulConstant,
    MyRelu,
    SinCos,
    SinCosSparing,
)


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def off_the_kink(generator, *shape):
    """Values at least 0.1 away from 0, where relu has no derivative."""
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (values + 0.1 * values.sign()).requires_grad_()


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("function", "check"),
    [
        *product([MyRelu.apply, Exp.apply, lambda inp: MulConstant.apply(inp, -2.5)], [gradcheck, gradgradcheck]),
        *product([SinCos.apply, SinCosSparing.apply], [gradcheck, gradgradcheck]),
        *((lambda inp, name=name: ActivationFunction.apply(inp, name), gradcheck) for name in ACTIVATIONS),
    ],
)
def test_functions_of_one_input_pass_gradcheck(generator, function, check):
    assert check(function, (off_the_kink(generator, 5, 4),))


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), [(5, 4, 3), (1, 4, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_function(generator, check, batch, fan_in, fan_out, bias):
    tensors = [normal(generator, batch, fan_in), normal(generator, fan_out, fan_in)]
    if bias:
        tensors.append(normal(generator, fan_out))
    assert check(LinearFunction.apply, tuple(tensors))


def test_cross_entropy_function_names_the_dtype():
    with pytest.raises(ValueError, match=r"of float32"):
        CrossEntropyFunction.apply(torch.ones(5, 2), torch.ones(5))


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
def test_linear_function_computes_only_the_needed_gradients(generator, needed):
    tensors = [normal(generator, 5, 4), normal(generator, 3, 4), normal(generator, 3)]

    class Context:  # backward itself, since autograd would drop what nobody asked for
        saved_tensors = tensors[:2]
        needs_input_grad = needed

    gradients = LinearFunction.backward(Context, torch.ones(5, 3, dtype=torch.float64))
    assert tuple(gradient is not None for gradient in gradients) == needed


@pytest.mark.parametrize(
    ("inp", "weight", "bias", "shapes"),
    [
        ((5, 4), (4, 3), (3,), r"inp \(5, 4\), weight \(4, 3\), bias \(3,\)"),
        ((5, 4), (3, 4), (1,), r"inp \(5, 4\), weight \(3, 4\), bias \(1,\)"),
        ((2, 5, 4), (3, 4), None, r"inp \(2, 5, 4\), weight \(3, 4\), bias None"),
    ],
)
def test_linear_function_names_pattern_and_shapes(inp, weight, bias, shapes):
    with pytest.raises(ValueError, match=r"expected inp \(batch, fan_in\), weight \(fan_out, fan_in\).*got " + shapes):
        LinearFunction.apply(torch.ones(inp), torch.ones(weight), None if bias is None else torch.ones(bias))
