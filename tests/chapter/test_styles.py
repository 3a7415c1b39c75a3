import inspect
from pathlib import Path

import pytest
import torch

from chainrule.chapter.style_code import PAIRS, ROWS, aligned, side_by_side
from chainrule.chapter.styles import PAGE, compare, non_finite
from chainrule.errors import InputError
from chainrule.foundations.styles import LEAVES, STYLES, Pass
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec


def test_every_shown_line_is_in_a_source_file():
    shown = 0
    for row, answered in zip(ROWS, side_by_side()["rows"], strict=True):
        for cell, given in zip(row.cells, answered["cells"], strict=True):
            homes = [Path(inspect.getfile(of)).read_text(encoding="utf-8").splitlines() for of in cell]
            for line in given["code"]:
                at = line["number"] - 1
                assert any(line_text(line) == "".join(home[at : at + 1]).strip() for home in homes), line
                shown += 1
    assert shown > 200


def test_a_row_has_the_same_part_of_every_style():
    rows = {(row["part"], row["role"]): row["cells"] for row in side_by_side()["rows"]}
    heads = {"forward": ("def lin(", "__call__", "def forward", "def forward", "def forward")}
    heads["backward"] = ("def lin_grad(", "def backward", "def bwd", "def backward", None)
    for role, names in heads.items():
        for cell, name in zip(rows["lin", role], names, strict=True):
            text = "".join(part for line in cell["code"] for part, _ in line["parts"])
            assert (name is None and not text) or name in text


@pytest.mark.parametrize(("at", "name"), [*enumerate(PAIRS)])
def test_a_pair_has_all_lines_of_both_styles(at, name):
    code = side_by_side()
    for row, beside in zip(code["rows"], code["pairs"][name], strict=True):
        left, right = ([line_text(line) for line in cell["code"]] for cell in row["cells"][at : at + 2])
        assert [each["left"] for each in beside if each["left"] is not None] == [*range(len(left))]
        assert [each["right"] for each in beside if each["right"] is not None] == [*range(len(right))]
        for each in beside:
            if each["same"]:
                assert left[each["left"]] == right[each["right"]]


def line_text(line):
    return "".join(part for part, _ in line["parts"]).strip()


def test_equal_and_similar_lines_are_paired():
    before = "def f(x):\n    a = x\n    return g(x, a)"
    after = "class F:\n  def __call__(self, x):\n    self.saved = x\n    a = x\n    return g(x, self.a)"
    paired = [(None, 0, False), (0, 1, False), (None, 2, False), (1, 3, True), (2, 4, False)]
    assert aligned(before.splitlines(), after.splitlines()) == paired
    assert aligned([], ["x"]) == [(None, 0, False)]
    assert aligned(["x"], []) == [(0, None, False)]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-6), ("bfloat16", 0.05), ("float16", 0.01)]
)
@pytest.mark.parametrize("given", [{"batch": "20", "n_in": "10", "hidden": "8", "n_out": "3"}, {"batch": "1"}])
def test_all_five_agree_with_autograd(given, dtype, tolerance):
    answer = PAGE.ask({**given, "dtype": dtype})
    assert [run["style"] for run in answer["runs"]] == list(STYLES)
    for run in answer["runs"]:
        for leaf, found in run["gradients"].items():
            assert found["relative"] <= tolerance, (run["style"], leaf)
            assert found["nan"] == found["inf"] == 0


def test_the_loss_is_the_explorer_s():
    for run in PAGE.ask({"seed": "9"})["runs"]:
        theirs = trace_spec(ModelSpec.parse({"seed": "9", "style": run["style"]})).loss
        assert run["loss"] == pytest.approx(float(theirs), rel=1e-6)


def test_gradients_by_hand_have_nan_where_infinity_meets_a_closed_relu():
    runs = {run["style"]: run["gradients"] for run in PAGE.ask({"batch": "8", "scale": "1e14"})["runs"]}
    by_hand, torch_s = runs["functions"]["b1"], runs["module"]["b1"]
    assert by_hand["nan"] > torch_s["nan"]
    assert torch_s["inf"] > 0
    assert runs["autograd_function"]["b1"] == by_hand
    assert by_hand["nan"] + by_hand["inf"] <= 50


def test_nan_and_infinity_are_counted_and_differ():
    nan, inf = float("nan"), float("inf")

    def a_pass(*values):
        return Pass(torch.tensor(0.0), {leaf: torch.tensor(values) for leaf in LEAVES})

    one, rounded, elsewhere = a_pass(1.0, nan, inf), a_pass(1.1, nan, inf), a_pass(nan, 1.0, inf)
    assert non_finite([one, rounded]) == {"elements": 15, "nan": [5, 5], "inf": [5, 5], "same": True}
    assert non_finite([one, elsewhere, one])["same"] is False
    assert non_finite([one, a_pass(1.0, nan, -inf)])["same"] is False
    answer = compare({"one": one, "same": one, "other": elsewhere}, one)
    assert answer["apart"] == [[0.0, 0.0, "NaN"], [0.0, 0.0, "NaN"], ["NaN", "NaN", 0.0]]
    assert answer["identical"] == [[True, True, False], [True, True, False], [False, False, True]]


def test_the_misprints_raise_their_errors():
    answer = PAGE.ask({"n_in": "10", "hidden": "4", "n_out": "2"})
    printed, mended = answer["misprint"]["as_printed"], answer["misprint"]["mended"]
    assert printed["error"] == {"type": "AttributeError", "message": "'Lin' object has no attribute 'inp'"}
    assert printed["gradients"] == ["inp.g"]
    assert (mended["error"], mended["gradients"]) == (None, ["inp.g", "w.g", "b.g"])
    made = answer["modules"]
    assert made["linear_layer"] == [[2, 10], [2]]  # as the chapter prints p1.shape and p2.shape
    assert made["forgotten"]["message"] == "cannot assign parameters before Module.__init__() call"
    plain, auto = made["models"]
    assert (plain["loss"], plain["parameters"]) == (auto["loss"], auto["parameters"])
    assert [each["name"] for each in auto["parameters"]][2:] == ["layers.2.weight", "layers.2.bias"]


def test_half_precision_has_a_limit():
    with pytest.raises(InputError, match="at most 2,000,000 multiplications") as raised:
        PAGE.ask({"batch": "256", "n_in": "256", "hidden": "256", "dtype": "bfloat16"})
    assert (raised.value.field, raised.value.limit) == ("dtype", 2_000_000)
