import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from process_state import left_behind
from torch import nn

import chainrule

TEXT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = {
    section.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    for section in TEXT.split("\n## ")[1:]
}


def recipe(heading):
    """The names that the code under a heading defines."""
    (code,) = RECIPES[heading]
    names = {}
    exec(compile(code, f"recipes.md: {heading}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved_steps(folder):
    return {path.name: chainrule.load(path) for path in folder.glob("steps/*")}


def parameters_of(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


def make_net():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1))
    return net, [(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(5)]


def test_a_training_loop(folder):
    train = recipe("PyTorch")["train"]

    def trained(every):
        net, batches = make_net()
        train(net, batches, F.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1), every)
        return parameters_of(net)

    bare = trained(10**9)
    (first,) = saved_steps(folder)
    assert first == "step0.json"
    before = left_behind()
    assert_same(trained(2), bare)
    assert left_behind() == before
    steps = saved_steps(folder)
    assert set(steps) == {"step0.json", "step2.json", "step4.json"}
    losses = [steps[name].loss for name in sorted(steps)]
    assert len(set(losses)) == 3
    for trace in steps.values():
        assert [layer.name for layer in trace.layers] == ["0", "3"]
        assert {op.phase for op in trace.ops} == {"forward", "backward"}


def fit(callbacks, fails_at=None):
    import lightning

    net, batches = make_net()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, index):
            if index == fails_at:
                self.net(torch.randn(2, 3))
            x, y = batch
            return F.mse_loss(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    return parameters_of(module)


LIGHTNINGS_OWN = "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning:lightning"


@pytest.mark.long
@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_lightning(folder):
    bare = fit([])
    before = left_behind()
    assert_same(fit([recipe("Lightning")["RecordSteps"]()]), bare)
    assert left_behind() == before
    steps = saved_steps(folder)
    assert set(steps) == {"step0.json"}
    trace = steps["step0.json"]
    assert [layer.name for layer in trace.layers] == ["net.0", "net.3"]
    assert {op.phase for op in trace.ops} == {"forward", "backward"}
    assert {name for name, tensor in trace.tensor_by_name.items() if tensor.role == "parameter"} == set(bare)
    assert all(f"{name}.g" in trace.tensor_by_name for name in bare)
    assert trace.tensor_by_name["input"].role == "input"


@pytest.mark.long
@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_lightning_step_that_fails():
    callback = recipe("Lightning")["RecordSteps"]()
    before = left_behind()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fit([callback], fails_at=0)
    assert left_behind() == before
    assert "shapes cannot be multiplied" in callback.recording.trace.error.message


def train_gpt2(kind):
    from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=30, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    model = GPT2LMHeadModel(config)
    rows = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(0, 30, (6, 8))]
    arguments = TrainingArguments(
        output_dir="out",
        max_steps=3,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    kind(model=model, args=arguments, train_dataset=rows).train()
    return parameters_of(model)


@pytest.mark.long
def test_transformers(folder):
    from transformers import Trainer

    bare = train_gpt2(Trainer)
    before = left_behind()
    assert_same(train_gpt2(recipe("transformers")["RecordingTrainer"]), bare)
    assert left_behind() == before
    steps = saved_steps(folder)
    assert set(steps) == {"step0.json"}
    trace = steps["step0.json"]
    assert all(f"{name}.g" in trace.tensor_by_name for name in bare)
    assert "transformer.h.0.attn.c_attn" in [layer.name for layer in trace.layers]
    assert trace.tensor_by_name["labels"].role == "target"


def test_a_table_of_the_largest_gradients(folder):
    net, batches = make_net()
    recipe("PyTorch")["train"](net, batches[:1], F.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1))
    table = recipe("A table of statistics")["largest_gradients"](saved_steps(folder)["step0.json"])
    assert list(table.columns) == ["name", "module", "norm", "std"]
    assert len(table) == 5
    assert table.norm.is_monotonic_decreasing


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x).tanh().detach())


def test_a_report_in_a_training():
    train = recipe("A report in a training")["train"]
    bare, batches = make_net()
    recipe("PyTorch")["train"](bare, batches, F.mse_loss, torch.optim.SGD(bare.parameters(), lr=0.1), 10**9)
    net, _ = make_net()
    train(net, batches, F.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1))
    assert_same(parameters_of(net), parameters_of(bare))
    net = Cut()
    before = parameters_of(net)
    with pytest.raises(SystemExit, match=r"^Cut: 1 fault, .*\n\nFAULT  cut \(test_recipes.py:"):
        train(net, batches, F.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1))
    assert_same(parameters_of(net), before)
