"""Trains on each rank under `chainrule.watch`, until rank 1 has Inf in its batch. Run by torchrun.

Writes the runs, and the error of each, into the folder argv[1].
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import chainrule
from chainrule.errors import WatchError

FOLDER = Path(sys.argv[1])


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    if kind == "ddp":
        return DistributedDataParallel(net)
    if kind == "tensor":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        return parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for part in (*net, net):
        fully_shard(part, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return net


def train(kind: str, *, has_closure: bool) -> str:
    """Train; the message of the error that ends it."""
    rank = dist.get_rank()
    model = model_of(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = torch.randn(6, 8, generator=torch.Generator().manual_seed(rank))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    path = FOLDER / f"{kind}{has_closure}.run"
    with chainrule.watch(model, optimizer, every=1, keep=path, on="stop") as watch:
        try:
            for step in range(6):
                if (step, rank) == (3, 1):
                    batch[0, 0] = torch.inf
                if has_closure:
                    watch.step(closure)
                else:
                    watch.loss(closure())
                    optimizer.step()
        except WatchError as error:
            return error.message
    return ""


torch.set_num_threads(1)
dist.init_process_group("gloo")
told = {
    f"{kind}{closure}": train(kind, has_closure=closure)
    for kind in ("ddp", "fsdp", "tensor")
    for closure in (False, True)
}
(FOLDER / f"{dist.get_rank()}.json").write_text(json.dumps(told))
dist.destroy_process_group()
