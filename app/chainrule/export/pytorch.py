"""A spec as a script in plain PyTorch that draws the same tensors, runs forward and backward and prints the figures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from chainrule.errors import SpecError
from chainrule.export.pytorch_parts import (
    NORMAL,
    PRINT_LAYERS,
    PRINT_TENSORS,
    cast,
    drawn,
    functions,
    header,
    imports,
    run_settings,
    weight_draw,
)
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM
from chainrule.spec.keys import BASE_WIDTH

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


MATMUL: Mapping[str, str] = {
    "loops": """\
for i in range(batch):
    for j in range(widths[1]):
        for k in range(widths[0]):
            c[i, j] += a[i, k] * b[k, j]""",
    "elementwise": """\
for i in range(batch):
    for j in range(widths[1]):
        c[i, j] = (a[i] * b[:, j]).sum()""",
    "broadcasting": """\
for i in range(batch):
    c[i] = (a[i].unsqueeze(-1) * b).sum(dim=0)""",
    "einsum": 'c = torch.einsum("ik,kj->ij", a, b)',
    "@": "c = a @ b",
}
"""The rungs; the first three write into an existing c."""

FORWARD: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "neuron": (
        "l1 = sum(x_i * w_i for x_i, w_i in zip(x, w)) + b\n"
        "out = l1.clamp_min(0)  # its slope at 0 is 1; torch.relu's is 0",
        ("l1", "out"),
        "(out - y) ** 2",
    ),
    "exp": ("out = x.exp()", ("out",), "out.sum()"),
    "mul_constant": ("out = x * constant", ("out",), "out.sum()"),
    "my_relu": ("out = torch.relu(x)", ("out",), "out.sum()"),
    "two_outputs": ("sines, cosines = x.sin(), x.cos()", ("sines", "cosines"), "(sines * cosines).sum()"),
}
"""The forward pass, its results and the loss of the programs whose code does not depend on the spec."""


def pytorch_script(spec: ModelSpec) -> str:
    """A self-contained ASCII script that reproduces a spec's figures with torch alone; deterministic.

    It prints one line per layer (std of the preactivation, mean and std of the activation, std of the gradient of the
    loss with respect to the activation; over the finite elements, in float64, of the population) and the loss. For a
    program that is not a net it prints one line per tensor: mean and std of the tensor and of its gradient.

    The backward pass is autograd's. If `spec.style` writes it by hand, the figures agree to rounding, which shows in
    float16 and bfloat16; after an overflow relu's gradient by hand has NaN (0 · Inf) where autograd's has 0, so its std
    is over fewer elements.

    Raises:
        SpecError: the spec's net is trained, or its inputs are samples of a data set.
    """
    if spec.is_net and (spec.step or spec.data != RANDOM):
        field = "step" if spec.step else "data"
        raise SpecError(
            f"{field}: {getattr(spec, field)!r} with format pytorch, which writes an untrained net with random inputs",
            field=field,
            limit=0 if spec.step else [RANDOM],
        )
    if spec.is_net:
        purpose = "of a net as it is initialized, and what its layers look like."
        code = [_inputs(spec), _layers(spec), _loss(spec), PRINT_LAYERS]
    else:
        purpose = f"of the program {spec.program}, and what its tensors look like."
        code = _program(spec)
    parts = [
        header(spec, f"One forward and one backward pass {purpose}"),
        imports(spec, functional=spec.is_net or any("F." in part for part in code)),
        _settings(spec),
        functions(spec),
        *code,
    ]
    return "\n\n".join(parts) + "\n"


def _settings(spec: ModelSpec) -> str:
    about = "  # of the input, of each hidden layer, of the output" if spec.is_net else ""
    lines = [f"widths = {_widths(spec.widths)}{about}"]
    lines.append(f"batch, seed = {spec.batch}, {spec.seed}" if "batch" in spec.keys else f"seed = {spec.seed}")
    if "constant" in spec.keys:
        lines.append(f"constant = {spec.constant!r}")
    return "\n".join([*lines, *run_settings(spec)])


def _inputs(spec: ModelSpec) -> str:
    generator = 'generator=generator("y")'
    if spec.loss == "cross_entropy":
        device = "" if spec.device == "cpu" else ".to(device)"
        target = f"y = torch.randint(widths[-1], (batch,), {generator}){device}  # the true classes"
    else:
        shape = "batch" if spec.n_out == 1 else "batch, widths[-1]"
        target = f"y = torch.randn({shape}, {generator}){cast(spec)}"
    return f'x = torch.randn(batch, widths[0], generator=generator("x")){cast(spec)}\n{target}'


def _layers(spec: ModelSpec) -> str:
    draw = weight_draw(spec, 'f"w{layer}"', 'f"b{layer}"')
    body = [*draw.before, f"w = {draw.weight}"]
    if spec.parametrization == "mup":
        body += [
            "if layer == len(widths) - 1:",
            f"    w = w / math.sqrt(fan_in / {BASE_WIDTH})  # the last layer of the maximal update parametrization",
        ]
    body.append(_as_leaf("w", spec))
    if spec.bias:
        body += [f"b = {draw.bias}", _as_leaf("b", spec)]
    body += [
        f"z = a @ w{' + b' if spec.bias else ''}  # the preactivation: (batch, fan_out)",
        f"a = {_activated(spec)}",
        "a.retain_grad()  # without it, autograd keeps only the gradients of leaves",
        "layers.append((z, a))",
    ]
    loop = "for layer, (fan_in, fan_out) in enumerate(zip(widths, widths[1:]), start=1):"
    return "\n".join(["layers = []", "a = x", loop, *(f"    {line}" for line in body)])


def _loss(spec: ModelSpec) -> str:
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


def _as_leaf(name: str, spec: ModelSpec) -> str:
    to = cast(spec, of_draw=True)
    return f"{name} = {name}{to}.requires_grad_()" if to else f"{name}.requires_grad_()"


def _activated(spec: ModelSpec) -> str:
    if spec.activation == "linear" or (spec.depth == 1 and not spec.last_activation):
        return "z  # no activation"
    activated = f"{ACTIVATIONS[spec.activation]}(z)"
    return activated if spec.last_activation else f"{activated} if layer < len(widths) - 1 else z"


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


def _program(spec: ModelSpec) -> list[str]:
    leaves = _leaves(spec)
    code, made, loss = _forward(spec)
    shown = [*(name for name in leaves if name != "y"), *made]
    kept = "; ".join(f"{name}.retain_grad()" for name in made)
    return [
        "\n".join(line for lines in leaves.values() for line in lines),
        f"{code}\n{kept}  # without it, autograd keeps only the gradients of leaves",
        f"loss = {loss}\nloss.backward()",
        "tensors = {" + ", ".join(f'"{name}": {name}' for name in shown) + "}",
        PRINT_TENSORS,
    ]


def _leaves(spec: ModelSpec) -> dict[str, list[str]]:
    """The lines that draw each tensor, by its name."""
    if spec.program == "matmul":
        return {"a": [_normal("a", "batch, widths[0]", spec)], "b": [_normal("b", "widths[0], widths[1]", spec)]}
    if spec.program == "neuron":
        x, y = _normal("x", "widths[0]", spec), _normal("y", "()", spec)
        return {"x": [x], **_parameters(spec, ".squeeze(1)", ".squeeze(0)"), "y": [y]}
    x = _normal("x", "batch, widths[0]", spec)
    if spec.program in ("linear_function", "linear_cpp"):
        target = "batch" if spec.n_out == 1 else "batch, widths[1]"
        return {"x": [x], **_parameters(spec, ".T.contiguous()", ""), "y": [_normal("y", target, spec)]}
    return {"x": [x]}


def _parameters(spec: ModelSpec, weight: str, bias: str) -> dict[str, list[str]]:
    """The parameters w and b, if the spec has one; `weight` and `bias` are method calls appended to the draws."""
    draw = weight_draw(spec, '"w"', '"b"')
    ends = f"{cast(spec, of_draw=True)}.requires_grad_()"
    lines = {"w": ["fan_in, fan_out = widths", *draw.before, f"w = {_grouped(draw.weight)}{weight}{ends}"]}
    if spec.bias:
        lines["b"] = [f"b = {_grouped(draw.bias)}{bias}{ends}"]
    return lines


def _grouped(code: str) -> str:
    return f"({code})" if " * " in code else code


def _normal(name: str, shape: str, spec: ModelSpec) -> str:
    leaf = "" if name == "y" else ".requires_grad_()"
    draw = drawn(spec, NORMAL, f'"{name}"', shape)
    return f"{name} = {draw}{cast(spec, of_draw=True)}{leaf}"


def _forward(spec: ModelSpec) -> tuple[str, tuple[str, ...], str]:
    if spec.program == "matmul":
        there = f"c = torch.zeros(batch, widths[1]){cast(spec)}\n"
        code = MATMUL[spec.rung]
        return (there if code.startswith("for") else "") + code, ("c",), "c.sum()"
    if spec.program in ("linear_function", "linear_cpp"):
        target = "out.squeeze(-1)" if spec.n_out == 1 else "out"
        return f"out = F.linear(x, w{', b' if spec.bias else ''})", ("out",), f"F.mse_loss({target}, y)"
    return FORWARD[spec.program]
