"""Runs the recipe for several ranks in the folder argv[1]. Run by torchrun; writes each rank's weights there too."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

RECIPES = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
found = re.search(r"## Several ranks.*?```python\n(.*?)```", RECIPES, re.DOTALL)
assert found is not None
names: dict[str, Any] = {}
exec(found[1], names)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
draws = torch.Generator().manual_seed(int(os.environ["RANK"]))
batches = [(torch.randn(5, 4, generator=draws), torch.zeros(5, 2)) for _ in range(4)]
os.chdir(sys.argv[1])
names["train_on_one_rank"](net, batches, nn.functional.mse_loss, lambda all_: torch.optim.SGD(all_, lr=0.1), recorded=2)
torch.save(net.state_dict(), f"weights{os.environ['RANK']}.pt")
