"""Models that train: each with a fixed batch, a loss and a learning rate at which thirty steps lower the loss.

Architectures of torchvision, timm and transformers with random weights, and the nets of papers and tutorials in a few
lines. Nothing is downloaded; sizes are reduced until a step takes well under a second on two cores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

# Read when their libraries are imported, which the functions below do.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}


@dataclass
class Case:
    """A model, its batch, and how it is trained."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Tensor] = lambda output: output.loss
    lr: float = 1e-3

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW of the trainable parameters."""
        return torch.optim.AdamW([each for each in self.model.parameters() if each.requires_grad], self.lr)

    def step(self) -> Tensor:
        """Forward and backward; returns the loss."""
        loss = self.loss(self.model(*self.args, **self.kwargs))
        loss.backward()
        return loss


def _classes(output: Any) -> Tensor:
    output = output if isinstance(output, Tensor) else output.logits
    return F.cross_entropy(output, torch.arange(len(output)) % output.shape[1])


def _images(model: nn.Module, size: int = 32, batch: int = 8, lr: float = 1e-3) -> Case:
    return Case(model.train(), (torch.randn(batch, 3, size, size),), loss=_classes, lr=lr)


def _vision(name: str, size: int, lr: float = 1e-3, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        from torchvision import models

        return _images(models.get_model(name, weights=None, num_classes=4, **options), size, lr=lr)

    return make


def _timm(name: str, size: int, lr: float = 1e-3, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        import timm

        return _images(timm.create_model(name, num_classes=4, **options), size, lr=lr)

    return make


_TINY = {
    "vocab_size": 200,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
}


def _language(architecture: str, **options: Any) -> Callable[[], Case]:
    """A language model that learns to repeat its tokens, or to continue them."""

    def make() -> Case:
        import transformers

        config = getattr(transformers, f"{architecture}Config")(**options)
        heads = {"Bert": "MaskedLM", "Roberta": "MaskedLM", "DistilBert": "MaskedLM", "T5": "ConditionalGeneration"}
        head = {"GPT2": "LMHeadModel"}.get(architecture, f"For{heads.get(architecture, 'CausalLM')}")
        model = getattr(transformers, architecture + head)(config)
        tokens = torch.randint(5, 200, (4, 16))
        return Case(model.train(), kwargs={"input_ids": tokens, "labels": tokens.clone()})

    return make


def _linear(fan_in: int, fan_out: int, gain: float) -> nn.Linear:
    layer = nn.Linear(fan_in, fan_out)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(fan_in))
    nn.init.zeros_(layer.bias)
    return layer


def _mlp(depth: int, activation: Callable[[], nn.Module], gain: float, lr: float = 1e-3) -> Callable[[], Case]:
    def make() -> Case:
        layers = [each for _ in range(depth) for each in (_linear(100, 100, gain), activation())]
        y = torch.randn(200, 1)
        return Case(nn.Sequential(*layers, _linear(100, 1, 1.0)), (torch.randn(200, 100),), loss=_mse(y), lr=lr)

    return make


def _mse(target: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda output: F.mse_loss(output, target)


def chapter() -> Case:
    model = nn.Sequential(_linear(100, 50, math.sqrt(2)), nn.ReLU(), _linear(50, 1, 1.0))
    return Case(model, (torch.randn(200, 100),), loss=_mse(torch.randn(200, 1)))


class Recurrent(nn.Module):
    """The last state of a recurrent net decides."""

    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.recurrent = cell(32, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, 4)

    def forward(self, tokens: Tensor) -> Tensor:  # (batch, positions) → (batch, 4)
        return self.head(self.recurrent(self.embedding(tokens))[0][:, -1])


def _recurrent(cell: type[nn.RNNBase]) -> Callable[[], Case]:
    return lambda: Case(Recurrent(cell), (torch.randint(0, 50, (16, 20)),), loss=_classes)


def transformer_encoder() -> Case:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(64, 64))
    x = torch.randn(8, 16, 64)
    return Case(model, (x,), loss=_mse(x.flip(1)))


def post_norm_encoder() -> Case:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 4)
    x = torch.randn(8, 16, 64)
    return Case(model, (x,), loss=_mse(x.flip(1)))


def autoencoder() -> Case:
    widths = (64, 32, 8, 32, 64)
    layers = [each for pair in pairwise(widths) for each in (nn.Linear(*pair), nn.GELU())]
    x = torch.randn(64, 64)
    return Case(nn.Sequential(*layers[:-1]), (x,), loss=_mse(x))


class Variational(nn.Module):
    """Kingma and Welling 2013; returns the negative evidence lower bound."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1).mean() / 2
        return F.binary_cross_entropy_with_logits(self.decoder(z), x) + divergence / 64


