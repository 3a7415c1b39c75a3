"""Loops as people write them: they break off, draw numbers, call the loss late, and spike while the loss falls."""

import gc
import math
import re
import weakref

import pytest
import torch
from torch import nn

import chainrule
from chainrule.errors import RunError, WatchError
from chainrule.history import Run
from chainrule.watching.events import Detector


@pytest.fixture
def path(tmp_path):
    return tmp_path / "first.run"


def net_and_optimizer(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def test_a_closure_that_is_run_again_changes_no_number(path):
    """The loop draws its batch before the closure, and the closure its dropout."""

    def train(step_of):
        net, optimizer = net_and_optimizer()
        optimizer.param_groups[0]["lr"] = 1e-5
        with chainrule.watch(net, optimizer, every=5, keep=path, on="record") as watch:
            losses = []
            for number in range(20):
                x = torch.randn(16, 4) * (1e3 if number == 15 else 1)

                def closure(x=x):
                    optimizer.zero_grad()
                    loss = net(x).pow(2).mean()
                    loss.backward()
                    return loss

                losses.append(step_of(watch, optimizer, closure).item())
        path.unlink()
        return [torch.tensor(losses), *(each.detach() for each in net.parameters()), torch.rand(1)], watch.events

    bare, _ = train(lambda _, optimizer, closure: optimizer.step(closure))
    watched, events = train(lambda watch, _, closure: watch.step(closure))
    assert "loss_spike" in {event.kind for event in events if event.step == 15}
    assert all(each.isfinite().all() for each in bare)
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("how", ["break", "raise"])
def test_the_step_at_which_the_loop_ends_is_written_and_judged(how, every, path):
    net, optimizer = net_and_optimizer()

    def steps(watch):
        for number in range(20):
            optimizer.zero_grad()
            loss = net(torch.randn(16, 4) * (math.nan if number == 13 else 1)).pow(2).mean()
            watch.loss(loss)
            if not loss.isfinite():
                if how == "break":
                    return
                raise ArithmeticError("a bad loss")
            loss.backward()
            optimizer.step()

    with chainrule.watch(net, optimizer, every=every, keep=path) as watch:
        if how == "break":
            steps(watch)
        else:
            with pytest.raises(ArithmeticError):
                steps(watch)
    [event] = watch.events
    assert (event.step, event.kind, event.op) == (13, "nonfinite", "0" if every == 1 else None)
    written = Run(path).step_columns()
    assert written["step"] == list(range(14))
    assert math.isnan(written["loss"][-1])
    assert written["gradient_norm"][-1] is None  # there was no backward pass


def test_an_interrupted_step_without_a_fault_is_not_written(path):
    net, optimizer = net_and_optimizer()

    def interrupted():
        net(torch.randn(16, 4))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), chainrule.watch(net, optimizer, every=1, keep=path):
        interrupted()
    assert Run(path).step_columns()["step"] == []
    assert Run(path).ended == "KeyboardInterrupt"


def test_a_callback_that_fails_at_the_end_leaves_no_hook_and_a_closed_run(path):
    net, optimizer = net_and_optimizer()

    def fail(event):
        raise ZeroDivisionError(event.kind)

    with pytest.raises(ZeroDivisionError), chainrule.watch(net, optimizer, keep=path, callback=fail) as watch:
        watch.loss(math.nan)
    assert Run(path).ended == "complete"
    assert not optimizer._optimizer_step_pre_hooks


def test_an_error_in_a_recorded_backward_pass_names_the_module_of_the_first_nan(path):
    net, optimizer = net_and_optimizer()

    def refuse(gradient):
        raise ArithmeticError(f"{gradient.isnan().sum()} NaN")

    def step():
        out = net(torch.full((16, 4), math.nan))
        out.register_hook(refuse)
        out.pow(2).mean().backward()

    with pytest.raises(ArithmeticError), chainrule.watch(net, optimizer, every=1, keep=path) as watch:
        step()
    assert [(event.step, event.op) for event in watch.events] == [(0, "0")]
    assert Run(path).ended == "ArithmeticError: 16 NaN"


