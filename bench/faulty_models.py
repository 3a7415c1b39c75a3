"""Twenty ways to break a training, each in one line that a comment `fault` marks.

A step is a forward and a backward pass. Most of these raise nothing: the loss goes down slowly, or not at all, or the
gradient is wrong.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


@dataclass
class Case:
    """A model with one fault; `kinds` of findings name it."""

    model: nn.Module
    step: Callable[[], Tensor | None]
    kinds: tuple[str, ...]
    optimizer: torch.optim.Optimizer | None = None


class Net(nn.Module):
    """The parts that it is given, and a forward that may do anything with them."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def _step(model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    def step() -> Tensor:
        found = loss(model(x))
        found.backward()
        return found

    return step


def _mse(shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    target = torch.randn(shape)
    return lambda output: F.mse_loss(output, target)


def _two_layers() -> Mapping[str, nn.Module]:
    return {"first": nn.Linear(32, 32), "second": nn.Linear(32, 4)}


class Deep(nn.Module):
    """Twenty layers of one activation."""

    def __init__(self, gain: float, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20))
        self.activation = activation
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=gain / 8)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))  # fault: vanishing, exploding
        return x


def vanishing() -> Case:
    model = Deep(0.3, torch.tanh)
    return Case(model, _step(model, torch.randn(64, 64), _mse((64, 64))), ("vanishing", "gradient_drop"))


def exploding() -> Case:
    model = Deep(4.0, torch.relu)
    return Case(model, _step(model, torch.randn(64, 64), _mse((64, 64))), ("exploding",))


def dead_units() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        return model.second(torch.relu(model.first(x)))  # fault: dead_units

    model = Net(forward, **_two_layers())
    nn.init.constant_(model.first.bias, -10.0)
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("dead",))


def detach() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = torch.relu(model.first(x)).detach()  # fault: detach
        return model.second(hidden)

    model = Net(forward, **_two_layers())
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("detach",))


def data() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = torch.tanh(model.first(x))
        output = model.second(hidden)
        hidden.data.mul_(0.5)  # fault: data
        return output

    model = Net(forward, **_two_layers())
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("in_place",))


def in_place() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = torch.sigmoid(model.first(x))
        hidden += 1  # fault: in_place
        return model.second(hidden)

    model = Net(forward, **_two_layers())
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("in_place",))


def square_root_of_zero() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        found = model.first(x)
        return torch.sqrt(((found - found.detach()) ** 2).sum(1))  # fault: square_root_of_zero

    model = Net(forward, first=nn.Linear(32, 32))
    return Case(model, _step(model, torch.randn(64, 32), lambda output: output.mean()), ("first_nonfinite",))


def logarithm_of_zero() -> Case:
    def loss(output: Tensor) -> Tensor:
        chances = torch.softmax(output * 200, 1)
        return -torch.log(chances)[torch.arange(64), torch.arange(64) % 4].mean()  # fault: logarithm_of_zero

    model = Net(lambda model, x: model.second(torch.relu(model.first(x))), **_two_layers())
    return Case(model, _step(model, 10 * torch.randn(64, 32), loss), ("first_nonfinite",))


class HalfAttention(nn.Module):
    """Attention in float16, its scores not scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(256, 256).half() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        scores = query @ key.transpose(1, 2)  # fault: half_attention
        return torch.softmax(scores, -1) @ value


def half_attention() -> Case:
    model = HalfAttention()
    x = (100 * torch.randn(4, 16, 256)).half()
    return Case(model, _step(model, x, lambda output: output.float().square().mean()), ("first_nonfinite",))


class WrongSine(torch.autograd.Function):
    """A sine whose backward has the wrong sign."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return -gradient * torch.cos(x)


def sign_error() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = WrongSine.apply(model.first(x))  # fault: sign_error
        return model.second(hidden)

    model = Net(forward, **_two_layers())
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("wrong_backward",))


def no_optimizer() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = torch.relu(model.first(x))  # fault: no_optimizer
        return model.second(hidden)

    model = Net(forward, **_two_layers())
    optimizer = torch.optim.SGD(model.second.parameters(), 0.1)
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("no_optimizer",), optimizer)


