"""Common models, tiny and with random weights, each with a pass through it. Nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from vision import import_torchvision

# Read when their libraries are imported, which the functions below do.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}


@pytest.fixture(scope="session", autouse=True)
def torchvision() -> Iterator[None]:
    library = import_torchvision()
    yield
    del library


def _loss(output: Any) -> torch.Tensor:
    return output.loss


@dataclass
class Case:
    """A model, its arguments and its loss.

    `added`: types, by path, of a trace's modules that the model does not have.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], torch.Tensor] = _loss
    added: Mapping[str, str] = field(default_factory=dict)

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


def gpt2() -> Case:
    """The embeddings are those of the last layer too."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    tokens = torch.randint(0, 40, (2, 10))
    model = GPT2LMHeadModel(config).train()
    assert model.lm_head.weight is model.transformer.wte.weight
    return Case(model, kwargs={"input_ids": tokens, "labels": tokens.clone()})


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
    return Case(T5ForConditionalGeneration(config).train(), kwargs=given, added=_IN_FORWARD)


def mixtral() -> Case:
    """Each block has a router and four experts in one tensor; two experts compute for each token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **_TINY, num_key_value_heads=1, num_local_experts=4, output_router_logits=True, use_cache=False
    )
    tokens = torch.randint(0, 40, (2, 8))
    given = {"input_ids": tokens, "labels": tokens.clone()}
    return Case(MixtralForCausalLM(config).train(), kwargs=given)


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


CASES = {make.__name__: make for make in (gpt2, gpt2_with_checkpoints, t5, mixtral, vit, resnet18)}


@pytest.fixture(
    scope="module", params=[name if name == "gpt2" else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def make_case(request: pytest.FixtureRequest) -> Callable[[], Case]:
    """Makes one of the cases above afresh, always from the same seed."""

    def make() -> Case:
        torch.manual_seed(1)
        return CASES[request.param]()

    return make
