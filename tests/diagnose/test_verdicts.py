"""Which layers are healthy: by what feeds their path, and where it ends."""

import math

import pytest
import torch
from lambda_modules import Parts
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

import chainrule
from chainrule.diagnose.passes import Passes
from chainrule.diagnose.paths import Paths
from chainrule.diagnose.profile import theory
from chainrule.diagnose.verdicts import health_of
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

X = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def traced(model, *inputs, loss=lambda out: out.square().mean()):
    """A real step of a training, recorded as the recipes do."""
    with chainrule.record(model) as recording:
        loss(model(*inputs)).backward()
    return recording.trace


def kinds(trace):
    return [fault.kind for fault in trace.faults if fault.level == "fault"]


def unhealthy(trace):
    words = health_of(trace.faults)
    return {layer.name: words[layer.index] for layer in trace.layers if layer.index in words}


class Deep(nn.Module):
    """Orthogonal layers, which keep the sizes of signal and gradient; one or all of them are scaled."""

    def __init__(self, depth=10, small=None, scale=0.01, activation=lambda x: x):
        super().__init__()
        self.activation = activation
        self.layers = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(depth))
        with torch.no_grad():
            for place, layer in enumerate(self.layers):
                nn.init.orthogonal_(layer.weight)
                layer.weight.mul_(scale if small in (place, "all") else 1)

    def forward(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


# ------------------------------------------------------------------------------------------------------------ gradient


def test_a_gradient_drop_names_the_layer_of_the_small_weight():
    assert traced(Deep(), X).faults == ()
    model = Deep(small=6, scale=4e-4)
    # The last bias brings the signal back, so that only the gradient is lost.
    model.layers[6].bias = nn.Parameter(torch.randn(32))
    trace = traced(model, X)
    (fault,) = trace.faults
    assert fault.kind == "gradient_drop"
    assert fault.message == (
        "the gradient of layers.5 is 2.5e3 times smaller than the gradient of layers.6, and it stays small in all "
        "earlier layers"
    )
    layer = next(layer for layer in trace.layers if layer.name == "layers.5")
    assert (fault.tensor, fault.module) == (layer.gradient, "layers.6")
    assert unhealthy(trace) == {f"layers.{place}": "vanishing" for place in range(6)}


@pytest.mark.parametrize(("scale", "is_lost"), [(1.05e-3, False), (0.95e-3, True)])
def test_a_gradient_is_lost_below_a_thousandth(scale, is_lost):
    model = Deep(small=6, scale=scale)
    model.layers[6].bias = nn.Parameter(torch.randn(32))
    assert kinds(traced(model, X)) == ["gradient_drop"] * is_lost


def test_a_gradient_that_fades_is_one_fault():
    _, fault = traced(Deep(depth=12, small="all", scale=0.4), X).faults
    # 0.4 per layer: 2.5^11 over all layers, and a tenth after three.
    assert fault.message.startswith(
        "the gradient fades by about ×0.4 per layer: it is 2.38e4 times smaller in layers.0"
    ), 2.5**11
    assert fault.module == "layers.8"


def test_a_gradient_that_underflows_fades_and_has_not_fallen_at_once():
    model = Deep(depth=60, small="all", scale=0.15)
    for layer in model.layers:
        layer.bias = nn.Parameter(torch.randn(32))
    (fault,) = traced(model, X, loss=lambda out: 1e-3 * out.square().mean()).faults
    # 0.15 to the power of 59 is below the smallest float32.
    assert fault.message.startswith("the gradient fades by about ×0.15 per layer: it is 0 in layers.0"), fault.message


def test_a_residual_branch_is_not_judged_by_itself():
    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.outer(self.inner(x)))

    model = Parts(forward, **{name: nn.Linear(32, 32) for name in ("first", "inner", "outer", "last")})
    with torch.no_grad():
        model.outer.weight.mul_(1e-5)
    assert traced(model, X).faults == ()


