"""The C++ extension, really compiled: it computes what torch's linear layer does, and refuses what does not fit."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.foundations.linear_extension import (
    ExtensionBuildError,
    ExtensionNotBuiltError,
    LinearCpp,
    LinearCppLayer,
    build,
    build_extension,
    extension_path,
    library,
    load_extension,
)


def built(test):
    """A test of the compiled extension; to compile it takes a minute."""
    return pytest.mark.long(pytest.mark.usefixtures("linear_extension")(test))


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + 7 * len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def transposed(*shape, **keys):
    return normal(*reversed(shape), **keys).detach().t().requires_grad_()


def every_second(*shape, **keys):
    return normal(*shape[:-1], 2 * shape[-1], **keys).detach()[..., ::2].requires_grad_()


@built
@pytest.mark.parametrize("made", [normal, transposed, every_second])
@pytest.mark.parametrize(
    ("dtype", "batch", "fan_in", "fan_out"),
    [
        (torch.float64, 5, 4, 3),
        (torch.float32, 1, 4, 1),
        (torch.float64, 64, 100, 50),
        (torch.bfloat16, 4, 8, 3),
        (torch.float16, 4, 8, 3),
    ],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_it_is_f_linear(dtype, made, batch, fan_in, fan_out, has_bias):
    tensors = [made(batch, fan_in, dtype=dtype), made(fan_out, fan_in, dtype=dtype)]
    if has_bias:
        tensors.append(normal(fan_out, dtype=dtype))
    grad_output = made(batch, fan_out, dtype=dtype, seed=1).detach()
    assert_same(LinearCpp.apply(*tensors), F.linear(*tensors), tensors, grad_output)


def assert_same(out, expected, tensors, grad_output):
    torch.testing.assert_close(out, expected)
    got, want = (torch.autograd.grad(each, tensors, grad_output) for each in (out, expected))
    for ours, torch_s, tensor in zip(got, want, tensors, strict=True):
        assert ours.dtype == tensor.dtype
        torch.testing.assert_close(ours, torch_s)


@built
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of", [torch.float32, torch.float64])
def test_under_autocast_it_is_f_linear(dtype, of):
    tensors = [normal(4, 8, dtype=of), normal(3, 8, dtype=of), normal(3, dtype=of)]
    with torch.autocast("cpu", dtype):
        out, expected = LinearCpp.apply(*tensors), F.linear(*tensors)
        mixed = LinearCpp.apply(tensors[0].to(dtype), *tensors[1:]) if of == torch.float32 else out
    assert out.dtype == mixed.dtype == expected.dtype
    assert_same(out, expected, tensors, torch.ones_like(out))


@built
def test_autocast_around_backward_alone_changes_nothing():
    tensors = [normal(4, 8, dtype=torch.float32), normal(3, 8, dtype=torch.float32)]
    with torch.autocast("cpu", enabled=False):
        out, expected = LinearCpp.apply(*tensors), F.linear(*tensors)
        want = torch.autograd.grad(expected.sum(), tensors)
    with torch.autocast("cpu", torch.bfloat16):
        got = torch.autograd.grad(out.sum(), tensors)
    for ours, torch_s in zip(got, want, strict=True):
        torch.testing.assert_close(ours, torch_s)


@built
@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_needed_gradients_are_computed(needed):
    inp, weight, grad_output = (normal(*shape).detach() for shape in ((3, 4), (2, 4), (3, 2)))
    gradients = load_extension().backward(grad_output, inp.requires_grad_(), weight, list(needed))
    assert tuple(each is not None for each in gradients) == needed
    assert not any(each.requires_grad for each in gradients if each is not None), (
        "autograd does not record the C++ code"
    )


@built
def test_an_empty_batch_and_no_features():
    assert LinearCpp.apply(normal(0, 4), normal(2, 4), normal(2)).shape == (0, 2)
    bias = normal(2)
    assert torch.equal(LinearCpp.apply(normal(3, 0), normal(2, 0), bias), bias.expand(3, 2))


@built
def test_it_cannot_be_differentiated_twice():
    inp, weight, grad_output = normal(3, 4), normal(2, 4), normal(3, 2)
    (gradient,) = torch.autograd.grad(LinearCpp.apply(inp, weight), inp, grad_output, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@built
def test_a_step_of_a_module_is_that_of_nn_linear():
    ours = LinearCppLayer(6, 4, generator=torch.Generator().manual_seed(3))
    torch_s = nn.Linear(6, 4)
    torch_s.load_state_dict(ours.state_dict())
    inp, target = normal(8, 6, dtype=torch.float32).detach(), normal(8, 4, dtype=torch.float32).detach()
    for layer in (ours, torch_s):
        F.mse_loss(layer(inp), target).backward()
    for a, b in zip(ours.parameters(), torch_s.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert str(ours) == "LinearCppLayer(in_features=6, out_features=4, bias=True)"
    assert LinearCppLayer(6, 4, bias=False).bias is None


def test_the_module_draws_within_one_over_the_root_of_fan_in():
    layer = LinearCppLayer(100, 200, generator=torch.Generator().manual_seed(0))
    for parameter in layer.parameters():
        assert 0.098 < parameter.abs().max().item() <= 0.1
        assert abs(parameter.mean().item()) < 0.01


@built
@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda x, w, b: (x, w.t(), b), ValueError, r"got inp \[3, 4\], weight \[4, 2\], bias \[2\]"),
        (lambda x, w, b: (x, w, b[:, None]), ValueError, r"bias \[2, 1\]"),
        (lambda x, w, _: (x[0], w, None), ValueError, r"expected inp \(batch, fan_in\).*got inp \[4\].* bias None"),
        (lambda x, w, b: (x, w.float(), b), TypeError, "inp is Double, but weight is Float"),
        (lambda x, w, b: (x, w, b.half()), TypeError, "inp is Double, but bias is Half"),
        (lambda x, w, b: (x.long(), w.long(), b.long()), TypeError, "expected floating point .*, got Long"),
        (lambda x, w, b: (x.to("meta"), w.to("meta"), b.to("meta")), ValueError, "on cpu or cuda, got meta"),
        (lambda x, w, b: (x, w.to("meta"), b), ValueError, "inp is on cpu, but weight is on meta"),
        (lambda x, w, b: (x.to_sparse(), w, b), ValueError, "expected dense tensors, but inp is Sparse"),
        (lambda x, w, b: (x, w, b.to_sparse()), ValueError, "expected dense tensors, but bias is Sparse"),
        (lambda *t: [each.to(torch.float8_e5m2) for each in t], TypeError, "or bfloat16.*got Float8_e5m2"),
        (lambda x, _, b: (x, None, b), TypeError, "incompatible function arguments"),
    ],
)
def test_shapes_dtypes_and_devices_that_do_not_fit(change, kind, says):
    arguments = change(*(normal(*shape).detach() for shape in ((3, 4), (2, 4), (2,))))
    with pytest.raises(kind, match=says) as caught:
        LinearCpp.apply(*arguments)
    assert kind is TypeError or "\n" not in str(caught.value), "the message alone, no C++ stack"


@built
@pytest.mark.parametrize(
    ("grad_output", "says"),
    [
        (torch.eye(2).to_sparse(), "expected dense tensors, but grad_output is Sparse"),
        (torch.ones(2, 3), r"expected grad_output \(batch, fan_out\) = \[2, 2\], got \[2, 3\]"),
    ],
)
def test_a_grad_output_that_does_not_fit(grad_output, says):
    with pytest.raises(ValueError, match=says):
        load_extension().backward(grad_output, torch.ones(2, 4), torch.ones(2, 4), [True, True, True])


@pytest.mark.usefixtures("no_linear_extension")
def test_without_it_the_error_names_the_command():
    assert extension_path() is None
    with pytest.raises(ExtensionNotBuiltError, match="chainrule build-extension"):
        LinearCpp.apply(torch.ones(2, 3), torch.ones(4, 3))
    assert extension_path() is None, "calling it built nothing"


def put(path, content, digest=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    library.digest_path(path).write_text(library.file_digest(path) if digest is None else digest)


@pytest.mark.long
@pytest.mark.usefixtures("no_linear_extension")
def test_a_file_that_is_damaged_is_not_loaded_but_the_other_one(extension_cache):
    # The system would find out that it was cut short by ending the process.
    path = library.target_path(cuda=False)
    (whole,) = extension_cache.rglob(path.name)
    content = whole.read_bytes()
    put(path, content[: len(content) // 2], library.file_digest(whole))
    with pytest.raises(ExtensionNotBuiltError, match="the file is damaged"):
        load_extension()
    library.digest_path(path).unlink()
    with pytest.raises(ExtensionNotBuiltError, match="its digest cannot be read"):
        load_extension()
    put(path, content)
    put(library.target_path(cuda=True), b"no library")
    assert library.extension_path() == library.target_path(cuda=True)
    assert not load_extension().with_cuda


@built
def test_the_command_keeps_an_existing_build(monkeypatch):
    monkeypatch.setattr(build, "_compile", lambda *_, **__: pytest.fail("compiled again"))
    done = CliRunner().invoke(commands, ["build-extension", "--no-cuda"], catch_exceptions=False)
    path = extension_path()
    assert done.stdout.startswith("C++ compiler")
    assert f"there already     {path}" in done.stdout.splitlines()
    left = {each.name for each in path.parent.iterdir()}
    assert left == {path.name, library.digest_path(path).name}, "nothing else is left of the build"


@pytest.fixture
def compile_by(monkeypatch, tmp_path):
    """Make a shell script the compiler."""

    def use(script):
        compiler = tmp_path / "c++"
        # torch asks for the version.
        compiler.write_text(f'#!/bin/sh\ncase "$1" in -v|--version) exec c++ "$@" ;; esac\n{script}')
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))

    return use


@pytest.mark.long
@pytest.mark.usefixtures("no_linear_extension")
def test_one_of_two_simultaneous_builds_replaces_a_file_that_does_not_load(compile_by, extension_cache):
    # A copy of what was compiled stands in for the compiler: twenty seconds each otherwise.
    path = library.target_path(cuda=False)
    (whole,) = extension_cache.rglob(path.name)
    compile_by(f'while [ "$1" != -o ]; do shift; done\nexec cp "{whole}" "$2"\n')
    put(path, b"not a library")
    lines = []
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(build_extension, cuda=False, say=lines.append) for _ in range(2)]
        assert {each.result() for each in builds} == {path}
    known = ("there already", "does not load", "compiling", "built")
    steps = [line[:18].strip() for line in lines if line[:18].strip() in known]
    assert sorted(steps) == ["built", "compiling", "does not load", "there already"]
    # Torch renames what one process compiles a second time.
    assert library.load_file(build_extension(cuda=False, force=True)).with_cuda is False


@pytest.mark.usefixtures("no_linear_extension")
@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"CXX": "no-such-compiler"}, "C\\+\\+ compiler is missing: install"),
        ({"CXX": "g++ '"}, "C\\+\\+ compiler is missing: CXX is not a compiler"),
        ({"PATH": ""}, "ninja is missing: pip install"),
    ],
)
def test_a_missing_requirement_of_the_build_is_named(monkeypatch, environment, missing):
    monkeypatch.setattr(
        build.sysconfig,
        "get_path",
        lambda name, real=build.sysconfig.get_path: "/nowhere" if name == "scripts" else real(name),
    )
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ExtensionBuildError, match=missing):
        build_extension(cuda=False)
    assert extension_path() is None


@pytest.mark.long
@pytest.mark.usefixtures("no_linear_extension")
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(compile_by):
    compile_by("echo 'linear.cpp:1: the end of the world' >&2; exit 1\n")
    with pytest.raises(ExtensionBuildError, match="the end of the world"):
        build_extension(cuda=False)
    assert extension_path() is None
    assert list(library.target_path(cuda=False).parent.iterdir()) == []


def test_cuda_kernels_are_not_built_where_torch_has_no_cuda():
    if torch.version.cuda is not None and torch.cuda.is_available():
        assert build.can_build_cuda() == (build._nvcc() is not None)
        return
    assert not build.can_build_cuda()
    with pytest.raises(ExtensionBuildError, match=r"torch with CUDA|GPU"):
        build_extension(cuda=True, say=lambda line: "compiling" in line and pytest.fail(line))


def test_the_digest_changes_with_sources_and_torch(monkeypatch):
    def digests():
        library.build_digest.cache_clear()
        return library.build_digest(cuda=False), library.build_digest(cuda=True)

    before = digests()
    with monkeypatch.context() as patch:
        patch.setattr(library.torch, "__version__", "0.0.0")
        assert not set(digests()) & set(before)
    with monkeypatch.context() as patch:
        patch.setattr(library, "CUDA_SOURCE", library.SOURCE)
        after = digests()
    assert (after[0] == before[0], after[1] == before[1]) == (True, False), "the CPU's does not depend on the kernels"
    assert digests() == before
