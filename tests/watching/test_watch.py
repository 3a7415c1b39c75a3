"""A watched training is the same training; its figures are torch's; what goes wrong is an event at its step."""

import gc
import math
import random
import re
import statistics
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

import chainrule
from chainrule.errors import WatchError
from chainrule.history import Run
from chainrule.stats import COLUMNS
from chainrule.watching.events import Detector

OPTIMIZERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
    "momentum": lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda net: torch.optim.Adam(net.parameters(), lr=0.01),
    "adamw": lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "first.run"


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(48, 8),
        nn.Tanh(),
        nn.Linear(8, 2),
    )


def make_batches(count):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(5, 1, 6, 6, generator=generator), torch.randint(2, (5,), generator=generator))
        for _ in range(count)
    ]


def state_of(net, optimizer):
    tensors = [*net.state_dict().values(), torch.get_rng_state()]
    for state in optimizer.state.values():
        tensors += [torch.as_tensor(value) for value in state.values() if value is not None]
    return tensors


def trained(optimizer, watching, count=12):
    """The state after a training, inside of `watching(net, optimizer)` if that is given."""
    net = make_net()
    optimizer = OPTIMIZERS[optimizer](net)

    def steps(watch):
        for x, y in make_batches(count):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            if watch:
                watch.loss(loss)
            optimizer.step()

    if watching is None:
        steps(None)
    else:
        with watching(net, optimizer) as watch:
            steps(watch)
    return state_of(net, optimizer)


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_watched_is_unwatched_bit_for_bit(optimizer, every, path):
    bare = trained(optimizer, None)
    watched = trained(optimizer, lambda net, own: chainrule.watch(net, own, every=every, keep=path))
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    run = Run(path)
    assert run.ended == "complete"
    assert run.step_columns()["step"] == list(range(12))
    assert sorted(set(run.row_columns()["step"])) == list(range(0, 12, every))


