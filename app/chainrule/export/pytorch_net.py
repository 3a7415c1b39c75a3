"""The program mlp as a script in plain PyTorch: it holds one scheme, one activation, one loss and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from chainrule.export.pytorch_parts import cast, functions, header, imports, run_settings, weight_draw
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


def net_script(spec: ModelSpec) -> str:
    """The script of the program mlp; see `pytorch_script`."""
    parts = [
        header(spec, "One forward and one backward pass of a net as it is initialized, and what its layers look like."),
        imports(spec, functional=True),
        _settings(spec),
        functions(spec),
        _inputs(spec),
        _forward(spec),
        _backward(spec),
        PRINT,
    ]
    return "\n\n".join(parts) + "\n"


def _settings(spec: ModelSpec) -> str:
    lines = [f"widths = {_widths(spec.widths)}  # of the input, of each hidden layer, of the output"]
    lines += [f"batch, seed = {spec.batch}, {spec.seed}"]
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


def _forward(spec: ModelSpec) -> str:
    draw = weight_draw(spec, 'f"w{layer}"', 'f"b{layer}"')
    body = [draw.comment, *([draw.size] if draw.size else []), f"w = {draw.weight}", _as_leaf("w", spec)]
    if spec.bias:
        body += [f"b = {draw.bias}", _as_leaf("b", spec)]
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


def _as_leaf(name: str, spec: ModelSpec) -> str:
    to = cast(spec)
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


PRINT = """\
print("layer  preactivation std  activation mean  activation std  gradient std")
for layer, (z, a) in enumerate(layers, start=1):
    _, z_std = mean_and_std(z)
    a_mean, a_std = mean_and_std(a)
    _, gradient_std = mean_and_std(a.grad)
    print(f"{layer:5}  {z_std:17.6g}  {a_mean:15.6g}  {a_std:14.6g}  {gradient_std:12.6g}")
print(f"loss {loss.item():.6g}")"""