@pytest.mark.parametrize("at", [15, 25, 40, 60, 100])
def test_a_spike_is_seen_while_the_loss_falls_by_decades(at):
    chance = torch.Generator().manual_seed(at)
    detector = Detector()
    for step in range(at):
        noise = torch.empty(1).uniform_(0.8, 1.25, generator=chance).item()
        assert detector.loss(step, 10 * 0.9**step * noise) == []
    usual = 10 * 0.9**at
    assert detector.loss(at, 0.5 * usual) == []
    # The issue's own bound, eight deviations above the median of the last fifty, is a loss of the early steps.
    assert [event.kind for event in detector.loss(at + 1, 30 * usual * 0.9 ** -min(at, 50))] == ["loss_spike"]


def test_a_loss_that_never_changed_can_spike_and_a_far_higher_spike_is_another():
    detector = Detector()
    steps = [*(0.7,) * 20, 0.8, 7000.0, *(0.7,) * 5, 8000.0, 9e6]
    found = [event.step for step, loss in enumerate(steps) for event in detector.loss(step, loss)]
    assert found == [21, 28]


def test_spikes_that_escalate_are_told_at_a_hundred_times_the_one_that_was_told():
    detector = Detector()
    steps = [*(1.0, 1.1) * 15, 20.0, 200.0, 1900.0, 2100.0]
    assert [step for step, loss in enumerate(steps) if detector.loss(step, loss)] == [30, 33]


