"""Common models, tiny and with random weights, each with a pass through it. Nothing is downloaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch.autograd.function import Function
from torch.utils.checkpoint import checkpoint

# Read when their libraries are imported, which the functions below do.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}


@pytest.fixture(scope="session", autouse=True)
def torchvision() -> Iterator[None]:
    """torchvision, whose transforms timm and transformers import.

    Its ops are compiled for CUDA and do not load beside a PyTorch for the CPU: two of them are then defined here.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401

        yield
        del library  # until now it had to live
    else:
        yield


@dataclass
class Case:
    """A model, its arguments and its loss.

    `added`: types, by path, of a trace's modules that the model does not have. `functions`: those that are layers.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], torch.Tensor] = lambda out: out.square().mean()
    added: Mapping[str, str] = field(default_factory=dict)
    functions: Collection[str] = ()

    def __call__(self) -> Any:
        return self.model(*self.args, **self.kwargs)


_TINY: dict[str, int] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
_IN_FORWARD = {"CrossEntropyLoss": "CrossEntropyLoss"}


def _loss(output: Any) -> torch.Tensor:
    return output.loss


def gpt2() -> Case:
    """The embeddings are those of the last layer too."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    tokens = torch.randint(0, 40, (2, 10))
    model = GPT2LMHeadModel(config).train()
    assert model.lm_head.weight is model.transformer.wte.weight
    return Case(model, kwargs={"input_ids": tokens, "labels": tokens.clone()}, loss=_loss)


def gpt2_with_checkpoints() -> Case:
    case = gpt2()
    case.model.activation_checkpointing_enable()
    return case


def t5() -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0, use_cache=False
    )
    given = {"input_ids": torch.randint(1, 40, (2, 9)), "labels": torch.randint(1, 40, (2, 6))}
    return Case(T5ForConditionalGeneration(config).train(), kwargs=given, loss=_loss, added=_IN_FORWARD)


def mixtral() -> Case:
    """Each block has a router and four experts in one tensor; two experts compute for each token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **_TINY, num_key_value_heads=1, num_local_experts=4, output_router_logits=True, use_cache=False
    )
    tokens = torch.randint(0, 40, (2, 8))
    given = {"input_ids": tokens, "labels": tokens.clone()}
    return Case(MixtralForCausalLM(config).train(), kwargs=given, loss=_loss)


def vit() -> Case:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=16, patch_size=8, num_classes=4, embed_dim=16, depth=2, num_heads=2, drop_rate=0.1, attn_drop_rate=0.1
    )
    return Case(model.train(), (torch.randn(2, 3, 16, 16),), loss=_classification)


def resnet18() -> Case:
    import timm

    return Case(
        timm.create_model("resnet18", num_classes=4).train(), (torch.randn(2, 3, 32, 32),), loss=_classification
    )


def _classification(out: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out, torch.arange(len(out)) % out.shape[1])


class Tagger(nn.Module):
    """A bidirectional LSTM over packed sequences, and a layer over its states."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(states)


def lstm() -> Case:
    return Case(Tagger(), (torch.randn(3, 7, 5), torch.tensor([7, 5, 2])))


class Checkpointed(nn.Module):
    """Blocks whose activations are not kept but computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x


def attention_with_reentrant_checkpoints() -> Case:
    calls = {"CheckpointFunction": "CheckpointFunction", "CheckpointFunction_1": "CheckpointFunction"}
    return Case(Checkpointed(), (torch.randn(2, 5, 4),), added=calls)


class Rescale(Function):
    """x · factor (+ shift), clamped as a dict says: a tensor, a number, a name, a dict, a tensor or None."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, factor: float, mode: str, limits: dict[str, float], shift: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, str]:
        out = x * factor if shift is None else x * factor + shift
        inside = (out >= limits["low"]) & (out <= limits["high"])
        ctx.factor = factor
        ctx.shift_shape = None if shift is None else shift.shape
        ctx.save_for_backward(inside)
        ctx.mark_non_differentiable(inside)
        ctx.set_materialize_grads(False)
        return out.clamp(limits["low"], limits["high"]), inside, mode

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
        if grad_output is None:
            return (None,) * 5
        (inside,) = ctx.saved_tensors
        grad = grad_output * inside
        grad_shift = grad.sum_to_size(ctx.shift_shape) if ctx.needs_input_grad[4] else None
        return grad * ctx.factor, None, None, None, grad_shift


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.shift = nn.Parameter(torch.randn(5) / 10)
        self.last = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, inside, _ = Rescale.apply(self.first(x), 0.5, "clamp", {"low": -0.5, "high": 0.5}, self.shift)
        again, _, mode = Rescale.apply(hidden, 2.0, "again", {"low": -1.0, "high": 1.0}, None)
        assert mode == "again"
        return self.last(torch.where(inside, again, hidden))


def user_function() -> Case:
    calls = {"Rescale": "Rescale", "Rescale_1": "Rescale"}
    return Case(WithFunction(), (torch.randn(6, 4),), added=calls, functions=calls)


CASES = {
    make.__name__: make
    for make in (
        *(gpt2, gpt2_with_checkpoints, t5, mixtral, vit, resnet18, lstm),
        *(attention_with_reentrant_checkpoints, user_function),
    )
}


IN_EVERY_RUN = ("gpt2", "user_function")
"""A library's model and one with a custom Function; `make test-all` adds the others."""


@pytest.fixture(
    scope="module",
    params=[name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.long) for name in CASES],
)
def make_case(request: pytest.FixtureRequest) -> Callable[[], Case]:
    """Makes one of the cases above afresh, always from the same seed."""

    def make() -> Case:
        torch.manual_seed(1)
        return CASES[request.param]()

    return make
