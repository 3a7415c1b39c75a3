"""`chainrule.record`, `trace_model` and `save`: a step of a training, and the file it becomes."""

import csv
import gzip
import sys
import warnings

import orjson
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from process_state import left_behind
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import chainrule
from chainrule.dump.wire import dump_trace
from chainrule.errors import MissingExtraError, RequestError, TraceError
from chainrule.export.formats import TRACE_FORMATS, format_of
from chainrule.run import environment


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def step(net):
    loss = net(torch.ones(5, 3)).square().mean()
    loss.backward()
    return loss


@pytest.fixture
def recording(net):
    with chainrule.record(net) as recording:
        step(net)
    return recording


def test_a_recording_has_its_layers_and_environment(net, recording):
    trace = recording.trace
    for each in (trace, chainrule.trace_model(net, torch.ones(5, 3), loss=lambda out: out.square().mean())):
        assert [layer.name for layer in each.layers] == ["0", "2"]
        assert each.environment == environment("cpu")
    assert trace.spec is None
    assert recording.trace is trace


def test_the_environment_names_the_optimizers(net):
    x, both = torch.ones(5, 3), [torch.optim.SGD(net[0].parameters(), 0.1), torch.optim.AdamW(net[2].parameters())]
    with chainrule.record(net, optimizer=both) as recording:
        step(net)
    assert recording.trace.environment == {**environment("cpu"), "optimizer": "SGD, AdamW"}
    trace = chainrule.trace_model(net, x, loss=torch.sum, optimizer=both[0])
    assert trace.environment["optimizer"] == "SGD"
    assert [fault.kind for fault in trace.faults] == ["no_optimizer", "leftover_gradient"]


@pytest.mark.parametrize("optimizer", ["AdamW", torch.optim.SGD, [None]])
def test_an_optimizer_of_another_type_is_an_error(net, optimizer):
    kind = type(optimizer[0] if isinstance(optimizer, list) else optimizer).__name__
    for how in (chainrule.record, chainrule.trace_model, chainrule.explore):
        with pytest.raises(TypeError) as caught:
            how(net, optimizer=optimizer)
        assert str(caught.value) == (
            f"the optimizer is of type {kind}; expected a torch.optim.Optimizer or a list of them"
        )


def test_torchs_layers_have_the_line_that_called_trace_model():
    trace = chainrule.trace_model(nn.Sequential(nn.Linear(3, 2)), torch.randn(4, 3))
    (op,) = (op for op in trace.ops if op.phase == "forward")
    assert op.source.text == "trace = chainrule.trace_model(nn.Sequential(nn.Linear(3, 2)), torch.randn(4, 3))"


class WithoutGrad(nn.Module):
    """One parameter is used without gradients, the other with them."""

    def __init__(self):
        super().__init__()
        self.lost, self.kept = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        with torch.no_grad():
            lost = self.lost - 1
        return (x + lost - self.kept).sum()


@pytest.mark.parametrize("how", ["record", "trace_model"])
def test_a_parameter_used_without_gradients_is_a_fault(how):
    model = WithoutGrad()
    seen = []
    if how == "record":
        with chainrule.record(model, on_tensor=lambda identifier, _: seen.append(identifier)) as recording:
            model(torch.randn(3)).backward()
        trace = recording.trace
        assert {tensor.id for tensor in trace.tensors if tensor.gradient_of is None} <= set(seen)
    else:
        trace = chainrule.trace_model(model, torch.randn(3))
    (cut,) = trace.faults
    assert cut.kind == "detach"
    assert cut.source.text == "lost = self.lost - 1"
    assert cut.message == "gradients are off from sub on, as under torch.no_grad(): lost gets no gradient"


