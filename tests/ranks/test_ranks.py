"""Several ranks, started by torchrun: their collectives, their gradients, and their dumps together."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.dump.opened import DumpFile, in_order
from chainrule.dump.ranks import are_ranks, join
from chainrule.dump.wire import load
from chainrule.history import Run
from chainrule.trace import Trace
from chainrule.trace.report import checks_made

SHARED = Path(__file__).parents[1] / "shared"

Dumps = Callable[[str], list[Trace]]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ranks")
    torchrun(request.param, "ranks_program.py", made)
    return made


def torchrun(ranks: int, program: str, folder: Path) -> None:
    """Run a program of tests/shared on several ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    run = subprocess.run([*command, SHARED / program, folder], capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="module")
def dumps(folder: Path) -> Dumps:
    return lambda kind: [load(path) for path in in_order([*folder.glob(f"{kind}.rank*.json")])]


def collectives(trace: Trace) -> list[tuple[str, str, str]]:
    """(phase, name, module) of the collectives, in order."""
    paths = {module.id: module.path for module in trace.modules}
    return [(op.phase, op.name, paths[op.module]) for op in trace.ops if "ranks" in op.attributes]


def one_process(batches: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The gradients of one process that has the batches of all ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).double()
    (model(torch.cat(batches)) - 1).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def batch_of(rank: int) -> torch.Tensor:
    return torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor", "by_hand", "pipeline"])
def test_the_gradients_are_those_of_one_process_and_of_no_recording(kind: str, folder: Path) -> None:
    files = in_order([*folder.glob(f"{kind}.rank*.pt")])
    assert files or (kind == "pipeline" and len([*folder.glob("ddp.rank*.pt")]) == 4)  # two stages have two ranks
    ranks = range(len(files)) if kind not in ("tensor", "pipeline") else [0]
    expected = one_process([batch_of(rank) for rank in ranks] or [batch_of(0)])
    for rank, file in enumerate(files):
        bare, recorded = torch.load(file)
        for name, gradient in recorded.items():
            assert torch.equal(gradient, bare[name]), name
            plain = name.removeprefix("module.") if kind == "ddp" else name
            if kind == "pipeline" and rank == 1:
                plain = f"2.{name.partition('.')[2]}"
            assert torch.allclose(gradient, expected[plain], rtol=1e-12, atol=1e-14), name


def test_ddp_reduces_the_gradients_of_each_bucket(dumps: Dumps) -> None:
    traces = dumps("ddp")
    world = len(traces)
    expected = one_process([batch_of(rank) for rank in range(world)])
    for trace in traces:
        reductions = [op for op in trace.ops if op.name == "all_reduce"]
        assert collectives(trace) == [("backward", "all_reduce", "")] * 2
        assert [each.attributes["ranks"] for each in reductions] == [f"0-{world - 1}"] * 2
        assert [each.attributes["reduce"] for each in reductions] == ["avg"] * 2
        names = {each.id: each.name for each in trace.tensors}
        sent = sorted(names[each] for op in reductions for each in op.inputs)
        got = sorted(names[each] for op in reductions for each in op.outputs)
        parameters = [f"module.{name}" for name in sorted(expected)]
        assert sent == [f"{name}.g share 1" for name in parameters]
        assert got == [f"{name}.g" for name in parameters]
        norms = {name: trace.statistics[trace.tensor_by_name[f"module.{name}.g"].id].norm for name in expected}
        assert norms == pytest.approx({name: each.norm().item() for name, each in expected.items()}, rel=1e-12)
        assert sum(op.bytes for op in reductions) == 2 * 8 * sum(each.numel() for each in expected.values())
    # Before the reduction, each rank has the gradients of its own batch.
    for rank, trace in enumerate(traces):
        own = one_process([batch_of(rank)])["2.weight"].norm().item()
        assert trace.statistics[trace.tensor_by_name["module.2.weight.g share 1"].id].norm == pytest.approx(own)


