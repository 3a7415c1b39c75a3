"""A spec as a script in plain PyTorch, to run, to change and to check Chainrule's figures with.

The script draws the same tensors, runs forward and backward and prints every layer's figures, without Chainrule. It
holds what its spec needs and nothing else: one scheme, one activation, one loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

from chainrule.spec import ModelSpec

ACTIVATIONS: Mapping[str, str] = {
    "relu": "torch.relu",
    "leaky_relu": "F.leaky_relu",
    "tanh": "torch.tanh",
    "sigmoid": "torch.sigmoid",
    "gelu": "F.gelu",
    "silu": "F.silu",
    "elu": "F.elu",
    "selu": "F.selu",
}
"""PyTorch's own function for each activation; `linear` is none."""

NORMAL = "torch.randn({shape}, generator={generator})"
UNIFORM = "torch.empty({shape}).uniform_(-1, 1, generator={generator})"
ORTHOGONAL = "orthogonal({shape}, {generator})"
ZEROS = "torch.zeros({shape})"


class Draw(NamedTuple):
    """How one scheme draws: in words, at unit size, and times what; `size` is None where it is 1."""

    comment: str
    base: str
    size: str | None


DRAWS: Mapping[str, Draw] = {
    "standard_normal": Draw("N(0, 1), whatever the fan_in", NORMAL, None),
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
    "uniform": Draw("U(-0.1, 0.1), whatever the fan_in", UNIFORM, "0.1"),
    "orthogonal": Draw("Saxe et al. (2013): a random orthogonal matrix", ORTHOGONAL, None),
    "zeros": Draw("all zeros: the units of a layer are all alike", ZEROS, None),
    "torch_default": Draw(
        "torch.nn.Linear's own: U(-a, a) with a = 1/sqrt(fan_in), for weight and bias alike",
        UNIFORM,
        "1 / math.sqrt(fan_in)",
    ),
}
"""The schemes of `foundations/initialization.py`, as a script writes them."""


def pytorch_script(spec: ModelSpec) -> str:
    """A self-contained script that reproduces a spec's figures with torch alone; ASCII, the same for the same spec.

    Run, it prints one line per layer (std of the preactivation, mean and std of the activation, std of the gradient
    of the loss with respect to the activation; over the finite elements, in float64, of the population) and the loss.

    The backward pass is autograd's. Where `spec.style` writes it by hand the figures agree to rounding, which in
    float16 and bfloat16 can be seen; and where numbers overflow, relu's gradient by hand has NaN (0 · Inf) in places
    where autograd's has 0, so that its std is over fewer elements.
    """
    parts = [
        _header(spec),
        _imports(spec),
        _settings(spec),
        _functions(spec),
        _inputs(spec),
        _forward(spec),
        _backward(spec),
        PRINT,
    ]
    return "\n\n".join(parts) + "\n"


def _header(spec: ModelSpec) -> str:
    return (
        f"# chainrule trace '{spec.query()}' --format pytorch\n"
        "#\n"
        "# One forward and one backward pass of a net as it is initialized, and what its layers look like."
    )


def _imports(spec: ModelSpec) -> str:
    imports = ["import hashlib"]
    if "math." in (DRAWS[spec.init].size or ""):
        imports.append("import math")
    return "\n".join([*imports, "", "import torch", "import torch.nn.functional as F"])


def _settings(spec: ModelSpec) -> str:
    lines = [f"widths = {_widths(spec.widths)}  # of the input, of each hidden layer, of the output"]
    lines += [f"batch, seed = {spec.batch}, {spec.seed}"]
    if _has_scale(spec):
        lines.append(f"scale = {spec.scale!r}  # of the weights, and of nothing else")
    if spec.dtype != "float32":
        lines.append(f"dtype = torch.{spec.dtype}  # everything is drawn in float32 all the same, then cast")
    if spec.device != "cpu":
        lines.append(f'device = "{spec.device}"  # everything is drawn on the CPU all the same, then moved')
    return "\n".join(lines)


def _functions(spec: ModelSpec) -> str:
    functions = [GENERATOR]
    if spec.init == "orthogonal":
        functions.append(ORTHOGONAL_FUNCTION)
    functions.append(MEAN_AND_STD_OF_FLOAT64 if spec.dtype == "float64" else MEAN_AND_STD)
    return "\n" + "\n\n\n".join(functions) + "\n"


def _inputs(spec: ModelSpec) -> str:
    generator = 'generator=generator("y")'
    if spec.loss == "cross_entropy":
        device = "" if spec.device == "cpu" else ".to(device)"
        target = f"y = torch.randint(widths[-1], (batch,), {generator}){device}  # the true classes"
    else:
        shape = "batch" if spec.n_out == 1 else "batch, widths[-1]"
        target = f"y = torch.randn({shape}, {generator}){_cast(spec)}"
    return f'x = torch.randn(batch, widths[0], generator=generator("x")){_cast(spec)}\n{target}'


