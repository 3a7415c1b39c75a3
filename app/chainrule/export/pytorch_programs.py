"""The programs besides mlp as scripts in plain PyTorch, with autograd's own ops instead of custom Functions."""

from __future__ import annotations

from collections.abc import Mapping

from chainrule.export.pytorch_parts import NORMAL, cast, drawn, functions, header, imports, run_settings, weight_draw
from chainrule.spec import ModelSpec

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
        "out = l1.clamp_min(0)  # at 0 its slope is 1, where torch.relu's is 0",
        ("l1", "out"),
        "(out - y) ** 2",
    ),
    "exp": ("out = x.exp()", ("out",), "out.sum()"),
    "mul_constant": ("out = x * constant", ("out",), "out.sum()"),
    "my_relu": ("out = torch.relu(x)", ("out",), "out.sum()"),
    "two_outputs": ("sines, cosines = x.sin(), x.cos()", ("sines", "cosines"), "(sines * cosines).sum()"),
}
"""The forward pass, its results and the loss of the programs whose code does not depend on the spec."""


def program_script(spec: ModelSpec) -> str:
    """The script of a program that is not a net; see `pytorch_script`."""
    leaves = _leaves(spec)
    code, made, loss = _forward(spec)
    shown = [*(name for name in leaves if name != "y"), *made]
    kept = [f"{name}.retain_grad()" for name in made]
    parts = [
        header(
            spec, f"One forward and one backward pass of the program {spec.program}, and what its tensors look like."
        ),
        imports(spec, functional="F." in loss or "F." in code),
        _settings(spec),
        functions(spec),
        "\n".join(line for lines in leaves.values() for line in lines),
        "\n".join([code, "; ".join(kept) + "  # unasked, autograd keeps the gradients of leaves only"]),
        f"loss = {loss}\nloss.backward()",
        "tensors = {" + ", ".join(f'"{name}": {name}' for name in shown) + "}",
        PRINT,
    ]
    return "\n\n".join(parts) + "\n"


def _settings(spec: ModelSpec) -> str:
    lines = [f"widths = {list(spec.widths)}"]
    lines.append(f"batch, seed = {spec.batch}, {spec.seed}" if "batch" in spec.keys else f"seed = {spec.seed}")
    if "constant" in spec.keys:
        lines.append(f"constant = {spec.constant!r}")
    return "\n".join([*lines, *run_settings(spec)])


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
    size = [draw.size] if draw.size else []
    ends = f"{cast(spec)}.requires_grad_()"
    lines = {"w": ["fan_in, fan_out = widths", draw.comment, *size, f"w = {_grouped(draw.weight)}{weight}{ends}"]}
    if spec.bias:
        lines["b"] = [f"b = {_grouped(draw.bias)}{bias}{ends}"]
    return lines


def _grouped(code: str) -> str:
    return f"({code})" if " * " in code else code


def _normal(name: str, shape: str, spec: ModelSpec) -> str:
    leaf = "" if name == "y" else ".requires_grad_()"
    draw = drawn(NORMAL, f'"{name}"', shape)
    return f"{name} = {draw}{cast(spec)}{leaf}"


def _forward(spec: ModelSpec) -> tuple[str, tuple[str, ...], str]:
    if spec.program == "matmul":
        there = f"c = torch.zeros(batch, widths[1]){cast(spec)}\n"
        code = MATMUL[spec.rung]
        return (there if code.startswith("for") else "") + code, ("c",), "c.sum()"
    if spec.program in ("linear_function", "linear_cpp"):
        target = "out.squeeze(-1)" if spec.n_out == 1 else "out"
        return f"out = F.linear(x, w{', b' if spec.bias else ''})", ("out",), f"F.mse_loss({target}, y)"
    return FORWARD[spec.program]


PRINT = """\
print("tensor          mean           std  gradient mean  gradient std")
for name, tensor in tensors.items():
    mean, std = mean_and_std(tensor)
    gradient_mean, gradient_std = mean_and_std(tensor.grad)
    print(f"{name:7}  {mean:12.6g}  {std:12.6g}  {gradient_mean:13.6g}  {gradient_std:12.6g}")
print(f"loss {loss.item():.6g}")"""
