import linecache
import re

import pytest
import torch

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.trace import record
from chainrule.trace.sources import CONTEXT

CODE = """import torch


def near(x):
    y = x * 2

    return y + 1


# far

# away

# from it


def other(x):
    return torch.relu(x)
"""


@pytest.fixture
def functions(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(CODE)
    names = {}
    exec(compile(CODE, str(path), "exec"), names)
    yield names
    linecache.cache.pop(str(path), None)


def test_lines_around_ops_are_merged_where_they_meet(functions):
    x = torch.ones(2)
    with record() as recording:
        functions["other"](functions["near"](x))
    found = recording.trace.sources["model.py"]
    lines = CODE.splitlines()
    assert [snippet.line for snippet in found] == [5 - CONTEXT, 18 - CONTEXT]
    assert found[0].text == "\n".join(lines[1:10])
    assert found[1].text == "\n".join(lines[14:])
    for op in recording.trace.ops:
        (around,) = (each for each in found if 0 <= op.source.line - each.line < len(each.text.splitlines()))
        assert around.text.splitlines()[op.source.line - around.line].strip() == op.source.text


def test_the_chapters_model_shows_its_textbook():
    trace = trace_spec(ModelSpec())
    assert list(trace.sources) == sorted(trace.sources)
    assert set(trace.sources) == {op.source.file for op in trace.ops if op.source}
    assert "inp @ self.w" in "".join(
        snippet.text for snippet in trace.sources["chainrule/foundations/layer_function.py"]
    )
    assert not any(re.search(r"^/|\\", file) for file in trace.sources)
    assert trace_spec(ModelSpec(seed=1)).sources == trace.sources


def test_a_file_of_an_installed_package_has_a_path_from_the_package(tmp_path):
    path = tmp_path / "site-packages" / "library" / "layers" / "scale.py"
    path.parent.mkdir(parents=True)
    path.write_text("def scale(x):\n    return x * 2\n")
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with record() as recording:
        names["scale"](torch.ones(3))
    assert recording.trace.ops[-1].source.file == "library/layers/scale.py"
    assert "library/layers/scale.py" in recording.trace.sources


def test_zero_grad_is_no_backward_pass(functions):
    def zero_grad():
        return functions["near"](torch.ones(3))

    def near_grad():
        return functions["near"](torch.ones(3))

    with record() as recording:
        zero_grad()
        near_grad()
    assert [op.phase for op in recording.trace.ops] == ["forward"] * 3 + ["backward"] * 3
