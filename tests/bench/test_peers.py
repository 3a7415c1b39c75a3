"""What the table says of other tools, held to those that are installed; each in a process of its own."""

import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# The files of a bench import each other as scripts do, by their names.
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import peers
from peers import PEERS

CODE = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import torch
from torch import nn
from models import Case
from peers import PEERS

enabled = []

class Noting(nn.Linear):
    def forward(self, x):
        enabled.append(torch.is_grad_enabled())
        return super().forward(x)

PEERS[sys.argv[2]].prepare(Case(Noting(3, 2), torch.randn(4, 3), torch.randn(4, 2)))()
print(json.dumps(enabled), file=sys.stderr)
"""


@pytest.mark.parametrize("name", ["torchview", "torchviz", "torchvista"])
def test_a_forward_pass_without_autograd_is_called_one(name):
    if find_spec(name) is None:
        pytest.skip("not installed")
    process = subprocess.run(
        [sys.executable, "-c", CODE, Path(peers.__file__).parent, name], check=True, capture_output=True, text=True
    )
    enabled = json.loads(process.stderr.splitlines()[-1])
    assert enabled
    assert ("without autograd" in PEERS[name].covers) == (not any(enabled))


def test_what_torchviz_is_asked_for_beyond_its_default_is_said():
    make_dot = inspect.signature(pytest.importorskip("torchviz").make_dot)
    for option in ("show_attrs", "show_saved"):
        assert make_dot.parameters[option].default is False
        assert option in PEERS["torchviz"].covers
    assert "off by default" in PEERS["torchviz"].covers