def test_a_compiled_model_is_recorded_uncompiled(net):
    runs = []
    compiled = torch.compile(net, backend=lambda graph, _: lambda *args: runs.append(graph) or graph.forward(*args))
    step(compiled)
    assert len(runs) == 1
    with warnings.catch_warnings():
        # It warns of hooks that run twice; the recording's hooks are not compiled.
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        with chainrule.record(net) as recording:
            step(compiled)
    assert len(runs) == 1
    names = [op.name for op in recording.trace.ops if op.phase == "forward"]
    assert names == ["ones", "linear", "tanh", "linear", "square", "mean"]
    step(compiled)
    assert len(runs) == 2


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, batch, scale=None, labels=None):
        out = (batch["x"] * self.weight).sum() * scale
        return {"loss": (out - labels).square(), "out": out}


@pytest.mark.parametrize("how", ["record", "trace_model"])
def test_arguments_are_named_after_their_keywords(how):
    model, batch = Scaled(), {"x": torch.arange(3.0)}
    given = {"scale": torch.tensor(2.0), "labels": torch.tensor(1.0)}
    if how == "record":
        with chainrule.record(model) as recording:
            model(batch, **given)["loss"].backward()
        trace = recording.trace
    else:
        trace = chainrule.trace_model(model, batch, kwargs=given)
    roles = {name: tensor.role for name, tensor in trace.tensor_by_name.items()}
    assert (roles["x"], roles["scale"], roles["labels"]) == ("input", "input", "target")
    assert roles["weight"] == "parameter"
    assert trace.loss == 25.0  # (2 · (0 + 1 + 2) − 1)²
    assert trace.statistics[trace.tensor_by_name["weight.g"].id].max == 2 * 5.0 * 2 * 2


def test_the_loss_may_be_an_attribute_of_the_output():
    class Output:
        def __init__(self, loss):
            self.loss = loss

    weight = torch.ones(2, requires_grad=True)
    trace = chainrule.trace_model(lambda x: Output((x * weight).sum()), torch.ones(2))
    assert trace.loss == 2.0
    assert weight.grad.tolist() == [1.0, 1.0]
    nothing = chainrule.trace_model(lambda x: (x * weight, None), torch.ones(2))
    assert (nothing.loss, {op.phase for op in nothing.ops}) == (None, {"forward"})


def test_arguments_of_the_first_module_called_are_the_inputs(net):
    class Lightning(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, x, y):
            return F.mse_loss(self.net(x), y)

    module, x, y = Lightning(), torch.ones(5, 3), torch.zeros(5, 1)
    with chainrule.record(module) as recording:
        module.training_step(x, y).backward()
    roles = {name: tensor.role for name, tensor in recording.trace.tensor_by_name.items()}
    assert (roles["input"], roles["target"]) == ("input", "target")


def test_start_and_stop_record_as_the_block_does(net, recording):
    net.zero_grad()
    before = left_behind()

    def begins():
        return chainrule.record(net).start()

    started = begins()
    step(net)
    assert started.stop() is started
    assert left_behind() == before
    assert [op.name for op in started.trace.ops] == [op.name for op in recording.trace.ops]
    assert [op.source for op in started.trace.ops] == [op.source for op in recording.trace.ops]
    assert started.stop().trace is started.trace


def test_stop_with_an_error_marks_the_op(net):
    recording = chainrule.record(net).start()
    try:
        net(torch.ones(5, 7))
    except RuntimeError as error:
        recording.stop(error)
    trace = recording.trace
    assert trace.error.op == trace.ops[-1].id
    assert trace.ops[-1].name == "linear"


def test_callers_of_start_have_no_ops():
    """A method around a recording, such as a trainer's `backward`, does not make its ops backward ops."""

    class Trainer:
        def __init__(self):
            self.weight = torch.ones(2)

        def backward(self):
            recording = chainrule.record(self).start()
            self.weight * 2
            return recording.stop().trace

    (op,) = Trainer().backward().ops
    assert op.phase == "forward"


