"""The sections of the source documents, each with its pages and its source files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DOCUMENTS: Mapping[str, str] = {
    "002": "Notes on the fastai book, chapter 17: A Neural Net from the Foundations",
    "000": "The book's chapter 17: from LayerFunction to nn.Module",
    "001": "The PyTorch tutorial: extending torch.autograd and torch.nn",
    "003": "Custom PyTorch operators, part 6: torch.autograd.Function",
    "004": "Uses of a custom Function",
}
"""The documents the chapter's pages come from, by their number, in reading order."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a document: its code (`constructs`), its pages, the main one first, and its files of the package."""

    document: str
    title: str
    constructs: tuple[str, ...]
    pages: tuple[str, ...]
    sources: tuple[str, ...]


SECTIONS: tuple[Section, ...] = (
    Section(
        "002",
        "Notes on fastai Book Ch. 17",
        ("print_source(obj): inspect.getsource(obj)",),
        ("neuron",),
        ("chapter/listings.py",),
    ),
    Section(
        "002",
        "Modeling a Neuron",
        (
            "sum([x*w for x,w in zip(inputs, weights)]) + bias",
            "def relu(x): return x if x >= 0 else 0",
            "y[i,j] = sum([a*b for a,b in zip(x[i,:],w[j,:])]) + b[j]",
            "y = x @ w.t() + b",
        ),
        ("neuron",),
        ("foundations/neuron.py",),
    ),
    Section(
        "002",
        "Matrix Multiplication from Scratch",
        ("def matmul(a,b)", "c[i,j] += a[i,k] * b[k,j]", "assert ac==br", "m1@m2", "%timeit"),
        ("matmul",),
        ("foundations/matmul.py",),
    ),
    Section(
        "002",
        "Elementwise Arithmetic",
        ("a + b", "a - b", "a * b", "a / b", "a > b", "a < b", "a == b", "m*m", "m*n", "(a[i] * b[:,j]).sum()"),
        ("arithmetic", "matmul"),
        ("foundations/arithmetic.py", "chapter/arithmetic.py", "foundations/matmul.py"),
    ),
    Section(
        "002",
        "Reduction Operators",
        ("(a < b).all()", "(a==b).all()", ".sum()", ".mean()", "(a + b).mean().item()"),
        ("arithmetic",),
        ("foundations/arithmetic.py", "chapter/arithmetic.py"),
    ),
    Section(
        "002",
        "Broadcasting with a scalar",
        ("a > 0", "(m - 5) / 2.73"),
        ("broadcasting",),
        ("foundations/broadcasting.py", "chapter/broadcasting.py"),
    ),
    Section(
        "002",
        "Broadcasting a vector to a matrix",
        (
            "m + c",
            "c.expand_as(m)",
            "expand(*sizes)",
            "t.storage()",
            "t.stride(), t.shape",
            "c.unsqueeze(0)",
            "c.unsqueeze(1)",
            "c[None,:]",
            "c[:,None]",
            "c[None]",
            "c[...,None]",
            "(a[i].unsqueeze(-1) * b).sum(dim=0)",
        ),
        ("broadcasting", "matmul"),
        ("foundations/broadcasting.py", "foundations/matmul.py"),
    ),
    Section(
        "002", "Broadcasting rules", ("compatible dimensions",), ("broadcasting",), ("foundations/broadcasting.py",)
    ),
    Section(
        "002",
        "Einstein Summation",
        ("ik,kj->ij", "repeated indices are summed"),
        ("einsum", "matmul"),
        ("foundations/einsum_notation.py", "foundations/einsum.py", "foundations/matmul.py"),
    ),
    Section(
        "002",
        "Additional Einsum Notation Examples",
        (
            "ij->ji",
            "bi,ij,bj->b",
            "ii",
            "ii->i",
            "i,j->ij",
            "bij,bjk->bik",
            "torch.einsum(As, [..., 0, 1], Bs, [..., 1, 2], [..., 0, 2])",
            "...ij->...ji",
            "bn,anm,bm->ba",
        ),
        ("einsum",),
        ("foundations/einsum_notation.py", "foundations/einsum.py", "chapter/einsum.py"),
    ),
    Section(
        "002",
        "Defining and Initializing a Layer",
        (
            "def lin(x, w, b): return x @ w + b",
            "l1.mean(), l1.std()",
            "x @ torch.randn(100,100)",
            "torch.randn(100,100) * 0.01",
            "torch.randn(100,100) * 0.1",
            "torch.randn(100,50) / sqrt(100)",
            "def relu(x): return x.clamp_min(0.)",
            "torch.randn(100,50) * sqrt(2 / 100)",
            "x[0:5,0:5]",
        ),
        ("initialization",),
        ("foundations/layers.py", "foundations/initialization.py"),
    ),
    Section(
        "002",
        "The Forward Pass",
        ("def model(x)", "def mse(output, targ)", "output.squeeze"),
        ("backward", "initialization"),
        ("foundations/layers.py",),
    ),
    Section(
        "002",
        "Gradients and the Backward Pass",
        (
            "chain rule",
            "def mse_grad(inp, targ)",
            "def relu_grad(inp, out)",
            "def lin_grad(inp, out, w, b)",
            "inp.t() @ out.g",
        ),
        ("backward",),
        ("foundations/layers.py", "foundations/derivations.py"),
    ),
    Section("002", "SymPy", ("symbols('sx sy')", "diff(sx**2, sx)"), ("backward",), ("foundations/derivations.py",)),
    Section(
        "002",
        "Define Forward and Backward Pass",
        ("def forward_and_backward(inp, targ)",),
        ("backward", "styles"),
        ("foundations/layers.py",),
    ),
    Section(
        "002",
        "Refactoring the Model",
        ("class Relu()", "class Lin()", "class Mse()", "class Model()"),
        ("styles",),
        ("foundations/layers.py", "foundations/styles.py"),
    ),
    Section(
        "002",
        "Going to PyTorch",
        ("class LayerFunction()", "class Relu(LayerFunction)", "class Lin(LayerFunction)", "class Mse(LayerFunction)"),
        ("styles",),
        ("foundations/layer_function.py", "foundations/styles.py"),
    ),
    Section(
        "002",
        "torch.autograd.Function",
        ("class MyRelu(Function)", "ctx.save_for_backward(i)", "ctx.saved_tensors", "@staticmethod"),
        ("functions", "styles"),
        ("foundations/functions.py",),
    ),
    Section(
        "002",
        "torch.nn.Module",
        (
            "class LinearLayer(nn.Module)",
            "lin.parameters()",
            "class Model(nn.Module)",
            "nn.Sequential",
            "class Model(Module)",
        ),
        ("styles",),
        ("foundations/modules.py",),
    ),
    Section(
        "000",
        "Going to PyTorch: Lin and Mse",
        (
            "class Lin(LayerFunction)",
            "self.w.g = self.inp.t() @ self.out.g",
            "class Mse(LayerFunction)",
            "unsqueeze(-1)",
        ),
        ("styles", "backward"),
        ("foundations/layer_function.py", "foundations/misprints.py"),
    ),
    Section(
        "000",
        "torch.autograd.Function",
        ("class MyRelu(Function)", "requires_grad"),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "000", "nn.Module", ("super().__init__()",), ("styles",), ("foundations/modules.py", "foundations/misprints.py")
    ),
    Section(
        "001",
        "Extending torch.autograd",
        (
            "class LinearFunction(Function)",
            "ctx.needs_input_grad",
            "bias.unsqueeze(0).expand_as(output)",
            "grad_output.sum(0).squeeze(0)",
            "linear = LinearFunction.apply",
        ),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "001",
        "Arguments that are no tensors",
        ("class MulConstant(Function)", "ctx.constant"),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "001",
        "Checking gradients",
        ("gradcheck(linear, input, eps=1e-6, atol=1e-4)",),
        ("gradcheck",),
        ("foundations/gradient_check.py", "foundations/exercises.py"),
    ),
    Section(
        "001",
        "Extending torch.nn",
        (
            "class Linear(nn.Module)",
            "nn.Parameter",
            "register_parameter('bias', None)",
            "uniform_(-0.1, 0.1)",
            "extra_repr",
        ),
        ("styles", "extension"),
        ("foundations/modules.py",),
    ),
    Section(
        "003",
        "Basic Structure",
        ("forward(i0, ..., iN)", "backward(g_o0, ..., g_oM)", "ctx.needs_input_grad"),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "003",
        "Use it: pure functions",
        ("Option 1: alias", "Option 2: wrap in a function", "linear(input, weight, bias)"),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "003",
        "Use it: nn.Module",
        ("class Linear(nn.Module)",),
        ("extension",),
        ("foundations/linear_extension/function.py",),
    ),
    Section(
        "003",
        "C++ CUDA extension, module and test",
        ("torch.utils.cpp_extension", "linear layer in C++"),
        ("extension",),
        (
            "foundations/linear_extension/linear.cpp",
            "foundations/linear_extension/linear_cuda.cu",
            "foundations/linear_extension/build.py",
            "foundations/linear_extension/compilation.py",
        ),
    ),
    Section(
        "004",
        "Exp",
        ("class Exp(Function)", "ctx.save_for_backward(result)"),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "004",
        "backward(ctx, *grad_outputs)",
        ("how many arguments backward has", "one gradient per output"),
        ("functions",),
        ("foundations/functions.py",),
    ),
    Section(
        "004",
        "Non-tensor arguments",
        ("class MulConstant(Function)", "return grad_output * ctx.constant, None"),
        ("functions",),
        ("foundations/functions.py",),
    ),
)
"""Every section, in the order of the documents."""


def sections_of(page: str) -> tuple[Section, ...]:
    """The sections that stand on a page."""
    return tuple(section for section in SECTIONS if page in section.pages)
