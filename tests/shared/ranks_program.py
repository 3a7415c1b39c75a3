"""Trains one step on each rank, in several ways, recorded and not. Run by torchrun; writes into the folder argv[1].

For each way: KIND.rankN.json, the dump, and KIND.rankN.pt: the gradients with and without the recording.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import chainrule

WIDTHS = 6, 8, 4
BATCH = 4


def net() -> nn.Sequential:
    torch.manual_seed(0)
    first, last = nn.Linear(*WIDTHS[:2]), nn.Linear(*WIDTHS[1:])
    return nn.Sequential(first, nn.ReLU(), last).double()


def batch_of(rank: int) -> torch.Tensor:
    return torch.randn(BATCH, WIDTHS[0], dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return (output - 1).square().mean()


def full(parameter: nn.Parameter) -> torch.Tensor:
    gradient = parameter.grad
    assert gradient is not None
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient.clone()


def record_twice(kind: str, model: nn.Module, step: Callable[[], None]) -> None:
    """Run the step without and with a recording, from the same parameters, and save both."""
    step()
    step()  # DDP has its final buckets from the second pass on
    bare = {name: full(parameter) for name, parameter in model.named_parameters()}
    model.zero_grad()
    with chainrule.record(model) as recording:
        step()
    recorded = {name: full(parameter) for name, parameter in model.named_parameters()}
    recording.save(FOLDER / f"{kind}.json")
    torch.save((bare, recorded), FOLDER / f"{kind}.rank{dist.get_rank()}.pt")


def ordinary(kind: str, model: nn.Module, x: torch.Tensor) -> None:
    def step() -> None:
        model.zero_grad()
        loss_of(model(x)).backward()

    record_twice(kind, model, step)


def by_hand(x: torch.Tensor) -> None:
    """Data parallel without DDP; the last all-reduce is not waited for before the block ends."""
    model = net()

    def step() -> None:
        model.zero_grad()
        loss_of(model(x)).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    record_twice("by_hand", model, step)


def normalized(x: torch.Tensor) -> None:
    """DDP gives all ranks the buffers of the first one, and then each rank updates its own."""
    ordinary("normalized", DistributedDataParallel(nn.Sequential(net()[0], nn.BatchNorm1d(8).double())), x)


def frozen(x: torch.Tensor) -> None:
    """All parameters are frozen for a second backward pass, as a GAN's discriminator is."""
    model = DistributedDataParallel(net())

    def step() -> None:
        model.zero_grad()
        loss_of(model(x)).backward()
        model.requires_grad_(False)
        loss_of(model.module(x.clone().requires_grad_(True))).backward()
        model.requires_grad_(True)

    record_twice("frozen", model, step)


def without_sync(x: torch.Tensor) -> None:
    """The forward pass decides that DDP reduces nothing."""
    model = DistributedDataParallel(net())

    def step() -> None:
        model.zero_grad()
        with model.no_sync():
            loss = loss_of(model(x))
        loss.backward()

    record_twice("without_sync", model, step)


def pipeline(rank: int, x: torch.Tensor) -> None:
    whole = net()
    model = whole[:2] if rank == 0 else whole[2:]
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda output, _: loss_of(output))

    def step() -> None:
        model.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=torch.zeros(BATCH, WIDTHS[2]))

    record_twice("pipeline", model, step)


FOLDER = Path(sys.argv[1])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("data",))
    x = batch_of(rank)

    ordinary("ddp", DistributedDataParallel(net(), bucket_cap_mb=0.0003), x)  # two buckets

    # Memory that is not written yet contains NaN.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    sharded = net()
    for part in (sharded[0], sharded[2], sharded):
        fully_shard(part, mesh=mesh)
    ordinary("fsdp", sharded, x)
    mixed = net()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (mixed[0], mixed[2], mixed):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    ordinary("mixed", mixed, x)
    torch.use_deterministic_algorithms(False)

    tensor_parallel = net()
    parallelize_module(tensor_parallel, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    ordinary("tensor", tensor_parallel, batch_of(0))

    by_hand(x)
    normalized(x)
    frozen(x)
    without_sync(x)
    if world == 2:
        pipeline(rank, batch_of(0))

    perturbed = DistributedDataParallel(net())
    if rank == 1:
        with torch.no_grad():
            perturbed.module[2].weight[1, 3] += 1e-9
    ordinary("perturbed", perturbed, x)

    broken = DistributedDataParallel(net())
    poisoned = x.clone()
    if rank == 1:
        poisoned[0, 0] = -1e308
    with chainrule.record(broken) as recording:
        hidden = nn.functional.softplus(broken(poisoned * 1e10))
        loss_of(hidden).backward()
    recording.save(FOLDER / "broken.json")
    dist.destroy_process_group()


main()