def variational() -> Case:
    return Case(Variational(), (torch.rand(64, 64).round(),), loss=lambda loss: loss)


class UNet(nn.Module):
    """Ronneberger et al. 2015, two levels."""

    def __init__(self) -> None:
        super().__init__()
        self.down = self.block(3, 16)
        self.bottom = self.block(16, 32)
        self.widen = nn.ConvTranspose2d(32, 16, 2, 2)
        self.up = self.block(32, 16)
        self.head = nn.Conv2d(16, 3, 1)

    @staticmethod
    def block(channels_in: int, channels: int) -> nn.Sequential:
        parts = [nn.Conv2d(channels_in, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.SiLU()]
        return nn.Sequential(*parts, nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        return self.head(self.up(torch.cat((skip, self.widen(self.bottom(F.max_pool2d(skip, 2)))), 1)))


def unet() -> Case:
    x = torch.randn(8, 3, 16, 16)
    return Case(UNet(), (x,), loss=_mse(x))


class Sine(nn.Module):
    """The activation of SIREN (Sitzmann et al. 2020)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * x)


def siren() -> Case:
    layers: list[nn.Module] = []
    for place, (fan_in, fan_out) in enumerate(((2, 64), (64, 64), (64, 64))):
        layer = nn.Linear(fan_in, fan_out)
        bound = 1 / fan_in if place == 0 else math.sqrt(6 / fan_in) / 30
        nn.init.uniform_(layer.weight, -bound, bound)
        layers += [layer, Sine()]
    last = nn.Linear(64, 1)
    nn.init.uniform_(last.weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
    x = torch.rand(256, 2) * 2 - 1
    return Case(nn.Sequential(*layers, last), (x,), loss=_mse(torch.sin(3 * x.sum(1, keepdim=True))), lr=1e-4)


class Adapted(nn.Module):
    """A frozen layer with a low-rank update that starts at zero (LoRA, Hu et al. 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(4, width) / math.sqrt(width))
        self.b = nn.Parameter(torch.zeros(width, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.t() @ self.b.t()


def lora() -> Case:
    model = nn.Sequential(Adapted(64), nn.GELU(), Adapted(64), nn.GELU(), Adapted(64))
    return Case(model, (torch.randn(64, 64),), loss=_mse(torch.randn(64, 64)))


def frozen_backbone() -> Case:
    """Only the head learns."""
    backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()).requires_grad_(False)
    return Case(nn.Sequential(backbone, nn.Linear(64, 4)), (torch.randn(64, 64),), loss=_classes)


class Ensemble(nn.Module):
    """Five nets at once by `torch.func.vmap`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(5, 32, 32) / math.sqrt(32))
        self.second = nn.Parameter(torch.randn(5, 32, 1) / math.sqrt(32))

    def forward(self, x: Tensor) -> Tensor:
        def one(first: Tensor, second: Tensor) -> Tensor:
            return torch.tanh(x @ first) @ second

        return torch.func.vmap(one)(self.first, self.second)


def vmapped() -> Case:
    return Case(Ensemble(), (torch.randn(64, 32),), loss=_mse(torch.randn(5, 64, 1)))


class Physics(nn.Module):
    """u″ = −u with u(0) = 0 and u′(0) = 1 (a physics-informed net, Raissi et al. 2019); returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, t: Tensor) -> Tensor:
        t = t.requires_grad_()
        u = self.net(t)
        (first,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), t, create_graph=True)
        return ((second + u) ** 2).mean() + u[0, 0] ** 2 + (first[0, 0] - 1) ** 2


def physics() -> Case:
    return Case(Physics(), (torch.linspace(0, 3, 50)[:, None],), loss=lambda loss: loss)


class Denoiser(nn.Module):
    """Predicts the noise of a noisy point at a time (Ho et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 64))
        self.point = nn.Linear(2, 64)
        self.rest = nn.Sequential(nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.rest(self.point(x) + self.time(t))


def denoiser() -> Case:
    noise = torch.randn(128, 2)
    return Case(Denoiser(), (torch.randn(128, 2) + noise, torch.rand(128, 1)), loss=_mse(noise))


class Recommender(nn.Module):
    """Users and items as embeddings; only a few rows of either are in a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(1000, 16), nn.Embedding(500, 16)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.head(torch.cat((self.users(user), self.items(item)), -1))


def recommender() -> Case:
    given = torch.randint(0, 1000, (32,)), torch.randint(0, 500, (32,))
    return Case(Recommender(), given, loss=_mse(torch.rand(32, 1)))


class Contrastive(nn.Module):
    """Two towers whose outputs agree (Radford et al. 2021, CLIP); returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32))
        self.text = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 32))
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        found = F.normalize(self.image(image), dim=-1) @ F.normalize(self.text(text), dim=-1).t() * self.scale.exp()
        return (_pairs(found) + _pairs(found.t())) / 2


def _pairs(scores: Tensor) -> Tensor:
    return F.cross_entropy(scores, torch.arange(len(scores)))


def contrastive() -> Case:
    return Case(Contrastive(), (torch.randn(32, 64), torch.randn(32, 48)), loss=lambda loss: loss)


class ActorCritic(nn.Module):
    """Returns the loss of one advantage step: policy, value and entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, state: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        hidden = self.body(state)
        policy, value = torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden)[:, 0]
        advantage = (reward - value).detach()
        chosen = -(policy.log_prob(action) * advantage).mean()
        return chosen + F.mse_loss(value, reward) / 2 - 0.01 * policy.entropy().mean()


