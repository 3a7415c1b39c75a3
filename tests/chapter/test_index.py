"""Every construct that the source documents name can be run: the index is held to a list written from the documents."""

from pathlib import Path

import pytest

import chainrule
from chainrule.chapter.index import DOCUMENTS, SECTIONS
from chainrule.chapter.pages import ORDER, PAGES
from chainrule.web.foundations import index_answer

ROOT = Path(__file__).parents[2]
PACKAGE = Path(chainrule.__file__).parent

# Written from the documents, section by section; beside each construct, what stands for it in a source file, a template
# or a script of the pages it is said to be on.
CONSTRUCTS = [
    ("002", "print_source(obj): inspect.getsource(obj)", "inspect.getsourcelines(listing.of)"),
    ("002", "sum([x*w for x,w in zip(inputs, weights)]) + bias", "zip(inputs, weights"),
    ("002", "def relu(x): return x if x >= 0 else 0", "x if x >= 0 else"),
    ("002", "y[i,j] = sum([a*b for a,b in zip(x[i,:],w[j,:])]) + b[j]", "def dense("),
    ("002", "y = x @ w.t() + b", "x @ w.t() + b"),
    ("002", "def matmul(a,b)", "def matmul_loops(a"),
    ("002", "c[i,j] += a[i,k] * b[k,j]", "c[i, j] += a[i, k] * b[k, j]"),
    ("002", "assert ac==br", "expected a (m, k) and b (k, n)"),
    ("002", "m1@m2", "return a @ b"),
    ("002", "%timeit", "def measure("),
    ("002", "a + b", '"+"'),
    ("002", "a - b", '"-"'),
    ("002", "a * b", '"*"'),
    ("002", "a / b", '"/"'),
    ("002", "a > b", '">"'),
    ("002", "a < b", '"<"'),
    ("002", "a == b", '"=="'),
    ("002", "(a < b).all()", "return t.all()"),
    ("002", "(a==b).all()", "return t.all()"),
    ("002", ".sum()", "return t.sum()"),
    ("002", ".mean()", "return t.mean()"),
    ("002", "(a + b).mean().item()", "return t.mean().item()"),
    ("002", "m*m", "m * m"),
    ("002", "m*n", "m * n"),
    ("002", "(a[i] * b[:,j]).sum()", "(a[i] * b[:, j]).sum()"),
    ("002", "a > 0", "a > 0"),
    ("002", "(m - 5) / 2.73", "(m - mean) / std"),
    ("002", "m + c", "view + m"),
    ("002", "c.expand_as(m)", "expand_as"),
    ("002", "expand(*sizes)", "def expand("),
    ("002", "t.storage()", "view.untyped_storage()"),
    ("002", "t.stride(), t.shape", "list(view.stride())"),
    ("002", "c.unsqueeze(0)", "unsqueeze(0)"),
    ("002", "c.unsqueeze(1)", "unsqueeze(1)"),
    ("002", "c[None,:]", "c[None, :]"),
    ("002", "c[:,None]", "c[:, None]"),
    ("002", "c[None]", "c[None]"),
    ("002", "c[...,None]", "c[..., None]"),
    ("002", "(a[i].unsqueeze(-1) * b).sum(dim=0)", "(a[i].unsqueeze(-1) * b).sum(dim=0)"),
    ("002", "compatible dimensions", "def broadcast_steps("),
    ("002", "ik,kj->ij", "ik,kj->ij"),
    ("002", "repeated indices are summed", "Repeated indices are implicitly summed over"),
    ("002", "ij->ji", "ij->ji"),
    ("002", "bi,ij,bj->b", "bi,ij,bj->b"),
    ("002", "ii", "equation=ii&"),
    ("002", "ii->i", "ii->i"),
    ("002", "i,j->ij", "i,j->ij"),
    ("002", "bij,bjk->bik", "bij,bjk->bik"),
    ("002", "torch.einsum(As, [..., 0, 1], Bs, [..., 1, 2], [..., 0, 2])", "[..., 0, 1]"),
    ("002", "...ij->...ji", "...ij->...ji"),
    ("002", "bn,anm,bm->ba", "bn,anm,bm->ba"),
    ("002", "def lin(x, w, b): return x @ w + b", "def lin("),
    ("002", "l1.mean(), l1.std()", "10.0544"),
    ("002", "x @ torch.randn(100,100)", "50 × x = x @ randn(100, 100)"),
    ("002", "torch.randn(100,100) * 0.01", "(randn(100, 100) * 0.01)"),
    ("002", "torch.randn(100,100) * 0.1", "(randn(100, 100) * 0.1)"),
    ("002", "torch.randn(100,50) / sqrt(100)", "1.0231"),
    ("002", "def relu(x): return x.clamp_min(0.)", "clamp_min(0.0)"),
    ("002", "torch.randn(100,50) * sqrt(2 / 100)", ".5720"),
    ("002", "x[0:5,0:5]", "x[0:5, 0:5]"),
    ("002", "def model(x)", "def model("),
    ("002", "def mse(output, targ)", "def mse("),
    ("002", "output.squeeze", ".squeeze("),
    ("002", "chain rule", "def chain("),
    ("002", "def mse_grad(inp, targ)", "def mse_grad("),
    ("002", "def relu_grad(inp, out)", "def relu_grad("),
    ("002", "def lin_grad(inp, out, w, b)", "def lin_grad("),
    ("002", "inp.t() @ out.g", "inp.t() @ out.g"),
    ("002", "symbols('sx sy')", "symbols("),
    ("002", "diff(sx**2, sx)", "diff(sx**2, sx)"),
    ("002", "def forward_and_backward(inp, targ)", "def forward_and_backward("),
    ("002", "class Relu()", "class Relu:"),
    ("002", "class Lin()", "class Lin:"),
    ("002", "class Mse()", "class Mse:"),
    ("002", "class Model()", "class Model:"),
    ("002", "class LayerFunction()", "class LayerFunction:"),
    ("002", "class Relu(LayerFunction)", "class Relu(LayerFunction)"),
    ("002", "class Lin(LayerFunction)", "class Lin(LayerFunction)"),
    ("002", "class Mse(LayerFunction)", "class Mse(LayerFunction)"),
    ("002", "class MyRelu(Function)", "class MyRelu(Function)"),
    ("002", "ctx.save_for_backward(i)", "ctx.save_for_backward("),
    ("002", "ctx.saved_tensors", "ctx.saved_tensors"),
    ("002", "@staticmethod", "@staticmethod"),
    ("002", "class LinearLayer(nn.Module)", "class LinearLayer(nn.Module)"),
    ("002", "lin.parameters()", "parameters()"),
    ("002", "class Model(nn.Module)", "class SequentialModel(nn.Module)"),
    ("002", "nn.Sequential", "nn.Sequential("),
    ("002", "class Model(Module)", "(Module):"),
    ("000", "class Lin(LayerFunction)", "class Lin(layer_function.Lin)"),
    ("000", "self.w.g = self.inp.t() @ self.out.g", "self.inp.t() @ self.out.g"),
    ("000", "class Mse(LayerFunction)", "class Mse(LayerFunction)"),
    ("000", "unsqueeze(-1)", "unsqueeze(-1)"),
    ("000", "class MyRelu(Function)", "class MyRelu(Function)"),
    ("000", "requires_grad", "x_requires_grad"),
    ("000", "super().__init__()", "super().__init__()"),
    ("001", "class LinearFunction(Function)", "class LinearFunction(Function)"),
    ("001", "ctx.needs_input_grad", "ctx.needs_input_grad"),
    ("001", "bias.unsqueeze(0).expand_as(output)", "out + bias"),
    ("001", "grad_output.sum(0).squeeze(0)", "grad_output.sum(0)"),
    ("001", "linear = LinearFunction.apply", "LinearFunction.apply"),
    ("001", "class MulConstant(Function)", "class MulConstant(Function)"),
    ("001", "ctx.constant", "ctx.constant"),
    ("001", "gradcheck(linear, input, eps=1e-6, atol=1e-4)", "def gradient_check("),
    ("001", "class Linear(nn.Module)", "class Linear(nn.Module)"),
    ("001", "nn.Parameter", "nn.Parameter("),
    ("001", "register_parameter('bias', None)", "register_parameter("),
    ("001", "uniform_(-0.1, 0.1)", "uniform_(-0.1, 0.1"),
    ("001", "extra_repr", "def extra_repr("),
    ("003", "forward(i0, ..., iN)", "def forward("),
    ("003", "backward(g_o0, ..., g_oM)", "def backward("),
    ("003", "ctx.needs_input_grad", "ctx.needs_input_grad"),
    ("003", "Option 1: alias", "linear = LinearFunction.apply"),
    ("003", "Option 2: wrap in a function", "def linear("),
    ("003", "linear(input, weight, bias)", "LinearFunction.apply(inp, weight, bias)"),
    ("003", "class Linear(nn.Module)", "class LinearCppLayer(nn.Module)"),
    ("003", "torch.utils.cpp_extension", "cpp_extension.load("),
    ("003", "linear layer in C++", "PYBIND11_MODULE"),
    ("004", "class Exp(Function)", "class Exp(Function)"),
    ("004", "ctx.save_for_backward(result)", "ctx.save_for_backward(out)"),
    ("004", "how many arguments backward has", "class SinCos(Function)"),
    ("004", "one gradient per output", "grad_cos"),
    ("004", "class MulConstant(Function)", "class MulConstant(Function)"),
    ("004", "return grad_output * ctx.constant, None", "return grad_output * ctx.constant, None"),
]


