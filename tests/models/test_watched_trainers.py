"""The guide's lines for other people's trainers: watched is unwatched bit for bit, and the run has each step."""

import contextlib
import importlib
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

import chainrule

pytestmark = pytest.mark.long

TEXT = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (.*?)\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
LIGHTNINGS_OWN = "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning:"


def recipe(heading):
    """The function that the code under a heading defines last."""
    names = {}
    exec(compile(RECIPES[heading], f"runs.md: {heading}", "exec"), names)
    return list(names.values())[-1]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_net():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1))
    generator = torch.Generator().manual_seed(5)
    return net, [(torch.randn(6, 4, generator=generator), torch.randn(6, 1, generator=generator)) for _ in range(24)]


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=0.01)


def hooks_of(net):
    return sum(len(each._forward_hooks) for each in net.modules())


def assert_same_parameters(net, bare):
    assert hooks_of(net) == 0
    for (name, own), other in zip(net.named_parameters(), bare.parameters(), strict=True):
        assert torch.equal(own, other), name


def assert_recorded(run, rows):
    """Every tenth step, and the one after an event."""
    recorded, steps = set(rows["step"]), run.step_columns()["step"]
    assert set(run.event_columns()["kind"]) <= {"loss_spike"}
    assert recorded == {*steps[::10], *(step + 1 for step in run.event_columns()["step"])} & set(steps)
    return recorded


def norm_of(run, layer, part, step):
    rows = run.row_columns(layer, part)
    return rows["norm"][rows["step"].index(step)]


def norm_of_gradients(run, step):
    rows = run.row_columns(part="weight_gradient")
    return sum(norm**2 for at, norm in zip(rows["step"], rows["norm"], strict=True) if at == step) ** 0.5


