"""Gradient rules: their kernels and their texts, worked out by torch."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from lambda_modules import Parts, recorded
from torch import nn

from chainrule.foundations.layers import mse


def layer_norm(x, w, b):
    return F.layer_norm(x, (4,), w, b, eps=1e-5)


def batch_norm(x, m, v, w, b):
    return F.batch_norm(x, m, v.abs(), w, b, training=True, eps=1e-5)


# torch functions by name; other rules bring their own example.
TORCH = {
    **{
        name: getattr(torch, name)
        for name in "neg exp log sqrt rsqrt abs tanh sigmoid relu add sub mul div matmul".split()
    },
    **{name: getattr(F, name) for name in "leaky_relu elu selu gelu silu linear mse_loss conv2d".split()},
    "clamp_min": lambda x: x.clamp_min(0.0),
    "pow": lambda x: x.pow(3),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "mean": torch.mean,
    "max": torch.max,
    "addmm": torch.addmm,
    "scaled_dot_product_attention": F.scaled_dot_product_attention,
    "layer_norm": layer_norm,
    "batch_norm": batch_norm,
    "cross_entropy": lambda x, t: F.cross_entropy(x, t.long()),
    "nll_loss": lambda x, t: F.nll_loss(x, t.long()),
    "Matrix times vector": torch.mv,
    "Vector times matrix": torch.matmul,
    "Product of two vectors": torch.dot,
    "Power with a tensor as exponent": torch.pow,
    "The larger of two": torch.maximum,
    "The smaller of two": torch.minimum,
    "Gaussian error linear unit, by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "Batch normalization, in evaluation": lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=False, eps=1e-5),
    "Axes in another order": lambda x: x.permute(1, 2, 0),
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2)[0],
}


EXAMPLES = """(m) => m.RULES.map(({ names: [name], title, kernel: { shapes, fixed, isPositive, value } }) => {
    const inputs = shapes.map((shape, operand) => {
        const values = Float64Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, at) => {
            const drawn = 2 * Math.sin(1 + operand + 5 * at);
            return fixed?.[operand]?.[at] ?? (isPositive ? Math.abs(drawn) + 0.1 : drawn);
        });
        return { shape, values };
    });
    const y = value(inputs);
    return [name, title, inputs.map(({ shape, values }) => [shape, [...values]]), [...y.values]];
})"""


def test_kernels_of_rules_compute_what_torch_computes(module):
    """Finite differences then say that their gradients are right, too."""
    compared = set()
    for first_name, title, inputs, y in module("rules/gradient-rules.js", EXAMPLES):
        # The title tells two rules of one name apart.
        name = title if title in TORCH else first_name
        if name not in TORCH or name in compared:
            continue
        tensors = [torch.tensor(values, dtype=torch.float64).reshape(shape) for shape, values in inputs]
        assert y == pytest.approx(TORCH[name](*tensors).flatten().tolist(), rel=1e-9, abs=1e-12), name
        compared.add(name)
    assert compared == TORCH.keys()


FORMULAS = """(m, [dump, names]) => {
    const tensors = new Map(dump.tensors.map((tensor) => [tensor.id, tensor]));
    const ops = new Map(dump.ops.map((op) => [op.id, op]));
    return names.map((name) => {
        const op = dump.ops.find((each) => each.outputs.some((id) => tensors.get(id).name === name));
        const lines = m.definitions([op], ops, tensors, (id) => tensors.get(id).name, () => true);
        return lines.find(({ tensor }) => tensors.get(tensor).name === name).text;
    });
}"""


def gated(net, x):
    h = F.gelu(net.up(x))
    left, right = net.norm(h + net.down(h)).chunk(2, -1)
    return left * right


@pytest.mark.parametrize(
    ("model", "x", "expected"),
    [
        (
            # A linear layer of three axes is four nodes, and each says its own part; shares of a gradient are added up.
            Parts(gated, up=nn.Linear(8, 16), norm=nn.LayerNorm(16), down=nn.Linear(16, 16)),
            torch.randn(2, 4, 8),
            {
                "up.bias.g": "sum(up.ViewBackward0, dim=0)",
                "up.AddmmBackward0": "flatten(input, 0, 1)ᵀ @ up.ViewBackward0",
                "up.weight.g": "up.AddmmBackward0ᵀ",
                "down.AddmmBackward0": "down.ViewBackward0 @ down.weight",
                "up.linear.g": "(Φ(up.linear) + up.linear · φ(up.linear)) · gelu.g",
                "gelu.g": "gelu.g share 1 + gelu.g share 2",
                "norm.layer_norm.g": "cat(chunk.g, chunk_1.g, dim=−1)",
                "chunk.g": "mul.g · chunk_1",
            },
        ),
        (
            # Four nodes make the backward pass of one product: the last one's line is the rule of the whole.
            Parts(
                lambda net, x: 2 / ((net.l(x.expand(2, 5, 4)) @ net.w) ** 2 + 1),
                w=nn.Parameter(torch.randn(4, 1)),
                l=nn.Linear(4, 4),
            ),
            torch.randn(1, 5, 4, requires_grad=True),
            {
                "l.linear.g": "matmul.g @ wᵀ",
                "w.g": "sum(l.linearᵀ @ matmul.g, dim=0)",
                "l.bias.g": "sum(l.linear.g, dim=(0, 1))",
                "add.g": "−2 · rdiv.g / add²",
            },
        ),
    ],
)
def test_nodes_of_autograd_are_written_as_what_they_do(module, model, x, expected):
    dump = recorded(model, x, loss=torch.sum)
    assert dict(zip(expected, module("rules/formula.js", FORMULAS, [dump, list(expected)]), strict=True)) == expected


RULE_TERMS = """(m, [dump, names]) => {
    const tensors = new Map(dump.tensors.map((tensor) => [tensor.id, tensor]));
    const shapeOf = (id) => tensors.get(id).shape;
    return Object.fromEntries(names.flatMap((name) => {
        const op = dump.ops.find(({ outputs, phase }) => outputs.length > 0 && phase !== "backward"
            && tensors.get(outputs[0]).name === name);
        const shapes = { operands: op.inputs.map(shapeOf), output: shapeOf(op.outputs[0]) };
        const terms = op.inputs.map((id) => ({ text: tensors.get(id).name, binds: 6 }));
        return op.inputs.map((id, at) => [`${name}/${at}`,
            m.ruleTerm(op, terms, at, { text: "dy", binds: 5 }, shapes, name)?.text ?? null]);
    }));
}"""


WORDS = {"sum": torch.sum, "log": torch.log, "squeeze": torch.squeeze, "unsqueeze": torch.unsqueeze}


def value_of(text, values):
    """The value of a rule's expression, by torch."""
    for sign, python in {"−": "-", "·": "*", "²": "**2", "³": "**3", "ᵀ": ".mT", "^": "**", "⊗": "^"}.items():
        text = text.replace(sign, python)

    class Factor(torch.Tensor):
        def __xor__(self, other):
            return self.unsqueeze(-1) * other

    known = {name: value.detach().as_subclass(Factor) for name, value in values.items()}
    return eval(text, {**WORDS, "__builtins__": {}}, {**known, "True": True})