def test_a_trunk_that_ends_in_a_small_layer_scale_has_its_gradient():
    class Scaled(nn.Module):
        def __init__(self, gamma):
            super().__init__()
            self.gamma = nn.Parameter(torch.full((32,), gamma))

        def forward(self, x):
            return self.gamma * x

    # As the patches of CaiT: their only way to the loss leads through a scale of 1e-5.
    def forward(self, x):
        return self.head(self.query.expand(64, 32) + self.scale(self.trunk(x)))

    parts = {"trunk": nn.Linear(32, 32), "head": nn.Linear(32, 4), "query": nn.Parameter(torch.randn(32))}
    assert traced(Parts(forward, scale=Scaled(1e-5), **parts), X).faults == ()
    # So has one whose only way it is, and its signal is as small as it was chosen.
    layers = (nn.Linear(32, 32, bias=False) for _ in range(3))
    only = nn.Sequential(nn.Linear(32, 32), Scaled(1e-5), *layers, nn.Linear(32, 4))
    assert traced(only, X).faults == ()
    # The same size as a weight is a small weight.
    small = nn.Linear(32, 32)
    nn.init.eye_(small.weight).data.mul_(1e-5)
    assert kinds(traced(Parts(forward, scale=small, **parts), X)) == ["gradient_drop"]


def test_gradients_of_two_roots_are_not_compared():
    critic = nn.Sequential(nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(critic.parameters())
    x = X.clone().requires_grad_()
    with chainrule.record(critic, optimizer=optimizer) as recording:
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        (1e-6 * (slope.norm(dim=1) - 1).square().mean()).backward()
    assert unhealthy(recording.trace) == {}

    heads = {"left": nn.Linear(32, 4), "right": nn.Linear(32, 4)}
    model = Parts(lambda self, x: (self.left(x), self.right(x)), **heads)
    with chainrule.record(model) as recording:
        left, right = model(X)
        left.square().mean().backward()
        (1e-5 * right.square().mean()).backward()
    assert kinds(recording.trace) == []

    # The body has the gradient of the second root, and the end of its path that of the first.
    model = Parts(
        lambda self, x: (self.left(hidden := self.body(x)), self.right(hidden)), body=nn.Linear(32, 32), **heads
    )
    with chainrule.record(model) as recording:
        left, right = model(X)
        left.square().mean().backward(retain_graph=True)
        (1e-6 * right.square().mean()).backward()
    assert kinds(recording.trace) == []


def test_an_op_whose_derivative_is_0_keeps_every_gradient():
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    trace = traced(model, X, loss=lambda out: (10 * out).round().square().mean())
    (fault,) = trace.faults
    assert (fault.kind, trace.ops[int(fault.op[1:])].name) == ("gradient_drop", "round")
    assert set(unhealthy(trace)) == {"0", "2"}
    # A loss of 0 has nothing to send back.
    assert traced(model, X, loss=lambda out: torch.relu(out - 100).mean()).faults == ()


def test_the_steps_of_a_recurrent_cell_are_judged_together():
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            state = x.new_zeros(16, 16)
            for step in range(60):
                state = self.cell(x[:, step], state)
            return self.head(state)

    x = torch.randn(16, 60, 8)
    assert kinds(traced(Unrolled(), x, loss=lambda out: F.cross_entropy(out, torch.arange(16) % 4))) == []


def test_a_deep_chain_has_a_verdict():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(700)))
    assert "gradient_drop" in kinds(traced(model, torch.randn(4, 2)))


def test_one_tower_loses_its_gradient_though_the_other_has_it():
    def forward(self, x):
        return self.left(x) + self.right(x)

    lost = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    with torch.no_grad():
        lost[1].weight.mul_(1e-5)
    trace = traced(Parts(forward, left=nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)), right=lost), X)
    assert unhealthy(trace) == {"right.0": "vanishing"}


def test_a_normalization_divides_the_gradient_by_the_size_of_what_it_reads():
    images = 1e4 * torch.rand(16, 3, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.Flatten(),
        nn.Linear(256, 4),
    )  # fmt: skip
    trace = traced(model, images)
    first, last = trace.layers[0], trace.layers[-1]
    sizes = [
        trace.statistics[each.gradient].norm / math.sqrt(trace.statistics[each.gradient].n) for each in (first, last)
    ]
    assert sizes[0] / sizes[1] < 1e-4, "by its RMS alone it would be lost"
    assert trace.faults == ()
    without = nn.Sequential(*(each for each in model if not isinstance(each, nn.BatchNorm2d)))
    with torch.no_grad():
        without[0].weight.div_(1e4)
        without[2].weight.div_(1e4)
    assert "gradient_drop" in kinds(traced(without, images))