def leftover_gradient() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        return model.second(torch.relu(model.first(x)))  # fault: leftover_gradient

    model = Net(forward, **_two_layers())
    step = _step(model, torch.randn(64, 32), _mse((64, 4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step()
    optimizer.step()
    return Case(model, step, ("leftover_gradient",), optimizer)


def batch_norm_in_eval() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = torch.relu(model.norm(model.first(x)))  # fault: batch_norm_in_eval
        return model.second(hidden)

    model = Net(forward, norm=nn.BatchNorm1d(32), **_two_layers()).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("eval_mode",), optimizer)


def dropout_in_eval() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = model.drop(torch.relu(model.first(x)))  # fault: dropout_in_eval
        return model.second(hidden)

    model = Net(forward, drop=nn.Dropout(0.5), **_two_layers()).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("eval_mode",), optimizer)


def untied_weights() -> Case:
    class Language(nn.Module):
        """The head copies the embedding's values where it should have been the same parameter."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.head = nn.Linear(32, 50, bias=False)
            self.head.weight.data = self.embedding.weight.data.clone()

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embedding(tokens))  # fault: untied_weights

    model, tokens = Language(), torch.randint(0, 50, (64,))
    return Case(model, _step(model, tokens, lambda output: F.cross_entropy(output, tokens.roll(1))), ("untied",))


def broadcasting_loss() -> Case:
    target = torch.randn(64)

    def loss(output: Tensor) -> Tensor:
        return ((output - target) ** 2).mean()  # fault: broadcasting_loss

    model = Net(lambda model, x: model.first(x), first=nn.Linear(32, 1))
    return Case(model, _step(model, torch.randn(64, 32), loss), ("broadcast",))


def softmax_over_the_batch() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        output = model.second(torch.relu(model.first(x)))
        return torch.log_softmax(output, 0)  # fault: softmax_over_the_batch

    model = Net(forward, **_two_layers())
    classes = torch.arange(64) % 4
    return Case(model, _step(model, torch.randn(64, 32), lambda each: F.nll_loss(each, classes)), ("softmax",))


def softmax_twice() -> Case:
    classes = torch.arange(64) % 4

    def loss(output: Tensor) -> Tensor:
        return F.cross_entropy(torch.softmax(output, 1), classes)  # fault: softmax_twice

    model = Net(lambda model, x: model.second(torch.relu(model.first(x))), **_two_layers())
    return Case(model, _step(model, torch.randn(64, 32), loss), ("softmax",))


def nan_in_weights() -> Case:
    def forward(model: Any, x: Tensor) -> Tensor:
        hidden = torch.relu(model.first(x))  # fault: nan_in_weights
        return model.second(hidden)

    model = Net(forward, **_two_layers())
    model.first.weight.data[3, 5] = math.nan
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("first_nonfinite",))


def plain_list() -> Case:
    class Listed(nn.Module):
        """Its layers are no submodules."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(32, 32) for _ in range(3)]
            self.head = nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.relu(layer(x))  # fault: plain_list
            return self.head(x)

    model = Listed()
    return Case(model, _step(model, torch.randn(64, 32), _mse((64, 4))), ("unregistered",))


FAULTY: Mapping[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        vanishing,
        exploding,
        dead_units,
        detach,
        data,
        in_place,
        square_root_of_zero,
        logarithm_of_zero,
        half_attention,
        sign_error,
        no_optimizer,
        leftover_gradient,
        batch_norm_in_eval,
        dropout_in_eval,
        untied_weights,
        broadcasting_loss,
        softmax_over_the_batch,
        softmax_twice,
        nan_in_weights,
        plain_list,
    )
}


def marked_lines(name: str) -> frozenset[int]:
    """The lines of this file that are marked as a fault's."""
    lines = Path(inspect.getfile(Case)).read_text("utf-8").splitlines()
    marks = ((number, line.partition("# fault: ")[2].split(", ")) for number, line in enumerate(lines, 1))
    return frozenset(number for number, names in marks if name in names)
