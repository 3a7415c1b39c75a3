import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from chainrule.foundations.styles import LEAVES, STYLES, run_style


def draw(batch, n_in, hidden, n_out):
    generator = torch.Generator().manual_seed(batch * 31 + n_out)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    targ = normal(batch) if n_out == 1 else normal(batch, n_out)
    return normal(batch, n_in), targ, normal(n_in, hidden), normal(hidden), normal(hidden, n_out), normal(n_out)


@pytest.mark.smoke
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("batch", "n_out"), [(7, 3), (1, 1)])
def test_every_style_is_autograd(style, batch, n_out):
    x, targ, w1, b1, w2, b2 = draw(batch, 5, 4, n_out)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, w1, b1, w2, b2)]
    out = F.linear(F.relu(F.linear(leaves[0], leaves[1].t(), leaves[2])), leaves[3].t(), leaves[4])
    loss = F.mse_loss(out, targ.view_as(out))
    expected = torch.autograd.grad(loss, leaves)
    given = x, targ, w1, b1, w2, b2
    before = [tensor.clone() for tensor in given]
    made = run_style(style, *given)
    torch.testing.assert_close(made.loss, loss.detach(), rtol=1e-12, atol=1e-12)
    assert tuple(made.gradients) == LEAVES
    for name, gradient in zip(LEAVES, expected, strict=True):
        torch.testing.assert_close(made.gradients[name], gradient, rtol=1e-12, atol=1e-12, msg=name)
    for tensor, copy in zip(given, before, strict=True):
        assert torch.equal(tensor, copy)
        assert not tensor.requires_grad
        assert getattr(tensor, "g", None) is None


def test_an_unknown_style_is_named():
    with pytest.raises(ValueError, match=r"expected one of functions, classes.*got 'jax'"):
        run_style("jax", *draw(3, 5, 4, 1))
