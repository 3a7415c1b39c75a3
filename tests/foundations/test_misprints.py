"""Each misprint goes wrong in the way that is said of it."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from chainrule.foundations import layer_function, misprints


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(2)


def autograd_of_mse(inp, targ):
    leaf = inp.clone().requires_grad_()
    F.mse_loss(leaf, targ.view_as(leaf)).backward()
    return leaf.grad


def test_without_the_squeeze_every_pair_is_compared(generator):
    inp, targ = torch.randn(6, 1, generator=generator), torch.randn(6, generator=generator)
    pairs = torch.stack([(a - b) ** 2 for a in inp.flatten() for b in targ])
    torch.testing.assert_close(misprints.mse_without_squeeze(inp, targ), pairs.mean())
    assert not torch.isclose(misprints.mse_without_squeeze(inp, targ), F.mse_loss(inp.squeeze(1), targ))


@pytest.mark.parametrize("n_out", [1, 3, 5])
def test_over_the_batch_the_gradient_is_n_out_times_too_large(generator, n_out):
    inp, targ = torch.randn(4, n_out, generator=generator), torch.randn(4, n_out, generator=generator)
    torch.testing.assert_close(misprints.mse_grad_over_batch(inp, targ), n_out * autograd_of_mse(inp, targ))


def test_a_bare_squeeze_is_right_for_one_output_and_of_the_wrong_shape_for_more(generator):
    for batch in (1, 4):
        inp, targ = torch.randn(batch, 1, generator=generator), torch.randn(batch, generator=generator)
        torch.testing.assert_close(misprints.mse_grad_bare_squeeze(inp, targ), autograd_of_mse(inp, targ))
    inp, targ = torch.randn(4, 3, generator=generator), torch.randn(4, 3, generator=generator)
    assert misprints.mse_grad_bare_squeeze(inp, targ).shape == (4, 3, 1)


def test_lin_as_printed_reads_an_attribute_that_nothing_sets(generator):
    w, b, inp = torch.randn(3, 2, generator=generator), torch.zeros(2), torch.randn(4, 3, generator=generator)
    for lin, fails in ((misprints.Lin(w, b), True), (layer_function.Lin(w, b), False)):
        lin(inp).g = torch.ones(4, 2)
        if fails:
            with pytest.raises(AttributeError, match="'Lin' object has no attribute 'inp'"):
                lin.backward()
        else:
            lin.backward()


def test_a_module_that_forgets_super_cannot_register_a_parameter():
    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        misprints.ForgetfulLayer(3, 2)
