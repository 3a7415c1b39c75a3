import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import normal

from chainrule.foundations import layer_function, layers
from chainrule.foundations.activations import ACTIVATIONS
from chainrule.foundations.layers import (
    Lin,
    Model,
    Mse,
    accumulate,
    cross_entropy,
    forward_and_backward,
    model,
    zero_grad,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}
CLASSES = {"lin": "Lin", "relu": "Relu", "activation": "Activation", "mse": "Mse", "cross_entropy": "CrossEntropy"}

every_form = pytest.mark.parametrize(
    "form", [None, layers, layer_function], ids=["function", "class", "layer_function"]
)


def autograd_of(f, *tensors, grad_output=None):
    """out and the gradients of `tensors`, by autograd from copies."""
    copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = f(*copies)
    return out.detach(), torch.autograd.grad(out, copies, grad_output)


def both_passes(form, kind, inp, *rest, grad_output=None):
    """The output of a layer after its forward and backward passes, by functions or by a class of a module."""
    is_loss = kind in ("mse", "cross_entropy")
    if form is None:
        out = getattr(layers, kind)(inp, *rest)
        out.g = grad_output
        getattr(layers, f"{kind}_grad")(*((inp, *rest) if is_loss else (inp, out, *rest)))
        return out
    made = getattr(form, CLASSES[kind])
    layer = made() if is_loss else made(*rest)
    out = layer(inp, *rest) if is_loss else layer(inp)
    out.g = grad_output
    layer.backward()
    return out


@pytest.mark.smoke
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), [(7, 5, 3), (7, 5, 1), (1, 5, 3), (1, 1, 1)])
@every_form
def test_lin_against_torch(generator, form, batch, fan_in, fan_out, bias):
    inp, w = normal(generator, batch, fan_in), normal(generator, fan_in, fan_out)
    parameters = [inp, w, normal(generator, fan_out)] if bias else [inp, w]
    grad_output = normal(generator, batch, fan_out)
    expected, gradients = autograd_of(
        lambda inp, w, b=None: F.linear(inp, w.t(), b), *parameters, grad_output=grad_output
    )
    torch.testing.assert_close(both_passes(form, "lin", *parameters, grad_output=grad_output), expected, **EXACT)
    for tensor, gradient in zip(parameters, gradients, strict=True):
        assert tensor.g.shape == tensor.shape
        torch.testing.assert_close(tensor.g, gradient, **EXACT)


ONES, CLASSES_0 = torch.ones, torch.zeros(7, dtype=torch.int64)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("lin", (ONES(7, 5), ONES(4, 3), ONES(3)), r"inp \(7, 5\), w \(4, 3\), b \(3,\)"),
        ("lin", (ONES(7, 5), ONES(5, 3), ONES(1)), r"inp \(7, 5\), w \(5, 3\), b \(1,\)"),
        ("lin", (ONES(2, 7, 5), ONES(5, 3)), r"inp \(2, 7, 5\), w \(5, 3\), b None"),
        ("lin", (ONES(7, 5), ONES(5)), r"expected inp \(batch, fan_in\), w \(fan_in, fan_out\).*w \(5,\), b None"),
        # PyTorch would broadcast these.
        ("mse", (ONES(200, 1), ONES(1, 200)), r"expected inp \(batch, 1\) with targ \(batch,\).*targ \(1, 200\)"),
        ("mse", (ONES(200), ONES(200, 1)), r"got inp \(200,\), targ \(200, 1\)"),
        ("mse", (ONES(3, 3), ONES(3)), r"got inp \(3, 3\), targ \(3,\)"),
        ("cross_entropy", (ONES(7, 5), CLASSES_0[1:]), r"expected inp \(batch, classes\).*targ \(6,\) of int64"),
        ("cross_entropy", (ONES(7, 5), CLASSES_0[:, None]), r"got inp \(7, 5\), targ \(7, 1\) of int64"),
        ("cross_entropy", (ONES(7, 5), ONES(7)), r"got inp \(7, 5\), targ \(7,\) of float32"),
    ],
)
@every_form
def test_shapes_that_do_not_fit_are_named(form, kind, arguments, says):
    with pytest.raises(ValueError, match=says):
        both_passes(form, kind, *arguments)
    if form is None and kind != "lin":
        with pytest.raises(ValueError, match=says):
            getattr(layers, f"{kind}_grad")(*arguments)


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (2, 3, 4), ()])
@every_form
def test_relu_against_torch(generator, form, shape):
    inp, grad_output = normal(generator, *shape), normal(generator, *shape)
    if inp.ndim:
        inp.view(-1)[0] = 0.0  # the kink
    expected, (gradient,) = autograd_of(torch.relu, inp, grad_output=grad_output)
    assert torch.equal(both_passes(form, "relu", inp, grad_output=grad_output), expected)
    assert torch.equal(inp.g, gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_form
def test_relu_gradient_keeps_the_dtype(form, dtype):
    inp = torch.tensor([-1.0, 2.0], dtype=dtype)
    both_passes(form, "relu", inp, grad_output=torch.tensor([3.0, 4.0], dtype=dtype))
    assert (inp.g.dtype, inp.g.tolist()) == (dtype, [0.0, 4.0])


@every_form
def test_relu_gradient_is_nan_where_infinity_meets_a_closed_unit(form):
    inp = torch.tensor([-1.0, -1.0, 1.0])
    grad_output = torch.tensor([float("inf"), 2.0, float("inf")])
    both_passes(form, "relu", inp, grad_output=grad_output)
    assert torch.isnan(inp.g[0])
    assert inp.g[1:].tolist() == [0.0, float("inf")]


@pytest.mark.parametrize("name", ACTIVATIONS)
@every_form
def test_activation_reads_the_table(generator, form, name):
    inp, grad_output = normal(generator, 7, 5), normal(generator, 7, 5)
    expected, (gradient,) = autograd_of(ACTIVATIONS[name].f, inp, grad_output=grad_output)
    assert torch.equal(both_passes(form, "activation", inp, name, grad_output=grad_output), expected)
    torch.testing.assert_close(inp.g, gradient, **EXACT)


@pytest.mark.parametrize(
    ("inp_shape", "targ_shape"),
    [((7, 1), (7,)), ((1, 1), (1,)), ((7, 3), (7, 3)), ((7, 1), (7, 1)), ((7,), (7,))],
)
@every_form
def test_mse_against_torch(generator, form, inp_shape, targ_shape):
    inp, targ = normal(generator, *inp_shape), normal(generator, *targ_shape)
    expected, (gradient,) = autograd_of(lambda inp: F.mse_loss(inp.view(targ_shape), targ), inp)
    loss = both_passes(form, "mse", inp, targ)
    assert loss.shape == ()
    torch.testing.assert_close(loss, expected, **EXACT)
    assert inp.g.shape == inp.shape
    torch.testing.assert_close(inp.g, gradient, **EXACT)
    assert not hasattr(targ, "g")


@pytest.mark.parametrize(("batch", "classes"), [(7, 5), (1, 5), (7, 2), (1, 1)])
@every_form
def test_cross_entropy_against_torch(generator, form, batch, classes):
    inp = 3 * normal(generator, batch, classes)
    targ = torch.randint(classes, (batch,), generator=generator)
    expected, (gradient,) = autograd_of(lambda inp: F.cross_entropy(inp, targ), inp)
    loss = both_passes(form, "cross_entropy", inp, targ)
    assert loss.shape == ()
    torch.testing.assert_close(loss, expected, **EXACT)
    torch.testing.assert_close(inp.g, gradient, **EXACT)


def test_cross_entropy_of_huge_logits_is_finite():
    assert cross_entropy(torch.tensor([[1000.0, 0.0, -1000.0]]), torch.tensor([2])).item() == 2000


def test_accumulate_and_zero_grad():
    tensor = torch.zeros(2)
    first = torch.tensor([1.0, 2.0])
    accumulate(tensor, first)
    accumulate(tensor, torch.tensor([10.0, 20.0]))
    assert tensor.g.tolist() == [11.0, 22.0]
    assert first.tolist() == [1.0, 2.0]  # the first share may be another tensor's gradient too: not written to
    zero_grad(tensor)
    accumulate(tensor, first)
    assert tensor.g.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("batch", "n_out"), [(20, 1), (20, 4), (1, 1)])
