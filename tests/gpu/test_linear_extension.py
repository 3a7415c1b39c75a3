import functools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.autograd import gradcheck

from chainrule.chapter.extension import PAGE
from chainrule.foundations.linear_extension import LinearCpp, build_extension, load_extension

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]  # nvcc takes its time


@pytest.fixture(scope="module", autouse=True)
def _extension(tmp_path_factory):
    assert torch.cuda.is_available(), "these tests need a CUDA device; `make test` leaves them out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        load_extension.cache_clear()
        build_extension(cuda=True)
        assert load_extension().with_cuda
        yield
    load_extension.cache_clear()


def normal(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to("cuda", dtype).requires_grad_()


# Around the tile of 16, one element, and more rows than a grid is high.
SIZES = [(5, 4, 3), (1, 1, 1), (16, 16, 16), (17, 33, 15), (64, 100, 50), (1_100_000, 2, 1)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_it_is_f_linear(dtype, sizes, has_bias):
    batch, fan_in, fan_out = sizes
    tensors = [normal(batch, fan_in, dtype=dtype), normal(fan_out, fan_in, dtype=dtype)]
    if has_bias:
        tensors.append(normal(fan_out, dtype=dtype))
    grad_output = normal(batch, fan_out, dtype=dtype).detach() / batch
    out = LinearCpp.apply(*tensors)
    # Held to float64 on the CPU: torch's own GPU product may be the one that rounds more.
    exact = [each.detach().double().cpu().requires_grad_() for each in tensors]
    expected = F.linear(*exact)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(out.double().cpu(), expected, rtol=tolerance, atol=tolerance)
    got = torch.autograd.grad(out, tensors, grad_output)
    want = torch.autograd.grad(expected, exact, grad_output.double().cpu())
    for ours, right in zip(got, want, strict=True):
        torch.testing.assert_close(ours.double().cpu(), right, rtol=tolerance, atol=tolerance)


def test_its_gradients_are_right():
    assert gradcheck(LinearCpp.apply, (normal(3, 18), normal(2, 18), normal(2)))


def test_any_strides_will_do():
    inp, weight = normal(20, 18).detach().t().requires_grad_(), normal(4, 40).detach()[:, ::2].requires_grad_()
    bias = normal(8).detach()[::2].requires_grad_()
    torch.testing.assert_close(LinearCpp.apply(inp, weight, bias), F.linear(inp, weight, bias))
    assert gradcheck(LinearCpp.apply, (inp, weight, bias))


def test_negated_and_conjugated_views_show_their_values():
    leaves = [normal(3, 18), normal(2, 18), normal(2)]
    inp, weight, bias = (torch.complex(each, each).conj().imag for each in leaves)
    assert inp.is_neg()
    retained = functools.partial(torch.autograd.grad, retain_graph=True)  # both pass through the views
    torch.testing.assert_close(LinearCpp.apply(inp, weight, bias), F.linear(inp, weight, bias))
    grad_output = torch.complex(*2 * [normal(3, 2).detach()]).conj().imag
    got, want = (retained(f(inp, weight, bias), leaves, grad_output) for f in (LinearCpp.apply, F.linear))
    for ours, torch_s in zip(got, want, strict=True):
        torch.testing.assert_close(ours, torch_s)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_is_f_linear(dtype):
    tensors = [normal(*shape, dtype=torch.float32) for shape in ((4, 8), (3, 8), (3,))]
    with torch.autocast("cuda", dtype):
        out, expected = LinearCpp.apply(*tensors), F.linear(*tensors)
    assert out.dtype == expected.dtype == dtype
    torch.testing.assert_close(out, expected)
    assert all(each.dtype == torch.float32 for each in torch.autograd.grad(out.float().sum(), tensors))


@pytest.mark.parametrize("bias", ["true", "false"])
def test_the_page_checks_and_races_on_the_gpu_too(bias):
    answer = PAGE.ask({"bias": bias})
    gpu = answer["gpu"]
    assert gpu["name"] == torch.cuda.get_device_name()
    assert gpu["check"]["passed"]
    assert gpu["check"]["torch"]["passed"]
    assert [each["name"] for each in gpu["race"]["styles"]] == [each["name"] for each in answer["race"]["styles"]]
    for each in gpu["race"]["styles"]:
        assert each["equal"], each
        assert each["forward_seconds"] > 0
        assert each["backward_seconds"] > 0


def test_an_empty_batch():
    assert LinearCpp.apply(normal(0, 4), normal(2, 4), normal(2)).shape == (0, 2)


def test_tensors_on_two_devices_are_refused():
    with pytest.raises(ValueError, match="inp is on cuda:0, but weight is on cpu"):
        LinearCpp.apply(normal(3, 4), normal(2, 4).detach().cpu())
