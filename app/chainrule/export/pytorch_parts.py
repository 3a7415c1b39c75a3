"""The parts of every exported script: how its tensors are drawn, cast and summarized, as PyTorch code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from chainrule.spec import ModelSpec

NORMAL = "torch.randn({shape}, generator={generator})"
UNIFORM = "torch.empty({shape}).uniform_(-1, 1, generator={generator})"
ORTHOGONAL = "orthogonal({shape}, {generator})"
ZEROS = "torch.zeros({shape})"


class Draw(NamedTuple):
    """How one scheme draws: in words, the draw of unit size, and its factor `size`, None for 1."""

    comment: str
    base: str
    size: str | None


DRAWS: Mapping[str, Draw] = {
    "standard_normal": Draw("N(0, 1), for every fan_in", NORMAL, None),
    "lecun_normal": Draw("LeCun et al. (1998): N(0, 1/fan_in)", NORMAL, "1 / math.sqrt(fan_in)"),
    "xavier_normal": Draw(
        "Glorot and Bengio (2010): N(0, 2/(fan_in + fan_out))", NORMAL, "math.sqrt(2 / (fan_in + fan_out))"
    ),
    "xavier_uniform": Draw(
        "Glorot and Bengio (2010): U(-a, a) of variance a^2/3 = 2/(fan_in + fan_out)",
        UNIFORM,
        "math.sqrt(6 / (fan_in + fan_out))",
    ),
    "kaiming_normal": Draw("He et al. (2015): N(0, 2/fan_in)", NORMAL, "math.sqrt(2 / fan_in)"),
    "kaiming_uniform": Draw(
        "He et al. (2015): U(-a, a) of variance a^2/3 = 2/fan_in", UNIFORM, "math.sqrt(6 / fan_in)"
    ),
    "uniform": Draw("U(-0.1, 0.1), for every fan_in", UNIFORM, "0.1"),
    "orthogonal": Draw("Saxe et al. (2013): a random orthogonal matrix", ORTHOGONAL, None),
    "zeros": Draw("all zeros: all units of a layer are equal", ZEROS, None),
    "torch_default": Draw(
        "torch.nn.Linear's own: U(-a, a) with a = 1/sqrt(fan_in), for weight and bias alike",
        UNIFORM,
        "1 / math.sqrt(fan_in)",
    ),
}
"""The schemes of `foundations/initialization.py`, as a script writes them."""


def header(spec: ModelSpec, says: str) -> str:
    """The comment at the top: the command that makes the script, and its purpose."""
    return f"# chainrule trace '{spec.query()}' --format pytorch\n#\n# {says}"


def imports(spec: ModelSpec, *, functional: bool) -> str:
    """The script's imports, with torch.nn.functional if `functional`."""
    lines = ["import hashlib"]
    if ("init" in spec.keys and "math." in (DRAWS[spec.init].size or "")) or spec.parametrization == "mup":
        lines.append("import math")
    return "\n".join([*lines, "", "import torch", *(["import torch.nn.functional as F"] if functional else [])])


def run_settings(spec: ModelSpec) -> list[str]:
    """The lines that set scale, dtype and device, unless they have their defaults."""
    lines = []
    if has_scale(spec):
        lines.append(f"scale = {spec.scale!r}  # multiplies only the weights")
    if spec.dtype != "float32":
        lines.append(f"dtype = torch.{spec.dtype}  # all tensors are drawn in float32 and then cast")
    if spec.device != "cpu":
        lines.append(f'device = "{spec.device}"  # all tensors are drawn on the CPU and then moved')
    return lines


def functions(spec: ModelSpec) -> str:
    """The functions that the script calls."""
    functions = [GENERATOR]
    if "init" in spec.keys and spec.init == "orthogonal":
        functions.append(ORTHOGONAL_FUNCTION)
    functions.append(MEAN_AND_STD_OF_FLOAT64 if spec.dtype == "float64" else MEAN_AND_STD)
    return "\n" + "\n\n\n".join(functions) + "\n"


class WeightDraw(NamedTuple):
    """The code that draws a weight and a bias, without their names, and the lines before it."""

    before: list[str]
    weight: str
    bias: str