def test_fsdp_gathers_parameters_and_scatters_gradients(dumps: Dumps) -> None:
    for trace in dumps("fsdp"):
        found = collectives(trace)
        assert found[:2] == [("forward", "all_gather", "0.FSDP"), ("forward", "all_gather", "2.FSDP")]
        scattered = [place for phase, name, place in found if phase == "backward" and name != "all_gather"]
        assert scattered == ["2.FSDP", "0.FSDP"]
        assert [layer.name for layer in trace.layers] == ["0", "2"]
        # From the shard through the collective to the parameter, and from its gradient to the gradient's shard.
        assert leads(trace, "0.weight shard", "0.weight")
        assert leads(trace, "0.weight.g", "0.weight shard.g")
        shard = trace.tensor_by_name["2.weight shard.g"]
        assert trace.tensor_by_id[shard.gradient_of or ""].name == "2.weight shard"
        assert trace.environment["mesh"] == {"data": trace.environment["world_size"]}


def leads(trace: Trace, start: str, end: str) -> bool:
    """Whether ops lead from one tensor to another."""
    reached, ops = {trace.tensor_by_name[start].id}, {op.id: op for op in trace.ops}
    pending = list(reached)
    for tensor in pending:  # grows
        for reader in trace.tensor_by_id[tensor].consumers:
            new = set(ops[reader].outputs) - reached
            reached |= new
            pending += new
    return trace.tensor_by_name[end].id in reached


def test_tensor_parallel_sums_the_partial_products(dumps: Dumps) -> None:
    for trace in dumps("tensor"):
        sums = [op for op in trace.ops if op.name == "all_reduce" and op.phase == "forward"]
        assert len(sums) == 1
        assert sums[0].attributes["reduce"] == "sum"
        assert trace.tensor_by_id[sums[0].inputs[0]].name == "2.linear"
        assert leads(trace, "2.linear", "loss" if "loss" in trace.tensor_by_name else "mean")
        # A DTensor has the statistics of the part that this rank holds.
        weight = trace.statistics[trace.tensor_by_name["0.weight"].id]
        assert weight.n == 8 * 6 // trace.environment["world_size"]


def test_a_reduction_by_hand_is_in_the_path_of_the_gradient(dumps: Dumps) -> None:
    for trace in dumps("by_hand"):
        assert [name for _, name, _ in collectives(trace)] == ["all_reduce"] * 4
        local = trace.tensor_by_name["0.weight.g share 1"]
        readers = [op.name for op in trace.ops if local.id in op.inputs]
        assert readers == ["all_reduce"]
        assert trace.tensor_by_name["0.weight.g"].gradient_of == trace.tensor_by_name["0.weight"].id


def test_a_pipeline_sends_activations_and_gradients(dumps: Dumps) -> None:
    traces = dumps("pipeline")
    if len(dumps("ddp")) > 2:
        assert not traces
        return
    first, last = traces
    # Two micro-batches each way.
    assert [name for _, name, _ in collectives(first)] == ["send", "send", "recv", "recv"]
    assert sorted(name for _, name, _ in collectives(last)) == ["recv", "recv", "send", "send"]
    sent = next(op for op in first.ops if op.name == "send")
    got = next(op for op in last.ops if op.name == "recv")
    assert (sent.attributes["peer"], got.attributes["peer"]) == (1, 0)
    a, b = first.statistics[sent.inputs[0]], last.statistics[got.outputs[0]]
    assert (a.mean, a.norm, a.counts) == (b.mean, b.norm, b.counts)
    # The received gradient is the gradient of the output that was sent.
    received = next(op for op in first.ops if op.name == "recv").outputs[0]
    assert first.tensor_by_id[received].gradient_of is not None


def joined(folder: Path, kind: str, *, without: int | None = None) -> list[Trace]:
    paths = in_order([*folder.glob(f"{kind}.rank*.json")])
    files = [DumpFile.glance(path) for rank, path in enumerate(paths) if rank != without]
    found, problems = join(files)
    assert not problems
    return [load(file.load()) for file in found]


