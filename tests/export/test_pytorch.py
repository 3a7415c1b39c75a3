"""The PyTorch export: run without Chainrule, the script prints the figures of the profile."""

import ast
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from chainrule.diagnose.profile import profile
from chainrule.errors import SpecError
from chainrule.export.formats import FORMATS
from chainrule.export.pytorch import pytorch_script
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.programs import PROGRAMS, RUNGS

INITS, ACTIVATIONS = KEY_BY_NAME["init"].choices, KEY_BY_NAME["activation"].choices
STYLES = KEY_BY_NAME["style"].choices

EXACT = [
    "",
    *(f"widths=30,40,20&init={init}&scale=1.7" for init in INITS),
    "widths=30,40,20&init=torch_default&bias=false",
    *(f"widths=20x5&activation={activation}&init=lecun_normal" for activation in ACTIVATIONS),
    "widths=20,10,5&activation=gelu&last_activation=true",
    *(f"widths=20,10,5&style={style}&loss=cross_entropy" for style in STYLES),
    "bias_std=0.5&seed=9223372036854775807",
    "batch=1",
    "widths=5,4,3&batch=1&loss=cross_entropy",
    "widths=7,1",
    "widths=7,2&last_activation=true&activation=tanh",
    "widths=784,50x4,10x3,7&loss=cross_entropy",
    "preset=deep-kaiming",
    "widths=20,10,5&dtype=float64&loss=cross_entropy&activation=gelu",
    # Squares of these leave the range of float64.
    "widths=50x51&dtype=float64&init=standard_normal&scale=10000&batch=20&activation=linear",
]
"""Specs whose figures agree to the printed six digits, up to the rounding of sums in another order."""

ROUNDED = {
    "widths=60,50,40,10&dtype=bfloat16&style=module": 2**-7,
    "widths=60,50,40,10&dtype=bfloat16&loss=cross_entropy": 2**-7,
    "widths=60,50,40,10&dtype=float16&style=module&loss=cross_entropy": 2**-10,
    "widths=60,50,40,10&dtype=float16": 2**-10,
}
"""Specs of low precision, and the spacing of its numbers at 1.

Every op is rounded to it, and PyTorch's own losses and gradients consist of other ops than those written out, so a
figure may differ by a rounding.
"""

OVERFLOWING = [f"preset=deep-exploding&style={style}" for style in ("functions", "module")]

PROGRAM_QUERIES = [
    *(f"program={name}" for name in PROGRAMS if name != "mlp"),
    *(f"program=matmul&rung={rung}&widths=4,3" for rung in RUNGS),
    "program=matmul&rung=loops&dtype=float64",
    "program=neuron&init=torch_default&scale=2&seed=1",
    "program=neuron&init=zeros",
    "program=neuron&init=orthogonal&bias_std=0.5&dtype=float64",
    "program=mul_constant&constant=-0.25",
    "program=linear_function&init=orthogonal&scale=1.7&bias=false",
    "program=linear_function&init=zeros&scale=2&widths=5,1",
    "program=linear_cpp&init=uniform&bias_std=0.3&widths=9,4&batch=3",
    "program=two_outputs&widths=30&batch=7&dtype=float64",
]
RUNNER = """
import contextlib, io, json, runpy, sys
sys.modules["chainrule"] = None  # an import of it fails
printed = []
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(path)
    printed.append(output.getvalue())
print(json.dumps(printed))
"""