def test_a_deep_normalized_net_may_have_a_large_gradient():
    layers = (each for _ in range(35) for each in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()))
    trace = traced(nn.Sequential(*layers, nn.Linear(64, 4)), torch.randn(64, 64))
    assert 70 < max(Paths(Passes(trace)).least) < 1000
    assert trace.faults == ()


# ---------------------------------------------------------------------------------------------------------------- zero


def test_a_zero_that_gets_a_gradient_starts_at_0_by_design():
    class LowRank(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(32, 32).requires_grad_(False)
            self.a, self.b = nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x))

    trace = traced(nn.Sequential(LowRank(), nn.Tanh(), LowRank()), X)
    assert unhealthy(trace) == {}
    frozen, note = trace.faults
    assert (frozen.kind, frozen.level) == ("no_gradient", "note")
    assert (note.kind, note.level) == ("starts_at_zero", "note")
    assert note.message == (
        "0.b.weight and 1 more start at 0 by design: 2 layers get no gradient before step 2, such as 0.a"
    )


def test_a_last_normalization_that_starts_at_0_is_no_fault():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)
            nn.init.zeros_(self.norm.weight)

        def forward(self, x):
            return x + self.norm(torch.relu(self.inner(x)))

    trace = traced(nn.Sequential(nn.Linear(32, 32), Block(), Block(), nn.Linear(32, 4)), X)
    assert kinds(trace) == []
    assert unhealthy(trace) == {}


def test_a_head_that_starts_at_0_keeps_the_gradient_of_what_is_joined():
    def forward(self, x):
        return self.head(torch.cat([self.left(x), self.right(x)], 1))

    model = Parts(forward, left=nn.Linear(32, 32), right=nn.Linear(32, 32), head=nn.Linear(64, 4))
    nn.init.zeros_(model.head.weight)
    trace = traced(model, X, loss=lambda out: F.cross_entropy(out, torch.arange(64) % 4))
    (note,) = trace.faults
    assert (note.kind, note.level) == ("starts_at_zero", "note")


def test_zeros_behind_zeros_start_at_0_by_design_too():
    class Block(nn.Module):
        """A block of a diffusion transformer (W. Peebles and S. Xie 2022), whose modulation starts at 0."""

        def __init__(self):
            super().__init__()
            self.ada, self.inner = nn.Linear(32, 64), nn.Linear(32, 32)
            nn.init.zeros_(self.ada.weight)
            nn.init.zeros_(self.ada.bias)

        def forward(self, x, condition):
            scale, gate = self.ada(F.silu(condition)).chunk(2, -1)
            return x + gate * self.inner(F.layer_norm(x, (32,)) * (1 + scale))

    def forward(self, x):
        condition = self.condition(x.roll(1, 0))
        hidden = self.first(x)
        for block in self.blocks:
            hidden = block(hidden, condition)
        return self.out(hidden)

    parts = {"first": nn.Linear(32, 32), "condition": nn.Linear(32, 32), "out": nn.Linear(32, 4)}
    nn.init.zeros_(parts["out"].weight)
    model = Parts(forward, blocks=nn.ModuleList(Block() for _ in range(3)), **parts)
    assert kinds(traced(model, X, loss=lambda out: F.cross_entropy(out, torch.arange(64) % 4))) == []


def test_a_zero_before_a_zero_head_learns_after_it():
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 4))
    nn.init.zeros_(model[1].weight)
    nn.init.constant_(model[1].bias, 1e-4)
    nn.init.zeros_(model[2].weight)
    assert kinds(traced(model, X, loss=lambda out: F.cross_entropy(out, torch.arange(64) % 4))) == []


def test_a_net_of_zeros_is_not_healthy():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    trace = traced(model, X, loss=lambda out: (out - 1).square().mean())
    assert kinds(trace) == ["vanishing", "gradient_drop"]
    assert trace.faults[0].message == "the signal is lost: it is 0 from 0 on"
    assert set(unhealthy(trace).values()) == {"vanishing"}