def test_ddp_broadcasts_buffers_and_reduces_what_the_forward_pass_decided(dumps: Dumps) -> None:
    for trace in dumps("normalized"):
        assert collectives(trace) == [("forward", "broadcast", ""), ("backward", "all_reduce", "")]
        names = [trace.tensor_by_id[each].name for op in trace.ops if op.name == "broadcast" for each in op.outputs]
        assert "module.1.running_mean" in names
    assert all(collectives(trace) == [("backward", "all_reduce", "")] for trace in dumps("frozen"))
    assert all(collectives(trace) == [] for trace in dumps("without_sync"))


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "mixed", "tensor", "by_hand", "normalized", "frozen", "without_sync"])
def test_equal_replicas_have_no_fault(kind: str, folder: Path) -> None:
    for trace in joined(folder, kind):
        assert not {fault.kind for fault in trace.faults} & {"replicas", "first_nonfinite"}
        assert "replicas" in checks_made(trace)


def test_a_replica_that_differs_is_found_by_name(folder: Path) -> None:
    for trace in joined(folder, "perturbed"):
        fault = next(each for each in trace.faults if each.kind == "replicas")
        assert fault.level == "fault"
        assert fault.tensor == trace.tensor_by_name["module.2.weight"].id
        assert fault.module == "module.2"
        assert re.match(r"module\.2\.weight should be equal on the ranks 0-\d, but differs on rank 1: ", fault.message)


def test_the_ranks_alone_are_without_a_fault(dumps: Dumps) -> None:
    for trace in dumps("perturbed"):
        assert not trace.faults
        assert re.search(r"NOT CHECKED FOR\s+replicas differ: this check needs the dumps", trace.report())


def test_nan_of_one_rank_is_found_on_all_with_its_origin(folder: Path, dumps: Dumps) -> None:
    alone = dumps("broken")
    assert "another rank" in next(each.message for each in alone[0].faults if each.kind == "first_nonfinite")
    for rank, trace in enumerate(joined(folder, "broken")):
        fault = next(each for each in trace.faults if each.kind == "first_nonfinite")
        assert fault.message.startswith("NaN or Inf begins on rank 1. mul is the first tensor that is not finite")
        assert re.search(r"(Rank|The ranks) 0.* receives? it by all_reduce in module\.\d\.\w+\.g", fault.message)
        maker = next(op for op in trace.ops if op.id == fault.op)
        assert maker.name == ("mul" if rank == 1 else "all_reduce")


def test_a_missing_rank_is_named(folder: Path) -> None:
    world = len([*folder.glob("ddp.rank*.json")])
    for trace in joined(folder, "ddp", without=world - 1):
        (fault,) = trace.faults
        assert (fault.level, fault.message) == (
            "unchecked",
            f"there is no file of rank {world - 1}: their tensors were not compared",
        )


def test_files_that_do_not_fit_are_named_and_the_others_shown(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("ddp.rank*.json"):
        shutil.copy(path, tmp_path)
    first = tmp_path / "ddp.rank0.json"
    (tmp_path / "ddp.rank8.json").write_bytes(first.read_bytes()[:5000])  # a rank that died while it saved
    other = json.loads((folder / "fsdp.rank1.json").read_bytes())
    other["environment"] |= {"rank": 9, "world_size": 64}
    (tmp_path / "ddp.rank9.json").write_text(json.dumps(other))
    (tmp_path / "ddp.rank7.json").write_text('{"schema": "chainrule.trace/1", "ops": 3}')
    other["environment"] |= {"rank": 10, "world_size": 10**12}
    (tmp_path / "ddp.rank10.json").write_text(json.dumps(other))
    paths = in_order([*tmp_path.glob("*.json")])
    assert are_ranks(paths)
    found, problems = join([DumpFile(path.name, path) for path in paths])
    assert [problem.partition(":")[0] for problem in problems] == [
        "ddp.rank7.json",
        "ddp.rank8.json",
        "ddp.rank10.json",
    ]
    messages = [fault.message for fault in load(found[0].load()).faults]
    assert messages == [
        f"rank 9: the number of ranks is 64, but {len(found) - 1} in the other files",
        "rank 9: the graph is another one than on the other ranks; tensors are compared by name",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.rank0.json", "a.rank1.json"], True),
        (["a.rank0.json", "b.rank1.json"], False),
        (["a.rank0.json"], False),
        (["a.rank0.json", "a.rank0.json"], False),
        (["step1.json", "step2.json"], False),
    ],
)
def test_names_of_ranks(names: list[str], expected: bool) -> None:
    assert are_ranks([Path(name) for name in names]) == expected


