from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

import chainrule


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def source_line():
    """The real text of an op's source line, read from this test file or from the package."""

    def read(op: Any):
        file = op.source.file
        if file.startswith("chainrule/"):
            path = Path(chainrule.__file__).parent / file.removeprefix("chainrule/")
        else:
            path = Path(__file__).parent / file
        return linecache.getline(str(path), op.source.line).strip()

    return read


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, inp: torch.Tensor):
        ctx.save_for_backward(inp)
        return inp * inp * inp

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor):
        (inp,) = ctx.saved_tensors
        return 3 * inp * inp * grad_output


class SumAndDifference(Function):
    """Two tensors and a number in, two tensors out; the second input's gradient may be None."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, factor: float):
        ctx.factor = factor
        return (a + b) * factor, (a - b) * factor

    @staticmethod
    def backward(ctx: Any, of_sum: torch.Tensor, of_difference: torch.Tensor):
        grad_b = (of_sum - of_difference) * ctx.factor if ctx.needs_input_grad[1] else None
        return (of_sum + of_difference) * ctx.factor, grad_b, None


class NumpySine(Function):
    """Its forward uses NumPy: the op is the Function itself."""

    @staticmethod
    def forward(ctx: Any, inp: torch.Tensor):
        ctx.save_for_backward(inp)
        return torch.from_numpy(np.sin(inp.detach().numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor):
        (inp,) = ctx.saved_tensors
        return grad_output * torch.from_numpy(np.cos(inp.numpy()))


class Rescale(Function):
    """x · factor + shift, clamped as a dict says; its outputs are a tensor, one without a gradient, and a name."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float, mode: str, limits: dict[str, float], shift: torch.Tensor):
        out = x * factor + shift
        inside = (out >= limits["low"]) & (out <= limits["high"])
        ctx.factor, ctx.shift_shape = factor, shift.shape
        ctx.save_for_backward(inside)
        ctx.mark_non_differentiable(inside)
        ctx.set_materialize_grads(False)
        return out.clamp(limits["low"], limits["high"]), inside, mode

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor, *_: Any):
        (inside,) = ctx.saved_tensors
        grad = grad_output * inside
        return grad * ctx.factor, None, None, None, grad.sum_to_size(ctx.shift_shape)


@pytest.fixture(scope="session")
def functions():
    class Named:
        cube = Cube
        sum_and_difference = SumAndDifference
        numpy_sine = NumpySine

    return Named


@dataclass
class Program:
    """A model and a pass through it: `run()` gives what it computed, by name."""

    model: Any
    run: Callable[[], dict[str, torch.Tensor]]


PROGRAM_BY_NAME = {}


def named(make):
    PROGRAM_BY_NAME[make.__name__] = make
    return make


def _train(model: nn.Module, *inputs: torch.Tensor):
    def run():
        out = model(*inputs)
        loss = out.square().mean()
        loss.backward()
        return {"out": out, "loss": loss}

    return Program(model, run)


@named
def mlp():
    return _train(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(5, 6, requires_grad=True))


@named
def conv_batchnorm_dropout():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.4),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 2),
    )
    return _train(model, torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.block = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Tanh())
        self.last = nn.Linear(6, 2)
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor):
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=self.use_reentrant))


@named
def checkpoint_reentrant():
    return _train(Checkpointed(True), torch.randn(5, 6))


@named
def checkpoint_without_reentry():
    return _train(Checkpointed(False), torch.randn(5, 6))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor):
        states, (hidden, _) = self.lstm(x)
        return self.head(states[:, -1] + hidden[-1])


@named
def lstm():
    return _train(Sequence(), torch.randn(3, 7, 5))


@named
def transformer():
    return _train(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), torch.randn(2, 5, 8))


class WithFunctions(nn.Module):
    cube = staticmethod(Cube.apply)

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.shift = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor):
        a = self.cube(x @ self.weight)
        both, difference = SumAndDifference.apply(a, self.shift.expand_as(a), 0.5)
        wave = NumpySine.apply(both) * difference
        clamped, inside, _ = Rescale.apply(wave, 0.5, "clamp", {"low": -0.5, "high": 0.5}, self.shift)
        return torch.where(inside, clamped, wave)


