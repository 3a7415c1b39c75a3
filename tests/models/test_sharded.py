"""Sharded training (FSDP2): buffers that are not written yet are no NaN, and gathered parameters are the model's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

PROGRAM = """
import json, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import chainrule

rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
# Memory that is not written yet contains NaN.
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
x = torch.randn(5, 6)
for part in (model[0], model[2], model):
    fully_shard(part, mesh=init_device_mesh("cpu", (world,)))
with chainrule.record(model) as recording:
    model(x).square().mean().backward()
trace = recording.trace
if rank == 0:
    norms = {name: trace.statistics[tensor.id].norm for name, tensor in trace.tensor_by_name.items()
             if tensor.gradient_of and trace.tensor_by_id[tensor.gradient_of].role == "parameter"}
    nan = int(trace.statistics.column("nan").sum())
    print(json.dumps({"faults": [each.kind for each in trace.faults], "loss": trace.loss, "nan": nan,
                      "layers": [each.name for each in trace.layers], "norms": norms}))
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize("world", [1, 2])
def test_a_sharded_model_has_no_faults_of_its_own(world: int, tmp_path: Path) -> None:
    commands = [
        [sys.executable, "-c", PROGRAM, str(rank), str(world), str(tmp_path / "store")] for rank in range(world)
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * world

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    loss = model(torch.randn(5, 6)).square().mean()
    loss.backward()
    found = json.loads(outputs[0])
    assert found["nan"] > 0
    assert (found["faults"], found["layers"]) == ([], ["0", "2"])
    assert found["loss"] == pytest.approx(loss.item())
    norms = {f"{name}.g": each.grad.double().norm().item() for name, each in model.named_parameters()}
    assert found["norms"] == pytest.approx(norms, rel=1e-5)