def test_the_command_joins_one_step_and_names_several(folder: Path, tmp_path: Path) -> None:
    paths = in_order([*folder.glob("perturbed.rank*.json")])
    run = CliRunner().invoke(commands, ["check", *map(str, paths)])
    assert run.exit_code == 1
    assert "FAULT  replicas differ in module.2" in run.output
    shutil.copy(paths[1], tmp_path / "later.rank1.json")
    refused = CliRunner().invoke(commands, ["check", str(paths[0]), str(tmp_path / "later.rank1.json")])
    assert refused.exit_code == 2
    assert "the dumps of all ranks of one step" in refused.output


def test_processors_of_another_kind_round_in_another_way(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("ddp.rank*.json"):
        dump = json.loads(path.read_bytes())
        if ".rank1." in path.name:
            dump["environment"]["cpu_capability"] = "DEFAULT"
            dump["statistics"]["mean"] = [value and np.nextafter(value, 1) for value in dump["statistics"]["mean"]]
        (tmp_path / path.name).write_text(json.dumps(dump))
    assert all(not trace.faults for trace in joined(tmp_path, "ddp"))
    for path in tmp_path.glob("*.rank1.json"):
        path.write_text(
            path.read_text().replace('"DEFAULT"', json.dumps(load(folder / path.name).environment["cpu_capability"]))
        )
    assert all(trace.has_faults for trace in joined(tmp_path, "ddp"))


@pytest.mark.long
def test_the_recipe_gives_dumps_that_join(tmp_path: Path) -> None:
    torchrun(2, "ranks_recipe.py", tmp_path)
    weights = [torch.load(tmp_path / f"weights{rank}.pt") for rank in range(2)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    # The same training in one process, with the batches of both ranks.
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    draws = [torch.Generator().manual_seed(rank) for rank in range(2)]
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.cat([torch.randn(5, 4, generator=each) for each in draws])).square().mean().backward()
        optimizer.step()
    assert all(torch.allclose(weights[0][name], each, rtol=1e-5) for name, each in net.state_dict().items())
    for trace in joined(tmp_path / "steps", "step2"):
        assert not trace.has_faults
        assert "all_reduce" in [op.name for op in trace.ops]


@pytest.mark.long
def test_ranks_under_watch_stop_together(tmp_path: Path) -> None:
    torchrun(2, "ranks_watch.py", tmp_path)
    told = [json.loads((tmp_path / f"{rank}.json").read_bytes()) for rank in range(2)]
    assert all(said.startswith("step 3: ") for rank in range(2) for said in told[rank].values())
    for run in ("ddpFalse", "ddpTrue", "fsdpFalse", "fsdpTrue"):
        assert told[0][run].startswith("step 3: backward: the gradient of the parameter 0.weight contains NaN or Inf")
        assert told[1][run].startswith("step 3: forward: the output of 0 ")
        for rank in range(2):
            kept = Run(tmp_path / f"{run}.rank{rank}.run")
            assert kept.event_columns()["step"] == [3]
            # With a closure, all ranks have run the step again.
            assert (3 in kept.trace_steps) == run.endswith("True")