def lightning_fit(fit, batches_per_step=1, fails_at=None, package="lightning.pytorch", **options):
    """The net, and the losses and the norms of the outputs per batch, after 24 batches with a validation amid them."""
    lightning = importlib.import_module(package)
    net, batches = make_net()
    data = torch.utils.data.DataLoader(batches, batch_size=None)
    losses, outputs = [], []

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, index):
            if index == fails_at:
                raise RuntimeError("no more data")
            output = self.net(batch[0])
            loss = F.mse_loss(output, batch[1])
            losses.append(loss.item())
            outputs.append(output.norm().item())
            return loss

        def validation_step(self, batch):
            self.net(batch[0])

        def val_dataloader(self):
            return data

        def configure_optimizers(self):
            return adam(self)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=0.01,
        accumulate_grad_batches=batches_per_step,
        val_check_interval=10,
        **options,
    )
    before = list(trainer.callbacks)
    try:
        fit(trainer, Module(), data)
    finally:
        assert trainer.callbacks == before
    return net, losses, outputs


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
@pytest.mark.parametrize(
    ("batches_per_step", "package"), [(1, "lightning.pytorch"), (2, "lightning.pytorch"), (1, "pytorch_lightning")]
)
def test_lightning(batches_per_step, package):
    bare, losses, outputs = lightning_fit(
        lambda trainer, *given: trainer.fit(*given), batches_per_step, package=package
    )
    net, *_ = lightning_fit(recipe("Lightning"), batches_per_step, package=package)
    assert_same_parameters(net, bare)
    (run,) = chainrule.runs("runs")
    steps = run.step_columns()
    assert run.ended == "complete"
    assert steps["step"] == list(range(24 // batches_per_step))
    wanted = torch.tensor(losses).view(-1, batches_per_step).mean(1).tolist()
    assert steps["loss"] == pytest.approx(wanted, rel=1e-6)
    assert set(steps["lr"]) == {0.01}
    rows = run.row_columns()
    assert_recorded(run, rows)
    assert {"net.0", "net.3.weight"} <= set(rows["layer"])
    assert set(rows["part"]) == {"activation", "gradient", "weight", "weight_gradient", "update"}
    for step in (0, 10):
        assert steps["gradient_norm"][step] == pytest.approx(0.01, rel=1e-3), "after clipping"
        assert norm_of_gradients(run, step) == pytest.approx(0.01, rel=1e-3)
        assert norm_of(run, "net.3", "activation", step) == pytest.approx(outputs[step * batches_per_step], rel=1e-6)


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_lightning_with_a_scaler():
    def gradients(name, scale):
        module = importlib.import_module("lightning.pytorch.plugins.precision")

        def fit(trainer, module, data):
            with chainrule.watch(trainer, keep=name):
                trainer.fit(module, data)

        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        lightning_fit(fit, plugins=[module.MixedPrecision("16-mixed", "cpu", scaler)])
        rows = chainrule.runs(name)[0].row_columns(part="gradient")
        return rows["norm"]

    assert gradients("scaled.run", 1024.0).tolist() == pytest.approx(gradients("bare.run", 1.0).tolist(), rel=1e-2)


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_a_lightning_training_that_fails():
    with pytest.raises(RuntimeError, match="no more data"):
        lightning_fit(recipe("Lightning"), fails_at=7)
    (run,) = chainrule.runs("runs")
    assert run.ended == "RuntimeError: no more data"
    assert run.step_columns()["step"] == list(range(7))


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_lightning_keeps_the_loss_of_the_step_at_which_the_backward_pass_fails():
    def fail():
        raise RuntimeError("no memory")

    def fit(trainer, module, data):
        module.training_step = lambda batch: module.net(batch[0]).mul(math.nan).sum()
        module.on_after_backward = fail
        recipe("Lightning")(trainer, module, data)

    with pytest.raises(RuntimeError, match="no memory"):
        lightning_fit(fit)
    (run,) = chainrule.runs("runs")
    assert run.step_columns()["step"] == [0]
    assert math.isnan(run.step_columns()["loss"][0])


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_two_fits_are_one_run():
    def fit(trainer, module, data):
        with chainrule.watch(trainer, every=5, keep="twice.run"):
            trainer.fit(module, data)
            trainer.fit_loop.epoch_progress.reset()
            trainer.fit(module, data)

    lightning_fit(fit)
    steps = chainrule.runs("twice.run").steps
    assert steps.step.tolist() == list(range(48))


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
def test_two_optimizers_are_an_error():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.automatic_optimization = nn.Linear(4, 1), False

        def training_step(self):
            raise AssertionError("the training has begun")

        def configure_optimizers(self):
            return [adam(self), adam(self)]

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False
    )
    with pytest.raises(ValueError, match="optimizer: the Trainer has 2 optimizers; watch supports exactly one"):
        recipe("Lightning")(trainer, Module(), torch.utils.data.DataLoader(make_net()[1], batch_size=None))


def transformers_train(train, batches_per_step=1):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=30, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    model = GPT2LMHeadModel(config)
    rows = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(0, 30, (48, 8))]
    arguments = TrainingArguments(
        output_dir="out",
        max_steps=12,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=batches_per_step,
        max_grad_norm=0.01,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="steps",
        logging_steps=1,
        disable_tqdm=True,
    )
    logged = []

    class Log(TrainerCallback):
        def on_log(self, *_, logs, **__):
            logged.append(logs)

    class OwnTrainer(Trainer):
        pass

    trainer = OwnTrainer(model=model, args=arguments, train_dataset=rows, callbacks=[Log()])
    callbacks, step = list(trainer.callback_handler.callbacks), trainer.training_step
    train(trainer)
    assert (trainer.callback_handler.callbacks, trainer.training_step) == (callbacks, step)
    return model, [each for each in logged if "loss" in each]


@pytest.mark.parametrize("batches_per_step", [1, 2])
def test_transformers(batches_per_step):
    bare, logged = transformers_train(lambda trainer: trainer.train(), batches_per_step)
    model, _ = transformers_train(recipe("transformers"), batches_per_step)
    assert_same_parameters(model, bare)
    (run,) = chainrule.runs("runs")
    steps = run.step_columns()
    assert steps["step"] == list(range(12))
    assert steps["loss"] == pytest.approx([float(each["loss"]) for each in logged], rel=1e-3)
    assert steps["lr"] == pytest.approx([float(each["learning_rate"]) for each in logged], rel=1e-3)
    assert float(logged[0]["grad_norm"]) > 0.1, "before clipping"
    for recorded in (0, 10):
        assert steps["gradient_norm"][recorded] == pytest.approx(0.01, rel=1e-3)
        assert norm_of_gradients(run, recorded) == pytest.approx(0.01, rel=1e-3)
    assert {"transformer.h.0.attn.c_attn", "transformer.wte.weight"} <= set(run.row_columns()["layer"])