def test_a_learning_rate_of_any_group_is_watched(path):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD([{"params": layer.parameters()} for layer in net], lr=1e-3)
    with chainrule.watch(net, optimizer, keep=path) as watch:
        for number in range(26):
            if number == 25:
                optimizer.param_groups[1]["lr"] = 1e3
            optimizer.zero_grad()
            net(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
    assert [(event.step, event.kind) for event in watch.events] == [(25, "update_spike")]
    assert Run(path).step_columns()["lr"][-2:] == [1e-3, 1e3]


def test_the_norm_of_all_gradients_contains_those_without_statistics(path):
    """Sparse and complex ones."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.EmbeddingBag(20, 4, sparse=True)
            self.turn = nn.Parameter(torch.ones(4, dtype=torch.complex64))

        def forward(self, x):
            return (self.words(x) * self.turn).abs().sum()

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []
    with chainrule.watch(net, optimizer, every=2, keep=path):
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randint(20, (6, 3))).backward()
            values = net.words.weight.grad.coalesce().values()
            norms.append(math.hypot(values.norm().item(), net.turn.grad.abs().norm().item()))
            optimizer.step()
    first, none, last = Run(path).step_columns()["gradient_norm"]
    assert none is None
    assert [first, last] == pytest.approx([norms[0], norms[2]], rel=1e-6)


def test_recurrent_and_parametrized_layers_have_outputs(path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.GRU(4, 4)
            self.head = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 1))

        def forward(self, x):
            return self.head(self.cells(x)[0])

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with chainrule.watch(net, optimizer, every=1, keep=path) as watch:
        for number in range(2):
            optimizer.zero_grad()
            out = net(torch.randn(3, 2, 4) * (math.nan if number else 1))
            out.retain_grad()
            out.mean().backward()
            optimizer.step()
    rows = Run(path).row_columns(part="gradient")
    assert {"cells", "head"} <= set(rows["layer"])
    norm = rows["norm"][rows["layer"].index("head")]
    assert norm == pytest.approx(1 / math.sqrt(6), rel=1e-6)
    assert "forward: the output of cells (GRU)" in watch.events[0].text


def test_a_loss_after_the_step_is_told_once():
    net, optimizer = net_and_optimizer()

    def steps(watch, count):
        for _ in range(count):
            optimizer.zero_grad()
            loss = net(torch.randn(8, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            watch.loss(loss)

    with chainrule.watch(net, optimizer) as watch:
        with pytest.warns(UserWarning, match=r"Call watch\.loss before optimizer\.step"):
            steps(watch, 1)
        steps(watch, 3)


def test_stop_looks_at_the_gradients_of_every_step():
    net, optimizer = net_and_optimizer()
    factors = iter([1.0] * 5 + [math.nan])
    net[2].weight.register_hook(lambda gradient: gradient * next(factors))

    def steps():
        while True:
            optimizer.zero_grad()
            net(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()

    with (
        pytest.raises(WatchError, match=r"^step 5: a gradient contains NaN or Inf"),
        chainrule.watch(net, optimizer, every=100, on="stop"),
    ):
        steps()
    assert all(each.isfinite().all() for each in net.parameters())


def test_what_a_step_of_the_watch_cannot_do_is_refused():
    net = nn.Linear(4, 1)
    with (
        chainrule.watch(net, torch.optim.LBFGS(net.parameters())) as watch,
        pytest.raises(TypeError, match=r"watch\.step calls optimizer\.step\(\); .* optimizer\.step\(closure\)"),
    ):
        watch.step(lambda: net(torch.ones(1, 4)).sum())
    scaler = torch.amp.GradScaler("cpu")
    with (
        chainrule.watch(net, torch.optim.SGD(net.parameters()), scaler=scaler) as watch,
        pytest.raises(TypeError, match=r"scaler\.step\(optimizer\) in a plain loop"),
    ):
        watch.step(lambda: net(torch.ones(1, 4)).sum())
    net.requires_grad_(False)
    with (
        pytest.raises(ValueError, match="optimizer: none of its parameters requires a gradient"),
        chainrule.watch(net, torch.optim.SGD(net.parameters())),
    ):
        pass


def test_the_parameters_of_another_optimizer_have_no_update(path):
    """Theirs is not made between this optimizer's own steps."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in net)
    with chainrule.watch(net, first, every=1, keep=path):
        net(torch.randn(8, 4)).pow(2).mean().backward()
        first.step()
        second.step()
    assert Run(path).parts["update"] == ["0.weight", "0.bias"]


@pytest.mark.parametrize(
    ("keep", "says"),
    [("folder.run", "is a folder; name a file in it"), ("file/a.run", "lies below a file, not in a folder")],
)
def test_a_path_that_can_be_no_file_is_refused(keep, says, tmp_path):
    (tmp_path / "folder.run").mkdir()
    (tmp_path / "file").write_text("")
    net, optimizer = net_and_optimizer()
    with (
        pytest.raises(RunError, match=rf"{re.escape(keep)}: the path {says}"),
        chainrule.watch(net, optimizer, keep=tmp_path / keep),
    ):
        pass


def test_losses_that_are_often_zero_or_constant_and_negative_have_no_spike():
    chance = torch.Generator().manual_seed(0)
    hinge = torch.relu(torch.randn(2000, generator=chance) - 1).tolist()
    for losses in (hinge, [*(-1.0,) * 30, -0.85], [*(0.0,) * 30, 3.0]):
        detector = Detector()
        assert [event for step, loss in enumerate(losses) for event in detector.loss(step, loss)] == []


def test_losses_that_drift_have_no_spike():
    chance = torch.Generator().manual_seed(0)
    noise = torch.randn(2000, generator=chance).tolist()
    detector = Detector()
    for step, each in enumerate(noise):
        assert detector.loss(step, 1 + 0.5 * math.sin(2 * math.pi * step / 200) + 0.02 * each) == []


def test_losses_that_wander_have_hardly_a_spike():
    """12,000 losses whose logarithms follow x' = 0.95 x + 0.2 z."""
    found = []
    for seed in range(4):
        chance, detector, log = torch.Generator().manual_seed(seed), Detector(), 0.0
        for step, each in enumerate(torch.randn(3000, generator=chance).tolist()):
            log = 0.95 * log + 0.2 * each
            found += detector.loss(step, math.exp(log))
    assert len(found) <= 3


def test_the_open_step_is_judged_without_its_unfinished_gradients(path):
    """They are not unscaled and not clipped yet."""
    net, optimizer = net_and_optimizer()
    scaler = torch.amp.GradScaler("cpu")
    with chainrule.watch(net, optimizer, every=1, keep=path, scaler=scaler) as watch:
        for number in range(20):
            optimizer.zero_grad()
            loss = net(torch.randn(16, 4)).pow(2).mean()
            # The last step overflows, and ends before the scaler could discard it.
            scaler.scale(loss * (1 if number < 19 else 1e36)).backward()
            watch.loss(loss)
            if number < 19:
                scaler.step(optimizer)
                scaler.update()
    assert watch.events == []
    assert Run(path).step_columns()["step"] == list(range(19))


def test_a_last_step_whose_loss_is_nan_again_is_written(path):
    net, optimizer = net_and_optimizer()
    with chainrule.watch(net, optimizer, keep=path) as watch:
        watch.loss(math.nan)
        optimizer.step()
        watch.loss(math.nan)
    assert len(watch.events) == 1
    assert Run(path).step_columns()["step"] == [0, 1]


def test_the_norm_of_large_halves_is_finite(path):
    weight = nn.Parameter(torch.ones(10_000, dtype=torch.float16))
    net = nn.ParameterList([weight])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

    def closure():
        weight.grad = None
        loss = (weight * 1000).float().sum()
        loss.backward()
        return loss

    with chainrule.watch(net, optimizer, keep=path) as watch:
        watch.step(closure)
    assert Run(path).step_columns()["gradient_norm"] == pytest.approx([1e5], rel=1e-5)


def test_a_closure_may_draw_less_in_its_second_run(path):
    """As one that keeps its noise."""

    def train(step_of):
        net, optimizer = net_and_optimizer()
        with chainrule.watch(net, optimizer, every=5, keep=path) as watch:
            for _ in range(8):
                kept = []

                def closure(kept=kept):
                    optimizer.zero_grad()
                    kept[:] = kept or [torch.randn(16, 4)]
                    loss = net(kept[0]).pow(2).mean()
                    loss.backward()
                    return loss

                step_of(watch, optimizer, closure)
        path.unlink()
        return torch.rand(1)

    bare = train(lambda _, optimizer, closure: optimizer.step(closure))
    assert torch.equal(train(lambda watch, _, closure: watch.step(closure)), bare)


def test_stop_leaves_an_overflow_to_a_fused_optimizer():
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu")
    with chainrule.watch(net, optimizer, every=100, on="stop", scaler=scaler) as watch:
        for number in range(5):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(2, 4)).sum() * (math.inf if number == 3 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert watch.events == []
    assert all(each.isfinite().all() for each in net.parameters())


def test_stop_takes_large_halves_for_finite():
    """The norm of 10,000 halves of 1,000 is no half."""
    weight = nn.Parameter(torch.ones(10_000, dtype=torch.float16))
    words = nn.EmbeddingBag(20, 4, sparse=True)
    turn = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    net = nn.ParameterList([weight, turn])
    net.add_module("words", words)
    with chainrule.watch(net, torch.optim.SGD(net.parameters(), lr=1e-4), every=10, on="stop") as watch:
        for _ in range(3):
            for each in net.parameters():
                each.grad = None
            found = (weight * 1000).float().sum() + words(torch.randint(20, (6, 3))).sum() + turn.abs().sum()
            found.backward()
            watch._optimizer.step()
    assert watch.events == []


def test_the_error_of_the_loop_is_the_one_that_is_raised(path):
    net, optimizer = net_and_optimizer()

    def fail(event):
        raise ZeroDivisionError(event.kind)

    def steps():
        watch.loss(math.nan)
        raise KeyError("the loop's own")

    with pytest.raises(KeyError) as caught, chainrule.watch(net, optimizer, keep=path, callback=fail) as watch:
        steps()
    assert caught.value.__notes__ == ["chainrule.watch could not judge the step: ZeroDivisionError: nonfinite"]
    assert Run(path).ended.startswith("KeyError")


def test_a_watch_that_cannot_begin_leaves_no_file(path):
    net, optimizer = net_and_optimizer()
    net.requires_grad_(False)
    with pytest.raises(ValueError, match="requires a gradient"), chainrule.watch(net, optimizer, keep=path):
        pass
    assert not path.exists()
    assert not optimizer._optimizer_step_pre_hooks


def test_an_event_is_told_although_the_second_run_fails(path):
    net, optimizer = net_and_optimizer()
    batches = iter([torch.full((16, 4), math.nan)])

    def closure():
        optimizer.zero_grad()
        loss = net(next(batches)).pow(2).mean()
        loss.backward()
        return loss

    with pytest.raises(StopIteration), chainrule.watch(net, optimizer, every=1, keep=path) as watch:
        watch.step(closure)
    assert [event.kind for event in watch.events] == ["nonfinite"]
    assert Run(path).event_columns()["kind"] == ["nonfinite"]


@pytest.mark.parametrize("limit", [None, 1.0])
def test_an_explosion_is_seen_although_the_gradients_are_clipped(limit):
    net, optimizer = net_and_optimizer()
    with chainrule.watch(net, optimizer, every=1) as watch:
        for number in range(15):
            optimizer.zero_grad()
            loss = (net(torch.randn(16, 4)) * (1e3 if number == 12 else 1)).pow(2).mean()
            loss.backward()
            if limit is not None:
                nn.utils.clip_grad_norm_(net.parameters(), limit)
            optimizer.step()
    event, *_ = (each for each in watch.events if each.kind == "gradient_explosion")
    assert event.step == 12
    assert event.text.startswith(
        "the norm of " + ("all gradients" if limit is None else "the gradients of all outputs")
    )


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_attention_and_a_compiled_model_have_their_own_names(path):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)

        def forward(self, x):
            return self.last(self.attention(x, x, x)[0])

    torch.manual_seed(0)
    net = torch.compile(Attention(), backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for name, model in (("eager", net._orig_mod), ("compiled", net)):
        run = path.with_stem(name)
        with chainrule.watch(net, optimizer, keep=run):
            model(torch.randn(4, 3, 8)).mean().backward()
            optimizer.step()
        names = set(zip(*(Run(run).row_columns()[key] for key in ("layer", "part")), strict=True))
        assert ("attention.in_proj_weight", "update") in names
        outputs = {(layer, part) for layer in ("attention", "last") for part in ("activation", "gradient")}
        assert names & outputs == (outputs if name == "eager" else set())


def test_a_step_that_is_run_again_keeps_its_gradients_and_a_buffer_that_was_replaced(path):
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = 0.9 * self.mean + x.detach().mean(0)
            return x - self.mean

    def train(step_of):
        torch.manual_seed(0)
        net = nn.Sequential(Mean(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        gradients = []

        def closure():
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            # As if a compiled pass rounded otherwise than its recording.
            net[1].bias.grad += 1e-3 * len(runs)
            runs.append(1)
            return loss

        with chainrule.watch(net, optimizer, every=1, keep=path) as watch:
            for batch in torch.randn(5, 16, 4):
                x = batch
                runs = []
                step_of(watch, optimizer, closure)
                gradients.append(net[1].bias.grad.clone())
        path.unlink()
        return [*gradients, net[0].mean, *(each.detach() for each in net.parameters())]

    bare = train(lambda _, optimizer, closure: optimizer.step(closure))
    watched = train(lambda watch, _, closure: watch.step(closure))
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))


def test_an_optimizer_of_any_kind(path):
    class Own(torch.optim.Optimizer):
        """No learning rate; `step` takes more than a closure."""

        def __init__(self, parameters):
            super().__init__(parameters, {})
            self.given = []

        @torch.no_grad()
        def step(self, loss=None, extra=None):
            self.given.append((loss, extra))
            for each in self.param_groups[0]["params"]:
                each.data = each - 0.1 * each.grad

    torch.manual_seed(0)
    net = nn.Linear(300, 300)
    optimizer = Own(net.parameters())
    with chainrule.watch(net, optimizer, every=1, keep=path):
        for number in range(3):
            optimizer.zero_grad()
            loss = net(torch.randn(8, 300)).pow(2).mean()
            loss.backward()
            before, wanted = net.weight.detach().clone(), loss.item()
            optimizer.step(wanted, number)
    assert optimizer.given[2] == (wanted, 2)
    rows = Run(path).row_columns("weight", "update")
    assert rows["norm"][2] == pytest.approx((net.weight - before).norm().item(), rel=0.02)


def test_the_update_of_an_optimizer_that_has_an_inner_one_is_its_own(path):
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.optimizer, self.start = inner, [each.detach().clone() for each in inner.param_groups[0]["params"]]

        def step(self):
            self.optimizer.step()
            with torch.no_grad():
                for each, kept in zip(self.param_groups[0]["params"], self.start, strict=True):
                    each.lerp_(kept, 0.5)

    net, inner = net_and_optimizer()
    optimizer = Lookahead(inner)
    with chainrule.watch(net, optimizer, every=1, keep=path):
        before = net[0].weight.detach().clone()
        net(torch.randn(16, 4)).mean().backward()
        optimizer.step()
    wanted = (net[0].weight - before).norm().item()
    assert Run(path).row_columns("0.weight", "update")["norm"] == pytest.approx([wanted], rel=1e-5)


def test_a_layer_that_is_replaced_between_two_steps_has_its_own_rows(path):
    net, optimizer = net_and_optimizer()
    with chainrule.watch(net, optimizer, every=1, keep=path):
        for number in range(2):
            if number == 1:
                net[2] = nn.Linear(8, 1)
                optimizer.param_groups[0]["params"][2:] = list(net[2].parameters())
            optimizer.zero_grad()
            net(torch.randn(16, 4)).mean().backward()
            weight = net[2].weight.detach().norm().item()
            optimizer.step()
    for layer, part in (("2", "activation"), ("2", "gradient"), ("2.weight", "update")):
        assert Run(path).row_columns(layer, part)["step"] == [0, 1]
    assert Run(path).row_columns("2.weight", "weight")["norm"][1] == pytest.approx(weight, rel=1e-5)


def test_gradients_of_outputs_are_divided_by_the_scale_of_their_own_step(path):
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    with chainrule.watch(net, optimizer, every=1, keep=path, scaler=scaler):
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(16, 4)).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert Run(path).row_columns("Linear", "gradient")["norm"] == pytest.approx([0.25] * 5)
    assert scaler.get_scale() == 32
    assert "update" not in vars(scaler)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_scripted_and_traced_modules():
    net = nn.Sequential(torch.jit.script(nn.Linear(4, 8)), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with chainrule.watch(net, optimizer, every=1):
        torch.jit.trace(net, torch.ones(2, 4))
        net(torch.ones(2, 4)).mean().backward()
        optimizer.step()


def test_a_watch_watches_one_training_of_parameters_that_have_values():
    net, optimizer = net_and_optimizer()
    watch = chainrule.watch(net, optimizer)
    with watch:
        pass
    with pytest.raises(WatchError, match="a watch watches one training; make another one"), watch:
        pass
    lazy = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="lazy modules get theirs"):
        chainrule.watch(lazy, torch.optim.SGD(lazy.parameters(), lr=0.1)).__enter__()


def test_a_kept_output_does_not_keep_the_model():
    net, optimizer = net_and_optimizer()
    with chainrule.watch(net, optimizer, every=1):
        output = net[0](torch.ones(16, 4))
        output.mean().backward()
        optimizer.step()
    known = weakref.ref(net)
    del net, optimizer
    gc.collect()
    assert known() is None
    assert output.shape == (16, 8)


def test_a_loss_that_grows_beyond_every_number():
    detector = Detector()
    found = [detector.loss(step, 10.0 ** (12 * (step - 14))) for step in range(40)]
    assert not any(found[20:]), "a steady growth has no spike"