# Of torch: a global hook runs once more, for the wrapper.
@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("every", [1, 2])
def test_a_compiled_net_keeps_its_graph(every, path):
    """Whole, as `fullgraph` demands it; compiled once for recorded steps and once for the others."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    def train(watching):
        torch._dynamo.reset()  # else the second training has the graph of the first
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        torch.manual_seed(3)
        for parameter in net.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        compiled = torch.compile(net, backend=backend, fullgraph=True)
        with watching(net, optimizer) as watch:
            for x in torch.randn(8, 16, 4):
                optimizer.zero_grad()
                compiled(x).pow(2).mean().backward()
                optimizer.step()
            if watch:
                watch.loss(math.nan)
            optimizer.step()
        if watch:
            [event] = [event for event in watch.events if event.kind == "nonfinite"]
            assert event.step == 8
            assert "the loss is NaN or Inf, but no module has statistics" in event.text
        return state_of(net, optimizer)

    bare = train(lambda *_: nullcontext())
    graphs.clear()
    watched = train(lambda net, own: chainrule.watch(net, own, every=every, keep=path))
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    assert 1 <= len(graphs) <= 2
    run = Run(path)
    for layer, part in (("0.weight", "update"), ("2.bias", "weight_gradient")):
        assert run.row_columns(layer, part)["step"] == list(range(0, 9, every))


def figure(run, layer, part, step, name="norm"):
    rows = run.row_columns(layer, part)
    return rows[name][rows["step"].index(step)]


def test_the_figures_are_those_of_torch(path):
    net = make_net()
    optimizer = OPTIMIZERS["adam"](net)
    seen = []
    with chainrule.watch(net, optimizer, every=2, keep=path) as watch:
        for x, y in make_batches(4):
            optimizer.zero_grad()
            hidden = net[:6](x)
            hidden.retain_grad()
            out = net[6:](hidden)
            loss = F.cross_entropy(out, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            watch.loss(loss)
            before = [each.detach().clone() for each in net.parameters()]
            gradients = [each.grad.clone() for each in net.parameters()]
            optimizer.step()
            updates = [each.detach() - old for each, old in zip(net.parameters(), before, strict=True)]
            seen.append((loss.item(), hidden, hidden.grad.clone(), before, gradients, updates))
    run = Run(path)
    steps = run.step_columns()
    assert steps["loss"] == [each[0] for each in seen]
    assert steps["lr"] == [0.01] * 4
    assert steps["gradient_norm"][::2] == pytest.approx([0.01, 0.01], rel=1e-3), "after clipping"
    for step in (0, 2):
        _, hidden, gradient, *of_parameters = seen[step]
        assert figure(run, "5", "activation", step) == pytest.approx(hidden.detach().double().norm().item())
        assert figure(run, "5", "gradient", step) == pytest.approx(gradient.double().norm().item())
        names = [name for name, _ in net.named_parameters()]
        for part, tensors in zip(("weight", "weight_gradient", "update"), of_parameters, strict=True):
            for name, tensor in zip(names, tensors, strict=True):
                assert figure(run, name, part, step) == pytest.approx(tensor.double().norm().item(), rel=1e-6)
    assert run.columns == COLUMNS
    histogram = run.histograms(0)["5", "activation"]
    assert histogram.sum() == 5 * 8
    assert run.histograms(2) == {}


@pytest.mark.parametrize("change", ["a leaf", "a group"])
def test_layers_may_change_between_steps(change, path):
    net = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU()), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with chainrule.watch(net, optimizer, every=1, keep=path):
        for step in range(4):
            if step == 2:
                net[1] = nn.Tanh() if change == "a leaf" else nn.Sequential(nn.Linear(8, 8), nn.Tanh())
                optimizer.add_param_group({"params": [*net[1].parameters(), nn.Parameter(torch.ones(1))]})
            optimizer.zero_grad()
            net(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    rows = Run(path).row_columns(part="activation")
    found = {
        step: {layer for at, layer in zip(rows["step"], rows["layer"], strict=True) if at == step} for step in (0, 3)
    }
    assert found == {0: {"0", "1.0", "2"}, 3: {"0", "1", "2"} if change == "a leaf" else {"0", "1.0", "1.1", "2"}}
    assert ("1.0.weight" in Run(path).row_columns(part="update")["layer"]) == (change == "a group")


def test_the_update_of_a_large_parameter_is_that_of_a_sample(path):
    torch.manual_seed(0)
    net = nn.Linear(400, 300)  # 120,000 elements
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = net.weight.detach().clone()
    with chainrule.watch(net, optimizer, every=1, keep=path):
        net(torch.randn(64, 400)).square().mean().backward()
        optimizer.step()
    update = (net.weight.detach() - before).double()
    run = Run(path)
    assert figure(run, "weight", "weight", 0) == pytest.approx(before.double().norm().item())
    assert figure(run, "weight", "update", 0, "n") == update.numel()
    for name, expected in (("norm", update.norm()), ("std", update.std(correction=0))):
        assert figure(run, "weight", "update", 0, name) == pytest.approx(expected.item(), rel=0.01)
    assert figure(run, "bias", "update", 0) == pytest.approx(0.1 * net.bias.grad.double().norm().item(), rel=1e-5)


def test_no_tensor_is_kept(path):
    def alive(watching):
        """The number of tensors after each backward pass, but for the state of the generator."""
        net = make_net()
        optimizer = OPTIMIZERS["sgd"](net)
        counts = []
        with chainrule.watch(net, optimizer, every=1, keep=path) if watching else nullcontext():
            for x, y in make_batches(4):
                optimizer.zero_grad()
                F.cross_entropy(net(x), y).backward()
                gradients = [each.grad for each in net.parameters()]
                gc.collect()
                tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
                counts.append(sum(each.dtype != torch.uint8 for each in tensors))
                del tensors, gradients
                optimizer.step()
        return counts

    bare, watched = alive(False), alive(True)
    assert watched == [bare[0]] * 4


def test_gradients_are_without_the_scale_of_a_scaler(tmp_path):
    def run_of(scale, name):
        net = make_net()
        optimizer = OPTIMIZERS["sgd"](net)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        with chainrule.watch(net, optimizer, every=1, keep=tmp_path / name, scaler=scaler):
            for x, y in make_batches(3):
                optimizer.zero_grad()
                scaler.scale(F.cross_entropy(net(x), y)).backward()
                scaler.step(optimizer)
                scaler.update()
        return Run(tmp_path / name).row_columns()

    bare, scaled = run_of(1.0, "bare.run"), run_of(1024.0, "scaled.run")
    assert set(bare["part"]) == {"activation", "gradient", "weight", "weight_gradient", "update"}
    for name in ("mean", "std", "min", "max", "norm"):
        assert scaled[name].tolist() == bare[name].tolist(), name


def hooks_of(net):
    hooks = [module._forward_hooks for module in net.modules()]
    return sum(map(len, [*hooks, torch.nn.modules.module._global_forward_hooks]))


def test_only_recorded_steps_have_a_hook_and_none_stays(path):
    net = make_net()
    optimizer = OPTIMIZERS["sgd"](net)
    counts = []
    with chainrule.watch(net, optimizer, every=3, keep=path):
        for x, y in make_batches(7):
            counts.append(hooks_of(net))
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    assert counts == [1, 0, 0, 1, 0, 0, 1]
    assert hooks_of(net) == 0
    assert not any(each._post_accumulate_grad_hooks for each in net.parameters())
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_a_loop_that_ends_by_an_exception(path):
    net = make_net()
    optimizer = OPTIMIZERS["sgd"](net)

    def fail():
        with chainrule.watch(net, optimizer, every=1, keep=path):
            for x, y in make_batches(3):
                F.cross_entropy(net(x), y).backward()
                optimizer.step()
            raise RuntimeError("no more data")

    with pytest.raises(RuntimeError, match="no more data"):
        fail()
    assert Run(path).ended == "RuntimeError: no more data"
    assert Run(path).step_columns()["step"] == [0, 1, 2]
    assert hooks_of(net) == 0


class Logarithm(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)


def watched_until(net, change, *, at=30, count=40, every=1, lr=0.01, **options):
    """The events of a regression, of which `change(step, optimizer, x)` breaks a step."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(5)
    with chainrule.watch(net, optimizer, every=every, **options) as watch:
        for step in range(count):
            x = torch.rand(16, 4, generator=generator) + 0.5
            if step == at:
                x = change(optimizer, x)
            optimizer.zero_grad()
            loss = (net(x).mean(1) - x.sum(1)).square().mean()
            loss.backward()
            watch.loss(loss)
            optimizer.step()
    return watch.events


