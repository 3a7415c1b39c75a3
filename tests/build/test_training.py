"""A training against the same loop in plain torch; going to a step is the same from anywhere."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from chainrule.build import Training, build_model
from chainrule.build.data import batch_of
from chainrule.build.draws import draw_leaves
from chainrule.run import Retracer, trace_spec
from chainrule.spec import ModelSpec

OPTIMIZERS = {
    "sgd": lambda p, lr, decay: torch.optim.SGD(p, lr, weight_decay=decay),
    "momentum": lambda p, lr, decay: torch.optim.SGD(p, lr, 0.9, weight_decay=decay),
    "nesterov": lambda p, lr, decay: torch.optim.SGD(p, lr, 0.9, weight_decay=decay, nesterov=True),
    "adam": lambda p, lr, decay: torch.optim.Adam(p, lr, weight_decay=decay),
    "adamw": lambda p, lr, decay: torch.optim.AdamW(p, lr, weight_decay=decay),
}
STYLES = ("functions", "classes", "layer_function", "autograd_function", "module")


def plain(spec: ModelSpec, steps: int) -> tuple[list[float], list[torch.Tensor]]:
    """The losses and the parameters of so many steps of a loop that knows only torch."""
    leaves = draw_leaves(spec.replace(step=0))
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(pairwise(spec.widths), start=1):
        linear = nn.Linear(fan_in, fan_out, dtype=torch.float64)
        linear.weight.data, linear.bias.data = leaves[f"w{index}"].t().clone(), leaves[f"b{index}"].clone()
        layers += [linear, {"relu": nn.ReLU, "tanh": nn.Tanh}[spec.activation]()]
    net = nn.Sequential(*layers[:-1])
    optimizer = OPTIMIZERS[spec.optimizer](net.parameters(), spec.lr, spec.weight_decay)
    losses = []
    for step in range(steps):
        x, y = leaves["x"], leaves["y"]
        if spec.data != "random":
            x, y = batch_of(spec.data, spec.seed, spec.batch, step)
            x = x.double()
        out = net(x)
        loss = (
            nn.functional.cross_entropy(out, y)
            if spec.loss == "cross_entropy"
            else nn.functional.mse_loss(out.squeeze(-1), y)
        )
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("data", ["random", "moons", "digits"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_hundred_steps_are_those_of_plain_torch(optimizer, data):
    sizes = {"random": "10,8,6,1", "moons": "2,8,8,2", "digits": "64,16,10"}
    spec = ModelSpec.parse(
        {
            "widths": sizes[data],
            "loss": "mse" if data == "random" else "cross_entropy",
            "data": data,
            "optimizer": optimizer,
            "lr": 0.003,
            "weight_decay": 0.01,
            "bias_std": 0.1,
            "batch": 32,
            "dtype": "float64",
            "activation": "tanh",
        }
    )
    training = Training(spec)
    model = training.go_to(200)
    losses, parameters = plain(spec, 200)
    torch.testing.assert_close(training.rows[:, 0].tolist(), losses, rtol=1e-12, atol=1e-12)
    ours = [model.leaves[f"{kind}{index}"] for index in range(1, spec.depth + 1) for kind in "wb"]
    theirs = [each.t() if each.ndim == 2 else each for each in parameters]
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("style", STYLES)
def test_every_style_trains_the_same_net(style):
    spec = ModelSpec.parse({"widths": "6,5,1", "dtype": "float64", "optimizer": "adam", "style": style, "lr": 0.1})
    found = Training(spec)
    found.go_to(30)
    reference = Training(spec.replace(style="functions"))
    reference.go_to(30)
    torch.testing.assert_close(found.rows.tolist(), reference.rows.tolist(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("query", ["optimizer=adam&step=17", "widths=2,9,2&data=xor&loss=cross_entropy&step=9"])
def test_a_step_is_the_same_from_everywhere(query):
    spec = ModelSpec.from_query(query)
    straight = trace_spec(spec)
    walker = Retracer()
    for step in (0, 3, 30, spec.step, 40, 1, spec.step):
        trace = walker.trace(spec.replace(step=step))
    assert trace.statistics.moments.tobytes() == straight.statistics.moments.tobytes()
    assert trace.loss == straight.loss
    alone = Training(spec)
    alone.go_to(40)
    assert walker.training.rows.tobytes() == alone.rows.tobytes()
    # With room for few checkpoints.
    narrow = Training(spec, checkpoint_bytes=3 * walker.training._checkpoints[0].nbytes)
    for step in (25, spec.step):
        model = narrow.go_to(step)
    assert len(narrow._checkpoints) <= 4
    for name, leaf in build_model(spec).leaves.items():
        assert torch.equal(model.leaves[name], leaf), name


def test_any_step_is_a_few_updates_away_from_a_checkpoint(monkeypatch):
    training = Training(ModelSpec(), checkpoint_bytes=30 * Training(ModelSpec())._checkpoints[0].nbytes)
    training.go_to(100)
    updates = []
    update = Training._update
    monkeypatch.setattr(Training, "_update", lambda self: (updates.append(self.step), update(self)))
    for step in (7, 93, 50, 54, 99, 0):
        updates.clear()
        training.go_to(step)
        assert len(updates) < 4, (step, updates)
        assert training.step == step


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_kept_memory_is_that_of_its_tensors(optimizer):
    training = Training(ModelSpec.parse({"widths": "2,64,64,1", "batch": 32, "optimizer": optimizer}))
    training.go_to(60)
    checkpoints = sum(checkpoint.nbytes for checkpoint in training._checkpoints.values())
    assert checkpoints < training.kept_bytes < 1.2 * checkpoints


def test_a_row_has_the_norms_of_gradients_weights_and_updates():
    spec = ModelSpec.parse({"widths": "4,3,1", "dtype": "float64", "lr": 0.5})
    built = build_model(spec)
    built.backward(built.forward())
    parameters = {name: leaf for name, leaf in built.leaves.items() if name not in ("x", "y")}
    norm = torch.cat([leaf.g.flatten() for leaf in parameters.values()]).norm()
    weights = [parameters[name] for name in ("w1", "w2")]
    norms = [
        *(weight.norm() for weight in weights),
        *(weight.g.norm() for weight in weights),
        *(0.5 * weight.g.norm() for weight in weights),
    ]
    training = Training(spec)
    training.go_to(1)
    assert training.rows[0, 1:].tolist() == pytest.approx([norm.item(), *map(float, norms)], rel=1e-12)


def test_a_training_that_diverges_goes_on():
    training = Training(ModelSpec.parse({"lr": 1e9}))
    training.go_to(60)
    assert training.rows[0, 0] < 10
    assert training.rows[-1, 0] != training.rows[-1, 0]


def test_a_learning_rate_of_zero_changes_nothing():
    training = Training(ModelSpec.parse({"lr": 0}))
    training.go_to(5)
    assert (training.rows == training.rows[0]).all()
    assert (training.rows[:, 2 + 2 * 2 :] == 0).all()