def _forward(spec: ModelSpec) -> str:
    draw = DRAWS[spec.init]
    size = "bound" if draw.base is UNIFORM else "std"
    factors = ([size] if draw.size else []) + (["scale"] if _has_scale(spec) else [])
    body = [f"# {draw.comment}"]
    if draw.size:
        body.append(f"{size} = {draw.size}")
    # From the left: the factors are multiplied as numbers, and the draw is rounded once.
    body += [
        f"w = {' * '.join([*factors, _drawn(draw.base, 'w', 'fan_in, fan_out')])}",
        _as_leaf("w", spec),
    ]
    if spec.bias:
        if spec.init == "torch_default":
            bias = f"{size} * {_drawn(draw.base, 'b', 'fan_out')}"
        elif spec.bias_std > 0:
            bias = f"{spec.bias_std!r} * {_drawn(NORMAL, 'b', 'fan_out')}"
        else:
            bias = _drawn(ZEROS, "b", "fan_out")
        body += [f"b = {bias}", _as_leaf("b", spec)]
    body += [
        f"z = a @ w{' + b' if spec.bias else ''}  # the preactivation: (batch, fan_out)",
        f"a = {_activated(spec)}",
        "a.retain_grad()  # unasked, autograd keeps the gradients of leaves only",
        "layers.append((z, a))",
    ]
    loop = "for layer, (fan_in, fan_out) in enumerate(zip(widths, widths[1:]), start=1):"
    return "\n".join(["layers = []", "a = x", loop, *(f"    {line}" for line in body)])


def _backward(spec: ModelSpec) -> str:
    if spec.loss == "cross_entropy":
        lines = ["loss = F.cross_entropy(a, y)"]
    elif spec.n_out == 1:
        lines = [
            "# Without the squeeze, (batch, 1) and (batch,) would broadcast to (batch, batch).",
            "loss = F.mse_loss(a.squeeze(-1), y)",
        ]
    else:
        lines = ["loss = F.mse_loss(a, y)"]
    return "\n".join([*lines, "loss.backward()"])


def _drawn(base: str, letter: str, shape: str) -> str:
    """The draw of unit size behind a layer's weight (`letter` w) or bias (b)."""
    return base.format(shape=shape, generator=f'generator(f"{letter}{{layer}}")')


def _as_leaf(name: str, spec: ModelSpec) -> str:
    cast = _cast(spec)
    return f"{name} = {name}{cast}.requires_grad_()" if cast else f"{name}.requires_grad_()"


def _activated(spec: ModelSpec) -> str:
    if spec.activation == "linear" or (spec.depth == 1 and not spec.last_activation):
        return "z  # no activation"
    activated = f"{ACTIVATIONS[spec.activation]}(z)"
    return activated if spec.last_activation else f"{activated} if layer < len(widths) - 1 else z"


def _has_scale(spec: ModelSpec) -> bool:
    return spec.scale != 1 and spec.init != "zeros"


def _cast(spec: ModelSpec) -> str:
    """What takes a draw, float32 on the CPU, to the spec's device and dtype; empty where it is there already."""
    wanted = [
        name
        for name, asked, drawn in (("device", spec.device, "cpu"), ("dtype", spec.dtype, "float32"))
        if asked != drawn
    ]
    return f".to({', '.join(wanted)})" if wanted else ""


def _widths(widths: tuple[int, ...]) -> str:
    """`[784] + [100] * 50 + [10]`: a list in Python, long runs compressed."""
    lists: list[list[str]] = [[]]
    text: list[str] = []
    for width, run in groupby(widths):
        count = sum(1 for _ in run)
        if count > 3:
            text += [f"[{', '.join(lists[-1])}]"] if lists[-1] else []
            text.append(f"[{width}] * {count}")
            lists.append([])
        else:
            lists[-1] += [str(width)] * count
    text += [f"[{', '.join(lists[-1])}]"] if lists[-1] else []
    return " + ".join(text)


GENERATOR = '''\
def generator(name):
    """The random numbers of one tensor: they depend on the seed and its name, and not on what else is drawn."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))'''

ORTHOGONAL_FUNCTION = '''\
def orthogonal(fan_in, fan_out, generator):
    """Orthonormal columns, or rows where those are fewer. The signs make every rotation as likely (Mezzadri 2006)."""
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

PRINT = """\
print("layer  preactivation std  activation mean  activation std  gradient std")
for layer, (z, a) in enumerate(layers, start=1):
    _, z_std = mean_and_std(z)
    a_mean, a_std = mean_and_std(a)
    _, gradient_std = mean_and_std(a.grad)
    print(f"{layer:5}  {z_std:17.6g}  {a_mean:15.6g}  {a_std:14.6g}  {gradient_std:12.6g}")
print(f"loss {loss.item():.6g}")"""