def test_a_mode_entered_after_start_stays(net):
    class Quiet(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    before = left_behind()
    recording = chainrule.record(net).start()
    with Quiet() as mode:
        step(net)
        recording.stop()
        assert _get_current_function_mode_stack()[-1] is mode
        assert recording not in _get_current_function_mode_stack()
    assert left_behind() == before
    assert recording.trace.loss is not None


def test_a_recording_is_made_once(net, recording):
    with pytest.raises(TraceError, match="runs only once"), recording:
        step(net)
    with pytest.raises(TraceError, match="runs only once"):
        recording.start()
    fresh = chainrule.record(net)
    with pytest.raises(TraceError, match="start the recording before"):
        fresh.stop()
    with pytest.raises(TraceError, match="complete only when"):
        fresh.save("never.json")


def test_the_suffix_chooses_the_format(recording, tmp_path):
    written = {name: recording.save(tmp_path / "new" / f"step{form.file[5:]}") for name, form in TRACE_FORMATS.items()}
    assert all(path.is_relative_to(tmp_path / "new") for path in written.values())
    assert written["json"].read_bytes() == dump_trace(recording.trace)
    assert written["dot"].read_text().startswith("digraph")
    assert written["svg"].read_text().startswith("<svg")
    assert "step.json" in written["html"].read_text()
    assert orjson.loads(written["model-explorer"].read_bytes())["label"] == "Chainrule"
    assert written["csv"].read_text().startswith("tensor,name,role")
    again = chainrule.save(chainrule.load(written["json"]), str(tmp_path / "again.json"))
    assert again.read_bytes() == written["json"].read_bytes()
    assert format_of(tmp_path / "model-explorer.json").name == "json"
    packed = recording.save(tmp_path / "step.json.gz")
    assert gzip.decompress(packed.read_bytes()) == written["json"].read_bytes()
    assert 4 * packed.stat().st_size < written["json"].stat().st_size
    # RFC 1952: the flags, of which one is for a name, and the time. Equal traces give equal files.
    assert packed.read_bytes()[3:8] == bytes(5)


@pytest.mark.parametrize("name", ["step.pt", "json"])
def test_an_unknown_suffix_is_an_error_that_lists_the_known_ones(name, recording, tmp_path):
    with pytest.raises(
        RequestError, match=r"\.json, \.dot, \.svg, \.html, \.csv, \.model-explorer\.json, \.json\.gz"
    ) as caught:
        recording.save(tmp_path / name, strict=True)
    assert name in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_the_statistics_of_the_tensors(net, recording, tmp_path):
    trace = recording.trace
    with recording.save(tmp_path / "step.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert len(rows) == len(trace.statistics)
    weight = net[0].weight
    row = rows["0.weight"]
    assert (row["role"], row["shape"], row["dtype"], row["n"]) == ("parameter", "4x3", "float32", "12")
    assert float(row["mean"]) == pytest.approx(weight.double().mean().item(), rel=1e-12)
    assert float(rows["0.weight.g"]["max"]) == weight.grad.max().item()
    assert rows["0.weight.g"]["gradient_of"] == "0.weight"
    assert (rows["1.tanh"]["module"], rows["1.tanh"]["op"], rows["1.tanh"]["phase"]) == ("1", "tanh", "forward")
    assert (row["op"], row["dead_fraction"]) == ("", "")


def test_pandas(net, recording):
    trace = recording.trace
    table = chainrule.dataframe(trace)
    assert list(table.index) == list(trace.statistics.tensors)
    row = table[table.name == "0.weight.g"].iloc[0]
    assert row["norm"] == pytest.approx(net[0].weight.grad.norm().item(), rel=1e-6)
    assert row["shape"] == (4, 3)
    assert (table["n"] == [trace.statistics[tensor].n for tensor in table.index]).all()
    bins = chainrule.dataframe(trace, histograms=True).filter(regex=r"^bin_\d+$")
    assert bins.shape == (len(table), 64)
    assert (bins.sum(axis=1) == table["n"]).all()
    assert list(trace.statistics.dataframe().columns) == list(table.columns[-12:])


def test_missing_pandas_is_an_error_with_its_remedy(recording, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"chainrule\[pandas\]"):
        chainrule.dataframe(recording.trace)