ISOLATED = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The outputs of all scripts, run in one process that cannot import Chainrule."""
    folder = tmp_path_factory.mktemp("scripts")
    queries = [*EXACT, *ROUNDED, *OVERFLOWING, *PROGRAM_QUERIES]
    paths = [folder / f"{number}.py" for number in range(len(queries))]
    for path, query in zip(paths, queries, strict=True):
        path.write_text(pytorch_script(ModelSpec.from_query(query)), encoding="ascii")
    command = [sys.executable, "-c", RUNNER, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=ISOLATED)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(queries, json.loads(done.stdout), strict=True))


def read(text):
    """The printed figures: four per layer, and the loss."""
    heading, *layers, loss = text.splitlines()
    assert re.split(r"\s{2,}", heading) == [
        "layer", "preactivation std", "activation mean", "activation std", "gradient std",
    ]  # fmt: skip
    rows = [[float(number) for number in line.split()] for line in layers]
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    return [row[1:] for row in rows], float(loss.removeprefix("loss "))


def measured(query):
    """The same figures from the profile, NaN if missing."""
    shown = profile(trace_spec(ModelSpec.from_query(query)))
    rows = [
        [layer.preactivation.std, layer.activation.mean, layer.activation.std, layer.gradient.std]
        for layer in shown.layers
    ]
    return [[math.nan if number is None else number for number in row] for row in rows], shown.loss


def assert_close(printed, query, relative=1e-4, rounded=1e-4, gradients=True):
    """Forward figures to `relative`, the loss and gradients to `rounded`.

    A mean is compared relative to the standard deviation: near 0 it consists of rounding errors.
    """
    (rows, loss), (expected, expected_loss) = read(printed), measured(query)
    assert loss == pytest.approx(expected_loss, rel=rounded, nan_ok=True)
    assert len(rows) == len(expected)
    for row, (z_std, a_mean, a_std, gradient_std) in zip(rows, expected, strict=True):
        assert row[0] == pytest.approx(z_std, rel=relative, abs=0, nan_ok=True)
        assert row[1] == pytest.approx(a_mean, rel=relative, abs=relative * a_std, nan_ok=True)
        assert row[2] == pytest.approx(a_std, rel=relative, abs=0, nan_ok=True)
        if gradients:
            assert row[3] == pytest.approx(gradient_std, rel=rounded, abs=0, nan_ok=True)


@pytest.mark.parametrize("query", [*EXACT, *ROUNDED, *OVERFLOWING])
def test_a_script_prints_the_figures_of_the_profile(printed, query):
    # After an overflow the chapter's relu multiplies its gradient, with NaN for 0 · Inf; autograd's has 0 there.
    gradients = not query.endswith("style=functions") or query not in OVERFLOWING
    assert_close(printed[query], query, rounded=ROUNDED.get(query, 1e-4), gradients=gradients)
    assert query not in OVERFLOWING or "nan" in printed[query]


@pytest.mark.parametrize("query", PROGRAM_QUERIES)
def test_a_script_of_a_program_prints_its_tensors(printed, query):
    # linear_cpp computes the same as linear_function, and needs a compiler.
    trace = trace_spec(ModelSpec.from_query(query.replace("linear_cpp", "linear_function")))
    heading, *rows, loss = printed[query].splitlines()
    assert heading.split() == ["tensor", "mean", "std", "gradient", "mean", "gradient", "std"]
    assert float(loss.removeprefix("loss ")) == pytest.approx(trace.loss, rel=1e-4, abs=1e-5)
    figures = {name: list(map(float, rest)) for name, *rest in (row.split() for row in rows)}
    assert {"out", "c", "sines"} & set(figures)
    for name, (mean, std, gradient_mean, gradient_std) in figures.items():
        value, gradient = (trace.statistics[trace.tensor_by_name[each].id] for each in (name, f"{name}.g"))
        assert (mean, std) == pytest.approx((value.mean, value.std), rel=1e-4, abs=1e-6)
        assert (gradient_mean, gradient_std) == pytest.approx((gradient.mean, gradient.std), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("query", "field"), [("step=3", "step"), ("data=moons&widths=2,5,2", "data")])
def test_a_training_has_no_script(query, field):
    with pytest.raises(SpecError, match=f"{field}: .* untrained net with random inputs") as raised:
        pytorch_script(ModelSpec.from_query(query))
    assert raised.value.field == field


@pytest.mark.parametrize("query", EXACT + PROGRAM_QUERIES)
def test_a_script_uses_all_its_imports_and_names(query):
    tree = ast.parse(pytorch_script(ModelSpec.from_query(query)))
    imported = {alias.name: alias.asname or alias.name for node in tree.body if isinstance(node, ast.Import)
                for alias in node.names}  # fmt: skip
    assert set(imported) <= {"torch", "torch.nn.functional", "hashlib", "math"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)} - {"_"}
    made |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert made | set(imported.values()) <= used


@pytest.mark.parametrize(
    ("query", "there", "not_there"),
    [
        ("", ["chainrule trace '' ", "a.squeeze(-1)", "torch.relu(z) if"], ["scale", "dtype", "device", "orthogonal"]),
        ("widths=9,1&activation=tanh", ["# chainrule trace 'widths=9,1&activation=tanh' --format pytorch\n"], []),
        ("scale=2&init=zeros", ["torch.zeros(fan_in, fan_out)"], ["scale =", "math"]),
        ("widths=784,100x50,10", ["widths = [784] + [100] * 50 + [10]"], ["squeeze"]),
        ("widths=2x3,5,7x4", ["widths = [2, 2, 2, 5] + [7] * 4"], []),
        ("bias=false", ["z = a @ w  #"], ["b ="]),
        ("device=cuda&loss=cross_entropy&widths=3,2", ['device = "cuda"', "(batch,), ", ").to(device)"], ["dtype"]),
        ("device=cuda&dtype=float16", [".to(device, dtype)"], []),
    ],
)  # fmt: skip
def test_a_script_has_the_code_that_its_spec_needs(query, there, not_there, monkeypatch):
    monkeypatch.delattr("chainrule.export.formats.trace_spec")  # it needs no recording
    script = pytorch_script(ModelSpec.from_query(query))
    for text in there:
        assert text in script
    for text in not_there:
        assert text not in script
    assert script.encode() == FORMATS["pytorch"].render(ModelSpec.from_query(query), {})
