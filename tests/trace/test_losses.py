"""Which root is the loss, and whose gradients are whose: every figure against plain torch on the same graph."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from trace_rules import assert_gradient, assert_statistics, assert_twins, assert_well_formed, gradients_of

import chainrule
from chainrule.trace import record, trace_model


class Physics(nn.Module):
    """The residual of u″ = −u, with u(0) = 0."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(1, 8), nn.Linear(8, 1)

    def forward(self, t):
        self.hidden = torch.tanh(self.first(t))
        self.u = self.last(self.hidden)
        (velocity,) = torch.autograd.grad(self.u.sum(), t, create_graph=True)
        (force,) = torch.autograd.grad(velocity.sum(), t, create_graph=True)
        return (force + self.u).square().mean() + self.u[0, 0].square()


def made_by(trace, name):
    """The output of the first forward op of that name."""
    return trace.tensor_by_id[next(op.outputs[0] for op in trace.ops if (op.name, op.phase) == (name, "forward"))]


def assert_loss(trace, value):
    """The loss's value, and its tensor alone has the role."""
    assert trace.loss == value
    (loss,) = [tensor for tensor in trace.tensors if tensor.role == "loss"]
    assert trace.statistics[loss.id].mean == pytest.approx(value)


def assert_parameters(trace, model):
    """One gradient each, named after its parameter, and that in `.grad`."""
    for name, parameter in model.named_parameters():
        assert_gradient(trace, name, parameter.grad)
        assert_statistics(trace, trace.tensor_by_name[f"{name}.g"].id, parameter.grad)


@pytest.mark.smoke
@pytest.mark.parametrize("by", ["record", "trace_model"])
def test_a_physics_informed_net(by):
    model, t = Physics(), torch.linspace(0, 3, 20)[:, None].requires_grad_()
    loss = model(t)
    parameters = list(model.parameters())
    t_gradient, hidden, u, *expected = torch.autograd.grad(loss, [t, model.hidden, model.u, *parameters])
    if by == "record":
        with record(model) as recording:
            model(t).backward()
        trace = recording.trace
    else:
        trace = trace_model(model, t)
    assert_well_formed(trace)
    assert_twins(trace)
    assert_loss(trace, loss.item())
    assert all(torch.equal(each.grad, gradient) for each, gradient in zip(parameters, expected, strict=True))
    assert_parameters(trace, model)
    assert_gradient(trace, "input", t_gradient)
    of_loss = {tensor.gradient_of: tensor.id for tensor in trace.tensors}
    assert_statistics(trace, of_loss[made_by(trace, "tanh").id], hidden)
    assert_statistics(trace, trace.layers[0].gradient, hidden)
    assert_statistics(trace, trace.layers[1].gradient, u)
    assert trace.layers[1].weight_gradient == trace.tensor_by_name["last.weight.g"].id


def test_the_derivative_in_a_physics_informed_net_is_no_gradient_of_the_loss():
    model, t = Physics(), torch.linspace(0, 3, 20)[:, None].requires_grad_()
    model(t)
    (velocity,) = torch.autograd.grad(model.u.sum(), t)
    with record(model) as recording:
        model(t).backward()
    trace = recording.trace
    others = [trace.tensor_by_name[name] for name in ("input.g 2", "input.g 3")]
    assert [tensor.gradient_of for tensor in others] == [None, None]
    assert_statistics(trace, others[0].id, velocity)


def penalty(critic, x):
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return 10 * (slope.norm(dim=1) - 1).square().mean()