OPERATIONS = {
    "add with alpha": (lambda a, b: torch.add(a, b, alpha=2), (5, 4), (4,)),
    "sub with alpha": (lambda a, b: torch.sub(a, b, alpha=3), (5, 4), (4, 1, 1)),
    "add to a column": (lambda a, b: a + b, (4, 1), (4, 5)),
    "add to three axes": (lambda a, b: a + b, (2, 3, 4), (4,)),
    "add a middle axis": (lambda a, b: a + b, (2, 3, 4), (3, 1)),
    "times a number": (lambda a: a * 2, (3, 4)),
    "minus a number": (lambda a: 3 - a, (3, 4)),
    "by a number": (lambda a: a / -3, (3, 4)),
    "a number by it": (lambda a: 2 / a, (3, 4)),
    "quotient": (lambda a, b: a / b, (2, 1), (2, 4)),
    "power of a tensor": (lambda a, b: a**b, (3, 4), (4,)),
    "matrix and vector": (lambda a, b: a @ b, (5, 4), (4,)),
    "batch and vector": (lambda a, b: a @ b, (2, 5, 4), (4,)),
    "vector and matrix": (lambda a, b: a @ b, (4,), (4, 3)),
    "two vectors": (lambda a, b: a @ b, (4,), (4,)),
    "batch and matrix": (lambda a, b: a @ b, (2, 5, 4), (4, 3)),
    "two batches": (lambda a, b: a @ b, (2, 1, 5, 4), (3, 4, 3)),
    "linear of a vector": (F.linear, (4,), (3, 4), (3,)),
    "linear": (F.linear, (5, 4), (3, 4), (3,)),
    "linear of three axes": (F.linear, (2, 5, 4), (3, 4), (3,)),
    "mse, summed": (lambda a, b: F.mse_loss(a, b, reduction="sum"), (3, 4), (3, 4)),
    "mean": (lambda a: a.mean(-1, keepdim=True), (3, 4)),
    "exp": (torch.exp, (3, 4)),
    "log": (torch.log, (3, 4)),
    "sqrt": (torch.sqrt, (3, 4)),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_what_a_rule_says_of_a_call_is_what_autograd_computes(module, case):
    """The expression that stands in the inspector, with this op's attributes and shapes, worked out by torch."""
    function, *shapes = OPERATIONS[case]
    torch.manual_seed(0)
    inputs = [(torch.rand(shape, dtype=torch.float64) + 0.5).requires_grad_() for shape in shapes]
    dump = recorded(Parts(lambda _, *inputs: function(*inputs)), *inputs, loss=torch.sum)
    names = {tensor["id"]: tensor["name"] for tensor in dump["tensors"]}
    op = dump["ops"][0]
    name = names[op["outputs"][0]]
    terms = module("rules/formula.js", RULE_TERMS, [dump, [name]])
    y = function(*inputs)
    dy = torch.randn_like(y)
    values = {names[each]: value for each, value in zip(op["inputs"], inputs, strict=True)} | {name: y, "dy": dy}
    for at, exact in enumerate(torch.autograd.grad(y, inputs, dy)):
        text = terms[f"{name}/{at}"]
        if case == "batch and vector" and at == 1:
            assert text is None
            continue
        written = value_of(text, values)
        shape = torch.broadcast_shapes(written.shape, exact.shape)
        assert shape == exact.shape, text
        torch.testing.assert_close(torch.Tensor(written).expand(shape), exact, msg=f"{case}: {text}")


def attending(_, x):
    a = F.elu(x, alpha=0.5)
    q = torch.cat([a, a * 2, a + 1], 1)[:, None]
    c = F.scaled_dot_product_attention(q, q, q, scale=0.3).squeeze(1)
    return F.batch_norm(c, torch.zeros(12), torch.ones(12), torch.ones(12), torch.zeros(12))


def test_a_rule_says_what_the_call_was_given(module):
    dump = recorded(Parts(attending), torch.randn(5, 4, requires_grad=True), loss=torch.sum)
    names = ["elu", "mul", "cat", "scaled_dot_product_attention", "batch_norm"]
    terms = module("rules/formula.js", RULE_TERMS, [dump, names])
    assert terms["elu/0"] == "(1 where input > 0, else 0.5 · exp(input)) · dy"
    assert terms["mul/0"] == "2 · dy"
    parts = [f"the part of dy that came from {name}" for name in ("elu", "mul", "add")]
    assert [terms[f"cat/{at}"] for at in range(3)] == parts
    assert terms["scaled_dot_product_attention/0"] == "dS @ getitem · 0.3"
    assert terms["batch_norm/0"].endswith("+ ε)")
    assert "mean" not in terms["batch_norm/0"]


COMPOSITE_RULE = """(m, dump) => {
    const tensors = new Map(dump.tensors.map((tensor) => [tensor.id, tensor]));
    const ops = dump.ops.filter(({ phase, name }) => phase === "forward" && /squeeze|sub|pow|mean/.test(name));
    const { rule, operands } = m.compositeRule(ops, false, (id) => tensors.get(id).shape);
    return [rule.names[0], operands.map((id) => tensors.get(id))];
}"""

TERM_OF_NAME = """(m, [name, shapes]) => m.ruleTerm({ name, attributes: {} },
    ["out", "targ"].map((text) => ({ text, binds: 6 })), 0, { text: "dy", binds: 5 }, { operands: shapes, output: [] },
    "loss").text"""


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_rule_of_the_chapters_error_is_what_autograd_computes(module, outputs):
    """One output, (batch, 1), is squeezed, and the rule says so: without that every row would meet every target."""
    out = torch.randn(5, outputs, dtype=torch.float64, requires_grad=True)
    targ = torch.randn((5, outputs) if outputs > 1 else (5,), dtype=torch.float64)
    (exact,) = torch.autograd.grad(mse(out, targ), out)
    dump = recorded(Parts(lambda _, x: x * 1), out, loss=lambda out: mse(out, targ))
    name, operands = module("inspector/op-facts.js", COMPOSITE_RULE, dump)
    assert [each["name"] for each in operands] == ["mul", "target"]
    text = module("rules/formula.js", TERM_OF_NAME, [name, [each["shape"] for each in operands]])
    assert ("squeeze" in text) == (outputs == 1)
    written = value_of(text, {"out": out, "targ": targ, "dy": torch.ones((), dtype=torch.float64)})
    assert written.shape == exact.shape, text
    torch.testing.assert_close(torch.Tensor(written), exact)


def test_the_nodes_of_another_root_than_the_loss_have_rules_too(module):
    def residual(net, x):
        u = torch.tanh(net.l(x))
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return (slope + u).square().sum()

    dump = recorded(Parts(residual, l=nn.Linear(1, 1)), torch.randn(5, 1, requires_grad=True))
    (text,) = module("rules/formula.js", FORMULAS, [dump, ["l.linear.g 2"]])
    assert text == "(1 − tanh(l.linear)²) · tanh.g 2"