@named
def custom_functions():
    return _train(WithFunctions(), torch.randn(3, 4))


class Shared(nn.Module):
    """One layer three times, and a residual stream around it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor):
        for _ in range(3):
            x = x + torch.tanh(self.layer(x))
        return x


@named
def shared_layer():
    return _train(Shared(), torch.randn(4, 5))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: torch.Tensor):
        self.steps.add_(1)
        h = x @ self.weight
        h.add_(1.0)
        h[:, 0] = 2.0
        h[:, 1:3].mul_(0.5)
        h *= 1.5
        h = F.relu(h, inplace=True) * 2
        return F.dropout(h, 0.3, training=True, inplace=True)


@named
def in_place():
    return _train(InPlace(), torch.randn(3, 4))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"left": nn.Linear(4, 4), "right": nn.Linear(4, 4)})
        self.unused = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        steps = 0
        while x.norm() > 0.5 and steps < 4:
            x = self.parts["left" if x.sum() > 0 else "right"](x) * 0.6
            steps += 1
        with torch.no_grad():
            scale = x.abs().max()
        return x.detach() + x / scale


@named
def branching():
    return _train(Branching(), torch.randn(3, 4))


@named
def several_outputs():
    weight = nn.Parameter(torch.randn(4, 6))

    def run():
        a, b, c = (torch.randn(5, 4) @ weight).split(2, dim=1)
        best, where = b.max(dim=0)
        ordered, _ = c.sort(dim=0)
        q, r = torch.linalg.qr(torch.randn(3, 3) + weight[:3, :3])
        loss = (a.sum(0) * best).sum() + ordered[0].sum() + (q @ r).sum() + a.unbind(0)[1].sum()
        loss.backward()
        return {"loss": loss, "where": where, "weight.grad": weight.grad}

    return Program(None, run)


@named
def entry_points():
    """autograd.grad, autograd.backward with several roots, a graph kept, and a gradient of a gradient."""
    x, w = torch.randn(4, 3), nn.Parameter(torch.randn(3, 2))

    def run():
        out = torch.tanh(x @ w)
        (first,) = torch.autograd.grad(out.sum(), w, create_graph=True)
        penalty = first.square().sum()
        penalty.backward(retain_graph=True)
        of_penalty = w.grad.clone()
        torch.autograd.backward([out.sum(), out.square()], [None, torch.ones_like(out)], retain_graph=True)
        pair = torch.autograd.grad([out, penalty], [w, out], [torch.ones_like(out), None], allow_unused=True)
        return {
            "out": out,
            "first": first,
            "penalty": of_penalty,
            "w.grad": w.grad,
            "pair": pair[0],
            "pair_out": pair[1],
        }

    return Program(None, run)


@named
def user_hooks():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(3, 4, requires_grad=True)
    seen: list[torch.Tensor] = []
    model[0].register_full_backward_hook(lambda _module, _inputs, outputs: seen.append(outputs[0].clone()))
    model[2].register_forward_hook(lambda _module, _inputs, output: output * 2)
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))

    def run():
        hidden = model[1](model[0](x))
        hidden.register_hook(lambda gradient: gradient * 3)
        hidden.retain_grad()
        loss = model[2](hidden).mean()
        loss.backward()
        return {"loss": loss, "hidden.grad": hidden.grad, "seen": seen[-1]}

    return Program(model, run)


@named
def training_steps():
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, y = torch.randn(6, 4), torch.randn(6, 1)

    def run():
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.detach())
        return {"losses": torch.stack(losses)}

    return Program(model, run)


@named
def mixed_precision():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(5, 6)

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
            loss = out.float().square().mean()
        loss.backward()
        return {"out": out, "loss": loss}

    return Program(model, run)


def make_program(make: Callable[[], Program]):
    """A program made after its seeds are set; the draws of its run continue the same streams."""
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    return make()


@pytest.fixture(params=PROGRAM_BY_NAME)
def program(request: pytest.FixtureRequest):
    """Makes one of the programs above afresh, always from the same seeds."""
    return lambda: make_program(PROGRAM_BY_NAME[request.param])


@pytest.fixture(name="make_program")
def _make_program():
    return lambda name: make_program(PROGRAM_BY_NAME[name])