def test_the_tensors_between_have_autograd_s_gradients_in_every_pass(generator, batch, n_out):
    x, targ = normal(generator, batch, 10), normal(generator, *((batch,) if n_out == 1 else (batch, n_out)))
    w1, b1, w2, b2 = (normal(generator, *shape) for shape in ((10, 6), (6,), (6, n_out), (n_out,)))
    leaf = x.detach().clone().requires_grad_()
    first = F.linear(leaf, w1.t(), b1)
    second = torch.relu(first)
    last = F.linear(second, w2.t(), b2)
    expected = torch.autograd.grad(F.mse_loss(last.view(targ.shape), targ), (leaf, first, second, last))
    for _ in range(2):  # the second pass starts afresh
        l1, l2, out, loss = forward_and_backward(x, targ, w1, b1, w2, b2)
        assert not loss.requires_grad
        for tensor, gradient in zip((x, l1, l2, out), expected, strict=True):
            assert tensor.g.shape == tensor.shape
            torch.testing.assert_close(tensor.g, gradient, **EXACT)
    torch.testing.assert_close(model(x, w1, b1, w2, b2), out, **EXACT)


@pytest.mark.smoke
@pytest.mark.parametrize("form", [layers, layer_function])
def test_a_tensor_used_twice_gets_both_gradients_and_every_pass_starts_afresh(generator, form):
    x, w, b, targ = (normal(generator, *shape) for shape in ((7, 3), (3, 3), (3,), (7, 3)))
    expected, gradients = autograd_of(lambda x, w, b: F.mse_loss(torch.tanh(torch.tanh(x @ w + b)) @ w, targ), x, w, b)
    model = Model([form.Lin(w, b), form.Activation("tanh"), form.Activation("tanh"), form.Lin(w)], form.Mse())
    assert [id(parameter) for parameter in model.parameters()] == [id(w), id(b), id(w)]
    for _ in range(2):
        torch.testing.assert_close(model(x, targ), expected, **EXACT)
        model.backward()
        for tensor, gradient in zip((x, w, b), gradients, strict=True):
            torch.testing.assert_close(tensor.g, gradient, **EXACT)


def test_a_thousand_layers(generator):
    # Deeper than Python's stack allows a recursive walk.
    model = Model([Lin(torch.eye(2, dtype=torch.float64) * 0.999) for _ in range(1100)], Mse())
    x, targ = normal(generator, 3, 2), normal(generator, 3, 2)
    loss = model(x, targ)
    model.backward()
    decay = 0.999**1100
    torch.testing.assert_close(loss, F.mse_loss(decay * x, targ), rtol=1e-9, atol=0)
    torch.testing.assert_close(x.g, decay * 2 * (decay * x - targ) / 6, rtol=1e-9, atol=0)
