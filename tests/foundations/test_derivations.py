import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import normal
from sympy import Symbol, lambdify

from chainrule.foundations import derivations as d

MATHML = "{http://www.w3.org/1998/Math/MathML}"
BATCH, FAN_IN, FAN_OUT = 4, 3, 2


@pytest.mark.parametrize("n_out", [1, 3])
@pytest.mark.parametrize("batch", [1, 7])
def test_mse_is_autograd_s(generator, batch, n_out):
    out, y = normal(generator, batch, n_out).requires_grad_(), normal(generator, batch, n_out)
    F.mse_loss(out, y).backward()
    computed = lambdify((d.out, d.y, d.p, d.N), d.derivations()["mse"].result)
    flat = out.detach().flatten().numpy(), y.flatten().numpy()
    got = [computed(*flat, element, y.numel()) for element in range(y.numel())]
    np.testing.assert_allclose(got, out.grad.flatten().numpy(), rtol=1e-12)


def test_the_batch_and_the_number_of_squares_have_different_letters():
    # n is the batch wherever it stands: mse divided by it is the misprint that the page shows.
    for name, derivation in d.derivations().items():
        sizes = {size for each in derivation.equations for size in each.right.free_symbols & {d.n, d.N}}
        assert sizes == ({d.N} if name == "mse" else {d.n} if name.startswith("lin_") else set()), name


@pytest.mark.parametrize("point", [-2.5, -1e-9, 0.0, 1e-9, 3.0])
def test_relu_is_autograd_s(point):
    inp = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    (torch.relu(inp) * 1.5).backward()
    result = d.derivations()["relu"].result
    assert float(result.subs({Symbol("inp", real=True): point, Symbol("g"): 1.5})) == inp.grad.item()


def test_every_gradient_of_the_linear_layer_is_autograd_s(generator):
    inp, w, b = normal(generator, BATCH, FAN_IN), normal(generator, FAN_IN, FAN_OUT), normal(generator, FAN_OUT)
    g = normal(generator, BATCH, FAN_OUT)
    leaves = [tensor.clone().requires_grad_() for tensor in (inp, w, b)]
    expected = torch.autograd.grad(leaves[0] @ leaves[1] + leaves[2], leaves, g)
    for name, gradient in zip(("lin_inp", "lin_w", "lin_b"), expected, strict=True):
        result = d.derivations()[name].result
        computed = lambdify((d.inp, d.w, d.g, d.p, d.q, d.n, d.c), result)
        for place in np.ndindex(gradient.shape):
            p, q = place if len(place) == 2 else (0, *place)
            got = computed(inp.numpy(), w.numpy(), g.numpy(), p, q, BATCH, FAN_OUT)
            assert got == pytest.approx(gradient[place].item(), rel=1e-12), (name, place)


@pytest.mark.parametrize("x", [0.7, -0.7])  # the relu is open, and shut
def test_the_chain_is_autograd_s(x):
    values = {"x": x, "w1": 1.3, "b1": 0.1, "w2": -0.4, "b2": 0.2, "y": 0.9}
    leaves = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in values.items()}
    l1 = leaves["x"] * leaves["w1"] + leaves["b1"]
    l2 = torch.relu(l1)
    out = l2 * leaves["w2"] + leaves["b2"]
    ((out - leaves["y"]) ** 2).backward()
    by = {Symbol(name, real=True): value for name, value in values.items()}
    by |= {Symbol(name, real=True): value.item() for name, value in (("l1", l1), ("l2", l2), ("out", out))}
    _, by_b2, _, by_w1, at_once, difference = d.derivations()["chain"].equations
    assert float(by_b2.right.subs(by)) == pytest.approx(leaves["b2"].grad.item(), rel=1e-12)
    assert float(by_w1.right.subs(by)) == pytest.approx(leaves["w1"].grad.item(), rel=1e-12)
    assert float(at_once.right.subs(by)) == pytest.approx(leaves["w1"].grad.item(), rel=1e-12)
    assert difference.right == 0


def test_every_equation_is_mathml_that_a_browser_reads():
    for derivation in d.derivations().values():
        for equation in derivation.equations:
            root = ElementTree.fromstring(equation.mathml())  # plain XML: no entity of HTML
            assert root.tag == f"{MATHML}math"
            known = "math mrow mi mo mn mtext msub msup mfrac munderover mtable mtr mtd".split()
            assert {element.tag.removeprefix(MATHML) for element in root.iter()} <= set(known)
            assert "piecewise" not in equation.mathml()


def test_the_sum_over_the_batch_is_written():
    chain_rule, left = d.derivations()["lin_w"].equations[2:]
    sums = ElementTree.fromstring(chain_rule.mathml()).findall(f".//{MATHML}munderover")
    assert len(sums) == 2
    (only,) = ElementTree.fromstring(left.mathml()).findall(f".//{MATHML}munderover")
    assert "".join(only.itertext()) == "∑k=0n−1"


@pytest.mark.long
def test_the_server_starts_without_sympy():
    code = "import sys, chainrule.web.main; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