def test_every_construct_of_the_documents_is_in_the_index_and_no_other():
    listed = {(section.document, construct) for section in SECTIONS for construct in section.constructs}
    named = {(document, construct) for document, construct, _ in CONSTRUCTS}
    assert named - listed == set()
    assert listed - named == set()


@pytest.mark.parametrize(("document", "construct", "evidence"), CONSTRUCTS, ids=[f"{d} {c}" for d, c, _ in CONSTRUCTS])
def test_every_construct_stands_where_the_index_says(document, construct, evidence):
    sections = [each for each in SECTIONS if each.document == document and construct in each.constructs]
    files = [PACKAGE / source for section in sections for source in section.sources]
    for name in {name for section in sections for name in section.pages}:
        page = PAGES[name]
        files += [PACKAGE / "chapter" / f"{name}.py", ROOT / "templates" / "foundations" / f"{name}.html"]
        files += [ROOT / "static" / "foundations" / f"{name}.js"]
        assert page.path == f"/foundations/{name}"
    assert any(evidence in path.read_text(encoding="utf-8") for path in files), [str(path) for path in files]


def test_all_pages_are_there_in_reading_order():
    assert tuple(PAGES) == ORDER
    for name, page in PAGES.items():
        assert page.name == name
        assert any(name in section.pages for section in SECTIONS), name


@pytest.mark.parametrize("section", SECTIONS, ids=[f"{each.document} {each.title}" for each in SECTIONS])
def test_a_section_names_sources_that_exist(section):
    assert section.document in DOCUMENTS
    assert section.pages
    assert set(section.pages) <= set(PAGES)
    assert section.sources
    for source in section.sources:
        assert (PACKAGE / source).is_file(), source


def test_the_index_says_the_same_as_json():
    answer = index_answer()
    assert [page["path"] for page in answer["pages"]] == [f"/foundations/{name}" for name in ORDER]
    assert all(page["title"] and page["seed"] for page in answer["pages"])
    assert len(answer["sections"]) == len(SECTIONS)
    assert answer["sections"][0]["pages"] == ["/foundations/neuron"]