# -------------------------------------------------------------------------------------------------------------- signal


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, set()),
        ({"scale": 4.9}, set()),
        ({"scale": 5.3}, {"exploding"}),
        ({"scale": 0.08}, set()),
        ({"scale": 0.07}, {"vanishing"}),  # √n·σ(w) = 0.1
        # The chapter's first attempt: weights of std 1.
        ({"init": "standard_normal"}, {"exploding"}),
        ({"init": "standard_normal", "widths": "100x51", "activation": "linear"}, {"non-finite"}),
        ({"init": "standard_normal", "scale": 0.01, "widths": "100x51", "activation": "linear"}, {"vanishing"}),
        ({"widths": "100x51"}, set()),
        ({"widths": "100x21", "activation": "tanh", "init": "lecun_normal", "scale": 5 / 3}, set()),
        # There the gradient grows by a tenth per layer: inputs that were alike part (S. Schoenholz et al. 2017).
        ({"widths": "100x51", "activation": "tanh", "init": "lecun_normal", "scale": 5 / 3}, {"exploding"}),
        ({"widths": "100x51", "activation": "tanh", "init": "lecun_normal", "scale": 0.5}, {"vanishing"}),
        ({"widths": "100x21", "activation": "tanh", "init": "lecun_normal", "scale": 8}, {"saturated", "exploding"}),
    ],
)
def test_the_gain_per_layer_is_part_of_the_verdict(values, words):
    trace = trace_spec(ModelSpec.parse(values))
    assert set(health_of(trace.faults).values()) == words


def test_the_bias_of_an_answer_does_not_bring_a_signal_back():
    model = nn.Sequential(Deep(depth=20, small="all", scale=0.5), nn.Linear(32, 1))
    trace = traced(model, X)
    answer = trace.statistics[trace.layers[-1].activation]
    assert answer.std < 1e-5 < 1e-2 < abs(answer.mean)
    assert kinds(trace) == ["vanishing", "gradient_drop"]


def test_the_last_branch_before_the_answer_may_be_weak():
    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.head(x + self.outer(torch.relu(self.inner(x))))

    parts = {name: nn.Linear(32, 32, bias=False) for name in ("first", "inner", "outer")}
    with torch.no_grad():
        parts["outer"].weight.mul_(1e-6)
    assert traced(Parts(forward, head=nn.Linear(32, 4), **parts), X).faults == ()


def test_the_size_of_an_answer_is_no_fault():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    # A bias is large beside inputs of 1e-3, and prices are large numbers.
    assert traced(model, 1e-3 * X).faults == ()
    with torch.no_grad():
        model[4].weight.mul_(1e4)
    assert traced(model, X).faults == ()
    # BEiT's head starts at a thousandth of the usual.
    normalized = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 4))
    with torch.no_grad():
        normalized[2].weight.mul_(1e-3)
        normalized[2].bias.zero_()
    assert traced(normalized, X).faults == ()


def test_a_normalized_signal_is_its_own_measure():
    embedding = nn.Embedding(50, 32)
    nn.init.normal_(embedding.weight, std=1e-4)
    model = nn.Sequential(embedding, nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 50))
    tokens = torch.randint(50, (8, 6))
    assert traced(model, tokens, loss=lambda out: F.cross_entropy(out.flatten(0, 1), tokens.flatten())).faults == ()
    # Without it the small embedding is the measure of what comes, and the layers keep to it.
    small = nn.Sequential(embedding, nn.Linear(32, 32, bias=False), nn.Linear(32, 50, bias=False))
    assert "vanishing" not in kinds(traced(small, tokens))


def test_a_mask_is_no_source():
    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(32)
        scores = scores + (1 - mask)[:, None, :] * torch.finfo(scores.dtype).min
        return self.out(torch.relu(self.inner(torch.softmax(scores, -1) @ self.value(x))))

    names = ("query", "key", "value", "inner", "out")
    mask = torch.ones(4, 16)
    mask[:, 12:] = 0
    assert traced(Parts(forward, **{name: nn.Linear(32, 32) for name in names}), X.view(4, 16, 32), mask).faults == ()


