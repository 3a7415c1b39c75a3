import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import normal

from chainrule.foundations import layer_function, layers
from chainrule.foundations.activations import ACTIVATIONS
from chainrule.foundations.layers import (
    Model,
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


def linear(inp, w, b=None):
    return F.linear(inp, w.t(), b)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("kind", "reference", "shapes"),
    [
        *(("lin", linear, shapes) for shapes in ([(7, 5), (5, 3), (3,)], [(7, 5), (5, 3)], [(1, 5), (5, 1), (1,)])),
        *(("relu", torch.relu, [shape]) for shape in ((7, 5), (2, 3, 4), ())),
        *((name, ACTIVATIONS[name].f, [(7, 5)]) for name in ACTIVATIONS),
    ],
)
@every_form
def test_a_layer_has_torch_s_output_and_gradients(generator, form, kind, reference, shapes):
    tensors = [normal(generator, *shape) for shape in shapes]
    if tensors[0].ndim:
        tensors[0].view(-1)[0] = 0.0  # the kink
    grad_output = normal(generator, *reference(*tensors).shape)
    expected, gradients = autograd_of(reference, *tensors, grad_output=grad_output)
    rest = tensors[1:]
    if kind not in CLASSES:
        kind, rest = "activation", [kind]
    torch.testing.assert_close(both_passes(form, kind, tensors[0], *rest, grad_output=grad_output), expected, **EXACT)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        torch.testing.assert_close(tensor.g, gradient, **EXACT)


@pytest.mark.parametrize(
    ("kind", "inp_shape", "targ_shape"),
    [
        *(("mse", (batch, 1), (batch,)) for batch in (7, 1)),
        *(("mse", shape, shape) for shape in ((7, 3), (7, 1), (7,))),
        *(("cross_entropy", shape, shape[:1]) for shape in ((7, 5), (1, 5), (1, 1))),
    ],
)
@every_form
def test_a_loss_has_torch_s_value_and_gradient(generator, form, kind, inp_shape, targ_shape):
    inp = normal(generator, *inp_shape)
    if kind == "mse":
        targ, reference = normal(generator, *targ_shape), lambda inp: F.mse_loss(inp.view(targ_shape), targ)
    else:
        targ = torch.randint(inp_shape[1], targ_shape, generator=generator)
        reference = lambda inp: F.cross_entropy(inp, targ)  # noqa: E731
    expected, (gradient,) = autograd_of(reference, inp)
    torch.testing.assert_close(both_passes(form, kind, inp, targ), expected, **EXACT)
    torch.testing.assert_close(inp.g, gradient, **EXACT)


@every_form
def test_relu_gradient_is_nan_where_infinity_meets_a_closed_unit(form):
    inp, infinity = torch.tensor([-1.0, -1.0, 1.0]), float("inf")
    both_passes(form, "relu", inp, grad_output=torch.tensor([infinity, 2.0, infinity]))
    torch.testing.assert_close(inp.g, torch.tensor([torch.nan, 0.0, infinity]), equal_nan=True)


def test_cross_entropy_of_huge_logits_is_finite():
    assert cross_entropy(torch.tensor([[1000.0, 0.0, -1000.0]]), torch.tensor([2])).item() == 2000


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


def test_the_written_out_chain_rule_starts_afresh_in_every_pass(generator):
    x, targ, *parameters = (normal(generator, *shape) for shape in ((9, 5), (9, 2), (5, 4), (4,), (4, 2), (2,)))
    first, second = (forward_and_backward(x, targ, *parameters)[2] for _ in range(2))
    leaf = x.detach().clone().requires_grad_()
    F.mse_loss(model(leaf, *parameters), targ).backward()
    torch.testing.assert_close(x.g, leaf.grad, **EXACT)
    assert torch.equal(first.g, second.g)


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


def test_the_base_class_names_the_missing_method():
    class ForwardOnly(layer_function.LayerFunction):
        def forward(self, inp):
            return inp + 1

    with pytest.raises(NotImplementedError, match=r"LayerFunction\.forward"):
        layer_function.LayerFunction()(torch.ones(1))
    layer = ForwardOnly()
    layer(torch.ones(1))
    with pytest.raises(NotImplementedError, match=r"ForwardOnly\.bwd"):
        layer.backward()