def weight_draw(spec: ModelSpec, weight: str, bias: str) -> WeightDraw:
    """The draws of a weight (fan_in, fan_out) and its bias (fan_out,); `weight` and `bias` name their generators."""
    draw = DRAWS[spec.init]
    size = "bound" if draw.base is UNIFORM else "std"
    factors = ([size] if draw.size else []) + (["scale"] if has_scale(spec) else [])
    if spec.init == "torch_default":
        drawn_bias = f"{size} * {drawn(spec, draw.base, bias, 'fan_out')}"
    elif spec.bias_std > 0:
        drawn_bias = f"{spec.bias_std!r} * {drawn(spec, NORMAL, bias, 'fan_out')}"
    else:
        drawn_bias = drawn(spec, ZEROS, bias, "fan_out")
    return WeightDraw(
        [f"# {draw.comment}", *([f"{size} = {draw.size}"] if draw.size else [])],
        # The factors are on the left: they are multiplied as numbers, so that the draw is rounded once.
        " * ".join([*factors, drawn(spec, draw.base, weight, "fan_in, fan_out")]),
        drawn_bias,
    )


def drawn(spec: ModelSpec, base: str, name: str, shape: str) -> str:
    """The draw of a tensor at unit size, in float64 if that is the spec's dtype; `name` is the code of its name."""
    draw = base.format(shape=shape, generator=f"generator({name})")
    return f"{draw}.to(dtype)" if spec.dtype == "float64" else draw


def has_scale(spec: ModelSpec) -> bool:
    """Whether the script has a scale."""
    return "scale" in spec.keys and spec.scale != 1 and spec.init != "zeros"


def cast(spec: ModelSpec, *, of_draw: bool = False) -> str:
    """The code that converts a tensor (float32, CPU) to the spec's device and dtype; empty if they are the same.

    `of_draw`: the tensor comes from `weight_draw`.
    """
    wanted = ["device"] if spec.device != "cpu" else []
    if spec.dtype != "float32" and not (of_draw and spec.dtype == "float64"):
        wanted.append("dtype")
    return f".to({', '.join(wanted)})" if wanted else ""


GENERATOR = '''\
def generator(name):
    """The random numbers of one tensor: they depend only on the seed and the name."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))'''

ORTHOGONAL_FUNCTION = '''\
def orthogonal(fan_in, fan_out, generator):
    """Orthonormal columns, or rows if there are fewer rows. The signs make rotations equally likely (Mezzadri 2006)."""
    normal = torch.randn(fan_in, fan_out, generator=generator)
    q, r = torch.linalg.qr(normal if fan_in >= fan_out else normal.T)
    q = q * r.diagonal().sign()
    return q if fan_in >= fan_out else q.T'''

MEAN_AND_STD = '''\
def mean_and_std(tensor):
    """Over the finite elements (nan where there are none), in float64; the std is the population's."""
    values = tensor.detach().double()
    values = values[values.isfinite()]
    mean = values.mean()
    return mean.item(), (values - mean).square().mean().sqrt().item()'''

MEAN_AND_STD_OF_FLOAT64 = '''\
def mean_and_std(tensor):
    """Over the finite elements (nan where there are none); the std is the population's."""
    values = tensor.detach()[tensor.isfinite()]
    # Relative to the largest, so that no sum and no square leaves the range of float64.
    largest = max(values.abs().tolist(), default=0) or 1
    values = values / largest
    mean = values.mean()
    return largest * mean.item(), largest * (values - mean).square().mean().sqrt().item()'''

PRINT_LAYERS = """\
print("layer  preactivation std  activation mean  activation std  gradient std")
for layer, (z, a) in enumerate(layers, start=1):
    _, z_std = mean_and_std(z)
    a_mean, a_std = mean_and_std(a)
    _, gradient_std = mean_and_std(a.grad)
    print(f"{layer:5}  {z_std:17.6g}  {a_mean:15.6g}  {a_std:14.6g}  {gradient_std:12.6g}")
print(f"loss {loss.item():.6g}")"""

PRINT_TENSORS = """\
print("tensor          mean           std  gradient mean  gradient std")
for name, tensor in tensors.items():
    mean, std = mean_and_std(tensor)
    gradient_mean, gradient_std = mean_and_std(tensor.grad)
    print(f"{name:7}  {mean:12.6g}  {std:12.6g}  {gradient_mean:13.6g}  {gradient_std:12.6g}")
print(f"loss {loss.item():.6g}")"""