def actor_critic() -> Case:
    given = torch.randn(64, 8), torch.randint(0, 4, (64,)), torch.randn(64)
    return Case(ActorCritic(), given, loss=lambda loss: loss)


HEALTHY: Mapping[str, Callable[[], Case]] = {
    "torchvision resnet18": _vision("resnet18", 64),
    "torchvision resnet50": _vision("resnet50", 64),
    "torchvision vgg11": _vision("vgg11", 32, lr=1e-4),
    "torchvision densenet121": _vision("densenet121", 64),
    "torchvision mobilenet_v3_small": _vision("mobilenet_v3_small", 64),
    "torchvision efficientnet_b0": _vision("efficientnet_b0", 64),
    "torchvision convnext_tiny": _vision("convnext_tiny", 64, lr=1e-4),
    "torchvision swin_t": _vision("swin_t", 64, lr=1e-4),
    "torchvision vit_b_16": _vision("vit_b_16", 64, lr=1e-4, image_size=64),
    "timm resnet18": _timm("resnet18", 64),
    "timm convnext_atto": _timm("convnext_atto", 64),
    "timm vit_tiny_patch16": _timm("vit_tiny_patch16_224", 64, img_size=64),
    "timm mixer_s32": _timm("mixer_s32_224", 64, img_size=64),
    "timm nf_resnet26": _timm("nf_resnet26", 64, lr=1e-4),
    "timm poolformer_s12": _timm("poolformer_s12", 64),
    "timm cait_xxs24": _timm("cait_xxs24_224", 64, img_size=64),
    "transformers BERT": _language("Bert", **_TINY),
    "transformers RoBERTa": _language("Roberta", **_TINY | {"max_position_embeddings": 40}),
    "transformers DistilBERT": _language("DistilBert", vocab_size=200, dim=48, n_layers=4, n_heads=4, hidden_dim=96),
    "transformers GPT-2": _language("GPT2", vocab_size=200, n_positions=32, n_embd=48, n_layer=4, n_head=4),
    "transformers Llama": _language("Llama", **_TINY),
    "transformers Mixtral": _language("Mixtral", **_TINY, num_key_value_heads=2, num_local_experts=4),
    "transformers T5": _language(
        "T5", vocab_size=200, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0
    ),
    "the chapter's net": chapter,
    "50 relu layers, Kaiming": _mlp(50, nn.ReLU, math.sqrt(2), lr=1e-4),
    "20 tanh layers, 5/3": _mlp(20, nn.Tanh, 5 / 3, lr=1e-4),
    "20 selu layers, LeCun": _mlp(20, nn.SELU, 1.0, lr=1e-4),
    "LSTM": _recurrent(nn.LSTM),
    "GRU": _recurrent(nn.GRU),
    "TransformerEncoder": transformer_encoder,
    "TransformerEncoder, post-norm": post_norm_encoder,
    "autoencoder": autoencoder,
    "variational autoencoder": variational,
    "U-Net": unet,
    "SIREN": siren,
    "LoRA": lora,
    "frozen backbone": frozen_backbone,
    "vmap ensemble": vmapped,
    "physics-informed net": physics,
    "denoiser": denoiser,
    "recommender": recommender,
    "contrastive towers": contrastive,
    "actor-critic": actor_critic,
}