def test_a_critic_with_gradient_penalty():
    critic = nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1))
    real, fake = torch.randn(5, 3), torch.randn(5, 3)
    mixed = (0.3 * real + 0.7 * fake).requires_grad_()

    def loss():
        scores = critic(fake).mean() - critic(real).mean()
        return scores + penalty(critic, mixed)

    expected = loss()
    gradients = torch.autograd.grad(expected, list(critic.parameters()), allow_unused=True)
    with record(critic) as recording:
        loss().backward()
    trace = recording.trace
    assert_well_formed(trace)
    assert_loss(trace, expected.item())
    for parameter, gradient in zip(critic.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert_parameters(trace, critic)
    # The three calls of the last layer: of the scores' means, ∓1/5 each; the penalty's comes of another root.
    calls = [layer for layer in trace.layers if layer.name.startswith("2")]
    means = [trace.statistics[layer.gradient].mean for layer in calls[:2]]
    assert means == pytest.approx([0.2, -0.2])


def test_both_losses_of_an_adversarial_step():
    generator, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    noise, real = torch.randn(6, 2), torch.randn(6, 3)
    ones, zeros = torch.ones(6, 1), torch.zeros(6, 1)
    model = nn.ModuleDict({"generator": generator, "critic": critic})

    def of_critic(fake):
        return F.binary_cross_entropy_with_logits(critic(real), ones) + F.binary_cross_entropy_with_logits(
            critic(fake.detach()), zeros
        )

    def of_generator(fake):
        return F.binary_cross_entropy_with_logits(critic(fake), ones)

    fake = generator(noise)
    first, second = of_critic(fake), of_generator(fake)
    (gradient_of_fake,) = torch.autograd.grad(second, fake, retain_graph=True)
    critic_gradients = torch.autograd.grad(first, list(critic.parameters()))
    with record(model) as recording:
        fake = generator(noise)
        of_critic(fake).backward()
        critic.requires_grad_(False)
        of_generator(fake).backward()
    trace = recording.trace
    critic.requires_grad_()
    assert_well_formed(trace)
    assert_loss(trace, second.item())
    assert_parameters(trace, model)
    for parameter, gradient in zip(critic.parameters(), critic_gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert trace.layers[0].name == "generator"
    assert_statistics(trace, trace.layers[0].gradient, gradient_of_fake)
    # Only the critic's own loss reaches its first two calls.
    assert all(layer.gradient is not None for layer in trace.layers)


def test_two_losses_of_one_graph_that_is_retained():
    layer, x = nn.Linear(4, 3), torch.randn(5, 4)
    hidden = torch.tanh(layer(x))
    (of_hidden,) = torch.autograd.grad(hidden.exp().mean(), hidden)
    with record(layer) as recording:
        hidden = torch.tanh(layer(x))
        hidden.square().mean().backward(retain_graph=True)
        last = hidden.exp().mean()
        last.backward()
    trace = recording.trace
    assert_well_formed(trace)
    assert_loss(trace, last.item())
    # Both are added up in `.grad`; of the activation there is the last loss's.
    assert_parameters(trace, layer)
    (gradient,) = gradients_of(trace, made_by(trace, "tanh").name)
    assert_statistics(trace, gradient, of_hidden)
    assert trace.layers[0].gradient == gradient


def test_the_last_of_several_steps():
    model, x = nn.Linear(4, 1), torch.randn(5, 4)
    losses = []
    with record(model) as recording:
        for _ in range(3):
            model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
            with torch.no_grad():
                model.weight -= 0.1 * model.weight.grad
    assert len(set(losses)) == 3
    assert_well_formed(recording.trace)
    assert_loss(recording.trace, losses[-1])


def test_gradients_by_value_count_where_parameters_were_asked_for():
    model, x = nn.Linear(4, 1), torch.randn(5, 4, requires_grad=True)
    with record(model) as recording:
        out = model(x)
        loss = out.square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        (saliency,) = torch.autograd.grad(out.sum(), x)
    trace = recording.trace
    assert_loss(trace, loss.item())
    assert_gradient(trace, "weight", gradients[0])
    (of_out,) = gradients_of(trace, made_by(trace, "linear").name)
    assert_statistics(trace, of_out, 2 * out / 5)
    assert_gradient(trace, "input", saliency)


def test_a_loss_that_was_set_stays():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with record(leaves={"x": x}) as recording:
        hidden = x * 3
        loss = hidden.square().sum()
        recording.set_loss(loss)
        loss.backward(retain_graph=True)
        hidden.sum().backward()
    trace = recording.trace
    assert_loss(trace, 45.0)
    assert_gradient(trace, "mul", torch.tensor([6.0, 12.0]))
    assert_gradient(trace, "x", torch.tensor([21.0, 39.0]))


def test_a_gradient_that_one_pass_left_unread_is_no_part_of_the_next():
    class Both(torch.autograd.Function):
        """Its backward always computes both gradients, even if only one is needed."""

        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, gradient):
            a, b = ctx.saved_tensors
            return gradient * b, gradient * a

    a, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 5.0], requires_grad=True)
    with record(leaves={"a": a, "w": w}, roles={"a": "input"}) as recording:
        middle = w * 2
        out = Both.apply(a, middle)
        torch.autograd.grad(out.sum(), a, retain_graph=True)
        out.square().sum().backward()
    trace = recording.trace
    assert_well_formed(trace)
    # d/dm (a m)² = 2 a² m, with m = 2w
    assert_gradient(trace, "mul", torch.tensor([12.0, 80.0]))
    assert_gradient(trace, "w", torch.tensor([24.0, 160.0]))
    assert not [op for op in trace.ops if op.name == "accumulate"]


def test_an_ensemble_under_vmap_has_the_loss_and_the_gradient_of_what_it_gives():
    class Ensemble(nn.Module):
        """Three nets at once."""

        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Parameter(torch.randn(3, 8, 8)), nn.Parameter(torch.randn(3, 8, 1))

        def forward(self, x):
            return torch.vmap(lambda first, last: torch.tanh(x @ first) @ last)(self.first, self.last)

    model, x, y = Ensemble(), torch.randn(5, 8), torch.randn(3, 5, 1)
    # Without vmap: the same three nets as products of stacked matrices.
    out = torch.tanh(x @ model.first) @ model.last
    plain = F.mse_loss(out, y)
    of_out, *of_parameters = torch.autograd.grad(plain, [out, model.first, model.last])
    with chainrule.record(model) as recording:
        F.mse_loss(model(x), y).backward()
    trace = recording.trace
    assert trace.loss == pytest.approx(plain.item())
    loss = next(op for op in trace.ops if op.name == "mse_loss")
    gradient = next(tensor for tensor in trace.tensors if tensor.gradient_of == loss.inputs[0])
    assert trace.statistics[gradient.id].norm == pytest.approx(of_out.norm().item(), rel=1e-5)
    for parameter, expected in zip(model.parameters(), of_parameters, strict=True):
        torch.testing.assert_close(parameter.grad, expected)
    assert trace.faults == ()
