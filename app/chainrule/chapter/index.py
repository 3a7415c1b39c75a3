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
    """A section of a document: its pages, the main one first, its files of the package, its code (`constructs`)."""

    document: str
    title: str
    pages: tuple[str, ...]
    sources: tuple[str, ...]
    constructs: tuple[str, ...]


# Per section: document, title, pages, sources; below, indented, its constructs.
_TABLE = """
002 | Notes on fastai Book Ch. 17 | neuron | chapter/listings.py
    print_source(obj): inspect.getsource(obj)
002 | Modeling a Neuron | neuron | foundations/neuron.py
    sum([x*w for x,w in zip(inputs, weights)]) + bias | def relu(x): return x if x >= 0 else 0
    y[i,j] = sum([a*b for a,b in zip(x[i,:],w[j,:])]) + b[j] | y = x @ w.t() + b
002 | Matrix Multiplication from Scratch | matmul | foundations/matmul.py
    def matmul(a,b) | c[i,j] += a[i,k] * b[k,j] | assert ac==br | m1@m2 | %timeit
002 | Elementwise Arithmetic | arithmetic matmul | foundations/arithmetic.py chapter/arithmetic.py foundations/matmul.py
    a + b | a - b | a * b | a / b | a > b | a < b | a == b | m*m | m*n | (a[i] * b[:,j]).sum()
002 | Reduction Operators | arithmetic | foundations/arithmetic.py chapter/arithmetic.py
    (a < b).all() | (a==b).all() | .sum() | .mean() | (a + b).mean().item()
002 | Broadcasting with a scalar | broadcasting | foundations/broadcasting.py chapter/broadcasting.py
    a > 0 | (m - 5) / 2.73
002 | Broadcasting a vector to a matrix | broadcasting matmul | foundations/broadcasting.py foundations/matmul.py
    m + c | c.expand_as(m) | expand(*sizes) | t.storage() | t.stride(), t.shape | c.unsqueeze(0) | c.unsqueeze(1)
    c[None,:] | c[:,None] | c[None] | c[...,None] | (a[i].unsqueeze(-1) * b).sum(dim=0)
002 | Broadcasting rules | broadcasting | foundations/broadcasting.py
    compatible dimensions
002 | Einstein Summation | einsum matmul | foundations/einsum_notation.py foundations/einsum.py foundations/matmul.py
    ik,kj->ij | repeated indices are summed
002 | Additional Einsum Notation Examples | einsum | \
        foundations/einsum_notation.py foundations/einsum.py chapter/einsum.py
    ij->ji | bi,ij,bj->b | ii | ii->i | i,j->ij | bij,bjk->bik
    torch.einsum(As, [..., 0, 1], Bs, [..., 1, 2], [..., 0, 2]) | ...ij->...ji | bn,anm,bm->ba
002 | Defining and Initializing a Layer | initialization | foundations/layers.py foundations/initialization.py
    def lin(x, w, b): return x @ w + b | l1.mean(), l1.std() | x @ torch.randn(100,100) | torch.randn(100,100) * 0.01
    torch.randn(100,100) * 0.1 | torch.randn(100,50) / sqrt(100) | def relu(x): return x.clamp_min(0.)
    torch.randn(100,50) * sqrt(2 / 100) | x[0:5,0:5]
002 | The Forward Pass | backward initialization | foundations/layers.py
    def model(x) | def mse(output, targ) | output.squeeze
002 | Gradients and the Backward Pass | backward | foundations/layers.py foundations/derivations.py
    chain rule | def mse_grad(inp, targ) | def relu_grad(inp, out) | def lin_grad(inp, out, w, b) | inp.t() @ out.g
002 | SymPy | backward | foundations/derivations.py
    symbols('sx sy') | diff(sx**2, sx)
002 | Define Forward and Backward Pass | backward styles | foundations/layers.py
    def forward_and_backward(inp, targ)
002 | Refactoring the Model | styles | foundations/layers.py foundations/styles.py
    class Relu() | class Lin() | class Mse() | class Model()
002 | Going to PyTorch | styles | foundations/layer_function.py foundations/styles.py
    class LayerFunction() | class Relu(LayerFunction) | class Lin(LayerFunction) | class Mse(LayerFunction)
002 | torch.autograd.Function | functions styles | foundations/functions.py
    class MyRelu(Function) | ctx.save_for_backward(i) | ctx.saved_tensors | @staticmethod
002 | torch.nn.Module | styles | foundations/modules.py
    class LinearLayer(nn.Module) | lin.parameters() | class Model(nn.Module) | nn.Sequential | class Model(Module)
000 | Going to PyTorch: Lin and Mse | styles backward | foundations/layer_function.py foundations/misprints.py
    class Lin(LayerFunction) | self.w.g = self.inp.t() @ self.out.g | class Mse(LayerFunction) | unsqueeze(-1)
000 | torch.autograd.Function | functions | foundations/functions.py
    class MyRelu(Function) | requires_grad
000 | nn.Module | styles | foundations/modules.py foundations/misprints.py
    super().__init__()
001 | Extending torch.autograd | functions | foundations/functions.py
    class LinearFunction(Function) | ctx.needs_input_grad | bias.unsqueeze(0).expand_as(output)
    grad_output.sum(0).squeeze(0) | linear = LinearFunction.apply
001 | Arguments that are not tensors | functions | foundations/functions.py
    class MulConstant(Function) | ctx.constant
001 | Checking gradients | gradcheck | foundations/gradient_check.py foundations/exercises.py
    gradcheck(linear, input, eps=1e-6, atol=1e-4)
001 | Extending torch.nn | styles extension | foundations/modules.py
    class Linear(nn.Module) | nn.Parameter | register_parameter('bias', None) | uniform_(-0.1, 0.1) | extra_repr
003 | Basic Structure | functions | foundations/functions.py
    forward(i0, ..., iN) | backward(g_o0, ..., g_oM) | ctx.needs_input_grad
003 | Use it: pure functions | functions | foundations/functions.py
    Option 1: alias | Option 2: wrap in a function | linear(input, weight, bias)
003 | Use it: nn.Module | extension | foundations/linear_extension/function.py
    class Linear(nn.Module)
003 | C++ CUDA extension, module and test | extension | \
        foundations/linear_extension/linear.cpp foundations/linear_extension/linear_cuda.cu \
        foundations/linear_extension/build.py
    torch.utils.cpp_extension | linear layer in C++
004 | Exp | functions | foundations/functions.py
    class Exp(Function) | ctx.save_for_backward(result)
004 | backward(ctx, *grad_outputs) | functions | foundations/functions.py
    how many arguments backward has | one gradient per output
004 | Non-tensor arguments | functions | foundations/functions.py
    class MulConstant(Function) | return grad_output * ctx.constant, None
"""


def _sections() -> tuple[Section, ...]:
    found: list[tuple[list[str], list[str]]] = []
    for line in _TABLE.strip().splitlines():
        parts = line.strip().split(" | ")
        if line.startswith(" "):
            found[-1][1].extend(parts)
        else:
            found.append((parts, []))
    return tuple(
        Section(document, title, tuple(pages.split()), tuple(sources.split()), tuple(constructs))
        for (document, title, pages, sources), constructs in found
    )


SECTIONS = _sections()
"""Every section, in the order of the documents."""


def sections_of(page: str) -> tuple[Section, ...]:
    """The sections that stand on a page."""
    return tuple(section for section in SECTIONS if page in section.pages)