def test_two_masks_that_overflow_together_are_absorbed():
    lowest = torch.finfo(torch.float32).min

    def forward(self, x, mask):
        scores = self.layer(x).masked_fill(torch.ones(32, 32).triu(1).bool(), lowest)
        return self.last(torch.softmax(scores + mask * lowest, -1))

    parts = {"layer": nn.Linear(32, 32), "last": nn.Linear(32, 4)}
    mask = torch.zeros(32)
    mask[20:] = 1
    trace = traced(Parts(forward, **parts), X[:32], mask)
    assert trace.statistics.column("neginf").sum() > 0
    assert trace.faults == ()
    # A product that overflows is none of them.
    wrong = traced(Parts(lambda self, x: self.last(torch.softmax(self.layer(x) * lowest * 2, -1)), **parts), X)
    assert kinds(wrong)[0] == "first_nonfinite"


def test_a_gate_hides_how_it_multiplies():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm, self.head = (
                nn.Embedding(50, 32),
                nn.LSTM(32, 64, 2, batch_first=True),
                nn.Linear(64, 4),
            )

        def forward(self, tokens):
            return self.head(self.lstm(self.embedding(tokens))[0][:, -1])

    trace = traced(Last(), torch.randint(50, (16, 20)), loss=lambda out: F.cross_entropy(out, torch.arange(16) % 4))
    assert trace.faults == ()


# --------------------------------------------------------------------------------------------------------------- units


def test_an_answer_may_be_certain():
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8), nn.Sigmoid())
    with torch.no_grad():
        model[2].bias.fill_(-6.0)
    loss = lambda p: -(0.1 * torch.log(p) + 0.9 * torch.log(1 - p)).mean()  # noqa: E731
    assert kinds(traced(model, X, loss=loss)) == []


def test_few_units_are_dead_by_chance():
    def forward(self, x):
        return self.head(self.body(x) * torch.sigmoid(self.up(torch.relu(self.down(x)))))

    parts = {"body": nn.Linear(32, 32), "down": nn.Linear(32, 2), "up": nn.Linear(2, 32), "head": nn.Linear(32, 4)}
    model = Parts(forward, **parts)
    with torch.no_grad():
        model.down.bias.fill_(-100.0)
    assert "dead" not in kinds(traced(model, X))


@pytest.mark.parametrize(("batch", "is_dead"), [(8, False), (256, True)])
def test_a_unit_that_answers_to_few_inputs_is_dead_by_chance_in_a_small_batch(batch, is_dead):
    model = nn.Sequential(nn.Linear(32, 400), nn.ReLU(), nn.Linear(400, 4))
    with torch.no_grad():
        nn.init.normal_(model[0].weight, std=1 / math.sqrt(32))
        # A unit is above 0 for one input in 24: of 8 inputs 71 % of the units meet none, of 256 nearly all meet some.
        model[0].bias.fill_(-1.73)
    assert kinds(traced(model, torch.randn(batch, 32))) == []
    with torch.no_grad():
        model[0].bias[:284], model[0].bias[284:] = -50.0, 0.0  # now 71 % are dead for all
    assert kinds(traced(model, torch.randn(batch, 32))) == ["dead"] * is_dead


def test_a_dead_layer_comes_before_its_consequences():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    nn.init.constant_(model[2].bias, -100)
    trace = traced(model, torch.randn(64, 8))
    dead, fall = trace.faults[0], trace.faults[-1]
    assert dead.message == "all units of 3.relu are dead: they are not above 0 for any of 64 inputs"
    assert trace.ops[int(dead.op[1:])].name == "relu"
    assert unhealthy(trace) == {"0": "vanishing", "2": "dead"}
    assert fall.message == "the gradient is lost below 2: it is 0 in 0 and in all earlier layers"
    assert fall.remedy == "100% of the units of 2 are dead: look at its input."


def test_the_first_of_several_saturated_activations_is_named():
    model = Deep(6, "all", 20.0, torch.tanh)
    trace = traced(model, X)
    (fault,) = [each for each in trace.faults if each.kind == "saturated"]
    assert fault.message.endswith(" (and 4 more like this)")
    assert fault.tensor == trace.layers[0].activation
    assert fault.layers == (1, 2, 3, 4, 5)  # the last one is the answer


def test_the_profile_has_the_words_of_the_faults():
    trace = traced(Deep(depth=20, small="all", scale=0.6), X)
    words = {layer.index: layer.health for layer in theory(trace).layers}
    assert {index: word for index, word in words.items() if word is not None} == health_of(trace.faults) != {}