@contextlib.contextmanager
def accelerator(**options):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    def reset():
        AcceleratorState._reset_state(True)
        GradientState._reset_state()

    reset()  # a Trainer of transformers leaves its own state
    try:
        yield Accelerator(cpu=True, **options)
    finally:
        reset()


def bare_loop(net, batches, batches_per_step=1, precision=None):
    """The losses per batch of the same training in plain torch."""
    optimizer, losses = adam(net), []
    for number, (x, y) in enumerate(batches, 1):
        with torch.autocast("cpu", torch.bfloat16) if precision else contextlib.nullcontext():
            output = net(x)
        loss = F.mse_loss(output.float(), y)
        (loss / batches_per_step).backward()
        losses.append(loss.item())
        if number % batches_per_step == 0:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def assert_run(losses, net, batches_per_step=1):
    (run,) = chainrule.runs("runs")
    steps, rows = run.step_columns(), run.row_columns()
    assert steps["step"] == list(range(24 // batches_per_step))
    assert steps["loss"] == pytest.approx(torch.tensor(losses).view(-1, batches_per_step).mean(1).tolist(), rel=1e-6)
    recorded = assert_recorded(run, rows)
    parameters = [name for name, _ in net.named_parameters()]
    places = [(layer, part) for layer in ("0", "1", "2", "3") for part in ("activation", "gradient")]
    places += [(name, part) for name in parameters for part in ("weight", "weight_gradient", "update")]
    assert set(zip(rows["layer"], rows["part"], strict=True)) == set(places)
    assert len(rows["step"]) == len(places) * len(recorded)
    assert (rows["norm"] > 0).all()


@pytest.mark.parametrize(
    ("batches_per_step", "precision"), [(1, None), (3, None), (1, "bf16")], ids=["plain", "accumulated", "bf16"]
)
def test_accelerate(batches_per_step, precision):
    bare, batches = make_net()
    losses = bare_loop(bare, batches, batches_per_step, precision)
    net, batches = make_net()
    with accelerator(gradient_accumulation_steps=batches_per_step, mixed_precision=precision or "no") as own:
        recipe("accelerate")(own, net, adam(net), batches, F.mse_loss)
    assert_same_parameters(net, bare)
    assert_run(losses, net, batches_per_step)


@pytest.mark.filterwarnings(LIGHTNINGS_OWN)
@pytest.mark.parametrize("precision", [None, "bf16-mixed"])
def test_fabric(precision):
    from lightning.fabric import Fabric

    bare, batches = make_net()
    losses = bare_loop(bare, batches, precision=precision)
    net, batches = make_net()
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision or "32-true")
    recipe("Lightning Fabric")(fabric, net, adam(net), batches, F.mse_loss)
    assert_same_parameters(net, bare)
    assert_run(losses, net)


def test_accelerate_with_a_scaler():
    def rows(name, scale):
        net, batches = make_net()
        with accelerator() as own:
            own.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
            model, optimizer = own.prepare(net, adam(net))
            with chainrule.watch(model, optimizer, keep=name):
                for x, y in batches:
                    own.backward(F.mse_loss(model(x), y))
                    optimizer.step()
                    optimizer.zero_grad()
        return chainrule.runs(name)[0].row_columns()

    bare, found = rows("bare.run", 1.0), rows("scaled.run", 1024.0)
    assert found["norm"].tolist() == bare["norm"].tolist()
    assert "gradient" in found["part"]


def test_data_parallelism():
    net, batches = make_net()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(net)
        optimizer = adam(model)
        losses = []
        with chainrule.watch(model, optimizer, keep="runs/first.run") as watch:
            for x, y in batches:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                losses.append(loss.item())
                watch.loss(loss)
                optimizer.step()
                optimizer.zero_grad()
    finally:
        torch.distributed.destroy_process_group()
    bare, batches = make_net()
    assert bare_loop(bare, batches) == losses
    assert_same_parameters(net, bare)
    assert_run(losses, net)