def linear_net(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Linear(8, 2))


def test_log_of_zero_is_caught_at_its_module(path):
    net = nn.Sequential(Logarithm(), *linear_net())
    (event, *_) = watched_until(net, lambda _, x: torch.zeros_like(x), keep=path)
    assert (event.step, event.kind, event.op) == (30, "nonfinite", "0")
    assert event.text == (
        "forward: the output of 0 (Logarithm), module 1 of the pass, contains NaN or Inf; the last good step is 29"
    )
    events = Run(path).event_columns()
    assert (events["step"][0], events["kind"][0], events["op"][0]) == (30, "nonfinite", "0")


def test_an_infinite_gradient_is_caught_in_the_backward_pass():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Root(), nn.Linear(4, 2))
    (event, *_) = watched_until(net, lambda _, x: x, at=-1, count=3)
    assert (event.step, event.kind, event.op) == (0, "nonfinite", "1")
    assert event.text.startswith("backward: the gradient of the output of 1 (ReLU) contains NaN or Inf")


def test_a_step_that_is_not_recorded_says_so_and_the_next_one_names_the_parameter():
    net = nn.Sequential(Logarithm(), *linear_net())
    first, second = watched_until(net, lambda _, x: torch.zeros_like(x), at=33, every=10)
    assert (first.step, first.op) == (33, None)
    assert "the statistics of this step were not recorded; the last good step is 30" in first.text
    assert (second.step, second.op) == (34, "1.weight")
    assert "an earlier update wrote it" in second.text


@pytest.mark.parametrize("every", [1, 10])
def test_a_leap_of_the_learning_rate_is_caught_at_its_step_and_its_loss_at_the_next(every):
    def leap(optimizer, x):
        optimizer.param_groups[0]["lr"] = 300.0
        return x

    first, *others = watched_until(linear_net(), leap, count=33, every=every)
    assert (first.step, first.kind) == (30, "update_spike")
    assert first.good_step == (29 if every == 1 else 20), "the last recorded step before it"
    assert first.text.startswith("the learning rate rose from 0.01 to 300 in one step; update : weight of ")
    assert first.op in {"0.weight", "0.bias", "1.weight", "1.bias"}
    after = {event.kind for event in others if event.step == 31}
    assert after == ({"loss_spike", "gradient_explosion", "update_spike"} if every == 1 else {"loss_spike"})


def test_an_update_far_above_the_last_ones_names_its_parameter():
    def enlarge(optimizer, x):
        def multiply(*_):
            net[1].weight.grad.mul_(1e4)

        optimizer.register_step_pre_hook(multiply)
        return x

    net = linear_net()
    (event, *_) = (each for each in watched_until(net, enlarge, lr=1e-4) if each.kind == "update_spike")
    assert (event.step, event.op) == (30, "1.weight")
    assert re.fullmatch(
        r"the norm of all updates, relative to the weights, is [\d.e+]+ times its median; "
        r"update : weight of 1.weight is [\d.e+-]+, and was [\d.e-]+ in the previous recorded step",
        event.text,
    )


def train_steps(net, forget=(), set_to_none=True, every=10, accumulate=1):
    """The events of a training that does not set its gradients to zero before the steps `forget`."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    generator = torch.Generator().manual_seed(5)
    with chainrule.watch(net, optimizer, every=every) as watch:
        for step in range(30):
            if step not in forget:
                optimizer.zero_grad(set_to_none=set_to_none)
            for _ in range(accumulate):
                (net(torch.rand(16, 4, generator=generator)).square().mean() / accumulate).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
    return watch.events


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_gradients_that_were_not_set_to_zero_are_caught_at_their_step(set_to_none, accumulate):
    options = {"set_to_none": set_to_none, "accumulate": accumulate}
    assert train_steps(linear_net(), **options) == []
    (event,) = train_steps(linear_net(), forget=[23], **options)
    assert (event.step, event.kind, event.op) == (23, "stale_gradients", "0.weight")
    assert "this backward pass added to the gradients of the previous step" in event.text


def test_gradients_that_are_never_set_to_zero_are_one_event():
    (event, *others) = train_steps(linear_net(), forget=range(5, 30))
    assert (event.step, event.kind) == (5, "stale_gradients")
    assert "stale_gradients" not in {other.kind for other in others}


def test_a_discriminator_that_a_generator_uses_has_no_stale_gradients():
    generator, discriminator = linear_net(nn.Linear(8, 8)), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in (generator, discriminator)]
    with chainrule.watch(discriminator, optimizers[1], every=1) as watch:
        for _ in range(5):
            for optimizer, sign in zip(optimizers[::-1], (1, -1), strict=True):
                optimizer.zero_grad()
                (sign * discriminator(generator(torch.ones(16, 4)))).mean().backward()
                optimizer.step()
    assert watch.events == []


@pytest.mark.parametrize("every", [1, 10])
def test_an_overflow_in_float16_is_caught_at_its_step(every, path):
    net = linear_net(nn.Tanh())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=1000)
    generator = torch.Generator().manual_seed(5)
    before = scaler.update
    with chainrule.watch(net, optimizer, every=every, keep=path, scaler=scaler, on="stop") as watch:
        for step in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = net(torch.rand(16, 4, generator=generator)).float().square().mean()
            if step == 13:
                scaler.update(2.0**40)
            scaler.scale(loss).backward()
            watch.loss(loss)
            scaler.step(optimizer)
            scaler.update()
    assert scaler.update == before
    (event, *_) = watch.events
    assert (event.step, event.kind) == (13, "overflow")
    if every == 1:
        assert event.op == "2"
        assert event.text.startswith(
            "backward: the gradient of the output of 2 (Linear) contains NaN or Inf. The GradScaler"
        )
    else:
        assert event.text.startswith(
            "a gradient contains NaN or Inf; the statistics of this step were not recorded. The Gr"
        )
    assert event.text.endswith("The GradScaler skips this step and lowers its scale to 5.49756e+11")
    assert Run(path).step_columns()["step"] == list(range(20))


def test_a_plateau_has_no_spike_and_spikes_in_a_row_are_one():
    detector = Detector()
    chance = random.Random(0)
    losses = [0.7 + 1e-4 * chance.random() for _ in range(200)]
    losses[60] = 0.72  # far beyond 8 deviations, but 3 % above the rest
    losses[100:104] = [2.0, 3.0, 2.0, 1.0]
    losses[190] = 2.0
    assert [event.step for step, loss in enumerate(losses) for event in detector.loss(step, loss)] == [100, 190]


def test_five_recorded_steps_are_enough_for_an_explosion_and_explosions_in_a_row_are_one():
    detector = Detector()
    norms = [1.0, 1.1, 0.9, 1.0, 200.0, 1.0, 300.0, 400.0, 1.0, 1e7, *[1.0] * 60, 300.0]
    found = [step for step, norm in enumerate(norms) for _ in detector.gradient_norm(10 * step, norm)]
    assert found == [6, 9, 70], "four steps have no usual norm; the third explosion is 100 times as high as the first"


@pytest.mark.parametrize("every", [1, 100])
def test_explosions_and_leaps_of_recorded_steps_are_one(every):
    detector, found = Detector(), []
    for step in range(64 * every):
        size = None if step % every else 1.0 if step < 40 * every else 300.0
        found += detector.gradient_norm(step, size)
        found += detector.update(step, 0.1, None if size is None else {"w": size}, {"w": 1.0})
    assert [(event.step, event.kind) for event in found] == [
        (40 * every, "gradient_explosion"),
        (40 * every, "update_spike"),
    ]


def test_gradients_of_parameters_and_of_outputs_that_explode_are_one_event():
    detector = Detector()
    pairs = [(1.0, 1.0)] * 20 + [(150.0, 3e6)] * 3
    (event,) = (event for step, pair in enumerate(pairs) for event in detector.gradient_norm(step, *pair))
    assert event.text.startswith("the norm of all gradients is 150, 150 times the median of the last 20 recorded steps")


def test_what_is_tiny_beside_the_begin_of_the_training_is_no_event():
    detector, chance = Detector(), random.Random(0)
    for step in range(400):
        scale = max(1e-12, math.exp(-0.1 * step)) * (1000 if step > 300 and chance.random() < 0.05 else 1)
        assert detector.loss(step, scale) + detector.gradient_norm(step, scale) == []
    assert detector.loss(400, 1.0) != []
    assert detector.gradient_norm(400, 8.0) == []
    assert detector.gradient_norm(401, 9.0) != [], "10 times the first norms"


def test_a_norm_whose_square_overflows_is_finite():
    net = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with chainrule.watch(net, optimizer, every=10) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            (1e25 * net(torch.ones(1, 4))).sum().backward()
            watch.loss(1.0)
            optimizer.step()
    assert watch._gradient_norm() == pytest.approx(2e25)


def test_losses_with_a_heavy_tail_have_no_spike():
    chance = random.Random(0)
    losses = [math.exp(chance.gauss(0, 0.7)) for _ in range(2000)]
    detector, far = Detector(), 0
    for step, loss in enumerate(losses):
        last = losses[max(0, step - 50) : step] or [loss]
        median = statistics.median(last)
        far += step >= 10 and loss - median > 8 * statistics.median(abs(each - median) for each in last)
        assert detector.loss(step, loss) == []
    assert far > 5, "which 8 deviations alone would find"
    assert detector.loss(2000, 1000.0) != []


def test_warmups_and_restarts_are_no_leaps_of_the_learning_rate():
    warmup = [1e-7 * 10**step for step in range(5)]
    cosine = [1e-4 + 0.05 * (1 + math.cos(math.pi * step / 50)) for step in range(50)]
    rates = [*warmup, *3 * cosine]
    detector = Detector()
    told = [event for step, lr in enumerate(rates) for event in detector.update(step, lr, {"w": lr}, {"w": 1.0})]
    assert told == []
    (event,) = detector.update(200, 2.0, None, {})
    assert event.text == f"the learning rate rose from {cosine[-1]:.4g} to 2 in one step"


@pytest.mark.parametrize("with_closure", [False, True])
def test_sparse_gradients_are_watched(with_closure, path):
    net = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []

    def closure():
        optimizer.zero_grad()
        loss = net(torch.tensor([[1, 2], [1, 3]])).square().mean()
        loss.backward()
        norms.append(math.hypot(*(float(each.grad.to_dense().norm()) for each in net.parameters())))
        return loss

    with chainrule.watch(net, optimizer, every=1, keep=path) as watch:
        for _ in range(3):
            if with_closure:
                watch.step(closure)
            else:
                closure()
                optimizer.step()
    assert watch.events == []
    if with_closure:
        assert Run(path).step_columns()["gradient_norm"] == pytest.approx(norms[-3:])


def test_units_of_few_examples_do_not_die():
    net = linear_net(nn.ReLU())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with chainrule.watch(net, optimizer, every=1) as watch:
        for scale in (1.0, -1.0):
            optimizer.zero_grad()
            net(scale * torch.ones(1, 4)).sum().backward()
            optimizer.step()
    assert watch.events == []


def test_a_layer_dies_again_only_after_it_has_lived():
    detector = Detector()
    fractions = [0.4, 0.6, 0.45, 0.6, 0.2, 0.9, 1.0]
    found = [step for step, fraction in enumerate(fractions) for _ in detector.dead_fraction(step, "0", fraction)]
    assert found == [1, 5]
    assert Detector().dead_fraction(0, "0", 0.9) == [], "nothing has died since an earlier step"


def test_units_that_die_are_an_event():
    net = linear_net(nn.ReLU())

    def kill(_, x):
        with torch.no_grad():
            net[0].bias -= 100
        return x

    events = watched_until(net, kill)
    (dead,) = (event for event in events if event.kind == "dead_units")
    assert (dead.step, dead.op) == (30, "1")
    assert dead.text.startswith("100% of the units of 1 are dead")


def test_a_healthy_training_has_no_event():
    assert watched_until(linear_net(nn.Tanh()), lambda _, x: x) == []


def test_stop_raises_before_the_update(path):
    net = nn.Sequential(Logarithm(), *linear_net())
    with pytest.raises(WatchError, match="step 30: forward: the output of 0"):
        watched_until(net, lambda _, x: torch.zeros_like(x), on="stop", keep=path)
    assert all(parameter.isfinite().all() for parameter in net.parameters())
    assert Run(path).step_columns()["step"][-1] == 30
    assert Run(path).ended.startswith("WatchError: step 30")


def test_warn_and_a_callback():
    net = nn.Sequential(Logarithm(), *linear_net())
    told = []
    with pytest.warns(UserWarning, match="step 30: forward"):
        events = watched_until(net, lambda _, x: torch.zeros_like(x), count=31, on="warn", callback=told.append)
    assert told == events


def test_a_closure_is_run_again_in_full(path):
    def train(watching):
        net = make_net()
        optimizer = OPTIMIZERS["momentum"](net)

        def steps(step):
            for number, (x, y) in enumerate(make_batches(20)):

                def closure(x=x * 1e4 if number == 15 else x, y=y):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(net(x), y) * (1e6 if number == 15 else 1)  # noqa: B023
                    loss.backward()
                    return loss

                step(closure)

        if watching:
            with chainrule.watch(net, optimizer, every=10, keep=path) as watch:
                steps(watch.step)
            assert next(event.step for event in watch.events) == 15
        else:
            steps(optimizer.step)
        return state_of(net, optimizer)

    bare, watched = train(False), train(True)
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    run = Run(path)
    trace = chainrule.load(run.trace(15))
    assert trace.loss == run.step_columns()["loss"][15]
    assert {op.phase for op in trace.ops} == {"forward", "backward"}
    assert all(norm is not None and math.isfinite(norm) for norm in run.step_columns()["gradient_norm"])


def test_a_closure_leads_to_the_op_that_broke_and_keeps_a_step_before_it(path):
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), Logarithm())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    torch.manual_seed(0)
    nn.init.uniform_(net[0].weight, 0.1, 1)
    nn.init.ones_(net[0].bias)
    masks = []
    net[1].register_forward_hook(lambda *given: masks.append(given[2] == 0))
    batches = [torch.rand(3, 4) for _ in range(35)]
    batches[21] = -9 * torch.ones(3, 4)
    net[1].p = 0.0
    with chainrule.watch(net, optimizer, every=1, keep=path) as watch:
        for number, x in enumerate(batches):
            if number == 21:
                net[1].p = 0.5

            def closure(x=x):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                return loss

            watch.step(closure, batch=100 + number)
    event = watch.events[0]
    assert (event.step, event.kind, event.op, event.batch, event.good_step) == (21, "nonfinite", "3", 121, 20)
    run = Run(path)
    assert run.trace_steps[:2] == [0, 21], "of the healthy steps the last one that has histograms"
    assert len(run.trace_steps) == 2 + sum(each.step > 21 for each in watch.events)
    trace = chainrule.load(run.trace(21))
    (op,) = (each for each in trace.ops if each.id == event.node)
    assert op.name == "log"
    columns = run.event_columns()
    assert (columns["node"][0], columns["batch"][0]) == (event.node, 121)
    # The same draw again, from the state that the run keeps.
    torch.set_rng_state(torch.frombuffer(bytearray(run.rng_states(21)["cpu"]), dtype=torch.uint8))
    net[1](torch.ones(3, 8))
    at = 21 + 1  # the healthy step 0 ran twice
    assert torch.equal(masks[at], masks[at + 1]), "the second run has the same mask"
    assert torch.equal(masks[at], masks[-1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, "every: 0 is not an integer of at least 1"),
        ({"every": "10"}, ValueError, "every: '10' is not an integer of at least 1"),
        ({"every": 1.5}, ValueError, "every: 1.5 is not an integer of at least 1"),
        ({"callback": 3}, TypeError, "callback: expected a function, got a value of type int"),
        ({"scaler": 3}, TypeError, r"scaler: expected a torch\.amp\.GradScaler, got a value of type int"),
        ({"keep": 5}, TypeError, "keep: expected the path of a new file, got a value of type int"),
        ({"keep": "runs/first"}, ValueError, r"keep: 'runs/first' does not end with \.run, as the runs of a folder do"),
        ({"on": "shout"}, ValueError, "on: 'shout' is not one of record, warn, stop"),
        (
            {"model": 3},
            TypeError,
            "model: expected a torch.nn.Module, or a Trainer of Lightning or transformers, got a value of type int",
        ),
        ({"optimizer": 3}, TypeError, "optimizer: expected a torch.optim.Optimizer, got a value of type int"),
        ({"optimizer": None}, TypeError, "optimizer: expected a torch.optim.Optimizer, got a value of type NoneType"),
    ],
)
def test_mistakes(options, error, message):
    net = linear_net()
    given = {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)} | options
    with pytest.raises(error, match=message):
        chainrule.watch(given.pop("model"), given.pop("optimizer"), **given)


def test_the_examples_of_the_guide_run(path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
    section = text.split("## Watch your own training")[1].split("\n## ")[0]
    names = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, names)
    monkeypatch.chdir(path.parent)
    net = make_net()
    optimizer = OPTIMIZERS["sgd"](net)
    assert names["train"](net, optimizer, make_batches(12), F.cross_entropy) == []
    assert len(chainrule.runs("runs").steps) == 12
    with chainrule.watch(net, optimizer, keep=path) as watch:
        names["train_with_closure"](watch, net, optimizer, make_batches(3), F.cross_entropy)
    assert Run(path).step_columns()["step"] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "lbfgs"])
def test_a_closure_of_the_optimizer_is_watched(optimizer, path):
    """As in Lightning, where the step of the optimizer runs forward and backward."""
    lbfgs = {"lbfgs": lambda net: torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)}
    make = (OPTIMIZERS | lbfgs)[optimizer]

    def train(watching):
        net = linear_net(nn.Tanh())
        own = make(net)
        seen = []

        def steps():
            for _ in range(4):
                first = []

                def closure():
                    own.zero_grad()
                    loss = (net(torch.ones(3, 4)) - 1).square().mean()
                    loss.backward()
                    first.append((loss.item(), net[0].weight.grad.norm().item()))  # noqa: B023
                    return loss

                own.step(closure)
                seen.append(first[0])

        if watching:
            with chainrule.watch(net, own, every=1, keep=path):
                steps()
        else:
            steps()
        return list(net.parameters()), seen

    bare, seen = train(False)
    watched, _ = train(True)
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    run = Run(path)
    assert run.step_columns()["loss"] == [loss for loss, _ in seen]
    gradients = run.row_columns("0.weight", "weight_gradient")["norm"]
    assert gradients.tolist() == pytest.approx([norm for _, norm in seen])


def test_the_loss_of_a_step_is_the_mean_of_those_told(path):
    net = linear_net()
    optimizer = OPTIMIZERS["sgd"](net)
    with chainrule.watch(net, optimizer, keep=path) as watch:
        for told in ([1.0, 2.0], [math.inf, -math.inf], [], [5.0]):
            for loss in told:
                watch.loss(loss)
            optimizer.step()
    losses = Run(path).step_columns()["loss"]
    assert losses[0::2] == [1.5, None]
    assert math.isnan(losses[1])
    assert losses[3] == 5.0
